/* Reads the files of numbers that the tests' data are: NumPy's format, version 1, C order. */
#ifndef CLIENTS_NPY_H
#define CLIENTS_NPY_H

#include <stddef.h>

/* The file's numbers, 4 bytes each; descr is "<f4" or "<i4". *count: how many. Ends the program where the file is
 * another. free() the result. */
void *npy_read(const char *path, const char *descr, size_t *count);

#endif
