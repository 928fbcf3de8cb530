/* The matrix product on the library's own tiles (cl/gemm.cl): tile parameters from the tuning row to the kernel's
 * options, and the launch. */
#include "context.h"
#include "gemm.h"
#include "status.h"
#include "tile_fit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* As the kernel's parameters. */
struct plan {
    struct tile_shape shape;
    int column_tiles, k_slice, stage_slots;
};

/* As gemm_t in cl/gemm.cl. */
struct call {
    struct gemm_view a, b, c;
    int32_t inner, m, n, k;
    float alpha, beta;
};

static int round_up(int64_t value, int step) {
    return (int)((value + step - 1) / step) * step;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* Parameters that a row or caller left out, or that the halving of tile_fit() left between steps. The product needs no
 * sub-groups. */
static struct plan plan_of(const struct problem *problem, enum backend backend, const struct parameters *parameters,
                           const struct device_facts *facts) {
    struct plan plan = {.shape = tile_shape_of(backend, parameters, facts)};
    plan.shape.subgroup = SUBGROUP_LOCAL;
    plan.shape.subgroup_size = 1;
    const int whole = problem->k > 0 ? round_up(problem->k, plan.shape.k) : plan.shape.k;
    plan.column_tiles = parameters_get(parameters, "column_tiles", 1);
    plan.k_slice = smaller(round_up(parameters_get(parameters, "k_slice", plan.shape.k), plan.shape.k), whole);
    plan.stage_slots = parameters_get(parameters, "stage_slots", 1);
    return plan;
}

static int block_rows(const struct plan *plan) {
    return plan->shape.groups * plan->shape.m;
}

static int block_columns(const struct plan *plan) {
    return plan->column_tiles * plan->shape.n;
}

struct need_user {
    const struct problem *problem;
    enum backend backend;
};

static struct tile_need need(const struct parameters *parameters, const struct device_facts *facts, const void *data) {
    const struct need_user *user = data;
    const struct plan plan = plan_of(user->problem, user->backend, parameters, facts);
    const size_t slots = (size_t)plan.stage_slots;
    const size_t a = tile_a_bytes(&plan.shape, block_rows(&plan), plan.k_slice);
    const size_t b = user->problem->transpose_b ? tile_bt_bytes(&plan.shape, block_columns(&plan), plan.k_slice)
                                                : tile_b_bytes(&plan.shape, plan.k_slice, block_columns(&plan));
    return (struct tile_need){.items = (uint64_t)(plan.shape.groups * plan.shape.items),
                              .local = tile_array_bytes(slots * a) + tile_array_bytes(slots * b)};
}

static const char *refusal(enum backend backend, const struct parameters *parameters) {
    const char *shape = tile_shape_refusal(backend, parameters);
    if (shape != NULL)
        return shape;
    if (parameters_get(parameters, "fma_rows", 4) < 4)
        return "fma_rows must be 4 or 8.";
    if (parameters_get(parameters, "column_tiles", 1) < 1 || parameters_get(parameters, "column_tiles", 1) > 64)
        return "column_tiles must lie in 1..64.";
    if (parameters_get(parameters, "k_slice", 1) < 1 || parameters_get(parameters, "k_slice", 1) > 65536)
        return "k_slice must lie in 1..65536.";
    if (parameters_get(parameters, "stage_slots", 1) < 1 || parameters_get(parameters, "stage_slots", 1) > 2)
        return "stage_slots must be 1 or 2.";
    return NULL;
}

/* Tuning rows shrink to the device; what a caller asked for is taken as it is or refused. */
static clattn_status make_plan(const struct problem *problem, const struct choice *choice, struct plan *plan) {
    static const struct tile_step for_items[] = {{"groups", 1}, {"fma_items", 1}, {NULL, 0}};
    static const struct tile_step for_local[] = {
        {"stage_slots", 1}, {"k_slice", 16}, {"column_tiles", 1}, {"groups", 1},    {"k_slice", 1},
        {"fma_items", 1},   {"fma_rows", 4}, {"cpu_rows", 8},     {"mma_rows", 16}, {NULL, 0}};
    const enum backend backend = choice->variant->backend;
    const struct need_user user = {problem, backend};
    const struct tile_plan fit = {for_items, for_local, need, &user};
    struct parameters parameters = choice->parameters;
    const char *reason = refusal(backend, &parameters);
    RETURN_IF(reason != NULL, CLATTN_INVALID_ARGUMENT, "parameters: %s", reason);
    RETURN_IF(!tile_fit(&fit, &choice->facts, &parameters), CLATTN_UNSUPPORTED,
              "the smallest tile needs more work-items or local memory than the device has (%u, %" PRIu64 " bytes)",
              choice->facts.max_group, choice->facts.local_memory);
    RETURN_IF(choice->overridden && memcmp(&choice->parameters, &parameters, sizeof parameters) != 0,
              CLATTN_UNSUPPORTED,
              "parameters: they need more work-items or local memory than the device has (%u, %" PRIu64 " bytes)",
              choice->facts.max_group, choice->facts.local_memory);
    *plan = plan_of(problem, backend, &parameters, &choice->facts);
    return CLATTN_SUCCESS;
}

void gemm_tiled_blocks(const struct problem *problem, const struct choice *choice, int *rows, int *columns) {
    struct plan plan;
    if (make_plan(problem, choice, &plan) != CLATTN_SUCCESS)
        return;
    *rows = block_rows(&plan);
    *columns = block_columns(&plan);
}

/* Work-groups; false where they are more than a launch takes everywhere. */
static bool count_groups(const struct problem *problem, const struct plan *plan, size_t *groups) {
    const int64_t down = (problem->m + block_rows(plan) - 1) / block_rows(plan);
    const int64_t across = (problem->n + block_columns(plan) - 1) / block_columns(plan);
    int64_t all = 0;
    if (__builtin_mul_overflow(down, across, &all) || __builtin_mul_overflow(all, problem->batch, &all) ||
        all > INT32_MAX)
        return false;
    *groups = (size_t)all;
    return true;
}

/* All that a launch needs beside its tensors. */
struct ready {
    struct plan plan;
    size_t groups;
    struct program *program;
};

static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    char tile[256], options[512];
    struct plan *plan = &ready->plan;
    FORWARD(make_plan(problem, choice, plan));
    RETURN_IF(!count_groups(problem, plan, &ready->groups), CLATTN_UNSUPPORTED, "c: more than 2^31 blocks of %d x %d",
              block_rows(plan), block_columns(plan));
    tile_options(&plan->shape, "plain", tile, sizeof tile);
    snprintf(options, sizeof options,
             "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DALIGNED=%d -DCOLUMN_TILES=%d "
             "-DK_SLICE=%d -DSTAGE_SLOTS=%d",
             tile, (int)problem->dtype, (int)problem->out_dtype, problem->transpose_a, problem->transpose_b,
             problem->aligned, plan->column_tiles, plan->k_slice, plan->stage_slots);
    const struct program_key key = {.file = "gemm.cl", .kernel = "gemm", .options = options};
    return program_get(context, &key, &ready->program);
}

clattn_status gemm_tiled_prepare(clattn_context *context, const struct problem *problem, const struct choice *choice) {
    struct ready ready;
    return get_ready(context, problem, choice, &ready);
}

/* An input that is not read may have no memory. */
static void launch_tensor(struct launch *launch, const clattn_tensor *tensor, bool read) {
    launch_buffer(launch, read ? tensor->memory.as.buffer : NULL);
}

clattn_status gemm_tiled_enqueue(const clattn_gemm_op *op, const struct problem *problem, const struct choice *choice,
                                 struct sequence *sequence) {
    struct ready ready;
    struct launch launch;
    int64_t outer = 0, inner = 0;
    FORWARD(get_ready(sequence->context, problem, choice, &ready));
    gemm_batches(op, &outer, &inner);
    const struct call call = {.a = gemm_view_of(&op->a),
                              .b = gemm_view_of(&op->b),
                              .c = gemm_view_of(&op->c),
                              .inner = (int32_t)inner,
                              .m = (int32_t)problem->m,
                              .n = (int32_t)problem->n,
                              .k = (int32_t)problem->k,
                              .alpha = op->alpha,
                              .beta = op->beta};
    const size_t items = (size_t)(ready.plan.shape.groups * ready.plan.shape.items);
    launch_begin(&launch, ready.program);
    launch_tensor(&launch, &op->a, problem->k > 0);
    launch_tensor(&launch, &op->b, problem->k > 0);
    launch_buffer(&launch, op->c.memory.as.buffer);
    launch_struct(&launch, &call, sizeof call);
    return launch_enqueue(&launch, sequence, 1, &ready.groups, &items);
}
