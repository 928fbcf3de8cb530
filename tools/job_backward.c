/* Gradients of softmax and the norms as jobs. The oracle covers dx; dweight and dbias, which are sums over all rows,
 * are the tests' business. */
#include "command.h"
#include "job.h"

#include <reference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t last_dim(const struct job *job, const char *name) {
    const struct array *array = &job_find(job, name)->host;
    return array->dims[array->rank - 1];
}

static int check_shape(const struct job *job, const struct job_shape *shape) {
    if (shape->count < 1 || shape->count > CLATTN_MAX_RANK)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    return EXIT_OK;
}

/* The rows along the last dim of the tensor that gives the shape. */
static struct job_rows rows_like(const clattn_tensor *tensor) {
    const int64_t columns = tensor->dims[tensor->rank - 1];
    struct job_rows shape = {.count = 1, .inner = 1, .cost = 4 * (double)columns, .size = (double)columns};
    for (int d = 0; d < tensor->rank - 1; d++)
        shape.count *= tensor->dims[d];
    shape.widths[0] = columns;
    return shape;
}

static void describe_dims(const clattn_tensor *tensor, char *text, size_t size) {
    int used = 0;
    for (int d = 0; d < tensor->rank; d++)
        used += snprintf(text + used, size - (size_t)used, d ? ",%lld" : "%lld", (long long)tensor->dims[d]);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static int norm_generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    int32_t with_residual = 0;
    FORWARD(check_shape(job, shape));
    FORWARD(settings_flag(settings, "residual", &with_residual));
    FORWARD(job_add_random(job, "x", shape, (int)shape->count, shape->dims));
    FORWARD(job_add_random(job, "dy", shape, (int)shape->count, shape->dims));
    FORWARD(job_add_random(job, "weight", shape, 1, &shape->dims[shape->count - 1]));
    return with_residual ? job_add_random(job, "dsum", shape, (int)shape->count, shape->dims) : EXIT_OK;
}

static int norm_arrange(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    FORWARD(job_require(job, "x", 0));
    FORWARD(job_require(job, "dy", job_find(job, "x")->host.rank));
    clattn_norm_backward_op *op = &job->op.norm_backward;
    clattn_norm_backward_init(op);
    op->function = (clattn_norm_function)job->kind->variety;
    FORWARD(settings_real(settings, "eps", &op->eps, NULL));
    FORWARD(settings_flag(settings, "one_plus_weight", &op->one_plus_weight));
    FORWARD(job_take_out_element(job, settings, "x", &out));
    const struct array x = job_find(job, "x")->host;
    const int64_t columns = last_dim(job, "x");
    FORWARD(job_add_output(job, "dx", out, x.rank, x.dims));
    if (job_find(job, "weight"))
        FORWARD(job_add_output(job, "dweight", ELEMENT_F32, 1, &columns));
    return op->function == CLATTN_LAYER_NORM ? job_add_output(job, "dbias", ELEMENT_F32, 1, &columns) : EXIT_OK;
}

static void norm_bind(struct job *job) {
    clattn_norm_backward_op *op = &job->op.norm_backward;
    op->x = job_view(job, "x");
    op->weight = job_view(job, "weight");
    op->dy = job_view(job, "dy");
    op->dsum = job_view(job, "dsum");
    op->dx = job_view(job, "dx");
    op->dweight = job_view(job, "dweight");
    op->dbias = job_view(job, "dbias");
}

static clattn_status norm_call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_norm_backward(context, (const clattn_norm_backward_op *)op, launch);
}

static struct job_rows norm_rows(const struct job *job) {
    return rows_like(&job->op.norm_backward.x);
}

static void add_dsum(const struct job *job, struct job_cache *cache, int64_t row, int64_t columns, double *want,
                     double *plain) {
    const struct job_tensor *tensor = job_find(job, "dsum");
    const double *dsum = tensor ? job_slice(cache, 2, tensor, row * columns, columns) : NULL;
    for (int64_t c = 0; dsum && c < columns; c++) {
        want[c] += dsum[c];
        plain[c] = reference_round(job->op.norm_backward.dx.dtype, plain[c] + dsum[c]);
    }
}

static bool norm_reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const clattn_norm_backward_op *op = &job->op.norm_backward;
    const int64_t columns = norm_rows(job).widths[0];
    const struct job_tensor *weight = job_find(job, "weight");
    const struct reference_norm norm = {.function = op->function,
                                        .one_plus_weight = op->one_plus_weight,
                                        .eps = (double)op->eps,
                                        .columns = columns,
                                        .weight = weight ? job_slice(cache, 3, weight, 0, columns) : NULL};
    const double *x = job_slice(cache, 0, job_find(job, "x"), row * columns, columns);
    const double *dy = job_slice(cache, 1, job_find(job, "dy"), row * columns, columns);
    double *sums = calloc((size_t)(2 * columns + 1), sizeof *sums);
    if (x && dy && sums) {
        reference_norm_backward_row(&norm, x, dy, want, sums, sums + columns);
        plain_norm_backward_row(&norm, op->dx.dtype, x, dy, plain, sums, sums + columns);
        add_dsum(job, cache, row, columns, want, plain);
    }
    free(sums);
    return x && dy && sums;
}

static double norm_flops(const struct job *job) {
    const struct job_rows shape = norm_rows(job);
    return 12 * (double)shape.count * shape.size;
}

static void norm_describe(const struct job *job, char *text, size_t size) {
    describe_dims(&job->op.norm_backward.x, text, size);
    if (job_find(job, "dsum"))
        snprintf(text + strlen(text), size - strlen(text), " residual");
}

#define NORM_KIND(kind_name, function)                                                                            \
    {                                                                                                             \
        .name = kind_name, .shape = "[D0[,D1[,D2]],]COLUMNS", .op = CLATTN_OP_NORM_BACKWARD, .variety = function, \
        .memory_bound = true, .generate = norm_generate, .arrange = norm_arrange, .bind = norm_bind,              \
        .call = norm_call, .rows = norm_rows, .reference = norm_reference, .flops = norm_flops,                   \
        .describe = norm_describe                                                                                 \
    }

const struct job_kind job_rms_norm_backward = NORM_KIND("rms_norm_backward", CLATTN_RMS_NORM);
const struct job_kind job_layer_norm_backward = NORM_KIND("layer_norm_backward", CLATTN_LAYER_NORM);

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Any y will do for the formula; that of log-softmax is a logarithm. */
static int softmax_generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    (void)settings;
    FORWARD(check_shape(job, shape));
    FORWARD(job_add_random(job, "y", shape, (int)shape->count, shape->dims));
    struct array *y = &job_find(job, "y")->host;
    for (size_t i = 0; i < y->count && !shape->blank; i++) {
        const double value = array_get(y, i), size = value < 0 ? -value : value;
        array_set(y, i, job->kind->variety == CLATTN_LOG_SOFTMAX ? -size - 1 : size / (double)last_dim(job, "y"));
    }
    return job_add_random(job, "dy", shape, (int)shape->count, shape->dims);
}

static int softmax_arrange(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    FORWARD(job_require(job, "y", 0));
    FORWARD(job_require(job, "dy", job_find(job, "y")->host.rank));
    clattn_softmax_backward_op *op = &job->op.softmax_backward;
    clattn_softmax_backward_init(op);
    op->function = (clattn_softmax_function)job->kind->variety;
    FORWARD(settings_real(settings, "scale", &op->scale, NULL));
    FORWARD(job_take_out_element(job, settings, "y", &out));
    const struct array y = job_find(job, "y")->host;
    return job_add_output(job, "dx", out, y.rank, y.dims);
}

static void softmax_bind(struct job *job) {
    job->op.softmax_backward.y = job_view(job, "y");
    job->op.softmax_backward.dy = job_view(job, "dy");
    job->op.softmax_backward.dx = job_view(job, "dx");
}

static clattn_status softmax_call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_softmax_backward(context, (const clattn_softmax_backward_op *)op, launch);
}

static struct job_rows softmax_rows(const struct job *job) {
    return rows_like(&job->op.softmax_backward.y);
}

static bool softmax_reference(const struct job *job, struct job_cache *cache, int64_t row, double *want,
                              double *plain) {
    const clattn_softmax_backward_op *op = &job->op.softmax_backward;
    const int64_t columns = softmax_rows(job).widths[0];
    const double *y = job_slice(cache, 0, job_find(job, "y"), row * columns, columns);
    const double *dy = job_slice(cache, 1, job_find(job, "dy"), row * columns, columns);
    if (y && dy) {
        reference_softmax_backward_row(op->function, (double)op->scale, columns, y, dy, want);
        plain_softmax_backward_row(op->function, op->dx.dtype, (double)op->scale, columns, y, dy, plain);
    }
    return y && dy;
}

static double softmax_flops(const struct job *job) {
    const struct job_rows shape = softmax_rows(job);
    return 4 * (double)shape.count * shape.size;
}

static void softmax_describe(const struct job *job, char *text, size_t size) {
    describe_dims(&job->op.softmax_backward.y, text, size);
}

#define SOFTMAX_KIND(kind_name, function)                                                                            \
    {                                                                                                                \
        .name = kind_name, .shape = "[D0[,D1[,D2]],]COLUMNS", .op = CLATTN_OP_SOFTMAX_BACKWARD, .variety = function, \
        .memory_bound = true, .generate = softmax_generate, .arrange = softmax_arrange, .bind = softmax_bind,        \
        .call = softmax_call, .rows = softmax_rows, .reference = softmax_reference, .flops = softmax_flops,          \
        .describe = softmax_describe                                                                                 \
    }

const struct job_kind job_softmax_backward = SOFTMAX_KIND("softmax_backward", CLATTN_SOFTMAX);
const struct job_kind job_log_softmax_backward = SOFTMAX_KIND("log_softmax_backward", CLATTN_LOG_SOFTMAX);
