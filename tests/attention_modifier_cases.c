/* Tables of attention problems with modifiers and known answers, from public fault reports. Where a modifier alone
 * matters, queries are zero, so that a row is the mean of the values that it sees. */
#include "attention_cases.h"

#include "reference.h"

#include <math.h>

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define VALUES(...)    \
    (const double[]) { \
        __VA_ARGS__    \
    }
#define PUBLISHED_O(...) .o = VALUES(__VA_ARGS__), .o_count = COUNT(VALUES(__VA_ARGS__))
#define PUBLISHED_LSE(...) .lse = VALUES(__VA_ARGS__), .lse_count = COUNT(VALUES(__VA_ARGS__))
#define GRID(b, h, i, j, ...) \
    { .dims = {b, h, i, j}, .values = VALUES(__VA_ARGS__) }
#define GRID_OF(b, h, i, j, function) \
    { .dims = {b, h, i, j}, .fill = (function) }
#define SHAPE(b, hq, hkv, q, k_count, d, dv) \
    .batch = (b), .heads = (hq), .kv_heads = (hkv), .nq = (q), .nk = (k_count), .head_dim = (d), .value_dim = (dv)
#define FILLS(fill_q, fill_k, fill_v) .q = (fill_q), .k = (fill_k), .v = (fill_v)
/* Uniform weights: zero queries, and values that name their row. */
#define MEANS .q = fill_zero, .k = fill_u2, .v = fill_row
#define SCALE(value) .has_scale = 1, .scale = (value)
#define LN2 0.6931471805599453
#define LN3 1.0986122886681098
#define LN4 1.3862943611198906

/* ---- masks ---- */

static double from_190(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] >= 190;
}

static double only_64(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] == 64;
}

static double only_127(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] == 127;
}

static double only_199(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] == 199;
}

static double q_far_below(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] == 0 ? -20000 : 0;
}

static double one_then_zero(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] == 0;
}

static double one_then_hundred(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] == 0 ? 1 : 100;
}

#define A01_O PUBLISHED_O(-0.140055, 0.074644, 0.220970, -0.214315, 0, 0, 0, 0, -0.124149, 0.096697, 0.123417, 0.044816)
#define A01_LSE PUBLISHED_LSE(1.494154, EMPTY, 1.422659)

static const struct attention_case masks[] = {
    {.name = "A01 a row that is masked entirely, bool",
     SHAPE(1, 1, 1, 3, 4, 4, 4),
     FILLS(fill_u1, fill_u2, fill_u3),
     A01_O,
     A01_LSE,
     .with.mask = GRID(1, 1, 3, 1, 1, 0, 1)},
    {.name = "A03 left padding, one query",
     SHAPE(1, 1, 1, 1, 200, 4, 1),
     MEANS,
     PUBLISHED_O(194.5),
     PUBLISHED_LSE(2.302585),
     .with.mask = GRID_OF(1, 1, 1, 200, from_190)},
    {.name = "A03 left padding, 70 queries",
     SHAPE(1, 1, 1, 70, 200, 4, 1),
     MEANS,
     PUBLISHED_O(194.5, 194.5),
     PUBLISHED_LSE(2.302585, 2.302585),
     .with.mask = GRID_OF(1, 1, 1, 200, from_190)},
    {.name = "A03 key 64 alone",
     SHAPE(1, 1, 1, 70, 200, 4, 1),
     MEANS,
     PUBLISHED_O(64, 64),
     PUBLISHED_LSE(0, 0),
     .with.mask = GRID_OF(1, 1, 70, 200, only_64)},
    {.name = "A03 key 127 alone",
     SHAPE(1, 1, 1, 70, 200, 4, 1),
     MEANS,
     PUBLISHED_O(127, 127),
     PUBLISHED_LSE(0, 0),
     .with.mask = GRID_OF(1, 1, 70, 200, only_127)},
    {.name = "A03 key 199 alone",
     SHAPE(1, 1, 1, 70, 200, 4, 1),
     MEANS,
     PUBLISHED_O(199, 199),
     PUBLISHED_LSE(0, 0),
     .with.mask = GRID_OF(1, 1, 70, 200, only_199)},
    {.name = "A04 a masked key above the scores",
     SHAPE(1, 1, 1, 2, 2, 1, 1),
     FILLS(q_far_below, one_then_zero, one_then_hundred),
     SCALE(1),
     PUBLISHED_O(1, 1),
     PUBLISHED_LSE(-20000, 0),
     .with.mask = GRID(1, 1, 1, 2, 1, 0)},
    {.name = "A09 all keys masked",
     SHAPE(1, 1, 1, 2, 3, 4, 1),
     MEANS,
     PUBLISHED_O(0, 0),
     PUBLISHED_LSE(EMPTY, EMPTY),
     .with.mask = GRID(1, 1, 1, 1, 0)},
    {.name = "A18 bytes of 1",
     SHAPE(1, 1, 1, 1, 4, 4, 1),
     FILLS(fill_zero, fill_u2, fill_power),
     PUBLISHED_O(4.5),
     PUBLISHED_LSE(LN2),
     .with.mask = GRID(1, 1, 1, 4, 1, 0, 0, 1)},
    {.name = "A18 other bytes",
     SHAPE(1, 1, 1, 1, 4, 4, 1),
     FILLS(fill_zero, fill_u2, fill_power),
     PUBLISHED_O(4.5),
     PUBLISHED_LSE(LN2),
     .with.mask = GRID(1, 1, 1, 4, 255, 0, 0, 2)},
    {.name = "A19 causal and a mask",
     SHAPE(1, 1, 1, 3, 3, 4, 1),
     FILLS(fill_zero, fill_u2, fill_power),
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(0, 2, 3),
     PUBLISHED_LSE(EMPTY, 0, LN2),
     .with.mask = GRID(1, 1, 1, 3, 0, 1, 1)},
};

/* ---- windows ---- */

static const struct attention_case windows[] = {
    {.name = "A15 two keys before the diagonal",
     SHAPE(1, 1, 1, 3, 6, 4, 1),
     MEANS,
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(2, 3, 4),
     PUBLISHED_LSE(LN3, LN3, LN3),
     .with = {.has_window = true, .window_left = 2, .window_right = -1}},
    {.name = "A15 a right limit without causal",
     SHAPE(1, 1, 1, 3, 6, 4, 1),
     MEANS,
     PUBLISHED_O(2, 3, 4),
     PUBLISHED_LSE(LN3, LN3, LN3),
     .with = {.has_window = true, .window_left = 2, .window_right = 0}},
    {.name = "A20 a window on both sides, more queries than keys",
     SHAPE(1, 1, 1, 9, 4, 4, 1),
     MEANS,
     PUBLISHED_O(0, 0, 0, 0, 0, 0.5, 1, 1.5, 2),
     PUBLISHED_LSE(EMPTY, EMPTY, EMPTY, EMPTY, 0, LN2, LN3, LN4, LN3),
     .with = {.has_window = true, .window_left = 2, .window_right = 1}},
    {.name = "a window from a diagonal",
     SHAPE(1, 1, 1, 3, 9, 4, 1),
     MEANS,
     .has_diagonal = 1,
     .diagonal = 4,
     PUBLISHED_O(4, 5, 6),
     PUBLISHED_LSE(LN3, LN3, LN3),
     .with = {.has_window = true, .window_left = 1, .window_right = 1}},
    {.name = "a window from the top left corner",
     SHAPE(1, 1, 1, 3, 9, 4, 1),
     MEANS,
     .causal = CLATTN_CAUSAL_TOP_LEFT,
     PUBLISHED_O(0, 0.5, 1.5),
     PUBLISHED_LSE(0, LN2, LN2),
     .with = {.has_window = true, .window_left = 1, .window_right = 5}},
};

/* ---- lengths and offsets ---- */

static double halves(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 0.5;
}

static const struct attention_case lengths[] = {
    {.name = "A31 lengths 1 and 3 of 3",
     SHAPE(2, 1, 1, 1, 3, 64, 1),
     FILLS(halves, halves, fill_row_from_1),
     PUBLISHED_O(1, 2),
     .with.k_lengths = VALUES(1, 3)},
    {.name = "A31 lengths 1 and 3 of 128",
     SHAPE(2, 1, 1, 1, 128, 64, 1),
     FILLS(halves, halves, fill_row_from_1),
     PUBLISHED_O(1, 2),
     .with.k_lengths = VALUES(1, 3)},
    {.name = "A31 lengths of 128",
     SHAPE(4, 1, 1, 1, 128, 64, 1),
     FILLS(halves, halves, fill_row_from_1),
     PUBLISHED_O(16.5, 32.5, 48.5, 24.5),
     .with.k_lengths = VALUES(32, 64, 96, 48)},
    {.name = "A09 no keys by their length",
     SHAPE(2, 1, 1, 2, 3, 4, 1),
     MEANS,
     PUBLISHED_O(0, 0, 0.5, 0.5),
     PUBLISHED_LSE(EMPTY, EMPTY, LN2, LN2),
     .with.k_lengths = VALUES(0, 2)},
    {.name = "rows past a length are empty, sink or not",
     SHAPE(2, 1, 1, 3, 2, 4, 1),
     MEANS,
     PUBLISHED_O(0.25, 0, 0, 0.25, 0.25, 0),
     PUBLISHED_LSE(LN4, EMPTY, EMPTY, LN4, LN4, EMPTY),
     .with = {.q_lengths = VALUES(1, 2), .sinks = VALUES(LN2)}},
    {.name = "the causal corner is that of the lengths",
     SHAPE(2, 1, 1, 3, 6, 4, 1),
     MEANS,
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(1, 1.5, 0, 0, 0, 0.5),
     PUBLISHED_LSE(LN3, LN4, EMPTY, EMPTY, 0, LN2),
     .with = {.q_lengths = VALUES(2, 3), .k_lengths = VALUES(4, 2)}},
    {.name = "A40 a member without rows",
     SHAPE(3, 1, 1, 5, 5, 4, 1),
     MEANS,
     PUBLISHED_O(0.5, 0.5, 0.5, 3, 3),
     PUBLISHED_LSE(LN2, LN2, LN2, LN3, LN3),
     .with = {.q_offsets = VALUES(0, 3, 3, 5), .k_offsets = VALUES(0, 2, 2, 5)}},
    {.name = "A40 members of one row or none, grouped heads",
     SHAPE(4, 9, 3, 2, 8, 4, 1),
     MEANS,
     PUBLISHED_O(1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 1, 5),
     .with = {.q_offsets = VALUES(0, 0, 1, 1, 2), .k_offsets = VALUES(0, 0, 3, 3, 8)}},
    {.name = "A40 offsets of queries alone",
     SHAPE(2, 1, 1, 3, 4, 4, 1),
     MEANS,
     PUBLISHED_O(1.5, 1.5, 1.5),
     .with = {.q_offsets = VALUES(0, 1, 3)}},
    {.name = "A40 offsets of keys alone",
     SHAPE(2, 1, 1, 2, 5, 4, 1),
     MEANS,
     PUBLISHED_O(0, 0, 2.5, 2.5),
     .with = {.k_offsets = VALUES(0, 1, 5)}},
    {.name = "A40 causal within each sequence",
     SHAPE(2, 1, 1, 4, 6, 4, 1),
     MEANS,
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(0.5, 1, 0, 0),
     PUBLISHED_LSE(LN2, LN3, EMPTY, EMPTY),
     .with = {.q_offsets = VALUES(0, 2, 4), .k_offsets = VALUES(0, 3, 3)}},
};

/* ---- pages ---- */

/* A32: token t has the value t; pages 7 and 2, in this order, hold them. */
static double tokens_in_pages(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (double)((at[0] == 7 ? 0 : 4) + at[2]);
}

static const struct attention_case pages[] = {
    {.name = "A32 table entries beyond the length",
     SHAPE(1, 1, 1, 1, 4, 4, 1),
     FILLS(fill_zero, fill_u2, tokens_in_pages),
     PUBLISHED_O(2.5),
     PUBLISHED_LSE(1.791759),
     .with = {.page_table = VALUES(7, 2, -1, 2147483647), .max_pages = 4, .pages = 8, .k_lengths = VALUES(6)}},
    {.name = "A32 an exact page",
     SHAPE(1, 1, 1, 1, 4, 4, 1),
     FILLS(fill_zero, fill_u2, tokens_in_pages),
     PUBLISHED_O(1.5),
     PUBLISHED_LSE(LN4),
     .with = {.page_table = VALUES(7, -1, -1, 2147483647), .max_pages = 4, .pages = 8, .k_lengths = VALUES(4)}},
    {.name = "A32 no token",
     SHAPE(1, 1, 1, 1, 4, 4, 1),
     FILLS(fill_zero, fill_u2, tokens_in_pages),
     PUBLISHED_O(0),
     PUBLISHED_LSE(EMPTY),
     .with = {.page_table = VALUES(-1, -1, -1, 2147483647), .max_pages = 4, .pages = 8, .k_lengths = VALUES(0)}},
    {.name = "A32 whole pages without lengths",
     SHAPE(1, 1, 1, 1, 4, 4, 1),
     FILLS(fill_zero, fill_u2, tokens_in_pages),
     PUBLISHED_O(3.5),
     .with = {.page_table = VALUES(7, 2), .max_pages = 2, .pages = 8}},
};

/* ---- bias, alibi, softcap ---- */

static double four_u7(const int64_t at[4], int64_t flat) {
    (void)at;
    return 4 * reference_u((uint32_t)flat, 7);
}

static double a05_keys(const int64_t at[4], int64_t flat) {
    (void)flat;
    return VALUES(-20, -21, -22, -24)[at[2]];
}

static double plus_minus_3(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] == 0 ? 3 : -3;
}

static double a21_values(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] == 3 ? 10000 : (double)(at[2] + 1);
}

#define A16(what, b, h, i, ...)                                                                    \
    {                                                                                              \
        .name = "A16 bias " what, SHAPE(2, 2, 2, 2, 3, 4, 1), FILLS(fill_u1, fill_u2, fill_power), \
        PUBLISHED_O(__VA_ARGS__), .with.bias = GRID_OF(b, h, i, 3, four_u7)                        \
    }
#define ONE_QUERY_TWO_KEYS SHAPE(1, 1, 1, 1, 2, 1, 1), FILLS(fill_one, plus_minus_3, fill_row), SCALE(1)

static const struct attention_case biases[] = {
    {.name = "A01 a row that is masked entirely, additive",
     SHAPE(1, 1, 1, 3, 4, 4, 4),
     FILLS(fill_u1, fill_u2, fill_u3),
     A01_O,
     A01_LSE,
     .with.bias = GRID(1, 1, 3, 1, 0, EMPTY, 0)},
    {.name = "A05 the lowest number of fp16 everywhere",
     SHAPE(1, 1, 1, 1, 4, 1, 1),
     FILLS(fill_one, a05_keys, fill_row_from_1),
     SCALE(1),
     PUBLISHED_O(1.455789),
     PUBLISHED_LSE(-65523.58),
     .tolerance = 5e-3,
     .with.bias = GRID(1, 1, 1, 1, -65504)},
    A16("[B,1,1,Nk]", 2, 1, 1, 3.330087, 3.818302, 3.672405, 3.530480, 1.373066, 1.485131, 1.243608, 1.287359),
    A16("[1,H,1,Nk]", 1, 2, 1, 3.330087, 3.818302, 1.471022, 1.342966, 3.527929, 3.694001, 1.243608, 1.287359),
    A16("[1,1,Nq,Nk]", 1, 1, 2, 3.330087, 1.726127, 3.672405, 1.342966, 3.527929, 1.485131, 3.298617, 1.287359),
    A16("[B,H,Nq,Nk]", 2, 2, 2, 3.330087, 1.726127, 2.231842, 3.361500, 2.134419, 2.068726, 2.217488, 1.041444),
    {.name = "A17 a hidden column",
     SHAPE(1, 1, 1, 3, 5, 4, 1),
     MEANS,
     PUBLISHED_O(2, 2, 2),
     .with.bias = GRID(1, 1, 3, 5, 0, 0, EMPTY, 0, 0, 0, 0, EMPTY, 0, 0, 0, 0, EMPTY, 0, 0)},
    {.name = "A19 causal and a bias",
     SHAPE(1, 1, 1, 3, 3, 4, 1),
     FILLS(fill_zero, fill_u2, fill_power),
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(0, 2, 3),
     PUBLISHED_LSE(EMPTY, 0, LN2),
     .with.bias = GRID(1, 1, 1, 3, EMPTY, 0, 0)},
    {.name = "A21 the cap comes before the mask",
     SHAPE(1, 1, 1, 4, 4, 4, 1),
     FILLS(fill_four_u1, fill_four_u2, a21_values),
     SCALE(0.5F),
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(1, 1.519001, 1.993203, 4970.785),
     .tolerance = 1e-2,
     PUBLISHED_LSE(0.999043, -0.268079, 1.751856, 1.697652),
     .with.softcap = 1},
    {.name = "A22 cap 2", ONE_QUERY_TWO_KEYS, PUBLISHED_O(0.026069), PUBLISHED_LSE(1.836711), .with.softcap = 2},
    {.name = "A22 cap 0 is off", ONE_QUERY_TWO_KEYS, PUBLISHED_O(0.002473), PUBLISHED_LSE(3.002476)},
    {.name = "A22 cap 50", ONE_QUERY_TWO_KEYS, PUBLISHED_O(0.002490), PUBLISHED_LSE(2.998899), .with.softcap = 50},
    {.name = "A23 the bias is not capped",
     ONE_QUERY_TWO_KEYS,
     PUBLISHED_O(0.798896),
     PUBLISHED_LSE(3.414228),
     .with = {.softcap = 2, .bias = GRID(1, 1, 1, 2, 0, 5)}},
    {.name = "A25 distances count from the last key",
     SHAPE(1, 1, 1, 1, 7, 4, 1),
     MEANS,
     PUBLISHED_O(4.676470),
     PUBLISHED_LSE(0.902089),
     .with.alibi = VALUES(0.5)},
};

/* ---- sinks ---- */

static const struct attention_case sinks[] = {
    {.name = "A27 a sink a head",
     SHAPE(1, 3, 1, 5, 4, 4, 1),
     FILLS(fill_zero, fill_u2, fill_one),
     PUBLISHED_O(0.8, 0.8, 0.8, 0.8, 0.8, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25),
     PUBLISHED_LSE(1.609438, 1.609438, 1.609438, 1.609438, 1.609438, 2.079442, 2.079442, 2.079442, 2.079442, 2.079442,
                   2.772589, 2.772589, 2.772589, 2.772589, 2.772589),
     .with.sinks = VALUES(0, LN4, 2.4849066497880004)},
    {.name = "A27 a sink of -inf",
     SHAPE(1, 1, 1, 2, 4, 4, 1),
     FILLS(fill_zero, fill_u2, fill_one),
     PUBLISHED_O(1, 1),
     PUBLISHED_LSE(LN4, LN4),
     .with.sinks = VALUES(EMPTY)},
    {.name = "a row that sees nothing but its sink",
     SHAPE(1, 2, 1, 3, 2, 4, 1),
     MEANS,
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     PUBLISHED_O(0, 0, 0.25, 0, 0, 0.5),
     PUBLISHED_LSE(LN2, LN3, LN4, EMPTY, 0, LN2),
     .with.sinks = VALUES(LN2, EMPTY)},
};

const struct attention_table mask_cases = {masks, COUNT(masks)};
const struct attention_table window_cases = {windows, COUNT(windows)};
const struct attention_table length_cases = {lengths, COUNT(lengths)};
const struct attention_table paged_cases = {pages, COUNT(pages)};
const struct attention_table bias_cases = {biases, COUNT(biases)};
const struct attention_table sink_cases = {sinks, COUNT(sinks)};
