/* Attention over a prefix that all sequences share and then their own keys: two attentions into fp32 results in the
 * workspace, and a merge of them. Each of the three is an operation with a choice of its own. Over the prefix the
 * queries of all sequences are rows of one batch where their strides allow that, so that a load serves all of them. */
#include "attention.h"
#include "attention_modifiers.h"
#include "launch.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"

#include <clattn/kv_cache.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AREA_ALIGN 256 /* bytes */

enum { BATCH, HEAD, ROW, COLUMN };
enum { PREFIX, SUFFIX, PARTS };
enum { MERGE = PARTS, STEPS };

void clattn_attention_cascade_init(clattn_attention_cascade_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_ATTENTION_CASCADE;
    clattn_attention_init(&op->suffix);
}

clattn_status clattn_attention_cascade(clattn_context *context, const clattn_attention_cascade_op *op,
                                       const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_ATTENTION_CASCADE, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_modifiers(const clattn_attention_op *suffix) {
    const struct {
        const char *name;
        bool present;
    } refused[] = {{"window_left", suffix->window_left >= 0},
                   {"window_right", suffix->window_right >= 0},
                   {"mask", tensor_is_present(&suffix->mask)},
                   {"bias", tensor_is_present(&suffix->bias)},
                   {"alibi", tensor_is_present(&suffix->alibi)}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        RETURN_IF(refused[i].present, CLATTN_UNSUPPORTED,
                  "%s: not with a shared prefix, whose keys have no positions beside the suffix's", refused[i].name);
    return CLATTN_SUCCESS;
}

static clattn_status check_part_of_prefix(clattn_context *context, const char *name, const clattn_tensor *tensor,
                                          const clattn_attention_op *suffix) {
    FORWARD(check_tensor(context, name, tensor, CHECK_INPUT));
    FORWARD(check_rank(name, tensor, 4));
    FORWARD(check_dtype(name, tensor, 1u << suffix->q.dtype));
    FORWARD(check_innermost_dense(name, tensor));
    FORWARD(check_dim(name, tensor, BATCH, 1, "all sequences share the prefix"));
    FORWARD(check_dim(name, tensor, HEAD, suffix->k.dims[HEAD], "k's heads"));
    RETURN_IF(tensor->dims[ROW] > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED, "%s: length %" PRId64 " is above %" PRId64,
              name, tensor->dims[ROW], ATTENTION_MAX_LENGTH);
    FORWARD(check_disjoint("o", &suffix->o, name, tensor));
    return check_disjoint("lse", &suffix->lse, name, tensor);
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_attention_cascade_op *op = (const clattn_attention_cascade_op *)head;
    const clattn_attention_op *suffix = &op->suffix;
    RETURN_IF(suffix->head.kind != CLATTN_OP_ATTENTION || suffix->head.size < operation_attention.minimum_size,
              CLATTN_INVALID_ARGUMENT, "suffix: kind %d, size %zu; was clattn_attention_cascade_init() called?",
              (int)suffix->head.kind, suffix->head.size);
    FORWARD(operation_attention.check(context, &suffix->head, problem, empty));
    FORWARD(check_modifiers(suffix));
    FORWARD(check_part_of_prefix(context, "prefix_k", &op->prefix_k, suffix));
    FORWARD(check_part_of_prefix(context, "prefix_v", &op->prefix_v, suffix));
    FORWARD(check_dim("prefix_k", &op->prefix_k, COLUMN, suffix->q.dims[COLUMN], "q's head dim"));
    FORWARD(check_dim("prefix_v", &op->prefix_v, COLUMN, suffix->v.dims[COLUMN], "v's head dim"));
    return check_dim("prefix_v", &op->prefix_v, ROW, op->prefix_k.dims[ROW], "prefix_k's length");
}

/* ---- the three operations ---------------------------------------------------------------------------------------- */

struct step {
    const struct operation *operation;
    const clattn_op *op;
    struct problem problem;
    struct choice choice;
};

struct cascade {
    clattn_attention_op parts[PARTS];
    clattn_attention_merge_op merge;
    clattn_tensor o[PARTS], lse[PARTS]; /* partial, in the workspace */
    int64_t partial_bytes;
    bool keeps; /* rows of no sequence are not to be written */
    struct step steps[STEPS];
};

static int64_t area_of(int64_t elements) {
    const int64_t bytes = elements * (int64_t)sizeof(float);
    return (bytes + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
}

/* Head after head, in which the rows of all batches follow each other: a view of one batch is one of all rows too. */
static void place_partials(const clattn_attention_op *suffix, const clattn_workspace *workspace,
                           struct cascade *cascade) {
    const int64_t *q = suffix->q.dims, rows = q[BATCH] * q[ROW], columns = suffix->v.dims[COLUMN];
    const int64_t dims[4] = {q[BATCH], q[HEAD], q[ROW], columns};
    int64_t at = (int64_t)workspace->offset;
    for (int i = 0; i < PARTS; i++) {
        clattn_tensor *o = &cascade->o[i], *lse = &cascade->lse[i];
        *o = clattn_tensor_dense(workspace->buffer, CLATTN_F32, 4, dims);
        *lse = clattn_tensor_dense(workspace->buffer, CLATTN_F32, 3, dims);
        o->strides[BATCH] = q[ROW] * columns, o->strides[HEAD] = rows * columns;
        lse->strides[BATCH] = q[ROW], lse->strides[HEAD] = rows;
        o->offset = at / (int64_t)sizeof(float);
        at += area_of(q[HEAD] * rows * columns);
        lse->offset = at / (int64_t)sizeof(float);
        at += area_of(q[HEAD] * rows);
    }
    cascade->partial_bytes = at - (int64_t)workspace->offset;
}

/* Are all rows of q queries of the prefix, wherever they lie in their sequences? */
static bool has_every_row(const clattn_attention_op *suffix) {
    return !tensor_is_present(&suffix->q_lengths) && (suffix->max_q == 0 || suffix->max_q >= suffix->q.dims[ROW]);
}

static bool rows_are_one_batch(const clattn_attention_op *suffix) {
    const clattn_tensor *q = &suffix->q;
    const int64_t batches = q->dims[BATCH], rows = q->dims[ROW];
    const bool adjoin = batches == 1 || rows == 1 || q->strides[BATCH] == rows * q->strides[ROW];
    return has_every_row(suffix) && adjoin && batches <= ATTENTION_MAX_LENGTH / rows;
}

static clattn_tensor one_batch(const clattn_tensor *tensor) {
    clattn_tensor view = *tensor;
    if (tensor->dims[ROW] == 1 && tensor->dims[BATCH] > 1)
        view.strides[ROW] = tensor->strides[BATCH];
    view.dims[ROW] = tensor->dims[BATCH] * tensor->dims[ROW];
    view.dims[BATCH] = 1;
    return view;
}

static clattn_tensor repeated(const clattn_tensor *tensor, int64_t batches) {
    clattn_tensor view = *tensor;
    view.dims[BATCH] = batches;
    view.strides[BATCH] = 0;
    return view;
}

static void make_prefix(const clattn_attention_cascade_op *op, struct cascade *cascade) {
    const clattn_attention_op *suffix = &op->suffix;
    clattn_attention_op *prefix = &cascade->parts[PREFIX];
    const bool once = rows_are_one_batch(suffix);
    clattn_attention_init(prefix);
    prefix->q = once ? one_batch(&suffix->q) : suffix->q;
    prefix->o = once ? one_batch(&cascade->o[PREFIX]) : cascade->o[PREFIX];
    prefix->lse = once ? one_batch(&cascade->lse[PREFIX]) : cascade->lse[PREFIX];
    prefix->k = once ? op->prefix_k : repeated(&op->prefix_k, attention_query_sequences(suffix));
    prefix->v = once ? op->prefix_v : repeated(&op->prefix_v, attention_query_sequences(suffix));
    prefix->has_scale = suffix->has_scale;
    prefix->scale = suffix->scale;
    prefix->softcap = suffix->softcap;
    if (!once) {
        prefix->q_lengths = suffix->q_lengths;
        prefix->q_offsets = suffix->q_offsets;
        prefix->max_q = suffix->max_q;
    }
}

static void make_cascade(const clattn_attention_cascade_op *op, const clattn_workspace *workspace,
                         struct cascade *cascade) {
    clattn_attention_op *suffix = &cascade->parts[SUFFIX];
    place_partials(&op->suffix, workspace, cascade);
    make_prefix(op, cascade);
    *suffix = op->suffix;
    suffix->o = cascade->o[SUFFIX];
    suffix->lse = cascade->lse[SUFFIX];
    clattn_attention_merge_init(&cascade->merge);
    cascade->merge.count = PARTS;
    cascade->merge.o_in = cascade->o;
    cascade->merge.lse_in = cascade->lse;
    cascade->merge.o = op->suffix.o;
    cascade->merge.lse = op->suffix.lse;
    cascade->keeps = tensor_is_present(&suffix->q_offsets);
    memset(cascade->steps, 0, sizeof cascade->steps);
    for (int i = 0; i < PARTS; i++) {
        struct step *step = &cascade->steps[i];
        step->operation = &operation_attention;
        step->op = &cascade->parts[i].head;
        step->problem.op = CLATTN_OP_ATTENTION;
        attention_describe(&cascade->parts[i], &step->problem);
    }
    struct step *merge = &cascade->steps[MERGE];
    merge->operation = &operation_attention_merge;
    merge->op = &cascade->merge.head;
    attention_merge_describe(&cascade->merge, &merge->problem);
    merge->problem.modifiers = cascade->keeps ? MODIFIER_SEQUENCES : 0;
}

static clattn_status plan_step(clattn_context *context, bool run_selftest, struct step *step) {
    const struct operation *operation = step->operation;
    return operation_choose(context, operation, step->op, &step->problem, NULL, run_selftest, &step->choice);
}

static clattn_status plan_cascade(clattn_context *context, const clattn_attention_cascade_op *op,
                                  const clattn_workspace *workspace, bool run_selftest, struct cascade *cascade) {
    make_cascade(op, workspace, cascade);
    for (int i = 0; i < STEPS; i++)
        FORWARD(plan_step(context, run_selftest, &cascade->steps[i]));
    return CLATTN_SUCCESS;
}

/* The parts take turns in what lies behind the partial results. */
static clattn_status workspace_of(clattn_context *context, const struct cascade *cascade, size_t *bytes) {
    size_t most = 0;
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &cascade->steps[i];
        size_t of_step = 0;
        FORWARD(step->operation->workspace(context, step->op, &step->problem, &step->choice, &of_step));
        most = of_step > most ? of_step : most;
    }
    *bytes = (size_t)cascade->partial_bytes + most;
    const uint64_t limit = cascade->steps[MERGE].choice.facts.max_allocation;
    RETURN_IF((uint64_t)*bytes > limit, CLATTN_UNSUPPORTED,
              "the workspace of %zu bytes exceeds the largest buffer of the device (%" PRIu64 " bytes)", *bytes, limit);
    return CLATTN_SUCCESS;
}

static clattn_status prepare_steps(clattn_context *context, const struct cascade *cascade) {
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &cascade->steps[i];
        FORWARD(step->operation->prepare(context, step->op, &step->problem, &step->choice));
    }
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* A launch for each step: it waits for the one before, the first for the caller's events. */
struct chain {
    clattn_context *context;
    const clattn_launch *caller;
    clattn_launch launch;
    cl_event previous, next;
};

static void chain_begin(clattn_context *context, const clattn_launch *caller, int64_t partial_bytes,
                        struct chain *chain) {
    *chain = (struct chain){.context = context, .caller = caller, .launch = *caller};
    chain->launch.variant = NULL;
    chain->launch.parameters = NULL;
    chain->launch.event = &chain->next;
    chain->launch.workspace.offset += (size_t)partial_bytes;
    chain->launch.workspace.size -= (size_t)partial_bytes;
}

static void chain_end(struct chain *chain) {
    if (chain->previous != NULL)
        clReleaseEvent(chain->previous);
    chain->previous = NULL;
}

static void chain_go_on(struct chain *chain) {
    chain_end(chain);
    chain->previous = chain->next;
    chain->next = NULL;
    chain->launch.num_events_in_wait_list = 1;
    chain->launch.event_wait_list = &chain->previous;
}

/* What is left of this after the suffix are the rows of no sequence. */
static clattn_status mark_unwritten(const struct cascade *cascade, struct chain *chain) {
    const clattn_tensor *lse = &cascade->lse[SUFFIX];
    const cl_uint mark = ATTENTION_UNWRITTEN;
    const size_t bytes = (size_t)check_product(lse->dims, lse->rank) * sizeof mark;
    struct sequence sequence;
    cl_uint count = 0;
    const cl_event *list = NULL;
    cl_event *event = NULL;
    sequence_begin(&sequence, chain->context, &chain->launch, 1);
    sequence_next(&sequence, &count, &list, &event);
    const cl_int code = clEnqueueFillBuffer(chain->launch.queue, lse->memory.as.buffer, &mark, sizeof mark,
                                            (size_t)lse->offset * sizeof mark, bytes, count, list, event);
    const clattn_status status = sequence_done(&sequence, code, "clEnqueueFillBuffer");
    sequence_end(&sequence);
    return status;
}

static clattn_status enqueue_steps(const struct cascade *cascade, struct chain *chain) {
    if (cascade->keeps) {
        FORWARD(mark_unwritten(cascade, chain));
        chain_go_on(chain);
    }
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &cascade->steps[i];
        if (i == STEPS - 1)
            chain->launch.event = chain->caller->event;
        FORWARD(step->operation->enqueue(chain->context, step->op, &step->problem, &step->choice, &chain->launch));
        if (i < STEPS - 1)
            chain_go_on(chain);
    }
    return CLATTN_SUCCESS;
}

/* ---- as an operation --------------------------------------------------------------------------------------------- */

static const clattn_workspace no_workspace = {0};

static int64_t tuning_size(const struct problem *problem) {
    return operation_attention.tuning_size(problem);
}

static clattn_status plan(clattn_context *context, const clattn_op *op, const struct problem *problem,
                          bool run_selftest, struct choice *choice) {
    struct cascade cascade;
    size_t bytes = 0;
    (void)problem;
    FORWARD(plan_cascade(context, (const clattn_attention_cascade_op *)op, &no_workspace, run_selftest, &cascade));
    for (int i = 0; i < STEPS; i++)
        choice->untested |= cascade.steps[i].choice.untested;
    return workspace_of(context, &cascade, &bytes);
}

static clattn_status workspace(clattn_context *context, const clattn_op *op, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    struct cascade cascade;
    (void)problem, (void)choice;
    FORWARD(plan_cascade(context, (const clattn_attention_cascade_op *)op, &no_workspace, false, &cascade));
    return workspace_of(context, &cascade, bytes);
}

static clattn_status prepare(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice) {
    struct cascade cascade;
    (void)problem, (void)choice;
    FORWARD(plan_cascade(context, (const clattn_attention_cascade_op *)op, &no_workspace, true, &cascade));
    return prepare_steps(context, &cascade);
}

static clattn_status enqueue(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    struct cascade cascade;
    struct chain chain;
    (void)problem, (void)choice;
    FORWARD(plan_cascade(context, (const clattn_attention_cascade_op *)op, &launch->workspace, true, &cascade));
    FORWARD(prepare_steps(context, &cascade));
    chain_begin(context, launch, cascade.partial_bytes, &chain);
    const clattn_status status = enqueue_steps(&cascade, &chain);
    chain_end(&chain);
    return status;
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "attention_cascade_%s_d%" PRId64 "__%s", tensor_dtype_name(problem->dtype), problem->head_dim,
             choice->variant->name);
}

const struct operation operation_attention_cascade = {
    .kind = CLATTN_OP_ATTENTION_CASCADE,
    .minimum_size = sizeof(clattn_attention_cascade_op),
    .check = check,
    .tuning_size = tuning_size,
    .plan = plan,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};
