/* Unscaling of gradients: the flag is cleared by a command of its own, then launches over the list set it. */
#include "list.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"

#include <clattn/training.h>
#include <stdio.h>
#include <string.h>

void clattn_unscale_init(clattn_unscale_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_UNSCALE;
}

clattn_status clattn_unscale(clattn_context *context, const clattn_unscale_op *op, const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_UNSCALE, launch);
}

static void list_of(const clattn_op *head, struct list *list) {
    const clattn_unscale_op *op = (const clattn_unscale_op *)head;
    *list = (struct list){
        .count = op->count,
        .views = 2,
        .view = {{.name = "x", .tensors = op->x, .dtypes = LIST_FLOATS},
                 {.name = "y", .tensors = op->y, .dtypes = LIST_FLOATS, .written = true, .in_place = true}}};
    list->view[1].optional = op->y == NULL;
}

/* An empty list still has its flag cleared. */
static clattn_status unscale_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                   bool *empty) {
    const clattn_unscale_op *op = (const clattn_unscale_op *)head;
    const struct check_named scalars[] = {{"overflow", &op->overflow}, {"scale", &op->scale}};
    struct list list;
    list_of(head, &list);
    *problem = (struct problem){.op = CLATTN_OP_UNSCALE, .rows = op->count};
    FORWARD(list_check(context, &list, &problem->columns));
    FORWARD(check_scalar(context, "scale", &op->scale, CLATTN_F32, CHECK_INPUT));
    FORWARD(check_scalar(context, "overflow", &op->overflow, CLATTN_I32, CHECK_OUTPUT));
    FORWARD(list_check_apart(&list, scalars, 1, 2));
    problem->dtype = op->count > 0 ? op->x[0].dtype : CLATTN_F32;
    problem->out_dtype = op->count > 0 && op->y != NULL ? op->y[0].dtype : problem->dtype;
    *empty = false;
    return CLATTN_SUCCESS;
}

static void put_arguments(struct launch *launch, const clattn_op *head) {
    const clattn_unscale_op *op = (const clattn_unscale_op *)head;
    launch_buffer(launch, list_buffer(&op->scale));
    launch_buffer(launch, list_buffer(&op->overflow));
    launch_long(launch, op->scale.offset);
    launch_long(launch, op->overflow.offset);
}

static const struct list_kernel kernel = {.file = "unscale.cl",
                                          .kernel = "unscale",
                                          .dtypes = {"X_DTYPE", "Y_DTYPE"},
                                          .packets = 4,
                                          .arguments = put_arguments};

static clattn_status unscale_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                     const struct choice *choice) {
    struct list list;
    (void)problem;
    list_of(head, &list);
    return list_prepare(context, &list, &kernel, choice);
}

static clattn_status enqueue_clear(const clattn_tensor *flag, struct sequence *sequence) {
    const cl_int zero = 0;
    cl_uint count = 0;
    const cl_event *list = NULL;
    cl_event *event = NULL;
    sequence_next(sequence, &count, &list, &event);
    const cl_int code = clEnqueueFillBuffer(sequence->launch->queue, flag->memory.as.buffer, &zero, sizeof zero,
                                            (size_t)flag->offset * sizeof zero, sizeof zero, count, list, event);
    return sequence_done(sequence, code, "clEnqueueFillBuffer");
}

static clattn_status unscale_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                     const struct choice *choice, const clattn_launch *launch) {
    struct list list;
    struct list_plan plan;
    struct sequence sequence;
    (void)problem;
    list_of(head, &list);
    clattn_status status = list_plan_make(context, &list, &kernel, choice, &plan);
    if (status != CLATTN_SUCCESS)
        goto out;
    sequence_begin(&sequence, context, launch, 1 + plan.launches);
    status = enqueue_clear(&((const clattn_unscale_op *)head)->overflow, &sequence);
    if (status == CLATTN_SUCCESS)
        status = list_plan_enqueue(&plan, head, &sequence);
    sequence_end(&sequence);
out:
    list_plan_free(&plan);
    return status;
}

static void unscale_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "unscale_%s_%s__%s", tensor_dtype_name(problem->dtype), tensor_dtype_name(problem->out_dtype),
             choice->variant->name);
}

const struct operation operation_unscale = {
    .kind = CLATTN_OP_UNSCALE,
    .minimum_size = sizeof(clattn_unscale_op),
    .check = unscale_check,
    .tuning_size = list_tuning_size,
    .plan = list_operation_plan,
    .workspace = list_workspace,
    .prepare = unscale_prepare,
    .enqueue = unscale_enqueue,
    .describe = unscale_describe,
};
