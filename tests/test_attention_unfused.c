/* Attention in three steps on the devices found: the ways in which heads become products, values that must not reach
 * rows which do not see them, and the workspace. */
#include "attention_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unfused[] = "unfused";

static struct attention_case shape(int64_t batch, int64_t heads, int64_t kv_heads, int64_t nq, int64_t nk,
                                   clattn_causal causal) {
    return (struct attention_case){.name = "unfused",
                                   .batch = batch,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .nq = nq,
                                   .nk = nk,
                                   .head_dim = 24,
                                   .value_dim = 40,
                                   .causal = causal};
}

static void check(const struct attention_data *data) {
    struct attention_result result = attention_run(data, unfused);
    attention_compare(data, &result, unfused, 1 << 20);
    attention_result_free(&result);
}

/* One product, one for several batches with shared keys, and one a batch. */
static void heads_become_products(void **state) {
    static const int64_t heads[][3] = {{2, 3, 3}, {2, 4, 1}, {2, 6, 2}, {1, 6, 2}};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
            for (int causal = 0; causal < 2; causal++) {
                const struct attention_case c =
                    shape(heads[i][0], heads[i][1], heads[i][2], 29, 37, (clattn_causal)causal);
                struct attention_data data = attention_data_random(&c, all_dtypes[t], 5);
                check(&data);
                attention_data_free(&data);
            }
}

static void results_in_single_precision(void **state) {
    (void)state;
    const struct attention_case c = shape(1, 2, 2, 29, 37, CLATTN_CAUSAL_BOTTOM_RIGHT);
    for (int t = 1; t < 3; t++) {
        struct attention_data data = attention_data_random(&c, all_dtypes[t], 6);
        data.out_dtype = CLATTN_F32;
        check(&data);
        attention_data_free(&data);
    }
}

/* Heads between the rows of one another, as projections leave them. */
static void heads_within_rows(void **state) {
    const struct test_layout q = {.offset = 3, .strides = {29 * 6 * 24 + 5, 24, 6 * 24, 1}};
    const struct test_layout k = {.offset = 1, .strides = {37 * 2 * 24, 24, 2 * 24, 1}};
    const struct test_layout v = {.strides = {37 * 2 * 43, 43, 2 * 43, 1}};
    const struct test_layout o = {.offset = 7, .strides = {29 * 6 * 40, 40, 6 * 40, 1}};
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        const struct attention_case c = shape(2, 6, 2, 29, 37, (clattn_causal)causal);
        struct attention_data data = attention_data_random(&c, CLATTN_F32, 7);
        data.layout_q = &q, data.layout_k = &k, data.layout_v = &v, data.layout_o = &o;
        check(&data);
        attention_data_free(&data);
    }
}

/* Rows before the key keep their bits; rows that see it take over what it holds. */
static void special_values_stay_where_they_are_seen(void **state) {
    enum { N = 33, DIM = 40, KEY = 20 };
    static const double specials[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    const struct attention_case c = shape(2, 4, 2, N, N, CLATTN_CAUSAL_BOTTOM_RIGHT);
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_random(&c, all_dtypes[t], 8);
        struct attention_result clean = attention_run(&data, unfused);
        for (size_t s = 0; s < sizeof specials / sizeof specials[0]; s++) {
            for (int64_t head = 0; head < 4; head++)
                for (int64_t col = 0; col < DIM; col += 2)
                    data.v[(head * N + KEY) * DIM + col] = specials[s];
            struct attention_result result = attention_run(&data, unfused);
            attention_same_rows(&data, unfused, &clean, &result, 0, KEY);
            attention_compare(&data, &result, unfused, 1 << 20);
            attention_result_free(&result);
        }
        attention_result_free(&clean);
        attention_data_free(&data);
    }
}

/* More queries than keys: the first rows see nothing. */
static void rows_without_keys(void **state) {
    (void)state;
    const struct attention_case c = shape(1, 2, 1, 37, 9, CLATTN_CAUSAL_BOTTOM_RIGHT);
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_random(&c, all_dtypes[t], 9);
        check(&data);
        attention_data_free(&data);
    }
}

static double one_in_five_hidden(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (at[1] + 3 * at[2] + at[3]) % 5 != 0;
}

static double some_far_below(const int64_t at[4], int64_t flat) {
    return (at[2] + at[3]) % 7 == 3 ? -(double)INFINITY : 2 * reference_u((uint32_t)flat, 5);
}

static struct attention_case everything(clattn_causal causal) {
    static const double slopes[] = {0.5, 0.25, 0.125, 0.0625}, sinks[] = {0.5, -1, -(double)INFINITY, 2};
    struct attention_case c = shape(3, 4, 2, 29, 37, causal);
    c.with = (struct case_modifiers){.has_window = true,
                                     .window_left = 11,
                                     .window_right = 6,
                                     .softcap = 3,
                                     .mask = {.dims = {1, 4, 29, 37}, .fill = one_in_five_hidden},
                                     .bias = {.dims = {3, 1, 29, 37}, .fill = some_far_below},
                                     .alibi = slopes,
                                     .sinks = sinks};
    return c;
}

/* All modifiers at once, with lengths, with offsets and in pages. In the first, values that are seen hold infinity. */
static void every_modifier_at_once_with_lengths(void **state) {
    enum { NK = 37, DIM = 40, KEY = 20 };
    static const double queries[] = {29, 0, 17}, keys[] = {37, 12, 25};
    struct attention_case c = everything(CLATTN_CAUSAL_BOTTOM_RIGHT);
    c.with.q_lengths = queries, c.with.k_lengths = keys;
    (void)state;
    struct attention_data data = attention_data_random(&c, CLATTN_F32, 12);
    check(&data);
    for (int64_t col = 0; col < DIM; col += 3)
        data.v[KEY * DIM + col] = (double)INFINITY;
    check(&data);
    attention_data_free(&data);
}

static void every_modifier_at_once_with_offsets(void **state) {
    static const double queries[] = {1, 30, 30, 47}, keys[] = {2, 20, 57, 60};
    struct attention_case c = everything(CLATTN_CAUSAL_TOP_LEFT);
    c.with.q_offsets = queries, c.with.k_offsets = keys;
    c.nq = 48, c.nk = 64;
    c.with.max_q = 29, c.with.max_k = 37;
    (void)state;
    struct attention_data data = attention_data_random(&c, CLATTN_F16, 13);
    data.out_dtype = CLATTN_F32;
    check(&data);
    attention_data_free(&data);
}

static void every_modifier_at_once_in_pages(void **state) {
    static const double table[] = {5, 1, 0, 2, 3, 4, -1, 2147483647, 4, 5, 6, 99}, keys[] = {37, 20, 29};
    struct attention_case c = everything(CLATTN_CAUSAL_NONE);
    c.with.page_table = table, c.with.max_pages = 4, c.with.pages = 7, c.with.k_lengths = keys;
    c.nk = 10, c.with.max_k = 37;
    c.has_diagonal = 1, c.diagonal = 5;
    (void)state;
    struct attention_data data = attention_data_random(&c, CLATTN_BF16, 14);
    check(&data);
    attention_data_free(&data);
}

static size_t workspace_of(const struct attention_case *c, clattn_dtype dtype) {
    struct attention_data data = attention_data_random(c, dtype, 1);
    clattn_attention_op op = data.settings;
    struct test_tensor q = test_input(dtype, 4, op.q.dims, data.q, NULL, 0);
    struct test_tensor k = test_input(dtype, 4, op.k.dims, data.k, NULL, 0);
    struct test_tensor v = test_input(dtype, 4, op.v.dims, data.v, NULL, 0);
    struct test_tensor o = test_output(dtype, 4, (const int64_t[]){c->batch, c->heads, c->nq, c->value_dim}, NULL);
    clattn_launch launch;
    size_t bytes = 0;
    op.q = q.view, op.k = k.view, op.v = v.view, op.o = o.view;
    clattn_launch_init(&launch, device.queue);
    launch.variant = unfused;
    CHECK(clattn_workspace_size(device.clattn, &op.head, &launch, &bytes));
    test_release(&q), test_release(&k), test_release(&v), test_release(&o);
    attention_data_free(&data);
    return bytes;
}

/* Scores alone; probabilities beside them where these are narrower; values where keys are hidden. Rows of 40 scores. */
static void only_what_is_needed_is_copied(void **state) {
    enum { SCORES = 2 * 4 * 32 * 40, VALUES = 2 * 2 * 40 * 40, FLAG = 256 };
    struct attention_case c = shape(2, 4, 2, 32, 40, CLATTN_CAUSAL_NONE);
    (void)state;
    assert_int_equal(workspace_of(&c, CLATTN_F32), SCORES * 4);
    assert_int_equal(workspace_of(&c, CLATTN_F16), SCORES * (4 + 2));
    c.causal = CLATTN_CAUSAL_TOP_LEFT;
    assert_int_equal(workspace_of(&c, CLATTN_F32), SCORES * 4 + VALUES * 4 + FLAG);
}

/* 64-bit sizes, and a sentence where no buffer is large enough. Inputs are broadcast: only their dims are large. */
static void workspace_of_long_sequences(void **state) {
    enum { HEADS = 4, N = 65536 };
    const size_t scores = (size_t)HEADS * N * N * 4;
    const int64_t dims[] = {1, HEADS, N, 64};
    cl_ulong most = 0;
    size_t bytes = 0;
    (void)state;
    clattn_attention_op op;
    clattn_attention_init(&op);
    struct test_tensor one = test_output(CLATTN_F32, 4, (const int64_t[]){1, 1, N, 64}, NULL);
    struct test_tensor all = test_output(CLATTN_F32, 4, dims, NULL);
    op.q = op.k = op.v = one.view;
    op.q.dims[1] = op.k.dims[1] = op.v.dims[1] = HEADS;
    op.q.strides[1] = op.k.strides[1] = op.v.strides[1] = 0;
    op.o = all.view;
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    launch.variant = unfused;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    const clattn_status status = clattn_workspace_size(device.clattn, &op.head, &launch, &bytes);
    if (scores <= most) {
        support_expect(status, CLATTN_SUCCESS, "clattn_workspace_size");
        assert_true(bytes >= scores);
    } else {
        support_expect(status, CLATTN_UNSUPPORTED, "clattn_workspace_size");
        assert_non_null(strstr(clattn_last_error(), "score matrix"));
        support_expect(clattn_attention(device.clattn, &op, &launch), CLATTN_UNSUPPORTED, "clattn_attention");
    }
    test_untouched(&all, "o");
    test_release(&one);
    test_release(&all);
}

/* The result does not depend on what the workspace held, nor on where in a buffer it begins. */
static void workspace_with_an_offset(void **state) {
    enum { OFFSET = 512 };
    const int64_t dims[] = {1, 2, 21, 40};
    cl_int code = CL_SUCCESS;
    (void)state;
    double *values = test_array(2 * 21 * 40), *first = test_array(2 * 21 * 40), *second = test_array(2 * 21 * 40);
    for (int64_t i = 0; i < 2 * 21 * 40; i++)
        values[i] = reference_round(CLATTN_F16, reference_normal((uint64_t)i, 4));
    struct test_tensor x = test_input(CLATTN_F16, 4, dims, values, NULL, (double)NAN);
    struct test_tensor o = test_output(CLATTN_F16, 4, dims, NULL);
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = op.k = op.v = x.view;
    op.o = o.view;
    op.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    test_run(&op.head, unfused);
    test_read(&o, first);
    test_reset(&o);
    struct test_call call;
    test_call_begin(&call, &op.head, unfused);
    cl_mem larger = clCreateBuffer(device.context, CL_MEM_READ_WRITE, call.launch.workspace.size + OFFSET, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    call.launch.workspace.buffer = larger;
    call.launch.workspace.offset = OFFSET;
    CHECK(clattn_attention(device.clattn, &op, &call.launch));
    test_call_end(&call);
    test_read(&o, second);
    assert_memory_equal(first, second, 2 * 21 * 40 * sizeof *first);
    test_call_begin(&call, &op.head, unfused);
    call.launch.workspace.size -= 1;
    support_expect(clattn_attention(device.clattn, &op, &call.launch), CLATTN_WORKSPACE_TOO_SMALL, "a byte too few");
    test_call_end(&call);
    clReleaseMemObject(larger);
    free(values);
    free(first);
    free(second);
    test_release(&x);
    test_release(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_become_products),
        cmocka_unit_test(results_in_single_precision),
        cmocka_unit_test(heads_within_rows),
        cmocka_unit_test(special_values_stay_where_they_are_seen),
        cmocka_unit_test(rows_without_keys),
        cmocka_unit_test(every_modifier_at_once_with_lengths),
        cmocka_unit_test(every_modifier_at_once_with_offsets),
        cmocka_unit_test(every_modifier_at_once_in_pages),
        cmocka_unit_test(only_what_is_needed_is_copied),
        cmocka_unit_test(workspace_of_long_sequences),
        cmocka_unit_test(workspace_with_an_offset),
    };
    return support_main("unfused attention", tests, sizeof tests / sizeof tests[0]);
}
