/* NumPy's .npy files, format versions 1 to 3: C and Fortran order; float32, float16, bfloat16 (also as <u2), int32,
 * int64, uint8 and bool. A malformed file is refused with a reason; nothing in it is trusted. */
#ifndef TOOLS_NPY_H
#define TOOLS_NPY_H

#include "array.h"

#define NPY_REASON_SIZE 160

/* Makes *out in C order whatever the file's order. On failure writes why to reason and makes nothing. */
bool npy_read(const char *path, struct array *out, char reason[NPY_REASON_SIZE]);

/* The same from memory, for files already read. */
bool npy_parse(const void *bytes, size_t size, struct array *out, char reason[NPY_REASON_SIZE]);

/* Format version 1.0, C order. bf16 is written as <u2. */
bool npy_write(const char *path, const struct array *array, char reason[NPY_REASON_SIZE]);

#endif
