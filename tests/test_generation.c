/* Generation token by token, as a runtime does it: pages from the pool, rotate and append, attention over the cache, in
 * 2,000 steps of two sequences, of which the second forks off the first on the way. Every 100th step is held against
 * the prefill of all tokens so far and against the oracle. */
#include "reference.h"
#include "support.h"

#include "../src/half.h"

#include <clattn/kv_cache.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 2000,
    CHECKED = 100, /* steps from one check to the next */
    LAST = 20,     /* rows that are looked at there */
    FORK = 530,
    BATCH = 2,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 32,
    WINDOW = 150,
    PAGE = 16,
    MOST_PAGES = (STEPS + PAGE - 1) / PAGE,
    PAGES = 2 * MOST_PAGES,
    ROW = KV_HEADS * PAGE * DIM, /* elements of a page */
    RESULT = HEADS * LAST * DIM
};

/* ---- what there is ----------------------------------------------------------------------------------------------- */

struct generation {
    bool quantized;
    clattn_page_pool *pool;
    int32_t sequences[BATCH];
    struct test_tensor q, k, v;                    /* all tokens to come */
    struct test_tensor q_now, o;                   /* the token's turned queries; results of all tokens */
    struct test_tensor table, before, after;       /* lengths before and after the append */
    cl_mem k_cache, v_cache, k_scales, v_scales;   /* in pages */
    struct test_tensor q_all, k_all, v_all, o_all; /* the prefill */
};

static cl_mem buffer_of(size_t bytes) {
    cl_int code = CL_SUCCESS;
    const cl_uchar ones = 0xff;
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    CHECK_CL(clEnqueueFillBuffer(device.queue, buffer, &ones, 1, 0, bytes, 0, NULL, NULL));
    return buffer;
}

/* Tokens [BATCH, heads, STEPS, DIM]; the second sequence has those of the first until it forks. */
static struct test_tensor tokens_of(int64_t heads, uint64_t seed) {
    const int64_t dims[] = {BATCH, heads, STEPS, DIM}, sequence = heads * STEPS * DIM;
    double *values = test_array(BATCH * sequence);
    for (int64_t i = 0; i < BATCH * sequence; i++) {
        const bool shared = i >= sequence && i / DIM % STEPS < FORK;
        values[i] = reference_round(CLATTN_F32, reference_normal((uint64_t)(shared ? i - sequence : i), seed));
    }
    struct test_tensor tensor = test_input(CLATTN_F32, 4, dims, values, NULL, (double)NAN);
    free(values);
    return tensor;
}

static struct test_tensor ints_of(int rank, int64_t first, int64_t second) {
    const int64_t dims[] = {first, second};
    double *zeros = test_array(first * (rank > 1 ? second : 1));
    struct test_tensor tensor = test_input(CLATTN_I32, rank, dims, zeros, NULL, 1e9);
    free(zeros);
    return tensor;
}

static void begin(struct generation *g, bool quantized) {
    const int64_t all[] = {BATCH, HEADS, STEPS, DIM}, now[] = {BATCH, HEADS, 1, DIM},
                  kv[] = {BATCH, KV_HEADS, STEPS, DIM};
    const size_t element = quantized ? 1 : sizeof(float);
    memset(g, 0, sizeof *g);
    g->quantized = quantized;
    CHECK(clattn_page_pool_create(PAGES, PAGE, MOST_PAGES, &g->pool));
    CHECK(clattn_page_pool_add(g->pool, &g->sequences[0]));
    g->sequences[1] = -1;
    g->q = tokens_of(HEADS, 1), g->k = tokens_of(KV_HEADS, 2), g->v = tokens_of(KV_HEADS, 3);
    g->q_now = test_output(CLATTN_F32, 4, now, NULL);
    g->o = test_output(CLATTN_F32, 4, all, NULL);
    g->table = ints_of(2, BATCH, MOST_PAGES), g->before = ints_of(1, BATCH, 0), g->after = ints_of(1, BATCH, 0);
    g->k_cache = buffer_of(PAGES * ROW * element), g->v_cache = buffer_of(PAGES * ROW * element);
    g->k_scales = buffer_of(PAGES * ROW / DIM * sizeof(cl_half)),
    g->v_scales = buffer_of(PAGES * ROW / DIM * sizeof(cl_half));
    g->q_all = test_output(CLATTN_F32, 4, all, NULL), g->o_all = test_output(CLATTN_F32, 4, all, NULL);
    g->k_all = test_output(CLATTN_F32, 4, kv, NULL), g->v_all = test_output(CLATTN_F32, 4, kv, NULL);
}

static void end(struct generation *g) {
    struct test_tensor *const tensors[] = {&g->q,      &g->k,     &g->v,     &g->q_now, &g->o,     &g->table,
                                           &g->before, &g->after, &g->q_all, &g->k_all, &g->v_all, &g->o_all};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        test_release(tensors[i]);
    clReleaseMemObject(g->k_cache);
    clReleaseMemObject(g->v_cache);
    clReleaseMemObject(g->k_scales);
    clReleaseMemObject(g->v_scales);
    clattn_page_pool_release(&g->pool);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Rows first .. first + rows - 1 of a tensor of tokens. */
static clattn_tensor rows_of(const struct test_tensor *tensor, int64_t first, int64_t rows) {
    clattn_tensor view = tensor->view;
    view.dims[2] = rows;
    view.offset += first * view.strides[2];
    return view;
}

static clattn_tensor pages_of(const struct generation *g, cl_mem buffer) {
    const int64_t dims[] = {PAGES, KV_HEADS, PAGE, DIM};
    return clattn_tensor_dense(buffer, g->quantized ? CLATTN_I8 : CLATTN_F32, 4, dims);
}

static clattn_quantization quantization_of(const struct generation *g, cl_mem scales) {
    const int64_t dims[] = {PAGES, KV_HEADS, PAGE, 1};
    clattn_quantization quantization = {.block = 0};
    if (!g->quantized)
        return quantization;
    quantization.block = 32;
    quantization.scales = clattn_tensor_dense(scales, CLATTN_F16, 4, dims);
    return quantization;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Enqueues without waiting; one workspace for all calls, which the queue keeps in order. */
static void call(const clattn_op *op, cl_mem workspace, size_t workspace_bytes) {
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    launch.workspace.buffer = workspace;
    launch.workspace.size = workspace_bytes;
    CHECK(test_dispatch(device.clattn, op, &launch));
}

static void upload(struct generation *g, const clattn_tensor *table, const clattn_tensor *lengths) {
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    CHECK(clattn_page_pool_upload(device.clattn, g->pool, BATCH, g->sequences, table, lengths, &launch));
}

static void copy_page(cl_mem buffer, clattn_page_copy copy, size_t bytes) {
    CHECK_CL(clEnqueueCopyBuffer(device.queue, buffer, buffer, (size_t)copy.from * bytes, (size_t)copy.to * bytes,
                                 bytes, 0, NULL, NULL));
}

static int copies;

static void make_room(struct generation *g, int32_t sequence) {
    const size_t element = g->quantized ? 1 : sizeof(float);
    clattn_page_copy copy;
    CHECK(clattn_page_pool_append(g->pool, sequence, 1, &copy));
    if (copy.from < 0)
        return;
    copies++;
    copy_page(g->k_cache, copy, ROW * element);
    copy_page(g->v_cache, copy, ROW * element);
    copy_page(g->k_scales, copy, ROW / DIM * sizeof(cl_half));
    copy_page(g->v_scales, copy, ROW / DIM * sizeof(cl_half));
}

static clattn_rope_append_op append_of(const struct generation *g, int64_t step) {
    clattn_rope_append_op op;
    clattn_rope_append_init(&op);
    op.q = rows_of(&g->q, step, 1);
    op.k = rows_of(&g->k, step, 1);
    op.v = rows_of(&g->v, step, 1);
    op.q_out = g->q_now.view;
    op.k_cache = pages_of(g, g->k_cache);
    op.v_cache = pages_of(g, g->v_cache);
    op.k_quantization = quantization_of(g, g->k_scales);
    op.v_quantization = quantization_of(g, g->v_scales);
    op.page_table = g->table.view;
    op.k_lengths = g->before.view;
    return op;
}

static clattn_attention_op attention_of(const struct generation *g, int64_t step) {
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = g->q_now.view;
    op.k = pages_of(g, g->k_cache);
    op.v = pages_of(g, g->v_cache);
    op.k_quantization = quantization_of(g, g->k_scales);
    op.v_quantization = quantization_of(g, g->v_scales);
    op.o = rows_of(&g->o, step, 1);
    op.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    op.window_left = WINDOW;
    op.page_table = g->table.view;
    op.k_lengths = g->after.view;
    return op;
}

static size_t workspace_of(const clattn_op *op) {
    size_t bytes = 0;
    CHECK(clattn_workspace_size(device.clattn, op, NULL, &bytes));
    return bytes;
}

/* The table is written where it changes. Lengths before the append are those after the last one, where there was one
 * for the same sequences. */
static void take_step(struct generation *g, int64_t step, cl_mem workspace, size_t workspace_bytes) {
    const struct test_tensor last = g->after;
    if (step == FORK)
        CHECK(clattn_page_pool_fork(g->pool, g->sequences[0], &g->sequences[1]));
    g->after = g->before;
    g->before = last;
    if (step == 0 || step == FORK)
        upload(g, NULL, &g->before.view);
    for (int b = 0; b < BATCH; b++)
        if (g->sequences[b] >= 0)
            make_room(g, g->sequences[b]);
    upload(g, step % PAGE == 0 || step == FORK ? &g->table.view : NULL, &g->after.view);
    const clattn_rope_append_op append = append_of(g, step);
    const clattn_attention_op attention = attention_of(g, step);
    call(&append.head, NULL, 0);
    call(&attention.head, workspace, workspace_bytes);
}

/* ---- the same at once -------------------------------------------------------------------------------------------- */

static void prefill(struct generation *g, int64_t tokens) {
    clattn_rope_append_op append;
    clattn_attention_op attention;
    clattn_rope_append_init(&append);
    append.q = rows_of(&g->q, 0, tokens);
    append.k = rows_of(&g->k, 0, tokens);
    append.v = rows_of(&g->v, 0, tokens);
    append.q_out = rows_of(&g->q_all, 0, tokens);
    append.k_cache = g->k_all.view;
    append.v_cache = g->v_all.view;
    test_run(&append.head, NULL);
    clattn_attention_init(&attention);
    attention.q = append.q_out;
    attention.k = rows_of(&g->k_all, 0, tokens);
    attention.v = rows_of(&g->v_all, 0, tokens);
    attention.o = rows_of(&g->o_all, 0, tokens);
    attention.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    attention.window_left = WINDOW;
    test_run(&attention.head, NULL);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void download(cl_mem buffer, void *to, size_t bytes) {
    CHECK_CL(clEnqueueReadBuffer(device.queue, buffer, CL_TRUE, 0, bytes, to, 0, NULL, NULL));
}

/* Rows of a sequence out of its pages: [KV_HEADS, tokens, DIM], as the reader of codes gets them. */
static void gather(const struct generation *g, cl_mem cache, cl_mem scale_buffer, int32_t sequence, int64_t tokens,
                   double *rows) {
    static float values[PAGES * ROW];
    static int8_t codes[PAGES * ROW];
    static uint16_t scales[PAGES * ROW / DIM];
    int32_t table[MOST_PAGES];
    CHECK(clattn_page_pool_table(g->pool, sequence, table));
    if (g->quantized) {
        download(cache, codes, sizeof codes);
        download(scale_buffer, scales, sizeof scales);
    } else {
        download(cache, values, sizeof values);
    }
    for (int64_t head = 0; head < KV_HEADS; head++)
        for (int64_t j = 0; j < tokens; j++)
            for (int64_t i = 0; i < DIM; i++) {
                const int64_t row = (table[j / PAGE] * KV_HEADS + head) * PAGE + j % PAGE;
                rows[(head * tokens + j) * DIM + i] =
                    g->quantized ? reference_dequantize(CLATTN_I8, codes[row * DIM + i], half_to_double(scales[row]), 0,
                                                        CLATTN_F32)
                                 : (double)values[row * DIM + i];
            }
}

static int64_t at(int64_t b, int64_t heads, int64_t head, int64_t row) {
    return ((b * heads + head) * STEPS + row) * DIM;
}

/* What the device holds at a check. */
struct snapshot {
    float *q_all, *k_all, *v_all, *o_all, *o;
};

static float *floats_of(const struct test_tensor *tensor) {
    const size_t bytes = (size_t)reference_count(&tensor->view) * sizeof(float);
    float *values = malloc(bytes);
    assert_non_null(values);
    CHECK_CL(clEnqueueReadBuffer(device.queue, tensor->buffer, CL_TRUE, (size_t)tensor->view.offset * sizeof(float),
                                 bytes, values, 0, NULL, NULL));
    return values;
}

static struct snapshot snapshot_of(const struct generation *g) {
    return (struct snapshot){floats_of(&g->q_all), floats_of(&g->k_all), floats_of(&g->v_all), floats_of(&g->o_all),
                             floats_of(&g->o)};
}

static void forget(struct snapshot *seen) {
    free(seen->q_all), free(seen->k_all), free(seen->v_all), free(seen->o_all), free(seen->o);
}

/* The cache in pages holds what the prefill wrote in one piece: to the bit, or within half a scale. */
static void compare_cache(const struct generation *g, int b, int64_t tokens, const double *rows, const float *whole,
                          const char *which) {
    for (int64_t head = 0; head < KV_HEADS; head++)
        for (int64_t j = 0; j < tokens; j++) {
            const float *want = whole + at(b, KV_HEADS, head, j);
            const double *got = rows + (head * tokens + j) * DIM;
            float largest = 0;
            for (int i = 0; i < DIM; i++)
                largest = fmaxf(largest, fabsf(want[i]));
            for (int i = 0; i < DIM; i++)
                if (!(fabs(got[i] - (double)want[i]) <= (g->quantized ? (double)largest / 127 * 0.502 : 0)))
                    fail_msg("%s: sequence %d, row %d, column %d is %.9g, not %.9g", which, b, (int)j, i, got[i],
                             (double)want[i]);
        }
}

/* The last rows of every head out of [BATCH, HEADS, STEPS, DIM]. */
static void pick_rows(const float *all, int b, int64_t tokens, double *out) {
    for (int64_t head = 0; head < HEADS; head++)
        for (int64_t i = 0; i < LAST * DIM; i++)
            out[head * LAST * DIM + i] = (double)all[at(b, HEADS, head, tokens - LAST) + i];
}

/* The oracle of those rows, over the rows that the cache holds, and how far the plain version is from it. */
static double ask_oracle(int64_t tokens, const double *query, const double *keys, const double *values, double *want) {
    const struct reference_attention problem = {.batch = 1,
                                                .heads = HEADS,
                                                .kv_heads = KV_HEADS,
                                                .head_dim = DIM,
                                                .value_dim = DIM,
                                                .nq = LAST,
                                                .nk = tokens,
                                                .scale = 1 / sqrt(DIM),
                                                .causal = true,
                                                .window_left = WINDOW,
                                                .window_right = -1};
    static double plain[RESULT];
    double lse;
    for (int64_t row = 0; row < HEADS * LAST; row++) {
        reference_attention_row(&problem, query, keys, values, row, want + row * DIM, &lse, NULL);
        plain_attention_row(&problem, CLATTN_F32, CLATTN_F32, query, keys, values, row, plain + row * DIM, &lse, NULL);
    }
    return reference_plain_error(RESULT, want, plain);
}

static void compare_rows(const char *which, int b, int64_t tokens, const float *all, const double *want,
                         double plain_error) {
    static double got[RESULT];
    struct reference_error error = {0};
    pick_rows(all, b, tokens, got);
    reference_compare(&error, RESULT, got, want, plain_error, CLATTN_F32);
    if (error.bad)
        fail_msg("%s: sequence %d after %d tokens: [%d] is %.9g, not %.9g (bound %.3g)", which, b, (int)tokens,
                 (int)error.index, error.got, error.want, error.bound);
}

static void check_sequence(struct generation *g, const struct snapshot *seen, int b, int64_t tokens) {
    static double query[RESULT], want[RESULT];
    double *keys = test_array(KV_HEADS * tokens * DIM), *values = test_array(KV_HEADS * tokens * DIM);
    gather(g, g->k_cache, g->k_scales, g->sequences[b], tokens, keys);
    gather(g, g->v_cache, g->v_scales, g->sequences[b], tokens, values);
    compare_cache(g, b, tokens, keys, seen->k_all, "k");
    compare_cache(g, b, tokens, values, seen->v_all, "v");
    pick_rows(seen->q_all, b, tokens, query);
    const double plain_error = ask_oracle(tokens, query, keys, values, want);
    compare_rows("generated", b, tokens, seen->o, want, plain_error);
    if (!g->quantized)
        compare_rows("prefill", b, tokens, seen->o_all, want, plain_error);
    free(keys);
    free(values);
}

static void check_all(struct generation *g, int64_t tokens) {
    prefill(g, tokens);
    struct snapshot seen = snapshot_of(g);
    for (int b = 0; b < BATCH; b++)
        if (g->sequences[b] >= 0)
            check_sequence(g, &seen, b, tokens);
    forget(&seen);
}

static void generate(bool quantized) {
    struct generation g;
    begin(&g, quantized);
    const clattn_attention_op attention = attention_of(&g, 0);
    const size_t bytes = workspace_of(&attention.head);
    cl_mem workspace = bytes > 0 ? buffer_of(bytes) : NULL;
    copies = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        take_step(&g, step, workspace, bytes);
        if ((step + 1) % CHECKED == 0)
            check_all(&g, step + 1);
    }
    assert_int_equal(copies, 1);
    if (workspace)
        clReleaseMemObject(workspace);
    end(&g);
}

static void in_fp32(void **state) {
    (void)state;
    generate(false);
}

static void in_int8(void **state) {
    (void)state;
    generate(true);
}

/* ---- tables on the device ---------------------------------------------------------------------------------------- */

static void tables_of_any_pitch(void **state) {
    enum { WIDTH = 3, PITCH = 7 };
    const struct test_layout apart = {2, {PITCH, 1}};
    const int64_t table_dims[] = {3, WIDTH}, length_dims[] = {3};
    const double sevens[] = {7, 7, 7, 7, 7, 7, 7, 7, 7}, want[] = {0, 1, -1, -1, -1, -1, 2, -1, -1},
                 want_lengths[] = {6, 0, 4};
    double got[9], got_lengths[3];
    int32_t sequences[3] = {-1, -1, -1};
    clattn_page_pool *pool = NULL;
    clattn_page_copy copy;
    clattn_launch launch;
    (void)state;
    struct test_tensor table = test_input(CLATTN_I32, 2, table_dims, sevens, &apart, 99);
    struct test_tensor lengths = test_input(CLATTN_I32, 1, length_dims, sevens, NULL, 99);
    CHECK(clattn_page_pool_create(8, 4, WIDTH, &pool));
    CHECK(clattn_page_pool_add(pool, &sequences[0]));
    CHECK(clattn_page_pool_add(pool, &sequences[2]));
    CHECK(clattn_page_pool_append(pool, sequences[0], 6, &copy));
    CHECK(clattn_page_pool_append(pool, sequences[2], 4, &copy));
    clattn_launch_init(&launch, device.queue);
    cl_event event = NULL;
    launch.event = &event;
    CHECK(clattn_page_pool_upload(device.clattn, pool, 3, sequences, &table.view, &lengths.view, &launch));
    CHECK_CL(clWaitForEvents(1, &event));
    clReleaseEvent(event);
    test_read(&table, got);
    test_read(&lengths, got_lengths);
    for (int i = 0; i < 9; i++)
        assert_true(got[i] == want[i] && got_lengths[i / 3] == want_lengths[i / 3]);
    launch.event = NULL;
    clattn_tensor bad = table.view;
    bad.dims[1] = 2;
    support_expect(clattn_page_pool_upload(device.clattn, pool, 3, sequences, &bad, NULL, &launch),
                   CLATTN_INVALID_ARGUMENT, "a narrow table");
    bad = table.view;
    bad.rank = 1, bad.dims[0] = 3, bad.strides[0] = 1;
    support_expect(clattn_page_pool_upload(device.clattn, pool, 3, sequences, &table.view, &bad, &launch),
                   CLATTN_INVALID_ARGUMENT, "lengths within the table");
    sequences[1] = 5;
    support_expect(clattn_page_pool_upload(device.clattn, pool, 3, sequences, &table.view, NULL, &launch),
                   CLATTN_INVALID_ARGUMENT, "a sequence that does not exist");
    support_expect(clattn_page_pool_upload(device.clattn, pool, -1, sequences, &table.view, NULL, &launch),
                   CLATTN_INVALID_ARGUMENT, "a negative count");
    CHECK(clattn_page_pool_upload(device.clattn, pool, 0, NULL, NULL, NULL, &launch));
    CHECK_CL(clFinish(device.queue));
    clattn_page_pool_release(&pool);
    test_release(&table);
    test_release(&lengths);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_of_any_pitch),
        cmocka_unit_test(in_fp32),
        cmocka_unit_test(in_int8),
    };
    return support_main("generation", tests, sizeof tests / sizeof tests[0]);
}
