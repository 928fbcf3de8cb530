/* Attention's front-end: the checks of the public struct, and the way to the schedule that was chosen. */
#include "attention.h"
#include "attention_call.h"
#include "attention_modifiers.h"
#include "context.h"
#include "operation.h"
#include "quantization.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define MAX_HEAD_DIM 576
#define MAX_VALUE_DIM 512
#define ROW_ALIGN 16

enum { BATCH, HEAD, ROW, COLUMN };

void clattn_attention_init(clattn_attention_op *op) {
    *op = (clattn_attention_op){.head = {sizeof *op, CLATTN_OP_ATTENTION}, .window_left = -1, .window_right = -1};
}

float attention_scale(const clattn_attention_op *op) {
    return op->has_scale ? op->scale : (float)(1.0 / sqrt((double)op->q.dims[COLUMN]));
}

int64_t attention_diagonal(const clattn_attention_op *op) {
    const int64_t far = INT64_C(1) << 40;
    if (op->has_diagonal)
        return op->diagonal < -far ? -far : op->diagonal > far ? far : op->diagonal;
    return op->causal == CLATTN_CAUSAL_TOP_LEFT ? 0 : attention_longest_k(op) - attention_longest_q(op);
}

static clattn_status check_settings(const clattn_attention_op *op) {
    RETURN_IF((int)op->causal < CLATTN_CAUSAL_NONE || op->causal > CLATTN_CAUSAL_TOP_LEFT, CLATTN_INVALID_ARGUMENT,
              "causal: %d is unknown", (int)op->causal);
    RETURN_IF(op->has_scale && !isfinite(op->scale), CLATTN_INVALID_ARGUMENT, "scale: %f is not finite",
              (double)op->scale);
    return attention_modifiers_check_settings(op);
}

static clattn_status check_one(clattn_context *context, const char *name, const clattn_tensor *tensor,
                               enum check_access access, unsigned dtypes) {
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_rank(name, tensor, 4));
    FORWARD(check_dtype(name, tensor, dtypes));
    return check_innermost_dense(name, tensor);
}

static clattn_status check_lse(clattn_context *context, const clattn_attention_op *op, enum check_access access) {
    if (op->lse.memory.kind == CLATTN_MEMORY_NONE)
        return CLATTN_SUCCESS;
    FORWARD(check_tensor(context, "lse", &op->lse, access));
    FORWARD(check_rank("lse", &op->lse, 3));
    FORWARD(check_dtype("lse", &op->lse, 1u << CLATTN_F32));
    FORWARD(check_dim("lse", &op->lse, BATCH, op->q.dims[BATCH], "q's batch"));
    FORWARD(check_dim("lse", &op->lse, HEAD, op->q.dims[HEAD], "q's heads"));
    return check_dim("lse", &op->lse, ROW, op->q.dims[ROW], "q's length");
}

static clattn_status check_tensors(clattn_context *context, const clattn_attention_op *op, enum check_access results) {
    const unsigned any = 1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16;
    FORWARD(check_one(context, "q", &op->q, CHECK_INPUT, any));
    const unsigned same = 1u << op->q.dtype;
    FORWARD(check_one(context, "k", &op->k, CHECK_INPUT, same | QUANTIZATION_DTYPES));
    FORWARD(check_one(context, "v", &op->v, CHECK_INPUT, same | QUANTIZATION_DTYPES));
    FORWARD(check_one(context, "o", &op->o, results, same | 1u << CLATTN_F32));
    return CLATTN_SUCCESS;
}

static clattn_status check_shapes(const clattn_attention_op *op) {
    const int64_t *q = op->q.dims, *k = op->k.dims, *v = op->v.dims;
    FORWARD(check_dim("v", &op->v, BATCH, k[BATCH], "k's batch"));
    FORWARD(check_dim("o", &op->o, BATCH, q[BATCH], "q's batch"));
    RETURN_IF(k[HEAD] == 0 && q[HEAD] > 0, CLATTN_INVALID_ARGUMENT, "k: dims[1] = 0 heads, q has %" PRId64, q[HEAD]);
    RETURN_IF(k[HEAD] > 0 && q[HEAD] % k[HEAD] != 0, CLATTN_INVALID_ARGUMENT,
              "q: dims[1] = %" PRId64 " heads, no multiple of k's %" PRId64, q[HEAD], k[HEAD]);
    FORWARD(check_dim("v", &op->v, HEAD, k[HEAD], "k's heads"));
    FORWARD(check_dim("o", &op->o, HEAD, q[HEAD], "q's heads"));
    FORWARD(check_dim("v", &op->v, ROW, k[ROW], "k's length"));
    FORWARD(check_dim("o", &op->o, ROW, q[ROW], "q's length"));
    RETURN_IF(q[COLUMN] == 0, CLATTN_INVALID_ARGUMENT, "q: dims[3] = 0, the head dim must be at least 1");
    FORWARD(check_dim("k", &op->k, COLUMN, q[COLUMN], "q's head dim"));
    return check_dim("o", &op->o, COLUMN, v[COLUMN], "v's head dim");
}

static clattn_status check_quantization(clattn_context *context, const clattn_attention_op *op) {
    const struct quantized k = {"k", "k", &op->k, &op->k_quantization}, v = {"v", "v", &op->v, &op->v_quantization};
    FORWARD(quantization_check(context, &k, CHECK_INPUT));
    return quantization_check(context, &v, CHECK_INPUT);
}

static clattn_status check_limits(const clattn_attention_op *op) {
    const int64_t head_dim = op->q.dims[COLUMN], value_dim = op->v.dims[COLUMN];
    RETURN_IF(head_dim > MAX_HEAD_DIM, CLATTN_UNSUPPORTED, "q: head dim %" PRId64 " is above %d", head_dim,
              MAX_HEAD_DIM);
    RETURN_IF(value_dim > MAX_VALUE_DIM, CLATTN_UNSUPPORTED, "v: head dim %" PRId64 " is above %d", value_dim,
              MAX_VALUE_DIM);
    RETURN_IF(op->q.dims[ROW] > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED, "q: length %" PRId64 " is above %" PRId64,
              op->q.dims[ROW], ATTENTION_MAX_LENGTH);
    RETURN_IF(op->k.dims[ROW] > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED, "k: length %" PRId64 " is above %" PRId64,
              op->k.dims[ROW], ATTENTION_MAX_LENGTH);
    RETURN_IF(attention_longest_k(op) > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED,
              "page_table: %" PRId64 " keys in a sequence are more than %" PRId64, attention_longest_k(op),
              ATTENTION_MAX_LENGTH);
    RETURN_IF(attention_query_sequences(op) > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED,
              "q: %" PRId64 " sequences are more than %" PRId64, attention_query_sequences(op), ATTENTION_MAX_LENGTH);
    return CLATTN_SUCCESS;
}

static clattn_status check_overlap(const clattn_attention_op *op) {
    const clattn_tensor k = quantization_extent(&op->k, &op->k_quantization);
    const clattn_tensor v = quantization_extent(&op->v, &op->v_quantization);
    const struct check_named tensors[] = {{"lse", &op->lse},
                                          {"o", &op->o},
                                          {"q", &op->q},
                                          {"k", &k},
                                          {"v", &v},
                                          {"mask", &op->mask},
                                          {"bias", &op->bias},
                                          {"alibi", &op->alibi},
                                          {"sinks", &op->sinks},
                                          {"q_lengths", &op->q_lengths},
                                          {"k_lengths", &op->k_lengths},
                                          {"q_offsets", &op->q_offsets},
                                          {"k_offsets", &op->k_offsets},
                                          {"page_table", &op->page_table},
                                          {"k_quantization.scales", &op->k_quantization.scales},
                                          {"k_quantization.zeros", &op->k_quantization.zeros},
                                          {"v_quantization.scales", &op->v_quantization.scales},
                                          {"v_quantization.zeros", &op->v_quantization.zeros}};
    return check_all_disjoint(tensors, 2, sizeof tensors / sizeof *tensors);
}

/* Is v the first columns of k, in the same memory? */
static bool is_in_k(const clattn_attention_op *op) {
    const clattn_tensor *k = &op->k, *v = &op->v;
    bool same = k->memory.kind == CLATTN_MEMORY_BUFFER && v->memory.kind == CLATTN_MEMORY_BUFFER &&
                k->memory.as.buffer == v->memory.as.buffer && k->offset == v->offset && k->dtype == v->dtype &&
                v->dims[COLUMN] <= k->dims[COLUMN] && !quantization_is_of(k);
    for (int dim = BATCH; dim <= ROW; dim++)
        same = same && attention_stride(k, dim) == attention_stride(v, dim);
    return same;
}

void attention_describe(const clattn_attention_op *op, struct problem *problem) {
    problem->dtype = op->q.dtype;
    problem->out_dtype = op->o.dtype;
    problem->batch = attention_query_sequences(op);
    problem->heads = op->q.dims[HEAD];
    problem->kv_heads = op->k.dims[HEAD];
    problem->q_rows = op->q.dims[ROW];
    problem->k_rows = op->k.dims[ROW];
    problem->nq = attention_longest_q(op);
    problem->nk = attention_longest_k(op);
    problem->head_dim = op->q.dims[COLUMN];
    problem->value_dim = op->v.dims[COLUMN];
    problem->causal = op->causal != CLATTN_CAUSAL_NONE;
    problem->windowed = op->window_left >= 0 || op->window_right >= 0;
    problem->page_size = tensor_is_present(&op->page_table) ? op->k.dims[ROW] : 0;
    problem->modifiers = attention_modifiers_of(op);
    problem->bias_dtype = tensor_is_present(&op->bias) ? op->bias.dtype : (clattn_dtype)0;
    problem->writes_lse = tensor_is_present(&op->lse);
    problem->k_stored = quantization_stored(&op->k, &op->k_quantization);
    problem->v_stored = quantization_stored(&op->v, &op->v_quantization);
    problem->aligned = check_aligned(&op->q, ROW_ALIGN) &&
                       (quantization_is_of(&op->k) || check_aligned(&op->k, ROW_ALIGN)) &&
                       (quantization_is_of(&op->v) || check_aligned(&op->v, ROW_ALIGN));
    problem->v_in_k = is_in_k(op);
    attention_pipelined_survey(op, problem);
}

clattn_status attention_check(clattn_context *context, const clattn_attention_op *op, enum check_access results) {
    FORWARD(check_settings(op));
    FORWARD(check_tensors(context, op, results));
    FORWARD(attention_modifiers_check_sequences(context, op));
    FORWARD(check_shapes(op));
    FORWARD(check_quantization(context, op));
    FORWARD(check_lse(context, op, results));
    FORWARD(attention_modifiers_check(context, op));
    return check_limits(op);
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_attention_op *op = (const clattn_attention_op *)head;
    FORWARD(attention_check(context, op, CHECK_OUTPUT));
    FORWARD(check_overlap(op));
    attention_describe(op, problem);
    *empty = problem->batch == 0 || problem->heads == 0 || problem->q_rows == 0 ||
             (problem->value_dim == 0 && !problem->writes_lse);
    return CLATTN_SUCCESS;
}

static int64_t tuning_size(const struct problem *problem) {
    return problem->head_dim > problem->value_dim ? problem->head_dim : problem->value_dim;
}

static clattn_status plan(clattn_context *context, const clattn_op *head, const struct problem *problem,
                          bool run_selftest, struct choice *choice) {
    const clattn_attention_op *op = (const clattn_attention_op *)head;
    switch (choice->variant->schedule) {
    case SCHEDULE_PIPELINED:
        return attention_pipelined_plan(op, problem, choice);
    case SCHEDULE_UNFUSED:
        return attention_unfused_plan(context, op, problem, run_selftest, choice);
    case SCHEDULE_DECODE:
        return attention_decode_plan(context, op, problem, choice);
    default:
        return attention_forward_plan(context, op, problem, choice);
    }
}

static clattn_status workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    const clattn_attention_op *op = (const clattn_attention_op *)head;
    (void)context;
    switch (choice->variant->schedule) {
    case SCHEDULE_PIPELINED:
        return attention_pipelined_workspace(op, problem, choice, bytes);
    case SCHEDULE_UNFUSED:
        return attention_unfused_workspace(op, problem, choice, bytes);
    case SCHEDULE_DECODE:
        return attention_decode_workspace(op, problem, choice, bytes);
    default:
        return attention_forward_workspace(op, problem, choice, bytes);
    }
}

static clattn_status prepare(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice) {
    switch (choice->variant->schedule) {
    case SCHEDULE_PIPELINED:
        return attention_pipelined_prepare(context, problem, choice);
    case SCHEDULE_UNFUSED:
        return attention_unfused_prepare(context, (const clattn_attention_op *)op, problem, choice);
    case SCHEDULE_DECODE:
        return attention_decode_prepare(context, problem, choice);
    default:
        return attention_forward_prepare(context, problem, choice);
    }
}

static clattn_status enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    const clattn_attention_op *op = (const clattn_attention_op *)head;
    switch (choice->variant->schedule) {
    case SCHEDULE_PIPELINED:
        return attention_pipelined_enqueue(context, op, problem, choice, launch);
    case SCHEDULE_UNFUSED:
        return attention_unfused_enqueue(context, op, problem, choice, launch);
    case SCHEDULE_DECODE:
        return attention_decode_enqueue(context, op, problem, choice, launch);
    default:
        return attention_forward_enqueue(context, op, problem, choice, launch);
    }
}

/* Queries and keys of a block; false where a schedule has none. */
static bool find_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys) {
    switch (choice->variant->schedule) {
    case SCHEDULE_PIPELINED:
        attention_pipelined_blocks(choice, queries, keys);
        return true;
    case SCHEDULE_UNFUSED:
        return false;
    case SCHEDULE_DECODE:
        attention_decode_blocks(problem, choice, queries, keys);
        return true;
    default:
        attention_forward_blocks(problem, choice, queries, keys);
        return true;
    }
}

static const char *schedule_name(enum schedule schedule) {
    switch (schedule) {
    case SCHEDULE_UNFUSED:
        return "attention_unfused";
    case SCHEDULE_TWO_PASS:
        return "attention_two_pass";
    case SCHEDULE_DECODE:
        return "attention_decode";
    default:
        return "attention_forward";
    }
}

/* A causal limit is named by itself; a window makes the same program. */
static const struct {
    unsigned modifier;
    const char *name;
} modifier_names[] = {{MODIFIER_MASK, "mask"},           {MODIFIER_BIAS, "bias"},   {MODIFIER_ALIBI, "alibi"},
                      {MODIFIER_SEQUENCES, "sequences"}, {MODIFIER_PAGED, "paged"}, {MODIFIER_SOFTCAP, "softcap"},
                      {MODIFIER_SINKS, "sinks"}};

static const char *band_name(const struct problem *problem) {
    if (problem->causal)
        return "_causal";
    return (problem->modifiers & MODIFIER_BAND) != 0 ? "_window" : "";
}

/* "_ki8" */
static int describe_stored(const struct stored *stored, char tensor, char *name, size_t size, int used) {
    if (stored->dtype == 0 || used < 0 || (size_t)used >= size)
        return 0;
    return snprintf(name + used, size - (size_t)used, "_%c%s", tensor, tensor_dtype_name((clattn_dtype)stored->dtype));
}

/* "attention_forward_f16_d128_causal_mask"; returns its length. */
static size_t name_problem(const char *start, const struct problem *problem, char *name, size_t size) {
    char dims[32];
    snprintf(dims, sizeof dims, problem->value_dim == problem->head_dim ? "d%d" : "d%dv%d", (int)problem->head_dim,
             (int)problem->value_dim);
    int used = snprintf(name, size, "%s_%s_%s%s", start, tensor_dtype_name(problem->dtype), dims, band_name(problem));
    for (size_t i = 0; i < sizeof modifier_names / sizeof *modifier_names && used >= 0 && (size_t)used < size; i++)
        if ((problem->modifiers & modifier_names[i].modifier) != 0)
            used += snprintf(name + used, size - (size_t)used, "_%s", modifier_names[i].name);
    used += describe_stored(&problem->k_stored, 'k', name, size, used);
    used += describe_stored(&problem->v_stored, 'v', name, size, used);
    return used < 0 || (size_t)used > size ? size : (size_t)used;
}

void attention_name(const char *start, const struct problem *problem, enum backend backend, int rows, int columns,
                    char *name, size_t size) {
    const size_t used = name_problem(start, problem, name, size);
    if (used < size)
        snprintf(name + used, size - used, "__%s_%dx%d", variant_backend_name(backend), rows, columns);
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    const char *start = schedule_name(choice->variant->schedule);
    int queries = 0, keys = 0;
    if (find_blocks(problem, choice, &queries, &keys))
        attention_name(start, problem, choice->variant->backend, queries, keys, name, size);
    else
        name_problem(start, problem, name, size);
}

const struct operation operation_attention = {
    .kind = CLATTN_OP_ATTENTION,
    .minimum_size = sizeof(clattn_attention_op),
    .check = check,
    .tuning_size = tuning_size,
    .plan = plan,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};

clattn_status clattn_attention(clattn_context *context, const clattn_attention_op *op, const clattn_launch *launch) {
    return operation_run(context, op == NULL ? NULL : &op->head, CLATTN_OP_ATTENTION, launch);
}
