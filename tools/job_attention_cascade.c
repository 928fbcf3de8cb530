/* Attention over a prefix that all sequences share and then their own keys, as a job: attention's inputs and settings,
 * prefix_k and prefix_v. For the oracle a row's keys are those of the prefix and then its own. */
#include "command.h"
#include "job_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH, HEAD, ROW, COLUMN };

/* prefix=4096: keys of the prefix. */
static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    int64_t rows = 0;
    FORWARD(settings_integer(settings, "prefix", &rows, NULL));
    if (rows < 0)
        return complain(EXIT_USAGE, "prefix=%lld is no number of keys", (long long)rows);
    FORWARD(job_attention_generate(job, shape, settings));
    const int64_t heads = shape->dims[2], d = shape->dims[5], dv = shape->count > 6 ? shape->dims[6] : d;
    FORWARD(job_take_layout(job, settings));
    FORWARD(job_add_random(job, "prefix_k", shape, 4, (int64_t[]){1, heads, rows, d}));
    return job_add_random(job, "prefix_v", shape, 4, (int64_t[]){1, heads, rows, dv});
}

static int arrange(struct job *job, struct settings *settings) {
    FORWARD(job_require(job, "prefix_k", 4));
    FORWARD(job_require(job, "prefix_v", 4));
    clattn_attention_cascade_init(&job->op.attention_cascade);
    FORWARD(job_attention_arrange(job, settings));
    const clattn_tensor k = job_view(job, "k"), v = job_view(job, "v"), prefix_k = job_view(job, "prefix_k"),
                        prefix_v = job_view(job, "prefix_v");
    if (prefix_k.dims[BATCH] != 1 || prefix_k.dims[HEAD] != k.dims[HEAD] || prefix_k.dims[COLUMN] != k.dims[COLUMN])
        return complain(EXIT_USAGE, "prefix_k: want dimensions 1, %lld, N, %lld", (long long)k.dims[HEAD],
                        (long long)k.dims[COLUMN]);
    if (prefix_v.dims[BATCH] != 1 || prefix_v.dims[HEAD] != k.dims[HEAD] || prefix_v.dims[ROW] != prefix_k.dims[ROW] ||
        prefix_v.dims[COLUMN] != v.dims[COLUMN])
        return complain(EXIT_USAGE, "prefix_v: want dimensions 1, %lld, %lld, %lld", (long long)k.dims[HEAD],
                        (long long)prefix_k.dims[ROW], (long long)v.dims[COLUMN]);
    return job_attention_add_outputs(job, settings);
}

static void bind(struct job *job) {
    job_attention_bind(job);
    job->op.attention_cascade.prefix_k = job_view(job, "prefix_k");
    job->op.attention_cascade.prefix_v = job_view(job, "prefix_v");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_attention_cascade(context, (const clattn_attention_cascade_op *)op, launch);
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

static int64_t prefix_of(const struct job *job) {
    return job_find(job, "prefix_k")->view.dims[ROW];
}

static struct job_rows rows(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    const double keys = (double)(prefix_of(job) + job_attention_columns(job));
    return (struct job_rows){.count = op->q.dims[BATCH] * op->q.dims[HEAD] * op->q.dims[ROW],
                             .inner = 1,
                             .widths = {op->v.dims[COLUMN], 1},
                             .size = keys,
                             .cost = keys * (double)(4 * op->q.dims[COLUMN] + 2 * op->v.dims[COLUMN])};
}

/* Rows of the prefix and then of the sequence, for the row's head; NULL where memory is short. The caller frees
 * them. */
static double *join(const struct job *job, struct job_cache *cache, const char *name,
                    const struct reference_attention *problem, const struct reference_row *at) {
    const bool is_k = name[0] == 'k';
    const struct job_tensor *prefix = job_find(job, is_k ? "prefix_k" : "prefix_v");
    const int64_t count = prefix_of(job) * prefix->view.dims[COLUMN], width = prefix->view.dims[COLUMN];
    const int64_t head = at->head / (problem->heads / problem->kv_heads);
    const double *own = job_attention_gather(job, cache, name, problem, at);
    double *joined = malloc((size_t)(count + at->keys * width + 1) * sizeof *joined);
    if (joined && own) {
        job_values(prefix, &prefix->host, head * count, count, joined);
        memcpy(joined + count, own, (size_t)(at->keys * width) * sizeof *joined);
        return joined;
    }
    free(joined);
    return NULL;
}

/* Every query sees the whole prefix. The problem's keys are those of the row from now on, in no pages. */
static void see_prefix(const struct job *job, struct reference_attention *problem, struct reference_row *at) {
    const int64_t prefix = prefix_of(job);
    at->keys += prefix;
    problem->nk = at->keys;
    problem->page_table = NULL;
    at->end_key = at->query < at->queries ? at->end_key + prefix : 0;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const clattn_attention_op *op = job_attention_op(job);
    const int64_t d = op->q.dims[COLUMN], dv = op->v.dims[COLUMN];
    struct reference_attention problem;
    struct reference_row at;
    if (!job_attention_locate(job, cache, row, &problem, &at))
        return false;
    if (at.sequence < 0)
        return job_attention_row(job, cache, row, want, plain, NULL, NULL); /* which nothing writes */
    const double *query = job_slice(cache, SLOT_Q, job_find(job, "q"), row * d, d);
    double *keys = join(job, cache, "k", &problem, &at), *values = join(job, cache, "v", &problem, &at);
    const bool known = query && keys && values;
    see_prefix(job, &problem, &at);
    if (known) {
        reference_attention_row_at(&problem, &at, query, keys, values, want, want + dv, NULL);
        plain_attention_row_at(&problem, &at, op->q.dtype, op->o.dtype, query, keys, values, plain, plain + dv, NULL);
    }
    free(keys);
    free(values);
    return known;
}

static double flops(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    struct reference_attention problem;
    struct job_cache cache = {.slots = {{.values = NULL}}};
    double queries = 0;
    const bool known = job_attention_problem(job, &cache, &problem);
    for (int64_t row = 0, count = known ? reference_attention_rows(&problem) : 0; row < count; row++) {
        const struct reference_row at = reference_attention_locate(&problem, row);
        queries += at.sequence >= 0 && at.query < at.queries;
    }
    job_cache_free(&cache);
    return 2.0 * (double)(op->q.dims[COLUMN] + op->v.dims[COLUMN]) *
           (job_attention_pairs(job) + queries * (double)prefix_of(job));
}

static void describe(const struct job *job, char *text, size_t size) {
    job_attention_describe(job, text, size);
    const size_t used = strlen(text);
    snprintf(text + used, size - used, " prefix=%lld", (long long)prefix_of(job));
}

const struct job_kind job_attention_cascade = {.name = "attention_cascade",
                                               .shape = "B,HQ,HKV,NQ,NK,D[,DV]",
                                               .op = CLATTN_OP_ATTENTION_CASCADE,
                                               .memory_bound = true,
                                               .generate = generate,
                                               .arrange = arrange,
                                               .hide = job_attention_hide,
                                               .bind = bind,
                                               .call = call,
                                               .rows = rows,
                                               .reference = reference,
                                               .flops = flops,
                                               .bytes = job_attention_bytes,
                                               .describe = describe};
