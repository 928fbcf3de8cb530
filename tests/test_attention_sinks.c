/* Attention sinks: one more logit a head, counted once a row, and rows that see nothing else. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64 };

static const double logits[8] = {0.5, -2, 4, -(double)INFINITY, 1, 2, 3, 30};

static void every_variant_counts_the_sink_once(void **state) {
    const int64_t lengths[][2] = {{1, 500}, {70, 150}, {150, 40}, {5, 0}};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < 4; i++) {
            struct attention_case shape =
                attention_shape("A27 sinks", 2, lengths[i][0], lengths[i][1], (clattn_causal)(t == 0 ? i % 3 : 1));
            shape.with.sinks = logits;
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], i + 1);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* A26: heads 0..3 and 4..7 of 8 in calls of their own, each with its sinks. */
static void sinks_of_half_the_heads(clattn_dtype dtype) {
    enum { N = 9, HALF = 4 };
    struct attention_case shape = attention_shape("A26 sinks", 1, N, N, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.heads = shape.kv_heads = 2 * HALF;
    shape.with.sinks = logits;
    struct attention_data all = attention_data_random(&shape, dtype, 13);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&all, &index));) {
        struct attention_result whole = attention_run(&all, variant);
        attention_compare(&all, &whole, variant, 72);
        for (int64_t half = 0; half < 2; half++) {
            const int64_t first = half * HALF * N, bytes = HALF * N * D * (int64_t)sizeof(double);
            shape.heads = shape.kv_heads = HALF;
            shape.with.sinks = logits + half * HALF;
            struct attention_data part = attention_data_random(&shape, dtype, 13);
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

static void sinks_of_a_slice_of_heads(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        sinks_of_half_the_heads(all_dtypes[t]);
}

/* Past a length, by a mask and by the causal corner; the sink is all that is left, or nothing is. */
static void rows_without_keys_keep_their_sink(void **state) {
    const double q_lengths[2] = {20, 9}, k_lengths[2] = {5, 0};
    struct attention_case shape = attention_shape("sinks alone", 2, 30, 40, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.with = (struct case_modifiers){.sinks = logits, .q_lengths = q_lengths, .k_lengths = k_lengths};
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_random(&shape, all_dtypes[t], 5);
        attention_check(&data);
        attention_data_free(&data);
    }
}

/* Its own head's rows, and no others. */
static void a_sink_of_nan_is_seen(void **state) {
    const double spoilt[2] = {(double)NAN, 1};
    struct attention_case shape = attention_shape("a sink of NaN", 2, 20, 70, CLATTN_CAUSAL_NONE);
    shape.with.sinks = spoilt;
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_random(&shape, all_dtypes[t], 8);
        attention_check(&data);
        attention_data_free(&data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ATTENTION_TABLE_TESTS(sink_cases),           cmocka_unit_test(every_variant_counts_the_sink_once),
        cmocka_unit_test(sinks_of_a_slice_of_heads), cmocka_unit_test(rows_without_keys_keep_their_sink),
        cmocka_unit_test(a_sink_of_nan_is_seen),
    };
    return support_main("attention sinks", tests, sizeof tests / sizeof tests[0]);
}
