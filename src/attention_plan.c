/* Slices and blocks are rounded to whole tiles here and nowhere else. */
#include "attention_plan.h"
#include "attention_call.h"

#include <stdio.h>

static int at_least_one(int64_t value) {
    return value > 0 ? (int)value : 1;
}

/* Of a parameter that may be larger than the whole, or no multiple of the step. */
static int slice_of(const struct parameters *parameters, const char *name, int64_t whole, int step) {
    const int64_t most = tile_round_up(at_least_one(whole), step);
    const int64_t slice = tile_round_up(parameters_get(parameters, name, (int)most), step);
    return (int)(slice < most ? slice : most);
}

/* As many of the tile groups as asked for, but a divisor of their number. */
static int shares_of(const struct parameters *parameters, int groups) {
    int shares = parameters_get(parameters, "shares", 1);
    while (groups % shares != 0)
        shares--;
    return shares;
}

/* Tiles of keys lie as those of values do, and hold whole rows. */
static bool can_read_values_in_keys(const struct problem *problem, const struct attention_plan *plan) {
    return problem->v_in_k && plan->shape.backend == BACKEND_NVIDIA_MMA && plan->k_slice >= problem->head_dim &&
           plan->v_slice >= problem->value_dim && plan->v_slice <= plan->k_slice;
}

/* Asynchronous copies take 16 bytes that lie as they will be used. */
static bool can_copy_ahead(const struct problem *problem, enum backend backend) {
    return backend == BACKEND_NVIDIA_MMA && problem->aligned && problem->k_stored.dtype == 0 &&
           problem->v_stored.dtype == 0 && problem->value_dim > 0;
}

static struct attention_plan plan_of(const struct problem *problem, enum backend backend,
                                     const struct parameters *parameters, const struct device_facts *facts) {
    struct attention_plan plan = {.shape = tile_shape_of(backend, parameters, facts)};
    plan.score_tiles = parameters_get(parameters, "score_tiles", 1);
    plan.k_slice = slice_of(parameters, "k_slice", problem->head_dim, plan.shape.k);
    plan.shares = shares_of(parameters, plan.shape.groups);
    plan.v_slice = slice_of(parameters, "v_slice", problem->value_dim, plan.shape.n * plan.shares);
    plan.v_in_k = can_read_values_in_keys(problem, &plan);
    plan.ahead = can_copy_ahead(problem, backend) ? parameters_get(parameters, "ahead", 0) : 0;
    if (plan.v_in_k && plan.ahead > 1) /* than the next block's only tile */
        plan.ahead = 1;
    plan.registers = backend == BACKEND_NVIDIA_MMA ? parameters_get(parameters, "registers", 0) : 0;
    plan.q_resident = plan.ahead > 0 || parameters_get(parameters, "q_resident", 1) != 0;
    plan.stage_slots = plan.q_resident ? parameters_get(parameters, "stage_slots", 1) : 1;
    return plan;
}

struct attention_plan attention_plan_of(const struct problem *problem, const struct choice *choice) {
    return plan_of(problem, choice->variant->backend, &choice->parameters, &choice->facts);
}

int attention_plan_queries(const struct attention_plan *plan) {
    return plan->shape.groups / plan->shares * plan->shape.m;
}

int attention_plan_keys(const struct attention_plan *plan) {
    return plan->shares * plan->score_tiles * plan->shape.n;
}

static int parts(int64_t whole, int slice) {
    return (int)((at_least_one(whole) + slice - 1) / slice);
}

/* Places for tiles: for the one on its way and the one in use, or for all tiles of two blocks of keys. */
static int slots(const struct problem *problem, const struct attention_plan *plan) {
    const int values = plan->v_in_k ? 0 : parts(problem->value_dim, plan->v_slice);
    const int tiles = parts(problem->head_dim, plan->k_slice) + values;
    return plan->ahead == 0 ? plan->stage_slots : plan->ahead == 1 ? 2 : 2 * tiles;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* What passes through local memory between the two products, and what work-items exchange. As P_FLOATS and those after
 * it in cl/attention_block.clh. */
static size_t scratch_bytes(const struct attention_plan *plan) {
    const int rows = attention_plan_queries(plan), keys = attention_plan_keys(plan);
    const bool shared = plan->shares > 1;
    const bool in_k = shared && plan->v_in_k && rows <= keys && plan->v_slice + keys <= plan->k_slice;
    const size_t left = in_k     ? 0
                        : shared ? tile_a_bytes(&plan->shape, rows, keys)
                                 : tile_left_bytes(&plan->shape, rows, keys);
    const size_t exchanged = shared ? (size_t)(plan->shares * rows) * sizeof(float) : 0;
    return larger(larger(left, tile_row_scratch_bytes(&plan->shape)) + exchanged, sizeof(float));
}

static struct tile_need need(const struct tile_plan *tiles, const struct parameters *parameters,
                             const struct device_facts *facts) {
    const struct attention_plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    const struct tile_shape *shape = &plan.shape;
    const int q_columns = plan.q_resident ? (int)tile_round_up(tiles->problem->head_dim, plan.k_slice) : plan.k_slice;
    const size_t slot = larger(tile_bt_bytes(shape, attention_plan_keys(&plan), plan.k_slice),
                               tile_b_bytes(shape, attention_plan_keys(&plan), plan.v_slice));
    return (struct tile_need){
        .items = (uint64_t)(shape->groups * shape->items),
        .local = TILE_START + tile_array_bytes(tile_a_bytes(shape, attention_plan_queries(&plan), q_columns)) +
                 tile_array_bytes((size_t)slots(tiles->problem, &plan) * slot) +
                 tile_array_bytes(scratch_bytes(&plan)) + TILE_ALIGNMENT,
    };
}

static void spell_out(const struct tile_plan *tiles, const struct parameters *parameters,
                      const struct device_facts *facts, struct parameters *out) {
    const struct attention_plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    parameters_put(out, "score_tiles", plan.score_tiles);
    parameters_put(out, "k_slice", plan.k_slice);
    parameters_put(out, "v_slice", plan.v_slice);
    parameters_put(out, "q_resident", plan.q_resident);
    parameters_put(out, "stage_slots", plan.stage_slots);
    if (tiles->backend == BACKEND_NVIDIA_MMA) {
        parameters_put(out, "ahead", plan.ahead);
        parameters_put(out, "registers", plan.registers);
    }
    if (parameters_get(parameters, "shares", 0) > 0)
        parameters_put(out, "shares", plan.shares);
}

static const struct tile_step for_local[] = {
    {"stage_slots", 1, false}, {"ahead", 1, false},   {"k_slice", 64, false},   {"v_slice", 64, false},
    {"ahead", 0, false},       {"groups", 4, false},  {"q_resident", 0, false}, {"score_tiles", 1, false},
    {"groups", 1, false},      {"k_slice", 1, false}, {"v_slice", 1, false},    {NULL, 0, false},
};

static const struct tile_kernel kernel_on_tiles = {for_local, need, spell_out};

clattn_status attention_plan_choose(const struct problem *problem, struct choice *choice) {
    return tile_choose(&kernel_on_tiles, problem, choice);
}

int attention_plan_resident(const struct problem *problem, const struct choice *choice) {
    enum { MOST = 16 };
    const struct tile_plan tiles = {&kernel_on_tiles, problem, choice->variant->backend};
    const size_t bytes = need(&tiles, &choice->parameters, &choice->facts).local;
    const uint64_t count = choice->facts.local_memory / bytes;
    return count < 1 ? 1 : count < MOST ? (int)count : MOST;
}

void attention_plan_options(const struct problem *problem, const struct attention_plan *plan, clattn_dtype out_dtype,
                            char options[ATTENTION_PLAN_OPTIONS]) {
    char tile[256], modifiers[ATTENTION_CALL_OPTIONS], registers[48] = "";
    if (plan->registers > 0)
        snprintf(registers, sizeof registers, " -cl-nv-maxrregcount=%d", plan->registers);
    tile_options(&plan->shape, plan->ahead > 0 ? "nvidia_cp_async" : "plain", tile, sizeof tile);
    attention_call_options(problem, modifiers, sizeof modifiers);
    snprintf(options, ATTENTION_PLAN_OPTIONS,
             "%s %s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=%d -DVALUE_DIM=%d -DALIGNED=%d -DSCORE_TILES=%d "
             "-DK_SLICE=%d -DV_SLICE=%d -DQ_RESIDENT=%d -DSTAGE_SLOTS=%d -DSHARES=%d -DV_IN_K=%d%s",
             tile, modifiers, (int)problem->dtype, (int)out_dtype, (int)problem->head_dim, (int)problem->value_dim,
             problem->aligned, plan->score_tiles, plan->k_slice, plan->v_slice, plan->q_resident, slots(problem, plan),
             plan->shares, plan->v_in_k, registers);
}
