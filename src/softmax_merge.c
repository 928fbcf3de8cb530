/* The merge of softmax states. Up to eight operands take one launch; more are folded into the result, which then is the
 * first operand of the next launch. An operand that is the result's own memory therefore has to be in the first. */
#include "check.h"
#include "context.h"
#include "launch.h"
#include "operation.h"
#include "status.h"
#include <stdio.h>
#include <string.h>

enum { OPERANDS = 8 };

/* Mirrors struct view and struct merge_layout of cl/softmax_merge.cl. */
struct view {
    int64_t offset, stride[4];
};
struct merge_layout {
    int64_t elements, dim[4];
    struct view m, l, m_in[OPERANDS], l_in[OPERANDS];
};

void clattn_softmax_merge_init(clattn_softmax_merge_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_SOFTMAX_MERGE;
}

clattn_status clattn_softmax_merge(clattn_context *context, const clattn_softmax_merge_op *op,
                                   const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_SOFTMAX_MERGE, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_shape(clattn_context *context, const char *name, const clattn_tensor *tensor,
                                 enum check_access access, const clattn_tensor *like) {
    FORWARD(check_present(name, tensor));
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_dtype(name, tensor, 1u << CLATTN_F32));
    FORWARD(check_rank(name, tensor, like->rank));
    for (int i = 0; i < like->rank; i++)
        FORWARD(check_dim(name, tensor, i, like->dims[i], "m has it too"));
    return CLATTN_SUCCESS;
}

/* The operand whose own memory the result is, at most one; -1 where there is none. */
static int own_operand(const clattn_softmax_merge_op *op) {
    for (int i = 0; i < op->count; i++)
        if (check_same_view(&op->m, &op->m_in[i]) && check_same_view(&op->l, &op->l_in[i]))
            return i;
    return -1;
}

static clattn_status check_operand(clattn_context *context, const clattn_softmax_merge_op *op, int i, bool own) {
    char m_name[32], l_name[32];
    snprintf(m_name, sizeof m_name, "m_in[%d]", i);
    snprintf(l_name, sizeof l_name, "l_in[%d]", i);
    FORWARD(check_shape(context, m_name, &op->m_in[i], CHECK_INPUT, &op->m));
    FORWARD(check_shape(context, l_name, &op->l_in[i], CHECK_INPUT, &op->m));
    if (!own) {
        FORWARD(check_disjoint("m", &op->m, m_name, &op->m_in[i]));
        FORWARD(check_disjoint("l", &op->l, l_name, &op->l_in[i]));
    }
    FORWARD(check_disjoint("m", &op->m, l_name, &op->l_in[i]));
    return check_disjoint("l", &op->l, m_name, &op->m_in[i]);
}

static clattn_status merge_check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_softmax_merge_op *op = (const clattn_softmax_merge_op *)head;
    RETURN_IF(op->count < 0, CLATTN_INVALID_ARGUMENT, "count = %d is negative", (int)op->count);
    RETURN_IF(op->count > 0 && (op->m_in == NULL || op->l_in == NULL), CLATTN_INVALID_ARGUMENT,
              "%s is NULL, count is %d", op->m_in == NULL ? "m_in" : "l_in", (int)op->count);
    FORWARD(check_present("m", &op->m));
    FORWARD(check_tensor(context, "m", &op->m, CHECK_OUTPUT));
    FORWARD(check_shape(context, "m", &op->m, CHECK_OUTPUT, &op->m));
    FORWARD(check_shape(context, "l", &op->l, CHECK_OUTPUT, &op->m));
    FORWARD(check_disjoint("l", &op->l, "m", &op->m));
    const int own = own_operand(op);
    for (int i = 0; i < op->count; i++)
        FORWARD(check_operand(context, op, i, i == own));
    problem->op = CLATTN_OP_SOFTMAX_MERGE;
    problem->dtype = problem->out_dtype = CLATTN_F32;
    problem->columns = op->count;
    problem->rows = check_product(op->m.dims, op->m.rank);
    *empty = problem->rows == 0;
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static struct view view_of(const clattn_tensor *tensor) {
    struct view view = {.offset = tensor->offset};
    for (int i = 0; i < tensor->rank; i++)
        view.stride[4 - tensor->rank + i] = tensor->strides[i];
    return view;
}

/* The operands of one launch. */
struct batch {
    int count;
    const clattn_tensor *m_in[OPERANDS], *l_in[OPERANDS];
};

static void batch_add(struct batch *batch, const clattn_tensor *m, const clattn_tensor *l) {
    batch->m_in[batch->count] = m;
    batch->l_in[batch->count] = l;
    batch->count++;
}

static clattn_status get_program(clattn_context *context, int count, struct program **program) {
    char options[32];
    snprintf(options, sizeof options, "-DCOUNT=%d", count);
    const struct program_key key = {"softmax_merge.cl", "softmax_merge", options};
    return program_get(context, &key, program);
}

static clattn_status enqueue_batch(const clattn_softmax_merge_op *op, const struct batch *batch, int64_t elements,
                                   uint32_t max_group, struct sequence *sequence) {
    struct merge_layout layout = {
        .elements = elements, .dim = {1, 1, 1, 1}, .m = view_of(&op->m), .l = view_of(&op->l)};
    struct program *program;
    struct launch launch;
    const size_t local = max_group < 64 ? 1 : 64, groups = ((size_t)elements + local - 1) / local;
    FORWARD(get_program(sequence->context, batch->count, &program));
    for (int i = 0; i < op->m.rank; i++)
        layout.dim[4 - op->m.rank + i] = op->m.dims[i];
    launch_begin(&launch, program);
    launch_buffer(&launch, op->m.memory.as.buffer);
    launch_buffer(&launch, op->l.memory.as.buffer);
    for (int i = 0; i < OPERANDS; i++) {
        const bool used = i < batch->count;
        launch_buffer(&launch, used ? batch->m_in[i]->memory.as.buffer : NULL);
        launch_buffer(&launch, used ? batch->l_in[i]->memory.as.buffer : NULL);
        if (used) {
            layout.m_in[i] = view_of(batch->m_in[i]);
            layout.l_in[i] = view_of(batch->l_in[i]);
        }
    }
    launch_struct(&launch, &layout, sizeof layout);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

/* Launches for count operands: the first takes eight, each further one seven beside the result so far. */
static int batches(int count) {
    return count <= OPERANDS ? 1 : 1 + (count - OPERANDS + OPERANDS - 2) / (OPERANDS - 1);
}

static clattn_status enqueue_all(const clattn_softmax_merge_op *op, int64_t elements, uint32_t max_group,
                                 struct sequence *sequence) {
    const int own = own_operand(op);
    struct batch batch = {0};
    if (own >= 0)
        batch_add(&batch, &op->m_in[own], &op->l_in[own]);
    for (int i = 0; i < op->count; i++) {
        if (i == own)
            continue;
        if (batch.count == OPERANDS) {
            FORWARD(enqueue_batch(op, &batch, elements, max_group, sequence));
            batch.count = 0;
            batch_add(&batch, &op->m, &op->l);
        }
        batch_add(&batch, &op->m_in[i], &op->l_in[i]);
    }
    return enqueue_batch(op, &batch, elements, max_group, sequence);
}

static clattn_status merge_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                   const struct choice *choice, const clattn_launch *launch) {
    const clattn_softmax_merge_op *op = (const clattn_softmax_merge_op *)head;
    struct sequence sequence;
    sequence_begin(&sequence, context, launch, batches(op->count));
    const clattn_status status = enqueue_all(op, problem->rows, choice->facts.max_group, &sequence);
    sequence_end(&sequence);
    return status;
}

static clattn_status merge_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                   const struct choice *choice) {
    const int count = ((const clattn_softmax_merge_op *)head)->count;
    struct program *program;
    (void)problem;
    (void)choice;
    FORWARD(get_program(context, count < OPERANDS ? count : OPERANDS, &program));
    if (count <= OPERANDS)
        return CLATTN_SUCCESS;
    const int rest = (count - OPERANDS) % (OPERANDS - 1);
    return get_program(context, rest == 0 ? OPERANDS : rest + 1, &program);
}

static int64_t merge_tuning_size(const struct problem *problem) {
    return problem->rows;
}

static clattn_status merge_workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                     const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static void merge_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "softmax_merge_n%lld__%s", (long long)problem->columns, choice->variant->name);
}

const struct operation operation_softmax_merge = {
    .kind = CLATTN_OP_SOFTMAX_MERGE,
    .minimum_size = sizeof(clattn_softmax_merge_op),
    .check = merge_check,
    .tuning_size = merge_tuning_size,
    .workspace = merge_workspace,
    .prepare = merge_prepare,
    .enqueue = merge_enqueue,
    .describe = merge_describe,
};
