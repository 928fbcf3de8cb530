/* The two merges of partial states as jobs: (o, lse) of attention and (m, l) of softmax. */
#include "command.h"
#include "job.h"

#include <math.h>
#include <reference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names of the two tensors of an operand, and of the result. */
static const char *const names[2][2] = {{"o", "lse"}, {"m", "l"}};

static const char *name_of(const struct job *job, int which) {
    return names[job->kind->variety][which];
}

static struct job_tensor *part(const struct job *job, int which, int index) {
    char name[16];
    snprintf(name, sizeof name, "%s%d", name_of(job, which), index);
    return job_find(job, name);
}

static int count_parts(const struct job *job) {
    int count = 0;
    while (count < JOB_MAX_PARTS && part(job, 0, count))
        count++;
    return count;
}

/* The sums l are positive, all else is normal. */
static int add_part(struct job *job, const struct job_shape *shape, int which, int index, int rank) {
    char name[16];
    snprintf(name, sizeof name, "%s%d", name_of(job, which), index);
    struct job_shape typed = *shape;
    if (!(job->kind->variety == 0 && which == 0))
        typed.element = ELEMENT_F32;
    FORWARD(job_add_random(job, name, &typed, rank, shape->dims + 1));
    struct array *host = &job_find(job, name)->host;
    for (size_t i = 0; job->kind->variety == 1 && which == 1 && i < host->count; i++)
        array_set(host, i, 1 + fabs(array_get(host, i)));
    return EXIT_OK;
}

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    const bool attention = job->kind->variety == 0;
    if (attention)
        FORWARD(job_take_layout(job, settings));
    if (attention ? shape->count != 5 : shape->count < 2 || shape->count > 5)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    if (shape->dims[0] > JOB_MAX_PARTS)
        return complain(EXIT_USAGE, "%s: at most %d parts", job->kind->name, JOB_MAX_PARTS);
    const int rank = (int)shape->count - 1;
    for (int i = 0; i < shape->dims[0]; i++) {
        FORWARD(add_part(job, shape, 0, i, rank));
        FORWARD(add_part(job, shape, 1, i, attention ? 3 : rank));
    }
    return EXIT_OK;
}

static int require_parts(const struct job *job) {
    const int count = count_parts(job);
    if (count == 0)
        return complain(EXIT_USAGE, "%s wants tensors %s0, %s0, ...", job->kind->name, name_of(job, 0),
                        name_of(job, 1));
    for (int i = 0; i < count; i++) {
        FORWARD(job_require(job, part(job, 0, i)->name, job->kind->variety == 0 ? 4 : 0));
        if (!part(job, 1, i))
            return complain(EXIT_USAGE, "%s wants a tensor '%s%d'", job->kind->name, name_of(job, 1), i);
        FORWARD(job_require(job, part(job, 1, i)->name, job->kind->variety == 0 ? 3 : 0));
    }
    if (job->count != 2 * (size_t)count)
        return complain(EXIT_USAGE, "%s: %d pairs %s, %s but %zu tensors", job->kind->name, count, name_of(job, 0),
                        name_of(job, 1), job->count);
    return EXIT_OK;
}

static int arrange(struct job *job, struct settings *settings) {
    FORWARD(require_parts(job));
    if (job->kind->variety == 0) {
        enum element out = ELEMENT_F32;
        FORWARD(job_take_layout(job, settings));
        FORWARD(job_take_out_element(job, settings, "o0", &out));
        const clattn_tensor o = job_view(job, "o0");
        clattn_attention_merge_init(&job->op.attention_merge);
        FORWARD(job_add_output(job, "o", out, 4, o.dims));
        return job_add_output(job, "lse", ELEMENT_F32, 3, o.dims);
    }
    const clattn_tensor m = job_view(job, "m0");
    clattn_softmax_merge_init(&job->op.softmax_merge);
    FORWARD(job_add_output(job, "m", ELEMENT_F32, m.rank, m.dims));
    return job_add_output(job, "l", ELEMENT_F32, m.rank, m.dims);
}

static void bind(struct job *job) {
    const int count = count_parts(job);
    for (int i = 0; i < count; i++)
        for (int which = 0; which < 2; which++)
            job->parts[which][i] = part(job, which, i)->view;
    if (job->kind->variety == 0) {
        clattn_attention_merge_op *op = &job->op.attention_merge;
        op->count = count;
        op->o_in = job->parts[0];
        op->lse_in = job->parts[1];
        op->o = job_view(job, "o");
        op->lse = job_view(job, "lse");
    } else {
        clattn_softmax_merge_op *op = &job->op.softmax_merge;
        op->count = count;
        op->m_in = job->parts[0];
        op->l_in = job->parts[1];
        op->m = job_view(job, "m");
        op->l = job_view(job, "l");
    }
}

static clattn_status call_attention(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_attention_merge(context, (const clattn_attention_merge_op *)op, launch);
}

static clattn_status call_softmax(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_softmax_merge(context, (const clattn_softmax_merge_op *)op, launch);
}

static struct job_rows rows(const struct job *job) {
    const clattn_tensor first = job_view(job, name_of(job, 0)), second = job_view(job, name_of(job, 1));
    struct job_rows shape = {.count = 1, .inner = 1, .widths = {1, 1}};
    for (int d = 0; d < second.rank; d++)
        shape.count *= second.dims[d];
    if (job->kind->variety == 0)
        shape.widths[0] = first.dims[3];
    shape.size = (double)shape.count;
    shape.cost = (double)(shape.widths[0] + 1) * count_parts(job);
    return shape;
}

static double flops(const struct job *job) {
    const struct job_rows shape = rows(job);
    return 2 * shape.cost * (double)shape.count;
}

static void describe(const struct job *job, char *text, size_t size) {
    const clattn_tensor first = job_view(job, name_of(job, 0));
    int used = snprintf(text, size, "%d", count_parts(job));
    for (int d = 0; d < first.rank; d++)
        used += snprintf(text + used, size - (size_t)used, ",%lld", (long long)first.dims[d]);
}

/* The operands' second values of a row: lse or l. */
static void gather(const struct job *job, int which, int64_t row, double *values) {
    for (int i = 0; i < count_parts(job); i++) {
        const struct job_tensor *tensor = part(job, which, i);
        values[i] = job_value(tensor, &tensor->host, row);
    }
}

static bool reference_softmax(const struct job *job, struct job_cache *cache, int64_t row, double *want,
                              double *plain) {
    double m[JOB_MAX_PARTS], l[JOB_MAX_PARTS];
    (void)cache;
    gather(job, 0, row, m);
    gather(job, 1, row, l);
    reference_softmax_merge(count_parts(job), m, l, want, want + 1);
    plain_softmax_merge(count_parts(job), m, l, plain, plain + 1);
    return true;
}

static bool reference_attention(const struct job *job, struct job_cache *cache, int64_t row, double *want,
                                double *plain) {
    const int count = count_parts(job);
    const int64_t dv = rows(job).widths[0];
    double lse[JOB_MAX_PARTS];
    const double *o[JOB_MAX_PARTS];
    double *values = malloc((size_t)(count * dv + 1) * sizeof *values);
    (void)cache;
    if (!values)
        return false;
    gather(job, 1, row, lse);
    for (int i = 0; i < count; i++) {
        const struct job_tensor *tensor = part(job, 0, i);
        for (int64_t c = 0; c < dv; c++)
            values[i * dv + c] = job_value(tensor, &tensor->host, row * dv + c);
        o[i] = values + i * dv;
    }
    reference_attention_merge_row(count, dv, o, lse, want, want + dv);
    plain_attention_merge_row(count, job->op.attention_merge.o.dtype, dv, o, lse, plain, plain + dv);
    free(values);
    return true;
}

const struct job_kind job_attention_merge = {.name = "attention_merge",
                                             .shape = "PARTS,B,H,N,DV",
                                             .op = CLATTN_OP_ATTENTION_MERGE,
                                             .memory_bound = true,
                                             .generate = generate,
                                             .arrange = arrange,
                                             .bind = bind,
                                             .call = call_attention,
                                             .rows = rows,
                                             .reference = reference_attention,
                                             .flops = flops,
                                             .describe = describe};

const struct job_kind job_softmax_merge = {.name = "softmax_merge",
                                           .shape = "PARTS,D0[,D1[,D2[,D3]]]",
                                           .op = CLATTN_OP_SOFTMAX_MERGE,
                                           .variety = 1,
                                           .memory_bound = true,
                                           .generate = generate,
                                           .arrange = arrange,
                                           .bind = bind,
                                           .call = call_softmax,
                                           .rows = rows,
                                           .reference = reference_softmax,
                                           .flops = flops,
                                           .describe = describe};
