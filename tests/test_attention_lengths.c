/* Sequences of different lengths: by lengths, by offsets, by both; rows and keys that belong to none. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, SEQUENCES = 6 };

/* Around tile edges, empty ones among them. */
static const double q_parts[SEQUENCES] = {9, 0, 65, 1, 40, 17}, k_parts[SEQUENCES] = {12, 5, 0, 130, 64, 33};

/* offsets [SEQUENCES + 1] of parts that start at `start` and leave room for a multiple of `step` each; their end. */
static int64_t lay_end_to_end(const double *parts, double start, int64_t step, double *offsets) {
    offsets[0] = start;
    for (int b = 0; b < SEQUENCES; b++)
        offsets[b + 1] = offsets[b] + ceil(parts[b] / (double)step) * (double)step;
    return (int64_t)offsets[SEQUENCES];
}

/* With and without a limit are two programs: fp32 takes both. */
static clattn_causal causal_of(int dtype, int number) {
    return (clattn_causal)(dtype == 0 ? number % 3 : 1 + number % 2);
}

static void every_variant_takes_lengths(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int which = 1; which < 4; which++) {
            struct attention_case shape = attention_shape("lengths", SEQUENCES, 70, 140, causal_of(t, which));
            shape.with.q_lengths = which & 1 ? q_parts : NULL;
            shape.with.k_lengths = which & 2 ? k_parts : NULL;
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], 4);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* With and without rows in front of the first sequence and behind the last, which stay as they were. */
static void every_variant_takes_offsets(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int which = 1; which < 8; which++) {
            double q_offsets[SEQUENCES + 1], k_offsets[SEQUENCES + 1];
            struct attention_case shape = attention_shape("A40 offsets", SEQUENCES, 70, 140, causal_of(t, which));
            const int around = which & 4 ? 3 : 0;
            if (which % 4 == 0)
                continue;
            if (which & 1) {
                shape.nq = lay_end_to_end(q_parts, around, 1, q_offsets) + around;
                shape.with.q_offsets = q_offsets;
            }
            if (which & 2) {
                shape.nk = lay_end_to_end(k_parts, around, 1, k_offsets) + around;
                shape.with.k_offsets = k_offsets;
            }
            shape.with.max_q = which & 4 ? 65 : 0;
            shape.with.max_k = which & 4 ? 140 : 0;
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], 5);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* A40: lengths 9, 7, 8, 12, 8, 12, each padded to a multiple of 4 with NaN, against each sequence alone. */
static void padded_sequences_are_as_each_alone(void **state) {
    const double parts[SEQUENCES] = {9, 7, 8, 12, 8, 12};
    double offsets[SEQUENCES + 1];
    struct attention_case shape = attention_shape("A40 padded", SEQUENCES, 0, 0, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.nq = shape.nk = lay_end_to_end(parts, 0, 4, offsets);
    shape.heads = shape.kv_heads = 1;
    shape.with =
        (struct case_modifiers){.q_offsets = offsets, .k_offsets = offsets, .q_lengths = parts, .k_lengths = parts};
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data together = attention_data_random(&shape, all_dtypes[t], 6);
        size_t index = 0;
        for (const char *variant; (variant = attention_next_variant(&together, &index));) {
            struct attention_result whole = attention_run(&together, variant);
            attention_compare(&together, &whole, variant, 128);
            for (int b = 0; b < SEQUENCES; b++) {
                const int64_t n = (int64_t)parts[b], first = (int64_t)offsets[b];
                struct attention_case part = attention_shape("A40 alone", 1, n, n, CLATTN_CAUSAL_BOTTOM_RIGHT);
                part.heads = part.kv_heads = 1;
                struct attention_data alone = attention_data_random(&part, all_dtypes[t], 6);
                memcpy(alone.q, together.q + first * D, (size_t)(n * D) * sizeof(double));
                memcpy(alone.k, together.k + first * D, (size_t)(n * D) * sizeof(double));
                memcpy(alone.v, together.v + first * D, (size_t)(n * D) * sizeof(double));
                const struct attention_result slice = {.o = whole.o + first * D, .lse = whole.lse + first};
                attention_compare(&alone, &slice, variant, n);
                attention_data_free(&alone);
            }
            attention_result_free(&whole);
        }
        attention_data_free(&together);
    }
}

/* A41: offsets of no sequence at all. Not a row is written. */
static void offsets_of_nothing(clattn_dtype dtype) {
    const double none[1] = {0};
    struct attention_case shape = attention_shape("A41 no sequences", 0, 5, 7, CLATTN_CAUSAL_NONE);
    shape.with.q_offsets = shape.with.k_offsets = none;
    struct attention_data data = attention_data_random(&shape, dtype, 4);
    attention_check(&data);
    attention_data_free(&data);
}

static void no_sequences(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        offsets_of_nothing(all_dtypes[t]);
}

/* A04: the key past the length has score 0, those before it one far below any number that stands for "hidden". */
static void a_hidden_key_above_all_scores(void **state) {
    const double one[1] = {1};
    struct attention_case shape = attention_shape("A04 past the length", 1, 2, 2, CLATTN_CAUSAL_TOP_LEFT);
    shape.heads = shape.kv_heads = 1;
    shape.has_scale = 1, shape.scale = 1;
    shape.q = shape.k = fill_zero, shape.v = fill_row_from_1;
    shape.with.k_lengths = one;
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        size_t index = 0;
        data.q[0] = -16384, data.k[0] = 1;
        for (const char *variant; (variant = attention_next_variant(&data, &index));) {
            struct attention_result result = attention_run(&data, variant);
            for (int c = 0; c < 2 * D; c++)
                assert_true(result.o[c] == 1);
            assert_true(result.lse[0] == -16384 && result.lse[1] == 0);
            attention_result_free(&result);
        }
        attention_data_free(&data);
    }
}

/* Sequences are cut at max_q and max_k; rows from there on are empty. */
static void sequences_are_cut_at_the_longest(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int number = 0; number < (t ? 2 : 3); number++) {
            struct attention_case shape = attention_shape("cut", 2, 50, 90, causal_of(t, number));
            shape.with.max_q = 33;
            shape.with.max_k = 70;
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], 7);
            attention_check(&data);
            attention_data_free(&data);
        }
}

/* A34: what the device finds out of range must not lead out of the tensors. The rows are unspecified. */
static void values_out_of_range(clattn_dtype dtype) {
    const double lengths[][2] = {{-1, 71}, {INT32_MIN, INT32_MAX}, {141, -70}};
    const double offsets[][3] = {{-5, 20, 30}, {0, 71, 140}, {30, 20, 10}, {INT32_MIN, INT32_MAX, 5}, {100, 200, 300}};
    for (size_t i = 0; i < 3; i++) {
        struct attention_case shape = attention_shape("A34 lengths", 2, 70, 140, CLATTN_CAUSAL_BOTTOM_RIGHT);
        shape.with.q_lengths = shape.with.k_lengths = lengths[i];
        struct attention_data data = attention_data_random(&shape, dtype, 8);
        attention_survive(&data);
        attention_data_free(&data);
    }
    for (size_t i = 0; i < 5; i++)
        for (int which = 1; which < 4; which++) {
            struct attention_case shape = attention_shape("A34 offsets", 2, 70, 70, CLATTN_CAUSAL_BOTTOM_RIGHT);
            shape.with.q_offsets = which & 1 ? offsets[i] : NULL;
            shape.with.k_offsets = which & 2 ? offsets[(i + (size_t)which) % 5] : NULL;
            struct attention_data data = attention_data_random(&shape, dtype, 8);
            attention_survive(&data);
            attention_data_free(&data);
        }
}

static void values_out_of_range_do_no_harm(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        values_out_of_range(all_dtypes[t]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ATTENTION_TABLE_TESTS(length_cases),
        cmocka_unit_test(every_variant_takes_lengths),
        cmocka_unit_test(every_variant_takes_offsets),
        cmocka_unit_test(padded_sequences_are_as_each_alone),
        cmocka_unit_test(no_sequences),
        cmocka_unit_test(a_hidden_key_above_all_scores),
        cmocka_unit_test(sequences_are_cut_at_the_longest),
        cmocka_unit_test(values_out_of_range_do_no_harm),
    };
    return support_main("attention lengths", tests, sizeof tests / sizeof tests[0]);
}
