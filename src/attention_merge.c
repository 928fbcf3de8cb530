/* The merge of partial attention results. Where it takes several launches, the result so far is fp32 in the workspace,
 * and the last launch writes the outputs. */
#include "check.h"
#include "context.h"
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

static bool is_present(const clattn_tensor *tensor) {
    return tensor->memory.kind != CLATTN_MEMORY_NONE;
}

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

static clattn_status check_outputs(clattn_context *context, const clattn_attention_merge_op *op) {
    FORWARD(check_o(context, "o", &op->o, CHECK_OUTPUT, &op->o));
    RETURN_IF(op->o.dims[3] > INT32_MAX, CLATTN_INVALID_ARGUMENT, "o: dims[3] = %lld is more than 2^31 - 1",
              (long long)op->o.dims[3]);
    if (!is_present(&op->lse))
        return CLATTN_SUCCESS;
    FORWARD(check_lse(context, "lse", &op->lse, CHECK_OUTPUT, &op->o));
    return check_disjoint("lse", &op->lse, "o", &op->o);
}

static clattn_status check_operand(clattn_context *context, const clattn_attention_merge_op *op, int i, bool own) {
    char o_name[32], lse_name[32];
    snprintf(o_name, sizeof o_name, "o_in[%d]", i);
    snprintf(lse_name, sizeof lse_name, "lse_in[%d]", i);
    FORWARD(check_o(context, o_name, &op->o_in[i], CHECK_INPUT, &op->o));
    FORWARD(check_lse(context, lse_name, &op->lse_in[i], CHECK_INPUT, &op->o));
    RETURN_IF(op->o_in[i].dtype != op->o_in[0].dtype, CLATTN_INVALID_ARGUMENT,
              "%s: dtype %d, but o_in[0] has %d; all must be alike", o_name, (int)op->o_in[i].dtype,
              (int)op->o_in[0].dtype);
    if (!own) {
        FORWARD(check_disjoint("o", &op->o, o_name, &op->o_in[i]));
        FORWARD(check_disjoint("lse", &op->lse, lse_name, &op->lse_in[i]));
    }
    FORWARD(check_disjoint("o", &op->o, lse_name, &op->lse_in[i]));
    return check_disjoint("lse", &op->lse, o_name, &op->o_in[i]);
}

static bool all_aligned(const clattn_attention_merge_op *op) {
    bool aligned = check_aligned(&op->o, 16);
    for (int i = 0; i < op->count; i++)
        aligned = aligned && check_aligned(&op->o_in[i], 16);
    return aligned;
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_attention_merge_op *op = (const clattn_attention_merge_op *)head;
    RETURN_IF(op->count < 0, CLATTN_INVALID_ARGUMENT, "count = %d is negative", (int)op->count);
    RETURN_IF(op->count > 0 && (op->o_in == NULL || op->lse_in == NULL), CLATTN_INVALID_ARGUMENT,
              "%s is NULL, count is %d", op->o_in == NULL ? "o_in" : "lse_in", (int)op->count);
    FORWARD(check_outputs(context, op));
    const struct merge_pair result = {&op->o, &op->lse};
    const int own = merge_own_operand(&result, op->count, op->o_in, op->lse_in);
    for (int i = 0; i < op->count; i++)
        FORWARD(check_operand(context, op, i, i == own));
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
    problem->writes_lse = is_present(&op->lse);
    *empty = problem->rows == 0 || (problem->value_dim == 0 && !problem->writes_lse);
    return CLATTN_SUCCESS;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* How a launch is dealt out. */
struct shape {
    int vector, lanes, group;
};

static struct shape shape_of(const struct problem *problem, const struct device_facts *facts) {
    struct shape shape = {.vector = problem->aligned && problem->value_dim % 4 == 0 ? 4 : 1, .lanes = 1, .group = 1};
    const bool cpu = (facts->caps & CAP_BIT(CAP_CPU)) != 0;
    const int64_t packets = problem->value_dim / shape.vector;
    const int most = cpu ? 16 : 128;
    while (shape.group < most && 2 * (uint32_t)shape.group <= facts->max_group)
        shape.group *= 2;
    while (!cpu && shape.lanes < 32 && shape.lanes < packets && shape.lanes < shape.group)
        shape.lanes *= 2;
    return shape;
}

/* Everything that the program's text depends on. */
struct kind {
    const struct operation *operation;
    uint64_t caps;
    struct shape shape;
    int32_t count, in_dtype, first_dtype, out_dtype;
};

static clattn_status build(clattn_context *context, const struct kind *kind, struct program **program) {
    char options[256];
    snprintf(
        options, sizeof options,
        "-DCOUNT=%d -DIN_DTYPE=%d -DFIRST_DTYPE=%d -DOUT_DTYPE=%d -DVECTOR=%d -DALIGNED=%d -DLANES=%d -DGROUP=%d%s",
        kind->count, kind->in_dtype, kind->first_dtype, kind->out_dtype, kind->shape.vector, kind->shape.vector > 1,
        kind->shape.lanes, kind->shape.group, (kind->caps & CAP_BIT(CAP_HALF_TYPE)) != 0 ? " -DHALF_TYPE" : "");
    const struct program_key key = {"attention_merge.cl", "attention_merge", options};
    return program_get(context, &key, program);
}

/* A merge with the tensors that it needs beside the caller's. */
struct call {
    struct merge merge;
    struct problem problem;
    uint64_t caps;
    struct shape shape;
    clattn_tensor o, lse; /* the result so far: dense, in the workspace, o before lse */
};

static clattn_status get_program(clattn_context *context, const void *user, const struct merge_step *step,
                                 struct program **program) {
    const struct call *call = user;
    struct kind kind;
    memset(&kind, 0, sizeof kind); /* padding too: it is compared byte by byte */
    kind.operation = &operation_attention_merge;
    kind.caps = call->caps;
    kind.shape = call->shape;
    kind.count = step->operands;
    kind.in_dtype = (int32_t)call->problem.dtype;
    kind.first_dtype = (int32_t)(step->begins ? call->problem.dtype : CLATTN_F32);
    kind.out_dtype = (int32_t)(step->ends ? call->problem.out_dtype : CLATTN_F32);
    if (memo_find(&context->memo, &kind, sizeof kind, program, sizeof *program))
        return CLATTN_SUCCESS;
    FORWARD(build(context, &kind, program));
    memo_keep(&context->memo, &kind, sizeof kind, program, sizeof *program);
    return CLATTN_SUCCESS;
}

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
    const struct shape shape = shape_of(problem, &choice->facts);
    *call = (struct call){.problem = *problem, .caps = choice->facts.caps, .shape = shape};
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
                                 .group = (size_t)shape.group,
                                 .rows_per_group = (size_t)(shape.group / shape.lanes),
                                 .program = get_program,
                                 .user = call};
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
