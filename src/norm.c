/* RMSNorm and LayerNorm: check, plan, launch. */
#include "context.h"
#include "norm_check.h"
#include "operation.h"
#include "rows.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

void clattn_norm_init(clattn_norm_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_NORM;
    op->eps = 1e-5f;
}

clattn_status clattn_norm(clattn_context *context, const clattn_norm_op *op, const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_NORM, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_inputs(clattn_context *context, const clattn_norm_op *op) {
    FORWARD(norm_check_settings(op->function, op->eps));
    FORWARD(norm_check_x(context, &op->x));
    if (tensor_is_present(&op->residual))
        FORWARD(norm_check_whole(context, &op->x, "residual", &op->residual, CHECK_INPUT));
    FORWARD(norm_check_columns(context, &op->x, "weight", &op->weight, CHECK_INPUT));
    return norm_check_columns(context, &op->x, "bias", &op->bias, CHECK_INPUT);
}

static clattn_status check_apart(const clattn_norm_op *op, const char *name, const clattn_tensor *out) {
    const struct check_named tensors[] = {
        {name, out}, {"x", &op->x}, {"residual", &op->residual}, {"weight", &op->weight}, {"bias", &op->bias}};
    return norm_check_apart(tensors, 2, 5);
}

static clattn_status check_outputs(clattn_context *context, const clattn_norm_op *op) {
    FORWARD(norm_check_whole(context, &op->x, "y", &op->y, CHECK_OUTPUT));
    FORWARD(check_apart(op, "y", &op->y));
    if (!tensor_is_present(&op->sum))
        return CLATTN_SUCCESS;
    RETURN_IF(!tensor_is_present(&op->residual), CLATTN_INVALID_ARGUMENT,
              "sum must be absent: there is no residual to add");
    FORWARD(norm_check_whole(context, &op->x, "sum", &op->sum, CHECK_OUTPUT));
    FORWARD(check_apart(op, "sum", &op->sum));
    return check_disjoint("sum", &op->sum, "y", &op->y);
}

static clattn_status norm_check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_norm_op *op = (const clattn_norm_op *)head;
    FORWARD(check_inputs(context, op));
    FORWARD(check_outputs(context, op));
    *problem = (struct problem){.op = CLATTN_OP_NORM,
                                .dtype = op->x.dtype,
                                .out_dtype = op->y.dtype,
                                .norm_function = (int)op->function,
                                .rows = check_product(op->x.dims, op->x.rank - 1),
                                .columns = op->x.dims[op->x.rank - 1]};
    *empty = problem->rows == 0 || problem->columns == 0;
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

struct norm_job {
    struct rows rows;
    struct softmax_plan plan;
    struct rows_kernel kernel;
};

static const char *const macros[] = {"X_DTYPE", "RESIDUAL_DTYPE", "WEIGHT_DTYPE", "BIAS_DTYPE",
                                     "Y_DTYPE", "SUM_DTYPE",      "LAYER",        "ONE_PLUS"};

static struct rows_kernel kernel_of(const clattn_norm_op *op, enum schedule schedule) {
    const bool loops = schedule == SCHEDULE_ONLINE;
    return (struct rows_kernel){.file = loops ? "norm_loop.cl" : "norm.cl",
                                .kernel = loops ? "norm_online" : "norm_registers",
                                .macros = macros,
                                .values = {rows_dtype(&op->x), rows_dtype(&op->residual), rows_dtype(&op->weight),
                                           rows_dtype(&op->bias), rows_dtype(&op->y), rows_dtype(&op->sum),
                                           op->function == CLATTN_LAYER_NORM,
                                           op->one_plus_weight != 0 && tensor_is_present(&op->weight)},
                                .count = sizeof macros / sizeof macros[0]};
}

static void find_rows(const clattn_norm_op *op, struct rows *rows) {
    const clattn_tensor *const tensors[] = {&op->x, &op->residual, &op->y, &op->sum};
    rows_of(tensors, 4, op->x.rank - 1, rows);
    rows->aligned = rows->aligned && check_aligned(&op->weight, 16) && check_aligned(&op->bias, 16);
}

static clattn_status make_job(const clattn_op *head, const struct choice *choice, struct norm_job *job) {
    const clattn_norm_op *op = (const clattn_norm_op *)head;
    find_rows(op, &job->rows);
    job->kernel = kernel_of(op, choice->variant->schedule);
    return rows_plan(choice, &job->rows, &job->plan);
}

static int64_t norm_tuning_size(const struct problem *problem) {
    return problem->columns;
}

/* LayerNorm's work-items meet twice: where they hold little, or are 1024, half as many are faster (H200, 16384 rows:
 * fp16 76 -> 70 us at 4096 columns, 156 -> 141 at 8192; fp32 610 -> 523 at 16384). */
static void halve_group(struct choice *choice, const struct rows *rows) {
    enum { FEW_PACKETS = 2, LEAST = 256, MOST = 512 };
    struct softmax_plan plan;
    if (choice->variant->schedule != SCHEDULE_GROUP || parameters_get(&choice->parameters, "group", 0) != 0 ||
        rows_plan(choice, rows, &plan) != CLATTN_SUCCESS)
        return;
    const bool holds_little = rows->narrow && plan.packets <= FEW_PACKETS && plan.group >= LEAST;
    if (holds_little || plan.group > MOST)
        parameters_put(&choice->parameters, "group", plan.group / 2);
}

static clattn_status norm_plan(clattn_context *context, const clattn_op *head, const struct problem *problem,
                               bool run_selftest, struct choice *choice) {
    (void)context;
    (void)problem;
    (void)run_selftest;
    struct rows rows;
    const clattn_norm_op *op = (const clattn_norm_op *)head;
    find_rows(op, &rows);
    if (op->function == CLATTN_LAYER_NORM)
        halve_group(choice, &rows);
    return rows_choose(choice, &rows);
}

static clattn_status norm_workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                    const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static clattn_status norm_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                  const struct choice *choice) {
    (void)problem;
    struct norm_job job;
    struct program *program;
    FORWARD(make_job(head, choice, &job));
    return rows_program(context, &choice->facts, &job.rows, &job.plan, &job.kernel, &program);
}

static clattn_status enqueue(const clattn_norm_op *op, const struct norm_job *job, struct program *program,
                             struct sequence *sequence) {
    const size_t groups = rows_groups(&job->rows, &job->plan), local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, rows_buffer(&op->x));
    launch_buffer(&launch, rows_buffer(&op->residual));
    launch_buffer(&launch, rows_buffer(&op->weight));
    launch_buffer(&launch, rows_buffer(&op->bias));
    launch_buffer(&launch, rows_buffer(&op->y));
    launch_buffer(&launch, rows_buffer(&op->sum));
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    launch_long(&launch, op->weight.offset);
    launch_long(&launch, op->bias.offset);
    launch_float(&launch, op->eps);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status norm_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                  const struct choice *choice, const clattn_launch *launch) {
    (void)problem;
    struct norm_job job;
    struct program *program;
    struct sequence sequence;
    FORWARD(make_job(head, choice, &job));
    FORWARD(rows_program(context, &choice->facts, &job.rows, &job.plan, &job.kernel, &program));
    sequence_begin(&sequence, context, launch, 1);
    const clattn_status status = enqueue((const clattn_norm_op *)head, &job, program, &sequence);
    sequence_end(&sequence);
    return status;
}

static void norm_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    char way[64];
    rows_describe(choice, way, sizeof way);
    snprintf(name, size, "%s_%s__%s", problem->norm_function == CLATTN_LAYER_NORM ? "layer_norm" : "rms_norm",
             tensor_dtype_name(problem->dtype), way);
}

const struct operation operation_norm = {
    .kind = CLATTN_OP_NORM,
    .minimum_size = sizeof(clattn_norm_op),
    .check = norm_check,
    .tuning_size = norm_tuning_size,
    .plan = norm_plan,
    .workspace = norm_workspace,
    .prepare = norm_prepare,
    .enqueue = norm_enqueue,
    .describe = norm_describe,
};
