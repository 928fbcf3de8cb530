/* What is done to scores before the softmax: bias, ALiBi and the soft cap. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64 };

static struct attention_data biased(const struct attention_case *shape, clattn_dtype dtype, clattn_dtype bias_dtype,
                                    const int64_t *dims) {
    struct attention_data data = attention_data_random(shape, dtype, 11);
    attention_data_add(&data.settings.bias, &data.bias, bias_dtype, 4, dims);
    for (int64_t i = 0; i < reference_count(&data.settings.bias); i++)
        data.bias[i] = i % 7 == 3 ? -(double)INFINITY : reference_round(bias_dtype, reference_normal((uint64_t)i, 77));
    attention_data_bind(&data);
    return data;
}

/* A16: any axis may repeat; of the inputs' dtype or fp32. */
static void biases_repeat_over_any_axis(void **state) {
    const int64_t nq = 70, nk = 150;
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int wide = 0; wide < (t ? 2 : 1); wide++)
            for (int axes = 0; axes < 16; axes += t ? 5 : 1) {
                const struct attention_case shape = attention_shape("A16 bias", 2, nq, nk, CLATTN_CAUSAL_BOTTOM_RIGHT);
                const int64_t dims[4] = {axes & 1 ? 2 : 1, axes & 2 ? 4 : 1, axes & 4 ? nq : 1, axes & 8 ? nk : 1};
                struct attention_data data = biased(&shape, all_dtypes[t], wide ? CLATTN_F32 : all_dtypes[t], dims);
                attention_check(&data);
                attention_data_free(&data);
            }
}

/* A17: rows with a pitch of their own, the axes in another order, columns apart. */
static void biases_in_any_layout(void **state) {
    const int64_t nq = 33, nk = 101, dims[4] = {2, 4, nq, nk};
    const struct test_layout layouts[] = {{3, {4 * nq * 128, nq * 128, 128, 1}},
                                          {0, {nk, 2 * nk, 8 * nk, 1}},
                                          {1, {1, 2, 8 * nk, 8}},
                                          {0, {4 * nk, nk, 0, 1}}};
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct attention_case shape = attention_shape("A17 bias", 2, nq, nk, CLATTN_CAUSAL_NONE);
        struct attention_data dense = biased(&shape, CLATTN_F32, CLATTN_F32, dims);
        for (int64_t row = 0; row < 8 * nq && layouts[i].strides[2] == 0; row++)
            memcpy(dense.bias + row * nk, dense.bias + row / nq * nq * nk, (size_t)nk * sizeof(double));
        struct attention_data other = dense;
        other.layout_bias = &layouts[i];
        size_t index = 0;
        for (const char *variant; (variant = attention_next_variant(&dense, &index));) {
            struct attention_result a = attention_run(&dense, variant), b = attention_run(&other, variant);
            attention_compare(&dense, &a, variant, 64);
            attention_same_rows(&dense, variant, &a, &b, 0, attention_row_count(&dense));
            attention_result_free(&a);
            attention_result_free(&b);
        }
        attention_data_free(&dense);
    }
}

/* A17: rows of five with a pitch of eight, NaN between them and behind the last. Means over four keys, exactly. */
static void pads_are_not_read(void **state) {
    enum { NQ = 3, NK = 5, PITCH = 8 };
    const int64_t dims[4] = {1, 1, NQ, NK};
    const struct test_layout pitched = {0, {NQ * PITCH, NQ * PITCH, PITCH, 1}};
    struct attention_case shape = attention_shape("A17 pitch", 1, NQ, NK, CLATTN_CAUSAL_TOP_LEFT);
    shape.has_diagonal = 1, shape.diagonal = NK; /* all keys, by programs that other tests have too */
    shape.q = fill_zero, shape.k = fill_u2, shape.v = fill_row;
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int is_mask = 0; is_mask < 2; is_mask++) {
            struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
            clattn_attention_op *op = &data.settings;
            double *cells = is_mask ? attention_data_add(&op->mask, &data.mask, CLATTN_U8, 4, dims)
                                    : attention_data_add(&op->bias, &data.bias, all_dtypes[t], 4, dims);
            for (int i = 0; i < NQ * NK; i++)
                cells[i] = i % NK != 2 ? is_mask : is_mask ? 0 : -(double)INFINITY;
            data.layout_mask = data.layout_bias = &pitched;
            attention_data_bind(&data);
            size_t index = 0;
            for (const char *variant; (variant = attention_next_variant(&data, &index));) {
                struct attention_result result = attention_run(&data, variant);
                for (int64_t i = 0; i < attention_o_count(&data); i++)
                    assert_true(result.o[i] == 2);
                attention_result_free(&result);
            }
            attention_data_free(&data);
        }
}

/* With and without a limit are two programs: fp32 takes both. */
static clattn_causal causal_of(int dtype, int number) {
    return (clattn_causal)(dtype == 0 ? number % 3 : 1 + number % 2);
}

static void add_slopes(struct attention_data *data, int64_t batch) {
    const int64_t heads = data->problem.heads, dims[2] = {batch, heads};
    float slopes[16];
    attention_data_add(&data->settings.alibi, &data->alibi, CLATTN_F32, batch ? 2 : 1, batch ? dims : dims + 1);
    CHECK(clattn_alibi_slopes((int32_t)heads, slopes));
    for (int64_t i = 0; i < reference_count(&data->settings.alibi); i++)
        data->alibi[i] = (double)slopes[i % heads] * (i < heads ? 1 : -0.5);
    attention_data_bind(data);
}

/* A25: slopes a head, and a sequence and a head, counted from any diagonal. */
static void slopes_count_from_the_diagonal(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < 6; kind++) {
            struct attention_case shape = attention_shape("A25 slopes", 2, kind == 5 ? 1 : 40, 150, causal_of(t, kind));
            shape.has_diagonal = kind == 3;
            shape.diagonal = 90;
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], 12);
            add_slopes(&data, kind % 2 ? 2 : 0);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* A26: heads 0..3 and 4..7 of 8 in calls of their own, each with its slopes. */
static void slopes_of_half_the_heads(clattn_dtype dtype) {
    enum { N = 9, HALF = 4 };
    struct attention_case shape = attention_shape("A26 slopes", 1, N, N, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.heads = shape.kv_heads = 2 * HALF;
    struct attention_data all = attention_data_random(&shape, dtype, 13);
    add_slopes(&all, 0);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&all, &index));) {
        struct attention_result whole = attention_run(&all, variant);
        attention_compare(&all, &whole, variant, 72);
        for (int64_t half = 0; half < 2; half++) {
            const int64_t first = half * HALF * N, bytes = HALF * N * D * (int64_t)sizeof(double);
            shape.heads = shape.kv_heads = HALF;
            struct attention_data part = attention_data_random(&shape, dtype, 13);
            add_slopes(&part, 0);
            memcpy(part.alibi, all.alibi + half * HALF, HALF * sizeof(double));
            memcpy(part.q, all.q + first * D, (size_t)bytes);
            memcpy(part.k, all.k + first * D, (size_t)bytes);
            memcpy(part.v, all.v + first * D, (size_t)bytes);
            struct attention_result result = attention_run(&part, variant);
            struct attention_result slice = {.o = whole.o + first * D, .lse = whole.lse + first};
            attention_same_rows(&part, variant, &result, &slice, 0, HALF * N);
            attention_result_free(&result);
            attention_data_free(&part);
        }
        attention_result_free(&whole);
    }
    attention_data_free(&all);
}

static void slopes_of_a_slice_of_heads(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        slopes_of_half_the_heads(all_dtypes[t]);
}

/* A24 */
static void standard_slopes(void **state) {
    const float twelve[] = {0x1p-1F, 0x1p-2F, 0x1p-3F,   0x1p-4F,   0x1p-5F,   0x1p-6F,
                            0x1p-7F, 0x1p-8F, 0.707107F, 0.353553F, 0.176777F, 0.088388F};
    const float six[] = {0.25F, 0.0625F, 0.015625F, 0.00390625F, 0.5F, 0.125F};
    float slopes[12];
    (void)state;
    CHECK(clattn_alibi_slopes(12, slopes));
    for (int h = 0; h < 12; h++)
        assert_true(fabsf(slopes[h] - twelve[h]) <= 1e-6F);
    CHECK(clattn_alibi_slopes(6, slopes));
    for (int h = 0; h < 6; h++)
        assert_true(slopes[h] == six[h]);
    support_expect(clattn_alibi_slopes(0, slopes), CLATTN_INVALID_ARGUMENT, "no heads");
    support_expect(clattn_alibi_slopes(4, NULL), CLATTN_INVALID_ARGUMENT, "nowhere to put slopes");
}

static void caps_of_any_size(void **state) {
    const float caps[] = {0.5F, 2, 50, 1000, 1e-3F};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
            struct attention_case shape = attention_shape("A22 caps", 1, 40, 150, causal_of(t, (int)i));
            shape.with.softcap = caps[i];
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], 14);
            attention_check(&data);
            attention_data_free(&data);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ATTENTION_TABLE_TESTS(bias_cases),
        cmocka_unit_test(biases_repeat_over_any_axis),
        cmocka_unit_test(biases_in_any_layout),
        cmocka_unit_test(pads_are_not_read),
        cmocka_unit_test(slopes_count_from_the_diagonal),
        cmocka_unit_test(slopes_of_a_slice_of_heads),
        cmocka_unit_test(standard_slopes),
        cmocka_unit_test(caps_of_any_size),
    };
    return support_main("attention bias", tests, sizeof tests / sizeof tests[0]);
}
