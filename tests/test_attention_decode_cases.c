/* Published faults of attention over split contexts, for every decode variant: empty states that are merged, the
 * log-sum-exp of rows without keys, its base, and results that depend on the number of splits. */
#include "attention_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VARIANTS = 32, MOST_STATES = 4 };

/* Each decode variant of the device in turn. */
static const char *next_decode(const struct attention_data *data, size_t *index) {
    const char *names[MOST_VARIANTS];
    const size_t count = attention_variants(data, names, MOST_VARIANTS);
    while (*index < count) {
        const char *name = names[(*index)++];
        if (attention_is_decode(name))
            return name;
    }
    return NULL;
}

/* With the programs of test_attention_decode.c. splits: 0 = the library's number with its own sizes. */
static struct attention_result run(struct attention_data *data, const char *variant, int splits) {
    char parameters[96];
    snprintf(parameters, sizeof parameters, "%s,splits=%d",
             strstr(variant, "fma") ? "fma_items=4,groups=4" : "score_tiles=1", splits);
    data->parameters = splits > 0 ? parameters : NULL;
    struct attention_result result = attention_run(data, variant);
    data->parameters = NULL;
    return result;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

/* (o, lse) of rows, as attention gives them. */
struct states {
    int64_t rows, columns;
    const double *o, *lse;
};

static struct states states_of(const struct attention_data *data, const struct attention_result *result) {
    return (struct states){attention_row_count(data), data->problem.value_dim, result->o, result->lse};
}

static struct attention_result merge(const struct states *operand, int count) {
    const int64_t rows = operand->rows, columns = operand->columns, dims[4] = {1, 1, rows, columns};
    struct test_tensor o_in[MOST_STATES], lse_in[MOST_STATES];
    struct test_tensor o = test_output(CLATTN_F32, 4, dims, NULL), lse = test_output(CLATTN_F32, 3, dims, NULL);
    clattn_tensor o_views[MOST_STATES], lse_views[MOST_STATES];
    struct attention_result merged = {test_array(rows * columns), test_array(rows)};
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    for (int i = 0; i < count; i++) {
        o_in[i] = test_input(CLATTN_F32, 4, dims, operand[i].o, NULL, (double)NAN);
        lse_in[i] = test_input(CLATTN_F32, 3, dims, operand[i].lse, NULL, (double)NAN);
        o_views[i] = o_in[i].view, lse_views[i] = lse_in[i].view;
    }
    op.count = count, op.o_in = o_views, op.lse_in = lse_views, op.o = o.view, op.lse = lse.view;
    test_run(&op.head, NULL);
    test_read(&o, merged.o);
    test_read(&lse, merged.lse);
    for (int i = 0; i < count; i++)
        test_release(&o_in[i]), test_release(&lse_in[i]);
    test_release(&o);
    test_release(&lse);
    return merged;
}

/* Every row of the state merges with o = 7 (and 0 as its log-sum-exp) to that very state. */
static void expect_no_weight(const struct states *empty) {
    double *o = test_array(empty->rows * empty->columns), *lse = test_array(empty->rows);
    for (int64_t i = 0; i < empty->rows * empty->columns; i++)
        o[i] = 7;
    const struct states pair[2] = {*empty, {empty->rows, empty->columns, o, lse}}, reverse[2] = {pair[1], pair[0]};
    for (int order = 0; order < 2; order++) {
        struct attention_result merged = merge(order == 0 ? pair : reverse, 2);
        for (int64_t i = 0; i < empty->rows * empty->columns; i++)
            assert_true(merged.o[i] == 7);
        for (int64_t i = 0; i < empty->rows; i++)
            assert_true(merged.lse[i] == 0);
        attention_result_free(&merged);
    }
    free(o);
    free(lse);
}

static void expect_empty(const struct states *states) {
    for (int64_t i = 0; i < states->rows * states->columns; i++)
        assert_true(states->o[i] == 0);
    for (int64_t i = 0; i < states->rows; i++)
        assert_true(states->lse[i] == -(double)INFINITY);
}

/* ---- the cases --------------------------------------------------------------------------------------------------- */

static double nothing(const int64_t at[4], int64_t flat) {
    (void)at, (void)flat;
    return 0;
}

/* A08: nothing was seen in two parts of a context, in all parts, and in all but one. */
static void a08_merging_empty_states(void **state) {
    const double lengths[] = {0, 0};
    struct attention_case c = attention_shape("A08", 2, 1, 100, CLATTN_CAUSAL_NONE);
    struct attention_case all = attention_shape("A08", 2, 1, 100, CLATTN_CAUSAL_NONE);
    (void)state;
    c.with.k_lengths = lengths;
    all.with.k_lengths = (const double[]){100, 100};
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 1);
    struct attention_data seen = attention_data_random(&all, CLATTN_F32, 1);
    size_t index = 0;
    for (const char *variant; (variant = next_decode(&data, &index));)
        for (int splits = 1; splits <= 3; splits += 2) {
            struct attention_result empty = run(&data, variant, splits), full = run(&seen, variant, splits);
            const struct states none = states_of(&data, &empty), some = states_of(&seen, &full);
            const struct states twice[3] = {none, none, none}, once[3] = {none, some, none};
            expect_empty(&none);
            struct attention_result merged = merge(twice, 3);
            const struct states still = states_of(&data, &merged);
            expect_empty(&still);
            attention_result_free(&merged);
            merged = merge(once, 3);
            assert_memory_equal(merged.o, full.o, (size_t)(some.rows * some.columns) * sizeof *full.o);
            assert_memory_equal(merged.lse, full.lse, (size_t)some.rows * sizeof *full.lse);
            attention_result_free(&merged);
            attention_result_free(&empty);
            attention_result_free(&full);
        }
    attention_data_free(&data);
    attention_data_free(&seen);
}

/* A09: no keys, hidden keys, and queries before the first key of a causal limit. */
static void a09_the_log_sum_exp_of_an_empty_row(void **state) {
    struct attention_case cases[] = {attention_shape("A09 no keys", 1, 1, 0, CLATTN_CAUSAL_NONE),
                                     attention_shape("A09 all masked", 1, 2, 3, CLATTN_CAUSAL_NONE),
                                     attention_shape("A09 causal", 1, 5, 2, CLATTN_CAUSAL_BOTTOM_RIGHT)};
    const int64_t empty_queries[] = {1, 2, 3};
    (void)state;
    cases[1].with.mask = (struct case_grid){.dims = {1, 1, 1, 1}, .fill = nothing};
    for (int i = 0; i < 3; i++) {
        struct attention_data data = attention_data_random(&cases[i], CLATTN_F32, 2);
        const int64_t heads = cases[i].heads, nq = cases[i].nq, dv = cases[i].value_dim;
        size_t index = 0, ran = 0;
        for (const char *variant; (variant = next_decode(&data, &index)); ran++)
            for (int splits = 1; splits <= 2; splits++) {
                struct attention_result result = run(&data, variant, splits);
                for (int64_t h = 0; h < heads; h++) {
                    const struct states rows = {empty_queries[i], dv, result.o + h * nq * dv, result.lse + h * nq};
                    expect_empty(&rows);
                    expect_no_weight(&rows);
                    for (int64_t r = empty_queries[i]; r < nq; r++)
                        assert_true(isfinite(result.lse[h * nq + r]));
                }
                attention_result_free(&result);
            }
        assert_true(ran > 0);
        attention_data_free(&data);
    }
}

/* Keys and values from `first` on. */
static struct attention_data part_of(const struct attention_case *whole, const struct attention_data *data,
                                     int64_t first, int64_t count) {
    struct attention_case c = *whole;
    c.nk = count;
    struct attention_data part = attention_data_of(&c, CLATTN_F32);
    for (int64_t head = 0; head < c.kv_heads; head++) {
        const int64_t to = head * count, from = head * whole->nk + first;
        memcpy(part.k + to * c.head_dim, data->k + from * c.head_dim, (size_t)(count * c.head_dim) * sizeof(double));
        memcpy(part.v + to * c.value_dim, data->v + from * c.value_dim, (size_t)(count * c.value_dim) * sizeof(double));
    }
    return part;
}

/* A10: four scores of 0 give ln 4, and two passes merged with natural logarithms give what one pass does. */
static void a10_the_log_sum_exp_is_natural(void **state) {
    struct attention_case four = attention_shape("A10 four keys", 1, 1, 4, CLATTN_CAUSAL_NONE);
    struct attention_case c = attention_shape("A10 two passes", 1, 1, 100, CLATTN_CAUSAL_NONE);
    (void)state;
    four.q = fill_zero, four.k = fill_u2, four.v = fill_u3;
    c.q = fill_u1, c.k = fill_u2, c.v = fill_u3;
    struct attention_data zero = attention_data_of(&four, CLATTN_F32), whole = attention_data_of(&c, CLATTN_F32);
    struct attention_data near = part_of(&c, &whole, 0, 10), far = part_of(&c, &whole, 10, 90);
    size_t index = 0;
    for (const char *variant; (variant = next_decode(&whole, &index));)
        for (int splits = 1; splits <= 2; splits++) {
            struct attention_result logs = run(&zero, variant, splits), once = run(&whole, variant, splits);
            struct attention_result first = run(&near, variant, splits), second = run(&far, variant, splits);
            const struct states both[2] = {states_of(&near, &first), states_of(&far, &second)};
            struct attention_result merged = merge(both, 2);
            for (int64_t i = 0; i < attention_row_count(&zero); i++)
                assert_true(fabs(logs.lse[i] - 1.386294) < 1e-5);
            for (int64_t i = 0; i < attention_o_count(&whole); i++)
                assert_true(fabs(merged.o[i] - once.o[i]) < 1e-5);
            for (int64_t i = 0; i < attention_row_count(&whole); i++)
                assert_true(fabs(merged.lse[i] - once.lse[i]) < 1e-5);
            attention_result_free(&logs);
            attention_result_free(&once);
            attention_result_free(&first);
            attention_result_free(&second);
            attention_result_free(&merged);
        }
    attention_data_free(&zero);
    attention_data_free(&whole);
    attention_data_free(&near);
    attention_data_free(&far);
}

/* A39, the long part: 16 and 32 splits, and the library's own number, agree with one. */
static void a39_splits_agree(void **state) {
    const int splits[] = {16, 32, 0};
    struct attention_case c = attention_shape("A39 long", 1, 1, 4096, CLATTN_CAUSAL_NONE);
    (void)state;
    c.heads = 16, c.kv_heads = 8, c.head_dim = c.value_dim = 128;
    c.q = fill_u1, c.k = fill_u2, c.v = fill_u3;
    struct attention_data data = attention_data_of(&c, CLATTN_BF16);
    size_t index = 0;
    for (const char *variant; (variant = next_decode(&data, &index));) {
        struct attention_result one = run(&data, variant, 1);
        attention_compare(&data, &one, variant, 16);
        for (int i = 0; i < 3; i++) {
            struct attention_result other = run(&data, variant, splits[i]);
            for (int64_t j = 0; j < attention_o_count(&data); j++)
                assert_true(fabs(other.o[j] - one.o[j]) < 2e-2);
            for (int64_t j = 0; j < attention_row_count(&data); j++)
                assert_true(fabs(other.lse[j] - one.lse[j]) < 1e-4);
            attention_result_free(&other);
        }
        attention_result_free(&one);
    }
    attention_data_free(&data);
}

/* A44: thousands of ones have a mean of one, whatever the type, in one part or in eight. */
static void a44_a_mean_of_ones_is_one(void **state) {
    struct attention_case c = attention_shape("A44", 1, 1, 4096, CLATTN_CAUSAL_NONE);
    (void)state;
    c.heads = 8; /* as in test_attention_decode.c */
    c.q = fill_zero, c.k = fill_u2, c.v = fill_one;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&c, all_dtypes[t]);
        size_t index = 0;
        for (const char *variant; (variant = next_decode(&data, &index));)
            for (int splits = 1; splits <= 8; splits += 7) {
                struct attention_result result = run(&data, variant, splits);
                for (int64_t i = 0; i < attention_o_count(&data); i++)
                    assert_true(result.o[i] == 1);
                for (int64_t i = 0; i < attention_row_count(&data); i++)
                    assert_true(fabs(result.lse[i] - 8.317766) < 1e-5);
                attention_result_free(&result);
            }
        attention_data_free(&data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a08_merging_empty_states),       cmocka_unit_test(a09_the_log_sum_exp_of_an_empty_row),
        cmocka_unit_test(a10_the_log_sum_exp_is_natural), cmocka_unit_test(a39_splits_agree),
        cmocka_unit_test(a44_a_mean_of_ones_is_one),
    };
    return support_main("published faults of split attention", tests, sizeof tests / sizeof tests[0]);
}
