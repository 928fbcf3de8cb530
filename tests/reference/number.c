/* Storage types on the host: rounding, spacing, typed memory, views, and the two generators of test data. */
#include "reference.h"

#include "../../src/half.h"

#include <string.h>

double reference_round(clattn_dtype dtype, double value) {
    switch (dtype) {
    case CLATTN_F16:
        return half_to_double(half_from_double(value));
    case CLATTN_BF16:
        return bf16_to_double(bf16_from_double(value));
    case CLATTN_U8:
    case CLATTN_I32:
        return value;
    default:
        return (double)(float)value;
    }
}

double reference_ulp(clattn_dtype dtype, double value) {
    const int fraction_bits = dtype == CLATTN_F16 ? 10 : dtype == CLATTN_BF16 ? 7 : 23;
    const int smallest = dtype == CLATTN_F16 ? -14 : -126;
    int exponent;
    (void)frexp(value, &exponent);
    exponent -= 1;
    if (value == 0 || exponent < smallest)
        exponent = smallest;
    return ldexp(1.0, exponent - fraction_bits);
}

double reference_decode(clattn_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
    case CLATTN_F16:
        return half_to_double(((const uint16_t *)data)[index]);
    case CLATTN_BF16:
        return bf16_to_double(((const uint16_t *)data)[index]);
    case CLATTN_U8:
        return (double)((const uint8_t *)data)[index];
    case CLATTN_I32:
        return (double)((const int32_t *)data)[index];
    default:
        return (double)((const float *)data)[index];
    }
}

void reference_encode(clattn_dtype dtype, void *data, int64_t index, double value) {
    switch (dtype) {
    case CLATTN_F16:
        ((uint16_t *)data)[index] = half_from_double(value);
        break;
    case CLATTN_BF16:
        ((uint16_t *)data)[index] = bf16_from_double(value);
        break;
    case CLATTN_U8:
        ((uint8_t *)data)[index] = (uint8_t)value;
        break;
    case CLATTN_I32:
        ((int32_t *)data)[index] = (int32_t)value;
        break;
    default:
        ((float *)data)[index] = (float)value;
    }
}

int64_t reference_count(const clattn_tensor *shape) {
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

/* Where the flat logical index lies in memory. */
static int64_t address(const clattn_tensor *view, int64_t index) {
    int64_t at = view->offset;
    for (int d = view->rank - 1; d >= 0; d--) {
        at += index % view->dims[d] * view->strides[d];
        index /= view->dims[d];
    }
    return at;
}

void reference_gather(const clattn_tensor *view, const void *memory, double *values) {
    const int64_t count = reference_count(view);
    for (int64_t i = 0; i < count; i++)
        values[i] = reference_decode(view->dtype, memory, address(view, i));
}

void reference_scatter(const clattn_tensor *view, void *memory, const double *values) {
    const int64_t count = reference_count(view);
    for (int64_t i = 0; i < count; i++)
        reference_encode(view->dtype, memory, address(view, i), values[i]);
}

double reference_u(uint32_t index, uint32_t seed) {
    uint32_t x = index * 2654435761u + seed * 2246822519u + 374761393u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((int)(x >> 25) - 64) / 64.0;
}

/* SplitMix64's output function: a counter gives well mixed bits. */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

double reference_normal(uint64_t index, uint64_t seed) {
    const uint64_t base = mix(seed) + 2 * index;
    const double a = ((double)(mix(base) >> 11) + 0.5) * 0x1p-53;
    const double b = ((double)(mix(base + 1) >> 11) + 0.5) * 0x1p-53;
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
}
