/* The merge of softmax states. Where it takes several launches, the result so far lies in the result's memory; an
 * operand whose own memory that is therefore has to be in the first. */
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

static clattn_status check_pair(clattn_context *context, const struct merge_arguments *arguments,
                                const struct merge_pair *pair, const char *first, const char *second,
                                enum check_access access) {
    FORWARD(check_shape(context, first, pair->first, access, arguments->result.first));
    return check_shape(context, second, pair->second, access, arguments->result.first);
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_softmax_merge_op *op = (const clattn_softmax_merge_op *)head;
    const struct merge_arguments arguments = {.first = "m",
                                              .second = "l",
                                              .result = {&op->m, &op->l},
                                              .count = op->count,
                                              .first_in = op->m_in,
                                              .second_in = op->l_in,
                                              .check_pair = check_pair};
    FORWARD(merge_check(context, &arguments));
    problem->op = CLATTN_OP_SOFTMAX_MERGE;
    problem->dtype = problem->out_dtype = CLATTN_F32;
    problem->columns = op->count;
    problem->rows = check_product(op->m.dims, op->m.rank);
    *empty = problem->rows == 0;
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static void write_options(const struct merge_kind *kind, const struct merge_step *step, char *text, size_t size) {
    snprintf(text, size, "-DCOUNT=%d -DGROUP=%d", step->operands, (int)kind->group);
}

static struct merge merge_of(const clattn_softmax_merge_op *op, const struct problem *problem,
                             const struct choice *choice) {
    const struct merge_pair result = {&op->m, &op->l};
    return (struct merge){.count = op->count,
                          .first_in = op->m_in,
                          .second_in = op->l_in,
                          .own = merge_own_operand(&result, op->count, op->m_in, op->l_in),
                          .partial = result,
                          .result = result,
                          .rank = op->m.rank,
                          .rows = problem->rows,
                          .columns = 1,
                          .kernel = "softmax_merge",
                          .kind = {.lanes = 1, .group = merge_group(&choice->facts, 64)},
                          .options = write_options};
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
