/* The causal edge: alignment, diagonals, rows that see nothing, and keys that must not influence a bit. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct attention_case shape_of(const char *name, int64_t nq, int64_t nk, clattn_causal causal) {
    return (struct attention_case){.name = name,
                                   .batch = 1,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .nq = nq,
                                   .nk = nk,
                                   .head_dim = 64,
                                   .value_dim = 64,
                                   .q = fill_u1,
                                   .k = fill_u2,
                                   .v = fill_u3,
                                   .causal = causal};
}

/* The products of unfused attention are programs of their own for each short Nk: fp32 takes all of them, the half types
 * those that are longer than a slice. */
static void check_data(const struct attention_data *data) {
    size_t index = 0;
    if (data->dtype == CLATTN_F32 || data->problem.nk >= 64) {
        attention_check(data);
        return;
    }
    for (const char *variant; (variant = attention_next_variant(data, &index));) {
        if (strcmp(variant, "unfused") == 0)
            continue;
        struct attention_result result = attention_run(data, variant);
        attention_compare(data, &result, variant, 64);
        attention_result_free(&result);
    }
}

static void check(const struct attention_case *shape) {
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(shape, all_dtypes[t]);
        check_data(&data);
        attention_data_free(&data);
    }
}

static void both_corners_at_many_lengths(void **state) {
    (void)state;
    const int64_t lengths[][2] = {{1, 1}, {1, 100}, {64, 64}, {65, 130}, {130, 65}, {200, 33}, {17, 190}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct attention_case shape =
            shape_of("bottom right", lengths[i][0], lengths[i][1], CLATTN_CAUSAL_BOTTOM_RIGHT);
        check(&shape);
        shape = shape_of("top left", lengths[i][0], lengths[i][1], CLATTN_CAUSAL_TOP_LEFT);
        check(&shape);
    }
}

/* A12: 257 queries, one key; only the last query sees it. */
static void a_key_that_one_row_sees(clattn_dtype dtype) {
    struct attention_case shape = shape_of("A12", 257, 1, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.v = fill_one;
    struct attention_data data = attention_data_of(&shape, dtype);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index));) {
        struct attention_result result = attention_run(&data, variant);
        for (int64_t row = 0; row < 2 * 257; row++) {
            const bool sees = row % 257 == 256;
            assert_true(sees ? isfinite(result.lse[row]) : result.lse[row] == -(double)INFINITY);
            for (int64_t c = 0; c < 64; c++)
                assert_true(result.o[row * 64 + c] == (sees ? 1 : 0));
        }
        attention_result_free(&result);
    }
    attention_data_free(&data);
}

static void only_the_last_row_sees_the_key(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        a_key_that_one_row_sees(all_dtypes[t]);
}

static void any_diagonal(void **state) {
    (void)state;
    const int64_t diagonals[] = {-1,
                                 0,
                                 1,
                                 10,
                                 -10,
                                 63,
                                 64,
                                 65,
                                 -64,
                                 29,
                                 99,
                                 100,
                                 -69,
                                 -70,
                                 -71,
                                 1000,
                                 -1000,
                                 INT64_MAX,
                                 INT64_MIN,
                                 INT64_C(1) << 31,
                                 -(INT64_C(1) << 31) - 5,
                                 INT64_C(1) << 32};
    struct attention_case shape = shape_of("diagonal", 70, 100, CLATTN_CAUSAL_TOP_LEFT);
    shape.has_diagonal = 1;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof diagonals / sizeof diagonals[0]; i += t ? 3 : 1) {
            shape.diagonal = diagonals[i];
            struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* A diagonal without causal means nothing. */
static void a_diagonal_needs_causal(void **state) {
    (void)state;
    struct attention_case shape = shape_of("diagonal, not causal", 5, 100, CLATTN_CAUSAL_NONE);
    shape.has_diagonal = 1;
    shape.diagonal = -3;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        attention_check(&data);
        attention_data_free(&data);
    }
}

/* A03: the first tiles leave the running maximum at -inf, here by scores that are -inf. */
static void the_maximum_stays_empty_for_tiles(void **state) {
    (void)state;
    const int64_t nk = 200;
    for (int t = 0; t < 3; t++)
        for (int64_t first = 64; first < nk; first += 63) {
            struct attention_case shape = shape_of("A03", 70, nk, CLATTN_CAUSAL_NONE);
            shape.q = fill_one;
            shape.k = fill_zero;
            shape.v = fill_row;
            struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
            for (int64_t j = 0; j < first; j++)
                data.k[j * 64] = -(double)INFINITY;
            attention_check(&data);
            attention_data_free(&data);
        }
}

static void set_row(double *values, int64_t row, int64_t columns, double value) {
    for (int64_t c = 0; c < columns; c++)
        values[row * columns + c] = value;
}

/* Keys past the diagonal's reach hold NaN or infinity: not a bit may change. */
static void unseen_keys_never_influence_a_bit(void **state) {
    (void)state;
    const double poisons[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    struct attention_case shape = shape_of("unseen keys", 40, 100, CLATTN_CAUSAL_TOP_LEFT);
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        size_t index = 0;
        for (const char *variant; (variant = attention_next_variant(&data, &index));) {
            struct attention_result clean = attention_run(&data, variant);
            for (size_t p = 0; p < 3; p++) {
                for (int64_t j = 40; j < 100; j++) {
                    set_row(data.k, j, 64, poisons[p]);
                    set_row(data.v, j, 64, poisons[p]);
                }
                struct attention_result poisoned = attention_run(&data, variant);
                attention_same_rows(&data, variant, &clean, &poisoned, 0, 80);
                attention_result_free(&poisoned);
            }
            attention_result_free(&clean);
            attention_data_free(&data);
            data = attention_data_of(&shape, all_dtypes[t]);
        }
        attention_data_free(&data);
    }
}

/* A key that only later rows see holds NaN: the earlier rows keep their bits, the later ones are NaN. */
static void a_later_key_spoils_later_rows_only(void **state) {
    (void)state;
    const int64_t key = 21;
    struct attention_case shape = shape_of("later key", 70, 70, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.heads = 1;
    for (int t = 0; t < 3; t++)
        for (int in_k = 0; in_k < 2; in_k++) {
            struct attention_data clean_data = attention_data_of(&shape, all_dtypes[t]);
            struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
            set_row(in_k ? data.k : data.v, key, 64, (double)NAN);
            size_t index = 0;
            for (const char *variant; (variant = attention_next_variant(&data, &index));) {
                struct attention_result clean = attention_run(&clean_data, variant);
                struct attention_result result = attention_run(&data, variant);
                attention_same_rows(&data, variant, &clean, &result, 0, key);
                for (int64_t i = key * 64; i < 70 * 64; i++)
                    if (!isnan(result.o[i]))
                        fail_msg("%s: o of row %lld is %g although it sees a NaN", variant, (long long)(i / 64),
                                 result.o[i]);
                for (int64_t row = key; row < 70; row++)
                    assert_true(!in_k == !isnan(result.lse[row]));
                attention_result_free(&clean);
                attention_result_free(&result);
            }
            attention_data_free(&clean_data);
            attention_data_free(&data);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_corners_at_many_lengths),
        cmocka_unit_test(only_the_last_row_sees_the_key),
        cmocka_unit_test(any_diagonal),
        cmocka_unit_test(a_diagonal_needs_causal),
        cmocka_unit_test(the_maximum_stays_empty_for_tiles),
        cmocka_unit_test(unseen_keys_never_influence_a_bit),
        cmocka_unit_test(a_later_key_spoils_later_rows_only),
    };
    return support_main("attention causal", tests, sizeof tests / sizeof tests[0]);
}
