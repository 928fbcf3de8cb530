/* The matrix product on the library's own tiles (cl/gemm.cl): tile parameters from the tuning row to the kernel's
 * options, and the launch. */
#include "context.h"
#include "gemm.h"
#include "status.h"
#include "tile_fit.h"

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

/* The product needs no sub-groups. */
static struct plan plan_of(const struct problem *problem, enum backend backend, const struct parameters *parameters,
                           const struct device_facts *facts) {
    struct plan plan = {.shape = tile_shape_of(backend, parameters, facts)};
    plan.shape.subgroup = SUBGROUP_LOCAL;
    plan.shape.subgroup_size = 1;
    const int64_t whole = tile_round_up(problem->k > 0 ? problem->k : 1, plan.shape.k);
    const int64_t slice = tile_round_up(parameters_get(parameters, "k_slice", plan.shape.k), plan.shape.k);
    plan.column_tiles = parameters_get(parameters, "column_tiles", 1);
    plan.k_slice = (int)(slice < whole ? slice : whole);
    plan.stage_slots = parameters_get(parameters, "stage_slots", 1);
    return plan;
}

static struct plan plan_of_choice(const struct problem *problem, const struct choice *choice) {
    return plan_of(problem, choice->variant->backend, &choice->parameters, &choice->facts);
}

static int block_rows(const struct plan *plan) {
    return plan->shape.groups * plan->shape.m;
}

static int block_columns(const struct plan *plan) {
    return plan->column_tiles * plan->shape.n;
}

static struct tile_need need(const struct tile_plan *tiles, const struct parameters *parameters,
                             const struct device_facts *facts) {
    const struct plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    const size_t slots = (size_t)plan.stage_slots;
    const size_t a = tile_a_bytes(&plan.shape, block_rows(&plan), plan.k_slice);
    const size_t b = tiles->problem->transpose_b ? tile_bt_bytes(&plan.shape, block_columns(&plan), plan.k_slice)
                                                 : tile_b_bytes(&plan.shape, plan.k_slice, block_columns(&plan));
    return (struct tile_need){.items = (uint64_t)(plan.shape.groups * plan.shape.items),
                              .local = TILE_START + tile_array_bytes(slots * a) + tile_array_bytes(slots * b)};
}

static void spell_out(const struct tile_plan *tiles, const struct parameters *parameters,
                      const struct device_facts *facts, struct parameters *out) {
    const struct plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    parameters_put(out, "column_tiles", plan.column_tiles);
    parameters_put(out, "k_slice", plan.k_slice);
    parameters_put(out, "stage_slots", plan.stage_slots);
}

static const struct tile_step for_local[] = {
    {"stage_slots", 1, false}, {"k_slice", 16, false}, {"column_tiles", 1, false},
    {"groups", 1, false},      {"k_slice", 1, false},  {NULL, 0, false},
};

static const struct tile_kernel kernel_on_tiles = {for_local, need, spell_out};

static clattn_status count_groups(const struct problem *problem, const struct plan *plan, size_t *groups) {
    const int64_t down = (problem->m + block_rows(plan) - 1) / block_rows(plan);
    const int64_t across = (problem->n + block_columns(plan) - 1) / block_columns(plan);
    return tile_count_groups("c", problem->batch, down, across, groups);
}

clattn_status gemm_tiled_plan(const struct problem *problem, struct choice *choice) {
    size_t groups = 0;
    FORWARD(tile_choose(&kernel_on_tiles, problem, choice));
    const struct plan plan = plan_of_choice(problem, choice);
    return count_groups(problem, &plan, &groups);
}

void gemm_tiled_blocks(const struct problem *problem, const struct choice *choice, int *rows, int *columns) {
    const struct plan plan = plan_of_choice(problem, choice);
    *rows = block_rows(&plan);
    *columns = block_columns(&plan);
}

/* All that a launch needs beside its tensors. */
struct ready {
    struct plan plan;
    size_t groups;
    struct program *program;
};

/* Everything that the program's text depends on. */
struct kind {
    const struct variant *variant;
    int32_t own[TILE_OWN], groups, unroll, subgroup, subgroup_size, column_tiles, k_slice, stage_slots;
    int32_t dtype, out_dtype, transpose_a, transpose_b, aligned;
};

static struct kind kind_of(const struct problem *problem, const struct choice *choice, const struct plan *plan) {
    struct kind kind;
    memset(&kind, 0, sizeof kind); /* padding too: it is compared byte by byte */
    kind.variant = choice->variant;
    for (int i = 0; i < TILE_OWN; i++)
        kind.own[i] = plan->shape.own[i];
    kind.groups = plan->shape.groups;
    kind.unroll = plan->shape.unroll;
    kind.subgroup = (int32_t)plan->shape.subgroup;
    kind.subgroup_size = plan->shape.subgroup_size;
    kind.column_tiles = plan->column_tiles;
    kind.k_slice = plan->k_slice;
    kind.stage_slots = plan->stage_slots;
    kind.dtype = (int32_t)problem->dtype;
    kind.out_dtype = (int32_t)problem->out_dtype;
    kind.transpose_a = problem->transpose_a;
    kind.transpose_b = problem->transpose_b;
    kind.aligned = problem->aligned;
    return kind;
}

static clattn_status build(clattn_context *context, const struct plan *plan, const struct kind *kind,
                           struct program **program) {
    char tile[256], options[512];
    tile_options(&plan->shape, "plain", tile, sizeof tile);
    snprintf(options, sizeof options,
             "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DALIGNED=%d -DCOLUMN_TILES=%d "
             "-DK_SLICE=%d -DSTAGE_SLOTS=%d",
             tile, kind->dtype, kind->out_dtype, kind->transpose_a, kind->transpose_b, kind->aligned,
             plan->column_tiles, plan->k_slice, plan->stage_slots);
    const struct program_key key = {.file = "gemm.cl", .kernel = "gemm", .options = options};
    return program_get(context, &key, program);
}

static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    ready->plan = plan_of_choice(problem, choice);
    FORWARD(count_groups(problem, &ready->plan, &ready->groups));
    const struct kind kind = kind_of(problem, choice, &ready->plan);
    if (memo_find(&context->memo, &kind, sizeof kind, &ready->program, sizeof ready->program))
        return CLATTN_SUCCESS;
    FORWARD(build(context, &ready->plan, &kind, &ready->program));
    memo_keep(&context->memo, &kind, sizeof kind, &ready->program, sizeof ready->program);
    return CLATTN_SUCCESS;
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
