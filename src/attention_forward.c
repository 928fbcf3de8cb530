/* Attention in one kernel, fused or in two passes over the keys: tile parameters from the tuning row to the kernel's
 * options, and the launch. */
#include "attention.h"
#include "attention_mask.h"
#include "context.h"
#include "launch.h"
#include "status.h"
#include "tile_fit.h"

#include <stdio.h>

/* As the kernel's parameters; see cl/attention_block.clh. */
struct plan {
    struct tile_shape shape;
    int score_tiles, k_slice, v_slice, q_resident, stage_slots;
};

/* What the plan step finds; a warm call finds it in the context's memo. */
struct planned {
    struct parameters parameters;
    struct plan plan;
};

struct ready {
    struct plan plan;
    struct program *program, *mask; /* live as long as the context; mask: the pre-pass, NULL where there is none */
};

static int at_least_one(int64_t value) {
    return value > 0 ? (int)value : 1;
}

/* Of a parameter that may be larger than the whole, or no multiple of the step. */
static int slice_of(const struct parameters *parameters, const char *name, int64_t whole, int step) {
    const int64_t most = tile_round_up(at_least_one(whole), step);
    const int64_t slice = tile_round_up(parameters_get(parameters, name, (int)most), step);
    return (int)(slice < most ? slice : most);
}

static struct plan plan_of(const struct problem *problem, enum backend backend, const struct parameters *parameters,
                           const struct device_facts *facts) {
    struct plan plan = {.shape = tile_shape_of(backend, parameters, facts)};
    plan.score_tiles = parameters_get(parameters, "score_tiles", 1);
    plan.k_slice = slice_of(parameters, "k_slice", problem->head_dim, plan.shape.k);
    plan.v_slice = slice_of(parameters, "v_slice", problem->value_dim, plan.shape.n);
    plan.q_resident = parameters_get(parameters, "q_resident", 1) != 0;
    plan.stage_slots = plan.q_resident ? parameters_get(parameters, "stage_slots", 1) : 1;
    return plan;
}

static struct plan plan_of_choice(const struct problem *problem, const struct choice *choice) {
    return plan_of(problem, choice->variant->backend, &choice->parameters, &choice->facts);
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

static struct tile_need need(const struct tile_plan *tiles, const struct parameters *parameters,
                             const struct device_facts *facts) {
    const struct plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    const struct tile_shape *shape = &plan.shape;
    const int q_columns = plan.q_resident ? (int)tile_round_up(tiles->problem->head_dim, plan.k_slice) : plan.k_slice;
    const size_t slot = larger(tile_bt_bytes(shape, block_keys(&plan), plan.k_slice),
                               tile_b_bytes(shape, block_keys(&plan), plan.v_slice));
    const size_t left = larger(tile_left_bytes(shape, block_queries(&plan), block_keys(&plan)),
                               larger(tile_row_scratch_bytes(shape), sizeof(float)));
    return (struct tile_need){
        .items = (uint64_t)(shape->groups * shape->items),
        .local = TILE_START + tile_array_bytes(tile_a_bytes(shape, block_queries(&plan), q_columns)) +
                 tile_array_bytes((size_t)plan.stage_slots * slot) + tile_array_bytes(left) + TILE_ALIGNMENT,
    };
}

static void spell_out(const struct tile_plan *tiles, const struct parameters *parameters,
                      const struct device_facts *facts, struct parameters *out) {
    const struct plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    parameters_put(out, "score_tiles", plan.score_tiles);
    parameters_put(out, "k_slice", plan.k_slice);
    parameters_put(out, "v_slice", plan.v_slice);
    parameters_put(out, "q_resident", plan.q_resident);
    parameters_put(out, "stage_slots", plan.stage_slots);
}

static const struct tile_step for_local[] = {
    {"stage_slots", 1, false}, {"k_slice", 64, false},    {"v_slice", 64, false}, {"groups", 4, false},
    {"q_resident", 0, false},  {"score_tiles", 1, false}, {"groups", 1, false},   {"k_slice", 1, false},
    {"v_slice", 1, false},     {NULL, 0, false},
};

static const struct tile_kernel kernel_on_tiles = {for_local, need, spell_out};

/* All that a plan depends on, where the caller gave no parameters. */
struct kind {
    const struct variant *variant;
    uint64_t caps;
    int64_t head_dim, value_dim;
    int32_t dtype, out_dtype, bias_dtype, aligned;
    uint32_t modifiers;
    struct stored k_stored, v_stored;
    int32_t built; /* 0: what is kept are parameters, 1: a plan with its program */
};

static struct kind kind_of(const struct problem *problem, const struct choice *choice, bool built) {
    return (struct kind){choice->variant,
                         choice->facts.caps,
                         problem->head_dim,
                         problem->value_dim,
                         (int32_t)problem->dtype,
                         (int32_t)problem->out_dtype,
                         (int32_t)problem->bias_dtype,
                         problem->aligned,
                         problem->modifiers,
                         problem->k_stored,
                         problem->v_stored,
                         built};
}

static clattn_status count_groups(const clattn_attention_op *op, const struct problem *problem, const struct plan *plan,
                                  size_t *groups) {
    int64_t batches = 0;
    const int64_t blocks = attention_call_blocks(op, problem, block_queries(plan), &batches);
    return tile_count_groups("q", batches, problem->heads, blocks, groups);
}

static bool has_mask(const struct problem *problem) {
    return (problem->modifiers & MODIFIER_MASK) != 0;
}

clattn_status attention_forward_workspace(const clattn_attention_op *op, const struct problem *problem,
                                          const struct choice *choice, size_t *bytes) {
    *bytes = 0;
    if (!has_mask(problem))
        return CLATTN_SUCCESS;
    const struct plan plan = plan_of_choice(problem, choice);
    return attention_mask_workspace(op, block_queries(&plan), block_keys(&plan), bytes);
}

static clattn_status make_plan(clattn_context *context, const struct problem *problem, struct choice *choice,
                               struct plan *plan) {
    const struct kind kind = kind_of(problem, choice, false);
    struct planned planned;
    if (!choice->overridden && memo_find(&context->memo, &kind, sizeof kind, &planned, sizeof planned)) {
        choice->parameters = planned.parameters;
        *plan = planned.plan;
        return CLATTN_SUCCESS;
    }
    FORWARD(tile_choose(&kernel_on_tiles, problem, choice));
    *plan = plan_of_choice(problem, choice);
    planned = (struct planned){choice->parameters, *plan};
    if (!choice->overridden)
        memo_keep(&context->memo, &kind, sizeof kind, &planned, sizeof planned);
    return CLATTN_SUCCESS;
}

clattn_status attention_forward_plan(clattn_context *context, const clattn_attention_op *op,
                                     const struct problem *problem, struct choice *choice) {
    struct plan plan;
    size_t groups = 0, bytes = 0;
    FORWARD(make_plan(context, problem, choice, &plan));
    FORWARD(count_groups(op, problem, &plan, &groups));
    return attention_forward_workspace(op, problem, choice, &bytes);
}

void attention_forward_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys) {
    const struct plan plan = plan_of_choice(problem, choice);
    *queries = block_queries(&plan);
    *keys = block_keys(&plan);
}

static clattn_status build(clattn_context *context, const struct problem *problem, const struct choice *choice,
                           struct ready *ready) {
    char tile[256], modifiers[ATTENTION_CALL_OPTIONS], options[1024];
    const struct plan *plan = &ready->plan;
    ready->plan = plan_of_choice(problem, choice);
    tile_options(&plan->shape, "plain", tile, sizeof tile);
    attention_call_options(problem, modifiers, sizeof modifiers);
    snprintf(options, sizeof options,
             "%s %s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=%d -DVALUE_DIM=%d -DALIGNED=%d -DSCORE_TILES=%d "
             "-DK_SLICE=%d -DV_SLICE=%d -DQ_RESIDENT=%d -DSTAGE_SLOTS=%d",
             tile, modifiers, (int)problem->dtype, (int)problem->out_dtype, (int)problem->head_dim,
             (int)problem->value_dim, problem->aligned, plan->score_tiles, plan->k_slice, plan->v_slice,
             plan->q_resident, plan->stage_slots);
    ready->mask = NULL;
    if (has_mask(problem))
        FORWARD(attention_mask_program(context, &choice->facts, &ready->mask));
    const bool two_pass = choice->variant->schedule == SCHEDULE_TWO_PASS;
    const struct program_key key = {
        .file = two_pass ? "attention_two_pass.cl" : "attention_forward.cl",
        .kernel = two_pass ? "attention_two_pass" : "attention_forward",
        .options = options,
    };
    return program_get(context, &key, &ready->program);
}

/* A plan and a built program; a warm call finds both in the context's memo. */
static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    const struct kind kind = kind_of(problem, choice, true);
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

static struct attention_mask_blocks blocks_of(const struct plan *plan, const clattn_workspace *workspace) {
    return (struct attention_mask_blocks){.queries = block_queries(plan),
                                          .keys = block_keys(plan),
                                          .buffer = workspace->buffer,
                                          .offset = (int64_t)workspace->offset};
}

static clattn_status enqueue_kernel(const clattn_attention_op *op, const struct problem *problem,
                                    const struct ready *ready, const struct attention_mask_blocks *blocks,
                                    struct sequence *sequence) {
    const struct tile_shape *shape = &ready->plan.shape;
    const size_t items = (size_t)(shape->groups * shape->items);
    struct launch kernel;
    size_t groups = 0;
    FORWARD(count_groups(op, problem, &ready->plan, &groups));
    launch_begin(&kernel, ready->program);
    attention_call_arguments(&kernel, op, problem, has_mask(problem) ? blocks : NULL);
    return launch_enqueue(&kernel, sequence, 1, &groups, &items);
}

clattn_status attention_forward_enqueue(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice,
                                        const clattn_launch *launch) {
    struct ready ready;
    struct sequence sequence;
    clattn_status status = CLATTN_SUCCESS;
    FORWARD(get_ready(context, problem, choice, &ready));
    const struct attention_mask_blocks blocks = blocks_of(&ready.plan, &launch->workspace);
    const bool pre_pass = ready.mask != NULL && problem->nk > 0; /* nothing to enqueue for a mask without columns */
    sequence_begin(&sequence, context, launch, pre_pass ? 2 : 1);
    if (pre_pass)
        status = attention_mask_enqueue(ready.mask, &choice->facts, op, &blocks, &sequence);
    if (status == CLATTN_SUCCESS)
        status = enqueue_kernel(op, problem, &ready, &blocks, &sequence);
    sequence_end(&sequence);
    return status;
}
