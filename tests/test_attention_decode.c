/* Attention for few queries: every decode variant, keys split in any number of parts, against the oracle. Programs are
 * few: with and without splits, plain, of sequences, and with every modifier at once. */
#include "attention_harness.h"
#include "temporary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, MOST_VARIANTS = 32 };

/* Small blocks of keys, so that short sequences have several splits. */
static const char *blocks_of(const char *variant) {
    return strstr(variant, "fma") ? "fma_items=4,groups=4" : "score_tiles=1";
}

static struct attention_result run_with(struct attention_data *data, const char *variant, const char *parameters) {
    data->parameters = parameters;
    struct attention_result result = attention_run(data, variant);
    data->parameters = NULL;
    return result;
}

/* splits: 0 = the library's number with its own sizes. */
static struct attention_result run(struct attention_data *data, const char *variant, int splits) {
    char parameters[96];
    snprintf(parameters, sizeof parameters, "%s,splits=%d", blocks_of(variant), splits);
    return run_with(data, variant, splits > 0 ? parameters : NULL);
}

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

static void check_splits(struct attention_data *data, const int *splits, size_t count) {
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = next_decode(data, &index)); ran++)
        for (size_t i = 0; i < count; i++) {
            struct attention_result result = run(data, variant, splits[i]);
            attention_compare(data, &result, variant, 64);
            attention_result_free(&result);
        }
    if (ran == 0)
        fail_msg("%s: no decode variant accepts", data->name);
}

static const int few_splits[] = {1, 2, 7};
enum { FEW = sizeof few_splits / sizeof few_splits[0] };

/* A39. */
static void results_do_not_depend_on_the_number_of_splits(void **state) {
    const int splits[] = {1, 2, 3, 4, 5, 7, 8, 16, 32, 64};
    const int64_t lengths[] = {1, 3, 17, 100};
    (void)state;
    for (int n = 0; n < 4; n++) {
        struct attention_case c = attention_shape("A39", 1, 1, lengths[n], CLATTN_CAUSAL_NONE);
        c.q = fill_zero, c.k = fill_u2, c.v = fill_row;
        struct attention_data data = attention_data_of(&c, CLATTN_F32);
        size_t index = 0;
        for (const char *variant; (variant = next_decode(&data, &index));)
            for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
                struct attention_result result = run(&data, variant, splits[i]);
                for (int64_t j = 0; j < attention_o_count(&data); j++)
                    assert_true(fabs(result.o[j] - (double)(lengths[n] - 1) / 2) < 1e-5 * (double)lengths[n]);
                assert_true(fabs(result.lse[0] - log((double)lengths[n])) < 1e-5);
                attention_result_free(&result);
            }
        attention_data_free(&data);
    }
}

/* Every number of queries and heads a group of up to 16 rows or more, across the edges of blocks. */
static void heads_share_keys(void **state) {
    const int64_t queries[] = {1, 2, 5, 16};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t n = 0; n < 4; n++) {
            struct attention_case c = attention_shape("grouped heads", 2, queries[n], 150, CLATTN_CAUSAL_NONE);
            c.heads = 8;
            struct attention_data data = attention_data_random(&c, all_dtypes[t], n + 1);
            check_splits(&data, few_splits, t == 0 ? FEW : 2);
            attention_data_free(&data);
        }
}

/* Large scores stay exact through the second launch: what is kept of each split is no logarithm. */
static void large_scores_stay_exact(void **state) {
    (void)state;
    struct attention_case c = attention_shape("large scores", 1, 1, 150, CLATTN_CAUSAL_NONE);
    c.heads = 8;
    c.has_scale = true, c.scale = 30000;
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 9);
    check_splits(&data, few_splits, FEW);
    attention_data_free(&data);
}

/* A31, A34: lengths on the device; 0 and beyond the cache among them. */
static const double ragged_lengths[5] = {0, 1, 150, 64, 17};

static struct attention_data sequences_of(clattn_dtype dtype, const double *lengths) {
    struct attention_case c = attention_shape("A31 sequences", 5, 3, 150, CLATTN_CAUSAL_BOTTOM_RIGHT);
    c.heads = 6;
    c.with.k_lengths = lengths;
    c.with.sinks = (const double[]){0.5, -1, 2, 0.25, -3, 1};
    return attention_data_random(&c, dtype, 3);
}

static void lengths_are_the_devices(void **state) {
    const double wild[5] = {-1, 151, 2147483647, -2147483647, 150};
    (void)state;
    struct attention_data data = sequences_of(CLATTN_F32, ragged_lengths), hostile = sequences_of(CLATTN_F32, wild);
    check_splits(&data, few_splits, FEW);
    hostile.wild = true;
    size_t index = 0;
    for (const char *variant; (variant = next_decode(&hostile, &index));) {
        struct attention_result result = run(&hostile, variant, 7);
        attention_result_free(&result);
    }
    attention_data_free(&data);
    attention_data_free(&hostile);
}

/* A40. */
static void sequences_one_behind_the_other(void **state) {
    (void)state;
    struct attention_case c = attention_shape("A40", 4, 12, 300, CLATTN_CAUSAL_BOTTOM_RIGHT);
    c.heads = 6;
    c.with.q_offsets = (const double[]){0, 3, 3, 11, 12};
    c.with.k_offsets = (const double[]){0, 150, 170, 170, 290};
    c.with.sinks = (const double[]){0.5, -1, 2, 0.25, -3, 1};
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 4);
    check_splits(&data, few_splits, FEW);
    attention_data_free(&data);
}

/* A32, A33, with any size of a page, tokens or heads first. */
static void pages_of_any_size(void **state) {
    static const int64_t sizes[] = {1, 3, 16, 256};
    (void)state;
    for (size_t n = 0; n < 4; n++) {
        const int64_t size = sizes[n], entries = (150 + size - 1) / size, pool = 2 * entries + 1;
        double *table = test_array(2 * entries);
        for (int64_t i = 0; i < 2 * entries; i++)
            table[i] = (double)((i * 7 + 3) % pool);
        table[2 * entries - 1] = -1; /* beyond the second length where pages are small */
        struct attention_case c = attention_shape("A33 pages", 2, 2, size, CLATTN_CAUSAL_NONE);
        c.with =
            (struct case_modifiers){.page_table = table,
                                    .max_pages = entries,
                                    .pages = pool,
                                    .k_lengths = size <= 16 ? (const double[]){150, 33} : (const double[]){150, 0}};
        const struct test_layout tokens_first = {0, {size * 2 * D, D, 2 * D, 1}};
        struct attention_data data = attention_data_random(&c, CLATTN_F16, n + 1);
        if (n % 2 == 0)
            data.layout_k = data.layout_v = &tokens_first;
        check_splits(&data, few_splits, FEW);
        attention_data_free(&data);
        free(table);
    }
}

/* A34: pages that do not exist, and lengths that the table has no pages for. */
static void pages_out_of_range(void **state) {
    const double table[6] = {2, -1, 2147483647, 5, 0, 1}, lengths[2] = {48, 1000};
    (void)state;
    struct attention_case c = attention_shape("A34 pages", 2, 2, 16, CLATTN_CAUSAL_NONE);
    c.with = (struct case_modifiers){.page_table = table, .max_pages = 3, .pages = 5, .k_lengths = lengths};
    struct attention_data data = attention_data_random(&c, CLATTN_F16, 1);
    data.wild = true;
    size_t index = 0;
    for (const char *variant; (variant = next_decode(&data, &index));)
        for (int splits = 1; splits <= 2; splits++) {
            struct attention_result result = run(&data, variant, splits);
            attention_result_free(&result);
        }
    attention_data_free(&data);
}

/* Latent attention: values are the first columns of the keys, in their own memory. */
static void values_may_be_a_part_of_keys(void **state) {
    enum { KEYS = 70, HEADS = 16, K = 576, V = 512 };
    struct attention_case c = attention_shape("latent", 1, 1, KEYS, CLATTN_CAUSAL_NONE);
    (void)state;
    c.heads = HEADS, c.kv_heads = 1, c.head_dim = K, c.value_dim = V;
    struct attention_data data = attention_data_random(&c, CLATTN_F16, 8);
    for (int64_t i = 0; i < KEYS * V; i++)
        data.v[i] = data.k[i / V * K + i % V];
    size_t index = 0;
    const char *variant = next_decode(&data, &index);
    char parameters[96]; /* that fit with values apart, too */
    snprintf(parameters, sizeof parameters, "%s,splits=2",
             strstr(variant, "nvidia") ? "mma_rows=16,score_tiles=1" : blocks_of(variant));
    struct attention_result apart = run_with(&data, variant, parameters);
    attention_compare(&data, &apart, variant, HEADS);
    struct test_tensor q = test_input(CLATTN_F16, 4, data.settings.q.dims, data.q, NULL, (double)NAN);
    struct test_tensor k = test_input(CLATTN_F16, 4, data.settings.k.dims, data.k, NULL, (double)NAN);
    struct test_tensor o = test_output(CLATTN_F16, 4, (const int64_t[]){1, HEADS, 1, V}, NULL);
    double *got = test_array(HEADS * V);
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = q.view, op.k = op.v = k.view, op.o = o.view;
    op.v.dims[3] = V;
    test_run_with(&op.head, variant, parameters);
    test_read(&o, got);
    assert_memory_equal(got, apart.o, HEADS * V * sizeof *got);
    free(got);
    test_release(&q);
    test_release(&k);
    test_release(&o);
    attention_result_free(&apart);
    attention_data_free(&data);
}

/* Tile groups that hold a row together. */
static void check_shares(struct attention_data *data, const char *parameters) {
    data->parameters = parameters;
    struct attention_result result = attention_run(data, "decode_fma");
    attention_compare(data, &result, "decode_fma", 64);
    attention_result_free(&result);
    data->parameters = NULL;
}

static void tile_groups_may_share_rows(void **state) {
    (void)state;
    struct attention_case c = attention_shape("shared rows", 2, 3, 150, CLATTN_CAUSAL_NONE);
    c.heads = 8, c.value_dim = 80;
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 21), latent;
    check_shares(&data, "fma_items=4,groups=4,shares=2,splits=1");
    check_shares(&data, "fma_items=4,groups=4,shares=4,splits=2");
    attention_data_free(&data);
    c = attention_shape("shared rows, latent", 1, 1, 70, CLATTN_CAUSAL_NONE);
    c.heads = 16, c.kv_heads = 1, c.head_dim = 576, c.value_dim = 512;
    latent = attention_data_random(&c, CLATTN_F16, 22);
    check_shares(&latent, "fma_items=8,groups=8,shares=4,splits=1");
    attention_data_free(&latent);
}

static double tree(const int64_t at[4], int64_t flat) {
    (void)flat;
    return at[3] < 140 || (at[2] + at[3]) % 3 != 0;
}

/* A25 among them: all at once, with a tree over the last keys, in two calls because pages and offsets exclude each
 * other. */
static void every_modifier(void **state) {
    const double slopes[] = {0.25, 0.0625, 0.5, 0.125, 1, 0.03125}, sinks[] = {0.5, -1, 2, 0.25, -3, 1};
    struct attention_case c = attention_shape("every modifier", 2, 5, 16, CLATTN_CAUSAL_BOTTOM_RIGHT);
    (void)state;
    c.heads = 6;
    c.with = (struct case_modifiers){.has_window = true,
                                     .window_left = 100,
                                     .window_right = -1,
                                     .softcap = 3,
                                     .mask = {.dims = {1, 1, 5, 160}, .fill = tree},
                                     .bias = {.dims = {1, 6, 5, 160}, .fill = fill_u3},
                                     .alibi = slopes,
                                     .sinks = sinks,
                                     .page_table =
                                         (const double[]){3, 1, 4, 0, 5, 9, 2, 6, 8, 7, 0, 9, 1, 8, 2, 7, 3, 6, 4, -1},
                                     .max_pages = 10,
                                     .pages = 10,
                                     .q_lengths = (const double[]){5, 3},
                                     .k_lengths = (const double[]){155, 40}};
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 6);
    check_splits(&data, few_splits, FEW);
    check_shares(&data, "fma_items=4,groups=4,shares=2,splits=2");
    attention_data_free(&data);
}

/* ---- beside a tuning row ----------------------------------------------------------------------------------------- */

static clattn_context *context_with_row(const char *variant, const char *values) {
    char text[256], *folder = temporary_folder(), *path = temporary_path(folder, "tuning.json");
    clattn_context_options options;
    clattn_context *context = NULL;
    const int size =
        snprintf(text, sizeof text, "{\"rows\": [{\"op\": \"attention\", \"variant\": \"%s\", \"parameters\": {%s}}]}",
                 variant, values);
    temporary_write(folder, "tuning.json", text, (size_t)size);
    clattn_context_options_init(&options);
    options.tuning_db = path;
    options.cache_dir = "";
    CHECK(clattn_context_create(device.context, device.id, &options, &context));
    free(path);
    temporary_remove(folder);
    return context;
}

/* By the bytes of the partial results; 1 takes none. */
static int64_t splits_with(clattn_context *context, const struct attention_data *data, const char *variant,
                           const char *parameters) {
    struct attention_inputs inputs = attention_upload(data);
    struct test_tensor o = test_output(data->out_dtype, 4, data->settings.q.dims, NULL);
    clattn_launch launch;
    size_t bytes = 0;
    clattn_launch_init(&launch, device.queue);
    launch.variant = variant;
    launch.parameters = parameters;
    inputs.op.o = o.view;
    CHECK(clattn_workspace_size(context, &inputs.op.head, &launch, &bytes));
    attention_inputs_release(&inputs);
    test_release(&o);
    return bytes == 0 ? 1 : (int64_t)bytes / (attention_row_count(data) * (D + 2) * (int64_t)sizeof(float));
}

/* `chunk` and `splits` are two ways to say one thing: the caller's counts, whichever the row has. */
static void parameters_replace_a_row(void **state) {
    struct attention_case c = attention_shape("tuned", 1, 1, 1024, CLATTN_CAUSAL_NONE);
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 1);
    size_t index = 0;
    (void)state;
    const char *variant = next_decode(&data, &index);
    clattn_context *chunks = context_with_row(variant, "\"chunk\": 256"),
                   *splits = context_with_row(variant, "\"splits\": 4");
    assert_int_equal(splits_with(chunks, &data, variant, NULL), 4);
    assert_int_equal(splits_with(splits, &data, variant, NULL), 4);
    assert_int_equal(splits_with(chunks, &data, variant, "splits=2"), 2);
    assert_int_equal(splits_with(splits, &data, variant, "chunk=512"), 2);
    assert_int_equal(splits_with(chunks, &data, variant, "splits=1"), 1);
    clattn_context_release(&chunks);
    clattn_context_release(&splits);
    attention_data_free(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_replace_a_row),
        cmocka_unit_test(results_do_not_depend_on_the_number_of_splits),
        cmocka_unit_test(heads_share_keys),
        cmocka_unit_test(large_scores_stay_exact),
        cmocka_unit_test(lengths_are_the_devices),
        cmocka_unit_test(sequences_one_behind_the_other),
        cmocka_unit_test(pages_of_any_size),
        cmocka_unit_test(pages_out_of_range),
        cmocka_unit_test(values_may_be_a_part_of_keys),
        cmocka_unit_test(tile_groups_may_share_rows),
        cmocka_unit_test(every_modifier),
    };
    return support_main("attention decode", tests, sizeof tests / sizeof tests[0]);
}
