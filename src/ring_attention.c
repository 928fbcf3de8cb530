/* Attention over several devices: the front-end and a rank's steps. In step s the rank has the keys of the rank s places
 * before it; while its queries attend to them they go on to the next rank, and those of step s + 1 come in. */
#include "attention.h"
#include "operation.h"
#include "quantization.h"
#include "ring_compute.h"
#include "ring_stage.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { BATCH, HEAD, ROW, COLUMN };

void clattn_ring_attention_init(clattn_ring_attention_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_RING_ATTENTION;
    clattn_attention_init(&op->attention);
}

void clattn_ring_launch_init(clattn_ring_launch *launch, cl_command_queue queue, cl_command_queue copy_queue,
                             const clattn_ring_transport *transport) {
    memset(launch, 0, sizeof *launch);
    launch->size = sizeof *launch;
    launch->queue = queue;
    launch->copy_queue = copy_queue;
    launch->transport = transport;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_modifiers(const clattn_attention_op *op) {
    const struct {
        const char *name;
        bool present;
    } refused[] = {{"mask", tensor_is_present(&op->mask)},
                   {"bias", tensor_is_present(&op->bias)},
                   {"q_lengths", tensor_is_present(&op->q_lengths)},
                   {"k_lengths", tensor_is_present(&op->k_lengths)},
                   {"q_offsets", tensor_is_present(&op->q_offsets)},
                   {"k_offsets", tensor_is_present(&op->k_offsets)},
                   {"page_table", tensor_is_present(&op->page_table)},
                   {"max_q", op->max_q != 0},
                   {"max_k", op->max_k != 0},
                   {"k", quantization_is_of(&op->k)},
                   {"v", quantization_is_of(&op->v)}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        RETURN_IF(refused[i].present, CLATTN_UNSUPPORTED, "%s: %s keys that are spread over ranks", refused[i].name,
                  i < 9 ? "not with" : "quantised; not with");
    RETURN_IF(op->causal == CLATTN_CAUSAL_BOTTOM_RIGHT && !op->has_diagonal, CLATTN_INVALID_ARGUMENT,
              "causal: CLATTN_CAUSAL_BOTTOM_RIGHT needs a diagonal: a rank does not know how many queries there are");
    return CLATTN_SUCCESS;
}

static clattn_status check_rows(const char *name, const clattn_tensor *tensor, const char *shard_name,
                                const clattn_ring_shard *shard) {
    const int64_t rows = clattn_ring_shard_rows(shard);
    RETURN_IF(tensor->dims[ROW] != rows, CLATTN_INVALID_ARGUMENT,
              "%s: dims[2] = %" PRId64 ", but %s has %" PRId64 " rows", name, tensor->dims[ROW], shard_name, rows);
    RETURN_IF(rows > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED, "%s: length %" PRId64 " is above %" PRId64, name, rows,
              ATTENTION_MAX_LENGTH);
    return CLATTN_SUCCESS;
}

static clattn_status check(clattn_context *context, const clattn_ring_attention_op *op,
                           const clattn_ring_transport *transport) {
    const clattn_attention_op *attention = &op->attention;
    FORWARD(check_op(context, &op->head, CLATTN_OP_RING_ATTENTION, sizeof *op));
    FORWARD(check_op(context, &attention->head, CLATTN_OP_ATTENTION, sizeof *attention));
    FORWARD(check_modifiers(attention));
    FORWARD(attention_check(context, attention, CHECK_OUTPUT));
    FORWARD(ring_check_shard("q_shard", &op->q_shard));
    FORWARD(ring_check_shards(op->k_shards, transport->ranks));
    FORWARD(check_rows("q", &attention->q, "q_shard", &op->q_shard));
    return check_rows("k", &attention->k, "k_shards[rank]", &op->k_shards[transport->rank]);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static struct ring_blocks blocks_of(const clattn_ring_attention_op *op, const clattn_ring_transport *transport) {
    const struct ring_blocks blocks = {.batch = op->attention.k.dims[BATCH],
                                       .heads = op->attention.k.dims[HEAD],
                                       .head_dim = op->attention.k.dims[COLUMN],
                                       .value_dim = op->attention.v.dims[COLUMN],
                                       .dtype = op->attention.k.dtype,
                                       .shards = op->k_shards,
                                       .ranks = transport->ranks};
    return blocks;
}

/* What must be the same on all ranks. */
static uint64_t digest_of(const struct ring_blocks *blocks, clattn_op_kind kind) {
    const int64_t values[] = {(int64_t)kind,    blocks->ranks,     blocks->batch,         blocks->heads,
                              blocks->head_dim, blocks->value_dim, (int64_t)blocks->dtype};
    return XXH64(blocks->shards, (size_t)blocks->ranks * sizeof *blocks->shards, XXH64(values, sizeof values, 0));
}

/* Where things lie in the workspace, in bytes from its beginning. */
struct layout {
    size_t results, scratch, total;
};

/* The workspace of a task's attention: as large as its kind of problem needs wherever its tensors lie. */
static clattn_status task_workspace(clattn_context *context, const clattn_attention_op *part,
                                    const clattn_launch *launch, bool run_selftest, size_t *most) {
    struct problem problem = {.op = CLATTN_OP_ATTENTION};
    struct choice choice;
    size_t bytes = 0;
    attention_describe(part, &problem);
    FORWARD(operation_choose(context, &operation_attention, &part->head, &problem, launch, run_selftest, &choice));
    FORWARD(operation_attention.workspace(context, &part->head, &problem, &choice, &bytes));
    *most = bytes > *most ? bytes : *most;
    return CLATTN_SUCCESS;
}

static clattn_tensor block_of(const struct ring_blocks *blocks, int32_t owner, int64_t columns) {
    const int64_t dims[4] = {blocks->batch, blocks->heads, clattn_ring_shard_rows(&blocks->shards[owner]), columns};
    return clattn_tensor_dense(NULL, blocks->dtype, 4, dims);
}

static clattn_status scratch_of(clattn_context *context, const clattn_ring_attention_op *op,
                                const clattn_ring_launch *launch, bool run_selftest, size_t *bytes) {
    const struct ring_blocks blocks = blocks_of(op, launch->transport);
    const struct ring_limits limits = ring_limits_of(&op->attention);
    const clattn_launch forced = {.size = sizeof forced, .variant = launch->variant, .parameters = launch->parameters};
    struct ring_results results;
    ring_results_place(&op->attention, NULL, 0, &results);
    for (int32_t step = 0; step < blocks.ranks; step++) {
        const int32_t owner = ring_owner(launch->transport, step);
        const clattn_tensor k = step == 0 ? op->attention.k : block_of(&blocks, owner, blocks.head_dim);
        const clattn_tensor v = step == 0 ? op->attention.v : block_of(&blocks, owner, blocks.value_dim);
        struct ring_task tasks[RING_MOST_TASKS];
        const int count = ring_tasks(&op->q_shard, &op->k_shards[owner], &limits, tasks);
        for (int i = 0; i < count; i++) {
            const clattn_attention_op part = ring_task_op(&op->attention, &tasks[i], &k, &v, &results.o, &results.lse);
            FORWARD(task_workspace(context, &part, &forced, run_selftest, bytes));
        }
    }
    return CLATTN_SUCCESS;
}

static clattn_status make_layout(clattn_context *context, const clattn_ring_attention_op *op,
                                 const clattn_ring_launch *launch, bool run_selftest, struct layout *layout) {
    const struct ring_blocks blocks = blocks_of(op, launch->transport);
    size_t scratch = 0;
    FORWARD(scratch_of(context, op, launch, run_selftest, &scratch));
    layout->results = RING_SLOTS * ring_slot_bytes(&blocks);
    layout->scratch = layout->results + ring_results_bytes(&op->attention);
    layout->total = layout->scratch + scratch;
    return CLATTN_SUCCESS;
}

static clattn_status check_launch_size(const clattn_ring_launch *launch) {
    RETURN_IF(launch == NULL, CLATTN_INVALID_ARGUMENT, "launch is NULL");
    RETURN_IF(launch->size < sizeof *launch, CLATTN_INVALID_ARGUMENT,
              "launch: size is %zu; was clattn_ring_launch_init() called?", launch->size);
    return ring_check_transport(launch->transport);
}

clattn_status clattn_ring_staging(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch,
                                  size_t *device_bytes, size_t *host_bytes) {
    const clattn_ring_attention_op *attention = (const clattn_ring_attention_op *)op;
    struct layout layout;
    RETURN_IF(device_bytes == NULL, CLATTN_INVALID_ARGUMENT, "device_bytes is NULL");
    RETURN_IF(host_bytes == NULL, CLATTN_INVALID_ARGUMENT, "host_bytes is NULL");
    *device_bytes = *host_bytes = 0;
    FORWARD(check_launch_size(launch));
    FORWARD(check(context, attention, launch->transport));
    FORWARD(make_layout(context, attention, launch, false, &layout));
    const struct ring_blocks blocks = blocks_of(attention, launch->transport);
    *device_bytes = layout.total;
    *host_bytes = RING_SLOTS * ring_slot_bytes(&blocks);
    return CLATTN_SUCCESS;
}

/* ---- a rank's call ----------------------------------------------------------------------------------------------- */

struct ring_call {
    clattn_context *context;
    const clattn_ring_attention_op *op;
    const clattn_ring_launch *launch;
    struct ring_blocks blocks;
    struct ring_limits limits;
    struct layout layout;
    struct ring_talk talk;
    struct ring_stage stage;
    struct ring_chain chain;
    struct ring_results results;
};

static clattn_status check_queues(clattn_context *context, const clattn_ring_launch *launch, size_t workspace) {
    const clattn_launch compute = {.size = sizeof compute,
                                   .queue = launch->queue,
                                   .num_events_in_wait_list = launch->num_events_in_wait_list,
                                   .event_wait_list = launch->event_wait_list,
                                   .workspace = launch->workspace};
    const clattn_launch copy = {.size = sizeof copy, .queue = launch->copy_queue};
    FORWARD(check_launch(context, &compute, workspace));
    RETURN_IF(launch->copy_queue == NULL, CLATTN_INVALID_ARGUMENT, "copy_queue is NULL");
    return check_launch(context, &copy, 0);
}

static clattn_status check_host(const clattn_ring_launch *launch, size_t bytes) {
    RETURN_IF(bytes > 0 && launch->host == NULL, CLATTN_INVALID_ARGUMENT, "host is NULL, and %zu bytes are needed",
              bytes);
    RETURN_IF((uintptr_t)launch->host % 64 != 0, CLATTN_INVALID_ARGUMENT, "host: %p is not aligned to 64 bytes",
              launch->host);
    RETURN_IF(launch->host_size < bytes, CLATTN_WORKSPACE_TOO_SMALL, "host_size: %zu bytes are given, %zu are needed",
              launch->host_size, bytes);
    return CLATTN_SUCCESS;
}

/* Everything that this rank can be refused for. */
static clattn_status prepare(struct ring_call *call) {
    const clattn_ring_transport *transport = call->launch->transport;
    FORWARD(check(call->context, call->op, transport));
    call->blocks = blocks_of(call->op, transport);
    call->limits = ring_limits_of(&call->op->attention);
    FORWARD(make_layout(call->context, call->op, call->launch, false, &call->layout));
    FORWARD(check_queues(call->context, call->launch, call->layout.total));
    FORWARD(check_host(call->launch, RING_SLOTS * ring_slot_bytes(&call->blocks)));
    /* Self-tests run kernels: what is refused without them has been refused by now. */
    FORWARD(make_layout(call->context, call->op, call->launch, true, &call->layout));
    return check_queues(call->context, call->launch, call->layout.total);
}

/* Enqueues what begins a call: the result of no key, and the way of this rank's keys to the others. */
static clattn_status start(struct ring_call *call) {
    const clattn_attention_op *op = &call->op->attention;
    const clattn_workspace *workspace = &call->launch->workspace;
    ring_results_place(op, workspace->buffer, workspace->offset + call->layout.results, &call->results);
    if (call->blocks.ranks > 1)
        FORWARD(ring_stage_pack(&call->stage, &op->k, &op->v));
    FORWARD(ring_chain_begin(&call->chain, call->context, call->launch));
    call->chain.launch.workspace = (clattn_workspace){.buffer = workspace->buffer,
                                                      .offset = workspace->offset + call->layout.scratch,
                                                      .size = workspace->size - call->layout.scratch};
    return ring_chain_fill(&call->chain, &call->results.lse, -INFINITY);
}

static clattn_status compute(struct ring_call *call, int32_t step) {
    const clattn_attention_op *op = &call->op->attention;
    clattn_tensor k = op->k, v = op->v;
    struct ring_task tasks[RING_MOST_TASKS];
    const clattn_ring_shard *keys = &call->blocks.shards[ring_owner(call->launch->transport, step)];
    const int count = ring_tasks(&call->op->q_shard, keys, &call->limits, tasks);
    cl_event copied = NULL;
    if (count == 0 || check_product(op->q.dims, 3) == 0)
        return CLATTN_SUCCESS;
    if (step > 0) {
        FORWARD(ring_stage_upload(&call->stage, step, &k, &v));
        copied = call->stage.copied[step % RING_SLOTS];
    }
    for (int i = 0; i < count; i++)
        FORWARD(ring_compute_task(&call->chain, op, &tasks[i], &k, &v, copied, &call->results));
    FORWARD_CL(clFlush(call->launch->queue), "clFlush");
    return step > 0 ? ring_stage_used(&call->stage, step, call->chain.last) : CLATTN_SUCCESS;
}

/* The block of this step goes on, that of the next one comes in; false where all ranks leave. */
static bool pass_on(struct ring_call *call, int32_t step) {
    const clattn_ring_transport *transport = call->launch->transport;
    if (step == 0)
        ring_note(&call->talk, ring_stage_settle(&call->stage, 0));
    ring_note(&call->talk, ring_stage_settle(&call->stage, step + 1));
    if (!ring_agree(&call->talk, 0))
        return false;
    ring_begin(&call->talk, 0, ring_stage_host(&call->stage, step),
               ring_block_bytes(&call->blocks, ring_owner(transport, step)), ring_stage_host(&call->stage, step + 1),
               ring_block_bytes(&call->blocks, ring_owner(transport, step + 1)));
    ring_wait(&call->talk, 0);
    return true;
}

static void run_steps(struct ring_call *call) {
    const int32_t ranks = call->blocks.ranks;
    ring_note(&call->talk, start(call));
    for (int32_t step = 0; step < ranks; step++) {
        if (call->talk.status == CLATTN_SUCCESS)
            ring_note(&call->talk, compute(call, step));
        if (step < ranks - 1 && !pass_on(call, step))
            return;
    }
}

static void finish(struct ring_call *call) {
    cl_event event = NULL;
    if (call->talk.status == CLATTN_SUCCESS)
        ring_note(&call->talk, ring_compute_end(&call->chain, &call->op->attention, &call->results, &event));
    if (ring_agree(&call->talk, 0) && call->launch->event != NULL) {
        *call->launch->event = event;
        event = NULL;
    }
    if (event != NULL)
        clReleaseEvent(event);
}

/* A call that fails leaves nothing running, whatever of it was enqueued. */
static void settle_queues(const clattn_ring_launch *launch) {
    (void)clFinish(launch->copy_queue);
    (void)clFinish(launch->queue);
}

clattn_status clattn_ring_attention(clattn_context *context, const clattn_ring_attention_op *op,
                                    const clattn_ring_launch *launch) {
    struct ring_call call = {.context = context, .op = op, .launch = launch};
    FORWARD(check_launch_size(launch));
    ring_talk_begin(&call.talk, launch->transport);
    ring_note(&call.talk, prepare(&call));
    const uint64_t digest = call.talk.status == CLATTN_SUCCESS ? digest_of(&call.blocks, CLATTN_OP_RING_ATTENTION) : 0;
    if (ring_agree(&call.talk, digest)) {
        ring_stage_begin(&call.stage, context, launch, &call.blocks);
        run_steps(&call);
        finish(&call);
        if (call.talk.status != CLATTN_SUCCESS)
            settle_queues(launch);
        ring_stage_end(&call.stage);
        ring_chain_end(&call.chain);
    }
    if (launch->waited != NULL)
        *launch->waited = (double)call.talk.waited_ns * 1e-9;
    return ring_talk_end(&call.talk);
}
