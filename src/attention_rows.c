/* The kernels round unfused attention's products, which walk rows of queries, keys, values, scores and results: their
 * programs and their launches. */
#include "attention_call.h"
#include "attention_unfused.h"
#include "context.h"
#include "gemm.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ITEMS = 64, GROUPS_PER_UNIT = 64 };

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* The modifiers of which a kernel's text depends: no more, so that problems share programs. */
struct kernel {
    const char *file, *name;
    unsigned modifiers;
    bool reads_keys, reads_values; /* then it is compiled for how they are stored */
};

enum { PLACES = MODIFIER_SEQUENCES | MODIFIER_PAGED, SIGHT = PLACES | MODIFIER_BAND | MODIFIER_MASK | MODIFIER_BIAS };

static const struct kernel pack = {"attention_pack.cl", "attention_pack", PLACES, true, true},
                           unpack = {"attention_pack.cl", "attention_unpack", PLACES, false, false},
                           scores = {"attention_scores.cl", "attention_scores",
                                     SIGHT | MODIFIER_ALIBI | MODIFIER_SOFTCAP | MODIFIER_SINKS, false, false},
                           special = {"attention_special.cl", "attention_special", SIGHT, false, true};

/* Everything that the program's text depends on. */
struct kind {
    const struct kernel *kernel;
    uint32_t modifiers;
    struct stored k_stored, v_stored;
    int32_t dtype, out_dtype, bias_dtype, items;
};

static size_t items_of(const struct unfused_call *call) {
    return call->facts->max_group < MOST_ITEMS ? call->facts->max_group : MOST_ITEMS;
}

/* As a kernel's text sees it. */
static struct problem problem_of(const struct unfused_call *call, const struct kernel *kernel) {
    struct problem problem = *call->problem;
    problem.modifiers &= kernel->modifiers;
    if (!kernel->reads_keys)
        problem.k_stored = (struct stored){0};
    if (!kernel->reads_values)
        problem.v_stored = (struct stored){0};
    return problem;
}

static struct kind kind_of(const struct unfused_call *call, const struct kernel *kernel) {
    const struct problem problem = problem_of(call, kernel);
    struct kind kind;
    memset(&kind, 0, sizeof kind); /* padding too: it is compared byte by byte */
    kind.kernel = kernel;
    kind.k_stored = problem.k_stored;
    kind.v_stored = problem.v_stored;
    kind.modifiers = problem.modifiers;
    kind.dtype = (int32_t)problem.dtype;
    kind.out_dtype = (int32_t)problem.out_dtype;
    kind.bias_dtype = (problem.modifiers & MODIFIER_BIAS) != 0 ? (int32_t)problem.bias_dtype : 0;
    kind.items = (int32_t)items_of(call);
    return kind;
}

static clattn_status build(clattn_context *context, const struct unfused_call *call, const struct kind *kind,
                           struct program **program) {
    char modifiers[ATTENTION_CALL_OPTIONS], options[512];
    const struct problem problem = problem_of(call, kind->kernel);
    attention_call_options(&problem, modifiers, sizeof modifiers);
    snprintf(options, sizeof options, "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DITEMS=%d", modifiers, kind->dtype,
             kind->out_dtype, kind->items);
    const struct program_key key = {.file = kind->kernel->file, .kernel = kind->kernel->name, .options = options};
    return program_get(context, &key, program);
}

static clattn_status get_program(clattn_context *context, const struct unfused_call *call, bool needed,
                                 const struct kernel *kernel, struct program **program) {
    *program = NULL;
    if (!needed)
        return CLATTN_SUCCESS;
    const struct kind kind = kind_of(call, kernel);
    if (memo_find(&context->memo, &kind, sizeof kind, program, sizeof *program))
        return CLATTN_SUCCESS;
    FORWARD(build(context, call, &kind, program));
    memo_keep(&context->memo, &kind, sizeof kind, program, sizeof *program);
    return CLATTN_SUCCESS;
}

clattn_status unfused_rows_prepare(clattn_context *context, const struct unfused_call *call,
                                   struct unfused_programs *programs) {
    const struct unfused_needs *needs = &call->needs;
    const bool packs = needs->packs_q || needs->packs_k || needs->finite_v;
    FORWARD(get_program(context, call, packs, &pack, &programs->pack));
    FORWARD(get_program(context, call, needs->scores, &scores, &programs->scores));
    FORWARD(get_program(context, call, needs->finite_v, &special, &programs->special));
    return get_program(context, call, needs->unpacks, &unpack, &programs->unpack);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* As area_t of cl/attention_rows.clh. */
struct area {
    int64_t offset, pitch, met;
    int32_t what, columns;
};

/* As in cl/attention_pack.cl. */
enum what { QUERIES, KEYS, VALUES };

static int64_t met_of(const struct unfused_call *call) {
    return ((int64_t)call->workspace.offset + call->areas.met) / (int64_t)sizeof(cl_int);
}

static struct area area_of(const struct unfused_call *call, const clattn_tensor *tensor, enum what what) {
    return (struct area){.offset = tensor->offset,
                         .pitch = tensor->strides[2],
                         .met = met_of(call),
                         .what = what,
                         .columns = (int32_t)tensor->dims[3]};
}

static void begin(struct launch *launch, const struct kernel *kernel, struct program *program,
                  const struct unfused_call *call) {
    const struct problem problem = problem_of(call, kernel);
    launch_begin(launch, program);
    attention_call_arguments(launch, call->op, &problem, NULL);
}

/* As many groups as fill the device, but not more than there are rows: groups take rows in turn. */
static clattn_status enqueue(struct launch *launch, const struct unfused_call *call, int64_t rows,
                             struct sequence *sequence) {
    const int64_t most = (int64_t)call->facts->compute_units * GROUPS_PER_UNIT;
    const size_t items = items_of(call), groups = (size_t)(rows > most && most > 0 ? most : rows);
    return launch_enqueue(launch, sequence, 1, &groups, &items);
}

static clattn_status enqueue_pack(const struct unfused_call *call, struct program *program, const clattn_tensor *to,
                                  enum what what, struct sequence *sequence) {
    const struct area area = area_of(call, to, what);
    struct launch launch;
    begin(&launch, &pack, program, call);
    launch_buffer(&launch, call->workspace.buffer);
    launch_buffer(&launch, call->workspace.buffer);
    launch_struct(&launch, &area, sizeof area);
    return enqueue(&launch, call, to->dims[0] * to->dims[1] * to->dims[2], sequence);
}

static clattn_status clear_met(const struct unfused_call *call, struct sequence *sequence) {
    const cl_int zero = 0;
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    sequence_next(sequence, &count, &list, &event);
    const cl_int code = clEnqueueFillBuffer(sequence->launch->queue, call->workspace.buffer, &zero, sizeof zero,
                                            (size_t)met_of(call) * sizeof zero, sizeof zero, count, list, event);
    return sequence_done(sequence, code, "clEnqueueFillBuffer");
}

int unfused_rows_commands(const struct unfused_call *call) {
    enum { VALUES_AND_SPECIAL = 3 };
    const struct unfused_needs *needs = &call->needs;
    return (needs->packs_q ? 1 : 0) + (needs->packs_k ? 1 : 0) + (needs->finite_v ? VALUES_AND_SPECIAL : 0) +
           (needs->scores ? 1 : 0) + (needs->unpacks ? 1 : 0);
}

clattn_status unfused_rows_before(const struct unfused_call *call, const struct unfused_programs *programs,
                                  struct sequence *sequence) {
    const struct unfused_needs *needs = &call->needs;
    if (needs->packs_q)
        FORWARD(enqueue_pack(call, programs->pack, &call->q, QUERIES, sequence));
    if (needs->packs_k)
        FORWARD(enqueue_pack(call, programs->pack, &call->k, KEYS, sequence));
    if (!needs->finite_v)
        return CLATTN_SUCCESS;
    FORWARD(clear_met(call, sequence));
    return enqueue_pack(call, programs->pack, &call->v, VALUES, sequence);
}

static int64_t query_rows(const struct problem *problem) {
    return problem->batch * problem->heads * problem->nq;
}

clattn_status unfused_rows_between(const struct unfused_call *call, const struct unfused_programs *programs,
                                   struct sequence *sequence) {
    const struct area area = area_of(call, &call->s, QUERIES);
    struct launch launch;
    if (!call->needs.scores)
        return CLATTN_SUCCESS;
    begin(&launch, &scores, programs->scores, call);
    launch_buffer(&launch, call->workspace.buffer);
    launch_struct(&launch, &area, sizeof area);
    return enqueue(&launch, call, query_rows(call->problem), sequence);
}

static clattn_status enqueue_special(const struct unfused_call *call, struct program *program,
                                     struct sequence *sequence) {
    const struct gemm_view view = gemm_view_of(&call->o);
    const struct area area = area_of(call, &call->v, VALUES);
    struct launch launch;
    begin(&launch, &special, program, call);
    launch_buffer(&launch, call->o.memory.as.buffer);
    launch_struct(&launch, &view, sizeof view);
    launch_buffer(&launch, call->workspace.buffer);
    launch_struct(&launch, &area, sizeof area);
    return enqueue(&launch, call, query_rows(call->problem), sequence);
}

static clattn_status enqueue_unpack(const struct unfused_call *call, struct program *program,
                                    struct sequence *sequence) {
    const struct area area = area_of(call, &call->o, VALUES);
    int64_t batches = 0;
    struct launch launch;
    const int64_t rows = attention_call_blocks(call->op, call->problem, 1, &batches);
    begin(&launch, &unpack, program, call);
    launch_buffer(&launch, call->workspace.buffer);
    launch_buffer(&launch, call->workspace.buffer);
    launch_struct(&launch, &area, sizeof area);
    launch_long(&launch, call->lse.offset);
    return enqueue(&launch, call, batches * call->problem->heads * rows, sequence);
}

clattn_status unfused_rows_after(const struct unfused_call *call, const struct unfused_programs *programs,
                                 struct sequence *sequence) {
    if (call->needs.finite_v)
        FORWARD(enqueue_special(call, programs->special, sequence));
    return call->needs.unpacks ? enqueue_unpack(call, programs->unpack, sequence) : CLATTN_SUCCESS;
}
