/* Attention in one kernel, fused or in two passes over the keys: tile parameters from the tuning row to the kernel's
 * options, and the launch. */
#include "attention.h"
#include "context.h"
#include "launch.h"
#include "status.h"
#include "tile_fit.h"

#include <stdio.h>
#include <string.h>

/* As the kernel's parameters; see cl/attention_block.clh. */
struct plan {
    struct tile_shape shape;
    int score_tiles, k_slice, v_slice, q_resident, stage_slots;
};

struct ready {
    struct plan plan;
    struct program *program; /* lives as long as the context */
};

/* As view_t and attention_t there. */
struct view {
    int64_t offset, batch, head, row;
};

struct call {
    struct view q, k, v, o, lse;
    int64_t diagonal;
    int32_t heads, heads_per_kv, nq, nk;
    float scale;
    int32_t unused;
};

static int round_up(int value, int step) {
    return (value + step - 1) / step * step;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static int at_least_one(int64_t value) {
    return value > 0 ? (int)value : 1;
}

/* Parameters that a row or caller left out, or that the halving of tile_fit() left between steps. */
static struct plan plan_of(const struct problem *problem, enum backend backend, const struct parameters *parameters,
                           const struct device_facts *facts) {
    struct plan plan = {.shape = tile_shape_of(backend, parameters, facts)};
    const int k_whole = round_up(at_least_one(problem->head_dim), plan.shape.k);
    const int v_whole = round_up(at_least_one(problem->value_dim), plan.shape.n);
    plan.score_tiles = parameters_get(parameters, "score_tiles", 1);
    plan.k_slice = smaller(round_up(parameters_get(parameters, "k_slice", k_whole), plan.shape.k), k_whole);
    plan.v_slice = smaller(round_up(parameters_get(parameters, "v_slice", v_whole), plan.shape.n), v_whole);
    plan.q_resident = parameters_get(parameters, "q_resident", 1) != 0;
    plan.stage_slots = plan.q_resident ? parameters_get(parameters, "stage_slots", 1) : 1;
    return plan;
}

static int block_queries(const struct plan *plan) {
    return plan->shape.groups * plan->shape.m;
}

static int block_keys(const struct plan *plan) {
    return plan->score_tiles * plan->shape.n;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

struct need_user {
    const struct problem *problem;
    enum backend backend;
};

static struct tile_need need(const struct parameters *parameters, const struct device_facts *facts, const void *data) {
    const struct need_user *user = data;
    const struct plan plan = plan_of(user->problem, user->backend, parameters, facts);
    const struct tile_shape *shape = &plan.shape;
    const int q_columns = plan.q_resident ? round_up((int)user->problem->head_dim, plan.k_slice) : plan.k_slice;
    const size_t slot = larger(tile_bt_bytes(shape, block_keys(&plan), plan.k_slice),
                               tile_b_bytes(shape, block_keys(&plan), plan.v_slice));
    const size_t left = larger(tile_left_bytes(shape, block_queries(&plan), block_keys(&plan)),
                               larger(tile_row_scratch_bytes(shape), sizeof(float)));
    return (struct tile_need){
        .items = (uint64_t)(shape->groups * shape->items),
        .local = tile_array_bytes(tile_a_bytes(shape, block_queries(&plan), q_columns)) +
                 tile_array_bytes((size_t)plan.stage_slots * slot) + tile_array_bytes(left) + TILE_ALIGNMENT,
    };
}

/* Every parameter by name, so that fitting sees it. */
static void spell_out(const struct problem *problem, enum backend backend, const struct device_facts *facts,
                      struct parameters *parameters) {
    const struct plan plan = plan_of(problem, backend, parameters, facts);
    parameters_put(parameters, "groups", plan.shape.groups);
    if (backend == BACKEND_FMA)
        parameters_put(parameters, "fma_items", plan.shape.items);
    parameters_put(parameters,
                   backend == BACKEND_FMA          ? "fma_rows"
                   : backend == BACKEND_CPU_VECTOR ? "cpu_rows"
                                                   : "mma_rows",
                   plan.shape.m);
    parameters_put(parameters, "score_tiles", plan.score_tiles);
    parameters_put(parameters, "k_slice", plan.k_slice);
    parameters_put(parameters, "v_slice", plan.v_slice);
    parameters_put(parameters, "q_resident", plan.q_resident);
    parameters_put(parameters, "stage_slots", plan.stage_slots);
}

static const char *refusal(enum backend backend, const struct parameters *parameters) {
    const char *shape = tile_shape_refusal(backend, parameters);
    if (shape != NULL)
        return shape;
    if (parameters_get(parameters, "score_tiles", 1) < 1 || parameters_get(parameters, "score_tiles", 1) > 64)
        return "score_tiles must lie in 1..64.";
    if (parameters_get(parameters, "k_slice", 1) < 1 || parameters_get(parameters, "v_slice", 1) < 1)
        return "k_slice and v_slice must be at least 1.";
    if (parameters_get(parameters, "stage_slots", 1) < 1 || parameters_get(parameters, "stage_slots", 1) > 2)
        return "stage_slots must be 1 or 2.";
    return NULL;
}

/* Tuning rows shrink to the device; what a caller asked for is taken as it is or refused. */
static clattn_status make_plan(const struct problem *problem, const struct choice *choice, struct plan *plan) {
    static const struct tile_step for_items[] = {{"groups", 1}, {"fma_items", 1}, {NULL, 0}};
    static const struct tile_step for_local[] = {
        {"stage_slots", 1}, {"k_slice", 64},  {"v_slice", 64}, {"groups", 4},    {"q_resident", 0},
        {"score_tiles", 1}, {"groups", 1},    {"k_slice", 1},  {"v_slice", 1},   {"fma_items", 4},
        {"fma_rows", 1},    {"fma_items", 1}, {"cpu_rows", 8}, {"mma_rows", 16}, {NULL, 0}};
    const enum backend backend = choice->variant->backend;
    const struct need_user user = {problem, backend};
    const struct tile_plan fit = {for_items, for_local, need, &user};
    struct parameters parameters = choice->parameters;
    const char *reason = refusal(backend, &parameters);
    RETURN_IF(reason != NULL, CLATTN_INVALID_ARGUMENT, "parameters: %s", reason);
    spell_out(problem, backend, &choice->facts, &parameters);
    const struct parameters asked = parameters;
    RETURN_IF(!tile_fit(&fit, &choice->facts, &parameters), CLATTN_UNSUPPORTED,
              "head dims %d and %d need more local memory than the device's %llu bytes", (int)problem->head_dim,
              (int)problem->value_dim, (unsigned long long)choice->facts.local_memory);
    RETURN_IF(choice->overridden && memcmp(&asked, &parameters, sizeof asked) != 0, CLATTN_UNSUPPORTED,
              "parameters: they need more work-items or local memory than the device has (%u, %llu bytes)",
              choice->facts.max_group, (unsigned long long)choice->facts.local_memory);
    *plan = plan_of(problem, backend, &parameters, &choice->facts);
    return CLATTN_SUCCESS;
}

void attention_forward_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys) {
    struct plan plan;
    if (make_plan(problem, choice, &plan) != CLATTN_SUCCESS)
        return;
    *queries = block_queries(&plan);
    *keys = block_keys(&plan);
}

static clattn_status build(clattn_context *context, const struct problem *problem, const struct choice *choice,
                           struct ready *ready) {
    char tile[256], options[640];
    const struct plan *plan = &ready->plan;
    FORWARD(make_plan(problem, choice, &ready->plan));
    tile_options(&plan->shape, "plain", tile, sizeof tile);
    snprintf(options, sizeof options,
             "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=%d -DVALUE_DIM=%d -DCAUSAL=%d -DALIGNED=%d -DSCORE_TILES=%d "
             "-DK_SLICE=%d -DV_SLICE=%d -DQ_RESIDENT=%d -DSTAGE_SLOTS=%d",
             tile, (int)problem->dtype, (int)problem->out_dtype, (int)problem->head_dim, (int)problem->value_dim,
             problem->causal, problem->aligned, plan->score_tiles, plan->k_slice, plan->v_slice, plan->q_resident,
             plan->stage_slots);
    const bool two_pass = choice->variant->schedule == SCHEDULE_TWO_PASS;
    const struct program_key key = {
        .file = two_pass ? "attention_two_pass.cl" : "attention_forward.cl",
        .kernel = two_pass ? "attention_two_pass" : "attention_forward",
        .options = options,
    };
    return program_get(context, &key, &ready->program);
}

/* All that a plan depends on, where the caller gave no parameters. */
struct kind {
    const struct variant *variant;
    uint64_t caps;
    int64_t head_dim, value_dim;
    int32_t dtype, out_dtype, causal, aligned;
};

/* A plan and a built program; a warm call finds both in the context's memo. */
static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    const struct kind kind = {choice->variant,    choice->facts.caps,      problem->head_dim,
                              problem->value_dim, (int32_t)problem->dtype, (int32_t)problem->out_dtype,
                              problem->causal,    problem->aligned};
    if (choice->overridden)
        return build(context, problem, choice, ready);
    if (memo_find(&context->memo, &kind, sizeof kind, ready, sizeof *ready))
        return CLATTN_SUCCESS;
    FORWARD(build(context, problem, choice, ready));
    memo_keep(&context->memo, &kind, sizeof kind, ready, sizeof *ready);
    return CLATTN_SUCCESS;
}

clattn_status attention_forward_prepare(clattn_context *context, const struct problem *problem,
                                        const struct choice *choice) {
    struct ready ready;
    return get_ready(context, problem, choice, &ready);
}

static struct view view_of(const clattn_tensor *tensor) {
    return (struct view){tensor->offset, tensor->strides[0], tensor->strides[1], tensor->strides[2]};
}

static void launch_tensor(struct launch *launch, const clattn_tensor *tensor) {
    launch_buffer(launch, tensor->memory.kind == CLATTN_MEMORY_BUFFER ? tensor->memory.as.buffer : NULL);
}

static void set_arguments(struct launch *launch, const clattn_attention_op *op, const struct problem *problem) {
    const struct call call = {
        .q = view_of(&op->q),
        .k = view_of(&op->k),
        .v = view_of(&op->v),
        .o = view_of(&op->o),
        .lse = view_of(&op->lse),
        .diagonal = attention_diagonal(op),
        .heads = (int32_t)problem->heads,
        .heads_per_kv = (int32_t)(problem->heads / problem->kv_heads),
        .nq = (int32_t)problem->nq,
        .nk = (int32_t)problem->nk,
        .scale = attention_scale(op),
    };
    launch_tensor(launch, &op->q);
    launch_tensor(launch, &op->k);
    launch_tensor(launch, &op->v);
    launch_tensor(launch, &op->o);
    launch_tensor(launch, &op->lse);
    launch_struct(launch, &call, sizeof call);
}

clattn_status attention_forward_enqueue(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice,
                                        const clattn_launch *launch) {
    struct ready ready;
    struct sequence sequence;
    struct launch kernel;
    FORWARD(get_ready(context, problem, choice, &ready));
    const struct plan *plan = &ready.plan;
    const int64_t blocks = (problem->nq + block_queries(plan) - 1) / block_queries(plan);
    int64_t groups = 0;
    RETURN_IF(__builtin_mul_overflow(problem->batch, problem->heads, &groups) ||
                  __builtin_mul_overflow(groups, blocks, &groups) || groups > INT32_MAX,
              CLATTN_UNSUPPORTED, "q: batch times heads times blocks of %d queries exceed 2^31", block_queries(plan));
    const size_t grid = (size_t)groups, items = (size_t)(plan->shape.groups * plan->shape.items);
    sequence_begin(&sequence, context, launch, 1);
    launch_begin(&kernel, ready.program);
    set_arguments(&kernel, op, problem);
    const clattn_status status = launch_enqueue(&kernel, &sequence, 1, &grid, &items);
    sequence_end(&sequence);
    return status;
}
