/* The softmax family as jobs: one kind per function, as the command names them. */
#include "command.h"
#include "job.h"

#include <math.h>
#include <reference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    (void)settings;
    if (shape->count < 1 || shape->count > CLATTN_MAX_RANK)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    return job_add_random(job, "x", shape, (int)shape->count, shape->dims);
}

static int add_outputs(struct job *job, struct settings *settings, int axis) {
    enum element out = ELEMENT_F32;
    const struct array *x = &job_find(job, "x")->host;
    int64_t dims[CLATTN_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    if (job->kind->variety == CLATTN_LOG_SUM_EXP || job->kind->variety == CLATTN_SOFTMAX_STATE)
        dims[axis] = 1;
    if (job->kind->variety == CLATTN_SOFTMAX_STATE) {
        FORWARD(job_add_output(job, "m", ELEMENT_F32, x->rank, dims));
        return job_add_output(job, "l", ELEMENT_F32, x->rank, dims);
    }
    FORWARD(job_take_out_element(job, settings, "x", &out));
    return job_add_output(job, "y", out, x->rank, dims);
}

static int axis_of(const clattn_softmax_op *op, int rank) {
    return op->axis < 0 ? op->axis + rank : op->axis;
}

static int arrange(struct job *job, struct settings *settings) {
    FORWARD(job_require(job, "x", 0));
    clattn_softmax_op *op = &job->op.softmax;
    clattn_softmax_init(op);
    op->function = (clattn_softmax_function)job->kind->variety;
    const int rank = job_find(job, "x")->host.rank;
    int64_t axis = op->axis;
    int empty_rows = job_find(job, "mask") ? 1 : 0;
    FORWARD(settings_integer(settings, "axis", &axis, NULL));
    if (axis < -rank || axis >= rank)
        return complain(EXIT_USAGE, "axis=%lld, x has %d dimensions", (long long)axis, rank);
    op->axis = (int32_t)axis;
    FORWARD(settings_choice(settings, "empty_rows", "nan zero", &empty_rows));
    FORWARD(settings_real(settings, "scale", &op->scale, NULL));
    op->empty_rows = (clattn_empty_rows)empty_rows;
    return add_outputs(job, settings, axis_of(op, rank));
}

static void bind(struct job *job) {
    job->op.softmax.x = job_view(job, "x");
    job->op.softmax.mask = job_view(job, "mask");
    job->op.softmax.bias = job_view(job, "bias");
    job->op.softmax.y = job_view(job, "y");
    job->op.softmax.m = job_view(job, "m");
    job->op.softmax.l = job_view(job, "l");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_softmax(context, (const clattn_softmax_op *)op, launch);
}

static struct job_rows rows(const struct job *job) {
    const clattn_softmax_op *op = &job->op.softmax;
    const int axis = axis_of(op, op->x.rank);
    const int64_t columns = op->x.dims[axis];
    struct job_rows shape = {.count = 1, .inner = 1, .cost = 3 * (double)columns, .size = (double)columns};
    for (int d = 0; d < op->x.rank; d++)
        shape.count *= d == axis ? 1 : op->x.dims[d];
    for (int d = axis + 1; d < op->x.rank; d++)
        shape.inner *= op->x.dims[d];
    const bool whole = op->function == CLATTN_SOFTMAX || op->function == CLATTN_LOG_SOFTMAX;
    shape.widths[0] = whole ? columns : 1;
    shape.widths[1] = op->function == CLATTN_SOFTMAX_STATE;
    return shape;
}

/* Element `index` of x in a tensor of its dims or 1. */
static double repeated(const struct job_tensor *tensor, const clattn_tensor *x, int64_t index) {
    int64_t at = 0, stride = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        at += tensor->view.dims[d] == 1 ? 0 : index % x->dims[d] * stride;
        index /= x->dims[d];
        stride *= tensor->view.dims[d];
    }
    return job_value(tensor, &tensor->host, at);
}

/* What is normalised. */
static double modified(const struct job *job, int64_t index, double x) {
    const clattn_softmax_op *op = &job->op.softmax;
    const struct job_tensor *mask = job_find(job, "mask"), *bias = job_find(job, "bias");
    if (mask && repeated(mask, &op->x, index) == 0)
        return -INFINITY;
    return (double)op->scale * x + (bias ? repeated(bias, &op->x, index) : 0);
}

/* A row along any axis, out of its place among `inner` interleaved ones. */
static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const clattn_softmax_op *op = &job->op.softmax;
    const struct job_rows shape = rows(job);
    const int64_t columns = op->x.dims[axis_of(op, op->x.rank)], block = columns * shape.inner;
    const double *x = job_slice(cache, 0, job_find(job, "x"), row / shape.inner * block, block);
    double *line = malloc((size_t)(columns + 1) * sizeof *line);
    for (int64_t c = 0; x && line && c < columns; c++)
        line[c] = modified(job, row / shape.inner * block + c * shape.inner + row % shape.inner,
                           x[c * shape.inner + row % shape.inner]);
    if (x && line) {
        const clattn_dtype out = op->function == CLATTN_SOFTMAX_STATE ? CLATTN_F32 : op->y.dtype;
        reference_softmax_row(op->function, op->empty_rows, columns, line, want, want + 1);
        plain_softmax_row(op->function, out, columns, line, plain, plain + 1);
    }
    free(line);
    return x && line;
}

static double flops(const struct job *job) {
    const struct job_rows shape = rows(job);
    return 4 * (double)shape.count * shape.size;
}

static void describe(const struct job *job, char *text, size_t size) {
    const clattn_softmax_op *op = &job->op.softmax;
    int used = 0;
    for (int d = 0; d < op->x.rank; d++)
        used += snprintf(text + used, size - (size_t)used, d ? ",%lld" : "%lld", (long long)op->x.dims[d]);
    if (axis_of(op, op->x.rank) != op->x.rank - 1)
        snprintf(text + used, size - (size_t)used, " axis=%d", (int)op->axis);
}

#define SOFTMAX_KIND(kind_name, function)                                                                         \
    {                                                                                                             \
        .name = kind_name, .shape = "D0[,D1[,D2[,D3]]]", .op = CLATTN_OP_SOFTMAX, .variety = function,            \
        .memory_bound = true, .generate = generate, .arrange = arrange, .bind = bind, .call = call, .rows = rows, \
        .reference = reference, .flops = flops, .describe = describe                                              \
    }

const struct job_kind job_softmax = SOFTMAX_KIND("softmax", CLATTN_SOFTMAX);
const struct job_kind job_log_softmax = SOFTMAX_KIND("log_softmax", CLATTN_LOG_SOFTMAX);
const struct job_kind job_logsumexp = SOFTMAX_KIND("logsumexp", CLATTN_LOG_SUM_EXP);
const struct job_kind job_softmax_state = SOFTMAX_KIND("softmax_state", CLATTN_SOFTMAX_STATE);
