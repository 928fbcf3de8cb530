/* Casts between storage types: a list of one tensor. */
#include "list.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"

#include <clattn/training.h>
#include <stdio.h>
#include <string.h>

void clattn_cast_init(clattn_cast_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_CAST;
}

clattn_status clattn_cast(clattn_context *context, const clattn_cast_op *op, const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_CAST, launch);
}

static void list_of(const clattn_op *head, struct list *list) {
    const clattn_cast_op *op = (const clattn_cast_op *)head;
    *list = (struct list){
        .count = 1,
        .views = 2,
        .single = true,
        .view = {{.name = "x", .tensors = &op->x, .dtypes = LIST_FLOATS},
                 {.name = "y", .tensors = &op->y, .dtypes = LIST_FLOATS, .written = true, .in_place = true}}};
}

static clattn_status cast_check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_cast_op *op = (const clattn_cast_op *)head;
    struct list list;
    list_of(head, &list);
    *problem = (struct problem){.op = CLATTN_OP_CAST, .rows = 1};
    FORWARD(list_check(context, &list, &problem->columns));
    FORWARD(list_check_apart(&list, NULL, 0, 0));
    problem->dtype = op->x.dtype;
    problem->out_dtype = op->y.dtype;
    *empty = problem->columns == 0;
    return CLATTN_SUCCESS;
}

static void no_arguments(struct launch *launch, const clattn_op *op) {
    (void)launch;
    (void)op;
}

static const struct list_kernel kernel = {
    .file = "cast.cl", .kernel = "cast", .dtypes = {"X_DTYPE", "Y_DTYPE"}, .packets = 4, .arguments = no_arguments};

static clattn_status cast_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                  const struct choice *choice) {
    struct list list;
    (void)problem;
    list_of(head, &list);
    return list_prepare(context, &list, &kernel, choice);
}

static clattn_status cast_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                  const struct choice *choice, const clattn_launch *launch) {
    struct list list;
    struct list_plan plan;
    struct sequence sequence;
    (void)problem;
    list_of(head, &list);
    clattn_status status = list_plan_make(context, &list, &kernel, choice, &plan);
    if (status != CLATTN_SUCCESS)
        goto out;
    sequence_begin(&sequence, context, launch, plan.launches);
    status = list_plan_enqueue(&plan, head, &sequence);
    sequence_end(&sequence);
out:
    list_plan_free(&plan);
    return status;
}

static void cast_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "cast_%s_%s__%s", tensor_dtype_name(problem->dtype), tensor_dtype_name(problem->out_dtype),
             choice->variant->name);
}

const struct operation operation_cast = {
    .kind = CLATTN_OP_CAST,
    .minimum_size = sizeof(clattn_cast_op),
    .check = cast_check,
    .tuning_size = list_tuning_size,
    .plan = list_operation_plan,
    .workspace = list_workspace,
    .prepare = cast_prepare,
    .enqueue = cast_enqueue,
    .describe = cast_describe,
};
