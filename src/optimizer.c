/* AdamW and SGD: launches over the list, then one that counts the step. What differs between the two is their views,
 * settings and kernel. */
#include "list.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"

#include <clattn/training.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void clattn_adamw_init(clattn_adamw_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_ADAMW;
    op->lr = 1e-3f;
    op->beta1 = 0.9f;
    op->beta2 = 0.999f;
    op->eps = 1e-8f;
    op->weight_decay = 0.01f;
}

clattn_status clattn_adamw(clattn_context *context, const clattn_adamw_op *op, const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_ADAMW, launch);
}

void clattn_sgd_init(clattn_sgd_op *op) {
    memset(op, 0, sizeof *op);
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_SGD;
    op->lr = 1e-3f;
}

clattn_status clattn_sgd(clattn_context *context, const clattn_sgd_op *op, const clattn_launch *launch) {
    return operation_run(context, op != NULL ? &op->head : NULL, CLATTN_OP_SGD, launch);
}

/* ---- the two as one ---------------------------------------------------------------------------------------------- */

static const clattn_optimizer_list *given_of(const clattn_op *head) {
    return head->kind == CLATTN_OP_ADAMW ? &((const clattn_adamw_op *)head)->list
                                         : &((const clattn_sgd_op *)head)->list;
}

#define MASTER(member, array) \
    { .name = member, .tensors = (array), .dtypes = 1u << CLATTN_F32, .written = true }

static void list_of(const clattn_op *head, struct list *list) {
    const clattn_optimizer_list *given = given_of(head);
    *list = (struct list){.count = given->count,
                          .views = 3,
                          .view = {MASTER("param", given->param),
                                   {.name = "grad", .tensors = given->grad, .dtypes = LIST_FLOATS},
                                   {.name = "copy",
                                    .tensors = given->copy,
                                    .dtypes = 1u << CLATTN_F16 | 1u << CLATTN_BF16,
                                    .written = true,
                                    .optional = true}}};
    if (head->kind == CLATTN_OP_ADAMW) {
        const clattn_adamw_op *op = (const clattn_adamw_op *)head;
        list->view[list->views++] = (struct list_view)MASTER("m", op->m);
        list->view[list->views++] = (struct list_view)MASTER("v", op->v);
    } else if (((const clattn_sgd_op *)head)->momentum != 0) {
        list->view[list->views++] = (struct list_view)MASTER("velocity", ((const clattn_sgd_op *)head)->velocity);
    } else {
        list->view[list->views++] = (struct list_view){.name = "velocity", .optional = true};
    }
}

/* Mirrors struct optimizer of cl/optimizer.clh. */
struct optimizer {
    int64_t overflow_at, scale_at, rate_at, steps_at;
    float lr, weight_decay, setting[8];
};

static float rest_of_one(float part) {
    return (float)(1 - (double)part);
}

static struct optimizer settings_of(const clattn_op *head) {
    const clattn_optimizer_list *given = given_of(head);
    struct optimizer settings = {.overflow_at = given->overflow.offset,
                                 .scale_at = given->scale.offset,
                                 .rate_at = given->rate.offset,
                                 .steps_at = given->steps.offset};
    if (head->kind == CLATTN_OP_ADAMW) {
        const clattn_adamw_op *op = (const clattn_adamw_op *)head;
        const float own[] = {op->beta1,
                             op->beta2,
                             rest_of_one(op->beta1),
                             rest_of_one(op->beta2),
                             (float)log((double)op->beta1),
                             (float)log((double)op->beta2),
                             op->eps};
        settings.lr = op->lr;
        settings.weight_decay = op->weight_decay;
        memcpy(settings.setting, own, sizeof own);
    } else {
        const clattn_sgd_op *op = (const clattn_sgd_op *)head;
        settings.lr = op->lr;
        settings.weight_decay = op->weight_decay;
        settings.setting[0] = op->momentum;
        settings.setting[1] = rest_of_one(op->dampening);
    }
    return settings;
}

static void put_arguments(struct launch *launch, const clattn_op *head) {
    const clattn_optimizer_list *given = given_of(head);
    const struct optimizer settings = settings_of(head);
    launch_buffer(launch, list_buffer(&given->overflow));
    launch_buffer(launch, list_buffer(&given->scale));
    launch_buffer(launch, list_buffer(&given->rate));
    launch_buffer(launch, list_buffer(&given->steps));
    launch_struct(launch, &settings, sizeof settings);
}

static struct list_kernel kernel_of(const clattn_op *head) {
    struct list_kernel kernel = {
        .dtypes = {NULL, "GRAD_DTYPE", "COPY_DTYPE"}, .packets = 2, .arguments = put_arguments};
    if (head->kind == CLATTN_OP_ADAMW) {
        kernel.file = "adamw.cl";
        kernel.kernel = "adamw";
    } else {
        kernel.file = "sgd.cl";
        kernel.kernel = "sgd";
        kernel.dtypes[3] = "VELOCITY_DTYPE";
        kernel.macros[0] = "NESTEROV";
        kernel.values[0] = ((const clattn_sgd_op *)head)->nesterov != 0;
    }
    return kernel;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_finite(const char *name, float value) {
    RETURN_IF(!isfinite(value), CLATTN_INVALID_ARGUMENT, "%s = %g is not finite", name, (double)value);
    return CLATTN_SUCCESS;
}

static clattn_status check_adamw(const clattn_adamw_op *op) {
    FORWARD(check_finite("lr", op->lr));
    FORWARD(check_finite("weight_decay", op->weight_decay));
    RETURN_IF(!(op->beta1 >= 0 && op->beta1 < 1), CLATTN_INVALID_ARGUMENT, "beta1 = %g is not in [0, 1)",
              (double)op->beta1);
    RETURN_IF(!(op->beta2 >= 0 && op->beta2 < 1), CLATTN_INVALID_ARGUMENT, "beta2 = %g is not in [0, 1)",
              (double)op->beta2);
    RETURN_IF(!isfinite(op->eps) || op->eps < 0, CLATTN_INVALID_ARGUMENT, "eps = %g is not finite, or below 0",
              (double)op->eps);
    return CLATTN_SUCCESS;
}

static clattn_status check_sgd(const clattn_sgd_op *op) {
    FORWARD(check_finite("lr", op->lr));
    FORWARD(check_finite("weight_decay", op->weight_decay));
    FORWARD(check_finite("momentum", op->momentum));
    FORWARD(check_finite("dampening", op->dampening));
    RETURN_IF(op->nesterov != 0 && (op->momentum == 0 || op->dampening != 0), CLATTN_INVALID_ARGUMENT,
              "nesterov with momentum = %g and dampening = %g; it needs momentum, and no dampening",
              (double)op->momentum, (double)op->dampening);
    RETURN_IF(op->momentum == 0 && op->velocity != NULL, CLATTN_INVALID_ARGUMENT,
              "velocity is given, and momentum = 0");
    return CLATTN_SUCCESS;
}

static clattn_status check_scalars(clattn_context *context, const clattn_optimizer_list *given, bool needs_steps) {
    if (tensor_is_present(&given->overflow))
        FORWARD(check_scalar(context, "overflow", &given->overflow, CLATTN_I32, CHECK_INPUT));
    if (tensor_is_present(&given->scale))
        FORWARD(check_scalar(context, "scale", &given->scale, CLATTN_F32, CHECK_INPUT));
    if (tensor_is_present(&given->rate))
        FORWARD(check_scalar(context, "rate", &given->rate, CLATTN_F32, CHECK_INPUT));
    if (needs_steps || tensor_is_present(&given->steps))
        FORWARD(check_scalar(context, "steps", &given->steps, CLATTN_I32, CHECK_OUTPUT));
    return CLATTN_SUCCESS;
}

static clattn_status optimizer_check(clattn_context *context, const clattn_op *head, struct problem *problem,
                                     bool *empty) {
    const clattn_optimizer_list *given = given_of(head);
    const bool adamw = head->kind == CLATTN_OP_ADAMW;
    const struct check_named scalars[] = {
        {"steps", &given->steps}, {"overflow", &given->overflow}, {"scale", &given->scale}, {"rate", &given->rate}};
    struct list list;
    FORWARD(adamw ? check_adamw((const clattn_adamw_op *)head) : check_sgd((const clattn_sgd_op *)head));
    list_of(head, &list);
    *problem = (struct problem){.op = head->kind, .out_dtype = CLATTN_F32, .rows = given->count};
    FORWARD(list_check(context, &list, &problem->columns));
    FORWARD(check_scalars(context, given, adamw));
    FORWARD(list_check_apart(&list, scalars, 1, 4));
    problem->dtype = given->count > 0 ? given->grad[0].dtype : CLATTN_F32;
    *empty = problem->columns == 0 && !tensor_is_present(&given->steps);
    return CLATTN_SUCCESS;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static const struct program_key count_key = {"optimizer_count.cl", "optimizer_count", ""};

static clattn_status optimizer_prepare(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                       const struct choice *choice) {
    const struct list_kernel kernel = kernel_of(head);
    struct program *program;
    struct list list;
    (void)problem;
    list_of(head, &list);
    if (tensor_is_present(&given_of(head)->steps))
        FORWARD(program_get(context, &count_key, &program));
    return list_prepare(context, &list, &kernel, choice);
}

static clattn_status enqueue_count(const clattn_optimizer_list *given, struct program *program,
                                   struct sequence *sequence) {
    const size_t one = 1;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, list_buffer(&given->steps));
    launch_buffer(&launch, list_buffer(&given->overflow));
    launch_long(&launch, given->steps.offset);
    launch_long(&launch, given->overflow.offset);
    return launch_enqueue(&launch, sequence, 1, &one, &one);
}

static clattn_status optimizer_enqueue(clattn_context *context, const clattn_op *head, const struct problem *problem,
                                       const struct choice *choice, const clattn_launch *launch) {
    const clattn_optimizer_list *given = given_of(head);
    const bool counts = tensor_is_present(&given->steps);
    const struct list_kernel kernel = kernel_of(head);
    struct program *program = NULL;
    struct list list;
    struct list_plan plan;
    struct sequence sequence;
    (void)problem;
    list_of(head, &list);
    if (counts)
        FORWARD(program_get(context, &count_key, &program));
    clattn_status status = list_plan_make(context, &list, &kernel, choice, &plan);
    if (status != CLATTN_SUCCESS)
        goto out;
    sequence_begin(&sequence, context, launch, plan.launches + counts);
    status = list_plan_enqueue(&plan, head, &sequence);
    if (status == CLATTN_SUCCESS && counts)
        status = enqueue_count(given, program, &sequence);
    sequence_end(&sequence);
out:
    list_plan_free(&plan);
    return status;
}

static void optimizer_describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    snprintf(name, size, "%s_%s__%s", variant_op_name(problem->op), tensor_dtype_name(problem->dtype),
             choice->variant->name);
}

const struct operation operation_adamw = {
    .kind = CLATTN_OP_ADAMW,
    .minimum_size = sizeof(clattn_adamw_op),
    .check = optimizer_check,
    .tuning_size = list_tuning_size,
    .plan = list_operation_plan,
    .workspace = list_workspace,
    .prepare = optimizer_prepare,
    .enqueue = optimizer_enqueue,
    .describe = optimizer_describe,
};

const struct operation operation_sgd = {
    .kind = CLATTN_OP_SGD,
    .minimum_size = sizeof(clattn_sgd_op),
    .check = optimizer_check,
    .tuning_size = list_tuning_size,
    .plan = list_operation_plan,
    .workspace = list_workspace,
    .prepare = optimizer_prepare,
    .enqueue = optimizer_enqueue,
    .describe = optimizer_describe,
};
