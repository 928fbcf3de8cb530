/* A dense row-major array in host memory, and the conversions between its element types. */
#ifndef TOOLS_ARRAY_H
#define TOOLS_ARRAY_H

#include <clattn/clattn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_MAX_RANK 8

enum element { ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16, ELEMENT_I32, ELEMENT_I64, ELEMENT_U8, ELEMENT_BOOL, ELEMENT_I8 };

struct array {
    enum element element;
    int rank;
    int64_t dims[ARRAY_MAX_RANK];
    size_t count; /* product of dims */
    void *data;   /* owned; never NULL in a made array */
};

size_t element_size(enum element element);
const char *element_name(enum element element); /* "f32" */
bool element_is_float(enum element element);
bool element_named(const char *name, enum element *out);
clattn_dtype element_dtype(enum element element); /* 0 of int64, which the library does not know */

/* Zeroed. False where the size overflows or memory is short. */
bool array_make(struct array *array, enum element element, int rank, const int64_t *dims);
void array_free(struct array *array);

size_t array_bytes(const struct array *array);
double array_get(const struct array *array, size_t index);
void array_set(struct array *array, size_t index, double value);

/* In place; rounds to nearest even. False where memory is short. */
bool array_convert(struct array *array, enum element element);

/* Every byte 0xff: a NaN in each float type. */
void array_poison(struct array *array);

/* Standard normal values, decided by the seed. Arrays over a million elements repeat a block of prime length. */
void array_fill_normal(struct array *array, uint64_t seed);

#endif
