/* The calls that are the same for every operation: check, choose, plan, launch. What differs is data (struct
 * operation). */
#include "operation.h"
#include "check.h"
#include "context.h"
#include "launch.h"
#include "log.h"
#include "status.h"

#include <clattn/variants.h>
#include <stdio.h>
#include <string.h>

const struct operation *operation_of(clattn_op_kind kind) {
    switch (kind) {
    case CLATTN_OP_ATTENTION:
        return &operation_attention;
    case CLATTN_OP_ATTENTION_BACKWARD:
        return &operation_attention_backward;
    case CLATTN_OP_ATTENTION_MERGE:
        return &operation_attention_merge;
    case CLATTN_OP_SOFTMAX:
        return &operation_softmax;
    case CLATTN_OP_SOFTMAX_MERGE:
        return &operation_softmax_merge;
    case CLATTN_OP_GEMM:
        return &operation_gemm;
    case CLATTN_OP_NORM:
        return &operation_norm;
    case CLATTN_OP_NORM_BACKWARD:
        return &operation_norm_backward;
    case CLATTN_OP_SOFTMAX_BACKWARD:
        return &operation_softmax_backward;
    case CLATTN_OP_SOFTMAX_TOPK:
        return &operation_softmax_topk;
    case CLATTN_OP_ROPE_APPEND:
        return &operation_rope_append;
    case CLATTN_OP_CAST:
        return &operation_cast;
    case CLATTN_OP_UNSCALE:
        return &operation_unscale;
    case CLATTN_OP_LOSS_SCALE:
        return &operation_loss_scale;
    case CLATTN_OP_ADAMW:
        return &operation_adamw;
    case CLATTN_OP_SGD:
        return &operation_sgd;
    case CLATTN_OP_ATTENTION_CASCADE:
        return &operation_attention_cascade;
    default:
        return NULL;
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A checked call on its way. */
struct call {
    const struct operation *operation;
    const clattn_op *op;
    struct problem problem;
    struct choice choice;
    bool empty;
};

static clattn_status check_launch_size(const clattn_launch *launch) {
    RETURN_IF(launch->size < sizeof *launch, CLATTN_INVALID_ARGUMENT,
              "launch: size is %zu; was clattn_launch_init() called?", launch->size);
    return CLATTN_SUCCESS;
}

/* kind: what the caller's function is for; 0 where it takes every operation. */
static clattn_status check(clattn_context *context, const clattn_op *op, clattn_op_kind kind, struct call *call) {
    RETURN_IF(op == NULL, CLATTN_INVALID_ARGUMENT, "op is NULL");
    call->operation = operation_of(kind != 0 ? kind : op->kind);
    RETURN_IF(call->operation == NULL, CLATTN_INVALID_ARGUMENT, "op: kind %d is unknown", (int)op->kind);
    FORWARD(check_op(context, op, call->operation->kind, call->operation->minimum_size));
    call->op = op;
    memset(&call->problem, 0, sizeof call->problem);
    call->problem.op = call->operation->kind;
    call->empty = false;
    return call->operation->check(context, op, &call->problem, &call->empty);
}

static clattn_status plan(clattn_context *context, const struct operation *operation, const clattn_op *op,
                          const struct problem *problem, bool run_selftest, struct choice *choice) {
    return operation->plan != NULL ? operation->plan(context, op, problem, run_selftest, choice) : CLATTN_SUCCESS;
}

clattn_status operation_choose(clattn_context *context, const struct operation *operation, const clattn_op *op,
                               const struct problem *problem, const clattn_launch *launch, bool run_selftest,
                               struct choice *choice) {
    const int64_t size = operation->tuning_size(problem);
    FORWARD(choice_make(context, problem, launch, size, run_selftest, choice));
    const clattn_status status = plan(context, operation, op, problem, run_selftest, choice);
    if (status != CLATTN_UNSUPPORTED || !choice->preferred)
        return status;
    FORWARD(choice_make_unpreferred(context, problem, launch, size, run_selftest, choice));
    return plan(context, operation, op, problem, run_selftest, choice);
}

/* Whatever a call would be refused for, but for its queue, events and workspace, is refused at the end of this. */
static clattn_status choose(clattn_context *context, const clattn_launch *launch, bool run_selftest,
                            struct call *call) {
    return operation_choose(context, call->operation, call->op, &call->problem, launch, run_selftest, &call->choice);
}

/* Without self-tests. */
static clattn_status check_and_choose(clattn_context *context, const clattn_op *op, const clattn_launch *launch,
                                      struct call *call) {
    if (launch != NULL)
        FORWARD(check_launch_size(launch));
    FORWARD(check(context, op, (clattn_op_kind)0, call));
    return call->empty ? CLATTN_SUCCESS : choose(context, launch, false, call);
}

static void log_call(const clattn_context *context, const struct call *call) {
    char name[128], parameters[256];
    if (context->log.level < CLATTN_LOG_DEBUG)
        return;
    call->operation->describe(&call->problem, &call->choice, name, sizeof name);
    parameters_print(&call->choice.parameters, parameters, sizeof parameters);
    log_write(&context->log, CLATTN_LOG_DEBUG, "%s (%s; %s)", name, parameters,
              tuning_source_name(call->choice.source));
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static clattn_status check_room(clattn_context *context, const clattn_launch *launch, const struct call *call) {
    size_t bytes = 0;
    FORWARD(call->operation->workspace(context, call->op, &call->problem, &call->choice, &bytes));
    return bytes > 0 ? check_launch(context, launch, bytes) : CLATTN_SUCCESS;
}

clattn_status operation_run(clattn_context *context, const clattn_op *op, clattn_op_kind kind,
                            const clattn_launch *launch) {
    struct call call;
    FORWARD(check(context, op, kind, &call));
    FORWARD(check_launch(context, launch, 0));
    if (call.empty)
        return sequence_empty(context, launch);
    FORWARD(choose(context, launch, false, &call));
    FORWARD(check_room(context, launch, &call));
    /* Self-tests build and run kernels: what is refused without them has been refused by now. */
    if (call.choice.untested) {
        FORWARD(choose(context, launch, true, &call));
        FORWARD(check_room(context, launch, &call));
    }
    log_call(context, &call);
    return call.operation->enqueue(context, op, &call.problem, &call.choice, launch);
}

clattn_status clattn_supported(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    struct call call;
    return check_and_choose(context, op, launch, &call);
}

clattn_status clattn_workspace_size(clattn_context *context, const clattn_op *op, const clattn_launch *launch,
                                    size_t *bytes) {
    struct call call;
    RETURN_IF(bytes == NULL, CLATTN_INVALID_ARGUMENT, "bytes is NULL");
    *bytes = 0;
    FORWARD(check_and_choose(context, op, launch, &call));
    return call.empty ? CLATTN_SUCCESS : call.operation->workspace(context, op, &call.problem, &call.choice, bytes);
}

clattn_status clattn_prepare(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    struct call call;
    FORWARD(check_and_choose(context, op, launch, &call));
    if (!call.empty && call.choice.untested)
        FORWARD(choose(context, launch, true, &call));
    return call.empty ? CLATTN_SUCCESS : call.operation->prepare(context, op, &call.problem, &call.choice);
}

clattn_status clattn_enqueue(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return operation_run(context, op, (clattn_op_kind)0, launch);
}

/* ---- looking behind the choice ----------------------------------------------------------------------------------- */

size_t clattn_variant_count(clattn_op_kind kind) {
    size_t count = 0, of_kind = 0;
    const struct variant *table = variant_table(&count);
    for (size_t i = 0; i < count; i++)
        of_kind += table[i].op == kind;
    return of_kind;
}

const char *clattn_variant_name(clattn_op_kind kind, size_t index) {
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    for (size_t i = 0; i < count; i++)
        if (table[i].op == kind && index-- == 0)
            return table[i].name;
    return NULL;
}

/* The reason is of the facts alone, or why the variant's plan is refused. */
static clattn_status ask(clattn_context *context, const struct variant *variant, struct call *call, char *reason,
                         size_t reason_size) {
    const struct device_facts facts = selftest_facts(context);
    const char *refusal = variant_refusal(variant, &facts, &call->problem);
    if (refusal == NULL) {
        const clattn_launch launch = {.size = sizeof launch, .variant = variant->name};
        const clattn_status status = choose(context, &launch, false, call);
        if (status != CLATTN_UNSUPPORTED)
            return status;
        refusal = clattn_last_error();
    }
    snprintf(reason, reason_size, "%s", refusal);
    return CLATTN_SUCCESS;
}

clattn_status clattn_variant_question(clattn_context *context, const clattn_op *op, const char *variant, char *reason,
                                      size_t reason_size) {
    struct call call;
    RETURN_IF(variant == NULL, CLATTN_INVALID_ARGUMENT, "variant is NULL");
    RETURN_IF(reason == NULL || reason_size == 0, CLATTN_INVALID_ARGUMENT, "reason is NULL or of size 0");
    reason[0] = '\0';
    FORWARD(check(context, op, (clattn_op_kind)0, &call));
    const struct variant *row = NULL;
    FORWARD(choice_find(call.problem.op, variant, &row));
    return call.empty ? CLATTN_SUCCESS : ask(context, row, &call, reason, reason_size);
}

clattn_status clattn_variant_choose(clattn_context *context, const clattn_op *op, const clattn_launch *launch,
                                    clattn_choice *choice) {
    struct call call;
    clattn_choice filled = {0};
    RETURN_IF(choice == NULL, CLATTN_INVALID_ARGUMENT, "choice is NULL");
    RETURN_IF(choice->size < sizeof choice->size, CLATTN_INVALID_ARGUMENT, "choice: size is %zu, not set",
              choice->size);
    filled.size = choice->size;
    FORWARD(check_and_choose(context, op, launch, &call));
    if (!call.empty) {
        const char *source = call.choice.overridden ? "call" : tuning_source_name(call.choice.source);
        snprintf(filled.variant, sizeof filled.variant, "%s", call.choice.variant->name);
        snprintf(filled.source, sizeof filled.source, "%s", source);
        call.operation->describe(&call.problem, &call.choice, filled.name, sizeof filled.name);
        parameters_print(&call.choice.parameters, filled.parameters, sizeof filled.parameters);
        filled.tuning_size = call.operation->tuning_size(&call.problem);
    }
    memcpy(choice, &filled, filled.size < sizeof filled ? filled.size : sizeof filled);
    return CLATTN_SUCCESS;
}
