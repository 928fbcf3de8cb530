/* Gradients of softmax and log-softmax: check, plan, launch. */
#include "check.h"
#include "context.h"
#include "operation.h"
#include "rows.h"
#include "status.h"
#include "tensor.h"

#include <clattn/training.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void clattn_softmax_backward_init(clattn_softmax_backward_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_SOFTMAX_BACKWARD;
    op->axis = -1;
    op->scale = 1;
}

clattn_status clattn_softmax_backward(clattn_context *context, const clattn_softmax_backward_op *op,
                                      const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_SOFTMAX_BACKWARD, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

#define ANY_DTYPE (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)
/* One work-group can loop over so many (SOFTMAX_ITERATIONS). */
#define MOST_COLUMNS (INT64_C(1) << 24)

static int axis_of(const clattn_softmax_backward_op *op) {
    return op->axis < 0 ? op->axis + op->y.rank : op->axis;
}

static clattn_status check_settings(const clattn_softmax_backward_op *op) {
    RETURN_IF(op->function != CLATTN_SOFTMAX && op->function != CLATTN_LOG_SOFTMAX, CLATTN_INVALID_ARGUMENT,
              "function = %d has no gradient here: CLATTN_SOFTMAX (0) and CLATTN_LOG_SOFTMAX (1) have",
              (int)op->function);
    RETURN_IF(!isfinite(op->scale), CLATTN_INVALID_ARGUMENT, "scale = %g is not finite", (double)op->scale);
    return CLATTN_SUCCESS;
}

static clattn_status check_like_y(clattn_context *context, const clattn_softmax_backward_op *op, const char *name,
                                  const clattn_tensor *tensor, enum check_access access) {
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_dtype(name, tensor, ANY_DTYPE));
    FORWARD(check_rank(name, tensor, op->y.rank));
    for (int i = 0; i < op->y.rank; i++)
        FORWARD(check_dim(name, tensor, i, op->y.dims[i], "y has it too"));
    return CLATTN_SUCCESS;
}

static clattn_status check_tensors(clattn_context *context, const clattn_softmax_backward_op *op) {
    FORWARD(check_tensor(context, "y", &op->y, CHECK_INPUT));
    FORWARD(check_dtype("y", &op->y, ANY_DTYPE));
    const int axis = axis_of(op);
    RETURN_IF(axis < 0 || axis >= op->y.rank, CLATTN_INVALID_ARGUMENT, "axis = %d is outside y's rank %d",
              (int)op->axis, (int)op->y.rank);
    RETURN_IF(op->y.dims[axis] > MOST_COLUMNS, CLATTN_INVALID_ARGUMENT, "y.dims[%d] = %lld is more than 2^24 columns",
              axis, (long long)op->y.dims[axis]);
    FORWARD(check_like_y(context, op, "dy", &op->dy, CHECK_INPUT));
    FORWARD(check_like_y(context, op, "dx", &op->dx, CHECK_OUTPUT));
    if (!check_same_view(&op->dx, &op->y))
        FORWARD(check_disjoint("dx", &op->dx, "y", &op->y));
    return check_same_view(&op->dx, &op->dy) ? CLATTN_SUCCESS : check_disjoint("dx", &op->dx, "dy", &op->dy);
}

static clattn_status softmax_backward_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                            bool *empty) {
    const clattn_softmax_backward_op *op = (const clattn_softmax_backward_op *)head;
    FORWARD(check_settings(op));
    FORWARD(check_tensors(context, op));
    *problem = (struct problem){.op = CLATTN_OP_SOFTMAX_BACKWARD,
                                .dtype = op->y.dtype,
                                .out_dtype = op->dx.dtype,
                                .softmax_function = (int)op->function,
                                .columns = op->y.dims[axis_of(op)]};
    const int64_t count = check_product(op->y.dims, op->y.rank);
    problem->rows = problem->columns > 0 ? count / problem->columns : 0;
    *empty = count == 0;
    return CLATTN_SUCCESS;
}

/* ---- plan and launch --------------------------------------------------------------------------------------------- */

struct softmax_backward_job {
    struct rows rows;
    struct softmax_plan plan;
    struct rows_kernel kernel;
};

static const char *const macros[] = {"Y_DTYPE", "DY_DTYPE", "DX_DTYPE", "LOGARITHM"};

static struct rows_kernel kernel_of(const clattn_softmax_backward_op *op, enum schedule schedule) {
    const bool loops = schedule == SCHEDULE_ONLINE;
    return (struct rows_kernel){
        .file = loops ? "softmax_backward_loop.cl" : "softmax_backward.cl",
        .kernel = loops ? "softmax_backward_loop" : "softmax_backward_registers",
        .macros = macros,
        .values = {rows_dtype(&op->y), rows_dtype(&op->dy), rows_dtype(&op->dx), op->function == CLATTN_LOG_SOFTMAX},
        .count = sizeof macros / sizeof macros[0]};
}

static void find_rows(const clattn_softmax_backward_op *op, struct rows *rows) {
    const clattn_tensor *const tensors[] = {&op->y, &op->dy, &op->dx};
    rows_of(tensors, 3, axis_of(op), rows);
}

static clattn_status make_job(const clattn_op *head, const struct choice *choice, struct softmax_backward_job *job) {
    const clattn_softmax_backward_op *op = (const clattn_softmax_backward_op *)head;
    find_rows(op, &job->rows);
    job->kernel = kernel_of(op, choice->variant->schedule);
    return rows_plan(choice, &job->rows, &job->plan);
}

static int64_t softmax_backward_tuning_size(const struct problem *problem) {
    return problem->columns;
}

static clattn_status softmax_backward_plan(clattn_context *context, const clattn_op *head,
                                           const struct problem *problem, bool run_selftest, struct choice *choice) {
    (void)context;
    (void)problem;
    (void)run_selftest;
    struct rows rows;
    find_rows((const clattn_softmax_backward_op *)head, &rows);
    return rows_choose(choice, &rows);
}

static clattn_status softmax_backward_workspace(clattn_context *context, const clattn_op *head,
                                                const struct problem *problem, const struct choice *choice,
                                                size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static clattn_status softmax_backward_prepare(clattn_context *context, const clattn_op *head,
                                              const struct problem *problem, const struct choice *choice) {
    (void)problem;
    struct softmax_backward_job job;
    struct program *program;
    FORWARD(make_job(head, choice, &job));
    return rows_program(context, &choice->facts, &job.rows, &job.plan, &job.kernel, &program);
}

static clattn_status enqueue(const clattn_softmax_backward_op *op, const struct softmax_backward_job *job,
                             struct program *program, struct sequence *sequence) {
    const size_t groups = rows_groups(&job->rows, &job->plan), local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, op->y.memory.as.buffer);
    launch_buffer(&launch, op->dy.memory.as.buffer);
    launch_buffer(&launch, op->dx.memory.as.buffer);
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    launch_float(&launch, op->scale);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status softmax_backward_enqueue(clattn_context *context, const clattn_op *head,
                                              const struct problem *problem, const struct choice *choice,
                                              const clattn_launch *launch) {
    (void)problem;
    struct softmax_backward_job job;
    struct program *program;
    struct sequence sequence;
    FORWARD(make_job(head, choice, &job));
    FORWARD(rows_program(context, &choice->facts, &job.rows, &job.plan, &job.kernel, &program));
    sequence_begin(&sequence, context, launch, 1);
    const clattn_status status = enqueue((const clattn_softmax_backward_op *)head, &job, program, &sequence);
    sequence_end(&sequence);
    return status;
}

static void softmax_backward_describe(const struct problem *problem, const struct choice *choice, char *name,
                                      size_t size) {
    char way[64];
    rows_describe(choice, way, sizeof way);
    snprintf(name, size, "%s_backward_%s__%s",
             problem->softmax_function == CLATTN_LOG_SOFTMAX ? "log_softmax" : "softmax",
             tensor_dtype_name(problem->dtype), way);
}

const struct operation operation_softmax_backward = {
    .kind = CLATTN_OP_SOFTMAX_BACKWARD,
    .minimum_size = sizeof(clattn_softmax_backward_op),
    .check = softmax_backward_check,
    .tuning_size = softmax_backward_tuning_size,
    .plan = softmax_backward_plan,
    .workspace = softmax_backward_workspace,
    .prepare = softmax_backward_prepare,
    .enqueue = softmax_backward_enqueue,
    .describe = softmax_backward_describe,
};
