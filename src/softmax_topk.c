/* Softmax's largest elements: check, plan, launch. */
#include "check.h"
#include "context.h"
#include "operation.h"
#include "rows.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

void clattn_softmax_topk_init(clattn_softmax_topk_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_SOFTMAX_TOPK;
    op->axis = -1;
    op->k = 1;
}

clattn_status clattn_softmax_topk(clattn_context *context, const clattn_softmax_topk_op *op,
                                  const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_SOFTMAX_TOPK, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

#define ANY_DTYPE (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)
/* Of one row; indices are 32-bit numbers, and one work-group can loop over so many (SOFTMAX_ITERATIONS). */
#define MOST_COLUMNS (INT64_C(1) << 24)
#define MOST_K 128

static int axis_of(const clattn_softmax_topk_op *op) {
    return op->axis < 0 ? op->axis + op->x.rank : op->axis;
}

static clattn_status check_input(clattn_context *context, const clattn_softmax_topk_op *op) {
    FORWARD(check_tensor(context, "x", &op->x, CHECK_INPUT));
    FORWARD(check_dtype("x", &op->x, ANY_DTYPE));
    const int axis = axis_of(op);
    RETURN_IF(axis < 0 || axis >= op->x.rank, CLATTN_INVALID_ARGUMENT, "axis = %d is outside x's rank %d",
              (int)op->axis, (int)op->x.rank);
    RETURN_IF(op->x.dims[axis] > MOST_COLUMNS, CLATTN_INVALID_ARGUMENT, "x.dims[%d] = %lld is more than 2^24 columns",
              axis, (long long)op->x.dims[axis]);
    RETURN_IF(op->k < 1 || op->k > MOST_K || op->k > op->x.dims[axis], CLATTN_INVALID_ARGUMENT,
              "k = %d is not in 1..%d, or more than the %lld columns", (int)op->k, MOST_K, (long long)op->x.dims[axis]);
    return CLATTN_SUCCESS;
}

/* Of x's dims, but for the one along the axis. */
static clattn_status check_output(clattn_context *context, const clattn_softmax_topk_op *op, const char *name,
                                  const clattn_tensor *out, unsigned dtypes, int64_t length) {
    FORWARD(check_tensor(context, name, out, CHECK_OUTPUT));
    FORWARD(check_dtype(name, out, dtypes));
    FORWARD(check_rank(name, out, op->x.rank));
    for (int i = 0; i < op->x.rank; i++)
        FORWARD(check_dim(name, out, i, i == axis_of(op) ? length : op->x.dims[i],
                          i == axis_of(op) ? "results of a row" : "x has it too"));
    return CLATTN_SUCCESS;
}

static clattn_status check_outputs(clattn_context *context, const clattn_softmax_topk_op *op) {
    FORWARD(check_output(context, op, "values", &op->values, ANY_DTYPE, op->k));
    FORWARD(check_output(context, op, "indices", &op->indices, 1u << CLATTN_I32, op->k));
    if (tensor_is_present(&op->lse))
        FORWARD(check_output(context, op, "lse", &op->lse, 1u << CLATTN_F32, 1));
    const struct check_named tensors[] = {
        {"values", &op->values}, {"indices", &op->indices}, {"lse", &op->lse}, {"x", &op->x}};
    return check_all_disjoint(tensors, 3, 4);
}

static clattn_status softmax_topk_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                        bool *empty) {
    const clattn_softmax_topk_op *op = (const clattn_softmax_topk_op *)head;
    RETURN_IF(op->empty_rows != CLATTN_EMPTY_ROWS_NAN && op->empty_rows != CLATTN_EMPTY_ROWS_ZERO,
              CLATTN_INVALID_ARGUMENT, "empty_rows = %d is no clattn_empty_rows", (int)op->empty_rows);
    FORWARD(check_input(context, op));
    FORWARD(check_outputs(context, op));
    *problem = (struct problem){.op = CLATTN_OP_SOFTMAX_TOPK,
                                .dtype = op->x.dtype,
                                .out_dtype = op->values.dtype,
                                .columns = op->x.dims[axis_of(op)]};
    problem->rows = check_product(op->x.dims, op->x.rank) / problem->columns;
    *empty = problem->rows == 0;
    return CLATTN_SUCCESS;
}

/* ---- plan and launch --------------------------------------------------------------------------------------------- */

struct softmax_topk_job {
    struct rows rows;
    struct softmax_plan plan;
    struct rows_kernel kernel;
};

static const char *const macros[] = {"X_DTYPE", "VALUES_DTYPE", "K", "EMPTY_ZERO"};

static struct rows_kernel kernel_of(const clattn_softmax_topk_op *op) {
    return (struct rows_kernel){
        .file = "softmax_topk.cl",
        .kernel = "softmax_topk",
        .macros = macros,
        .values = {rows_dtype(&op->x), rows_dtype(&op->values), op->k, op->empty_rows == CLATTN_EMPTY_ROWS_ZERO},
        .count = sizeof macros / sizeof macros[0]};
}

static void find_rows(const clattn_softmax_topk_op *op, struct rows *rows) {
    const clattn_tensor *const tensors[] = {&op->x, &op->values, &op->indices, &op->lse};
    rows_of_first(tensors, 4, axis_of(op), rows);
}

static clattn_status make_job(const clattn_op *head, const struct choice *choice, struct softmax_topk_job *job) {
    const clattn_softmax_topk_op *op = (const clattn_softmax_topk_op *)head;
    find_rows(op, &job->rows);
    job->kernel = kernel_of(op);
    return rows_plan(choice, &job->rows, &job->plan);
}

static int64_t softmax_topk_tuning_size(const struct problem *problem) {
    return problem->columns;
}

static clattn_status softmax_topk_plan(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                       bool run_selftest, struct choice *choice) {
    (void)context;
    (void)problem;
    (void)run_selftest;
    struct rows rows;
    find_rows((const clattn_softmax_topk_op *)head, &rows);
    FORWARD(rows_choose(choice, &rows));
    const int group = parameters_get(&choice->parameters, "group", 1);
    RETURN_IF(group > 1 && !variant_keeps_rows(&choice->facts), CLATTN_UNSUPPORTED,
              "PoCL's compiler crashes where work-items share rows (group = %d).", group);
    return CLATTN_SUCCESS;
}

static clattn_status softmax_topk_workspace(clattn_context *context, const clattn_op *head,
                                            const struct problem *problem, const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static clattn_status softmax_topk_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                          const struct choice *choice) {
    (void)problem;
    struct softmax_topk_job job;
    struct program *program;
    FORWARD(make_job(head, choice, &job));
    return rows_program(context, &choice->facts, &job.rows, &job.plan, &job.kernel, &program);
}

static clattn_status enqueue(const clattn_softmax_topk_op *op, const struct softmax_topk_job *job,
                             struct program *program, struct sequence *sequence) {
    const size_t groups = rows_groups(&job->rows, &job->plan), local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, op->x.memory.as.buffer);
    launch_buffer(&launch, op->values.memory.as.buffer);
    launch_buffer(&launch, op->indices.memory.as.buffer);
    launch_buffer(&launch, rows_buffer(&op->lse));
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status softmax_topk_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                          const struct choice *choice, const clattn_launch *launch) {
    (void)problem;
    struct softmax_topk_job job;
    struct program *program;
    struct sequence sequence;
    FORWARD(make_job(head, choice, &job));
    FORWARD(rows_program(context, &choice->facts, &job.rows, &job.plan, &job.kernel, &program));
    sequence_begin(&sequence, context, launch, 1);
    const clattn_status status = enqueue((const clattn_softmax_topk_op *)head, &job, program, &sequence);
    sequence_end(&sequence);
    return status;
}

static void softmax_topk_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    char way[64];
    rows_describe(choice, way, sizeof way);
    snprintf(name, size, "softmax_topk_%s__%s", tensor_dtype_name(problem->dtype), way);
}

const struct operation operation_softmax_topk = {
    .kind = CLATTN_OP_SOFTMAX_TOPK,
    .minimum_size = sizeof(clattn_softmax_topk_op),
    .check = softmax_topk_check,
    .tuning_size = softmax_topk_tuning_size,
    .plan = softmax_topk_plan,
    .workspace = softmax_topk_workspace,
    .prepare = softmax_topk_prepare,
    .enqueue = softmax_topk_enqueue,
    .describe = softmax_topk_describe,
};
