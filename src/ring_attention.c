/* Attention over several devices: the front-end and a rank's steps. In step s the rank has the keys of the rank s
 * places before it; while its queries attend to them they go on to the next rank, and those of step s + 1 come in. */
#include "attention.h"
#include "operation.h"
#include "ring_call.h"
#include "ring_compute.h"
#include "ring_stage.h"
#include "status.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

void clattn_ring_attention_init(clattn_ring_attention_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_RING_ATTENTION;
    clattn_attention_init(&op->attention);
}

clattn_status clattn_ring_attention(clattn_context *context, const clattn_ring_attention_op *op,
                                    const clattn_ring_launch *launch) {
    return ring_call(context, op != NULL ? &op->head : NULL, launch, &ring_attention);
}

static struct ring_attention_part part_of(const clattn_ring_attention_op *op) {
    return (struct ring_attention_part){.attention = &op->attention, .q_shard = &op->q_shard, .k_shards = op->k_shards};
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

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

/* Of a task whole and in parts. */
static clattn_status rows_workspace(clattn_context *context, const clattn_ring_attention_op *op,
                                    const struct ring_task *task, const clattn_tensor *k, const clattn_tensor *v,
                                    const clattn_launch *launch, bool run_selftest, size_t *most) {
    const int64_t rows = ring_rows_at_a_time(&op->attention);
    struct ring_results results;
    ring_results_place(&op->attention, NULL, 0, &results);
    const clattn_attention_op whole = ring_task_op(&op->attention, task, k, v, &results.o, &results.lse);
    FORWARD(task_workspace(context, &whole, launch, run_selftest, most));
    for (int64_t at = 0; at < task->q_rows && rows < task->q_rows; at += rows) {
        const struct ring_task some = ring_part_of_task(task, at, rows);
        clattn_attention_op part = ring_task_op(&op->attention, &some, k, v, &results.o, &results.lse);
        part.o = ring_rows(&results.part_o, 0, some.q_rows);
        part.lse = ring_rows(&results.part_lse, 0, some.q_rows);
        FORWARD(task_workspace(context, &part, launch, run_selftest, most));
    }
    return CLATTN_SUCCESS;
}

static clattn_status scratch_of(clattn_context *context, const clattn_ring_attention_op *op,
                                const struct ring_blocks *blocks, const clattn_ring_launch *launch, bool run_selftest,
                                size_t *bytes) {
    const struct ring_limits limits = ring_limits_of(&op->attention);
    const clattn_launch forced = {.size = sizeof forced, .variant = launch->variant, .parameters = launch->parameters};
    if (check_product(op->attention.q.dims, 3) == 0)
        return CLATTN_SUCCESS;
    for (int32_t step = 0; step < blocks->ranks; step++) {
        const int32_t owner = ring_owner(launch->transport, step);
        clattn_tensor k = op->attention.k, v = op->attention.v;
        if (step > 0)
            ring_block_place(blocks, owner, NULL, 0, &k, &v);
        struct ring_task tasks[RING_MOST_TASKS];
        const int count = ring_tasks(&op->q_shard, &op->k_shards[owner], &limits, tasks);
        for (int i = 0; i < count; i++)
            FORWARD(rows_workspace(context, op, &tasks[i], &k, &v, &forced, run_selftest, bytes));
    }
    return CLATTN_SUCCESS;
}

static clattn_status make_layout(clattn_context *context, const clattn_ring_attention_op *op,
                                 const struct ring_blocks *blocks, const clattn_ring_launch *launch, bool run_selftest,
                                 struct layout *layout) {
    size_t scratch = 0;
    FORWARD(scratch_of(context, op, blocks, launch, run_selftest, &scratch));
    layout->results = ring_device_bytes(blocks);
    layout->scratch = layout->results + ring_results_bytes(&op->attention);
    layout->total = layout->scratch + scratch;
    return CLATTN_SUCCESS;
}

/* All ranks' blocks can be read where they are. */
static bool shares(const clattn_ring_launch *launch) {
    return launch->transport->share != NULL;
}

static clattn_status plan(clattn_context *context, const clattn_op *head, const clattn_ring_launch *launch,
                          bool run_selftest, struct ring_sizes *sizes) {
    const clattn_ring_attention_op *op = (const clattn_ring_attention_op *)head;
    struct problem problem = {.op = CLATTN_OP_ATTENTION};
    struct layout layout;
    bool empty = false;
    FORWARD(check_op(context, head, CLATTN_OP_RING_ATTENTION, sizeof *op));
    const struct ring_attention_part part = part_of(op);
    FORWARD(ring_check_attention(context, &part, launch->transport, CHECK_OUTPUT));
    FORWARD(operation_attention.check(context, &op->attention.head, &problem, &empty)); /* what overlaps */
    const struct ring_blocks blocks = ring_blocks_of(&part, launch->transport);
    FORWARD(make_layout(context, op, &blocks, launch, run_selftest, &layout));
    sizes->device = layout.total;
    sizes->host = (shares(launch) ? 1 : RING_SLOTS) * ring_slot_bytes(&blocks);
    sizes->digest = ring_digest(&blocks, head->kind) + shares(launch);
    return CLATTN_SUCCESS;
}

/* ---- a rank's call ----------------------------------------------------------------------------------------------- */

struct rank {
    clattn_context *context;
    const clattn_ring_attention_op *op;
    const clattn_ring_launch *launch;
    struct ring_blocks blocks;
    struct ring_limits limits;
    struct layout layout;
    struct ring_talk *talk;
    struct ring_stage stage;
    struct ring_chain chain;
    struct ring_results results;
};

/* Enqueues what begins a call: the result of no key, and the way of this rank's keys to the others. */
static clattn_status start(struct rank *rank) {
    const clattn_attention_op *op = &rank->op->attention;
    const clattn_workspace *workspace = &rank->launch->workspace;
    ring_results_place(op, workspace->buffer, workspace->offset + rank->layout.results, &rank->results);
    if (rank->blocks.ranks > 1)
        FORWARD(ring_stage_pack(&rank->stage, &op->k, &op->v));
    FORWARD(ring_chain_begin(&rank->chain, rank->context, rank->launch));
    rank->chain.launch.workspace = (clattn_workspace){.buffer = workspace->buffer,
                                                      .offset = workspace->offset + rank->layout.scratch,
                                                      .size = workspace->size - rank->layout.scratch};
    return ring_chain_fill(&rank->chain, &rank->results.lse, -INFINITY, NULL);
}

static clattn_status compute(struct rank *rank, int32_t step) {
    const clattn_attention_op *op = &rank->op->attention;
    clattn_tensor k = op->k, v = op->v;
    struct ring_task tasks[RING_MOST_TASKS];
    const clattn_ring_shard *keys = &rank->blocks.shards[ring_owner(rank->launch->transport, step)];
    const int count = ring_tasks(&rank->op->q_shard, keys, &rank->limits, tasks);
    cl_event copied = NULL;
    if (count == 0 || check_product(op->q.dims, 3) == 0)
        return CLATTN_SUCCESS;
    if (step > 0) {
        FORWARD(ring_stage_upload(&rank->stage, step));
        ring_stage_place(&rank->stage, step, &k, &v);
        copied = rank->stage.copied[step % RING_SLOTS];
    }
    for (int i = 0; i < count; i++)
        FORWARD(ring_compute_task(&rank->chain, op, &tasks[i], &k, &v, copied, &rank->results));
    FORWARD_CL(clFlush(rank->launch->queue), "clFlush");
    return step > 0 ? ring_stage_used(&rank->stage, step, rank->chain.last) : CLATTN_SUCCESS;
}

/* Once this rank's block is on the host it is there for all ranks, which then need each other no more; false where all
 * leave. */
static bool share(struct rank *rank) {
    ring_note(rank->talk, ring_stage_settle(&rank->stage, 0));
    if (!ring_agree(rank->talk, 0))
        return false;
    ring_share(rank->talk, ring_stage_host(&rank->stage, 0), rank->stage.shared);
    return !rank->talk->broken;
}

/* The block of this step goes on, that of the next one comes in; false where all ranks leave. */
static bool pass_on(struct rank *rank, int32_t step) {
    const clattn_ring_transport *transport = rank->launch->transport;
    if (step == 0)
        ring_note(rank->talk, ring_stage_settle(&rank->stage, 0));
    ring_note(rank->talk, ring_stage_settle(&rank->stage, step + 1));
    if (!ring_agree(rank->talk, 0))
        return false;
    ring_begin(rank->talk, 0, ring_stage_host(&rank->stage, step),
               ring_block_bytes(&rank->blocks, ring_owner(transport, step)), ring_stage_host(&rank->stage, step + 1),
               ring_block_bytes(&rank->blocks, ring_owner(transport, step + 1)));
    ring_wait(rank->talk, 0);
    return true;
}

static void run_steps(struct rank *rank) {
    const int32_t ranks = rank->blocks.ranks;
    if (rank->talk->status == CLATTN_SUCCESS)
        ring_note(rank->talk, start(rank));
    for (int32_t step = 0; step < ranks; step++) {
        if (rank->talk->status == CLATTN_SUCCESS)
            ring_note(rank->talk, compute(rank, step));
        if (step < ranks - 1 && !(rank->stage.shared == NULL ? pass_on(rank, step) : step > 0 || share(rank)))
            return;
    }
}

/* Other ranks' memory is no longer read. */
static clattn_status settle_all(struct ring_stage *stage) {
    for (int32_t i = 0; i < RING_SLOTS; i++)
        FORWARD(ring_stage_settle(stage, i));
    return CLATTN_SUCCESS;
}

static void run(clattn_context *context, const clattn_op *head, const clattn_ring_launch *launch,
                struct ring_talk *talk, cl_event *event) {
    const clattn_ring_attention_op *op = (const clattn_ring_attention_op *)head;
    const struct ring_attention_part part = part_of(op);
    struct rank rank = {.context = context,
                        .op = op,
                        .launch = launch,
                        .blocks = ring_blocks_of(&part, launch->transport),
                        .limits = ring_limits_of(&op->attention),
                        .talk = talk};
    ring_note(talk, make_layout(context, op, &rank.blocks, launch, false, &rank.layout));
    ring_stage_begin(&rank.stage, context, launch, &rank.blocks);
    if (shares(launch) && rank.blocks.ranks > 1)
        ring_note(talk, ring_stage_share(&rank.stage));
    run_steps(&rank);
    if (talk->status == CLATTN_SUCCESS)
        ring_note(talk, ring_compute_end(&rank.chain, &op->attention, &rank.results, event));
    if (talk->status == CLATTN_SUCCESS && rank.stage.shared != NULL)
        ring_note(talk, settle_all(&rank.stage));
    ring_stage_end(&rank.stage);
    ring_chain_end(&rank.chain);
}

const struct ring_kind ring_attention = {.kind = CLATTN_OP_RING_ATTENTION, .plan = plan, .run = run};
