/* The published cases that softmax reaches: long rows of -inf, infinities and NaN, large magnitudes, zero sizes, row
 * lengths and counts round the sizes of groups, and sums that a half accumulator would lose. */
#include "softmax_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct softmax_way chosen = {NULL, NULL};

/* ---- infinities and NaN ------------------------------------------------------------------------------------------ */

enum { LONG = 100000 };

/* A06. One finite value, or two, in a long row of -inf: whole slices have nothing to add. */
static void mostly_minus_infinity(const struct softmax_problem *problem, int64_t p, bool pair, enum softmax_ways ways) {
    double *want = test_array(LONG);
    const bool logarithm = problem->function == CLATTN_LOG_SOFTMAX;
    for (int64_t c = 0; c < LONG; c++) {
        problem->x[c] = -INFINITY;
        want[c] = logarithm ? -INFINITY : 0;
    }
    problem->x[p] = 10;
    want[p] = logarithm ? 0 : 1;
    if (pair) {
        problem->x[LONG - 1 - p] = reference_round(problem->dtype, 10 - log(3));
        want[p] = logarithm ? log(0.75) : 0.75;
        want[LONG - 1 - p] = logarithm ? log(0.25) : 0.25;
    }
    softmax_expect(problem, ways, want, pair ? 3e-3 : 0, 0);
    free(want);
}

static void slices_of_minus_infinity(void **state) {
    static const int64_t places[] = {0, 1, 31, 1023, 50000, 99999};
    (void)state;
    for (int dtype = CLATTN_F32; dtype <= CLATTN_F16; dtype++)
        for (int f = CLATTN_SOFTMAX; f <= CLATTN_LOG_SOFTMAX; f++) {
            struct softmax_problem problem = softmax_rows(1, LONG);
            softmax_set_dtypes(&problem, (clattn_dtype)dtype, (clattn_dtype)dtype);
            problem.function = (clattn_softmax_function)f;
            for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
                const enum softmax_ways ways = i == 4 && dtype == CLATTN_F32 ? EVERY_VARIANT : CHOSEN_WAY;
                mostly_minus_infinity(&problem, places[i], false, ways);
                mostly_minus_infinity(&problem, places[i], true, ways);
            }
            softmax_free(&problem);
        }
}

/* A07. The special rows, at the end of rows of zeros, and what kind of result they give. */
static struct softmax_problem special_rows(int64_t columns) {
    static const double rows[8][3] = {
        {0, -INFINITY, 0}, {-INFINITY, -INFINITY, -INFINITY}, {0, INFINITY, 0}, {INFINITY, 1, 2},
        {NAN, 0, 1},       {NAN, INFINITY, -INFINITY},        {NAN, NAN, NAN},  {1, 2, 3},
    };
    struct softmax_problem problem = softmax_rows(8, columns);
    for (int64_t r = 0; r < 8; r++)
        memcpy(problem.x + (r + 1) * columns - 3, rows[r], sizeof rows[r]);
    /* Longer rows of -inf alone are so from their start. */
    for (int64_t c = 0; c < columns; c++)
        problem.x[columns + c] = -INFINITY;
    return problem;
}

/* The shortest, which no vector fits, by softmax alone: the others have programs in common with other tests. */
static void nan_and_infinities(void **state) {
    static const int64_t lengths[] = {3, 300, 1027};
    (void)state;
    for (int l = 0; l < 3; l++) {
        struct softmax_problem problem = special_rows(lengths[l]);
        for (int f = CLATTN_SOFTMAX; f <= CLATTN_SOFTMAX_STATE; f++)
            for (int empty = CLATTN_EMPTY_ROWS_NAN; empty <= CLATTN_EMPTY_ROWS_ZERO; empty++) {
                if (f >= CLATTN_LOG_SUM_EXP && empty == CLATTN_EMPTY_ROWS_ZERO)
                    continue; /* the same program */
                problem.function = (clattn_softmax_function)f;
                problem.empty_rows = (clattn_empty_rows)empty;
                const bool first = f == CLATTN_SOFTMAX && empty == CLATTN_EMPTY_ROWS_NAN;
                if (l == 0 && !first)
                    continue;
                softmax_check(&problem, l < 2                     ? CHOSEN_WAY
                                        : first                   ? EVERY_WAY
                                        : f == CLATTN_LOG_SOFTMAX ? EVERY_VARIANT
                                                                  : CHOSEN_WAY);
            }
        problem.function = CLATTN_SOFTMAX;
        problem.empty_rows = CLATTN_EMPTY_ROWS_NAN;
        for (int dtype = CLATTN_F16; l > 0 && dtype <= CLATTN_BF16; dtype++) {
            softmax_set_dtypes(&problem, (clattn_dtype)dtype, (clattn_dtype)dtype);
            softmax_check_way(&problem, chosen);
        }
        softmax_free(&problem);
    }
}

/* ---- magnitudes and sums ----------------------------------------------------------------------------------------- */

static void expect_row(clattn_softmax_function function, int64_t columns, const double *x, const double *want,
                       double relative) {
    struct softmax_problem problem = softmax_rows(1, columns);
    problem.function = function;
    memcpy(problem.x, x, (size_t)columns * sizeof *x);
    softmax_expect(&problem, EVERY_VARIANT, want, 1e-7, relative);
    softmax_free(&problem);
}

/* A29 */
static void large_magnitudes(void **state) {
    static const double a[] = {-1e7, -1e7, -1e7 + 1}, a_log[] = {-1.5514447, -1.5514447, -0.5514447};
    static const double b[] = {-1e7, -1e7, -1e7}, b_log[] = {-1.0986123, -1.0986123, -1.0986123};
    static const double d[] = {1000, 999, -1000}, d_log[] = {-0.3132617, -1.3132617, -2000.3132617};
    static const double d_soft[] = {0.7310586, 0.2689414, 0};
    double c[21], c_log[21];
    (void)state;
    for (int i = 0; i < 21; i++)
        c[i] = -40 + 6.75 * i;
    reference_softmax_row(CLATTN_LOG_SOFTMAX, CLATTN_EMPTY_ROWS_NAN, 21, c, c_log, NULL);
    assert_true(fabs(c_log[0] + 135.001172) < 1e-5 && fabs(c_log[20] + 0.001171566) < 1e-8);
    expect_row(CLATTN_LOG_SOFTMAX, 3, a, a_log, 1e-6);
    expect_row(CLATTN_LOG_SOFTMAX, 3, b, b_log, 1e-6);
    expect_row(CLATTN_LOG_SOFTMAX, 21, c, c_log, 1e-4);
    expect_row(CLATTN_LOG_SOFTMAX, 3, d, d_log, 1e-6);
    expect_row(CLATTN_SOFTMAX, 3, d, d_soft, 1e-6);
}

/* A44 */
static void sums_beyond_half(void **state) {
    static const struct {
        clattn_dtype dtype;
        int64_t columns;
    } cases[] = {{CLATTN_F16, 4096}, {CLATTN_BF16, 512}, {CLATTN_BF16, 65536}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct softmax_problem problem = softmax_rows(1, cases[i].columns);
        double *want = test_array(cases[i].columns);
        for (int64_t c = 0; c < cases[i].columns; c++)
            want[c] = 1.0 / (double)cases[i].columns;
        softmax_set_dtypes(&problem, cases[i].dtype, cases[i].dtype);
        softmax_expect(&problem, CHOSEN_WAY, want, 0, 0);
        free(want);
        softmax_free(&problem);
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static const int64_t lengths[] = {1,    2,    3,    7,    31,   32,   33,    63,    64,    65,
                                  127,  129,  255,  257,  500,  511,  513,   1000,  1023,  1025,
                                  2047, 2049, 2592, 4095, 4097, 8191, 10000, 16385, 50257, 100003};

/* A42: y_c = 2 (c + 1) / (n (n + 1)). */
static void row_lengths(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int64_t rows = 1; rows <= 3; rows += 2) {
            const int64_t n = lengths[i];
            struct softmax_problem problem = softmax_rows(rows, n);
            double *want = test_array(rows * n);
            for (int64_t c = 0; c < rows * n; c++) {
                problem.x[c] = (double)(float)log((double)(c % n + 1));
                want[c] = 2.0 * (double)(c % n + 1) / ((double)n * (double)(n + 1));
            }
            softmax_expect(&problem, n == 1 || n == 33 || n == 1025 || n == 50257 ? EVERY_WAY : CHOSEN_WAY, want, 0,
                           2e-5);
            problem.function = CLATTN_LOG_SOFTMAX;
            for (int64_t c = 0; c < rows * n; c++)
                want[c] = log(want[c]);
            softmax_expect(&problem, CHOSEN_WAY, want, 1e-6, 2e-5);
            free(want);
            softmax_free(&problem);
        }
}

static void expect_pairs(int rank, const int64_t *dims, int axis, enum softmax_ways ways) {
    struct softmax_problem problem = softmax_of(rank, dims, axis);
    const int64_t count = softmax_count(&problem), inner = count / 2;
    double *want = test_array(count);
    for (int64_t i = 0; i < inner; i++) {
        const double sign = i % 2 ? 1 : -1;
        problem.x[inner + i] = sign;
        want[inner + i] = 1 / (1 + exp(-sign));
        want[i] = 1 - want[inner + i];
    }
    softmax_expect(&problem, ways, want, 1e-6, 0);
    free(want);
    softmax_free(&problem);
}

/* A43 */
static void more_rows_than_65535(void **state) {
    static const int64_t planes[] = {1, 2, 65536, 1}, rows[] = {1, 2, 70000};
    static const int64_t shapes[][2] = {{65537, 6}, {262144, 3}};
    (void)state;
    expect_pairs(4, planes, 1, EVERY_VARIANT);
    expect_pairs(3, rows, 1, CHOSEN_WAY);
    for (int i = 0; i < 2; i++) {
        struct softmax_problem problem = softmax_rows(shapes[i][0], shapes[i][1]);
        softmax_fill_normal(&problem, 5, 2);
        softmax_check(&problem, EVERY_VARIANT);
        softmax_free(&problem);
    }
}

static void zero_sizes(void **state) {
    static const int64_t shapes[][2] = {{0, 5}, {3, 0}, {0, 0}};
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int f = CLATTN_SOFTMAX; f <= CLATTN_SOFTMAX_STATE; f++) {
            struct softmax_problem problem = softmax_rows(shapes[i][0], shapes[i][1]);
            problem.function = (clattn_softmax_function)f;
            softmax_check_way(&problem, chosen); /* rows without columns: log-sum-exp -inf, state (-inf, 0) */
            softmax_free(&problem);
        }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_minus_infinity),
        cmocka_unit_test(nan_and_infinities),
        cmocka_unit_test(large_magnitudes),
        cmocka_unit_test(sums_beyond_half),
        cmocka_unit_test(row_lengths),
        cmocka_unit_test(more_rows_than_65535),
        cmocka_unit_test(zero_sizes),
    };
    return support_main("softmax cases", tests, sizeof tests / sizeof tests[0]);
}
