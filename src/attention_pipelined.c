/* Attention as a pipeline inside persistent work-groups (cl/attention_forward_pipelined.cl): one launch of at most
 * as many work-groups as the device has units, which draw blocks of queries until none is left. */
#include "attention.h"
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

/* As view_t and pipelined_t in cl/. */
struct view {
    int64_t offset, batch, head, row;
};

struct call {
    struct view q, k, v, o, lse;
    int64_t diagonal;
    uint64_t mark;
    int32_t batch, heads, heads_per_kv, nq, nk, query_blocks, jobs;
    float scale;
};

struct ready {
    struct pipeline_shape shape;
    struct program *program; /* lives as long as the context */
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
    problem->positive_scale = attention_scale(op) > 0 && isfinite(attention_scale(op) * 1.5F); /* times log2 e */
}

static clattn_status count_jobs(const struct problem *problem, const struct pipeline_shape *shape, size_t *jobs) {
    const int64_t queries = pipeline_block_queries(shape), blocks = (problem->nq + queries - 1) / queries;
    const size_t room = 65536; /* every work-group draws one number beyond the last */
    FORWARD(tile_count_groups("q", problem->batch, problem->heads, blocks, jobs));
    RETURN_IF(*jobs > INT32_MAX - room, CLATTN_UNSUPPORTED, "q: more than 2^31 blocks of tiles");
    return CLATTN_SUCCESS;
}

/* Two groups in the place of three where those would compute too many rows beyond the last; with a causal limit short
 * sequences are better off with smaller blocks earlier. */
static struct pipeline_shape suit_length(const struct problem *problem, const struct choice *choice) {
    struct pipeline_shape three = pipeline_shape_of(&choice->parameters);
    struct parameters fewer = choice->parameters;
    const int percent = problem->causal ? 110 : 120;
    if (choice->overridden || three.groups != 3 || !parameters_put(&fewer, "groups", 2) ||
        !parameters_put(&fewer, "q_held", 1))
        return three;
    const struct pipeline_shape two = pipeline_shape_of(&fewer);
    const int64_t of_three = tile_round_up(problem->nq, pipeline_block_queries(&three));
    const int64_t of_two = tile_round_up(problem->nq, pipeline_block_queries(&two));
    return of_three * 100 > of_two * percent ? two : three;
}

clattn_status attention_pipelined_plan(const struct problem *problem, struct choice *choice) {
    const char *refusal = pipeline_refusal(&choice->parameters);
    RETURN_IF(refusal != NULL, CLATTN_UNSUPPORTED, "parameters: %s", refusal);
    const struct pipeline_shape shape = suit_length(problem, choice);
    const size_t bytes = pipeline_bytes(&shape, problem->head_dim, problem->value_dim);
    RETURN_IF(bytes > choice->facts.local_memory || pipeline_items(&shape) > choice->facts.max_group,
              CLATTN_UNSUPPORTED,
              "parameters: they need %zu work-items and %zu bytes of local memory; the device has %u and %" PRIu64,
              pipeline_items(&shape), bytes, (unsigned)choice->facts.max_group, choice->facts.local_memory);
    size_t jobs = 0;
    choice->parameters = (struct parameters){0};
    pipeline_spell_out(&shape, &choice->parameters);
    return count_jobs(problem, &shape, &jobs);
}

/* Shared counts and aligning them take a map's place each. */
size_t attention_pipelined_workspace(const struct choice *choice) {
    return MAP_BYTES * (2 + GROUP_MAPS * (size_t)choice->facts.compute_units);
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
    int32_t dtype, out_dtype, head_dim, value_dim, causal, out_aligned;
};

static struct kind kind_of(const struct problem *problem, const struct choice *choice) {
    return (struct kind){
        .variant = choice->variant,
        .shape = pipeline_shape_of(&choice->parameters),
        .dtype = (int32_t)problem->dtype,
        .out_dtype = (int32_t)problem->out_dtype,
        .head_dim = (int32_t)problem->head_dim,
        .value_dim = (int32_t)problem->value_dim,
        .causal = problem->causal,
        .out_aligned = problem->out_aligned,
    };
}

static clattn_status build(clattn_context *context, const struct kind *kind, struct ready *ready) {
    char pipeline[320], options[512];
    ready->shape = kind->shape;
    pipeline_options(&kind->shape, pipeline, sizeof pipeline);
    snprintf(options, sizeof options,
             "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=%d -DVALUE_DIM=%d -DCAUSAL=%d -DOUT_ALIGNED=%d", pipeline,
             kind->dtype, kind->out_dtype, kind->head_dim, kind->value_dim, kind->causal, kind->out_aligned);
    const struct program_key key = {
        .file = "attention_forward_pipelined.cl", .kernel = "attention_forward_pipelined", .options = options};
    return program_get(context, &key, &ready->program);
}

static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    const struct kind kind = kind_of(problem, choice);
    if (memo_find(&context->memo, &kind, sizeof kind, ready, sizeof *ready))
        return CLATTN_SUCCESS;
    FORWARD(build(context, &kind, ready));
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

/* A stride that is never stepped by may be anything; the copy engine wants one that it could step by. */
static struct view view_of(const clattn_tensor *tensor) {
    int64_t step[3];
    for (int dim = BATCH; dim <= ROW; dim++)
        step[dim] = tensor->dims[dim] > 1 ? tensor->strides[dim] : COPY_ALIGN;
    return (struct view){tensor->offset, step[BATCH], step[HEAD], step[ROW]};
}

/* Unlike that of any call that may have left its own in the same memory, and unlike other data: no small number. */
static uint64_t new_mark(void) {
    static uint64_t last;
    const uint64_t count = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return ((os_time_ns() << 20) + count) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static struct call call_of(const clattn_attention_op *op, const struct problem *problem,
                           const struct pipeline_shape *shape, size_t jobs) {
    const double log2_e = 1.4426950408889634;
    const int queries = pipeline_block_queries(shape);
    return (struct call){
        .q = view_of(&op->q),
        .k = view_of(&op->k),
        .v = view_of(&op->v),
        .o = view_of(&op->o),
        .lse = view_of(&op->lse),
        .diagonal = attention_diagonal(op),
        .batch = (int32_t)problem->batch,
        .heads = (int32_t)problem->heads,
        .heads_per_kv = (int32_t)(problem->heads / problem->kv_heads),
        .nq = (int32_t)problem->nq,
        .nk = (int32_t)problem->nk,
        .query_blocks = (int32_t)((problem->nq + queries - 1) / queries),
        .jobs = (int32_t)jobs,
        .scale = (float)((double)attention_scale(op) * log2_e),
        .mark = new_mark(),
    };
}

static void set_arguments(struct launch *launch, const clattn_attention_op *op, const struct call *call,
                          const clattn_workspace *workspace) {
    launch_buffer(launch, op->q.memory.as.buffer);
    launch_buffer(launch, op->k.memory.as.buffer);
    launch_buffer(launch, op->v.memory.as.buffer);
    launch_buffer(launch, op->o.memory.as.buffer);
    launch_buffer(launch, op->lse.memory.kind == CLATTN_MEMORY_BUFFER ? op->lse.memory.as.buffer : NULL);
    launch_buffer(launch, workspace->buffer);
    launch_long(launch, (int64_t)workspace->offset);
    launch_struct(launch, call, sizeof *call);
}

clattn_status attention_pipelined_enqueue(clattn_context *context, const clattn_attention_op *op,
                                          const struct problem *problem, const struct choice *choice,
                                          const clattn_launch *launch) {
    struct ready ready;
    struct sequence sequence;
    struct launch kernel;
    size_t jobs = 0;
    FORWARD(get_ready(context, problem, choice, &ready));
    FORWARD(count_jobs(problem, &ready.shape, &jobs));
    const struct call call = call_of(op, problem, &ready.shape, jobs);
    const size_t units = choice->facts.compute_units, items = pipeline_items(&ready.shape);
    const size_t groups = jobs < units ? jobs : units;
    sequence_begin(&sequence, context, launch, 1);
    launch_begin(&kernel, ready.program);
    set_arguments(&kernel, op, &call, &launch->workspace);
    const clattn_status status = launch_enqueue(&kernel, &sequence, 1, &groups, &items);
    sequence_end(&sequence);
    return status;
}
