/* Rotation of queries and keys and the append to a cache: check, choose a program, launch. */
#include "rope_kv.h"
#include "context.h"
#include "launch.h"
#include "operation.h"
#include "quantization.h"
#include "rows.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

void clattn_rope_append_init(clattn_rope_append_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_ROPE_APPEND;
    op->rotary_dim = -1;
    op->rope_base = 10000;
    op->frequency_scale = 1;
}

clattn_status clattn_rope_append(clattn_context *context, const clattn_rope_append_op *op,
                                 const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_ROPE_APPEND, launch);
}

static bool all_aligned(const clattn_rope_append_op *op) {
    const clattn_tensor *const tensors[] = {&op->q, &op->q_out, &op->k, &op->v, &op->k_cache, &op->v_cache};
    bool aligned = true;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        aligned = aligned &&
                  (!tensor_is_present(tensors[i]) || quantization_is_of(tensors[i]) || check_aligned(tensors[i], 16));
    return aligned;
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_rope_append_op *op = (const clattn_rope_append_op *)head;
    FORWARD(rope_kv_check(context, op));
    const struct rope_shape shape = rope_kv_shape(op);
    const bool with_q = tensor_is_present(&op->q), with_k = tensor_is_present(&op->k);
    problem->dtype = with_q ? op->q.dtype : with_k ? op->k.dtype : op->v.dtype;
    problem->out_dtype = with_k ? op->k_cache.dtype : with_q ? op->q_out.dtype : op->v_cache.dtype;
    problem->batch = shape.batches;
    problem->heads = shape.heads;
    problem->kv_heads = shape.kv_heads;
    problem->nq = shape.rows;
    problem->head_dim = shape.head_dim;
    problem->value_dim = shape.value_dim;
    problem->aligned = all_aligned(op);
    problem->k_stored = quantization_stored(&op->k_cache, &op->k_quantization);
    problem->v_stored = quantization_stored(&op->v_cache, &op->v_quantization);
    const bool columns =
        (shape.heads > 0 && shape.head_dim > 0) || (shape.kv_heads > 0 && (shape.head_dim > 0 || shape.value_dim > 0));
    *empty = shape.batches == 0 || shape.sequences == 0 || shape.rows == 0 || !columns;
    return CLATTN_SUCCESS;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static const char file[] = "rope_kv.cl", kernel[] = "rope_append";

/* All that a program depends on; compared byte by byte. */
struct kind {
    const char *file;
    int32_t dtypes[8]; /* in the order of `names` */
    int32_t interleaved, vector, aligned, group;
    int32_t half_type, unroll;
    struct stored k, v;
};

static const char *const names[] = {"Q", "Q_OUT", "K", "V", "K_CACHE", "V_CACHE", "COS", "SIN"};

/* Packets divide half of what turns, so that none turns in part. */
static int32_t vector_of(const struct kind *kind, int64_t rotary_dim) {
    bool narrow = false;
    for (int i = 0; i < 6; i++)
        narrow = narrow || kind->dtypes[i] == CLATTN_F16 || kind->dtypes[i] == CLATTN_BF16;
    const int64_t pairs = rotary_dim / 2;
    return narrow && pairs % 8 == 0 ? 8 : pairs % 4 == 0 ? 4 : 1;
}

static int32_t group_of(const struct device_facts *facts) {
    const int32_t most = (facts->caps & CAP_BIT(CAP_CPU)) != 0 ? 16 : 128;
    const uint32_t limit = facts->max_group < facts->max_item[0] ? facts->max_group : facts->max_item[0];
    int32_t group = 1;
    while (group < most && 2 * (uint32_t)group <= limit)
        group *= 2;
    return group;
}

static struct kind kind_of(const clattn_rope_append_op *op, const struct rope_shape *shape,
                           const struct problem *problem, const struct device_facts *facts) {
    const clattn_tensor *const tensors[] = {&op->q,       &op->q_out,   &op->k,   &op->v,
                                            &op->k_cache, &op->v_cache, &op->cos, &op->sin};
    struct kind kind;
    memset(&kind, 0, sizeof kind);
    kind.file = file;
    for (int i = 0; i < 8; i++)
        kind.dtypes[i] = rows_dtype(tensors[i]);
    kind.interleaved = op->style == CLATTN_ROPE_INTERLEAVED && shape->rotary_dim > 0;
    kind.vector = vector_of(&kind, shape->rotary_dim);
    kind.aligned = problem->aligned && kind.vector > 1;
    kind.group = group_of(facts);
    kind.half_type = (facts->caps & CAP_BIT(CAP_HALF_TYPE)) != 0;
    kind.unroll = (facts->caps & CAP_BIT(CAP_CPU)) == 0;
    kind.k = problem->k_stored;
    kind.v = problem->v_stored;
    return kind;
}

static int add_stored(char *text, size_t size, const char *name, const struct stored *stored) {
    return snprintf(text, size, "-D%s_BLOCK=%d -D%s_NIBBLES=%d -D%s_ZEROS=%d -D%s_ALIGNMENT=%d ", name, stored->block,
                    name, stored->nibbles, name, stored->zeros, name, stored->alignment > 0 ? stored->alignment : 1);
}

static clattn_status get_program(clattn_context *context, const struct kind *kind, struct program **program) {
    char options[512];
    size_t used = 0;
    if (memo_find(&context->memo, kind, sizeof *kind, program, sizeof *program))
        return CLATTN_SUCCESS;
    for (int i = 0; i < 8; i++)
        used += (size_t)snprintf(options + used, sizeof options - used, "-D%s_DTYPE=%d ", names[i], kind->dtypes[i]);
    used += (size_t)add_stored(options + used, sizeof options - used, "K", &kind->k);
    used += (size_t)add_stored(options + used, sizeof options - used, "V", &kind->v);
    snprintf(options + used, sizeof options - used,
             "-DINTERLEAVED=%d -DVECTOR=%d -DALIGNED=%d -DGROUP=%d -DUNROLL=%d%s", kind->interleaved, kind->vector,
             kind->aligned, kind->group, kind->unroll, kind->half_type ? " -DHALF_TYPE" : "");
    const struct program_key key = {file, kernel, options};
    FORWARD(program_get(context, &key, program));
    memo_keep(&context->memo, kind, sizeof *kind, program, sizeof *program);
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

struct job {
    struct rope_shape shape;
    struct kind kind;
    struct program *program;
};

static clattn_status make_job(clattn_context *context, const clattn_op *head, const struct problem *problem,
                              const struct choice *choice, struct job *job) {
    const clattn_rope_append_op *op = (const clattn_rope_append_op *)head;
    job->shape = rope_kv_shape(op);
    job->kind = kind_of(op, &job->shape, problem, &choice->facts);
    return get_program(context, &job->kind, &job->program);
}

static clattn_status prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice) {
    struct job job;
    return make_job(context, head, problem, choice, &job);
}

static size_t head_groups(const clattn_tensor *tensor, int64_t heads, int64_t together) {
    return tensor_is_present(tensor) ? (size_t)((heads + together - 1) / together) : 0;
}

static clattn_status launch_job(const clattn_rope_append_op *op, const struct job *job, const struct choice *choice,
                                struct sequence *sequence) {
    const struct rope_call call = rope_kv_call(op, &job->shape, job->kind.vector, &choice->facts);
    const bool caches = tensor_is_present(&op->k) || tensor_is_present(&op->v);
    const clattn_tensor *const tensors[] = {&op->q,
                                            &op->q_out,
                                            &op->k,
                                            &op->v,
                                            &op->k_cache,
                                            &op->v_cache,
                                            &op->k_quantization.scales,
                                            &op->k_quantization.zeros,
                                            &op->v_quantization.scales,
                                            &op->v_quantization.zeros,
                                            &op->cos,
                                            &op->sin,
                                            &op->page_table,
                                            &op->k_lengths,
                                            &op->q_lengths,
                                            &op->q_offsets,
                                            &op->positions,
                                            &op->position_offsets};
    const size_t local[2] = {(size_t)job->kind.group, 1};
    const size_t groups[2] = {((size_t)(call.tokens * call.units) + local[0] - 1) / local[0],
                              head_groups(&op->q, call.heads, call.heads_together) +
                                  head_groups(&op->k, call.kv_heads, call.heads_together) +
                                  head_groups(&op->v, call.kv_heads, call.heads_together)};
    struct launch launch;
    launch_begin(&launch, job->program);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        launch_buffer(&launch, tensors[i] == &op->page_table && !caches ? NULL : rows_buffer(tensors[i]));
    launch_struct(&launch, &call, sizeof call);
    return launch_enqueue(&launch, sequence, 2, groups, local);
}

static clattn_status enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    struct job job;
    struct sequence sequence;
    FORWARD(make_job(context, head, problem, choice, &job));
    sequence_begin(&sequence, context, launch, 1);
    const clattn_status status = launch_job((const clattn_rope_append_op *)head, &job, choice, &sequence);
    sequence_end(&sequence);
    return status;
}

static int64_t tuning_size(const struct problem *problem) {
    return problem->head_dim;
}

static clattn_status workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    const long long columns =
        (long long)(problem->head_dim > problem->value_dim ? problem->head_dim : problem->value_dim);
    snprintf(name, size, "rope_append_%s_%s_d%lld__%s", tensor_dtype_name(problem->dtype),
             tensor_dtype_name(problem->out_dtype), columns, choice->variant->name);
}

const struct operation operation_rope_append = {
    .kind = CLATTN_OP_ROPE_APPEND,
    .minimum_size = sizeof(clattn_rope_append_op),
    .check = check,
    .tuning_size = tuning_size,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};
