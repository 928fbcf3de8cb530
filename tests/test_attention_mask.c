/* Explicit masks: repeated over any axis, in any layout, together with the causal limit, and values behind them. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64 };

static struct attention_data masked(const struct attention_case *shape, clattn_dtype dtype, const int64_t *dims,
                                    uint32_t seed) {
    struct attention_data data = attention_data_random(shape, dtype, seed);
    attention_data_add(&data.settings.mask, &data.mask, CLATTN_U8, 4, dims);
    attention_data_fill_mask(&data, seed);
    attention_data_bind(&data);
    return data;
}

/* A16 with a bool mask: any axis may repeat. */
static void masks_repeat_over_any_axis(void **state) {
    const int64_t nq = 90, nk = 210;
    (void)state;
    for (int t = 0; t < 3; t++)
        for (uint32_t axes = 0; axes < 16; axes += t ? 5 : 1) {
            /* With and without a limit are two programs: fp32 takes both. */
            const clattn_causal causal = axes % 3 && t == 0 ? CLATTN_CAUSAL_NONE : CLATTN_CAUSAL_BOTTOM_RIGHT;
            const struct attention_case shape = attention_shape("A16 mask", 2, nq, nk, causal);
            const int64_t dims[4] = {axes & 1 ? 2 : 1, axes & 2 ? 4 : 1, axes & 4 ? nq : 1, axes & 8 ? nk : 1};
            struct attention_data data = masked(&shape, all_dtypes[t], dims, 20 + axes);
            attention_check(&data);
            attention_data_free(&data);
        }
}

static void same_bits(const struct attention_data *a, const struct attention_data *b) {
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(a, &index));) {
        struct attention_result first = attention_run(a, variant), second = attention_run(b, variant);
        attention_compare(a, &first, variant, 64);
        attention_same_rows(a, variant, &first, &second, 0, attention_row_count(a));
        attention_result_free(&first);
        attention_result_free(&second);
    }
}

/* A17: rows padded in memory, the axes in another order, columns apart. */
static void masks_laid_out_otherwise(clattn_dtype dtype) {
    const int64_t nq = 33, nk = 101, dims[4] = {2, 4, nq, nk};
    const struct test_layout layouts[] = {{3, {4 * nq * 128, nq * 128, 128, 1}},
                                          {0, {nk, 2 * nk, 8 * nk, 1}},
                                          {1, {1, 2, 8 * nk, 8}},
                                          {0, {4 * nq * nk * 3, nq * nk * 3, nk * 3, 3}}};
    const struct attention_case shape = attention_shape("A17 mask", 2, nq, nk, CLATTN_CAUSAL_NONE);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct attention_data dense = masked(&shape, dtype, dims, 5), other = masked(&shape, dtype, dims, 5);
        other.layout_mask = &layouts[i];
        same_bits(&dense, &other);
        attention_data_free(&dense);
        attention_data_free(&other);
    }
}

static void masks_in_any_layout(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        masks_laid_out_otherwise(all_dtypes[t]);
}

/* A49: a query stride of 0 is as good as a copy a row, and as a dim of 1. */
static void a_query_stride_of_0(clattn_dtype dtype) {
    const int64_t nq = 33, nk = 101, full[4] = {1, 1, nq, nk}, one[4] = {1, 1, 1, nk};
    const struct test_layout repeated = {0, {nk, nk, 0, 1}};
    const struct attention_case shape = attention_shape("A49 mask", 1, nq, nk, CLATTN_CAUSAL_NONE);
    struct attention_data copied = masked(&shape, dtype, full, 7), strided = masked(&shape, dtype, full, 7);
    struct attention_data single = masked(&shape, dtype, one, 7);
    for (int64_t i = 0; i < nq; i++) {
        memcpy(copied.mask + i * nk, single.mask, (size_t)nk * sizeof(double));
        memcpy(strided.mask + i * nk, single.mask, (size_t)nk * sizeof(double));
    }
    strided.layout_mask = &repeated;
    same_bits(&copied, &strided);
    same_bits(&copied, &single);
    attention_data_free(&copied);
    attention_data_free(&strided);
    attention_data_free(&single);
}

static void a_query_stride_of_0_repeats_the_row(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        a_query_stride_of_0(all_dtypes[t]);
}

/* A key that some rows see and others do not holds NaN: those who do not see it keep their bits. */
static void a_key_spoils_only_rows_that_see_it(void **state) {
    enum { N = 40, KEY = 21 };
    const int64_t dims[4] = {1, 1, N, N};
    struct attention_case shape = attention_shape("a masked key", 1, N, N, CLATTN_CAUSAL_NONE);
    shape.heads = shape.kv_heads = 1;
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int in_k = 0; in_k < 2; in_k++) {
            struct attention_data clean = masked(&shape, all_dtypes[t], dims, 9);
            struct attention_data data = masked(&shape, all_dtypes[t], dims, 9);
            for (int64_t c = 0; c < D; c += 3)
                (in_k ? data.k : data.v)[KEY * D + c] = (double)NAN;
            size_t index = 0;
            for (const char *variant; (variant = attention_next_variant(&data, &index));) {
                struct attention_result before = attention_run(&clean, variant);
                struct attention_result after = attention_run(&data, variant);
                attention_compare(&data, &after, variant, N);
                for (int64_t row = 0; row < N; row++)
                    if (data.mask[row * N + KEY] == 0)
                        attention_same_rows(&data, variant, &before, &after, row, row + 1);
                attention_result_free(&before);
                attention_result_free(&after);
            }
            attention_data_free(&clean);
            attention_data_free(&data);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ATTENTION_TABLE_TESTS(mask_cases),
        cmocka_unit_test(masks_repeat_over_any_axis),
        cmocka_unit_test(masks_in_any_layout),
        cmocka_unit_test(a_query_stride_of_0_repeats_the_row),
        cmocka_unit_test(a_key_spoils_only_rows_that_see_it),
    };
    return support_main("attention masks", tests, sizeof tests / sizeof tests[0]);
}
