/* Codes and what they stand for, as clattn_quantization says; and a plain way to find codes for values. */
#include "reference.h"

#include <math.h>

double reference_e4m3(int code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double sign = code & 0x80 ? -1 : 1;
    if ((code & 0x7f) == 0x7f)
        return (double)NAN;
    return sign * (exponent ? ldexp(1 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6));
}

double reference_dequantize(clattn_dtype dtype, int code, double scale, double zero, clattn_dtype to) {
    const float number = dtype == CLATTN_F8_E4M3 ? (float)reference_e4m3(code) : (float)code - (float)zero;
    return reference_round(to, (double)((float)scale * number));
}

/* The nearest; of two, that with the even code. */
static int e4m3_of(double value) {
    const double size = fabs(value);
    int best = 0;
    for (int code = 1; code < 0x7f; code++) {
        const double worse = fabs(reference_e4m3(best) - size), distance = fabs(reference_e4m3(code) - size);
        if (distance < worse || (distance == worse && code % 2 == 0))
            best = code;
    }
    return isnan(value) ? 0x7f : value < 0 ? best | 0x80 : best;
}

static int clamp(double code, int low, int high) {
    return code < low ? low : code > high ? high : (int)code;
}

void reference_quantize(clattn_dtype dtype, bool with_zeros, int64_t count, const double *values, double *scale,
                        double *zero, int *codes) {
    const int low = dtype == CLATTN_I8 ? -128 : 0, high = dtype == CLATTN_I8 ? 127 : 15;
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
    }
    const double largest = fmax(fabs(least), fabs(most)), steps = high - low;
    *scale = with_zeros ? (most - least) / steps : largest / (dtype == CLATTN_I8 ? 127 : 7);
    *zero = dtype == CLATTN_I8 ? 0 : 8;
    *scale = reference_round(CLATTN_F16, *scale);
    if (with_zeros)
        *zero = *scale == 0 ? low : reference_round(CLATTN_F16, low - least / *scale);
    for (int64_t i = 0; i < count; i++)
        codes[i] = *scale == 0 ? (int)*zero : clamp(rint(values[i] / *scale + *zero), low, high);
}

void reference_quantize_e4m3(int64_t count, const double *values, double scale, int *codes) {
    for (int64_t i = 0; i < count; i++)
        codes[i] = e4m3_of(values[i] / scale);
}

struct reference_place reference_code_place(clattn_dtype dtype, const clattn_quantization *quantization,
                                            int64_t column) {
    const int64_t block = quantization->block;
    if (block == 0)
        return (struct reference_place){.byte = column};
    const int64_t stride = quantization->code_stride ? quantization->code_stride : block;
    const int64_t first = column / block * stride, within = column % block;
    if (dtype != CLATTN_I4)
        return (struct reference_place){.byte = first + within};
    if (quantization->nibbles == CLATTN_NIBBLES_HALVES)
        return (struct reference_place){first / 2 + within % (block / 2), within < block / 2 ? 0 : 4};
    return (struct reference_place){first / 2 + within / 2, within % 2 ? 4 : 0};
}
