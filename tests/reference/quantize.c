/* Values to codes of a quantised cache, step by step in fp32 as the library promises it, so that codes, scales
 * and zeros can be compared bit by bit. */
#include "reference.h"

#include "../../src/half.h"

#include <math.h>

static float to_half(float value, uint16_t *bits) {
    *bits = half_from_double((double)value);
    return (float)half_to_double(*bits);
}

/* Never less than the value. */
static float to_half_above(float value, uint16_t *bits) {
    if (to_half(value, bits) < value)
        ++*bits;
    return (float)half_to_double(*bits);
}

/* Scale before its rounding; NaN where the block holds what is not finite. */
static float step_of(clattn_dtype dtype, bool zeros, int count, const float *x, float *low) {
    float largest = 0, high = -INFINITY;
    bool finite = true;
    *low = INFINITY;
    for (int i = 0; i < count; i++) {
        finite = finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
        *low = fminf(*low, x[i]);
        high = fmaxf(high, x[i]);
    }
    const float levels = dtype == CLATTN_I8 ? 255 : 15, most = dtype == CLATTN_I8 ? 127 : 7;
    const float step = zeros ? fmaxf((high - *low) / levels, largest / 1920) : largest / most;
    return finite ? step : NAN;
}

void reference_quantize_block(clattn_dtype dtype, bool zeros, int count, const float *x, uint16_t *scale_bits,
                              uint16_t *zero_bits, int *codes) {
    const bool wide = dtype == CLATTN_I8;
    const float first = wide ? -128 : 0, least = wide ? (zeros ? -128 : -127) : 0, most = wide ? 127 : 15;
    float low, zero = wide ? 0 : 8;
    const float step = step_of(dtype, zeros, count, x, &low);
    const float scale = to_half_above(step, scale_bits);
    const bool usable = scale > 0 && isfinite(scale);
    *zero_bits = 0;
    if (zeros)
        zero = to_half(usable ? first - low / scale : 0, zero_bits);
    for (int i = 0; i < count; i++)
        codes[i] = (int)fminf(fmaxf(usable ? rintf(x[i] / scale + zero) : zero, least), most);
}

/* The nearest of all codes, of two the even one; the sign of 0 is kept. */
uint8_t reference_f8_code(double value) {
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    uint8_t best = 0;
    if (!isfinite(value))
        return sign | 0x7f;
    for (uint8_t code = 1; code < 0x7f; code++) {
        const double nearer = fabs(fabs(value) - reference_e4m3(best)) - fabs(fabs(value) - reference_e4m3(code));
        if (nearer > 0 || (nearer == 0 && code % 2 == 0))
            best = code;
    }
    return sign | best;
}
