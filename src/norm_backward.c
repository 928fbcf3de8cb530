/* Gradients of RMSNorm and LayerNorm: check, plan, launch. */
#include "context.h"
#include "norm_check.h"
#include "operation.h"
#include "rows.h"
#include "status.h"
#include "tensor.h"

#include <clattn/training.h>
#include <stdio.h>
#include <string.h>

void clattn_norm_backward_init(clattn_norm_backward_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_NORM_BACKWARD;
    op->eps = 1e-5f;
}

clattn_status clattn_norm_backward(clattn_context *context, const clattn_norm_backward_op *op,
                                   const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_NORM_BACKWARD, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_tensors(clattn_context *context, const clattn_norm_backward_op *op) {
    FORWARD(norm_check_settings(op->function, op->eps));
    FORWARD(norm_check_x(context, &op->x));
    FORWARD(norm_check_columns(context, &op->x, "weight", &op->weight, CHECK_INPUT));
    FORWARD(norm_check_whole(context, &op->x, "dy", &op->dy, CHECK_INPUT));
    if (tensor_is_present(&op->dsum))
        FORWARD(norm_check_whole(context, &op->x, "dsum", &op->dsum, CHECK_INPUT));
    FORWARD(norm_check_whole(context, &op->x, "dx", &op->dx, CHECK_OUTPUT));
    FORWARD(norm_check_columns(context, &op->x, "dweight", &op->dweight, CHECK_OUTPUT));
    return norm_check_columns(context, &op->x, "dbias", &op->dbias, CHECK_OUTPUT);
}

static clattn_status check_overlaps(const clattn_norm_backward_op *op) {
    const struct check_named dx[] = {{"dx", &op->dx},      {"x", &op->x},           {"dy", &op->dy},
                                     {"dsum", &op->dsum},  {"weight", &op->weight}, {"dweight", &op->dweight},
                                     {"dbias", &op->dbias}};
    const struct check_named sums[] = {{"dweight", &op->dweight}, {"dbias", &op->dbias}, {"x", &op->x},
                                       {"weight", &op->weight},   {"dy", &op->dy},       {"dsum", &op->dsum}};
    FORWARD(norm_check_apart(dx, 3, 7));
    return check_all_disjoint(sums, 2, 6);
}

static clattn_status norm_backward_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                         bool *empty) {
    const clattn_norm_backward_op *op = (const clattn_norm_backward_op *)head;
    FORWARD(check_tensors(context, op));
    FORWARD(check_overlaps(op));
    *problem = (struct problem){.op = CLATTN_OP_NORM_BACKWARD,
                                .dtype = op->x.dtype,
                                .out_dtype = op->dx.dtype,
                                .norm_function = (int)op->function,
                                .rows = check_product(op->x.dims, op->x.rank - 1),
                                .columns = op->x.dims[op->x.rank - 1]};
    *empty = problem->rows == 0 || problem->columns == 0;
    return CLATTN_SUCCESS;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

/* The second kernel's work-groups: neighbouring columns, and parts of the teams. */
enum { COLUMN_LANES = 32, COLUMN_GROUP = 1024, ROWS_PER_TEAM = 8 };

struct norm_backward_job {
    struct rows rows;
    struct softmax_plan plan;
    struct rows_kernel kernel;
    int64_t groups, teams; /* teams that have rows */
    int lanes, slices;
    int planes;      /* how many of dweight and dbias are wanted */
    bool local_sums; /* a team's part of them is in local memory */
};

static const char *const macros[] = {"X_DTYPE", "DY_DTYPE", "DSUM_DTYPE", "WEIGHT_DTYPE", "DX_DTYPE",
                                     "LAYER",   "ONE_PLUS", "DWEIGHT",    "DBIAS",        "LOCAL_SUMS"};

static struct rows_kernel kernel_of(const clattn_norm_backward_op *op, enum schedule schedule, bool local_sums) {
    const bool loops = schedule == SCHEDULE_ONLINE;
    return (struct rows_kernel){.file = loops ? "norm_backward_loop.cl" : "norm_backward.cl",
                                .kernel = loops ? "norm_backward_loop" : "norm_backward_registers",
                                .macros = macros,
                                .values = {rows_dtype(&op->x), rows_dtype(&op->dy), rows_dtype(&op->dsum),
                                           rows_dtype(&op->weight), rows_dtype(&op->dx),
                                           op->function == CLATTN_LAYER_NORM,
                                           op->one_plus_weight != 0 && tensor_is_present(&op->weight),
                                           tensor_is_present(&op->dweight), tensor_is_present(&op->dbias), local_sums},
                                .count = sizeof macros / sizeof macros[0]};
}

static void find_rows(const clattn_norm_backward_op *op, struct rows *rows) {
    const clattn_tensor *const tensors[] = {&op->x, &op->dy, &op->dsum, &op->dx};
    rows_of(tensors, 4, op->x.rank - 1, rows);
    rows->aligned = rows->aligned && check_aligned(&op->weight, 16);
    /* Rows of partial sums in the workspace lie one behind the other. */
    rows->aligned = rows->aligned && rows->layout.columns % 4 == 0;
}

/* 32-bit registers of a GPU's compute unit, as a rule, and those that a work-item takes beside what it holds. */
enum { UNIT_REGISTERS = 65536, WORK_REGISTERS = 40, UNIT_ITEMS = 1024 };

/* A work-item holds its part of two rows, and of the sums. */
static int64_t registers_of(const struct norm_backward_job *job, int planes) {
    return WORK_REGISTERS + (2 + planes) * (int64_t)job->plan.packets * job->plan.vector;
}

static uint64_t sums_bytes(const struct norm_backward_job *job) {
    return sizeof(float) * (uint64_t)(job->planes * job->plan.packets * job->plan.vector) * (uint64_t)job->plan.group;
}

/* The parameter "sums": 1 in registers, 2 in local memory, 0 there where registers are too few. */
static clattn_status place_sums(const struct choice *choice, struct norm_backward_job *job) {
    enum { SPARE = 2048 }; /* bytes for reductions */
    const int sums = parameters_get(&choice->parameters, "sums", 0);
    const bool fits = sums_bytes(job) + SPARE <= choice->facts.local_memory;
    const bool held = choice->variant->schedule == SCHEDULE_GROUP;
    RETURN_IF(held && sums == 2 && !fits, CLATTN_INVALID_ARGUMENT,
              "parameters: sums = 2 takes %llu bytes of local memory, and there are %llu",
              (unsigned long long)(sums_bytes(job) + SPARE), (unsigned long long)choice->facts.local_memory);
    const bool many = registers_of(job, job->planes) * job->plan.group > UNIT_REGISTERS;
    job->local_sums = held && job->planes > 0 && fits && (sums == 2 || (sums == 0 && many));
    return CLATTN_SUCCESS;
}

/* How many work-groups a GPU's compute unit holds at once, as far as can be told. */
static int64_t resident_groups(const struct device_facts *facts, const struct norm_backward_job *job) {
    int64_t registers = registers_of(job, job->local_sums ? 0 : job->planes);
    if (job->plan.registers > 0 && job->plan.registers < registers)
        registers = job->plan.registers;
    int64_t most = UNIT_REGISTERS / (registers * job->plan.group);
    if (most > UNIT_ITEMS / job->plan.group)
        most = UNIT_ITEMS / job->plan.group;
    if (job->local_sums && most > (int64_t)(facts->local_memory / sums_bytes(job)))
        most = (int64_t)(facts->local_memory / sums_bytes(job));
    return most > 0 ? most : 1;
}

/* As many work-groups as the device holds at once, fewer where that leaves them few rows. */
static void cut_rows(const struct device_facts *facts, struct norm_backward_job *job) {
    const bool cpu = (facts->caps & CAP_BIT(CAP_CPU)) != 0;
    const int64_t rows = job->rows.layout.rows, teams = job->plan.group / job->plan.team;
    const int64_t most =
        (int64_t)facts->compute_units * (cpu ? (3 + job->plan.group) / job->plan.group : resident_groups(facts, job));
    const int64_t worth = (rows + teams * ROWS_PER_TEAM - 1) / (teams * ROWS_PER_TEAM);
    job->groups = most < worth ? most : worth;
    job->teams = job->groups * teams < rows ? job->groups * teams : rows;
}

static void cut_columns(const struct device_facts *facts, struct norm_backward_job *job) {
    const bool cpu = (facts->caps & CAP_BIT(CAP_CPU)) != 0;
    job->lanes = 1;
    job->slices = 1;
    while (job->lanes < COLUMN_LANES && 2 * (uint32_t)job->lanes <= facts->max_group &&
           2 * (uint32_t)job->lanes <= facts->max_item[0])
        job->lanes *= 2;
    const uint32_t most = facts->max_group < facts->max_item[0] ? facts->max_group : facts->max_item[0];
    while (!cpu && job->lanes * job->slices < COLUMN_GROUP && 2 * (uint32_t)(job->lanes * job->slices) <= most &&
           job->slices < job->teams)
        job->slices *= 2;
}

static clattn_status make_job(const clattn_op *head, const struct choice *choice, struct norm_backward_job *job) {
    const clattn_norm_backward_op *op = (const clattn_norm_backward_op *)head;
    job->planes = tensor_is_present(&op->dweight) + tensor_is_present(&op->dbias);
    find_rows(op, &job->rows);
    FORWARD(rows_plan(choice, &job->rows, &job->plan));
    FORWARD(place_sums(choice, job));
    job->kernel = kernel_of(op, choice->variant->schedule, job->local_sums);
    cut_rows(&choice->facts, job);
    cut_columns(&choice->facts, job);
    return CLATTN_SUCCESS;
}

/* LLVM 15 in PoCL 3.1 crashes over barriers in a loop over rows that holds loops over columns. */
static clattn_status check_barriers(const clattn_op *head, const struct choice *choice) {
    struct norm_backward_job job;
    FORWARD(make_job(head, choice, &job));
    RETURN_IF(choice->variant->schedule == SCHEDULE_ONLINE && job.plan.team > 1 && !variant_keeps_rows(&choice->facts),
              CLATTN_UNSUPPORTED, "PoCL's compiler crashes where work-items share rows (team = %d).", job.plan.team);
    return CLATTN_SUCCESS;
}

static int64_t norm_backward_tuning_size(const struct problem *problem) {
    return problem->columns;
}

static clattn_status norm_backward_plan(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                        bool run_selftest, struct choice *choice) {
    (void)context;
    (void)problem;
    (void)run_selftest;
    struct rows rows;
    find_rows((const clattn_norm_backward_op *)head, &rows);
    const int sums = parameters_get(&choice->parameters, "sums", 0);
    FORWARD(rows_choose(choice, &rows));
    if (sums != 0)
        parameters_put(&choice->parameters, "sums", sums);
    return check_barriers(head, choice);
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* A plane of dweight and one of dbias, a row of each per team. */
static int64_t plane_of(const struct norm_backward_job *job) {
    return job->groups * (job->plan.group / job->plan.team) * job->rows.layout.columns;
}

static clattn_status norm_backward_workspace(clattn_context *context, const clattn_op *head,
                                             const struct problem *problem, const struct choice *choice,
                                             size_t *bytes) {
    (void)context;
    (void)problem;
    struct norm_backward_job job;
    FORWARD(make_job(head, choice, &job));
    *bytes = job.planes > 0 ? 2 * sizeof(float) * (size_t)plane_of(&job) : 0;
    return CLATTN_SUCCESS;
}

static clattn_status columns_program(clattn_context *context, const clattn_norm_backward_op *op,
                                     const struct norm_backward_job *job, const struct device_facts *facts,
                                     struct program **program) {
    char options[128];
    snprintf(options, sizeof options, "-DDWEIGHT_DTYPE=%d -DDBIAS_DTYPE=%d -DLANES=%d -DSLICES=%d%s",
             (int)rows_dtype(&op->dweight), (int)rows_dtype(&op->dbias), job->lanes, job->slices,
             (facts->caps & CAP_BIT(CAP_HALF_TYPE)) != 0 ? " -DHALF_TYPE" : "");
    const struct program_key key = {"norm_backward_columns.cl", "norm_backward_columns", options};
    return program_get(context, &key, program);
}

/* program[1] stays NULL where no sums are wanted. */
static clattn_status get_programs(clattn_context *context, const clattn_norm_backward_op *op,
                                  const struct norm_backward_job *job, const struct device_facts *facts,
                                  struct program *program[2]) {
    program[1] = NULL;
    FORWARD(rows_program(context, facts, &job->rows, &job->plan, &job->kernel, &program[0]));
    return job->planes > 0 ? columns_program(context, op, job, facts, &program[1]) : CLATTN_SUCCESS;
}

static clattn_status norm_backward_prepare(clattn_context *context, const clattn_op *head,
                                           const struct problem *problem, const struct choice *choice) {
    (void)problem;
    struct norm_backward_job job;
    struct program *program[2];
    FORWARD(make_job(head, choice, &job));
    return get_programs(context, (const clattn_norm_backward_op *)head, &job, &choice->facts, program);
}

static clattn_status enqueue_rows(const clattn_norm_backward_op *op, const struct norm_backward_job *job,
                                  const clattn_workspace *workspace, struct program *program,
                                  struct sequence *sequence) {
    const size_t groups = (size_t)job->groups, local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, op->x.memory.as.buffer);
    launch_buffer(&launch, op->dy.memory.as.buffer);
    launch_buffer(&launch, rows_buffer(&op->dsum));
    launch_buffer(&launch, rows_buffer(&op->weight));
    launch_buffer(&launch, op->dx.memory.as.buffer);
    launch_buffer(&launch, job->planes > 0 ? workspace->buffer : NULL);
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    launch_long(&launch, op->weight.offset);
    launch_long(&launch, (int64_t)(workspace->offset / sizeof(float)));
    launch_long(&launch, plane_of(job));
    launch_int(&launch, (int32_t)job->groups);
    launch_float(&launch, op->eps);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status enqueue_columns(const clattn_norm_backward_op *op, const struct norm_backward_job *job,
                                     const clattn_workspace *workspace, struct program *program,
                                     struct sequence *sequence) {
    const size_t groups = (size_t)((job->rows.layout.columns + job->lanes - 1) / job->lanes);
    const size_t local = (size_t)(job->lanes * job->slices);
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, workspace->buffer);
    launch_buffer(&launch, rows_buffer(&op->dweight));
    launch_buffer(&launch, rows_buffer(&op->dbias));
    launch_long(&launch, (int64_t)(workspace->offset / sizeof(float)));
    launch_long(&launch, plane_of(job));
    launch_long(&launch, op->dweight.offset);
    launch_long(&launch, op->dbias.offset);
    launch_long(&launch, job->rows.layout.columns);
    launch_int(&launch, (int32_t)job->teams);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status norm_backward_enqueue(clattn_context *context, const clattn_op *head,
                                           const struct problem *problem, const struct choice *choice,
                                           const clattn_launch *launch) {
    (void)problem;
    const clattn_norm_backward_op *op = (const clattn_norm_backward_op *)head;
    struct norm_backward_job job;
    struct program *program[2];
    struct sequence sequence;
    FORWARD(make_job(head, choice, &job));
    FORWARD(get_programs(context, op, &job, &choice->facts, program));
    sequence_begin(&sequence, context, launch, job.planes > 0 ? 2 : 1);
    clattn_status status = enqueue_rows(op, &job, &launch->workspace, program[0], &sequence);
    if (status == CLATTN_SUCCESS && job.planes > 0)
        status = enqueue_columns(op, &job, &launch->workspace, program[1], &sequence);
    sequence_end(&sequence);
    return status;
}

static void norm_backward_describe(const struct problem *problem, const struct choice *choice, char *name,
                                   size_t size) {
    char way[64];
    rows_describe(choice, way, sizeof way);
    snprintf(name, size, "%s_backward_%s__%s", problem->norm_function == CLATTN_LAYER_NORM ? "layer_norm" : "rms_norm",
             tensor_dtype_name(problem->dtype), way);
}

const struct operation operation_norm_backward = {
    .kind = CLATTN_OP_NORM_BACKWARD,
    .minimum_size = sizeof(clattn_norm_backward_op),
    .check = norm_backward_check,
    .tuning_size = norm_backward_tuning_size,
    .plan = norm_backward_plan,
    .workspace = norm_backward_workspace,
    .prepare = norm_backward_prepare,
    .enqueue = norm_backward_enqueue,
    .describe = norm_backward_describe,
};
