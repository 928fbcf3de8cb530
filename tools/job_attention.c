/* The operation attention as a job. The oracle is asked row by row, each time for a problem of one query. */
#include "command.h"
#include "job.h"

#include <reference.h>
#include <stdio.h>
#include <string.h>

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    FORWARD(job_take_layout(job, settings));
    if (shape->count != 6 && shape->count != 7)
        return complain(EXIT_USAGE, "attention wants --shape %s", job->kind->shape);
    const int64_t *dims = shape->dims, dv = shape->count == 7 ? dims[6] : dims[5];
    FORWARD(job_add_random(job, "q", shape, 4, (int64_t[]){dims[0], dims[1], dims[3], dims[5]}));
    FORWARD(job_add_random(job, "k", shape, 4, (int64_t[]){dims[0], dims[2], dims[4], dims[5]}));
    return job_add_random(job, "v", shape, 4, (int64_t[]){dims[0], dims[2], dims[4], dv});
}

static int take_settings(clattn_attention_op *op, struct settings *settings) {
    int causal = 0;
    bool present;
    FORWARD(settings_choice(settings, "causal", "none bottom_right top_left", &causal));
    op->causal = (clattn_causal)causal;
    FORWARD(settings_integer(settings, "diagonal", &op->diagonal, &present));
    op->has_diagonal = present;
    FORWARD(settings_real(settings, "scale", &op->scale, &present));
    op->has_scale = present;
    return EXIT_OK;
}

static int arrange(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    for (const char *name = "q\0k\0v\0"; *name; name += 2)
        FORWARD(job_require(job, name, 4));
    FORWARD(job_take_layout(job, settings));
    clattn_attention_init(&job->op.attention);
    FORWARD(take_settings(&job->op.attention, settings));
    FORWARD(job_take_out_element(job, settings, "q", &out));
    const clattn_tensor q = job_view(job, "q"), v = job_view(job, "v");
    const int64_t dims[4] = {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
    FORWARD(job_add_output(job, "o", out, 4, dims));
    return job_add_output(job, "lse", ELEMENT_F32, 3, dims);
}

static void bind(struct job *job) {
    clattn_attention_op *op = &job->op.attention;
    op->q = job_view(job, "q");
    op->k = job_view(job, "k");
    op->v = job_view(job, "v");
    op->o = job_view(job, "o");
    op->lse = job_view(job, "lse");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_attention(context, (const clattn_attention_op *)op, launch);
}

static struct job_rows rows(const struct job *job) {
    const struct reference_attention p = reference_attention_of(&job->op.attention);
    return (struct job_rows){.count = p.batch * p.heads * p.nq,
                             .inner = 1,
                             .widths = {p.value_dim, 1},
                             .size = (double)p.nk,
                             .cost = (double)p.nk * (double)(4 * p.head_dim + 2 * p.value_dim)};
}

/* What a row needs: its query, and the keys and values of its head. */
static bool slices(const struct job *job, const struct reference_attention *p, const struct reference_row *at,
                   struct job_cache *cache, int64_t row, const double *found[3]) {
    const int64_t first = at->keys ? reference_attention_key(p, at, 0) : 0;
    found[0] = job_slice(cache, 0, job_find(job, "q"), row * p->head_dim, p->head_dim);
    found[1] = job_slice(cache, 1, job_find(job, "k"), first * p->head_dim, at->keys * p->head_dim);
    found[2] = job_slice(cache, 2, job_find(job, "v"), first * p->value_dim, at->keys * p->value_dim);
    return found[0] && found[1] && found[2];
}

bool job_attention_row(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain,
                       double *want_p, double *plain_p) {
    const clattn_attention_op *op = &job->op.attention;
    const struct reference_attention p = reference_attention_of(op);
    const struct reference_row at = reference_attention_locate(&p, row);
    const int64_t dv = p.value_dim;
    const double *found[3];
    if (!slices(job, &p, &at, cache, row, found))
        return false;
    reference_attention_row_at(&p, &at, found[0], found[1], found[2], want, want + dv, want_p);
    plain_attention_row_at(&p, &at, op->q.dtype, op->o.dtype, found[0], found[1], found[2], plain, plain + dv, plain_p);
    return true;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    return job_attention_row(job, cache, row, want, plain, NULL, NULL);
}

static double flops(const struct job *job) {
    const struct reference_attention p = reference_attention_of(&job->op.attention);
    return 2.0 * (double)(p.head_dim + p.value_dim) * reference_attention_pairs(&p);
}

static void describe(const struct job *job, char *text, size_t size) {
    static const char *const causal[] = {"", " bottom_right", " top_left"};
    const clattn_attention_op *op = &job->op.attention;
    int used = snprintf(text, size, "%lld,%lld,%lld,%lld,%lld,%lld", (long long)op->q.dims[0], (long long)op->q.dims[1],
                        (long long)op->k.dims[1], (long long)op->q.dims[2], (long long)op->k.dims[2],
                        (long long)op->q.dims[3]);
    if (op->v.dims[3] != op->q.dims[3])
        used += snprintf(text + used, size - (size_t)used, ",%lld", (long long)op->v.dims[3]);
    used += snprintf(text + used, size - (size_t)used, "%s", causal[op->causal]);
    if (op->has_diagonal)
        snprintf(text + used, size - (size_t)used, " diagonal=%lld", (long long)op->diagonal);
}

const struct job_kind job_attention = {.name = "attention",
                                       .shape = "B,HQ,HKV,NQ,NK,D[,DV]",
                                       .op = CLATTN_OP_ATTENTION,
                                       .generate = generate,
                                       .arrange = arrange,
                                       .bind = bind,
                                       .call = call,
                                       .rows = rows,
                                       .reference = reference,
                                       .flops = flops,
                                       .describe = describe};
