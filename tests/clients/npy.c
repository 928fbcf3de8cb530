/* The header is a line of text of a known length; of it, only dtype and order matter here. */
#include "npy.h"

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 10, NUMBER = 4 }; /* bytes: before the text; of a number */

void *npy_read(const char *path, const char *descr, size_t *count) {
    char wanted[64];
    size_t size;
    char *file = client_read_file(path, &size);
    if (size < PREFIX || memcmp(file, "\x93NUMPY\x01", 7) != 0)
        client_fail("%s: not a NumPy file of version 1", path);
    const size_t begin = PREFIX + (size_t)(unsigned char)file[8] + ((size_t)(unsigned char)file[9] << 8);
    if (begin > size || (size - begin) % NUMBER != 0)
        client_fail("%s: of the wrong length", path);
    snprintf(wanted, sizeof wanted, "{'descr': '%s', 'fortran_order': False,", descr);
    if (strncmp(file + PREFIX, wanted, strlen(wanted)) != 0)
        client_fail("%s: is not %s in C order", path, descr);
    *count = (size - begin) / NUMBER;
    void *numbers = client_allocate(size - begin);
    memcpy(numbers, file + begin, size - begin);
    free(file);
    return numbers;
}
