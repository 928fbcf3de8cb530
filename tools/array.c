/* Host arrays. Float elements are read and written as the oracles do it: rounded to nearest even. */
#include "array.h"

#include <reference.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
    clattn_dtype dtype;
} elements[] = {
    [ELEMENT_F32] = {"f32", 4, CLATTN_F32},      [ELEMENT_F16] = {"f16", 2, CLATTN_F16},
    [ELEMENT_BF16] = {"bf16", 2, CLATTN_BF16},   [ELEMENT_I32] = {"i32", 4, CLATTN_I32},
    [ELEMENT_I64] = {"i64", 8, (clattn_dtype)0}, [ELEMENT_U8] = {"u8", 1, CLATTN_U8},
    [ELEMENT_BOOL] = {"bool", 1, CLATTN_U8},     [ELEMENT_I8] = {"i8", 1, CLATTN_I8},
};

size_t element_size(enum element element) {
    return elements[element].size;
}

const char *element_name(enum element element) {
    return elements[element].name;
}

bool element_is_float(enum element element) {
    return element <= ELEMENT_BF16;
}

bool element_named(const char *name, enum element *out) {
    for (enum element e = ELEMENT_F32; e <= ELEMENT_BF16; e++)
        if (strcmp(name, elements[e].name) == 0) {
            *out = e;
            return true;
        }
    return false;
}

clattn_dtype element_dtype(enum element element) {
    return elements[element].dtype;
}

bool array_make(struct array *array, enum element element, int rank, const int64_t *dims) {
    *array = (struct array){.element = element, .rank = rank, .count = 1};
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0 || (dims[i] > 0 && array->count > (size_t)(INT64_MAX / 16) / (size_t)dims[i]))
            return false;
        array->dims[i] = dims[i];
        array->count *= (size_t)dims[i];
    }
    array->data = calloc(array->count ? array->count : 1, element_size(element));
    return array->data != NULL;
}

void array_free(struct array *array) {
    free(array->data);
    *array = (struct array){.data = NULL};
}

size_t array_bytes(const struct array *array) {
    return array->count * element_size(array->element);
}

double array_get(const struct array *array, size_t index) {
    switch (array->element) {
    case ELEMENT_I32:
        return ((const int32_t *)array->data)[index];
    case ELEMENT_I64:
        return (double)((const int64_t *)array->data)[index];
    case ELEMENT_U8:
    case ELEMENT_BOOL:
        return ((const uint8_t *)array->data)[index];
    case ELEMENT_I8:
        return ((const int8_t *)array->data)[index];
    default:
        return reference_decode(elements[array->element].dtype, array->data, (int64_t)index);
    }
}

void array_set(struct array *array, size_t index, double value) {
    switch (array->element) {
    case ELEMENT_I32:
        ((int32_t *)array->data)[index] = (int32_t)value;
        return;
    case ELEMENT_I64:
        ((int64_t *)array->data)[index] = (int64_t)value;
        return;
    case ELEMENT_U8:
    case ELEMENT_BOOL:
        ((uint8_t *)array->data)[index] = (uint8_t)value;
        return;
    case ELEMENT_I8:
        ((int8_t *)array->data)[index] = (int8_t)value;
        return;
    default:
        reference_encode(elements[array->element].dtype, array->data, (int64_t)index, value);
    }
}

bool array_convert(struct array *array, enum element element) {
    if (array->element == element)
        return true;
    struct array converted;
    if (!array_make(&converted, element, array->rank, array->dims))
        return false;
    for (size_t i = 0; i < array->count; i++)
        array_set(&converted, i, array_get(array, i));
    array_free(array);
    *array = converted;
    return true;
}

void array_poison(struct array *array) {
    memset(array->data, 0xff, array_bytes(array));
}

/* A prime: where a long array repeats, its rows still differ. */
#define BLOCK ((size_t)1048573)

void array_fill_normal(struct array *array, uint64_t seed) {
    const size_t size = element_size(array->element);
    const size_t fresh = array->count < BLOCK ? array->count : BLOCK;
    for (size_t i = 0; i < fresh; i++)
        array_set(array, i, reference_normal(i, seed));
    for (size_t done = fresh; done < array->count; done += fresh) {
        const size_t rest = array->count - done;
        memcpy((char *)array->data + done * size, array->data, (rest < fresh ? rest : fresh) * size);
    }
}
