/* Scalar fp16 and bf16 storage on the host, for tests and tools. Conversions go through double, which holds every value
 * of both types exactly, so that a value is rounded once (to nearest even). NaN stays NaN; what is too large becomes
 * infinity; fp16 and bf16 subnormals are kept. */
#ifndef CLATTN_HALF_H
#define CLATTN_HALF_H

#include <math.h>
#include <stdint.h>

/* A binary format with a sign bit, `exponent_bits` and `fraction_bits`. */
static inline uint16_t half_encode(double value, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint16_t infinity = (uint16_t)(((1u << exponent_bits) - 1u) << fraction_bits);
    const uint16_t sign = signbit(value) ? 0x8000u : 0u;
    if (isnan(value))
        return (uint16_t)(sign | infinity | (1u << (fraction_bits - 1)));
    if (isinf(value))
        return sign | infinity;
    if (value == 0)
        return sign;
    int exponent; /* |value| = fraction * 2^exponent with the fraction in [1, 2) */
    (void)frexp(value, &exponent);
    exponent -= 1;
    if (exponent > bias)
        return sign | infinity;
    const int lowest = exponent < 1 - bias ? 1 - bias : exponent; /* subnormals share the smallest exponent */
    const double units = nearbyint(ldexp(fabs(value), fraction_bits - lowest));
    /* The hidden bit of a normal number carries into the exponent field, as does rounding up to the next power. */
    return (uint16_t)(sign + (uint16_t)((uint32_t)(lowest + bias - 1) << fraction_bits) + (uint16_t)units);
}

static inline double half_decode(uint16_t bits, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return bits & 0x8000u ? -value : value;
}

static inline uint16_t half_from_double(double value) {
    return half_encode(value, 5, 10);
}

static inline double half_to_double(uint16_t bits) {
    return half_decode(bits, 5, 10);
}

static inline uint16_t bf16_from_double(double value) {
    return half_encode(value, 8, 7);
}

static inline double bf16_to_double(uint16_t bits) {
    return half_decode(bits, 8, 7);
}

#endif
