/* The front-end of attention's gradients: the checks of the public struct, which holds that of the forward call. */
#include "attention.h"
#include "attention_gradients.h"
#include "attention_modifiers.h"
#include "context.h"
#include "operation.h"
#include "quantization.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

#define ROW_ALIGN 16

enum { BATCH, HEAD, ROW, COLUMN };

void clattn_attention_backward_init(clattn_attention_backward_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_ATTENTION_BACKWARD;
    clattn_attention_init(&op->attention);
}

clattn_status clattn_attention_backward(clattn_context *context, const clattn_attention_backward_op *op,
                                        const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_ATTENTION_BACKWARD, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* What the forward call takes and gradients do not. */
static clattn_status check_forward(clattn_context *context, const clattn_attention_op *op) {
    FORWARD(check_op(context, &op->head, CLATTN_OP_ATTENTION, sizeof *op));
    RETURN_IF(tensor_is_present(&op->page_table), CLATTN_UNSUPPORTED,
              "page_table: pages may be shared, and there are no gradients of keys in pages");
    RETURN_IF(!tensor_is_present(&op->lse), CLATTN_INVALID_ARGUMENT, "lse: absent; the forward call must write it");
    RETURN_IF(quantization_is_of(&op->k), CLATTN_UNSUPPORTED, "k: %s, there are no gradients of quantised keys",
              tensor_dtype_name(op->k.dtype));
    RETURN_IF(quantization_is_of(&op->v), CLATTN_UNSUPPORTED, "v: %s, there are no gradients of quantised values",
              tensor_dtype_name(op->v.dtype));
    return attention_check(context, op, CHECK_INPUT);
}

/* A tensor of the dims of another; dense: the innermost stride is 1. */
static clattn_status check_like(clattn_context *context, const char *name, const clattn_tensor *tensor,
                                enum check_access access, unsigned dtypes, const char *like_name,
                                const clattn_tensor *like, bool dense) {
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_rank(name, tensor, like->rank));
    FORWARD(check_dtype(name, tensor, dtypes));
    for (int d = 0; d < like->rank; d++)
        FORWARD(check_dim(name, tensor, d, like->dims[d], like_name));
    return dense ? check_innermost_dense(name, tensor) : CLATTN_SUCCESS;
}

static clattn_status check_incoming(clattn_context *context, const clattn_attention_backward_op *op) {
    const clattn_attention_op *forward = &op->attention;
    FORWARD(check_like(context, "dout", &op->dout, CHECK_INPUT, 1u << forward->q.dtype, "o's", &forward->o, true));
    if (!tensor_is_present(&op->dlse))
        return CLATTN_SUCCESS;
    return check_like(context, "dlse", &op->dlse, CHECK_INPUT, 1u << CLATTN_F32, "lse's", &forward->lse, false);
}

/* *out: the dtype of those that are present, which is one. */
static clattn_status check_operands(clattn_context *context, const clattn_attention_backward_op *op,
                                    clattn_dtype *out) {
    const clattn_attention_op *forward = &op->attention;
    const struct {
        const char *name, *like_name;
        const clattn_tensor *tensor, *like;
    } outputs[] = {
        {"dq", "q's", &op->dq, &forward->q}, {"dk", "k's", &op->dk, &forward->k}, {"dv", "v's", &op->dv, &forward->v}};
    unsigned dtypes = 1u << forward->q.dtype | 1u << CLATTN_F32;
    *out = forward->q.dtype;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        if (!tensor_is_present(outputs[i].tensor))
            continue;
        FORWARD(check_like(context, outputs[i].name, outputs[i].tensor, CHECK_OUTPUT, dtypes, outputs[i].like_name,
                           outputs[i].like, true));
        *out = outputs[i].tensor->dtype;
        dtypes = 1u << *out;
    }
    return CLATTN_SUCCESS;
}

static clattn_status check_modifiers(clattn_context *context, const clattn_attention_backward_op *op) {
    const clattn_attention_op *forward = &op->attention;
    if (tensor_is_present(&op->dbias)) {
        RETURN_IF(!tensor_is_present(&forward->bias), CLATTN_INVALID_ARGUMENT, "dbias: there is no bias");
        FORWARD(check_like(context, "dbias", &op->dbias, CHECK_OUTPUT, 1u << forward->bias.dtype, "bias's",
                           &forward->bias, false));
    }
    if (!tensor_is_present(&op->dsinks))
        return CLATTN_SUCCESS;
    RETURN_IF(!tensor_is_present(&forward->sinks), CLATTN_INVALID_ARGUMENT, "dsinks: there are no sinks");
    return check_like(context, "dsinks", &op->dsinks, CHECK_OUTPUT, 1u << CLATTN_F32, "sinks's", &forward->sinks, true);
}

static clattn_status check_overlap(const clattn_attention_backward_op *op) {
    const clattn_attention_op *forward = &op->attention;
    const struct check_named tensors[] = {{"dq", &op->dq},
                                          {"dk", &op->dk},
                                          {"dv", &op->dv},
                                          {"dbias", &op->dbias},
                                          {"dsinks", &op->dsinks},
                                          {"q", &forward->q},
                                          {"k", &forward->k},
                                          {"v", &forward->v},
                                          {"o", &forward->o},
                                          {"lse", &forward->lse},
                                          {"dout", &op->dout},
                                          {"dlse", &op->dlse},
                                          {"mask", &forward->mask},
                                          {"bias", &forward->bias},
                                          {"alibi", &forward->alibi},
                                          {"sinks", &forward->sinks},
                                          {"q_lengths", &forward->q_lengths},
                                          {"k_lengths", &forward->k_lengths},
                                          {"q_offsets", &forward->q_offsets},
                                          {"k_offsets", &forward->k_offsets}};
    return check_all_disjoint(tensors, 5, sizeof tensors / sizeof *tensors);
}

void attention_gradients_describe(const clattn_attention_backward_op *op, clattn_dtype out, struct problem *problem) {
    attention_describe(&op->attention, problem);
    problem->out_dtype = out;
    problem->aligned = problem->aligned && check_aligned(&op->dout, ROW_ALIGN);
}

static bool is_empty(const clattn_tensor *tensor) {
    return !tensor_is_present(tensor) || check_product(tensor->dims, tensor->rank) == 0;
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_attention_backward_op *op = (const clattn_attention_backward_op *)head;
    clattn_dtype out;
    FORWARD(check_forward(context, &op->attention));
    FORWARD(check_incoming(context, op));
    FORWARD(check_operands(context, op, &out));
    FORWARD(check_modifiers(context, op));
    FORWARD(check_overlap(op));
    attention_gradients_describe(op, out, problem);
    *empty =
        is_empty(&op->dq) && is_empty(&op->dk) && is_empty(&op->dv) && is_empty(&op->dbias) && is_empty(&op->dsinks);
    return CLATTN_SUCCESS;
}

/* ---- the operation ----------------------------------------------------------------------------------------------- */

static int64_t tuning_size(const struct problem *problem) {
    return problem->head_dim > problem->value_dim ? problem->head_dim : problem->value_dim;
}

static clattn_status plan(clattn_context *context, const clattn_op *op, const struct problem *problem,
                          bool run_selftest, struct choice *choice) {
    (void)context;
    (void)run_selftest;
    return attention_gradients_plan((const clattn_attention_backward_op *)op, problem, choice);
}

static clattn_status workspace(clattn_context *context, const clattn_op *op, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    (void)context;
    return attention_gradients_workspace((const clattn_attention_backward_op *)op, problem, choice, bytes);
}

static clattn_status prepare(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice) {
    return attention_gradients_prepare(context, (const clattn_attention_backward_op *)op, problem, choice);
}

static clattn_status enqueue(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    return attention_gradients_enqueue(context, (const clattn_attention_backward_op *)op, problem, choice, launch);
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    int rows = 0, columns = 0;
    attention_gradients_blocks(problem, choice, &rows, &columns);
    attention_name("attention_backward", problem, choice->variant->backend, rows, columns, name, size);
}

const struct operation operation_attention_backward = {
    .kind = CLATTN_OP_ATTENTION_BACKWARD,
    .minimum_size = sizeof(clattn_attention_backward_op),
    .check = check,
    .tuning_size = tuning_size,
    .plan = plan,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};
