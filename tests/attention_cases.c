/* The table of attention problems with known answers, from public fault reports: alignment of the causal edge, rows
 * that see nothing, tails of tiles, head maps, value dims unlike the head dim, scores beyond the range of fp16. */
#include "attention_cases.h"

#include "reference.h"

#include <math.h>

double fill_u1(const int64_t at[4], int64_t flat) {
    (void)at;
    return reference_u((uint32_t)flat, 1);
}

double fill_u2(const int64_t at[4], int64_t flat) {
    (void)at;
    return reference_u((uint32_t)flat, 2);
}

double fill_u3(const int64_t at[4], int64_t flat) {
    (void)at;
    return reference_u((uint32_t)flat, 3);
}

double fill_zero(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 0;
}

double fill_one(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 1;
}

double fill_row(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (double)at[2];
}

double fill_row_from_1(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (double)(at[2] + 1);
}

double fill_power(const int64_t at[4], int64_t flat) {
    (void)flat;
    return ldexp(1, (int)at[2]);
}

double fill_row_mod_5(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (double)(at[2] % 5);
}

double fill_head_from_1(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (double)(at[1] + 1);
}

/* Every second row of a wider array of u(flat, 2). */
static double fill_u2_second_rows(const int64_t at[4], int64_t flat) {
    return reference_u((uint32_t)(flat + at[2] * 4), 2);
}

static double fill_two(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 2;
}

static double fill_minus_2_5(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return -2.5;
}

/* Queries and keys whose raw product is beyond fp16; the keys differ in their last element only. */
static double fill_256(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 256;
}

static double fill_near_256(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] == 127 ? 256 - 0.125 * (double)at[2] : 256;
}

static double fill_16(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 16;
}

static double fill_near_16(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] == 511 ? 16 - 0.0625 * (double)at[2] : 16;
}

double fill_four_u1(const int64_t at[4], int64_t flat) {
    return 4 * fill_u1(at, flat);
}

double fill_four_u2(const int64_t at[4], int64_t flat) {
    return 4 * fill_u2(at, flat);
}

void case_values(case_fill fill, int64_t batch, int64_t heads, int64_t rows, int64_t columns, double *values) {
    int64_t at[4], flat = 0;
    for (at[0] = 0; at[0] < batch; at[0]++)
        for (at[1] = 0; at[1] < heads; at[1]++)
            for (at[2] = 0; at[2] < rows; at[2]++)
                for (at[3] = 0; at[3] < columns; at[3]++, flat++)
                    values[flat] = fill(at, flat);
}

#define NOTHING NULL, 0
#define NO_SCALE 0, 0
#define NO_MODIFIERS \
    { 0 }
#define NO_DIAGONAL 0, 0

const struct attention_case attention_cases[] = {
    {"A10 natural logarithm", 1, 1, 1, 1, 4, 4, 1, fill_zero, fill_u2, fill_row, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1.5), LIST(1.386294), 0, NO_MODIFIERS},
    {"A11 causal, bottom right, Nq < Nk", 1, 1, 1, 2, 5, 4, 1, fill_u1, fill_u2, fill_row_from_1,
     CLATTN_CAUSAL_BOTTOM_RIGHT, NO_DIAGONAL, NO_SCALE, LIST(2.282390, 3.220207), LIST(1.494154, 1.779490), 0,
     NO_MODIFIERS},
    {"A11 causal, top left, Nq < Nk", 1, 1, 1, 2, 5, 4, 1, fill_u1, fill_u2, fill_row_from_1, CLATTN_CAUSAL_TOP_LEFT,
     NO_DIAGONAL, NO_SCALE, LIST(1.0, 1.560854), NOTHING, 0, NO_MODIFIERS},
    {"A12 causal, Nq > Nk", 1, 1, 1, 5, 2, 4, 1, fill_u1, fill_u2, fill_row_from_1, CLATTN_CAUSAL_BOTTOM_RIGHT,
     NO_DIAGONAL, NO_SCALE, LIST(0, 0, 0, 1, 1.448728), LIST(EMPTY, EMPTY, EMPTY, 0.051392, 0.394478), 0, NO_MODIFIERS},
    {"A14 not causal, Nq = Nk = 6", 1, 1, 1, 6, 6, 4, 1, fill_zero, fill_u2, fill_row, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(2.5, 2.5, 2.5, 2.5, 2.5, 2.5), NOTHING, 0, NO_MODIFIERS},
    {"A14 not causal, Nq = Nk = 1", 1, 1, 1, 1, 1, 4, 1, fill_zero, fill_u2, fill_row_from_1, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(1), LIST(0), 0, NO_MODIFIERS},
    {"A14 not causal, Nq = Nk = 64", 1, 1, 1, 64, 64, 4, 1, fill_zero, fill_u2, fill_row, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(31.5, 31.5, 31.5), NOTHING, 0, NO_MODIFIERS},
    {"A28 raw scores beyond fp16, D = 512, scale 1", 1, 1, 1, 1, 3, 512, 1, fill_16, fill_near_16, fill_power,
     CLATTN_CAUSAL_NONE, NO_DIAGONAL, 1, 1.0F, LIST(1.514820), LIST(131072.4076), 1e-2, NO_MODIFIERS},
    {"A28 raw scores beyond fp16, D = 512", 1, 1, 1, 1, 3, 512, 1, fill_16, fill_near_16, fill_power,
     CLATTN_CAUSAL_NONE, NO_DIAGONAL, NO_SCALE, LIST(2.289262), LIST(5793.674), 1e-2, NO_MODIFIERS},
    {"A28 raw scores beyond fp16, D = 128", 1, 1, 1, 1, 3, 128, 1, fill_256, fill_near_256, fill_power,
     CLATTN_CAUSAL_NONE, NO_DIAGONAL, NO_SCALE, LIST(1.0655), NOTHING, 5e-2, NO_MODIFIERS},
    {"A30 key tail, Nk = 1", 1, 1, 1, 2, 1, 16, 1, fill_two, fill_minus_2_5, fill_row_mod_5, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(0, 0), LIST(-20, -20), 0, NO_MODIFIERS},
    {"A30 key tail, Nk = 15", 1, 1, 1, 2, 15, 16, 1, fill_two, fill_minus_2_5, fill_row_mod_5, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(2, 2), LIST(-17.291950), 0, NO_MODIFIERS},
    {"A30 key tail, Nk = 17", 1, 1, 1, 2, 17, 16, 1, fill_two, fill_minus_2_5, fill_row_mod_5, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(1.823529), LIST(-17.166787), 0, NO_MODIFIERS},
    {"A30 key tail, Nk = 63", 1, 1, 1, 2, 63, 16, 1, fill_two, fill_minus_2_5, fill_row_mod_5, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(1.952381), LIST(-15.856865), 0, NO_MODIFIERS},
    {"A30 key tail, Nk = 65", 1, 1, 1, 2, 65, 16, 1, fill_two, fill_minus_2_5, fill_row_mod_5, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(2, 2), LIST(-15.825613), 0, NO_MODIFIERS},
    {"A30 key tail, Nk = 100", 1, 1, 1, 2, 100, 16, 1, fill_two, fill_minus_2_5, fill_row_mod_5, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(2, 2), LIST(-15.394830), 0, NO_MODIFIERS},
    {"A36 Dv = 5, D = 3", 1, 1, 1, 2, 4, 3, 5, fill_u1, fill_u2, fill_u3, CLATTN_CAUSAL_BOTTOM_RIGHT, NO_DIAGONAL,
     NO_SCALE,
     LIST(0.290793, 0.276621, -0.440344, 0.012077, 0.155896, 0.217242, 0.205007, -0.481658, -0.051149, 0.211666),
     NOTHING, 0, NO_MODIFIERS},
    {"A37 heads (8,2)", 1, 8, 2, 1, 3, 4, 1, fill_u1, fill_u2, fill_head_from_1, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1, 1, 1, 1, 2, 2, 2, 2), NOTHING, 0, NO_MODIFIERS},
    {"A37 heads (6,3)", 1, 6, 3, 1, 3, 4, 1, fill_u1, fill_u2, fill_head_from_1, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1, 1, 2, 2, 3, 3), NOTHING, 0, NO_MODIFIERS},
    {"A37 heads (12,12)", 1, 12, 12, 1, 3, 4, 1, fill_u1, fill_u2, fill_head_from_1, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), NOTHING, 0, NO_MODIFIERS},
    {"A37 heads (28,4)", 1, 28, 4, 1, 3, 4, 1, fill_u1, fill_u2, fill_head_from_1, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4), NOTHING, 0,
     NO_MODIFIERS},
    {"A37 heads (5,1)", 1, 5, 1, 1, 3, 4, 1, fill_u1, fill_u2, fill_head_from_1, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1, 1, 1, 1, 1), NOTHING, 0, NO_MODIFIERS},
    {"A37 heads (32,8)", 1, 32, 8, 1, 3, 4, 1, fill_u1, fill_u2, fill_head_from_1, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8),
     NOTHING, 0, NO_MODIFIERS},
    {"A44 sum of 4096 ones", 1, 1, 1, 1, 4096, 4, 1, fill_zero, fill_u2, fill_one, CLATTN_CAUSAL_NONE, NO_DIAGONAL,
     NO_SCALE, LIST(1), LIST(8.317766), 0, NO_MODIFIERS},
    {"A45 every second row of ten", 1, 1, 1, 2, 5, 4, 1, fill_u1, fill_u2_second_rows, fill_row, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, NO_SCALE, LIST(1.998164, 1.804058), LIST(1.792510, 1.625188), 0, NO_MODIFIERS},
    {"diagonal -1: row 0 sees nothing", 1, 1, 1, 3, 3, 4, 1, fill_zero, fill_u2, fill_row_from_1,
     CLATTN_CAUSAL_TOP_LEFT, 1, -1, NO_SCALE, LIST(0, 1, 1.5), LIST(EMPTY, 0, 0.693147), 0, NO_MODIFIERS},
    {"diagonal 1", 1, 1, 1, 3, 5, 4, 1, fill_zero, fill_u2, fill_row_from_1, CLATTN_CAUSAL_BOTTOM_RIGHT, 1, 1, NO_SCALE,
     LIST(1.5, 2, 2.5), LIST(0.693147, 1.098612, 1.386294), 0, NO_MODIFIERS},
    {"scale 0", 1, 1, 1, 1, 4, 4, 1, fill_u1, fill_u2, fill_row, CLATTN_CAUSAL_NONE, NO_DIAGONAL, 1, 0.0F, LIST(1.5),
     LIST(1.386294), 0, NO_MODIFIERS},
    {"scale -1 prefers the smaller score", 1, 1, 1, 1, 2, 4, 1, fill_16, fill_row, fill_row_from_1, CLATTN_CAUSAL_NONE,
     NO_DIAGONAL, 1, -1.0F, LIST(1), LIST(0), 0, NO_MODIFIERS},
};

const size_t attention_case_count = sizeof attention_cases / sizeof attention_cases[0];
