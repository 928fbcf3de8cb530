/* Attention for few queries and many keys (cl/attention_decode.cl): the query heads of a kv head as rows of one block,
 * and the keys split over work-groups. With one split results are written at once; with more, a second launch combines
 * what lies in the workspace. */
#include "attention.h"
#include "attention_call.h"
#include "attention_plan.h"
#include "attention_split.h"
#include "context.h"
#include "launch.h"
#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BATCH, HEAD, ROW, COLUMN };

/* What the plan step finds; a warm call finds it in the context's memo. */
struct planned {
    struct parameters parameters;
    struct attention_plan plan;
};

struct ready {
    struct attention_plan plan;
    struct program *decode, *combine; /* live as long as the context; combine: NULL with one split */
};

/* All that a plan or its programs depend on, where the caller gave no parameters. */
struct kind {
    const struct variant *variant;
    uint64_t caps;
    int64_t head_dim, value_dim, packed, rows;
    struct stored k_stored, v_stored;
    int32_t dtype, out_dtype, bias_dtype, aligned, v_in_k;
    uint32_t modifiers;
    int32_t built; /* 0: what is kept are parameters; 1: programs without splits, 2: with them */
};

static int64_t packed_heads(const struct problem *problem) {
    return problem->heads / problem->kv_heads;
}

/* Rows of one kv head that are worth a block of their size; a power of two. */
static int64_t usual_rows(const struct problem *problem) {
    enum { MOST = 1024 };
    const int64_t rows = problem->nq < MOST ? problem->nq * packed_heads(problem) : MOST;
    int64_t power = 1;
    while (power < rows && power < MOST)
        power *= 2;
    return power;
}

static struct kind kind_of(const struct problem *problem, const struct choice *choice, int built) {
    struct kind kind;
    memset(&kind, 0, sizeof kind); /* padding too: it is compared byte by byte */
    kind.variant = choice->variant;
    kind.caps = choice->facts.caps;
    kind.head_dim = problem->head_dim;
    kind.value_dim = problem->value_dim;
    kind.packed = packed_heads(problem);
    kind.rows = usual_rows(problem);
    kind.k_stored = problem->k_stored;
    kind.v_stored = problem->v_stored;
    kind.dtype = (int32_t)problem->dtype;
    kind.out_dtype = (int32_t)problem->out_dtype;
    kind.bias_dtype = (int32_t)problem->bias_dtype;
    kind.aligned = problem->aligned;
    kind.v_in_k = problem->v_in_k;
    kind.modifiers = problem->modifiers;
    kind.built = built;
    return kind;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

/* Halves a parameter while the rows still fit one block and a sub-group is still full. */
static void suit_parameter(struct choice *choice, const char *name, int least, int64_t rows) {
    const int shares = parameters_get(&choice->parameters, "shares", 1);
    struct parameters fewer = choice->parameters;
    for (int value = parameters_get(&fewer, name, least) / 2; value >= least; value /= 2) {
        (void)parameters_put(&fewer, name, value);
        const struct tile_shape shape = tile_shape_of(choice->variant->backend, &fewer, &choice->facts);
        if (shape.groups / shares * shape.m < rows ||
            (uint32_t)(shape.groups * shape.items) < choice->facts.subgroup_size)
            return;
        choice->parameters = fewer;
    }
}

/* Blocks that are not much larger than the rows that there are. */
static void suit_rows(const struct problem *problem, struct choice *choice) {
    const int64_t rows = usual_rows(problem);
    suit_parameter(choice, "groups", parameters_get(&choice->parameters, "shares", 1), rows);
    for (const struct tile_step *step = tile_steps_for_local(choice->variant->backend); step->parameter != NULL; step++)
        if (step->is_rows)
            suit_parameter(choice, step->parameter, step->least, rows);
}

static clattn_status make_plan(clattn_context *context, const struct problem *problem, struct choice *choice,
                               struct attention_plan *plan) {
    const struct kind kind = kind_of(problem, choice, 0);
    struct planned planned;
    if (!choice->overridden && memo_find(&context->memo, &kind, sizeof kind, &planned, sizeof planned)) {
        choice->parameters = planned.parameters;
        *plan = planned.plan;
        return CLATTN_SUCCESS;
    }
    if (!choice->overridden)
        suit_rows(problem, choice);
    FORWARD(attention_plan_choose(problem, choice));
    *plan = attention_plan_of(problem, choice);
    planned = (struct planned){choice->parameters, *plan};
    if (!choice->overridden)
        memo_keep(&context->memo, &kind, sizeof kind, &planned, sizeof planned);
    return CLATTN_SUCCESS;
}

/* Blocks of rows of all sequences and kv heads. */
static clattn_status count_blocks(const clattn_attention_op *op, const struct problem *problem,
                                  const struct attention_plan *plan, size_t *blocks) {
    const int64_t most = INT32_MAX - 65536, packed = packed_heads(problem);
    struct problem rows = *problem;
    int64_t batches = 0;
    RETURN_IF(problem->q_rows > most / packed, CLATTN_UNSUPPORTED, "q: %" PRId64 " queries of %" PRId64 " heads each",
              problem->q_rows, packed);
    rows.q_rows *= packed;
    const int64_t count = attention_call_blocks(op, &rows, attention_plan_queries(plan), &batches);
    return tile_count_groups("q", batches, problem->kv_heads, count, blocks);
}

/* Keys that a block of rows sees at most: with a window, its width and what its queries are apart. */
static int64_t count_keys(const clattn_attention_op *op, const struct problem *problem,
                          const struct attention_plan *plan) {
    const bool causal = op->causal != CLATTN_CAUSAL_NONE, right = op->window_right >= 0;
    const int64_t queries = attention_plan_queries(plan) / packed_heads(problem) + 2;
    if (op->window_left < 0 || op->window_left >= problem->nk ||
        (!causal && (!right || op->window_right > problem->nk)))
        return problem->nk;
    const int64_t keys = op->window_left + (causal ? 0 : op->window_right) + queries + attention_plan_keys(plan);
    return keys < problem->nk ? keys : problem->nk;
}

/* Work-groups of the second launch: the rows of all heads. */
static clattn_status count_combined(const clattn_attention_op *op, const struct problem *problem, size_t *groups) {
    int64_t batches = 0;
    const int64_t rows = attention_call_blocks(op, problem, 1, &batches);
    return tile_count_groups("q", batches, problem->heads, rows, groups);
}

clattn_status attention_decode_plan(clattn_context *context, const clattn_attention_op *op,
                                    const struct problem *problem, struct choice *choice) {
    const int chunk = parameters_get(&choice->parameters, "chunk", 0);
    const int splits = parameters_get(&choice->parameters, "splits", 0);
    struct attention_plan plan;
    size_t blocks = 0, groups = 0, bytes = 0;
    FORWARD(make_plan(context, problem, choice, &plan));
    FORWARD(count_blocks(op, problem, &plan, &blocks));
    const struct attention_split_task task = {.blocks = (int64_t)blocks,
                                              .rows = attention_plan_queries(&plan),
                                              .keys = count_keys(op, problem, &plan),
                                              .block_keys = attention_plan_keys(&plan),
                                              .resident = attention_plan_resident(problem, choice),
                                              .even = (problem->modifiers & MODIFIER_SEQUENCES) == 0};
    const struct attention_split split = chunk > 0 || splits > 0 ? attention_split_given(&task, chunk, splits)
                                                                 : attention_split_of(&choice->facts, &task);
    FORWARD(tile_count_groups("q", (int64_t)blocks, split.splits, 1, &groups));
    if (split.splits > 1)
        FORWARD(count_combined(op, problem, &groups));
    (void)parameters_put(&choice->parameters, "chunk", (int)split.chunk);
    (void)parameters_put(&choice->parameters, "splits", (int)split.splits);
    return attention_decode_workspace(op, problem, choice, &bytes);
}

void attention_decode_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys) {
    const struct attention_plan plan = attention_plan_of(problem, choice);
    *queries = attention_plan_queries(&plan);
    *keys = attention_plan_keys(&plan);
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

enum { STATE_BYTES = 8, VALUE_BYTES = 4, AREA_ALIGN = 64 };

static int splits_of(const struct choice *choice) {
    return parameters_get(&choice->parameters, "splits", 1);
}

static int64_t pitch_of(const struct problem *problem) {
    return tile_round_up(problem->value_dim, 4);
}

/* Of states, of all rows and splits; overflow: all of them. */
static bool state_bytes(const clattn_attention_op *op, const struct choice *choice, int64_t *bytes) {
    int64_t rows = op->q.dims[BATCH];
    return !__builtin_mul_overflow(rows, op->q.dims[HEAD], &rows) &&
           !__builtin_mul_overflow(rows, op->q.dims[ROW], &rows) &&
           !__builtin_mul_overflow(rows, (int64_t)splits_of(choice) * STATE_BYTES, bytes) &&
           *bytes < INT64_MAX - AREA_ALIGN && (*bytes = tile_round_up(*bytes, AREA_ALIGN)) >= 0;
}

clattn_status attention_decode_workspace(const clattn_attention_op *op, const struct problem *problem,
                                         const struct choice *choice, size_t *bytes) {
    int64_t states = 0, values = 0, all = 0;
    *bytes = 0;
    if (splits_of(choice) == 1)
        return CLATTN_SUCCESS;
    RETURN_IF(!state_bytes(op, choice, &states) ||
                  __builtin_mul_overflow(states, pitch_of(problem) * VALUE_BYTES / STATE_BYTES, &values) ||
                  __builtin_add_overflow(states, values, &all),
              CLATTN_UNSUPPORTED, "q: the partial results exceed 64 bits");
    *bytes = (size_t)all;
    return CLATTN_SUCCESS;
}

/* As split_t of cl/split.clh. */
struct split {
    struct attention_view values, states;
    int64_t pitch;
    int32_t splits, groups, chunk, unused;
};

static struct attention_view view_of(const clattn_attention_op *op, int64_t offset, int64_t row) {
    const int64_t heads = op->q.dims[HEAD], rows = op->q.dims[ROW];
    return (struct attention_view){.offset = offset, .outer = heads * rows * row, .inner = rows * row, .row = row};
}

static struct split split_of(const clattn_attention_op *op, const struct problem *problem, const struct choice *choice,
                             const clattn_workspace *workspace, size_t blocks) {
    const int64_t splits = splits_of(choice), pitch = pitch_of(problem), start = (int64_t)workspace->offset;
    int64_t states = 0;
    (void)state_bytes(op, choice, &states);
    return (struct split){.values = view_of(op, (start + states) / VALUE_BYTES, splits * pitch),
                          .states = view_of(op, start / STATE_BYTES, splits),
                          .pitch = pitch,
                          .splits = (int32_t)splits,
                          .groups = (int32_t)blocks,
                          .chunk = parameters_get(&choice->parameters, "chunk", 0)};
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Work-items that combine a row: one on a CPU, else teams of LANES. */
struct combine_shape {
    int parts, lanes;
};

static struct combine_shape combine_shape_of(const struct device_facts *facts) {
    struct combine_shape shape = {8, 32};
    const uint32_t most = facts->max_group < facts->max_item[0] ? facts->max_group : facts->max_item[0];
    if ((facts->caps & CAP_BIT(CAP_CPU)) != 0)
        return (struct combine_shape){1, 1};
    while ((uint32_t)(shape.parts * shape.lanes) > most && shape.parts > 1)
        shape.parts /= 2;
    while ((uint32_t)(shape.parts * shape.lanes) > most && shape.lanes > 1)
        shape.lanes /= 2;
    return shape;
}

/* Of the modifiers, what tells where rows are. */
static struct problem combine_problem(const struct problem *problem) {
    struct problem rows = *problem;
    rows.modifiers &= MODIFIER_SEQUENCES;
    rows.k_stored = rows.v_stored = (struct stored){0};
    return rows;
}

static clattn_status build_combine(clattn_context *context, const struct problem *problem, const struct choice *choice,
                                   struct program **program) {
    const struct combine_shape shape = combine_shape_of(&choice->facts);
    const struct problem rows = combine_problem(problem);
    char modifiers[ATTENTION_CALL_OPTIONS], options[ATTENTION_CALL_OPTIONS + 128];
    attention_call_options(&rows, modifiers, sizeof modifiers);
    snprintf(options, sizeof options,
             "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DITEMS=%d -DPARTS=%d -DLANES=%d -DVALUE_DIM=%d", modifiers,
             (int)problem->dtype, (int)problem->out_dtype, shape.parts * shape.lanes, shape.parts, shape.lanes,
             (int)problem->value_dim);
    const struct program_key key = {
        .file = "attention_decode_combine.cl", .kernel = "attention_decode_combine", .options = options};
    return program_get(context, &key, program);
}

static clattn_status build(clattn_context *context, const struct problem *problem, const struct choice *choice,
                           struct ready *ready) {
    const bool splits = splits_of(choice) > 1;
    char common[ATTENTION_PLAN_OPTIONS], options[ATTENTION_PLAN_OPTIONS + 64];
    memset(ready, 0, sizeof *ready);
    ready->plan = attention_plan_of(problem, choice);
    attention_plan_options(problem, &ready->plan, splits ? CLATTN_F32 : problem->out_dtype, common);
    snprintf(options, sizeof options, "%s -DMASK_BLOCKS=0 -DPACKED=%d -DSPLIT=%d", common, (int)packed_heads(problem),
             splits);
    const struct program_key key = {.file = "attention_decode.cl", .kernel = "attention_decode", .options = options};
    if (splits)
        FORWARD(build_combine(context, problem, choice, &ready->combine));
    return program_get(context, &key, &ready->decode);
}

static clattn_status get_ready(clattn_context *context, const struct problem *problem, const struct choice *choice,
                               struct ready *ready) {
    const struct kind kind = kind_of(problem, choice, splits_of(choice) > 1 ? 2 : 1);
    if (choice->overridden)
        return build(context, problem, choice, ready);
    if (memo_find(&context->memo, &kind, sizeof kind, ready, sizeof *ready))
        return CLATTN_SUCCESS;
    FORWARD(build(context, problem, choice, ready));
    memo_keep(&context->memo, &kind, sizeof kind, ready, sizeof *ready);
    return CLATTN_SUCCESS;
}

clattn_status attention_decode_prepare(clattn_context *context, const struct problem *problem,
                                       const struct choice *choice) {
    struct ready ready;
    return get_ready(context, problem, choice, &ready);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static void set_split(struct launch *kernel, const struct split *split, const clattn_workspace *workspace) {
    launch_buffer(kernel, split->splits > 1 ? workspace->buffer : NULL);
    launch_struct(kernel, split, sizeof *split);
}

static clattn_status enqueue_combine(const clattn_attention_op *op, const struct problem *problem,
                                     const struct choice *choice, struct program *program, const struct split *split,
                                     struct sequence *sequence) {
    const struct combine_shape shape = combine_shape_of(&choice->facts);
    const struct problem rows = combine_problem(problem);
    const size_t items = (size_t)(shape.parts * shape.lanes);
    size_t groups = 0;
    struct launch kernel;
    FORWARD(count_combined(op, problem, &groups));
    launch_begin(&kernel, program);
    attention_call_arguments(&kernel, op, &rows, NULL);
    set_split(&kernel, split, &sequence->launch->workspace);
    return launch_enqueue(&kernel, sequence, 1, &groups, &items);
}

static clattn_status enqueue_kernels(const clattn_attention_op *op, const struct problem *problem,
                                     const struct choice *choice, const struct ready *ready,
                                     struct sequence *sequence) {
    const struct tile_shape *shape = &ready->plan.shape;
    const clattn_workspace *workspace = &sequence->launch->workspace;
    const size_t items = (size_t)(shape->groups * shape->items);
    struct launch kernel;
    size_t blocks = 0;
    FORWARD(count_blocks(op, problem, &ready->plan, &blocks));
    const struct split split = split_of(op, problem, choice, workspace, blocks);
    const size_t groups = blocks * (size_t)split.splits;
    launch_begin(&kernel, ready->decode);
    attention_call_arguments(&kernel, op, problem, NULL);
    set_split(&kernel, &split, workspace);
    FORWARD(launch_enqueue(&kernel, sequence, 1, &groups, &items));
    return ready->combine == NULL ? CLATTN_SUCCESS
                                  : enqueue_combine(op, problem, choice, ready->combine, &split, sequence);
}

clattn_status attention_decode_enqueue(clattn_context *context, const clattn_attention_op *op,
                                       const struct problem *problem, const struct choice *choice,
                                       const clattn_launch *launch) {
    struct ready ready;
    struct sequence sequence;
    FORWARD(get_ready(context, problem, choice, &ready));
    sequence_begin(&sequence, context, launch, ready.combine == NULL ? 1 : 2);
    const clattn_status status = enqueue_kernels(op, problem, choice, &ready, &sequence);
    sequence_end(&sequence);
    return status;
}
