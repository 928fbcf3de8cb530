/* Gradients of attention with known answers, from public fault reports: masked rows, corners of causal limits, soft
 * caps, heads that share keys, a repeated bias, a single key. Numbers worked out elsewhere. */
#include "gradient_data.h"
#include "reference.h"

#include <math.h>

static double fill_u4(const int64_t at[4], int64_t flat) {
    (void)at;
    return reference_u((uint32_t)flat, 4);
}

static double fill_u9(const int64_t at[4], int64_t flat) {
    (void)at;
    return reference_u((uint32_t)flat, 9);
}

static double plus_minus_3(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] == 0 ? 3 : -3;
}

#define OF(letter, first, ...) \
    { (letter), (first), LIST(__VA_ARGS__) }
#define SHAPE(b, hq, hkv, q, k, d, dv) \
    .batch = (b), .heads = (hq), .kv_heads = (hkv), .nq = (q), .nk = (k), .head_dim = (d), .value_dim = (dv)
#define U .q = fill_u1, .k = fill_u2, .v = fill_u3

#define A02_LISTS                                                                                                  \
    {                                                                                                              \
        OF('q', 0, 0.099030, -0.076915, 0.116831, 0.035899, 0, 0, 0, 0, 0.039975, -0.014360, -0.017174, 0.022083), \
            OF('k', 0, -0.046598, 0.083390, 0.026897, -0.030973),                                                  \
            OF('v', 0, -0.172109, -0.004835, 0.025680, -0.265290)                                                  \
    }

const struct gradient_case gradient_cases[] = {
    {{.name = "A02 a row that a mask hides entirely",
      SHAPE(1, 1, 1, 3, 4, 4, 4),
      U,
      .with.mask = {.dims = {1, 1, 3, 1}, .values = (const double[]){1, 0, 1}}},
     fill_u4,
     A02_LISTS},
    {{.name = "A02 a row that a bias hides entirely",
      SHAPE(1, 1, 1, 3, 4, 4, 4),
      U,
      .with.bias = {.dims = {1, 1, 3, 1}, .values = (const double[]){0, EMPTY, 0}}},
     fill_u4,
     A02_LISTS},
    {{.name = "A13 causal, more keys than queries",
      SHAPE(1, 1, 1, 2, 4, 4, 4),
      U,
      .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
     fill_u4,
     {OF('v', 12, 0.126561, 0.257810, 0.018750, 0.070312), OF('v', 0, -0.117637, -0.059268, 0.250108, -0.105827),
      OF('k', 12, 0.003275, 0.003086, -0.002267, 0.003967)}},
    {{.name = "A13 causal, as many", SHAPE(1, 1, 1, 3, 3, 4, 4), U, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
     fill_u4,
     {OF('q', 0, 0, 0, 0, 0), OF('v', 8, -0.026228, 0.125896, -0.146879, -0.136387)}},
    {{.name = "A13 full", SHAPE(1, 1, 1, 3, 3, 4, 4), U},
     fill_u4,
     {OF('k', 0, -0.021991, 0.150605, 0.009238, 0.006112)}},
    {{.name = "A22 the soft cap's derivative",
      SHAPE(1, 1, 1, 1, 2, 1, 1),
      .q = fill_one,
      .k = plus_minus_3,
      .v = fill_row,
      .has_scale = 1,
      .scale = 1,
      .with.softcap = 2},
     fill_one,
     {OF('q', 0, -0.0275282), OF('k', 0, -0.00458804, 0.00458804), OF('v', 0, 0.973931, 0.026069)}},
    {{.name = "A38 heads that share keys", SHAPE(1, 6, 2, 1, 2, 2, 2), U},
     fill_u4,
     {OF('k', 0, -0.022990, 0.088716, 0.022990, -0.088716, -0.059713, -0.018386, 0.059713, 0.018386),
      OF('v', 0, 0.205043, -0.007989, 0.388707, -0.038886, -0.149686, 0.211021, -0.303439, -0.007896)}},
    {{.name = "A50 a bias that is repeated",
      SHAPE(2, 1, 1, 3, 4, 4, 4),
      U,
      .with.bias = {.dims = {1, 1, 1, 4}, .fill = fill_u9}},
     fill_u4,
     {OF('b', 0, 0.1164952, -0.1959719, 0.2106162, -0.1311396)}},
};
const size_t gradient_case_count = sizeof gradient_cases / sizeof gradient_cases[0];
