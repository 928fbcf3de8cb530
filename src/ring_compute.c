/* Partial attentions of a rank and their merges. */
#include "ring_compute.h"
#include "operation.h"
#include "ring_stage.h"
#include "status.h"
#include "tensor.h"

#include <string.h>

enum { BATCH, HEAD, ROW, COLUMN };

/* ---- commands in a row ------------------------------------------------------------------------------------------- */

clattn_status ring_chain_begin(struct ring_chain *chain, clattn_context *context, const clattn_ring_launch *launch) {
    memset(chain, 0, sizeof *chain);
    chain->context = context;
    clattn_launch_init(&chain->launch, launch->queue);
    chain->variant = launch->variant;
    chain->parameters = launch->parameters;
    FORWARD_CL(clEnqueueMarkerWithWaitList(launch->queue, launch->num_events_in_wait_list, launch->event_wait_list,
                                           &chain->last),
               "clEnqueueMarkerWithWaitList");
    return CLATTN_SUCCESS;
}

void ring_chain_end(struct ring_chain *chain) {
    ring_event_keep(&chain->last, NULL);
}

clattn_status ring_chain_add(struct ring_chain *chain, const clattn_op *op, cl_event after) {
    const cl_event events[2] = {chain->last, after};
    cl_event next = NULL;
    clattn_launch launch = chain->launch;
    launch.num_events_in_wait_list = after != NULL ? 2 : 1;
    launch.event_wait_list = events;
    launch.event = &next;
    if (op->kind == CLATTN_OP_ATTENTION || op->kind == CLATTN_OP_ATTENTION_BACKWARD) {
        launch.variant = chain->variant;
        launch.parameters = chain->parameters;
    }
    FORWARD(operation_run(chain->context, op, op->kind, &launch));
    ring_event_keep(&chain->last, next);
    return CLATTN_SUCCESS;
}

clattn_status ring_chain_fill(struct ring_chain *chain, const clattn_tensor *dense, float value, cl_event after) {
    const cl_event events[2] = {chain->last, after};
    const size_t bytes = (size_t)check_product(dense->dims, dense->rank) * sizeof value;
    cl_event next = NULL;
    if (bytes == 0)
        return CLATTN_SUCCESS;
    FORWARD_CL(clEnqueueFillBuffer(chain->launch.queue, dense->memory.as.buffer, &value, sizeof value,
                                   (size_t)dense->offset * sizeof value, bytes, after != NULL ? 2 : 1, events, &next),
               "clEnqueueFillBuffer");
    ring_event_keep(&chain->last, next);
    return CLATTN_SUCCESS;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* A quarter of the rows, where that is still enough for a large device. */
#define MANY_ROWS (1 << 16) /* of all heads */

int64_t ring_rows_at_a_time(const clattn_attention_op *op) {
    const int64_t rows = op->q.dims[ROW];
    return check_product(op->q.dims, 3) > MANY_ROWS ? (rows + 3) / 4 : rows;
}

static size_t o_bytes(const clattn_attention_op *op, int64_t rows) {
    return ring_area(op->q.dims[BATCH] * op->q.dims[HEAD] * rows * op->v.dims[COLUMN], CLATTN_F32);
}

static size_t lse_bytes(const clattn_attention_op *op, int64_t rows) {
    return ring_area(op->q.dims[BATCH] * op->q.dims[HEAD] * rows, CLATTN_F32);
}

size_t ring_results_bytes(const clattn_attention_op *op) {
    const int64_t rows = op->q.dims[ROW], part = ring_rows_at_a_time(op);
    return o_bytes(op, rows) + o_bytes(op, part) + lse_bytes(op, rows) + lse_bytes(op, part);
}

static clattn_tensor place(cl_mem buffer, int32_t rank, const int64_t *dims, size_t bytes, size_t *at) {
    clattn_tensor tensor = clattn_tensor_dense(buffer, CLATTN_F32, rank, dims);
    tensor.offset = (int64_t)(*at / sizeof(float));
    *at += bytes;
    return tensor;
}

void ring_results_place(const clattn_attention_op *op, cl_mem buffer, size_t offset, struct ring_results *results) {
    const int64_t *q = op->q.dims, part = ring_rows_at_a_time(op);
    const int64_t dims[4] = {q[BATCH], q[HEAD], q[ROW], op->v.dims[COLUMN]};
    const int64_t part_dims[4] = {q[BATCH], q[HEAD], part, op->v.dims[COLUMN]};
    size_t at = offset;
    results->o = place(buffer, 4, dims, o_bytes(op, q[ROW]), &at);
    results->part_o = place(buffer, 4, part_dims, o_bytes(op, part), &at);
    results->lse = place(buffer, 3, dims, lse_bytes(op, q[ROW]), &at);
    results->part_lse = place(buffer, 3, part_dims, lse_bytes(op, part), &at);
    results->begun = 0;
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

clattn_tensor ring_rows(const clattn_tensor *tensor, int64_t first, int64_t rows) {
    clattn_tensor view = *tensor;
    view.offset += first * tensor->strides[ROW];
    view.dims[ROW] = rows;
    return view;
}

clattn_attention_op ring_task_op(const clattn_attention_op *op, const struct ring_task *task, const clattn_tensor *k,
                                 const clattn_tensor *v, const clattn_tensor *o, const clattn_tensor *lse) {
    clattn_attention_op part = *op;
    part.q = ring_rows(&op->q, task->q_first, task->q_rows);
    part.k = ring_rows(k, task->k_first, task->k_rows);
    part.v = ring_rows(v, task->k_first, task->k_rows);
    part.o = ring_rows(o, task->q_first, task->q_rows);
    part.lse = ring_rows(lse, task->q_first, task->q_rows);
    part.has_diagonal = task->limited;
    part.diagonal = task->limited ? task->diagonal : 0;
    part.sinks = (clattn_tensor){0};
    if (!task->limited) {
        part.causal = CLATTN_CAUSAL_NONE;
        part.window_left = part.window_right = -1;
    }
    return part;
}

struct ring_task ring_part_of_task(const struct ring_task *task, int64_t at, int64_t rows) {
    struct ring_task part = *task;
    part.q_first += at;
    part.q_rows = rows < task->q_rows - at ? rows : task->q_rows - at;
    part.diagonal += at;
    return part;
}

static clattn_status merge(struct ring_chain *chain, const struct ring_task *task, const struct ring_results *results) {
    const clattn_tensor o[2] = {ring_rows(&results->o, task->q_first, task->q_rows),
                                ring_rows(&results->part_o, 0, task->q_rows)};
    const clattn_tensor lse[2] = {ring_rows(&results->lse, task->q_first, task->q_rows),
                                  ring_rows(&results->part_lse, 0, task->q_rows)};
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    op.count = 2;
    op.o_in = o;
    op.lse_in = lse;
    op.o = o[0];
    op.lse = lse[0];
    return ring_chain_add(chain, &op.head, NULL);
}

/* Some rows of a task, whose result is merged with what there is. */
static clattn_status add_part(struct ring_chain *chain, const clattn_attention_op *op, const struct ring_task *task,
                              const clattn_tensor *k, const clattn_tensor *v, cl_event after,
                              const struct ring_results *results) {
    clattn_attention_op part = ring_task_op(op, task, k, v, &results->o, &results->lse);
    part.o = ring_rows(&results->part_o, 0, task->q_rows);
    part.lse = ring_rows(&results->part_lse, 0, task->q_rows);
    FORWARD(ring_chain_add(chain, &part.head, after));
    return merge(chain, task, results);
}

/* The first task of all its pieces writes the result itself. */
clattn_status ring_compute_task(struct ring_chain *chain, const clattn_attention_op *op, const struct ring_task *task,
                                const clattn_tensor *k, const clattn_tensor *v, cl_event after,
                                struct ring_results *results) {
    const bool first = (results->begun & task->pieces) == 0;
    const int64_t rows = ring_rows_at_a_time(op);
    results->begun |= task->pieces;
    if (first) {
        const clattn_attention_op whole = ring_task_op(op, task, k, v, &results->o, &results->lse);
        return ring_chain_add(chain, &whole.head, after);
    }
    for (int64_t at = 0; at < task->q_rows; at += rows) {
        const struct ring_task part = ring_part_of_task(task, at, rows);
        FORWARD(add_part(chain, op, &part, k, v, after, results));
    }
    return CLATTN_SUCCESS;
}

/* Sinks as one more result: of a key whose score they are and whose values are 0. */
static clattn_status add_sinks(struct ring_chain *chain, const clattn_attention_op *op,
                               const struct ring_results *results, clattn_tensor *o, clattn_tensor *lse) {
    const int64_t dims[2] = {1, op->v.dims[COLUMN]};
    clattn_tensor zeros = results->part_o;
    zeros.rank = 2;
    memcpy(zeros.dims, dims, sizeof dims);
    FORWARD(ring_chain_fill(chain, &zeros, 0, NULL));
    *o = results->o;
    o->offset = results->part_o.offset;
    *lse = results->lse;
    o->strides[BATCH] = o->strides[HEAD] = o->strides[ROW] = 0;
    lse->memory = op->sinks.memory;
    lse->offset = op->sinks.offset;
    lse->strides[BATCH] = lse->strides[ROW] = 0;
    lse->strides[HEAD] = op->sinks.strides[0];
    return CLATTN_SUCCESS;
}

clattn_status ring_compute_end(struct ring_chain *chain, const clattn_attention_op *op,
                               const struct ring_results *results, cl_event *event) {
    const bool sinks = tensor_is_present(&op->sinks) && check_product(op->q.dims, 3) > 0;
    clattn_tensor o[2] = {results->o, results->o}, lse[2] = {results->lse, results->lse};
    clattn_attention_merge_op merge_op;
    if (sinks)
        FORWARD(add_sinks(chain, op, results, &o[1], &lse[1]));
    clattn_attention_merge_init(&merge_op);
    merge_op.count = sinks ? 2 : 1;
    merge_op.o_in = o;
    merge_op.lse_in = lse;
    merge_op.o = op->o;
    merge_op.lse = op->lse;
    FORWARD(ring_chain_add(chain, &merge_op.head, NULL));
    FORWARD_CL(clRetainEvent(chain->last), "clRetainEvent");
    *event = chain->last;
    return CLATTN_SUCCESS;
}
