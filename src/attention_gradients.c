/* Attention's gradients as launches: terms of each query first, then the keys' kernel and the queries', which share
 * nothing but these; where wanted the bias' and the sinks'. Nothing is added up by atomics. */
#include "attention_gradients.h"
#include "attention_mask.h"
#include "attention_modifiers.h"
#include "context.h"
#include "launch.h"
#include "status.h"
#include "tensor.h"
#include "tile_fit.h"

#include <stdio.h>

enum { BATCH, HEAD, ROW, COLUMN };
enum { TERMS_ITEMS = 64, SINKS_ITEMS = 64, AREA_ALIGN = 256 };

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* As the kernels' parameters; see cl/gradient_block.clh. */
struct plan {
    struct tile_shape shape;
    int score_tiles, k_slice, v_slice, resident;
};

static int64_t at_least_one(int64_t value) {
    return value > 0 ? value : 1;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Of a parameter that may be larger than the whole, or no multiple of the step. */
static int slice_of(const struct parameters *parameters, const char *name, const struct problem *problem, int step) {
    const int64_t widest = problem->head_dim > problem->value_dim ? problem->head_dim : problem->value_dim;
    const int64_t most = tile_round_up(widest, step);
    return (int)least(most, tile_round_up(parameters_get(parameters, name, (int)most), step));
}

static struct plan plan_of(const struct problem *problem, enum backend backend, const struct parameters *parameters,
                           const struct device_facts *facts) {
    struct plan plan = {.shape = tile_shape_of(backend, parameters, facts)};
    plan.score_tiles = parameters_get(parameters, "score_tiles", 1);
    plan.k_slice = slice_of(parameters, "k_slice", problem, plan.shape.k);
    plan.v_slice = slice_of(parameters, "v_slice", problem, plan.shape.n);
    plan.resident = parameters_get(parameters, "resident", 1) != 0;
    return plan;
}

static struct plan plan_of_choice(const struct problem *problem, const struct choice *choice) {
    return plan_of(problem, choice->variant->backend, &choice->parameters, &choice->facts);
}

static int block_rows(const struct plan *plan) {
    return plan->shape.groups * plan->shape.m;
}

static int block_columns(const struct plan *plan) {
    return plan->score_tiles * plan->shape.n;
}

/* The slice of a dim, and the bytes of what is staged of the rows and of the columns. */
static int part(int slice, int64_t dim, int step) {
    return (int)least(slice, tile_round_up(at_least_one(dim), step));
}

static size_t rows_bytes(const struct plan *plan, int64_t dim) {
    const int step = part(plan->k_slice, dim, plan->shape.k);
    return tile_a_bytes(&plan->shape, block_rows(plan),
                        plan->resident ? (int)tile_round_up(at_least_one(dim), step) : step);
}

static size_t slot_bytes(const struct plan *plan, int64_t dim) {
    const struct tile_shape *shape = &plan->shape;
    return larger(tile_bt_bytes(shape, block_columns(plan), part(plan->k_slice, dim, shape->k)),
                  tile_b_bytes(shape, block_columns(plan), part(plan->v_slice, dim, shape->n)));
}

static struct tile_need need(const struct tile_plan *tiles, const struct parameters *parameters,
                             const struct device_facts *facts) {
    const struct problem *problem = tiles->problem;
    const struct plan plan = plan_of(problem, tiles->backend, parameters, facts);
    const int rows = block_rows(&plan), columns = block_columns(&plan);
    const size_t k = rows_bytes(&plan, problem->head_dim), v = rows_bytes(&plan, problem->value_dim);
    const size_t of_bias = (problem->modifiers & MODIFIER_BIAS) != 0 ? (size_t)rows * (size_t)columns : 1;
    const size_t left = larger(tile_left_bytes(&plan.shape, rows, columns), of_bias * sizeof(float));
    const size_t slot = larger(slot_bytes(&plan, problem->head_dim), slot_bytes(&plan, problem->value_dim));
    return (struct tile_need){
        .items = (uint64_t)(plan.shape.groups * plan.shape.items),
        .local = TILE_START + tile_array_bytes(plan.resident ? k + v : larger(k, v)) + tile_array_bytes(slot) +
                 tile_array_bytes(left) + tile_array_bytes(2 * sizeof(float) * larger((size_t)rows, (size_t)columns)) +
                 TILE_ALIGNMENT,
    };
}

static void spell_out(const struct tile_plan *tiles, const struct parameters *parameters,
                      const struct device_facts *facts, struct parameters *out) {
    const struct plan plan = plan_of(tiles->problem, tiles->backend, parameters, facts);
    parameters_put(out, "score_tiles", plan.score_tiles);
    parameters_put(out, "k_slice", plan.k_slice);
    parameters_put(out, "v_slice", plan.v_slice);
    parameters_put(out, "resident", plan.resident);
}

static const struct tile_step for_local[] = {
    {"k_slice", 64, false}, {"v_slice", 64, false},    {"resident", 0, false}, {"k_slice", 32, false},
    {"v_slice", 32, false}, {"groups", 4, false},      {"k_slice", 1, false},  {"v_slice", 1, false},
    {"groups", 1, false},   {"score_tiles", 1, false}, {NULL, 0, false},
};

static const struct tile_kernel kernel_on_tiles = {for_local, need, spell_out};

void attention_gradients_blocks(const struct problem *problem, const struct choice *choice, int *rows, int *columns) {
    const struct plan plan = plan_of_choice(problem, choice);
    *rows = block_rows(&plan);
    *columns = block_columns(&plan);
}

/* ---- what a call consists of ------------------------------------------------------------------------------------- */

/* Work-groups of each launch; 0: it is not needed. */
struct work {
    struct plan plan;
    size_t terms, keys, queries, bias, sinks;
    int64_t term_rows; /* rows that are numbered for the terms, of a head of a batch */
    int64_t term_batches;
    bool masks; /* both pre-passes run */
    size_t query_masks, key_masks;
    struct {
        int64_t sink_terms, query_masks, key_masks, end; /* bytes from the workspace's start; the terms come first */
    } at;
};

static int64_t align(int64_t bytes) {
    return (bytes + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
}

static bool has_elements(const clattn_tensor *tensor) {
    return tensor_is_present(tensor) && check_product(tensor->dims, tensor->rank) > 0;
}

static clattn_status count_keys(const clattn_attention_op *op, const struct problem *problem, int rows,
                                size_t *groups) {
    const bool packed = tensor_is_present(&op->k_offsets);
    const int64_t key_rows = op->k.dims[ROW];
    const int64_t blocks = packed ? key_rows / rows + problem->batch : (key_rows + rows - 1) / rows;
    return tile_count_groups("k", packed ? 1 : problem->batch, problem->kv_heads, blocks, groups);
}

static clattn_status count_bias(const clattn_tensor *dbias, const struct plan *plan, size_t *groups) {
    const int64_t *dims = dbias->dims;
    const int64_t down = (dims[ROW] + block_rows(plan) - 1) / block_rows(plan);
    const int64_t across = (dims[COLUMN] + block_columns(plan) - 1) / block_columns(plan);
    int64_t blocks;
    RETURN_IF(__builtin_mul_overflow(down, across, &blocks), CLATTN_UNSUPPORTED,
              "dbias: more blocks than 64 bits count");
    return tile_count_groups("dbias", dims[BATCH], dims[HEAD], blocks, groups);
}

static clattn_status count_terms(const clattn_attention_op *op, const struct problem *problem, struct work *work) {
    size_t rows;
    work->term_rows = attention_call_blocks(op, problem, 1, &work->term_batches);
    FORWARD(tile_count_groups("q", work->term_batches, problem->heads, work->term_rows, &rows));
    work->terms = (rows + TERMS_ITEMS - 1) / TERMS_ITEMS;
    return CLATTN_SUCCESS;
}

static clattn_status count_queries(const clattn_attention_op *op, const struct problem *problem,
                                   const struct plan *plan, size_t *groups) {
    int64_t batches = 0;
    const int64_t blocks = attention_call_blocks(op, problem, block_rows(plan), &batches);
    return tile_count_groups("q", batches, problem->heads, blocks, groups);
}

static clattn_status count_masks(const clattn_attention_op *op, struct work *work) {
    const int rows = block_rows(&work->plan), columns = block_columns(&work->plan);
    FORWARD(attention_mask_workspace(op, rows, columns, &work->query_masks));
    return attention_mask_workspace(op, columns, rows, &work->key_masks);
}

static void lay_out(const clattn_attention_op *op, const struct problem *problem, struct work *work) {
    const int64_t slabs = op->q.dims[BATCH], floats = (int64_t)sizeof(float);
    work->at.sink_terms = align(2 * floats * slabs * problem->heads * problem->q_rows);
    work->at.query_masks =
        work->at.sink_terms +
        (work->sinks > 0 ? align(floats * work->term_batches * problem->heads * work->term_rows) : 0);
    work->at.key_masks = work->at.query_masks + (work->masks ? align((int64_t)work->query_masks) : 0);
    work->at.end = work->at.key_masks + (work->masks ? align((int64_t)work->key_masks) : 0);
}

static clattn_status work_of(const clattn_attention_backward_op *op, const struct problem *problem,
                             const struct plan *plan, struct work *work) {
    const clattn_attention_op *forward = &op->attention;
    const bool queries = problem->batch > 0 && problem->heads > 0 && problem->q_rows > 0;
    *work = (struct work){.plan = *plan};
    if (queries)
        FORWARD(count_terms(forward, problem, work));
    if (queries && has_elements(&op->dq))
        FORWARD(count_queries(forward, problem, plan, &work->queries));
    if (problem->batch > 0 && (has_elements(&op->dk) || has_elements(&op->dv)))
        FORWARD(count_keys(forward, problem, block_rows(plan), &work->keys));
    if (has_elements(&op->dbias))
        FORWARD(count_bias(&op->dbias, plan, &work->bias));
    if (has_elements(&op->dsinks))
        work->sinks = (size_t)problem->heads;
    if ((problem->modifiers & MODIFIER_MASK) != 0 && queries && problem->nk > 0) {
        work->masks = true;
        FORWARD(count_masks(forward, work));
    }
    lay_out(forward, problem, work);
    return CLATTN_SUCCESS;
}

clattn_status attention_gradients_plan(const clattn_attention_backward_op *op, const struct problem *problem,
                                       struct choice *choice) {
    struct work work;
    FORWARD(tile_choose(&kernel_on_tiles, problem, choice));
    const struct plan plan = plan_of_choice(problem, choice);
    return work_of(op, problem, &plan, &work);
}

static clattn_status work_of_choice(const clattn_attention_backward_op *op, const struct problem *problem,
                                    const struct choice *choice, struct work *work) {
    const struct plan plan = plan_of_choice(problem, choice);
    return work_of(op, problem, &plan, work);
}

clattn_status attention_gradients_workspace(const clattn_attention_backward_op *op, const struct problem *problem,
                                            const struct choice *choice, size_t *bytes) {
    struct work work;
    FORWARD(work_of_choice(op, problem, choice, &work));
    *bytes = (size_t)work.at.end;
    return CLATTN_SUCCESS;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

struct programs {
    struct program *terms, *mask, *keys, *queries, *bias, *sinks;
};

static clattn_status get_on_tiles(clattn_context *context, const struct problem *problem, const struct plan *plan,
                                  const char *file, const char *kernel, struct program **program) {
    char tile[256], modifiers[ATTENTION_CALL_OPTIONS], options[1024];
    tile_options(&plan->shape, "plain", tile, sizeof tile);
    attention_call_options(problem, modifiers, sizeof modifiers);
    snprintf(options, sizeof options,
             "%s %s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=%d -DVALUE_DIM=%d -DALIGNED=%d -DSCORE_TILES=%d "
             "-DK_SLICE=%d -DV_SLICE=%d -DRESIDENT=%d",
             tile, modifiers, (int)problem->dtype, (int)problem->out_dtype, (int)problem->head_dim,
             (int)problem->value_dim, problem->aligned, plan->score_tiles, plan->k_slice, plan->v_slice,
             plan->resident);
    const struct program_key key = {.file = file, .kernel = kernel, .options = options};
    return program_get(context, &key, program);
}

/* The modifiers that the terms depend on. */
static struct problem terms_problem(const clattn_attention_backward_op *op, const struct problem *problem) {
    struct problem reduced = *problem;
    reduced.modifiers &= (unsigned)MODIFIER_SEQUENCES | (has_elements(&op->dsinks) ? (unsigned)MODIFIER_SINKS : 0u);
    return reduced;
}

static size_t items_of(const struct device_facts *facts, size_t most) {
    size_t items = most;
    while (items > facts->max_group || items > facts->max_item[0])
        items /= 2;
    return items;
}

static clattn_status get_terms(clattn_context *context, const clattn_attention_backward_op *op,
                               const struct problem *problem, const struct device_facts *facts,
                               struct program **program) {
    char modifiers[ATTENTION_CALL_OPTIONS], options[512];
    const struct problem reduced = terms_problem(op, problem);
    attention_call_options(&reduced, modifiers, sizeof modifiers);
    snprintf(options, sizeof options, "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DDSINKS=%d -DITEMS=%zu", modifiers,
             (int)problem->dtype, (int)op->attention.o.dtype, has_elements(&op->dsinks), items_of(facts, TERMS_ITEMS));
    const struct program_key key = {"attention_backward_terms.cl", "attention_backward_terms", options};
    return program_get(context, &key, program);
}

static clattn_status get_sinks(clattn_context *context, const struct device_facts *facts, struct program **program) {
    char options[32];
    snprintf(options, sizeof options, "-DITEMS=%zu", items_of(facts, SINKS_ITEMS));
    const struct program_key key = {"attention_backward_sinks.cl", "attention_backward_sinks", options};
    return program_get(context, &key, program);
}

static clattn_status get_programs(clattn_context *context, const clattn_attention_backward_op *op,
                                  const struct problem *problem, const struct choice *choice, const struct work *work,
                                  struct programs *programs) {
    const struct device_facts *facts = &choice->facts;
    *programs = (struct programs){0};
    if (work->terms > 0)
        FORWARD(get_terms(context, op, problem, facts, &programs->terms));
    if (work->masks)
        FORWARD(attention_mask_program(context, facts, &programs->mask));
    if (work->keys > 0)
        FORWARD(get_on_tiles(context, problem, &work->plan, "attention_backward_keys.cl", "attention_backward_keys",
                             &programs->keys));
    if (work->queries > 0)
        FORWARD(get_on_tiles(context, problem, &work->plan, "attention_backward_queries.cl",
                             "attention_backward_queries", &programs->queries));
    if (work->bias > 0)
        FORWARD(get_on_tiles(context, problem, &work->plan, "attention_backward_bias.cl", "attention_backward_bias",
                             &programs->bias));
    return work->sinks > 0 ? get_sinks(context, facts, &programs->sinks) : CLATTN_SUCCESS;
}

clattn_status attention_gradients_prepare(clattn_context *context, const clattn_attention_backward_op *op,
                                          const struct problem *problem, const struct choice *choice) {
    struct work work;
    struct programs programs;
    FORWARD(work_of_choice(op, problem, choice, &work));
    return get_programs(context, op, problem, choice, &work, &programs);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* As gradient_call_t of cl/gradient_call.clh. */
struct call {
    struct attention_view dout, dlse, dq, dk, dv, dbias;
    int64_t dbias_column, terms, sink_terms, dsinks;
    int32_t kv_heads, value_dim, bias_batches, bias_heads, bias_rows, bias_columns;
};

/* As sinks_t of cl/attention_backward_sinks.cl. */
struct sinks_call {
    int64_t terms, dsinks;
    int32_t batches, heads, rows, unused;
};

/* A call on its way. */
struct running {
    const clattn_attention_backward_op *op;
    const struct problem *problem;
    const struct device_facts *facts;
    const struct work *work;
    const clattn_workspace *workspace;
    struct sequence *sequence;
    struct call call;
};

static struct call call_of(const clattn_attention_backward_op *op, const struct problem *problem,
                           const struct work *work, const clattn_workspace *workspace) {
    const int64_t start = (int64_t)workspace->offset, floats = (int64_t)sizeof(float);
    struct call call = {
        .dout = attention_view_of(&op->dout),
        .terms = start / floats,
        .sink_terms = (start + work->at.sink_terms) / floats,
        .dsinks = op->dsinks.offset,
        .kv_heads = (int32_t)problem->kv_heads,
        .value_dim = (int32_t)problem->value_dim,
    };
    if (tensor_is_present(&op->dlse))
        call.dlse = attention_view_of(&op->dlse);
    if (tensor_is_present(&op->dq))
        call.dq = attention_view_of(&op->dq);
    if (tensor_is_present(&op->dk))
        call.dk = attention_view_of(&op->dk);
    if (tensor_is_present(&op->dv))
        call.dv = attention_view_of(&op->dv);
    if (tensor_is_present(&op->dbias)) {
        call.dbias = attention_view_of(&op->dbias);
        call.dbias_column = attention_stride(&op->dbias, COLUMN);
        call.bias_batches = (int32_t)op->dbias.dims[BATCH], call.bias_heads = (int32_t)op->dbias.dims[HEAD];
        call.bias_rows = (int32_t)op->dbias.dims[ROW], call.bias_columns = (int32_t)op->dbias.dims[COLUMN];
    }
    return call;
}

static void set_tensor(struct launch *launch, const clattn_tensor *tensor) {
    launch_buffer(launch, has_elements(tensor) ? tensor->memory.as.buffer : NULL);
}

/* queries, keys: of a block of the mask's. */
static struct attention_mask_blocks blocks_of(const struct running *run, bool by_keys) {
    const int rows = block_rows(&run->work->plan), columns = block_columns(&run->work->plan);
    const int64_t at = by_keys ? run->work->at.key_masks : run->work->at.query_masks;
    return (struct attention_mask_blocks){.queries = by_keys ? columns : rows,
                                          .keys = by_keys ? rows : columns,
                                          .buffer = run->workspace->buffer,
                                          .offset = (int64_t)run->workspace->offset + at};
}

static clattn_status enqueue_terms(const struct running *run, struct program *program) {
    const size_t items = items_of(run->facts, TERMS_ITEMS);
    const size_t groups = run->work->terms * (TERMS_ITEMS / items);
    const struct problem reduced = terms_problem(run->op, run->problem);
    struct launch launch;
    launch_begin(&launch, program);
    attention_call_arguments(&launch, &run->op->attention, &reduced, NULL);
    set_tensor(&launch, &run->op->dout);
    set_tensor(&launch, &run->op->dlse);
    launch_buffer(&launch, run->workspace->buffer);
    launch_struct(&launch, &run->call, sizeof run->call);
    return launch_enqueue(&launch, run->sequence, 1, &groups, &items);
}

static clattn_status enqueue_masks(const struct running *run, struct program *program) {
    const struct attention_mask_blocks of_queries = blocks_of(run, false), of_keys = blocks_of(run, true);
    FORWARD(attention_mask_enqueue(program, run->facts, &run->op->attention, &of_queries, run->sequence));
    return attention_mask_enqueue(program, run->facts, &run->op->attention, &of_keys, run->sequence);
}

/* A kernel on tiles with one output or two. */
static clattn_status enqueue_on_tiles(const struct running *run, struct program *program, size_t groups, bool by_keys,
                                      const clattn_tensor *first, const clattn_tensor *second) {
    const struct tile_shape *shape = &run->work->plan.shape;
    const size_t items = (size_t)(shape->groups * shape->items);
    const struct attention_mask_blocks blocks = blocks_of(run, by_keys);
    struct launch launch;
    launch_begin(&launch, program);
    attention_call_arguments(&launch, &run->op->attention, run->problem,
                             (run->problem->modifiers & MODIFIER_MASK) != 0 ? &blocks : NULL);
    set_tensor(&launch, &run->op->dout);
    launch_buffer(&launch, run->workspace->buffer);
    set_tensor(&launch, first);
    if (second != NULL)
        set_tensor(&launch, second);
    launch_struct(&launch, &run->call, sizeof run->call);
    return launch_enqueue(&launch, run->sequence, 1, &groups, &items);
}

static clattn_status enqueue_sinks(const struct running *run, struct program *program) {
    const size_t items = items_of(run->facts, SINKS_ITEMS), groups = run->work->sinks;
    const struct sinks_call call = {.terms = run->call.sink_terms,
                                    .dsinks = run->call.dsinks,
                                    .batches = (int32_t)run->work->term_batches,
                                    .heads = (int32_t)run->problem->heads,
                                    .rows = (int32_t)run->work->term_rows};
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, run->workspace->buffer);
    set_tensor(&launch, &run->op->dsinks);
    launch_struct(&launch, &call, sizeof call);
    return launch_enqueue(&launch, run->sequence, 1, &groups, &items);
}

static clattn_status enqueue_all(const struct running *run, const struct programs *programs) {
    const clattn_attention_backward_op *op = run->op;
    const struct work *work = run->work;
    if (work->terms > 0)
        FORWARD(enqueue_terms(run, programs->terms));
    if (work->masks)
        FORWARD(enqueue_masks(run, programs->mask));
    if (work->keys > 0)
        FORWARD(enqueue_on_tiles(run, programs->keys, work->keys, true, &op->dk, &op->dv));
    if (work->queries > 0)
        FORWARD(enqueue_on_tiles(run, programs->queries, work->queries, false, &op->dq, NULL));
    if (work->bias > 0)
        FORWARD(enqueue_on_tiles(run, programs->bias, work->bias, false, &op->dbias, NULL));
    return work->sinks > 0 ? enqueue_sinks(run, programs->sinks) : CLATTN_SUCCESS;
}

static int commands_of(const struct work *work) {
    return (work->terms > 0) + 2 * work->masks + (work->keys > 0) + (work->queries > 0) + (work->bias > 0) +
           (work->sinks > 0);
}

clattn_status attention_gradients_enqueue(clattn_context *context, const clattn_attention_backward_op *op,
                                          const struct problem *problem, const struct choice *choice,
                                          const clattn_launch *launch) {
    struct work work;
    struct programs programs;
    struct sequence sequence;
    FORWARD(work_of_choice(op, problem, choice, &work));
    if (commands_of(&work) == 0)
        return sequence_empty(context, launch);
    FORWARD(get_programs(context, op, problem, choice, &work, &programs));
    const struct running run = {op,
                                problem,
                                &choice->facts,
                                &work,
                                &launch->workspace,
                                &sequence,
                                call_of(op, problem, &work, &launch->workspace)};
    sequence_begin(&sequence, context, launch, commands_of(&work));
    const clattn_status status = enqueue_all(&run, &programs);
    sequence_end(&sequence);
    return status;
}
