/* Sliding windows: on both sides, with and without the causal limit, wider than the context, far from the diagonal. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64 };

static void set_window(struct attention_data *data, int64_t left, int64_t right) {
    data->settings.window_left = left;
    data->settings.window_right = right;
    attention_data_bind(data);
}

/* A15: the mean of the keys from i - left to i. Half types round the means, and bf16 not even holds all values. */
static void expect_means(const struct attention_data *data, const struct attention_result *result, int64_t left,
                         const char *variant) {
    const double tolerance = data->dtype == CLATTN_F32 ? 1e-4 : 1e-3 * (double)data->problem.nk;
    for (int64_t i = 0; i < data->problem.nq; i++) {
        const double first = fmax(0, (double)(i - left)), want = (first + (double)i) / 2;
        for (int64_t c = 0; c < D && data->dtype != CLATTN_BF16; c++)
            if (!(fabs(result->o[i * D + c] - want) <= tolerance))
                fail_msg("%s, %s, left %lld: o of row %lld is %.9g, not %.9g", variant, dtype_name(data->dtype),
                         (long long)left, (long long)i, result->o[i * D + c], want);
        assert_true(fabs(result->lse[i] - log((double)i - first + 1)) <= 1e-5);
    }
}

/* A15: a row that sees one key alone is that key's value; a window as wide as the context is none. */
static void expect_limits(const struct attention_data *data, const struct attention_result *result,
                          const struct attention_result *causal, int64_t left, const char *variant) {
    const int64_t n = data->problem.nq;
    if (left >= n - 1)
        attention_same_rows(data, variant, result, causal, 0, n);
    for (int64_t i = 0; i < n * D && left == 0; i++)
        assert_true(result->o[i] == data->v[i] && result->lse[i / D] == 0);
}

static void windows_give_means(clattn_dtype dtype) {
    enum { N = 300 };
    const int64_t lefts[] = {0, 1, 31, 32, 33, 63, 64, 127, 128, 298, 299, 300, 1000};
    struct attention_case shape = attention_shape("A15", 1, N, N, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.heads = shape.kv_heads = 1;
    shape.q = fill_zero, shape.k = fill_u2, shape.v = fill_row;
    struct attention_data data = attention_data_of(&shape, dtype);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index));) {
        struct attention_result causal = attention_run(&data, variant);
        for (size_t n = 0; n < sizeof lefts / sizeof lefts[0]; n++) {
            set_window(&data, lefts[n], -1);
            struct attention_result result = attention_run(&data, variant);
            attention_compare(&data, &result, variant, 64);
            expect_means(&data, &result, lefts[n], variant);
            expect_limits(&data, &result, &causal, lefts[n], variant);
            attention_result_free(&result);
        }
        set_window(&data, -1, -1);
        attention_result_free(&causal);
    }
    attention_data_free(&data);
}

static void means_in_every_dtype(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        windows_give_means(all_dtypes[t]);
}

static void windows_of_any_size(void **state) {
    const int64_t windows[][2] = {{0, 0},  {0, -1},  {-1, 0},        {17, 5},        {64, 64}, {5, 200},
                                  {70, 0}, {500, 0}, {INT64_MAX, 3}, {3, INT64_MAX}, {-1, -1}, {100, 100}};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int causal = 0; causal < 3; causal++)
            for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w += t ? 4 : 1) {
                const struct attention_case shape = attention_shape("windows", 1, 70, 150, (clattn_causal)causal);
                struct attention_data data = attention_data_random(&shape, all_dtypes[t], w + 1);
                set_window(&data, windows[w][0], windows[w][1]);
                attention_check(&data);
                attention_data_free(&data);
            }
}

/* The window follows the diagonal, with the causal limit and without. */
static void windows_from_any_diagonal(void **state) {
    const int64_t diagonals[] = {
        0, -1, 40, 80, -69, -70, 150, 1000, INT64_MAX, INT64_MIN, -INT64_MAX / 2, INT64_C(1) << 31};
    (void)state;
    for (int causal = 0; causal < 2; causal++)
        for (size_t i = 0; i < sizeof diagonals / sizeof diagonals[0]; i++) {
            struct attention_case shape = attention_shape("windows from a diagonal", 1, 70, 150, (clattn_causal)causal);
            shape.has_diagonal = 1;
            shape.diagonal = diagonals[i];
            struct attention_data data = attention_data_random(&shape, CLATTN_F32, i + 1);
            set_window(&data, 20, 9);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* What no window holds may be NaN or infinity; a key that only some rows see spoils them alone. */
static void a_key_outside_the_window_has_no_influence(void **state) {
    enum { N = 60, KEY = 30, LEFT = 7, RIGHT = 3 };
    struct attention_case shape = attention_shape("outside the window", 1, N, N, CLATTN_CAUSAL_NONE);
    shape.heads = shape.kv_heads = 1;
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data clean = attention_data_random(&shape, all_dtypes[t], 3);
        struct attention_data data = attention_data_random(&shape, all_dtypes[t], 3);
        set_window(&clean, LEFT, RIGHT);
        set_window(&data, LEFT, RIGHT);
        data.v[KEY * D] = (double)NAN;
        size_t index = 0;
        for (const char *variant; (variant = attention_next_variant(&data, &index));) {
            struct attention_result before = attention_run(&clean, variant), after = attention_run(&data, variant);
            attention_compare(&data, &after, variant, N);
            attention_same_rows(&data, variant, &before, &after, 0, KEY - RIGHT);
            attention_same_rows(&data, variant, &before, &after, KEY + LEFT + 1, N);
            attention_result_free(&before);
            attention_result_free(&after);
        }
        attention_data_free(&clean);
        attention_data_free(&data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ATTENTION_TABLE_TESTS(window_cases),
        cmocka_unit_test(means_in_every_dtype),
        cmocka_unit_test(windows_of_any_size),
        cmocka_unit_test(windows_from_any_diagonal),
        cmocka_unit_test(a_key_outside_the_window_has_no_influence),
    };
    return support_main("attention windows", tests, sizeof tests / sizeof tests[0]);
}
