/* Attention of the same queries over keys that are spread over ranks: every rank's partial result goes round, and all
 * ranks merge them in the same order. */
#include "attention.h"
#include "operation.h"
#include "ring_call.h"
#include "ring_compute.h"
#include "ring_stage.h"
#include "status.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BATCH, HEAD, ROW, COLUMN };

void clattn_ring_decode_init(clattn_ring_decode_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_RING_DECODE;
    clattn_attention_init(&op->attention);
}

clattn_status clattn_ring_decode(clattn_context *context, const clattn_ring_decode_op *op,
                                 const clattn_ring_launch *launch) {
    return ring_call(context, op != NULL ? &op->head : NULL, launch, &ring_decode);
}

/* ---- partial results --------------------------------------------------------------------------------------------- */

/* Those of all ranks, by rank; o and lse are arrays of one memory. */
struct parts {
    size_t o_bytes, bytes; /* of the first and of both, of each */
    int32_t ranks;
    clattn_tensor *o, *lse;
};

static clattn_status make_parts(const clattn_attention_op *op, int32_t ranks, cl_mem buffer, size_t offset,
                                struct parts *parts) {
    const int64_t *q = op->q.dims, dims[4] = {q[BATCH], q[HEAD], q[ROW], op->v.dims[COLUMN]};
    parts->o_bytes = ring_area(check_product(dims, 4), CLATTN_F32);
    parts->bytes = parts->o_bytes + ring_area(check_product(dims, 3), CLATTN_F32);
    parts->ranks = ranks;
    parts->o = malloc(2 * (size_t)ranks * sizeof *parts->o);
    RETURN_IF(parts->o == NULL, CLATTN_OUT_OF_HOST_MEMORY, "ring decode: out of host memory for %d ranks", (int)ranks);
    parts->lse = parts->o + ranks;
    for (int32_t i = 0; i < ranks; i++) {
        const size_t at = offset + (size_t)i * parts->bytes;
        parts->o[i] = clattn_tensor_dense(buffer, CLATTN_F32, 4, dims);
        parts->lse[i] = clattn_tensor_dense(buffer, CLATTN_F32, 3, dims);
        parts->o[i].offset = (int64_t)(at / sizeof(float));
        parts->lse[i].offset = (int64_t)((at + parts->o_bytes) / sizeof(float));
    }
    return CLATTN_SUCCESS;
}

static void free_parts(struct parts *parts) {
    free(parts->o);
}

static clattn_attention_op attention_of(const clattn_attention_op *op, const struct parts *parts, int32_t rank) {
    clattn_attention_op own = *op;
    own.o = parts->o[rank];
    own.lse = parts->lse[rank];
    if (rank != 0)
        own.sinks.memory.kind = CLATTN_MEMORY_NONE;
    return own;
}

static clattn_attention_merge_op merge_of(const clattn_attention_op *op, const struct parts *parts) {
    clattn_attention_merge_op merge;
    clattn_attention_merge_init(&merge);
    merge.count = parts->ranks;
    merge.o_in = parts->o;
    merge.lse_in = parts->lse;
    merge.o = op->o;
    merge.lse = op->lse;
    return merge;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static clattn_status most_workspace(clattn_context *context, const struct operation *operation, const clattn_op *op,
                                    const struct problem *problem, const clattn_launch *launch, bool run_selftest,
                                    size_t *most) {
    struct choice choice;
    size_t bytes = 0;
    FORWARD(operation_choose(context, operation, op, problem, launch, run_selftest, &choice));
    FORWARD(operation->workspace(context, op, problem, &choice, &bytes));
    *most = bytes > *most ? bytes : *most;
    return CLATTN_SUCCESS;
}

static clattn_status scratch_of(clattn_context *context, const clattn_attention_op *op, const struct parts *parts,
                                const clattn_ring_launch *launch, bool run_selftest, size_t *bytes) {
    const clattn_launch forced = {.size = sizeof forced, .variant = launch->variant, .parameters = launch->parameters};
    const clattn_attention_op own = attention_of(op, parts, launch->transport->rank);
    const clattn_attention_merge_op merge = merge_of(op, parts);
    struct problem problem = {.op = CLATTN_OP_ATTENTION}, merge_problem = {.op = CLATTN_OP_ATTENTION_MERGE};
    attention_describe(&own, &problem);
    attention_merge_describe(&merge, &merge_problem);
    FORWARD(most_workspace(context, &operation_attention, &own.head, &problem, &forced, run_selftest, bytes));
    return most_workspace(context, &operation_attention_merge, &merge.head, &merge_problem, NULL, run_selftest, bytes);
}

/* No result is wanted; on all ranks alike, or some would wait for the others' parts. */
static bool is_empty(const clattn_attention_op *op) {
    return check_product(op->q.dims, 3) == 0 || (op->v.dims[COLUMN] == 0 && !tensor_is_present(&op->lse));
}

static uint64_t digest_of(const clattn_attention_op *op, int32_t ranks) {
    const int64_t values[] = {CLATTN_OP_RING_DECODE, ranks,       op->q.dims[BATCH], op->q.dims[HEAD], op->q.dims[ROW],
                              op->v.dims[COLUMN],    is_empty(op)};
    return XXH64(values, sizeof values, 0);
}

static clattn_status plan(clattn_context *context, const clattn_op *head, const clattn_ring_launch *launch,
                          bool run_selftest, struct ring_sizes *sizes) {
    const clattn_ring_decode_op *op = (const clattn_ring_decode_op *)head;
    const int32_t ranks = launch->transport->ranks;
    struct problem problem = {.op = CLATTN_OP_ATTENTION};
    struct parts parts;
    bool empty = false;
    size_t scratch = 0;
    FORWARD(check_op(context, head, CLATTN_OP_RING_DECODE, sizeof *op));
    const clattn_attention_op *attention = &op->attention;
    FORWARD(check_op(context, &attention->head, CLATTN_OP_ATTENTION, sizeof *attention));
    FORWARD(operation_attention.check(context, &attention->head, &problem, &empty));
    RETURN_IF(tensor_is_present(&attention->q_offsets), CLATTN_UNSUPPORTED,
              "q_offsets: not with keys that are spread over ranks");
    FORWARD(make_parts(attention, ranks, NULL, 0, &parts));
    const clattn_status status =
        empty ? CLATTN_SUCCESS : scratch_of(context, attention, &parts, launch, run_selftest, &scratch);
    sizes->host = empty ? 0 : (size_t)ranks * parts.bytes;
    sizes->device = sizes->host + scratch;
    sizes->digest = digest_of(attention, ranks);
    free_parts(&parts);
    return status;
}

/* ---- a rank's call ----------------------------------------------------------------------------------------------- */

struct rank {
    const clattn_attention_op *op;
    const clattn_ring_launch *launch;
    struct ring_talk *talk;
    struct ring_chain chain;
    struct parts parts;
};

static void *host_of(const struct rank *rank, int32_t i) {
    return (char *)rank->launch->host + (size_t)i * rank->parts.bytes;
}

static size_t device_of(const struct rank *rank, int32_t i) {
    return rank->launch->workspace.offset + (size_t)i * rank->parts.bytes;
}

/* This rank's result, in host memory on return. */
static clattn_status compute(struct rank *rank) {
    const clattn_ring_launch *launch = rank->launch;
    const int32_t own = launch->transport->rank;
    const size_t begin = (size_t)rank->parts.ranks * rank->parts.bytes;
    FORWARD(ring_chain_begin(&rank->chain, rank->chain.context, launch));
    rank->chain.launch.workspace = (clattn_workspace){.buffer = launch->workspace.buffer,
                                                      .offset = launch->workspace.offset + begin,
                                                      .size = launch->workspace.size - begin};
    const clattn_attention_op op = attention_of(rank->op, &rank->parts, own);
    FORWARD(ring_chain_add(&rank->chain, &op.head, NULL));
    FORWARD_CL(clFlush(launch->queue), "clFlush");
    FORWARD_CL(clEnqueueReadBuffer(launch->copy_queue, launch->workspace.buffer, CL_TRUE, device_of(rank, own),
                                   rank->parts.bytes, host_of(rank, own), 1, &rank->chain.last, NULL),
               "clEnqueueReadBuffer");
    return CLATTN_SUCCESS;
}

static void gather(struct rank *rank) {
    const clattn_ring_transport *transport = rank->launch->transport;
    for (int32_t step = 0; step < rank->parts.ranks - 1; step++) {
        ring_begin(rank->talk, 0, host_of(rank, ring_owner(transport, step)), rank->parts.bytes,
                   host_of(rank, ring_owner(transport, step + 1)), rank->parts.bytes);
        ring_wait(rank->talk, 0);
    }
}

/* What came from ranks first .. end - 1; waited for, since it is little. */
static clattn_status upload(const struct rank *rank, int32_t first, int32_t end) {
    const clattn_ring_launch *launch = rank->launch;
    if (first < end)
        FORWARD_CL(clEnqueueWriteBuffer(launch->copy_queue, launch->workspace.buffer, CL_TRUE, device_of(rank, first),
                                        (size_t)(end - first) * rank->parts.bytes, host_of(rank, first), 0, NULL, NULL),
                   "clEnqueueWriteBuffer");
    return CLATTN_SUCCESS;
}

static clattn_status merge(struct rank *rank, cl_event *event) {
    const int32_t own = rank->launch->transport->rank;
    const clattn_attention_merge_op op = merge_of(rank->op, &rank->parts);
    FORWARD(upload(rank, 0, own));
    FORWARD(upload(rank, own + 1, rank->parts.ranks));
    FORWARD(ring_chain_add(&rank->chain, &op.head, NULL));
    FORWARD_CL(clFlush(rank->launch->queue), "clFlush");
    FORWARD_CL(clRetainEvent(rank->chain.last), "clRetainEvent");
    *event = rank->chain.last;
    return CLATTN_SUCCESS;
}

static void run_rank(struct rank *rank, cl_event *event) {
    if (is_empty(rank->op)) {
        ring_note(rank->talk, ring_chain_begin(&rank->chain, rank->chain.context, rank->launch));
        *event = rank->chain.last;
        rank->chain.last = NULL;
        return;
    }
    ring_note(rank->talk, compute(rank));
    if (!ring_agree(rank->talk, 0))
        return;
    gather(rank);
    if (rank->talk->status == CLATTN_SUCCESS)
        ring_note(rank->talk, merge(rank, event));
}

static void run(clattn_context *context, const clattn_op *head, const clattn_ring_launch *launch,
                struct ring_talk *talk, cl_event *event) {
    struct rank rank = {.op = &((const clattn_ring_decode_op *)head)->attention,
                        .launch = launch,
                        .talk = talk,
                        .chain = {.context = context}};
    ring_note(talk, make_parts(rank.op, launch->transport->ranks, launch->workspace.buffer, launch->workspace.offset,
                               &rank.parts));
    if (talk->status == CLATTN_SUCCESS)
        run_rank(&rank, event);
    ring_chain_end(&rank.chain);
    free_parts(&rank.parts);
}

const struct ring_kind ring_decode = {.kind = CLATTN_OP_RING_DECODE, .plan = plan, .run = run};
