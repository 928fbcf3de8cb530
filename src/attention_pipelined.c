/* Attention as a pipeline inside persistent work-groups (cl/attention_forward_pipelined.cl): one launch of at most
 * as many work-groups as the device has units, which draw blocks of queries until none is left. */
#include "attention.h"
#include "attention_mask.h"
#include "check.h"
#include "context.h"
#include "launch.h"
#include "pipeline_size.h"
#include "quantization.h"
#include "status.h"
#include "tile_fit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum {
    COPY_ALIGN = 16, /* bytes, of everything that the copy engine steps by */
    MAP_BYTES = 128,
    GROUP_MAPS = 3 /* of each work-group */
};
#define COPY_STRIDE (INT64_C(1) << 40) /* bytes, below which strides must lie */

/* As pipelined_t in cl/pipeline.clh. */
struct pipeline {
    uint64_t mark;
    int32_t query_blocks, jobs;
    float scale;
    int32_t piece;
};

struct ready {
    struct pipeline_shape shape;
    struct program *program, *mask; /* live as long as the context; mask: the pre-pass, NULL where there is none */
};

/* ---- what the pipeline takes ------------------------------------------------------------------------------------- */

enum { BATCH, HEAD, ROW, COLUMN };

/* Strides of single dims are never stepped by. */
static bool is_copyable(const clattn_tensor *tensor) {
    const int64_t element = (int64_t)clattn_dtype_size(tensor->dtype);
    if (quantization_is_of(tensor))
        return false;
    for (int dim = BATCH; dim <= ROW; dim++)
        if (tensor->dims[dim] > 1 && (tensor->strides[dim] <= 0 || tensor->strides[dim] >= COPY_STRIDE / element))
            return false;
    return check_aligned(tensor, COPY_ALIGN);
}

void attention_pipelined_survey(const clattn_attention_op *op, struct problem *problem) {
    problem->copyable = is_copyable(&op->q) && is_copyable(&op->k) && is_copyable(&op->v);
    problem->out_aligned = check_aligned(&op->o, COPY_ALIGN);
    problem->positive_scale = attention_scale(op) > 0 && isfinite(attention_scale(op) * 1.5F) &&
                              isfinite(op->softcap * 1.5F); /* times log2 e */
}

/* Of all heads. *blocks: of one head, of one batch or of all sequences that lie one behind the other. */
static clattn_status count_jobs(const clattn_attention_op *op, const struct problem *problem,
                                const struct pipeline_shape *shape, int64_t *blocks, size_t *jobs) {
    const size_t room = 65536; /* every work-group draws one number beyond the last */
    int64_t batches = 0;
    *blocks = attention_call_blocks(op, problem, pipeline_block_queries(shape), &batches);
    FORWARD(tile_count_groups("q", batches, problem->heads, *blocks, jobs));
    RETURN_IF(*jobs > INT32_MAX - room, CLATTN_UNSUPPORTED, "q: more than 2^31 blocks of tiles");
    return CLATTN_SUCCESS;
}

/* What is done to scores besides, soft caps and biases, wants registers: two groups have more than three, and more
 * still where they do not hold queries that are long. (On an H200, softcap=30: D64 1.27 ms instead of 1.50, D128 1.55
 * instead of 1.60 at 16 heads of 8192.) */
static struct parameters suit_modifiers(const struct problem *problem, const struct choice *choice) {
    enum { SHORT = 64 };
    const unsigned bends = MODIFIER_SOFTCAP | MODIFIER_BIAS;
    const int groups = parameters_get(&choice->parameters, "groups", 2);
    struct parameters suited = choice->parameters;
    if (!choice->overridden && (problem->modifiers & bends) != 0 && groups >= 2 &&
        !(parameters_put(&suited, "groups", 2) &&
          parameters_put(&suited, "q_held", groups == 3 && problem->head_dim <= SHORT)))
        return choice->parameters;
    return suited;
}

/* Two groups in the place of three where those would compute too many rows beyond the last; with a causal limit short
 * sequences are better off with smaller blocks earlier. */
static struct pipeline_shape suit_length(const struct problem *problem, const struct choice *choice) {
    const struct parameters suited = suit_modifiers(problem, choice);
    const struct pipeline_shape three = pipeline_shape_of(&suited);
    struct parameters fewer = suited;
    const int percent = problem->causal ? 110 : 120;
    if (choice->overridden || three.groups != 3 || !parameters_put(&fewer, "groups", 2) ||
        !parameters_put(&fewer, "q_held", 1))
        return three;
    const struct pipeline_shape two = pipeline_shape_of(&fewer);
    const int64_t of_three = tile_round_up(problem->nq, pipeline_block_queries(&three));
    const int64_t of_two = tile_round_up(problem->nq, pipeline_block_queries(&two));
    return of_three * 100 > of_two * percent ? two : three;
}

static bool has_mask(const struct problem *problem) {
    return (problem->modifiers & MODIFIER_MASK) != 0;
}

/* Shared counts and aligning them take a map's place each. What is known of the mask's blocks comes behind the maps. */
static size_t bytes_of_maps(const struct choice *choice) {
    return MAP_BYTES * (2 + GROUP_MAPS * (size_t)choice->facts.compute_units);
}

clattn_status attention_pipelined_workspace(const clattn_attention_op *op, const struct problem *problem,
                                            const struct choice *choice, size_t *bytes) {
    const struct pipeline_shape shape = pipeline_shape_of(&choice->parameters);
    size_t blocks = 0;
    if (has_mask(problem))
        FORWARD(attention_mask_workspace(op, pipeline_block_queries(&shape), shape.block_keys, &blocks));
    *bytes = bytes_of_maps(choice) + blocks;
    return CLATTN_SUCCESS;
}

clattn_status attention_pipelined_plan(const clattn_attention_op *op, const struct problem *problem,
                                       struct choice *choice) {
    const char *refusal = pipeline_refusal(&choice->parameters);
    RETURN_IF(refusal != NULL, CLATTN_UNSUPPORTED, "parameters: %s", refusal);
    const struct pipeline_shape shape = suit_length(problem, choice);
    const size_t bytes = pipeline_bytes(&shape, problem->head_dim, problem->value_dim);
    RETURN_IF(bytes > choice->facts.local_memory || pipeline_items(&shape) > choice->facts.max_group,
              CLATTN_UNSUPPORTED,
              "parameters: they need %zu work-items and %zu bytes of local memory; the device has %u and %" PRIu64,
              pipeline_items(&shape), bytes, (unsigned)choice->facts.max_group, choice->facts.local_memory);
    int64_t blocks = 0;
    size_t jobs = 0, workspace = 0;
    choice->parameters = (struct parameters){0};
    pipeline_spell_out(&shape, &choice->parameters);
    FORWARD(count_jobs(op, problem, &shape, &blocks, &jobs));
    return attention_pipelined_workspace(op, problem, choice, &workspace);
}

void attention_pipelined_blocks(const struct choice *choice, int *queries, int *keys) {
    const struct pipeline_shape shape = pipeline_shape_of(&choice->parameters);
    *queries = pipeline_block_queries(&shape);
    *keys = shape.block_keys;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* All that the programs depend on; padding is zero. */
struct kind {
    const struct variant *variant;
    struct pipeline_shape shape;
    int32_t dtype, out_dtype, bias_dtype, head_dim, value_dim, out_aligned;
    uint32_t modifiers;
    int32_t biases_staged;
};

/* Biases of 16 bits go through local memory where that has room for them. */
static bool stages_biases(const struct problem *problem, const struct choice *choice,
                          const struct pipeline_shape *shape) {
    const bool narrow = problem->bias_dtype == CLATTN_F16 || problem->bias_dtype == CLATTN_BF16;
    const size_t bytes = pipeline_bias_bytes(shape);
    return (problem->modifiers & MODIFIER_BIAS) != 0 && narrow && bytes > 0 &&
           pipeline_bytes(shape, problem->head_dim, problem->value_dim) + bytes <= choice->facts.local_memory;
}

static struct kind kind_of(const struct problem *problem, const struct choice *choice) {
    const struct pipeline_shape shape = pipeline_shape_of(&choice->parameters);
    return (struct kind){
        .variant = choice->variant,
        .shape = shape,
        .dtype = (int32_t)problem->dtype,
        .out_dtype = (int32_t)problem->out_dtype,
        .head_dim = (int32_t)problem->head_dim,
        .value_dim = (int32_t)problem->value_dim,
        .bias_dtype = (int32_t)problem->bias_dtype,
        .modifiers = problem->modifiers,
        .out_aligned = problem->out_aligned,
        .biases_staged = stages_biases(problem, choice, &shape),
    };
}

static clattn_status build(clattn_context *context, const struct problem *problem, const struct choice *choice,
                           const struct kind *kind, struct ready *ready) {
    char pipeline[320], modifiers[160], options[768];
    ready->shape = kind->shape;
    pipeline_options(&kind->shape, pipeline, sizeof pipeline);
    attention_call_options(problem, modifiers, sizeof modifiers);
    snprintf(options, sizeof options,
             "%s %s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=%d -DVALUE_DIM=%d -DOUT_ALIGNED=%d%s", pipeline, modifiers,
             kind->dtype, kind->out_dtype, kind->head_dim, kind->value_dim, kind->out_aligned,
             kind->biases_staged ? " -DBIASES_STAGED=1" : "");
    ready->mask = NULL;
    if (has_mask(problem))
        FORWARD(attention_mask_program(context, &choice->facts, &ready->mask));
    const struct program_key key = {
        .file = "attention_forward_pipelined.cl", .kernel = "attention_forward_pipelined", .options = options};
    return program_get(context, &key, &ready->program);
}

static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    const struct kind kind = kind_of(problem, choice);
    if (memo_find(&context->memo, &kind, sizeof kind, ready, sizeof *ready))
        return CLATTN_SUCCESS;
    FORWARD(build(context, problem, choice, &kind, ready));
    if (!choice->overridden)
        memo_keep(&context->memo, &kind, sizeof kind, ready, sizeof *ready);
    return CLATTN_SUCCESS;
}

clattn_status attention_pipelined_prepare(clattn_context *context, const struct problem *problem,
                                          const struct choice *choice) {
    struct ready ready;
    return get_ready(context, problem, choice, &ready);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Unlike that of any call that may have left its own in the same memory, and unlike other data: no small number. */
static uint64_t new_mark(void) {
    static uint64_t last;
    const uint64_t count = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return ((os_time_ns() << 20) + count) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* The scale goes into what changes scores, where something does; what tanh is multiplied by stays, unless something is
 * added behind that. */
static float exponent_scale(const clattn_attention_op *op, const struct problem *problem) {
    const double log2_e = 1.4426950408889634;
    const unsigned adds = MODIFIER_ALIBI | MODIFIER_BIAS;
    if ((problem->modifiers & adds) != 0)
        return (float)log2_e;
    return (float)((problem->modifiers & MODIFIER_SOFTCAP ? (double)op->softcap : (double)attention_scale(op)) *
                   log2_e);
}

static void set_workspace(struct launch *launch, const clattn_workspace *workspace) {
    launch_buffer(launch, workspace->buffer);
    launch_long(launch, (int64_t)workspace->offset);
}

/* Rows that lie in one block and in one page. */
static int32_t rows_together(const struct problem *problem, const struct pipeline_shape *shape) {
    int64_t a = shape->block_keys, b = problem->page_size;
    while (b > 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (int32_t)a;
}

static clattn_status pipeline_of(const clattn_attention_op *op, const struct problem *problem,
                                 const struct pipeline_shape *shape, struct pipeline *pipeline) {
    int64_t blocks = 0;
    size_t jobs = 0;
    FORWARD(count_jobs(op, problem, shape, &blocks, &jobs));
    *pipeline = (struct pipeline){
        .mark = new_mark(),
        .query_blocks = (int32_t)blocks,
        .jobs = (int32_t)jobs,
        .scale = exponent_scale(op, problem),
        .piece = rows_together(problem, shape),
    };
    return CLATTN_SUCCESS;
}

static clattn_status enqueue_pipeline(const clattn_attention_op *op, const struct problem *problem,
                                      const struct choice *choice, const struct ready *ready,
                                      const struct attention_mask_blocks *blocks, const struct pipeline *pipeline,
                                      const clattn_workspace *workspace, struct sequence *sequence) {
    const size_t jobs = (size_t)pipeline->jobs, units = choice->facts.compute_units;
    const size_t groups = jobs < units ? jobs : units, items = pipeline_items(&ready->shape);
    struct launch kernel;
    launch_begin(&kernel, ready->program);
    attention_call_arguments(&kernel, op, problem, blocks);
    set_workspace(&kernel, workspace);
    launch_struct(&kernel, pipeline, sizeof *pipeline);
    return launch_enqueue(&kernel, sequence, 1, &groups, &items);
}

clattn_status attention_pipelined_enqueue(clattn_context *context, const clattn_attention_op *op,
                                          const struct problem *problem, const struct choice *choice,
                                          const clattn_launch *launch) {
    struct ready ready;
    struct sequence sequence;
    struct pipeline pipeline;
    clattn_status status = CLATTN_SUCCESS;
    FORWARD(get_ready(context, problem, choice, &ready));
    FORWARD(pipeline_of(op, problem, &ready.shape, &pipeline));
    const struct attention_mask_blocks blocks = {.queries = pipeline_block_queries(&ready.shape),
                                                 .keys = ready.shape.block_keys,
                                                 .buffer = launch->workspace.buffer,
                                                 .offset = (int64_t)(launch->workspace.offset + bytes_of_maps(choice))};
    sequence_begin(&sequence, context, launch, ready.mask != NULL ? 2 : 1);
    if (ready.mask != NULL)
        status = attention_mask_enqueue(ready.mask, &choice->facts, op, &blocks, &sequence);
    if (status == CLATTN_SUCCESS)
        status = enqueue_pipeline(op, problem, choice, &ready, ready.mask != NULL ? &blocks : NULL, &pipeline,
                                  &launch->workspace, &sequence);
    sequence_end(&sequence);
    return status;
}
