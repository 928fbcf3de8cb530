/* The softmax operation: check, plan, launch. */
#include "check.h"
#include "context.h"
#include "operation.h"
#include "softmax_launch.h"
#include "status.h"
#include "tensor.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void clattn_softmax_init(clattn_softmax_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_SOFTMAX;
    op->axis = -1;
    op->empty_rows = CLATTN_EMPTY_ROWS_DEFAULT;
    op->scale = 1;
}

clattn_status clattn_softmax(clattn_context *context, const clattn_softmax_op *op, const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_SOFTMAX, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

#define ANY_DTYPE (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)

static int axis_of(const clattn_softmax_op *op) {
    return op->axis < 0 ? op->axis + op->x.rank : op->axis;
}

static bool writes_row(const clattn_softmax_op *op) {
    return op->function == CLATTN_SOFTMAX || op->function == CLATTN_LOG_SOFTMAX;
}

static clattn_status check_settings(const clattn_softmax_op *op) {
    RETURN_IF(op->function < CLATTN_SOFTMAX || op->function > CLATTN_SOFTMAX_STATE, CLATTN_INVALID_ARGUMENT,
              "function = %d is no clattn_softmax_function", (int)op->function);
    RETURN_IF(op->empty_rows < CLATTN_EMPTY_ROWS_NAN || op->empty_rows > CLATTN_EMPTY_ROWS_DEFAULT,
              CLATTN_INVALID_ARGUMENT, "empty_rows = %d is no clattn_empty_rows", (int)op->empty_rows);
    RETURN_IF(!isfinite(op->scale), CLATTN_INVALID_ARGUMENT, "scale = %g is not finite", (double)op->scale);
    return CLATTN_SUCCESS;
}

static clattn_status check_input(clattn_context *context, const clattn_softmax_op *op) {
    FORWARD(check_tensor(context, "x", &op->x, CHECK_INPUT));
    FORWARD(check_dtype("x", &op->x, ANY_DTYPE));
    const int axis = axis_of(op);
    RETURN_IF(axis < 0 || axis >= op->x.rank, CLATTN_INVALID_ARGUMENT, "axis = %d is outside x's rank %d",
              (int)op->axis, (int)op->x.rank);
    RETURN_IF(op->x.dims[axis] > INT32_MAX, CLATTN_INVALID_ARGUMENT, "x.dims[%d] = %lld is more than 2^31 - 1 columns",
              axis, (long long)op->x.dims[axis]);
    return CLATTN_SUCCESS;
}

/* mask or bias, where present: x's dims, or 1. */
static clattn_status check_repeated(clattn_context *context, const clattn_softmax_op *op, const char *name,
                                    const clattn_tensor *tensor, unsigned dtypes) {
    if (!tensor_is_present(tensor))
        return CLATTN_SUCCESS;
    FORWARD(check_tensor(context, name, tensor, CHECK_INPUT));
    FORWARD(check_dtype(name, tensor, dtypes));
    FORWARD(check_rank(name, tensor, op->x.rank));
    for (int i = 0; i < op->x.rank; i++)
        if (tensor->dims[i] != 1)
            FORWARD(check_dim(name, tensor, i, op->x.dims[i], "x's, or 1"));
    return CLATTN_SUCCESS;
}

static clattn_status check_absent(const char *name, const clattn_tensor *tensor, const char *function) {
    RETURN_IF(tensor->memory.kind != CLATTN_MEMORY_NONE, CLATTN_INVALID_ARGUMENT,
              "%s must be absent: %s does not write it", name, function);
    return CLATTN_SUCCESS;
}

/* An output of x's dims, or with one element along the axis. */
static clattn_status check_output(clattn_context *context, const clattn_softmax_op *op, const char *name,
                                  const clattn_tensor *out, unsigned dtypes) {
    FORWARD(check_tensor(context, name, out, CHECK_OUTPUT));
    FORWARD(check_dtype(name, out, dtypes));
    FORWARD(check_rank(name, out, op->x.rank));
    for (int i = 0; i < op->x.rank; i++) {
        const bool reduced = i == axis_of(op) && !writes_row(op);
        FORWARD(check_dim(name, out, i, reduced ? 1 : op->x.dims[i], reduced ? "one result per row" : "x has it too"));
    }
    const bool in_place = out == &op->y && check_same_view(out, &op->x);
    FORWARD(check_disjoint(name, out, "mask", &op->mask));
    FORWARD(check_disjoint(name, out, "bias", &op->bias));
    return in_place ? CLATTN_SUCCESS : check_disjoint(name, out, "x", &op->x);
}

static clattn_status check_outputs(clattn_context *context, const clattn_softmax_op *op) {
    if (op->function != CLATTN_SOFTMAX_STATE) {
        FORWARD(check_absent("m", &op->m, "this function"));
        FORWARD(check_absent("l", &op->l, "this function"));
        return check_output(context, op, "y", &op->y, ANY_DTYPE);
    }
    FORWARD(check_absent("y", &op->y, "CLATTN_SOFTMAX_STATE"));
    FORWARD(check_output(context, op, "m", &op->m, 1u << CLATTN_F32));
    FORWARD(check_output(context, op, "l", &op->l, 1u << CLATTN_F32));
    return check_disjoint("l", &op->l, "m", &op->m);
}

/* Strides are looked at with the rows; here the start, which memory of the caller's own may put anywhere. */
static bool starts_aligned(const clattn_tensor *tensor) {
    clattn_tensor start = *tensor;
    start.rank = 1;
    return check_aligned(&start, 16);
}

static void rows_of(const clattn_softmax_op *op, struct softmax_rows *rows) {
    const bool state = op->function == CLATTN_SOFTMAX_STATE;
    const struct softmax_tensors tensors = {.x = &op->x,
                                            .y = state ? &op->m : &op->y,
                                            .l = state ? &op->l : NULL,
                                            .mask = tensor_is_present(&op->mask) ? &op->mask : NULL,
                                            .bias = tensor_is_present(&op->bias) ? &op->bias : NULL};
    softmax_rows_of(&tensors, axis_of(op), writes_row(op), rows);
    rows->layout.scale = op->scale;
    rows->aligned = rows->aligned && starts_aligned(&op->x) && (!rows->writes_row || starts_aligned(&op->y));
}

static clattn_status softmax_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                   bool *empty) {
    const clattn_softmax_op *op = (const clattn_softmax_op *)head;
    FORWARD(check_settings(op));
    FORWARD(check_input(context, op));
    FORWARD(check_repeated(context, op, "mask", &op->mask, 1u << CLATTN_U8));
    FORWARD(check_repeated(context, op, "bias", &op->bias, ANY_DTYPE));
    FORWARD(check_outputs(context, op));
    struct softmax_rows rows;
    rows_of(op, &rows);
    *problem = (struct problem){.op = CLATTN_OP_SOFTMAX,
                                .dtype = op->x.dtype,
                                .out_dtype = rows.y_dtype,
                                .softmax_function = (int)op->function,
                                .rows = rows.layout.rows,
                                .columns = rows.layout.columns,
                                .aligned = rows.aligned};
    *empty = rows.layout.rows == 0 || (rows.layout.columns == 0 && writes_row(op));
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static bool gives_zero(const clattn_softmax_op *op) {
    return op->empty_rows == CLATTN_EMPTY_ROWS_ZERO ||
           (op->empty_rows == CLATTN_EMPTY_ROWS_DEFAULT && tensor_is_present(&op->mask));
}

static clattn_status make_job(const clattn_op *head, const struct choice *choice, struct softmax_job *job) {
    const clattn_softmax_op *op = (const clattn_softmax_op *)head;
    const bool state = op->function == CLATTN_SOFTMAX_STATE;
    *job = (struct softmax_job){.facts = &choice->facts,
                                .schedule = choice->variant->schedule,
                                .function = op->function,
                                .empty_zero = gives_zero(op),
                                .scaled = op->scale != 1,
                                .bias_dtype = op->bias.dtype,
                                .mask = tensor_is_present(&op->mask) ? op->mask.memory.as.buffer : NULL,
                                .bias = tensor_is_present(&op->bias) ? op->bias.memory.as.buffer : NULL,
                                .x = op->x.memory.as.buffer,
                                .y = state ? op->m.memory.as.buffer : op->y.memory.as.buffer,
                                .l = state ? op->l.memory.as.buffer : NULL};
    rows_of(op, &job->rows);
    return softmax_plan_make(job->facts, job->schedule, &job->rows, &choice->parameters, &job->plan);
}

static int64_t softmax_tuning_size(const struct problem *problem) {
    return problem->columns;
}

/* What softmax_plan_make() takes beside the sizes of groups. */
static void keep_given(const struct parameters *given, struct parameters *kept) {
    static const char *const names[] = {"blocks", "lag", "packets", "local_packets", "patience", "registers"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (parameters_get(given, names[i], 0) != 0)
            parameters_put(kept, names[i], parameters_get(given, names[i], 0));
}

/* Rows of tuning count packets of several elements: not those of unaligned rows. */
static void drop_packets(const clattn_softmax_op *op, struct choice *choice) {
    struct softmax_rows rows;
    rows_of(op, &rows);
    if (choice->variant->schedule != SCHEDULE_HELD || choice->overridden || rows.aligned)
        return;
    parameters_put(&choice->parameters, "packets", 0);
    parameters_put(&choice->parameters, "local_packets", 0);
}

/* A row may be made for a larger device: what does not fit this one is chosen anew. */
static clattn_status softmax_plan(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                  bool run_selftest, struct choice *choice) {
    (void)context;
    (void)problem;
    (void)run_selftest;
    struct softmax_job job;
    drop_packets((const clattn_softmax_op *)head, choice);
    clattn_status status = make_job(head, choice, &job);
    if (status == CLATTN_INVALID_ARGUMENT && !choice->overridden) {
        choice->parameters.count = 0;
        status = make_job(head, choice, &job);
    }
    FORWARD(status);
    const bool tickets = job.schedule == SCHEDULE_TICKETS || job.schedule == SCHEDULE_HELD;
    RETURN_IF(tickets && job.plan.group > 1 && !variant_keeps_rows(job.facts), CLATTN_UNSUPPORTED,
              "PoCL mixes up the work-items of a group here (group = %d).", job.plan.group);
    const struct parameters given = choice->parameters;
    choice->parameters.count = 0;
    if (job.schedule != SCHEDULE_GROUP && job.schedule != SCHEDULE_SPLIT && !tickets)
        parameters_put(&choice->parameters, "team", job.plan.team);
    keep_given(&given, &choice->parameters);
    parameters_put(&choice->parameters, "group", job.plan.group);
    parameters_put(&choice->parameters, "vector", job.plan.vector);
    return CLATTN_SUCCESS;
}

static clattn_status softmax_workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                       const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)problem;
    struct softmax_job job;
    FORWARD(make_job(head, choice, &job));
    *bytes = softmax_job_workspace(&job);
    return CLATTN_SUCCESS;
}

static clattn_status softmax_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                     const struct choice *choice) {
    (void)problem;
    struct softmax_job job;
    FORWARD(make_job(head, choice, &job));
    for (int i = 0; i < softmax_job_steps(&job); i++) {
        struct program *program;
        FORWARD(softmax_job_program(context, &job, i, &program));
    }
    return CLATTN_SUCCESS;
}

static clattn_status softmax_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                     const struct choice *choice, const clattn_launch *launch) {
    (void)problem;
    struct softmax_job job;
    FORWARD(make_job(head, choice, &job));
    struct sequence sequence;
    sequence_begin(&sequence, context, launch, softmax_job_steps(&job));
    const clattn_status status = softmax_job_enqueue(&job, &launch->workspace, &sequence);
    sequence_end(&sequence);
    return status;
}

static void softmax_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    static const char *const function[] = {"softmax", "log_softmax", "log_sum_exp", "softmax_state"};
    const int group = parameters_get(&choice->parameters, "group", 1);
    const int team = parameters_get(&choice->parameters, "team", group);
    snprintf(name, size, "%s_%s__%s_%s", function[problem->softmax_function], tensor_dtype_name(problem->dtype),
             choice->variant->name, device_subgroup_name(softmax_plan_backend(&choice->facts, team, group)));
}

const struct operation operation_softmax = {
    .kind = CLATTN_OP_SOFTMAX,
    .minimum_size = sizeof(clattn_softmax_op),
    .check = softmax_check,
    .tuning_size = softmax_tuning_size,
    .plan = softmax_plan,
    .workspace = softmax_workspace,
    .prepare = softmax_prepare,
    .enqueue = softmax_enqueue,
    .describe = softmax_describe,
};
