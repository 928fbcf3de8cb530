/* Gradients of attention over several devices. Keys and values go round as in the forward call. The gradients of a
 * block follow it one step behind: what ranks have added up comes in while this rank's part is computed, the two are
 * added, and the sum goes on while the next part is computed; after the last step it goes home. */
#include "attention.h"
#include "attention_gradients.h"
#include "operation.h"
#include "ring_call.h"
#include "ring_gradients.h"
#include "ring_stage.h"
#include "ring_sums.h"
#include "status.h"
#include "tensor.h"

#include <string.h>

enum { KEYS, GRADIENTS }; /* tags of messages */

void clattn_ring_attention_backward_init(clattn_ring_attention_backward_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_RING_ATTENTION_BACKWARD;
    clattn_attention_backward_init(&op->backward);
}

clattn_status clattn_ring_attention_backward(clattn_context *context, const clattn_ring_attention_backward_op *op,
                                             const clattn_ring_launch *launch) {
    return ring_call(context, op != NULL ? &op->head : NULL, launch, &ring_attention_backward);
}

static struct ring_attention_part part_of(const clattn_ring_attention_backward_op *op) {
    return (struct ring_attention_part){
        .attention = &op->backward.attention, .q_shard = &op->q_shard, .k_shards = op->k_shards};
}

/* ---- checks and sizes -------------------------------------------------------------------------------------------- */

static clattn_status check(clattn_context *context, const clattn_ring_attention_backward_op *op,
                           const clattn_ring_transport *transport) {
    const clattn_attention_backward_op *backward = &op->backward;
    const struct {
        const char *name;
        const clattn_tensor *tensor;
    } required[] = {{"dq", &backward->dq}, {"dk", &backward->dk}, {"dv", &backward->dv}};
    struct problem problem = {.op = CLATTN_OP_ATTENTION_BACKWARD};
    bool empty = false;
    const struct ring_attention_part part = part_of(op);
    FORWARD(check_op(context, &backward->head, CLATTN_OP_ATTENTION_BACKWARD, sizeof *backward));
    FORWARD(ring_check_attention(context, &part, transport, CHECK_INPUT));
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        RETURN_IF(!tensor_is_present(required[i].tensor), CLATTN_INVALID_ARGUMENT,
                  "%s: absent; a rank gives all of dq, dk and dv", required[i].name);
    RETURN_IF(tensor_is_present(&backward->dsinks), CLATTN_UNSUPPORTED,
              "dsinks: not with keys that are spread over ranks");
    return operation_attention_backward.check(context, &backward->head, &problem, &empty);
}

struct layout {
    struct ring_gradient_layout gradients;
    size_t scratch, total;
};

static clattn_status task_workspace(clattn_context *context, const clattn_attention_backward_op *part,
                                    const clattn_launch *launch, bool run_selftest, size_t *most) {
    const struct operation *operation = &operation_attention_backward;
    struct problem problem = {.op = CLATTN_OP_ATTENTION_BACKWARD};
    struct choice choice;
    size_t bytes = 0;
    attention_gradients_describe(part, CLATTN_F32, &problem);
    FORWARD(operation_choose(context, operation, &part->head, &problem, launch, run_selftest, &choice));
    FORWARD(operation->workspace(context, &part->head, &problem, &choice, &bytes));
    *most = bytes > *most ? bytes : *most;
    return CLATTN_SUCCESS;
}

static clattn_tensor dq_of(const clattn_attention_backward_op *op, cl_mem buffer, size_t at) {
    clattn_tensor dq = clattn_tensor_dense(buffer, CLATTN_F32, 4, op->attention.q.dims);
    dq.offset = (int64_t)(at / sizeof(float));
    return dq;
}

static clattn_status scratch_of(clattn_context *context, const clattn_ring_attention_backward_op *op,
                                const struct ring_blocks *blocks, const struct ring_blocks *gradients,
                                const clattn_ring_launch *launch, bool run_selftest, size_t *bytes) {
    const clattn_attention_backward_op *backward = &op->backward;
    const struct ring_limits limits = ring_limits_of(&backward->attention);
    const clattn_launch forced = {.size = sizeof forced, .variant = launch->variant, .parameters = launch->parameters};
    const clattn_tensor dq = dq_of(backward, NULL, 0);
    if (check_product(backward->attention.q.dims, 3) == 0)
        return CLATTN_SUCCESS;
    for (int32_t step = 0; step < blocks->ranks; step++) {
        const int32_t owner = ring_owner(launch->transport, step);
        clattn_tensor k = backward->attention.k, v = backward->attention.v, dk, dv;
        struct ring_task tasks[RING_MOST_TASKS];
        if (step > 0)
            ring_block_place(blocks, owner, NULL, 0, &k, &v);
        ring_block_place(gradients, owner, NULL, 0, &dk, &dv);
        const int count = ring_tasks(&op->q_shard, &op->k_shards[owner], &limits, tasks);
        for (int i = 0; i < count; i++) {
            const clattn_attention_backward_op part = ring_gradient_op(backward, &tasks[i], &k, &v, &dq, &dk, &dv);
            FORWARD(task_workspace(context, &part, &forced, run_selftest, bytes));
        }
    }
    return CLATTN_SUCCESS;
}

static clattn_status make_layout(clattn_context *context, const clattn_ring_attention_backward_op *op,
                                 const struct ring_blocks *blocks, const clattn_ring_launch *launch, bool run_selftest,
                                 struct layout *layout) {
    size_t scratch = 0;
    ring_gradient_layout(&op->backward, blocks, ring_device_bytes(blocks), &layout->gradients);
    FORWARD(scratch_of(context, op, blocks, &layout->gradients.blocks, launch, run_selftest, &scratch));
    layout->scratch = layout->gradients.end;
    layout->total = layout->scratch + scratch;
    return CLATTN_SUCCESS;
}

static clattn_status plan(clattn_context *context, const clattn_op *head, const clattn_ring_launch *launch,
                          bool run_selftest, struct ring_sizes *sizes) {
    const clattn_ring_attention_backward_op *op = (const clattn_ring_attention_backward_op *)head;
    struct layout layout;
    FORWARD(check_op(context, head, CLATTN_OP_RING_ATTENTION_BACKWARD, sizeof *op)); /* before any of it is read */
    FORWARD(check(context, op, launch->transport));
    const struct ring_attention_part part = part_of(op);
    const struct ring_blocks blocks = ring_blocks_of(&part, launch->transport);
    FORWARD(make_layout(context, op, &blocks, launch, run_selftest, &layout));
    sizes->device = layout.total;
    sizes->host = RING_SLOTS * (ring_slot_bytes(&blocks) + ring_slot_bytes(&layout.gradients.blocks));
    sizes->digest = ring_digest(&blocks, head->kind);
    return CLATTN_SUCCESS;
}

/* ---- a rank's call ----------------------------------------------------------------------------------------------- */

struct rank {
    clattn_context *context;
    const clattn_ring_attention_backward_op *op;
    const clattn_ring_launch *launch;
    struct ring_blocks blocks;
    struct ring_limits limits;
    struct layout layout;
    struct ring_talk *talk;
    struct ring_stage stage;
    struct ring_chain chain;
    struct ring_gradients gradients;
    struct ring_sums sums;
};

static size_t place_of(const struct rank *rank, size_t at) {
    return rank->launch->workspace.offset + at;
}

static int32_t owner_of(const struct rank *rank, int32_t step) {
    return ring_owner(rank->launch->transport, step);
}

static int tasks_of(const struct rank *rank, int32_t step, struct ring_task *tasks) {
    if (check_product(rank->op->backward.attention.q.dims, 3) == 0)
        return 0;
    return ring_tasks(&rank->op->q_shard, &rank->op->k_shards[owner_of(rank, step)], &rank->limits, tasks);
}

/* This rank adds nothing to the block's gradients, which pass through host memory alone. */
static bool passes_through(const struct rank *rank, int32_t step) {
    struct ring_task tasks[RING_MOST_TASKS];
    return step > 0 && tasks_of(rank, step, tasks) == 0;
}

/* Enqueues what begins a call: sums of nothing, and the way of this rank's keys to the others. */
static clattn_status start(struct rank *rank) {
    const clattn_attention_backward_op *op = &rank->op->backward;
    const clattn_workspace *workspace = &rank->launch->workspace;
    const struct ring_gradient_layout *at = &rank->layout.gradients;
    rank->gradients.dq = dq_of(op, workspace->buffer, place_of(rank, at->dq));
    rank->gradients.dq_part = dq_of(op, workspace->buffer, place_of(rank, at->dq_part));
    if (rank->blocks.ranks > 1)
        FORWARD(ring_stage_pack(&rank->stage, &op->attention.k, &op->attention.v));
    FORWARD(ring_chain_begin(&rank->chain, rank->context, rank->launch));
    rank->chain.launch.workspace = (clattn_workspace){.buffer = workspace->buffer,
                                                      .offset = place_of(rank, rank->layout.scratch),
                                                      .size = workspace->size - rank->layout.scratch};
    return ring_chain_fill(&rank->chain, &rank->gradients.dq, 0, NULL);
}

/* The sums of a step, all zeros once they were read two steps later. */
static clattn_status clear_sums(struct rank *rank, int32_t step) {
    const struct ring_gradient_layout *at = &rank->layout.gradients;
    const cl_mem buffer = rank->launch->workspace.buffer;
    const int32_t owner = owner_of(rank, step), slot = step % RING_SLOTS;
    struct ring_gradients *g = &rank->gradients;
    ring_block_place(&at->blocks, owner, buffer, place_of(rank, at->sum[slot]), &g->dk, &g->dv);
    ring_block_place(&at->blocks, owner, buffer, place_of(rank, at->part), &g->dk_part, &g->dv_part);
    g->keys_begun = 0;
    FORWARD(ring_chain_fill(&rank->chain, &g->dk, 0, rank->sums.read[slot]));
    return ring_chain_fill(&rank->chain, &g->dv, 0, rank->sums.read[slot]);
}

/* Enqueues this rank's part of a block's gradients; its keys are on their way to the device. */
static clattn_status compute(struct rank *rank, int32_t step) {
    const clattn_attention_backward_op *op = &rank->op->backward;
    clattn_tensor k = op->attention.k, v = op->attention.v;
    struct ring_task tasks[RING_MOST_TASKS];
    const int count = tasks_of(rank, step, tasks);
    if (passes_through(rank, step))
        return CLATTN_SUCCESS;
    FORWARD(clear_sums(rank, step));
    if (step > 0)
        ring_stage_place(&rank->stage, step, &k, &v);
    const cl_event copied = step > 0 ? rank->stage.copied[step % RING_SLOTS] : NULL;
    for (int i = 0; i < count; i++)
        FORWARD(ring_gradient_task(&rank->chain, op, &tasks[i], &k, &v, copied, &rank->gradients));
    FORWARD_CL(clFlush(rank->launch->queue), "clFlush");
    return step > 0 ? ring_stage_used(&rank->stage, step, rank->chain.last) : CLATTN_SUCCESS;
}

static clattn_status add_received(struct rank *rank, int32_t step) {
    const clattn_tensor to[2] = {rank->gradients.dk, rank->gradients.dv};
    clattn_tensor received[2];
    FORWARD(ring_sums_upload(&rank->sums, step, received));
    FORWARD(ring_add(&rank->chain, 2, to, received, rank->sums.wrote));
    FORWARD_CL(clFlush(rank->launch->queue), "clFlush");
    return CLATTN_SUCCESS;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Host memory that the transfers of this step use is no longer used by the device. */
static clattn_status settle(struct rank *rank, int32_t step) {
    if (step == 0)
        FORWARD(ring_stage_settle(&rank->stage, 0));
    FORWARD(ring_stage_settle(&rank->stage, step + 1));
    return ring_sums_settle(&rank->sums, step);
}

/* The sums of the step before go on, those of this step's block come in. */
static void begin_sums(struct rank *rank, int32_t step) {
    ring_begin(rank->talk, GRADIENTS, rank->sums.out, ring_sums_bytes(&rank->sums, step - 1), rank->sums.in,
               ring_sums_bytes(&rank->sums, step));
}

static void begin_keys(struct rank *rank, int32_t step) {
    ring_begin(rank->talk, KEYS, ring_stage_host(&rank->stage, step),
               ring_block_bytes(&rank->blocks, owner_of(rank, step)), ring_stage_host(&rank->stage, step + 1),
               ring_block_bytes(&rank->blocks, owner_of(rank, step + 1)));
}

/* What came in joins this rank's part, or goes on as it is. */
static clattn_status join_sums(struct rank *rank, int32_t step) {
    if (!passes_through(rank, step))
        return add_received(rank, step);
    ring_sums_pass(&rank->sums);
    return CLATTN_SUCCESS;
}

/* The next block's keys go up before the sums come down: those wait for this step's computations. */
static clattn_status move_on(struct rank *rank, int32_t step) {
    if (step + 1 < rank->blocks.ranks && !passes_through(rank, step + 1))
        FORWARD(ring_stage_upload(&rank->stage, step + 1));
    return passes_through(rank, step) ? CLATTN_SUCCESS : ring_sums_read(&rank->sums, step, rank->chain.last);
}

static void note(struct rank *rank, clattn_status (*action)(struct rank *rank, int32_t step), int32_t step) {
    if (rank->talk->status == CLATTN_SUCCESS)
        ring_note(rank->talk, action(rank, step));
}

/* False where all ranks leave. */
static bool run_step(struct rank *rank, int32_t step) {
    const bool last = step == rank->blocks.ranks - 1;
    note(rank, compute, step);
    note(rank, settle, step);
    if (!ring_agree(rank->talk, 0))
        return false;
    if (!last)
        begin_keys(rank, step);
    if (step > 0) {
        begin_sums(rank, step);
        ring_wait(rank->talk, GRADIENTS);
        note(rank, join_sums, step);
    }
    ring_wait(rank->talk, KEYS);
    note(rank, move_on, step);
    return true;
}

/* The sums of the last step go home to the next rank; this rank's come from the one before. */
static bool run_way_home(struct rank *rank) {
    note(rank, settle, rank->blocks.ranks);
    if (!ring_agree(rank->talk, 0))
        return false;
    begin_sums(rank, rank->blocks.ranks);
    ring_wait(rank->talk, GRADIENTS);
    return true;
}

static clattn_status write_result(struct rank *rank, const clattn_tensor *from, const clattn_tensor *to,
                                  cl_event after) {
    clattn_cast_op op;
    clattn_cast_init(&op);
    op.x = *from;
    op.y = *to;
    return ring_chain_add(&rank->chain, &op.head, after);
}

static clattn_status write_results(struct rank *rank, cl_event *event) {
    const clattn_attention_backward_op *op = &rank->op->backward;
    clattn_tensor home[2] = {rank->gradients.dk, rank->gradients.dv};
    if (rank->blocks.ranks > 1)
        FORWARD(ring_sums_upload(&rank->sums, rank->blocks.ranks, home));
    FORWARD(write_result(rank, &home[0], &op->dk, rank->sums.wrote));
    FORWARD(write_result(rank, &home[1], &op->dv, NULL));
    FORWARD(write_result(rank, &rank->gradients.dq, &op->dq, NULL));
    FORWARD_CL(clFlush(rank->launch->queue), "clFlush");
    FORWARD_CL(clRetainEvent(rank->chain.last), "clRetainEvent");
    *event = rank->chain.last;
    return CLATTN_SUCCESS;
}

static void run_rank(struct rank *rank, cl_event *event) {
    const int32_t ranks = rank->blocks.ranks;
    ring_note(rank->talk, start(rank));
    if (ranks == 1)
        note(rank, compute, 0);
    for (int32_t step = 0; step < ranks && ranks > 1; step++)
        if (!run_step(rank, step))
            return;
    if (ranks > 1 && !run_way_home(rank))
        return;
    if (rank->talk->status == CLATTN_SUCCESS)
        ring_note(rank->talk, write_results(rank, event));
}

static void run(clattn_context *context, const clattn_op *head, const clattn_ring_launch *launch,
                struct ring_talk *talk, cl_event *event) {
    const clattn_ring_attention_backward_op *op = (const clattn_ring_attention_backward_op *)head;
    const struct ring_attention_part part = part_of(op);
    struct rank rank = {.context = context,
                        .op = op,
                        .launch = launch,
                        .blocks = ring_blocks_of(&part, launch->transport),
                        .limits = ring_limits_of(&op->backward.attention),
                        .talk = talk};
    ring_note(talk, make_layout(context, op, &rank.blocks, launch, false, &rank.layout));
    ring_sums_begin(&rank.sums, launch, &rank.layout.gradients, RING_SLOTS * ring_slot_bytes(&rank.blocks));
    ring_stage_begin(&rank.stage, context, launch, &rank.blocks);
    if (talk->status == CLATTN_SUCCESS)
        run_rank(&rank, event);
    ring_sums_end(&rank.sums);
    ring_stage_end(&rank.stage);
    ring_chain_end(&rank.chain);
}

const struct ring_kind ring_attention_backward = {.kind = CLATTN_OP_RING_ATTENTION_BACKWARD, .plan = plan, .run = run};
