/* Softmax's largest elements as a job. */
#include "command.h"
#include "job.h"

#include <reference.h>
#include <stdio.h>
#include <string.h>

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    (void)settings;
    if (shape->count < 1 || shape->count > CLATTN_MAX_RANK)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    return job_add_random(job, "x", shape, (int)shape->count, shape->dims);
}

/* Along the last dim. */
static int arrange(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    int64_t k = 5;
    int empty_rows = 0;
    FORWARD(job_require(job, "x", 0));
    FORWARD(settings_integer(settings, "k", &k, NULL));
    FORWARD(settings_choice(settings, "empty_rows", "nan zero", &empty_rows));
    FORWARD(job_take_out_element(job, settings, "x", &out));
    const struct array *x = &job_find(job, "x")->host;
    int64_t dims[CLATTN_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    if (k < 1 || k > 128 || k > dims[x->rank - 1])
        return complain(EXIT_USAGE, "k=%lld is not in 1..128, or more than the columns", (long long)k);
    clattn_softmax_topk_op *op = &job->op.softmax_topk;
    clattn_softmax_topk_init(op);
    op->k = (int32_t)k;
    op->empty_rows = (clattn_empty_rows)empty_rows;
    const int rank = x->rank;
    dims[rank - 1] = k;
    FORWARD(job_add_output(job, "values", out, rank, dims));
    FORWARD(job_add_output(job, "indices", ELEMENT_I32, rank, dims));
    dims[rank - 1] = 1;
    return job_add_output(job, "lse", ELEMENT_F32, rank, dims);
}

static void bind(struct job *job) {
    job->op.softmax_topk.x = job_view(job, "x");
    job->op.softmax_topk.values = job_view(job, "values");
    job->op.softmax_topk.indices = job_view(job, "indices");
    job->op.softmax_topk.lse = job_view(job, "lse");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_softmax_topk(context, (const clattn_softmax_topk_op *)op, launch);
}

static struct job_rows rows(const struct job *job) {
    const clattn_softmax_topk_op *op = &job->op.softmax_topk;
    const int64_t columns = op->x.dims[op->x.rank - 1];
    struct job_rows shape = {.count = 1, .inner = 1, .cost = (3.0 + op->k) * (double)columns, .size = (double)columns};
    for (int d = 0; d < op->x.rank - 1; d++)
        shape.count *= op->x.dims[d];
    shape.widths[0] = shape.widths[1] = op->k;
    shape.widths[2] = 1;
    return shape;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const clattn_softmax_topk_op *op = &job->op.softmax_topk;
    const int64_t columns = op->x.dims[op->x.rank - 1], k = op->k;
    const double *x = job_slice(cache, 0, job_find(job, "x"), row * columns, columns);
    if (!x)
        return false;
    reference_softmax_topk_row(op->empty_rows, columns, op->k, x, want, want + k, want + 2 * k);
    plain_softmax_topk_row(op->values.dtype, columns, op->k, x, want + k, plain, plain + 2 * k);
    memcpy(plain + k, want + k, (size_t)k * sizeof *plain);
    return true;
}

static double flops(const struct job *job) {
    const struct job_rows shape = rows(job);
    return 4 * (double)shape.count * shape.size;
}

static void describe(const struct job *job, char *text, size_t size) {
    const clattn_softmax_topk_op *op = &job->op.softmax_topk;
    int used = 0;
    for (int d = 0; d < op->x.rank; d++)
        used += snprintf(text + used, size - (size_t)used, d ? ",%lld" : "%lld", (long long)op->x.dims[d]);
    snprintf(text + used, size - (size_t)used, " k=%d", (int)op->k);
}

const struct job_kind job_softmax_topk = {.name = "softmax_topk",
                                          .shape = "[D0[,D1[,D2]],]COLUMNS",
                                          .op = CLATTN_OP_SOFTMAX_TOPK,
                                          .memory_bound = true,
                                          .generate = generate,
                                          .arrange = arrange,
                                          .bind = bind,
                                          .call = call,
                                          .rows = rows,
                                          .reference = reference,
                                          .flops = flops,
                                          .describe = describe};
