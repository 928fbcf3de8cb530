/* Reads a file of tensors (.safetensors): 8 bytes that tell the length of a JSON text, that text with every tensor's
 * dtype, shape and place, and then their values one behind the other. */
#ifndef CLIENTS_SAFETENSORS_H
#define CLIENTS_SAFETENSORS_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

struct safetensors {
    cJSON *header;
    void *file; /* mapped */
    size_t file_bytes;
    const void *values;
    size_t value_bytes;
};

/* Ends the program where the file is none. */
struct safetensors safetensors_open(const char *path);
void safetensors_close(struct safetensors *file);

/* Where the tensor's values begin, in floats from `values` on. Ends the program where there is no fp32 tensor of that
 * name with so many rows (0: it has one dim) and columns that lies within the file. */
int64_t safetensors_find(const struct safetensors *file, const char *name, int64_t rows, int64_t columns);

#endif
