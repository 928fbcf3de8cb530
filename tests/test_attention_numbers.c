/* The numbers inside: P read through V, log-sum-exps that merge, sums that a half accumulator would lose, NaN and
 * infinity in inputs, scales of all kinds. */
#include "attention_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64 };

static struct attention_case shape_of(const char *name, int64_t nq, int64_t nk, clattn_causal causal) {
    return (struct attention_case){.name = name,
                                   .batch = 1,
                                   .heads = 1,
                                   .kv_heads = 1,
                                   .nq = nq,
                                   .nk = nk,
                                   .head_dim = D,
                                   .value_dim = D,
                                   .q = fill_u1,
                                   .k = fill_u2,
                                   .v = fill_u3,
                                   .causal = causal};
}

/* P of a variant: V is one slice of the identity after another. */
static double *probabilities(struct attention_data *data, const char *variant) {
    const int64_t nq = data->problem.nq, nk = data->problem.nk;
    double *p = test_array(nq * nk);
    for (int64_t first = 0; first < nk; first += D) {
        memset(data->v, 0, (size_t)(nk * D) * sizeof(double));
        for (int64_t c = 0; c < D && first + c < nk; c++)
            data->v[(first + c) * D + c] = 1;
        struct attention_result result = attention_run(data, variant);
        for (int64_t i = 0; i < nq; i++)
            for (int64_t c = 0; c < D && first + c < nk; c++)
                p[i * nk + first + c] = result.o[i * D + c];
        attention_result_free(&result);
    }
    return p;
}

static void p_is_right(clattn_dtype dtype, clattn_causal causal) {
    const struct attention_case shape = shape_of("P", 33, 150, causal);
    struct attention_data data = attention_data_random(&shape, dtype, 17);
    const int64_t nq = 33, nk = 150;
    double *want = test_array(nq * nk), *plain = test_array(nq * nk);
    for (int64_t i = 0; i < nq; i++) {
        double o[D], lse;
        reference_attention_row(&data.problem, data.q, data.k, data.v, i, o, &lse, want + i * nk);
        plain_attention_row(&data.problem, dtype, dtype, data.q, data.k, data.v, i, o, &lse, plain + i * nk);
    }
    const double plain_error = reference_plain_error(nq * nk, want, plain);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index));) {
        double *p = probabilities(&data, variant);
        struct reference_error error = {0};
        reference_compare(&error, nq * nk, p, want, plain_error, dtype);
        printf("P of %s in %s: largest error %.3g, plain %.3g\n", variant, dtype_name(dtype), error.largest,
               plain_error);
        if (error.bad)
            fail_msg("%s: P[%lld] is %.9g, not %.9g (bound %.3g)", variant, (long long)error.index, error.got,
                     error.want, error.bound);
        for (int64_t i = 0; causal && i < nq; i++)
            for (int64_t j = reference_attention_locate(&data.problem, i).end_key; j < nk; j++)
                assert_true(p[i * nk + j] == 0);
        free(p);
    }
    free(want);
    free(plain);
    attention_data_free(&data);
}

static void p_read_through_slices_of_the_identity(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        p_is_right(all_dtypes[t], CLATTN_CAUSAL_NONE);
        p_is_right(all_dtypes[t], CLATTN_CAUSAL_BOTTOM_RIGHT);
    }
}

/* With an fp32 result. */
static struct attention_data partial_of(const struct attention_case *shape, clattn_dtype dtype) {
    struct attention_data data = attention_data_of(shape, dtype);
    data.out_dtype = CLATTN_F32;
    return data;
}

/* Attention over [first, end) of the keys. */
static struct attention_data key_slice(const struct attention_case *whole, clattn_dtype dtype, int64_t first,
                                       int64_t end) {
    struct attention_case part = *whole;
    part.nk = end - first;
    struct attention_data all = attention_data_of(whole, dtype), data = partial_of(&part, dtype);
    memcpy(data.k, all.k + first * whole->head_dim, (size_t)(part.nk * whole->head_dim) * sizeof(double));
    memcpy(data.v, all.v + first * whole->value_dim, (size_t)(part.nk * whole->value_dim) * sizeof(double));
    attention_data_free(&all);
    return data;
}

struct merged {
    double *o, *lse;
};

/* Merges `count` results of `rows` rows of `columns` on the device. */
static struct merged merge(const struct attention_result *parts, int count, int64_t rows, int64_t columns) {
    const int64_t o_dims[] = {1, 1, rows, columns};
    struct test_tensor tensors[16], o = test_output(CLATTN_F32, 4, o_dims, NULL);
    struct test_tensor lse = test_output(CLATTN_F32, 3, o_dims, NULL);
    clattn_tensor o_in[8], lse_in[8];
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    for (int i = 0; i < count; i++) {
        tensors[2 * i] = test_input(CLATTN_F32, 4, o_dims, parts[i].o, NULL, (double)NAN);
        tensors[2 * i + 1] = test_input(CLATTN_F32, 3, o_dims, parts[i].lse, NULL, (double)NAN);
        o_in[i] = tensors[2 * i].view;
        lse_in[i] = tensors[2 * i + 1].view;
    }
    op.count = count;
    op.o_in = o_in;
    op.lse_in = lse_in;
    op.o = o.view;
    op.lse = lse.view;
    test_run(&op.head, NULL);
    struct merged result = {test_array(rows * columns), test_array(rows)};
    test_read(&o, result.o);
    test_read(&lse, result.lse);
    for (int i = 0; i < 2 * count; i++)
        test_release(&tensors[i]);
    test_release(&o);
    test_release(&lse);
    return result;
}

/* A10: keys 0..9 and 10..99 apart, merged, against one pass. */
static void parts_merge(clattn_dtype dtype) {
    const struct attention_case whole = shape_of("A10", 3, 100, CLATTN_CAUSAL_NONE);
    const double tolerance = dtype == CLATTN_F32 ? 1e-5 : dtype == CLATTN_F16 ? 1e-3 : 8e-3;
    struct attention_data data = partial_of(&whole, dtype);
    struct attention_data a = key_slice(&whole, dtype, 0, 10), b = key_slice(&whole, dtype, 10, 100);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index));) {
        struct attention_result once = attention_run(&data, variant);
        struct attention_result parts[2] = {attention_run(&a, variant), attention_run(&b, variant)};
        struct merged merged = merge(parts, 2, 3, D);
        for (int64_t i = 0; i < 3 * D; i++)
            assert_true(fabs(merged.o[i] - once.o[i]) <= tolerance);
        for (int64_t i = 0; i < 3; i++)
            assert_true(fabs(merged.lse[i] - once.lse[i]) <= 1e-5);
        free(merged.o);
        free(merged.lse);
        attention_result_free(&once);
        attention_result_free(&parts[0]);
        attention_result_free(&parts[1]);
    }
    attention_data_free(&data);
    attention_data_free(&a);
    attention_data_free(&b);
}

static void parts_merge_into_the_whole(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        parts_merge(all_dtypes[t]);
}

/* The result's first `empty` rows are 0 and -inf, and merged with 7 and 0 they are just that. */
static void expect_no_weight(const struct attention_result *result, int64_t rows, int64_t empty) {
    struct attention_result parts[2] = {*result, {test_array(rows * D), test_array(rows)}};
    for (int64_t i = 0; i < rows * D; i++)
        parts[1].o[i] = 7;
    struct merged merged = merge(parts, 2, rows, D);
    for (int64_t row = 0; row < empty; row++) {
        assert_true(result->lse[row] == -(double)INFINITY && merged.lse[row] == 0);
        for (int64_t c = 0; c < D; c++)
            assert_true(result->o[row * D + c] == 0 && merged.o[row * D + c] == 7);
    }
    for (int64_t row = empty; row < rows; row++)
        assert_true(isfinite(result->lse[row]) && merged.lse[row] > 0);
    free(merged.o);
    free(merged.lse);
    attention_result_free(&parts[1]);
}

/* A09: rows without a key have lse -inf and merge as nothing. */
static void empty_rows_merge_as_nothing(const struct attention_case *shape, clattn_dtype dtype, int64_t empty) {
    struct attention_data data = attention_data_of(shape, dtype);
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index)); ran++) {
        struct attention_result result = attention_run(&data, variant);
        expect_no_weight(&result, shape->nq, empty);
        attention_result_free(&result);
    }
    assert_true(ran > 0);
    attention_data_free(&data);
}

static double behind_row_1(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[2] > 1;
}

static void empty_rows_have_no_weight(void **state) {
    struct attention_case masked = shape_of("A09 masked", 5, 4, CLATTN_CAUSAL_NONE);
    const struct attention_case causal = shape_of("A09 causal", 5, 2, CLATTN_CAUSAL_BOTTOM_RIGHT);
    const struct attention_case nothing = shape_of("A09 no keys", 5, 0, CLATTN_CAUSAL_NONE);
    const struct attention_case nothing_causal = shape_of("A09 no keys", 5, 0, CLATTN_CAUSAL_BOTTOM_RIGHT);
    (void)state;
    masked.with.mask = (struct case_grid){.dims = {1, 1, 5, 1}, .fill = behind_row_1};
    for (int t = 0; t < 3; t++) {
        empty_rows_merge_as_nothing(&masked, all_dtypes[t], 2);
        empty_rows_merge_as_nothing(&causal, all_dtypes[t], 3);
        empty_rows_merge_as_nothing(&nothing, all_dtypes[t], 5);
        empty_rows_merge_as_nothing(&nothing_causal, all_dtypes[t], 5);
    }
}

/* A44: ones sum exactly whatever the storage type. */
static void a_mean_of_ones_is_one(void **state) {
    (void)state;
    struct attention_case shape = shape_of("A44", 2, 4096, CLATTN_CAUSAL_NONE);
    shape.q = fill_zero;
    shape.v = fill_one;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        size_t index = 0;
        for (const char *variant; (variant = attention_next_variant(&data, &index));) {
            struct attention_result result = attention_run(&data, variant);
            for (int64_t i = 0; i < 2 * D; i++)
                if (result.o[i] != 1)
                    fail_msg("%s, %s: o[%lld] is %.9g", variant, dtype_name(all_dtypes[t]), (long long)i, result.o[i]);
            assert_true(fabs(result.lse[0] - 8.317766) <= 1e-5 && result.lse[1] == result.lse[0]);
            attention_result_free(&result);
        }
        attention_data_free(&data);
    }
}

/* NaN in a query spoils its own row, all of it, and no other; +inf does too where it meets a key. */
static void a_bad_query_spoils_its_row(void **state) {
    (void)state;
    const int64_t bad = 11;
    const struct attention_case shape = shape_of("bad query", 20, 37, CLATTN_CAUSAL_NONE);
    for (int t = 0; t < 3; t++) {
        struct attention_data clean_data = attention_data_of(&shape, all_dtypes[t]);
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        data.q[bad * D + 5] = (double)NAN;
        size_t index = 0;
        for (const char *variant; (variant = attention_next_variant(&data, &index));) {
            struct attention_result clean = attention_run(&clean_data, variant);
            struct attention_result result = attention_run(&data, variant);
            attention_same_rows(&data, variant, &clean, &result, 0, bad);
            attention_same_rows(&data, variant, &clean, &result, bad + 1, 20);
            for (int64_t c = 0; c < D; c++)
                assert_true(isnan(result.o[bad * D + c]));
            assert_true(isnan(result.lse[bad]));
            attention_result_free(&clean);
            attention_result_free(&result);
        }
        attention_data_free(&clean_data);
        attention_data_free(&data);
    }
}

/* Of 0 and 1, and of keys of 64ths: no rounding decides which score is the largest. */
static void make_whole(struct attention_data *data) {
    for (int64_t c = 0; c < data->problem.nq * D; c++)
        data->q[c] = c % D == 0;
    for (int64_t j = 0; j < data->problem.nk; j++)
        data->k[j * D] = (double)(j * 37 % data->problem.nk) / 64;
}

static void any_finite_scale(void **state) {
    const float scales[] = {0.0F, -0.0F, -0.3F, 1.0F, 40.0F, 1e-30F, -1e30F};
    const double tolerances[] = {1e-5, 2e-3, 1.6e-2};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
            struct attention_case shape = shape_of("scale", 9, 70, CLATTN_CAUSAL_NONE);
            shape.has_scale = 1;
            shape.scale = scales[i];
            struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
            data.tolerance = fabsf(scales[i]) > 1 ? fmax(1e-4, tolerances[t]) : tolerances[t];
            if (fabsf(scales[i]) > 1e20F)
                make_whole(&data);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* Scores whose differences are small beside their size: the maximum must be subtracted before the exponential. */
static void large_scores_stay_exact(void **state) {
    (void)state;
    struct attention_case shape = shape_of("large scores", 4, 90, CLATTN_CAUSAL_NONE);
    struct attention_data data = attention_data_of(&shape, CLATTN_F32);
    for (int64_t i = 0; i < 4 * D; i++)
        data.q[i] *= 64;
    for (int64_t i = 0; i < 90 * D; i++)
        data.k[i] = 16 + data.k[i];
    data.tolerance = 2e-3;
    attention_check(&data);
    attention_data_free(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p_read_through_slices_of_the_identity),
        cmocka_unit_test(parts_merge_into_the_whole),
        cmocka_unit_test(empty_rows_have_no_weight),
        cmocka_unit_test(a_mean_of_ones_is_one),
        cmocka_unit_test(a_bad_query_spoils_its_row),
        cmocka_unit_test(any_finite_scale),
        cmocka_unit_test(large_scores_stay_exact),
    };
    return support_main("attention numbers", tests, sizeof tests / sizeof tests[0]);
}
