/* The merge of partial attention results. Where it takes several launches, the result so far is fp32 in the workspace,
 * and the last launch writes the outputs. */
#include "attention.h"
#include "merge.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"
#include <stdio.h>
#include <string.h>

void clattn_attention_merge_init(clattn_attention_merge_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_ATTENTION_MERGE;
}

clattn_status clattn_attention_merge(clattn_context *context, const clattn_attention_merge_op *op,
                                     const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_ATTENTION_MERGE, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

#define ANY_DTYPE (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)

static clattn_status check_o(clattn_context *context, const char *name, const clattn_tensor *o,
                             enum check_access access, const clattn_tensor *like) {
    FORWARD(check_tensor(context, name, o, access));
    FORWARD(check_dtype(name, o, ANY_DTYPE));
    FORWARD(check_rank(name, o, 4));
    FORWARD(check_innermost_dense(name, o));
    for (int i = 0; i < 4; i++)
        FORWARD(check_dim(name, o, i, like->dims[i], "o has it too"));
    return CLATTN_SUCCESS;
}

static clattn_status check_lse(clattn_context *context, const char *name, const clattn_tensor *lse,
                               enum check_access access, const clattn_tensor *o) {
    FORWARD(check_tensor(context, name, lse, access));
    FORWARD(check_dtype(name, lse, 1u << CLATTN_F32));
    FORWARD(check_rank(name, lse, 3));
    for (int i = 0; i < 3; i++)
        FORWARD(check_dim(name, lse, i, o->dims[i], "o has it too"));
    return CLATTN_SUCCESS;
}

static clattn_status check_pair(clattn_context *context, const struct merge_arguments *arguments,
                                const struct merge_pair *pair, const char *first, const char *second,
                                enum check_access access) {
    const clattn_tensor *o = arguments->result.first, *in = arguments->first_in;
    FORWARD(check_o(context, first, pair->first, access, o));
    RETURN_IF(o->dims[3] > INT32_MAX, CLATTN_INVALID_ARGUMENT, "o: dims[3] = %lld is more than 2^31 - 1",
              (long long)o->dims[3]);
    if (access == CHECK_INPUT || tensor_is_present(pair->second))
        FORWARD(check_lse(context, second, pair->second, access, o));
    RETURN_IF(access == CHECK_INPUT && pair->first->dtype != in[0].dtype, CLATTN_INVALID_ARGUMENT,
              "%s: dtype %d, but o_in[0] has %d; all must be alike", first, (int)pair->first->dtype, (int)in[0].dtype);
    return CLATTN_SUCCESS;
}

static bool all_aligned(const clattn_attention_merge_op *op) {
    bool aligned = check_aligned(&op->o, 16);
    for (int i = 0; i < op->count; i++)
        aligned = aligned && check_aligned(&op->o_in[i], 16);
    return aligned;
}

void attention_merge_describe(const clattn_attention_merge_op *op, struct problem *problem) {
    problem->op = CLATTN_OP_ATTENTION_MERGE;
    problem->dtype = op->count > 0 ? op->o_in[0].dtype : op->o.dtype;
    problem->out_dtype = op->o.dtype;
    problem->batch = op->o.dims[0];
    problem->heads = op->o.dims[1];
    problem->nq = op->o.dims[2];
    problem->value_dim = op->o.dims[3];
    problem->rows = check_product(op->o.dims, 3);
    problem->columns = op->count;
    problem->aligned = all_aligned(op);
    problem->writes_lse = tensor_is_present(&op->lse);
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_attention_merge_op *op = (const clattn_attention_merge_op *)head;
    const struct merge_arguments arguments = {.first = "o",
                                              .second = "lse",
                                              .result = {&op->o, &op->lse},
                                              .count = op->count,
                                              .first_in = op->o_in,
                                              .second_in = op->lse_in,
                                              .check_pair = check_pair};
    FORWARD(merge_check(context, &arguments));
    attention_merge_describe(op, problem);
    *empty = problem->rows == 0 || (problem->value_dim == 0 && !problem->writes_lse);
    return CLATTN_SUCCESS;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static struct merge_kind kind_of(const struct problem *problem, const struct device_facts *facts) {
    const bool cpu = (facts->caps & CAP_BIT(CAP_CPU)) != 0;
    struct merge_kind kind = {.in_dtype = (int32_t)problem->dtype,
                              .out_dtype = (int32_t)problem->out_dtype,
                              .vector = problem->aligned && problem->value_dim % 4 == 0 ? 4 : 1,
                              .lanes = 1,
                              .group = merge_group(facts, cpu ? 16 : 128),
                              .half_type = (facts->caps & CAP_BIT(CAP_HALF_TYPE)) != 0,
                              .keeps = (problem->modifiers & MODIFIER_SEQUENCES) != 0};
    while (!cpu && kind.lanes < 32 && kind.lanes < problem->value_dim / kind.vector && kind.lanes < kind.group)
        kind.lanes *= 2;
    return kind;
}

/* The result so far is fp32. */
static void write_options(const struct merge_kind *kind, const struct merge_step *step, char *text, size_t size) {
    snprintf(
        text, size,
        "-DCOUNT=%d -DIN_DTYPE=%d -DFIRST_DTYPE=%d -DOUT_DTYPE=%d -DVECTOR=%d -DALIGNED=%d -DLANES=%d -DGROUP=%d%s%s",
        step->operands, (int)kind->in_dtype, (int)(step->begins ? kind->in_dtype : CLATTN_F32),
        (int)(step->ends ? kind->out_dtype : CLATTN_F32), (int)kind->vector, kind->vector > 1, (int)kind->lanes,
        (int)kind->group, kind->half_type ? " -DHALF_TYPE" : "", kind->keeps ? " -DKEEPS=1" : "");
}

/* A merge with the tensors that it needs beside the caller's: the result so far, dense, in the workspace. */
struct call {
    struct merge merge;
    clattn_tensor o, lse;
};

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static void tensors_of_workspace(const struct problem *problem, const clattn_workspace *workspace, clattn_tensor *o,
                                 clattn_tensor *lse) {
    const int64_t dims[4] = {problem->batch, problem->heads, problem->nq, problem->value_dim};
    const int64_t first = (int64_t)(workspace->offset / sizeof(float));
    *o = clattn_tensor_dense(workspace->buffer, CLATTN_F32, 4, dims);
    *lse = clattn_tensor_dense(workspace->buffer, CLATTN_F32, 3, dims);
    o->offset = first;
    lse->offset = first + problem->rows * problem->value_dim;
}

static void make_call(const clattn_attention_merge_op *op, const struct problem *problem, const struct choice *choice,
                      const clattn_workspace *workspace, struct call *call) {
    tensors_of_workspace(problem, workspace, &call->o, &call->lse);
    call->merge = (struct merge){.count = op->count,
                                 .first_in = op->o_in,
                                 .second_in = op->lse_in,
                                 .own = -1, /* the outputs are written last */
                                 .partial = {&call->o, &call->lse},
                                 .result = {&op->o, &op->lse},
                                 .rank = 3,
                                 .rows = problem->rows,
                                 .columns = problem->value_dim,
                                 .kernel = "attention_merge",
                                 .kind = kind_of(problem, &choice->facts),
                                 .options = write_options};
}

static clattn_status prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice) {
    const clattn_workspace none = {0};
    struct call call;
    make_call((const clattn_attention_merge_op *)head, problem, choice, &none, &call);
    return merge_prepare(context, &call.merge);
}

static clattn_status enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    struct call call;
    make_call((const clattn_attention_merge_op *)head, problem, choice, &launch->workspace, &call);
    return merge_enqueue(context, &call.merge, launch);
}

static int64_t tuning_size(const struct problem *problem) {
    return problem->value_dim;
}

static clattn_status workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)choice;
    const bool folds = ((const clattn_attention_merge_op *)head)->count > MERGE_OPERANDS;
    *bytes = folds ? (size_t)(problem->rows * (problem->value_dim + 1)) * sizeof(float) : 0;
    return CLATTN_SUCCESS;
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "attention_merge_%s_n%lld__%s", tensor_dtype_name(problem->dtype), (long long)problem->columns,
             choice->variant->name);
}

const struct operation operation_attention_merge = {
    .kind = CLATTN_OP_ATTENTION_MERGE,
    .minimum_size = sizeof(clattn_attention_merge_op),
    .check = check,
    .tuning_size = tuning_size,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};
