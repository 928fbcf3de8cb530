/* Ranks as threads. Only the calls themselves are made by these: all checks are the test's own thread's. */
#include "ring_harness.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 16, HOST_ALIGN = 64, CONTEXTS = 2 };

struct ring_rank ring_ranks[RING_MOST_RANKS];
const struct ring_process *ring_process;

static bool is_here(int32_t rank) {
    return ring_process == NULL || ring_process->rank == rank;
}

/* ---- devices ---- */

static bool shares_context(int i) {
    return ring_process == NULL && i >= CONTEXTS;
}

static void close_ranks(void) {
    for (int i = 0; i < RING_MOST_RANKS; i++) {
        struct ring_rank *rank = &ring_ranks[i];
        if (!is_here(i))
            continue;
        clReleaseCommandQueue(rank->copy_queue);
        if (shares_context(i)) {
            clReleaseCommandQueue(rank->device.queue);
            continue;
        }
        support_close(&rank->device);
    }
    memset(ring_ranks, 0, sizeof ring_ranks);
}

static cl_command_queue queue_of(const struct test_device *on) {
    cl_int code = CL_SUCCESS;
    const cl_command_queue queue = clCreateCommandQueue(on->context, on->id, 0, &code);
    support_expect_cl(code, "clCreateCommandQueue");
    return queue;
}

static void open_rank(int i, cl_device_id id) {
    struct ring_rank *rank = &ring_ranks[i];
    if (shares_context(i)) {
        rank->device = ring_ranks[i % CONTEXTS].device;
        rank->device.queue = queue_of(&rank->device);
    } else {
        support_open(&rank->device, id);
    }
    rank->copy_queue = queue_of(&rank->device);
}

/* Stays open for the tests that follow on the device: programs are compiled once. */
int ring_open(void **state) {
    static cl_device_id opened;
    cl_device_id ids[MOST_DEVICES];
    cl_uint count = 0, own = 0;
    (void)state;
    if (opened == device.id)
        return 0;
    CHECK_CL(clGetDeviceIDs(device.platform, CL_DEVICE_TYPE_ALL, MOST_DEVICES, ids, &count));
    count = count < MOST_DEVICES ? count : MOST_DEVICES;
    while (own < count && ids[own] != device.id)
        own++;
    if (opened != NULL)
        close_ranks();
    for (cl_uint i = 0; i < RING_MOST_RANKS; i++)
        if (is_here((int)i))
            open_rank((int)i, count > 0 ? ids[(own + i) % count] : device.id);
    opened = device.id;
    return 0;
}

/* What support.h does is done on the rank's device. */
static struct test_device use(const struct test_device *other) {
    const struct test_device before = device;
    device = *other;
    return before;
}

/* ---- shards ---- */

struct ring_problem ring_problem_of(const struct attention_case *shape, clattn_dtype dtype, clattn_ring_split split,
                                    int32_t ranks) {
    struct ring_problem problem = {.whole = attention_data_random(shape, dtype, 11), .ranks = ranks};
    for (int32_t i = 0; i < ranks; i++) {
        CHECK(clattn_ring_shard_of(split, shape->nq, i, ranks, &problem.q_shards[i]));
        CHECK(clattn_ring_shard_of(split, shape->nk, i, ranks, &problem.k_shards[i]));
    }
    return problem;
}

struct ring_problem ring_decode_of(const struct attention_case *shape, clattn_dtype dtype, int32_t ranks) {
    struct ring_problem problem = ring_problem_of(shape, dtype, CLATTN_RING_CONTIGUOUS, ranks);
    problem.decode = true;
    for (int32_t i = 0; i < ranks; i++)
        problem.q_shards[i] = (clattn_ring_shard){{{0, shape->nq}}};
    return problem;
}

void ring_problem_free(struct ring_problem *problem) {
    attention_data_free(&problem->whole);
}

/* Copies the shard's rows of each [rows, columns] of an array, or back into it. */
static void move_rows(const clattn_ring_shard *shard, int64_t slabs, int64_t rows, int64_t columns, double *whole,
                      double *part, bool back) {
    for (int64_t slab = 0; slab < slabs; slab++)
        for (int i = 0; i < 2; i++) {
            const clattn_ring_piece *piece = &shard->pieces[i];
            const size_t count = (size_t)(piece->rows * columns);
            double *in = whole + (slab * rows + piece->first) * columns;
            memcpy(back ? in : part, back ? part : in, count * sizeof *part);
            part += count;
        }
}

static struct test_tensor upload_rows(const clattn_ring_shard *shard, clattn_dtype dtype, const clattn_tensor *shape,
                                      double *whole) {
    const int64_t rows = clattn_ring_shard_rows(shard), slabs = shape->dims[0] * shape->dims[1];
    const int64_t dims[4] = {shape->dims[0], shape->dims[1], rows, shape->dims[3]};
    double *part = test_array(slabs * rows * shape->dims[3]);
    move_rows(shard, slabs, shape->dims[2], shape->dims[3], whole, part, false);
    const struct test_tensor tensor = test_input(dtype, 4, dims, part, NULL, (double)NAN);
    free(part);
    return tensor;
}

static struct test_tensor upload_vector(const clattn_ring_shard *shard, const clattn_tensor *shape, double *whole) {
    const int64_t rows = clattn_ring_shard_rows(shard), dims[3] = {shape->dims[0], shape->dims[1], rows};
    double *part = test_array(dims[0] * dims[1] * rows);
    move_rows(shard, dims[0] * dims[1], shape->dims[2], 1, whole, part, false);
    const struct test_tensor tensor = test_input(CLATTN_F32, 3, dims, part, NULL, (double)NAN);
    free(part);
    return tensor;
}

/* ---- calls ---- */

/* Of the rank's attention; its first key's position counts in the diagonal. */
static void make_decode(const struct ring_problem *problem, int32_t i) {
    struct ring_rank *rank = &ring_ranks[i];
    const clattn_attention_op *settings = &problem->whole.settings;
    const int64_t bottom_right = settings->k.dims[2] - settings->q.dims[2];
    const int64_t diagonal = settings->causal == CLATTN_CAUSAL_TOP_LEFT ? 0 : bottom_right;
    clattn_ring_decode_init(&rank->decode);
    rank->decode.attention = rank->op.attention;
    rank->decode.attention.has_diagonal = 1;
    rank->decode.attention.diagonal =
        (settings->has_diagonal ? settings->diagonal : diagonal) - problem->k_shards[i].pieces[0].first;
    rank->made = &rank->decode.head;
}

/* Results and their gradients are inputs here. */
static void make_backward(const struct ring_problem *problem, int32_t i) {
    struct ring_rank *rank = &ring_ranks[i];
    const struct gradient_data *data = problem->gradients;
    const clattn_ring_shard *shard = &problem->q_shards[i];
    const clattn_tensor *q = &problem->whole.settings.q;
    const clattn_tensor o = {.dims = {q->dims[0], q->dims[1], q->dims[2], problem->whole.settings.v.dims[3]}};
    clattn_ring_attention_backward_op *op = &rank->backward;
    clattn_ring_attention_backward_init(op);
    op->backward.attention = rank->op.attention;
    op->q_shard = *shard;
    op->k_shards = problem->k_shards;
    test_release(&rank->o);
    test_release(&rank->lse);
    rank->o = upload_rows(shard, data->forward.out_dtype, &o, data->o);
    rank->lse = upload_vector(shard, &o, data->lse);
    rank->dout = upload_rows(shard, problem->whole.dtype, &o, data->dout);
    rank->dq = test_output(data->out_dtype, 4, rank->q.view.dims, NULL);
    rank->dk = test_output(data->out_dtype, 4, rank->k.view.dims, NULL);
    rank->dv = test_output(data->out_dtype, 4, rank->v.view.dims, NULL);
    op->backward.attention.o = rank->o.view;
    op->backward.attention.lse = rank->lse.view;
    op->backward.dout = rank->dout.view;
    if (data->dlse) {
        rank->dlse = upload_vector(shard, &o, data->dlse);
        op->backward.dlse = rank->dlse.view;
    }
    op->backward.dq = rank->dq.view;
    op->backward.dk = rank->dk.view;
    op->backward.dv = rank->dv.view;
    rank->made = &op->head;
}

static void upload_rank(const struct ring_problem *problem, int32_t i) {
    struct ring_rank *rank = &ring_ranks[i];
    struct attention_data whole = problem->whole;
    const clattn_attention_op *settings = &whole.settings;
    clattn_attention_op *op = &rank->op.attention;
    clattn_ring_attention_init(&rank->op);
    *op = *settings;
    rank->q = upload_rows(&problem->q_shards[i], whole.dtype, &settings->q, whole.q);
    rank->k = upload_rows(&problem->k_shards[i], whole.dtype, &settings->k, whole.k);
    rank->v = upload_rows(&problem->k_shards[i], whole.dtype, &settings->v, whole.v);
    const int64_t *q = rank->q.view.dims, o_dims[4] = {q[0], q[1], q[2], settings->v.dims[3]};
    rank->o = test_output(whole.out_dtype, 4, o_dims, NULL);
    rank->lse = test_output(CLATTN_F32, 3, o_dims, NULL);
    if (whole.alibi) {
        rank->alibi = test_input(CLATTN_F32, 1, settings->alibi.dims, whole.alibi, NULL, (double)NAN);
        op->alibi = rank->alibi.view;
    }
    if (whole.sinks) {
        rank->sinks = test_input(CLATTN_F32, 1, settings->sinks.dims, whole.sinks, NULL, (double)NAN);
        op->sinks = rank->sinks.view;
    }
    op->q = rank->q.view;
    op->k = rank->k.view;
    op->v = rank->v.view;
    op->o = rank->o.view;
    op->lse = rank->lse.view;
    rank->op.q_shard = problem->q_shards[i];
    rank->op.k_shards = problem->k_shards;
    rank->made = &rank->op.head;
    if (problem->decode)
        make_decode(problem, i);
    if (problem->gradients)
        make_backward(problem, i);
}

/* Exactly what the rank asks for, full of NaN. */
static void give_memory(struct ring_rank *rank) {
    cl_int code = CL_SUCCESS;
    CHECK(clattn_ring_staging(rank->device.clattn, rank->made, &rank->launch, &rank->device_bytes, &rank->host_bytes));
    if (rank->device_bytes > 0) {
        unsigned char *nan = malloc(rank->device_bytes);
        memset(nan, 0xff, rank->device_bytes);
        rank->workspace = clCreateBuffer(rank->device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                         rank->device_bytes, nan, &code);
        free(nan);
        support_expect_cl(code, "clCreateBuffer");
    }
    rank->launch.workspace = (clattn_workspace){.buffer = rank->workspace, .size = rank->device_bytes};
    assert_int_equal(posix_memalign(&rank->host, HOST_ALIGN, rank->host_bytes + 1), 0);
    memset(rank->host, 0xff, rank->host_bytes);
    rank->launch.host = rank->host;
    rank->launch.host_size = rank->host_bytes;
}

clattn_ring_group *ring_upload(const struct ring_problem *problem, uint32_t timeout_ms) {
    clattn_ring_group *group = NULL;
    if (ring_process == NULL)
        CHECK(clattn_ring_group_create(problem->ranks, timeout_ms, &group));
    for (int32_t i = 0; i < problem->ranks; i++) {
        struct ring_rank *rank = &ring_ranks[i];
        if (!is_here(i))
            continue;
        const struct test_device before = use(&rank->device);
        upload_rank(problem, i);
        if (ring_process != NULL)
            rank->transport = *ring_process->transport;
        else
            CHECK(clattn_ring_group_transport(group, i, &rank->transport));
        if (problem->passes)
            rank->transport.share = NULL;
        clattn_ring_launch_init(&rank->launch, rank->device.queue, rank->copy_queue, &rank->transport);
        rank->launch.event = &rank->event;
        rank->launch.waited = &rank->waited;
        give_memory(rank);
        use(&before);
    }
    return group;
}

static clattn_status dispatch(struct ring_rank *rank) {
    clattn_context *context = rank->device.clattn;
    if (rank->made == NULL)
        return CLATTN_INTERNAL_ERROR;
    if (rank->made->kind == CLATTN_OP_RING_DECODE)
        return clattn_ring_decode(context, (const clattn_ring_decode_op *)rank->made, &rank->launch);
    if (rank->made->kind == CLATTN_OP_RING_ATTENTION_BACKWARD)
        return clattn_ring_attention_backward(context, (const clattn_ring_attention_backward_op *)rank->made,
                                              &rank->launch);
    return clattn_ring_attention(context, (const clattn_ring_attention_op *)rank->made, &rank->launch);
}

static void *call(void *argument) {
    struct ring_rank *rank = argument;
    rank->status = dispatch(rank);
    snprintf(rank->text, sizeof rank->text, "%s", rank->status == CLATTN_SUCCESS ? "" : clattn_last_error());
    return NULL;
}

void ring_run(int32_t ranks) {
    pthread_t threads[RING_MOST_RANKS];
    for (int32_t i = 0; i < ranks; i++) {
        ring_ranks[i].event = NULL;
        if (!is_here(i))
            continue;
        assert_int_equal(pthread_create(&threads[i], NULL, call, &ring_ranks[i]), 0);
    }
    for (int32_t i = 0; i < ranks; i++)
        if (is_here(i))
            pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < ranks; i++) {
        cl_event *event = &ring_ranks[i].event;
        if (!is_here(i))
            continue;
        assert_true((*event != NULL) == (ring_ranks[i].status == CLATTN_SUCCESS));
        if (*event == NULL)
            continue;
        CHECK_CL(clWaitForEvents(1, event));
        clReleaseEvent(*event);
    }
}

void ring_release(int32_t ranks, clattn_ring_group **group) {
    for (int32_t i = 0; i < ranks; i++) {
        struct ring_rank *rank = &ring_ranks[i];
        struct test_tensor *const tensors[] = {&rank->q,    &rank->k,     &rank->v,     &rank->o,
                                               &rank->lse,  &rank->alibi, &rank->sinks, &rank->dout,
                                               &rank->dlse, &rank->dq,    &rank->dk,    &rank->dv};
        for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
            if (tensors[t]->buffer)
                test_release(tensors[t]);
            memset(tensors[t], 0, sizeof *tensors[t]);
        }
        if (rank->workspace)
            clReleaseMemObject(rank->workspace);
        rank->workspace = NULL;
        free(rank->host);
        rank->host = NULL;
    }
    clattn_ring_group_release(group);
}

struct attention_result ring_result(const struct ring_problem *problem) {
    const struct attention_data *whole = &problem->whole;
    const int64_t *q = whole->settings.q.dims, columns = whole->settings.v.dims[3], slabs = q[0] * q[1];
    struct attention_result result = {.o = test_array(slabs * q[2] * columns), .lse = test_array(slabs * q[2])};
    for (int32_t i = 0; i < problem->ranks; i++) {
        const clattn_ring_shard *shard = &problem->q_shards[i];
        const int64_t rows = clattn_ring_shard_rows(shard);
        if (!is_here(i))
            continue;
        double *o = test_array(slabs * rows * columns), *lse = test_array(slabs * rows);
        const struct test_device before = use(&ring_ranks[i].device);
        test_read(&ring_ranks[i].o, o);
        test_read(&ring_ranks[i].lse, lse);
        test_untouched(&ring_ranks[i].k, "k");
        use(&before);
        move_rows(shard, slabs, q[2], columns, result.o, o, true);
        move_rows(shard, slabs, q[2], 1, result.lse, lse, true);
        free(o);
        free(lse);
    }
    if (ring_process != NULL && !problem->decode) {
        ring_process->sum(result.o, slabs * q[2] * columns);
        ring_process->sum(result.lse, slabs * q[2]);
    }
    return result;
}

static void read_rows(const struct ring_rank *rank, const struct test_tensor *tensor, const clattn_ring_shard *shard,
                      int64_t rows, double *whole) {
    const int64_t *dims = tensor->view.dims;
    double *part = test_array(dims[0] * dims[1] * dims[2] * dims[3]);
    const struct test_device before = use(&rank->device);
    test_read(tensor, part);
    use(&before);
    move_rows(shard, dims[0] * dims[1], rows, dims[3], whole, part, true);
    free(part);
}

struct reference_gradients ring_gradients(const struct ring_problem *problem) {
    struct reference_gradients got = gradients_make(problem->gradients);
    const int64_t nq = problem->whole.settings.q.dims[2], nk = problem->whole.settings.k.dims[2];
    for (int32_t i = 0; i < problem->ranks; i++) {
        const struct ring_rank *rank = &ring_ranks[i];
        if (!is_here(i))
            continue;
        read_rows(rank, &rank->dq, &problem->q_shards[i], nq, got.dq);
        read_rows(rank, &rank->dk, &problem->k_shards[i], nk, got.dk);
        read_rows(rank, &rank->dv, &problem->k_shards[i], nk, got.dv);
    }
    if (ring_process != NULL) {
        ring_process->sum(got.dq, gradient_count(problem->gradients, 'q'));
        ring_process->sum(got.dk, gradient_count(problem->gradients, 'k'));
        ring_process->sum(got.dv, gradient_count(problem->gradients, 'v'));
    }
    return got;
}

/* What no row looks at holds NaN on the devices, while the oracle sees the values. */
static clattn_ring_group *upload_poisoned(const struct ring_problem *problem) {
    struct ring_problem poisoned = *problem;
    const clattn_tensor *k = &problem->whole.settings.k, *v = &problem->whole.settings.v;
    poisoned.whole.k = test_array(reference_count(k));
    poisoned.whole.v = test_array(reference_count(v));
    memcpy(poisoned.whole.k, problem->whole.k, (size_t)reference_count(k) * sizeof(double));
    memcpy(poisoned.whole.v, problem->whole.v, (size_t)reference_count(v) * sizeof(double));
    attention_data_poison(&poisoned.whole, (double)NAN);
    clattn_ring_group *group = ring_upload(&poisoned, 60000);
    for (int32_t i = 0; i < problem->ranks; i++) {
        ring_ranks[i].op.k_shards = problem->k_shards;
        ring_ranks[i].backward.k_shards = problem->k_shards;
    }
    free(poisoned.whole.k);
    free(poisoned.whole.v);
    return group;
}

static void compare(const struct ring_problem *problem, const char *name) {
    const bool compares = is_here(0) || problem->decode;
    if (problem->gradients) {
        struct reference_gradients got = ring_gradients(problem);
        if (compares)
            gradients_compare(problem->gradients, &got, name);
        gradients_free(&got);
        return;
    }
    struct attention_result result = ring_result(problem);
    if (compares)
        attention_compare(&problem->whole, &result, name, 64);
    attention_result_free(&result);
}

void ring_check(const struct ring_problem *problem) {
    clattn_ring_group *group = upload_poisoned(problem);
    char name[32];
    snprintf(name, sizeof name, "%d ranks", (int)problem->ranks);
    ring_run(problem->ranks);
    for (int32_t i = 0; i < problem->ranks; i++)
        if (is_here(i) && ring_ranks[i].status != CLATTN_SUCCESS)
            fail_msg("rank %d: %s: %s", (int)i, clattn_status_name(ring_ranks[i].status), ring_ranks[i].text);
    compare(problem, name);
    ring_release(problem->ranks, &group);
}
