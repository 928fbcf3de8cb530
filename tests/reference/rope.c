/* Rotary position embedding: each pair of elements turns by an angle that grows with the position. Angles are long
 * double, because a position of 31 bits takes all the digits that a double's angle has. */
#include "reference.h"

#include <math.h>

static void turn_of(const struct reference_rope *rope, int64_t position, int64_t pair, double *c, double *s) {
    const int64_t pairs = rope->rotary_dim / 2;
    if (rope->cos != NULL) {
        *c = rope->cos[position * pairs + pair];
        *s = rope->sin[position * pairs + pair];
        return;
    }
    const long double exponent = -2.0L * (long double)pair / (long double)rope->rotary_dim;
    const long double frequency = (long double)rope->scale * powl((long double)rope->base, exponent);
    *c = (double)cosl((long double)position * frequency);
    *s = (double)sinl((long double)position * frequency);
}

/* The columns of a pair. */
static void columns_of(const struct reference_rope *rope, int64_t pair, int64_t *a, int64_t *b) {
    const bool interleaved = rope->style == CLATTN_ROPE_INTERLEAVED;
    *a = interleaved ? 2 * pair : pair;
    *b = interleaved ? 2 * pair + 1 : pair + rope->rotary_dim / 2;
}

void reference_rope_row(const struct reference_rope *rope, int64_t columns, int64_t position, const double *x,
                        double *y) {
    for (int64_t col = rope->rotary_dim; col < columns; col++)
        y[col] = x[col];
    for (int64_t pair = 0; pair < rope->rotary_dim / 2; pair++) {
        int64_t a, b;
        double c, s;
        columns_of(rope, pair, &a, &b);
        turn_of(rope, position, pair, &c, &s);
        y[a] = x[a] * c - x[b] * s;
        y[b] = x[b] * c + x[a] * s;
    }
}

void plain_rope_row(const struct reference_rope *rope, clattn_dtype out_dtype, int64_t columns, int64_t position,
                    const double *x, double *y) {
    for (int64_t col = rope->rotary_dim; col < columns; col++)
        y[col] = reference_round(out_dtype, x[col]);
    for (int64_t pair = 0; pair < rope->rotary_dim / 2; pair++) {
        int64_t a, b;
        double c, s;
        columns_of(rope, pair, &a, &b);
        turn_of(rope, position, pair, &c, &s);
        const float xa = (float)x[a], xb = (float)x[b], fc = (float)c, fs = (float)s;
        y[a] = reference_round(out_dtype, (double)(xa * fc - xb * fs));
        y[b] = reference_round(out_dtype, (double)(xb * fc + xa * fs));
    }
}
