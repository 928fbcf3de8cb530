/* The dynamic loss scale: one work-item works on its state. */
#include "check.h"
#include "context.h"
#include "launch.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"

#include <clattn/training.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void clattn_loss_scale_init(clattn_loss_scale_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_LOSS_SCALE;
    op->growth_interval = 2000;
    op->initial = 65536;
    op->growth = 2;
    op->backoff = 0.5f;
    op->least = 1;
    op->most = 16777216;
}

clattn_status clattn_loss_scale_update(clattn_context *context, const clattn_loss_scale_op *op,
                                       const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_LOSS_SCALE, launch);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

enum { STATE_WORDS = 4 };

static clattn_status check_settings(const clattn_loss_scale_op *op) {
    RETURN_IF(op->growth_interval < 1, CLATTN_INVALID_ARGUMENT, "growth_interval = %d is below 1",
              (int)op->growth_interval);
    RETURN_IF(!isfinite(op->growth) || op->growth < 1, CLATTN_INVALID_ARGUMENT, "growth = %g is not finite, or below 1",
              (double)op->growth);
    RETURN_IF(!(op->backoff > 0) || op->backoff > 1, CLATTN_INVALID_ARGUMENT, "backoff = %g is not in (0, 1]",
              (double)op->backoff);
    RETURN_IF(!isnormal(op->least) || op->least < 0, CLATTN_INVALID_ARGUMENT, "least = %g is not normal and positive",
              (double)op->least);
    RETURN_IF(!isfinite(op->most) || op->most < op->least, CLATTN_INVALID_ARGUMENT,
              "most = %g is not finite, or below least = %g", (double)op->most, (double)op->least);
    RETURN_IF(!(op->initial >= op->least) || op->initial > op->most, CLATTN_INVALID_ARGUMENT,
              "initial = %g is not in least = %g .. most = %g", (double)op->initial, (double)op->least,
              (double)op->most);
    return CLATTN_SUCCESS;
}

static clattn_status loss_scale_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                      bool *empty) {
    const clattn_loss_scale_op *op = (const clattn_loss_scale_op *)head;
    FORWARD(check_settings(op));
    FORWARD(check_tensor(context, "state", &op->state, CHECK_OUTPUT));
    FORWARD(check_dtype("state", &op->state, 1u << CLATTN_I32));
    FORWARD(check_rank("state", &op->state, 1));
    FORWARD(check_dim("state", &op->state, 0, STATE_WORDS, "words of the state"));
    FORWARD(check_innermost_dense("state", &op->state));
    if (!op->restart || tensor_is_present(&op->overflow))
        FORWARD(check_scalar(context, "overflow", &op->overflow, CLATTN_I32, CHECK_INPUT));
    FORWARD(check_disjoint("state", &op->state, "overflow", &op->overflow));
    *problem = (struct problem){
        .op = CLATTN_OP_LOSS_SCALE, .dtype = CLATTN_F32, .out_dtype = CLATTN_F32, .rows = 1, .columns = 1};
    *empty = false;
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static int64_t loss_scale_tuning_size(const struct problem *problem) {
    return problem->columns;
}

static clattn_status loss_scale_workspace(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                          const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)head;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static const struct program_key key = {"loss_scale.cl", "loss_scale", ""};

static clattn_status loss_scale_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                        const struct choice *choice) {
    struct program *program;
    (void)head;
    (void)problem;
    (void)choice;
    return program_get(context, &key, &program);
}

static clattn_status enqueue(const clattn_loss_scale_op *op, struct program *program, struct sequence *sequence) {
    const size_t one = 1;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, op->state.memory.as.buffer);
    launch_buffer(&launch, tensor_is_present(&op->overflow) ? op->overflow.memory.as.buffer : NULL);
    launch_long(&launch, op->state.offset);
    launch_long(&launch, op->overflow.offset);
    launch_int(&launch, op->restart != 0);
    launch_int(&launch, op->growth_interval);
    launch_float(&launch, op->initial);
    launch_float(&launch, op->growth);
    launch_float(&launch, op->backoff);
    launch_float(&launch, op->least);
    launch_float(&launch, op->most);
    return launch_enqueue(&launch, sequence, 1, &one, &one);
}

static clattn_status loss_scale_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                        const struct choice *choice, const clattn_launch *launch) {
    struct program *program;
    struct sequence sequence;
    (void)problem;
    (void)choice;
    FORWARD(program_get(context, &key, &program));
    sequence_begin(&sequence, context, launch, 1);
    const clattn_status status = enqueue((const clattn_loss_scale_op *)head, program, &sequence);
    sequence_end(&sequence);
    return status;
}

static void loss_scale_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    (void)problem;
    snprintf(name, size, "loss_scale__%s", choice->variant->name);
}

const struct operation operation_loss_scale = {
    .kind = CLATTN_OP_LOSS_SCALE,
    .minimum_size = sizeof(clattn_loss_scale_op),
    .check = loss_scale_check,
    .tuning_size = loss_scale_tuning_size,
    .workspace = loss_scale_workspace,
    .prepare = loss_scale_prepare,
    .enqueue = loss_scale_enqueue,
    .describe = loss_scale_describe,
};
