/* RMSNorm and LayerNorm as jobs. */
#include "command.h"
#include "job.h"

#include <reference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* x, weight, LayerNorm's bias, and where residual=1 the residual. */
static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    int32_t with_residual = 0;
    if (shape->count < 1 || shape->count > CLATTN_MAX_RANK)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    const int64_t *columns = &shape->dims[shape->count - 1];
    FORWARD(settings_flag(settings, "residual", &with_residual));
    FORWARD(job_add_random(job, "x", shape, (int)shape->count, shape->dims));
    FORWARD(job_add_random(job, "weight", shape, 1, columns));
    if (job->kind->variety == CLATTN_LAYER_NORM)
        FORWARD(job_add_random(job, "bias", shape, 1, columns));
    return with_residual ? job_add_random(job, "residual", shape, (int)shape->count, shape->dims) : EXIT_OK;
}

static int arrange(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    FORWARD(job_require(job, "x", 0));
    clattn_norm_op *op = &job->op.norm;
    clattn_norm_init(op);
    op->function = (clattn_norm_function)job->kind->variety;
    FORWARD(settings_real(settings, "eps", &op->eps, NULL));
    FORWARD(settings_flag(settings, "one_plus_weight", &op->one_plus_weight));
    FORWARD(job_take_out_element(job, settings, "x", &out));
    const struct array x = job_find(job, "x")->host;
    FORWARD(job_add_output(job, "y", out, x.rank, x.dims));
    return job_find(job, "residual") ? job_add_output(job, "sum", out, x.rank, x.dims) : EXIT_OK;
}

static void bind(struct job *job) {
    clattn_norm_op *op = &job->op.norm;
    op->x = job_view(job, "x");
    op->residual = job_view(job, "residual");
    op->weight = job_view(job, "weight");
    op->bias = job_view(job, "bias");
    op->y = job_view(job, "y");
    op->sum = job_view(job, "sum");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_norm(context, (const clattn_norm_op *)op, launch);
}

static struct job_rows rows(const struct job *job) {
    const clattn_tensor *x = &job->op.norm.x;
    const int64_t columns = x->dims[x->rank - 1];
    struct job_rows shape = {.count = 1, .inner = 1, .cost = 3 * (double)columns, .size = (double)columns};
    for (int d = 0; d < x->rank - 1; d++)
        shape.count *= x->dims[d];
    shape.widths[0] = columns;
    shape.widths[1] = job_find(job, "sum") ? columns : 0;
    return shape;
}

static const double *columns_of(struct job_cache *cache, size_t slot, const struct job *job, const char *name,
                                int64_t columns) {
    const struct job_tensor *tensor = job_find(job, name);
    return tensor ? job_slice(cache, slot, tensor, 0, columns) : NULL;
}

static void fill_sum(const struct job *job, const double *v, int64_t columns, double *want, double *plain) {
    for (int64_t c = 0; job_find(job, "sum") && c < columns; c++) {
        want[columns + c] = v[c];
        plain[columns + c] = reference_round(job->op.norm.sum.dtype, v[c]);
    }
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const clattn_norm_op *op = &job->op.norm;
    const int64_t columns = rows(job).widths[0];
    const struct reference_norm norm = {.function = op->function,
                                        .one_plus_weight = op->one_plus_weight,
                                        .eps = (double)op->eps,
                                        .columns = columns,
                                        .weight = columns_of(cache, 2, job, "weight", columns),
                                        .bias = columns_of(cache, 3, job, "bias", columns)};
    const struct job_tensor *residual = job_find(job, "residual");
    const double *x = job_slice(cache, 0, job_find(job, "x"), row * columns, columns);
    const double *r = residual ? job_slice(cache, 1, residual, row * columns, columns) : NULL;
    double *v = malloc((size_t)(columns + 1) * sizeof *v);
    const bool whole = x && v && (r || !residual);
    for (int64_t c = 0; whole && c < columns; c++)
        v[c] = x[c] + (r ? r[c] : 0);
    if (whole) {
        reference_norm_row(&norm, v, want);
        plain_norm_row(&norm, op->y.dtype, v, plain);
        fill_sum(job, v, columns, want, plain);
    }
    free(v);
    return whole;
}

static double flops(const struct job *job) {
    const struct job_rows shape = rows(job);
    return 5 * (double)shape.count * shape.size;
}

static void describe(const struct job *job, char *text, size_t size) {
    const clattn_tensor *x = &job->op.norm.x;
    int used = 0;
    for (int d = 0; d < x->rank; d++)
        used += snprintf(text + used, size - (size_t)used, d ? ",%lld" : "%lld", (long long)x->dims[d]);
    if (job_find(job, "residual"))
        snprintf(text + used, size - (size_t)used, " residual");
}

#define NORM_KIND(kind_name, function)                                                                            \
    {                                                                                                             \
        .name = kind_name, .shape = "[D0[,D1[,D2]],]COLUMNS", .op = CLATTN_OP_NORM, .variety = function,          \
        .memory_bound = true, .generate = generate, .arrange = arrange, .bind = bind, .call = call, .rows = rows, \
        .reference = reference, .flops = flops, .describe = describe                                              \
    }

const struct job_kind job_rms_norm = NORM_KIND("rms_norm", CLATTN_RMS_NORM);
const struct job_kind job_layer_norm = NORM_KIND("layer_norm", CLATTN_LAYER_NORM);
