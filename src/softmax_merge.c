/* The merge of softmax states. Where it takes several launches, the result so far lies in the result's memory; an
 * operand whose own memory that is therefore has to be in the first. */
#include "check.h"
#include "context.h"
#include "merge.h"
#include "operation.h"
#include "status.h"
#include <stdio.h>
#include <string.h>

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
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_dtype(name, tensor, 1u << CLATTN_F32));
    FORWARD(check_rank(name, tensor, like->rank));
    for (int i = 0; i < like->rank; i++)
        FORWARD(check_dim(name, tensor, i, like->dims[i], "m has it too"));
    return CLATTN_SUCCESS;
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

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_softmax_merge_op *op = (const clattn_softmax_merge_op *)head;
    RETURN_IF(op->count < 0, CLATTN_INVALID_ARGUMENT, "count = %d is negative", (int)op->count);
    RETURN_IF(op->count > 0 && (op->m_in == NULL || op->l_in == NULL), CLATTN_INVALID_ARGUMENT,
              "%s is NULL, count is %d", op->m_in == NULL ? "m_in" : "l_in", (int)op->count);
    FORWARD(check_tensor(context, "m", &op->m, CHECK_OUTPUT));
    FORWARD(check_shape(context, "m", &op->m, CHECK_OUTPUT, &op->m));
    FORWARD(check_shape(context, "l", &op->l, CHECK_OUTPUT, &op->m));
    FORWARD(check_disjoint("l", &op->l, "m", &op->m));
    const struct merge_pair result = {&op->m, &op->l};
    const int own = merge_own_operand(&result, op->count, op->m_in, op->l_in);
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

/* The whole of what a program depends on. */
struct kind {
    const struct operation *operation;
    int64_t count, group;
};

static size_t group_of(const struct choice *choice) {
    return choice->facts.max_group < 64 ? 1 : 64;
}

static clattn_status get_program(clattn_context *context, const void *user, const struct merge_step *step,
                                 struct program **program) {
    const size_t group = group_of(user);
    const struct kind kind = {&operation_softmax_merge, step->operands, (int64_t)group};
    char options[64];
    if (memo_find(&context->memo, &kind, sizeof kind, program, sizeof *program))
        return CLATTN_SUCCESS;
    snprintf(options, sizeof options, "-DCOUNT=%d -DGROUP=%zu", step->operands, group);
    const struct program_key key = {"softmax_merge.cl", "softmax_merge", options};
    FORWARD(program_get(context, &key, program));
    memo_keep(&context->memo, &kind, sizeof kind, program, sizeof *program);
    return CLATTN_SUCCESS;
}

static struct merge merge_of(const clattn_softmax_merge_op *op, const struct problem *problem,
                             const struct choice *choice) {
    const struct merge_pair result = {&op->m, &op->l};
    const size_t group = group_of(choice);
    return (struct merge){.count = op->count,
                          .first_in = op->m_in,
                          .second_in = op->l_in,
                          .own = merge_own_operand(&result, op->count, op->m_in, op->l_in),
                          .partial = result,
                          .result = result,
                          .rank = op->m.rank,
                          .rows = problem->rows,
                          .columns = 1,
                          .group = group,
                          .rows_per_group = group,
                          .program = get_program,
                          .user = choice};
}

static clattn_status prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice) {
    const struct merge merge = merge_of((const clattn_softmax_merge_op *)head, problem, choice);
    return merge_prepare(context, &merge);
}

static clattn_status enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    const struct merge merge = merge_of((const clattn_softmax_merge_op *)head, problem, choice);
    return merge_enqueue(context, &merge, launch);
}

static int64_t tuning_size(const struct problem *problem) {
    return problem->rows;
}

static clattn_status workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "softmax_merge_n%lld__%s", (long long)problem->columns, choice->variant->name);
}

const struct operation operation_softmax_merge = {
    .kind = CLATTN_OP_SOFTMAX_MERGE,
    .minimum_size = sizeof(clattn_softmax_merge_op),
    .check = check,
    .tuning_size = tuning_size,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};
