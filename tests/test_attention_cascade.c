/* Attention over a shared prefix against the oracle on the concatenated keys: every sequence of its problem has the
 * prefix's keys and then its own. What no row may look at holds NaN. */
#include "attention_harness.h"

#include <clattn/kv_cache.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, KV_HEADS = 2, PAGE = 4, BATCH = 3 };

/* shape: of the whole, but for the soft cap that all have; nk = prefix + the most keys that a sequence has of its
 * own. */
struct shared {
    struct attention_case shape;
    int64_t prefix;
    bool paged, rows_adjoin; /* rows_adjoin: [B,N,H,D] in memory, so that the batches of q are one */
};

static struct shared shared_of(const char *name, int64_t nq, int64_t prefix, int64_t own, clattn_causal causal) {
    return (struct shared){.shape = attention_shape(name, BATCH, nq, prefix + own, causal), .prefix = prefix};
}

/* Every sequence's first keys are those of the first one. */
static struct attention_data whole_of(const struct shared *shared, clattn_dtype dtype) {
    struct attention_case shape = shared->shape;
    shape.with.softcap = 3;
    struct attention_data data = attention_data_random(&shape, dtype, 7);
    const int64_t row = shared->shape.nk * D, bytes = shared->prefix * D * (int64_t)sizeof(double);
    for (int64_t i = KV_HEADS; i < data.settings.k.dims[0] * KV_HEADS; i++) {
        memcpy(data.k + i * row, data.k + i % KV_HEADS * row, (size_t)bytes);
        memcpy(data.v + i * row, data.v + i % KV_HEADS * row, (size_t)bytes);
    }
    return data;
}

/* ---- on the device ---- */

struct device_call {
    struct test_tensor q, o, lse, prefix_k, prefix_v, k, v, sinks, k_lengths, q_lengths, q_offsets, page_table;
    clattn_attention_cascade_op op;
};

/* Rows [first, end) of the keys or values of some sequences. */
static double *rows_of(const struct attention_data *whole, const double *from, int64_t batches, int64_t first,
                       int64_t end) {
    double *rows = test_array(batches * KV_HEADS * (end - first) * D);
    for (int64_t i = 0; i < batches * KV_HEADS; i++)
        memcpy(rows + i * (end - first) * D, from + (i * whole->problem.nk + first) * D,
               (size_t)((end - first) * D) * sizeof(double));
    return rows;
}

static struct test_tensor upload_rows(const struct attention_data *whole, const double *from, int64_t batches,
                                      int64_t first, int64_t end) {
    const int64_t dims[4] = {batches, KV_HEADS, end - first, D};
    double *rows = rows_of(whole, from, batches, first, end);
    const struct test_tensor tensor = test_input(whole->dtype, 4, dims, rows, NULL, (double)NAN);
    free(rows);
    return tensor;
}

/* Page p of the sequences' own keys, counted through all of them, lies at the mirrored place; the first is no one's. */
static struct test_tensor upload_pages(const struct attention_data *whole, const double *from, int64_t first) {
    const int64_t own = whole->problem.nk - first, entries = own / PAGE, pages = BATCH * entries + 1;
    const int64_t dims[4] = {pages, KV_HEADS, PAGE, D};
    double *rows = rows_of(whole, from, BATCH, first, whole->problem.nk),
           *paged = test_array(pages * KV_HEADS * PAGE * D);
    for (int64_t i = 0; i < pages * KV_HEADS * PAGE * D; i++)
        paged[i] = (double)NAN;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t h = 0; h < KV_HEADS; h++)
            for (int64_t j = 0; j < own; j++) {
                const int64_t page = pages - 1 - (b * entries + j / PAGE);
                memcpy(paged + ((page * KV_HEADS + h) * PAGE + j % PAGE) * D, rows + ((b * KV_HEADS + h) * own + j) * D,
                       D * sizeof(double));
            }
    const struct test_tensor tensor = test_input(whole->dtype, 4, dims, paged, NULL, (double)NAN);
    free(rows);
    free(paged);
    return tensor;
}

static struct test_tensor upload_table(int64_t entries) {
    const int64_t dims[2] = {BATCH, entries};
    double *table = test_array(BATCH * entries);
    for (int64_t i = 0; i < BATCH * entries; i++)
        table[i] = (double)(BATCH * entries - i);
    const struct test_tensor tensor = test_input(CLATTN_I32, 2, dims, table, NULL, INT_MAX);
    free(table);
    return tensor;
}

static void upload_vector(clattn_tensor *view, struct test_tensor *tensor, const clattn_tensor *shape,
                          const double *values, double less) {
    if (!values)
        return;
    const int64_t count = shape->dims[0];
    double *own = test_array(count);
    for (int64_t i = 0; i < count; i++)
        own[i] = values[i] - less;
    *tensor = test_input(shape->dtype, 1, shape->dims, own, NULL, shape->dtype == CLATTN_I32 ? INT_MAX : (double)NAN);
    *view = tensor->view;
    free(own);
}

static void upload_keys(const struct shared *shared, const struct attention_data *whole, struct device_call *call) {
    const int64_t nk = shared->shape.nk, batches = whole->settings.k.dims[0];
    call->prefix_k = upload_rows(whole, whole->k, 1, 0, shared->prefix);
    call->prefix_v = upload_rows(whole, whole->v, 1, 0, shared->prefix);
    if (shared->paged) {
        call->k = upload_pages(whole, whole->k, shared->prefix);
        call->v = upload_pages(whole, whole->v, shared->prefix);
        call->page_table = upload_table((nk - shared->prefix) / PAGE);
        call->op.suffix.page_table = call->page_table.view;
    } else {
        call->k = upload_rows(whole, whole->k, batches, shared->prefix, nk);
        call->v = upload_rows(whole, whole->v, batches, shared->prefix, nk);
    }
    call->op.prefix_k = call->prefix_k.view;
    call->op.prefix_v = call->prefix_v.view;
    call->op.suffix.k = call->k.view;
    call->op.suffix.v = call->v.view;
}

static void upload_call(const struct shared *shared, struct device_call *call, clattn_dtype dtype) {
    struct attention_data whole = whole_of(shared, dtype);
    const int64_t *q = whole.settings.q.dims, heads = q[1], nq = q[2];
    const struct test_layout adjoining = {.strides = {nq * heads * D, D, heads * D, 1}};
    attention_data_poison(&whole, (double)NAN);
    memset(call, 0, sizeof *call);
    clattn_attention_cascade_init(&call->op);
    clattn_attention_op *suffix = &call->op.suffix;
    suffix->causal = whole.settings.causal;
    suffix->has_scale = whole.settings.has_scale;
    suffix->scale = whole.settings.scale;
    suffix->softcap = whole.settings.softcap;
    suffix->max_q = whole.settings.max_q;
    call->q = test_input(dtype, 4, q, whole.q, shared->rows_adjoin ? &adjoining : NULL, (double)NAN);
    call->o = test_output(dtype, 4, q, shared->rows_adjoin ? &adjoining : NULL);
    call->lse = test_output(CLATTN_F32, 3, q, NULL);
    suffix->q = call->q.view;
    suffix->o = call->o.view;
    suffix->lse = call->lse.view;
    upload_keys(shared, &whole, call);
    upload_vector(&suffix->sinks, &call->sinks, &whole.settings.sinks, whole.sinks, 0);
    upload_vector(&suffix->k_lengths, &call->k_lengths, &whole.settings.k_lengths, whole.k_lengths,
                  (double)shared->prefix);
    upload_vector(&suffix->q_lengths, &call->q_lengths, &whole.settings.q_lengths, whole.q_lengths, 0);
    upload_vector(&suffix->q_offsets, &call->q_offsets, &whole.settings.q_offsets, whole.q_offsets, 0);
    attention_data_free(&whole);
}

static void release_call(struct device_call *call) {
    struct test_tensor *const tensors[] = {&call->q,     &call->o,         &call->lse,       &call->prefix_k,
                                           &call->k,     &call->prefix_v,  &call->v,         &call->page_table,
                                           &call->sinks, &call->k_lengths, &call->q_lengths, &call->q_offsets};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        test_release(tensors[i]);
}

static void check_result(const struct shared *shared, const struct device_call *call, clattn_dtype dtype) {
    struct attention_data whole = whole_of(shared, dtype);
    struct attention_result result = {.o = test_array(attention_o_count(&whole)),
                                      .lse = test_array(attention_row_count(&whole))};
    test_read(&call->o, result.o);
    test_read(&call->lse, result.lse);
    attention_compare(&whole, &result, NULL, 64);
    attention_result_free(&result);
    attention_data_free(&whole);
}

static void check_shared(const struct shared *shared, clattn_dtype dtype) {
    struct device_call call;
    upload_call(shared, &call, dtype);
    test_run(&call.op.head, NULL);
    check_result(shared, &call, dtype);
    release_call(&call);
}

/* ---- results ---- */

static const double sinks[4] = {0.5, -1, 2, 0};

/* Lengths of the whole: the middle sequence has no keys of its own. */
static struct shared one_query(void) {
    static const double lengths[BATCH] = {37 + 9, 37, 37 + 12};
    struct shared shared = shared_of("one query, pages, sinks", 1, 37, 12, CLATTN_CAUSAL_NONE);
    shared.paged = true;
    shared.shape.with = (struct case_modifiers){.k_lengths = lengths, .sinks = sinks};
    return shared;
}

static void one_query_over_pages(void **state) {
    (void)state;
    const struct shared shared = one_query();
    check_shared(&shared, CLATTN_F32);
}

/* The first query of the second sequence sees no key but the prefix's. The strides decide how the prefix is read. */
static void causal_queries(void **state) {
    static const double lengths[BATCH] = {37 + 9, 37 + 4, 37 + 12};
    struct shared shared = shared_of("causal", 5, 37, 12, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shared.shape.with.k_lengths = lengths;
    shared.shape.has_scale = 1;
    shared.shape.scale = 0.25f;
    (void)state;
    check_shared(&shared, CLATTN_F32);
    shared.rows_adjoin = true;
    check_shared(&shared, CLATTN_F32);
}

/* Rows 0, 1, 8 and 9 are no sequence's, and the second sequence has none. */
static struct shared ragged(void) {
    static const double offsets[BATCH + 1] = {2, 3, 3, 8}, lengths[BATCH] = {37 + 9, 37, 37};
    struct shared shared = shared_of("ragged", 10, 37, 12, CLATTN_CAUSAL_NONE);
    shared.shape.with = (struct case_modifiers){.k_lengths = lengths, .q_offsets = offsets};
    return shared;
}

static void rows_of_no_sequence_are_not_written(void **state) {
    struct shared shared = ragged();
    (void)state;
    check_shared(&shared, CLATTN_F32);
    shared.shape.with.max_q = 3; /* the last sequence's rows 3 and 4 are empty */
    check_shared(&shared, CLATTN_F32);
}

static void fill_output(const struct test_tensor *tensor, unsigned char byte) {
    CHECK_CL(clEnqueueFillBuffer(device.queue, tensor->buffer, &byte, 1, 0, tensor->bytes, 0, NULL, NULL));
}

/* Rows of `columns` elements, ten a head: those of no sequence still have the bytes, all others have not. */
static void check_filled(const struct test_tensor *tensor, int64_t columns, unsigned char byte) {
    unsigned char *bytes = test_bytes(tensor);
    for (int64_t row = 0; row < 40; row++) {
        const unsigned char *at = bytes + (tensor->view.offset + row * columns) * (int64_t)sizeof(float);
        int64_t same = 0;
        while (same < columns * (int64_t)sizeof(float) && at[same] == byte)
            same++;
        const bool untouched = same == columns * (int64_t)sizeof(float);
        assert_int_equal(untouched, row % 10 < 2 || row % 10 > 7);
    }
    free(bytes);
}

static void rows_of_no_sequence_keep_what_they_hold(void **state) {
    const struct shared shared = ragged();
    struct device_call call;
    (void)state;
    upload_call(&shared, &call, CLATTN_F32);
    fill_output(&call.o, 0x41);
    fill_output(&call.lse, 0x42);
    test_run(&call.op.head, NULL);
    check_filled(&call.o, D, 0x41);
    check_filled(&call.lse, 1, 0x42);
    release_call(&call);
}

static void queries_behind_a_length_are_empty(void **state) {
    static const double q_lengths[BATCH] = {5, 0, 2}, lengths[BATCH] = {37 + 9, 37 + 4, 37};
    struct shared shared = shared_of("query lengths", 5, 37, 12, CLATTN_CAUSAL_NONE);
    shared.shape.with = (struct case_modifiers){.k_lengths = lengths, .q_lengths = q_lengths};
    shared.rows_adjoin = true;
    (void)state;
    check_shared(&shared, CLATTN_F32);
    check_shared(&shared, CLATTN_F16);
}

static void either_part_may_be_empty(void **state) {
    const int64_t sizes[3][2] = {{0, 12}, {37, 0}, {0, 0}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct shared shared = shared_of("empty part", 5, sizes[i][0], sizes[i][1], CLATTN_CAUSAL_NONE);
        check_shared(&shared, CLATTN_F32);
    }
}

static void without_queries_nothing_is_written(void **state) {
    const struct shared shared = shared_of("no queries", 0, 37, 12, CLATTN_CAUSAL_NONE);
    size_t bytes = 1;
    struct device_call call;
    (void)state;
    upload_call(&shared, &call, CLATTN_F32);
    CHECK(clattn_workspace_size(device.clattn, &call.op.head, NULL, &bytes));
    assert_int_equal(bytes, 0);
    test_run(&call.op.head, NULL);
    release_call(&call);
}

/* ---- data out of range ---- */

static void wild_lengths_and_pages_stay_inside(void **state) {
    const double lengths[BATCH] = {INT_MAX, INT_MIN, -1}, table[BATCH * 3] = {99, -1, 0, INT_MAX, INT_MIN, 7, 1, 2, 3};
    const int64_t dims[2] = {BATCH, 3};
    const struct shared shared = one_query();
    struct device_call call;
    (void)state;
    upload_call(&shared, &call, CLATTN_F32);
    test_release(&call.k_lengths);
    test_release(&call.page_table);
    call.k_lengths = test_input(CLATTN_I32, 1, dims, lengths, NULL, INT_MAX);
    call.page_table = test_input(CLATTN_I32, 2, dims, table, NULL, INT_MAX);
    call.op.suffix.k_lengths = call.k_lengths.view;
    call.op.suffix.page_table = call.page_table.view;
    test_run(&call.op.head, NULL);
    double *o = test_array(BATCH * 4 * D);
    test_read(&call.o, o); /* the surroundings of o are as they were */
    free(o);
    test_untouched(&call.prefix_k, "prefix_k");
    test_untouched(&call.k, "k");
    release_call(&call);
}

/* ---- order ---- */

/* Out of order, behind an event of the caller's, with the workspace at an offset. */
static void steps_follow_each_other(void **state) {
    const struct shared shared = ragged();
    struct device_call call;
    clattn_launch launch;
    size_t bytes = 0;
    cl_int code = CL_SUCCESS;
    cl_event gate, done;
    (void)state;
    cl_command_queue queue =
        clCreateCommandQueue(device.context, device.id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
    if (code != CL_SUCCESS)
        skip();
    upload_call(&shared, &call, CLATTN_F32);
    CHECK_CL(clFinish(device.queue));
    CHECK(clattn_workspace_size(device.clattn, &call.op.head, NULL, &bytes));
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes + 256, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    gate = clCreateUserEvent(device.context, &code);
    support_expect_cl(code, "clCreateUserEvent");
    clattn_launch_init(&launch, queue);
    launch.num_events_in_wait_list = 1;
    launch.event_wait_list = &gate;
    launch.event = &done;
    launch.workspace = (clattn_workspace){buffer, 256, bytes};
    CHECK(clattn_prepare(device.clattn, &call.op.head, NULL));
    CHECK(clattn_attention_cascade(device.clattn, &call.op, &launch));
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &done));
    check_result(&shared, &call, CLATTN_F32);
    launch.workspace.size = bytes - 1;
    support_expect(clattn_attention_cascade(device.clattn, &call.op, &launch), CLATTN_WORKSPACE_TOO_SMALL, "workspace");
    clReleaseEvent(gate);
    clReleaseEvent(done);
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    release_call(&call);
}

/* ---- refusals ---- */

static void expect_refusal(const clattn_attention_cascade_op *op, clattn_status expected, const char *name) {
    support_expect(clattn_supported(device.clattn, &op->head, NULL), expected, name);
    if (!strstr(clattn_last_error(), name))
        fail_msg("\"%s\" does not name %s", clattn_last_error(), name);
}

#define REFUSED(status, name, change)               \
    do {                                            \
        clattn_attention_cascade_op op = call.op;   \
        change;                                     \
        expect_refusal(&op, CLATTN_##status, name); \
    } while (0)

static void bad_arguments_are_named(void **state) {
    struct device_call call;
    const struct shared shared = shared_of("refusals", 5, 37, 12, CLATTN_CAUSAL_NONE);
    (void)state;
    upload_call(&shared, &call, CLATTN_F32);
    CHECK(clattn_supported(device.clattn, &call.op.head, NULL));
    REFUSED(INVALID_ARGUMENT, "size", op.head.size = 8);
    REFUSED(INVALID_ARGUMENT, "suffix: kind", op.suffix.head.kind = CLATTN_OP_GEMM);
    REFUSED(INVALID_ARGUMENT, "suffix: kind", op.suffix.head.size = 8);
    REFUSED(INVALID_ARGUMENT, "prefix_k", op.prefix_k.memory.kind = CLATTN_MEMORY_NONE);
    REFUSED(INVALID_ARGUMENT, "prefix_v", op.prefix_v.memory.kind = CLATTN_MEMORY_NONE);
    REFUSED(INVALID_ARGUMENT, "prefix_k", op.prefix_k.rank = 3);
    REFUSED(INVALID_ARGUMENT, "prefix_v", op.prefix_v.rank = 3);
    REFUSED(INVALID_ARGUMENT, "prefix_k", op.prefix_k.dtype = CLATTN_F16);
    REFUSED(INVALID_ARGUMENT, "prefix_v", op.prefix_v.dtype = CLATTN_F16);
    REFUSED(INVALID_ARGUMENT, "prefix_k", op.prefix_k.strides[3] = 2; op.prefix_k.dims[2] = 1);
    REFUSED(INVALID_ARGUMENT, "prefix_v", op.prefix_v.strides[3] = 2; op.prefix_v.dims[2] = 1);
    REFUSED(INVALID_ARGUMENT, "prefix_k: dims[0]", op.prefix_k.dims[0] = 2; op.prefix_k.strides[0] = 0);
    REFUSED(INVALID_ARGUMENT, "prefix_v: dims[0]", op.prefix_v.dims[0] = 0);
    REFUSED(INVALID_ARGUMENT, "prefix_k: dims[1]", op.prefix_k.dims[1] = 1);
    REFUSED(INVALID_ARGUMENT, "prefix_v: dims[1]", op.prefix_v.dims[1] = 1);
    REFUSED(INVALID_ARGUMENT, "prefix_v: dims[2]", op.prefix_v.dims[2] = 36);
    REFUSED(INVALID_ARGUMENT, "prefix_k: dims[3]", op.prefix_k.dims[3] = 63);
    REFUSED(INVALID_ARGUMENT, "prefix_v: dims[3]", op.prefix_v.dims[3] = 63);
    REFUSED(UNSUPPORTED, "prefix_k", op.prefix_k.dims[2] = INT64_C(1) << 31; op.prefix_k.strides[2] = 0);
    REFUSED(INVALID_ARGUMENT, "prefix_k", op.prefix_k.offset = INT64_C(1) << 40);
    REFUSED(INVALID_ARGUMENT, "prefix_k", op.suffix.o = call.op.prefix_k; op.suffix.o.strides[0] = 64 * 5 * 4;
            op.suffix.o.strides[1] = 64 * 5; op.suffix.o.dims[0] = BATCH; op.suffix.o.dims[1] = 4;
            op.suffix.o.dims[2] = 5);
    REFUSED(INVALID_ARGUMENT, "prefix_v", op.prefix_v.memory = op.suffix.lse.memory;
            op.prefix_v.offset = op.suffix.lse.offset; for (int i = 0; i < 3; i++) op.prefix_v.strides[i] = 0);
    REFUSED(UNSUPPORTED, "window_left", op.suffix.window_left = 3);
    REFUSED(UNSUPPORTED, "window_right", op.suffix.window_right = 0);
    const int64_t ones[4] = {1, 1, 1, 1}, heads = 4;
    REFUSED(UNSUPPORTED, "mask",
            op.suffix.mask = clattn_tensor_dense(op.suffix.k.memory.as.buffer, CLATTN_U8, 4, ones));
    REFUSED(UNSUPPORTED, "bias",
            op.suffix.bias = clattn_tensor_dense(op.suffix.k.memory.as.buffer, CLATTN_F32, 4, ones));
    REFUSED(UNSUPPORTED, "alibi",
            op.suffix.alibi = clattn_tensor_dense(op.suffix.k.memory.as.buffer, CLATTN_F32, 1, &heads));
    REFUSED(INVALID_ARGUMENT, "k:", op.suffix.k.dims[3] = 63);
    support_expect(clattn_attention_cascade(device.clattn, NULL, NULL), CLATTN_INVALID_ARGUMENT, "NULL");
    release_call(&call);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_query_over_pages),
        cmocka_unit_test(causal_queries),
        cmocka_unit_test(rows_of_no_sequence_are_not_written),
        cmocka_unit_test(rows_of_no_sequence_keep_what_they_hold),
        cmocka_unit_test(queries_behind_a_length_are_empty),
        cmocka_unit_test(either_part_may_be_empty),
        cmocka_unit_test(without_queries_nothing_is_written),
        cmocka_unit_test(wild_lengths_and_pages_stay_inside),
        cmocka_unit_test(steps_follow_each_other),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return support_main("attention over a shared prefix", tests, sizeof tests / sizeof tests[0]);
}
