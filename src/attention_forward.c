/* Attention in one kernel, fused or in two passes over the keys: tile parameters from the tuning row to the kernel's
 * options, and the launch. */
#include "attention.h"
#include "attention_mask.h"
#include "attention_plan.h"
#include "context.h"
#include "launch.h"
#include "status.h"

/* What the plan step finds; a warm call finds it in the context's memo. */
struct planned {
    struct parameters parameters;
    struct attention_plan plan;
};

struct ready {
    struct attention_plan plan;
    struct program *program, *mask; /* live as long as the context; mask: the pre-pass, NULL where there is none */
};

/* All that a plan depends on, where the caller gave no parameters. */
struct kind {
    const struct variant *variant;
    uint64_t caps;
    int64_t head_dim, value_dim;
    int32_t dtype, out_dtype, bias_dtype, aligned, v_in_k;
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
                         problem->v_in_k,
                         problem->modifiers,
                         problem->k_stored,
                         problem->v_stored,
                         built};
}

static clattn_status count_groups(const clattn_attention_op *op, const struct problem *problem,
                                  const struct attention_plan *plan, size_t *groups) {
    int64_t batches = 0;
    const int64_t blocks = attention_call_blocks(op, problem, attention_plan_queries(plan), &batches);
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
    const struct attention_plan plan = attention_plan_of(problem, choice);
    return attention_mask_workspace(op, attention_plan_queries(&plan), attention_plan_keys(&plan), bytes);
}

static clattn_status make_plan(clattn_context *context, const struct problem *problem, struct choice *choice,
                               struct attention_plan *plan) {
    const struct kind kind = kind_of(problem, choice, false);
    struct planned planned;
    if (!choice->overridden && memo_find(&context->memo, &kind, sizeof kind, &planned, sizeof planned)) {
        choice->parameters = planned.parameters;
        *plan = planned.plan;
        return CLATTN_SUCCESS;
    }
    FORWARD(attention_plan_choose(problem, choice));
    *plan = attention_plan_of(problem, choice);
    planned = (struct planned){choice->parameters, *plan};
    if (!choice->overridden)
        memo_keep(&context->memo, &kind, sizeof kind, &planned, sizeof planned);
    return CLATTN_SUCCESS;
}

clattn_status attention_forward_plan(clattn_context *context, const clattn_attention_op *op,
                                     const struct problem *problem, struct choice *choice) {
    struct attention_plan plan;
    size_t groups = 0, bytes = 0;
    FORWARD(make_plan(context, problem, choice, &plan));
    FORWARD(count_groups(op, problem, &plan, &groups));
    return attention_forward_workspace(op, problem, choice, &bytes);
}

void attention_forward_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys) {
    const struct attention_plan plan = attention_plan_of(problem, choice);
    *queries = attention_plan_queries(&plan);
    *keys = attention_plan_keys(&plan);
}

static clattn_status build(clattn_context *context, const struct problem *problem, const struct choice *choice,
                           struct ready *ready) {
    char options[ATTENTION_PLAN_OPTIONS];
    ready->plan = attention_plan_of(problem, choice);
    attention_plan_options(problem, &ready->plan, problem->out_dtype, options);
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

static struct attention_mask_blocks blocks_of(const struct attention_plan *plan, const clattn_workspace *workspace) {
    return (struct attention_mask_blocks){.queries = attention_plan_queries(plan),
                                          .keys = attention_plan_keys(plan),
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
