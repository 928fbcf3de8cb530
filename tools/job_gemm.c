/* The matrix product as a job. */
#include "command.h"
#include "job.h"

#include <reference.h>
#include <stdio.h>
#include <string.h>

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    if (shape->count != 3 && shape->count != 4)
        return complain(EXIT_USAGE, "gemm wants --shape %s", job->kind->shape);
    int32_t transpose_a = 0, transpose_b = 0;
    FORWARD(settings_flag(settings, "transpose_a", &transpose_a));
    FORWARD(settings_flag(settings, "transpose_b", &transpose_b));
    const int rank = shape->count == 4 ? 3 : 2;
    const int64_t batch = shape->dims[0], *mnk = shape->dims + (shape->count - 3);
    const int64_t a[] = {batch, mnk[transpose_a ? 2 : 0], mnk[transpose_a ? 0 : 2]};
    const int64_t b[] = {batch, mnk[transpose_b ? 1 : 2], mnk[transpose_b ? 2 : 1]};
    FORWARD(job_add_random(job, "a", shape, rank, a + (3 - rank)));
    return job_add_random(job, "b", shape, rank, b + (3 - rank));
}

static int take_settings(clattn_gemm_op *op, struct settings *settings, bool *has_beta) {
    FORWARD(settings_flag(settings, "transpose_a", &op->transpose_a));
    FORWARD(settings_flag(settings, "transpose_b", &op->transpose_b));
    FORWARD(settings_real(settings, "alpha", &op->alpha, NULL));
    return settings_real(settings, "beta", &op->beta, has_beta);
}

/* A c that is given is read (beta) and overwritten; else it is made. */
static int arrange_c(struct job *job, const clattn_gemm_op *op, bool has_beta, struct settings *settings) {
    struct job_tensor *c = job_find(job, "c");
    if (c) {
        if (!has_beta)
            return complain(EXIT_USAGE, "a tensor 'c' wants beta=: without it c would not be read");
        c->output = true;
        return job_require(job, "c", job_find(job, "a")->host.rank);
    }
    enum element out = ELEMENT_F32;
    FORWARD(job_take_out_element(job, settings, "a", &out));
    const clattn_tensor a = job_view(job, "a"), b = job_view(job, "b");
    const int last = a.rank - 1;
    int64_t dims[CLATTN_MAX_RANK];
    memcpy(dims, a.dims, sizeof dims);
    dims[last - 1] = a.dims[op->transpose_a ? last : last - 1];
    dims[last] = b.dims[op->transpose_b ? last - 1 : last];
    if (op->beta != 0)
        return complain(EXIT_USAGE, "beta=%g wants a tensor 'c'", (double)op->beta);
    return job_add_output(job, "c", out, a.rank, dims);
}

static int arrange(struct job *job, struct settings *settings) {
    FORWARD(job_require(job, "a", 0));
    FORWARD(job_require(job, "b", job_find(job, "a")->host.rank));
    if (job_find(job, "a")->host.rank < 2)
        return complain(EXIT_USAGE, "a: 1 dimension, want 2 to %d", CLATTN_MAX_RANK);
    bool has_beta = false;
    clattn_gemm_init(&job->op.gemm);
    FORWARD(take_settings(&job->op.gemm, settings, &has_beta));
    return arrange_c(job, &job->op.gemm, has_beta, settings);
}

static void bind(struct job *job) {
    job->op.gemm.a = job_view(job, "a");
    job->op.gemm.b = job_view(job, "b");
    job->op.gemm.c = job_view(job, "c");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_gemm(context, (const clattn_gemm_op *)op, launch);
}

static struct reference_gemm problem_of(const clattn_gemm_op *op) {
    const int last = op->c.rank - 1;
    struct reference_gemm problem = {.batch = 1,
                                     .m = op->c.dims[last - 1],
                                     .n = op->c.dims[last],
                                     .k = op->a.dims[op->transpose_a ? last - 1 : last],
                                     .transpose_a = op->transpose_a != 0,
                                     .transpose_b = op->transpose_b != 0,
                                     .alpha = (double)op->alpha,
                                     .beta = (double)op->beta};
    for (int d = 0; d < last - 1; d++)
        problem.batch *= op->c.dims[d];
    return problem;
}

static struct job_rows rows(const struct job *job) {
    const struct reference_gemm p = problem_of(&job->op.gemm);
    return (struct job_rows){.count = p.batch * p.m,
                             .inner = 1,
                             .widths = {p.n},
                             .size = (double)p.n,
                             .cost = 2 * (double)p.n * (double)p.k};
}

/* The same tensor with its last two dimensions exchanged where asked. */
static struct job_tensor turned(const struct job_tensor *tensor, bool turn) {
    struct job_tensor out = *tensor;
    if (turn) {
        const int last = out.view.rank - 1;
        const int64_t dim = out.view.dims[last], stride = out.view.strides[last];
        out.view.dims[last] = out.view.dims[last - 1];
        out.view.strides[last] = out.view.strides[last - 1];
        out.view.dims[last - 1] = dim;
        out.view.strides[last - 1] = stride;
    }
    return out;
}

/* One row of op(a), and op(b) by columns, so that the oracle reads both in order: with large matrices that decides how
 * long it takes. */
static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    struct reference_gemm one = problem_of(&job->op.gemm);
    const struct job_tensor op_a = turned(job_find(job, "a"), one.transpose_a);
    const struct job_tensor op_b = turned(job_find(job, "b"), !one.transpose_b);
    const int64_t b_count = one.n * one.k;
    const double *a = job_slice(cache, 0, &op_a, row * one.k, one.k);
    const double *b = job_slice(cache, 1, &op_b, row / one.m * b_count, b_count);
    const double *c = one.beta != 0 ? job_slice(cache, 2, job_find(job, "c"), row * one.n, one.n) : NULL;
    if (!a || !b || (one.beta != 0 && !c))
        return false;
    one.batch = one.m = 1;
    one.transpose_a = false;
    one.transpose_b = true;
    reference_gemm_row(&one, a, b, c, 0, want);
    plain_gemm_row(&one, job->op.gemm.c.dtype, a, b, c, 0, plain);
    return true;
}

static double flops(const struct job *job) {
    const struct reference_gemm p = problem_of(&job->op.gemm);
    return 2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k;
}

static void describe(const struct job *job, char *text, size_t size) {
    const struct reference_gemm p = problem_of(&job->op.gemm);
    int used = 0;
    if (job->op.gemm.c.rank > 2)
        used = snprintf(text, size, "%lld,", (long long)p.batch);
    snprintf(text + used, size - (size_t)used, "%lld,%lld,%lld%s%s", (long long)p.m, (long long)p.n, (long long)p.k,
             p.transpose_a ? " ta" : "", p.transpose_b ? " tb" : "");
}

const struct job_kind job_gemm = {.name = "gemm",
                                  .shape = "[B,]M,N,K",
                                  .op = CLATTN_OP_GEMM,
                                  .generate = generate,
                                  .arrange = arrange,
                                  .bind = bind,
                                  .call = call,
                                  .rows = rows,
                                  .reference = reference,
                                  .flops = flops,
                                  .describe = describe};
