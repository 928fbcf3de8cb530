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

/* The problem of one query alone; its keys and values are those of its head. */
static struct reference_attention row_problem(const struct job *job, struct job_cache *cache, int64_t row,
                                              const double **q, const double **k, const double **v) {
    const struct reference_attention all = reference_attention_of(&job->op.attention);
    const int64_t i = row % all.nq, h = row / all.nq % all.heads, b = row / all.nq / all.heads;
    const int64_t kv = b * all.kv_heads + h / (all.heads / all.kv_heads);
    const int64_t key_count = all.nk * all.head_dim, value_count = all.nk * all.value_dim;
    *q = job_slice(cache, 0, job_find(job, "q"), row * all.head_dim, all.head_dim);
    *k = job_slice(cache, 1, job_find(job, "k"), kv * key_count, key_count);
    *v = job_slice(cache, 2, job_find(job, "v"), kv * value_count, value_count);
    struct reference_attention one = all;
    one.batch = one.heads = one.kv_heads = one.nq = 1;
    one.diagonal += i;
    return one;
}

bool job_attention_row(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain,
                       double *want_p, double *plain_p) {
    const double *q, *k, *v;
    const struct reference_attention one = row_problem(job, cache, row, &q, &k, &v);
    if (!q || !k || !v)
        return false;
    const clattn_attention_op *op = &job->op.attention;
    const int64_t dv = one.value_dim;
    reference_attention_row(&one, q, k, v, 0, want, want + dv, want_p);
    plain_attention_row(&one, op->q.dtype, op->o.dtype, q, k, v, 0, plain, plain + dv, plain_p);
    return true;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    return job_attention_row(job, cache, row, want, plain, NULL, NULL);
}

static double flops(const struct job *job) {
    const struct reference_attention p = reference_attention_of(&job->op.attention);
    double pairs = 0;
    for (int64_t i = 0; i < p.nq; i++)
        pairs += (double)reference_visible_keys(&p, i);
    return 2.0 * (double)(p.head_dim + p.value_dim) * pairs * (double)(p.batch * p.heads);
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
