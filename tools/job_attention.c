/* The operation attention as a job: its settings, outputs and description. */
#include "job_attention.h"
#include "command.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int take_window(clattn_attention_op *op, struct settings *settings) {
    int64_t window[2];
    const char *text = settings_text(settings, "window");
    if (!text)
        return EXIT_OK;
    if (parse_integers(text, window, 2) != 2)
        return complain(EXIT_USAGE, "window=%s is not LEFT,RIGHT (-1: no limit)", text);
    op->window_left = window[0];
    op->window_right = window[1];
    return EXIT_OK;
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
    FORWARD(take_window(op, settings));
    FORWARD(settings_real(settings, "softcap", &op->softcap, NULL));
    FORWARD(settings_integer(settings, "max_q", &op->max_q, NULL));
    return settings_integer(settings, "max_k", &op->max_k, NULL);
}

/* Masks have no layout but their own; pages come [page, row, head, dim] unless page_layout says [page, head, row,
 * dim]. */
static int take_orders(struct job *job, struct settings *settings) {
    int page_layout = 0;
    FORWARD(job_take_layout(job, settings));
    job_set_order(job, "mask", false);
    job_set_order(job, "bias", false);
    if (!job_find(job, "page_table"))
        return EXIT_OK;
    FORWARD(settings_choice(settings, "page_layout", "nhd hnd", &page_layout));
    job_set_order(job, "k", page_layout == 0);
    job_set_order(job, "v", page_layout == 0);
    return EXIT_OK;
}

/* v_in_k=512: values are the first so many columns of the keys. */
static int take_values_in_keys(struct job *job, struct settings *settings) {
    int64_t columns = 0;
    bool given = false;
    FORWARD(settings_integer(settings, "v_in_k", &columns, &given));
    if (!given)
        return EXIT_OK;
    if (job_find(job, "v"))
        return complain(EXIT_USAGE, "v: given, and said to be columns of k by v_in_k=%lld", (long long)columns);
    FORWARD(job_require(job, "k", 4));
    return job_add_within(job, "v", "k", columns);
}

clattn_attention_op *job_attention_op(const struct job *job) {
    struct job *own = (struct job *)job;
    switch (job->kind->op) {
    case CLATTN_OP_ATTENTION_BACKWARD:
        return &own->op.attention_backward.attention;
    case CLATTN_OP_ATTENTION_CASCADE:
        return &own->op.attention_cascade.suffix;
    default:
        return &own->op.attention;
    }
}

int job_attention_arrange(struct job *job, struct settings *settings) {
    FORWARD(job_require(job, "q", 4));
    FORWARD(take_orders(job, settings));
    FORWARD(take_values_in_keys(job, settings));
    clattn_attention_init(job_attention_op(job));
    FORWARD(take_settings(job_attention_op(job), settings));
    FORWARD(job_attention_take_codes(job, settings));
    return job_attention_take_inputs(job, settings);
}

int job_attention_add_outputs(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    FORWARD(job_take_out_element(job, settings, "q", &out));
    const clattn_tensor q = job_view(job, "q"), v = job_view(job, "v");
    const int64_t dims[4] = {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
    FORWARD(job_add_output(job, "o", out, 4, dims));
    return job_add_output(job, "lse", ELEMENT_F32, 3, dims);
}

static int arrange(struct job *job, struct settings *settings) {
    FORWARD(job_attention_arrange(job, settings));
    return job_attention_add_outputs(job, settings);
}

/* The settings that attention does not have. */
static int arrange_decode(struct job *job, struct settings *settings) {
    int64_t splits = 0, page_size = 0;
    bool given = false;
    FORWARD(settings_integer(settings, "splits", &splits, &given));
    if (given && (splits < 1 || splits > INT32_MAX))
        return complain(EXIT_USAGE, "splits=%lld is no number of splits", (long long)splits);
    if (given)
        snprintf(job->parameters, sizeof job->parameters, "splits=%lld", (long long)splits);
    FORWARD(settings_integer(settings, "page_size", &page_size, &given));
    FORWARD(arrange(job, settings));
    const clattn_tensor k = job_view(job, "k");
    if (given && (!job_find(job, "page_table") || k.dims[2] != page_size))
        return complain(EXIT_USAGE, "page_size=%lld, but k has pages of %lld", (long long)page_size,
                        job_find(job, "page_table") ? (long long)k.dims[2] : 0LL);
    return EXIT_OK;
}

void job_attention_bind(struct job *job) {
    clattn_attention_op *op = job_attention_op(job);
    op->q = job_view(job, "q");
    op->k = job_view(job, "k");
    op->v = job_view(job, "v");
    op->o = job_view(job, "o");
    op->lse = job_view(job, "lse");
    op->mask = job_view(job, "mask");
    op->bias = job_view(job, "bias");
    op->alibi = job_view(job, "alibi");
    op->sinks = job_view(job, "sinks");
    op->q_lengths = job_view(job, "q_lengths");
    op->k_lengths = job_view(job, "k_lengths");
    op->q_offsets = job_view(job, "q_offsets");
    op->k_offsets = job_view(job, "k_offsets");
    op->page_table = job_view(job, "page_table");
    job_attention_bind_codes(job);
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_attention(context, (const clattn_attention_op *)op, launch);
}

static struct job_rows rows(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    const int64_t columns = job_attention_columns(job);
    return (struct job_rows){.count = op->q.dims[0] * op->q.dims[1] * op->q.dims[2],
                             .inner = 1,
                             .widths = {op->v.dims[3], 1},
                             .size = (double)columns,
                             .cost = (double)columns * (double)(4 * op->q.dims[3] + 2 * op->v.dims[3])};
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    return job_attention_row(job, cache, row, want, plain, NULL, NULL);
}

static double flops(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    return 2.0 * (double)(op->q.dims[3] + op->v.dims[3]) * job_attention_pairs(job);
}

double job_attention_bytes(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    const double pairs = job_attention_pairs(job), rows = (double)op->k.dims[0] * (double)op->k.dims[2];
    const double queries = (double)op->q.dims[1] * (double)(op->q.dims[2] > 0 ? op->q.dims[2] : 1);
    double bytes = 0, cache = 0;
    for (size_t i = 0; i < job->count; i++) {
        const char *name = job->tensors[i].name;
        const bool cached =
            (name[0] == 'k' || name[0] == 'v') && strcmp(name, "k_lengths") != 0 && strcmp(name, "k_offsets") != 0;
        *(cached ? &cache : &bytes) += (double)array_bytes(&job->tensors[i].host);
    }
    return bytes + (rows > 0 && queries > 0 ? cache * fmin(pairs / queries / rows, 1) : 0);
}

/* ---- description ------------------------------------------------------------------------------------------------- */

struct text {
    char *to;
    size_t size, used;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text->to + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    if (written > 0)
        text->used += (size_t)written < text->size - text->used ? (size_t)written : text->size - text->used - 1;
}

/* " mask", or " mask=1,1,n,n" where dims are repeated. */
static void add_plane(struct text *text, const struct job *job, const char *name, const clattn_tensor *plane) {
    const clattn_tensor *q = &job_attention_op(job)->q;
    const int64_t full[4] = {job_attention_sequences(job), q->dims[1], q->dims[2], job_attention_columns(job)};
    bool repeats = false;
    if (plane->rank != 4)
        return;
    add(text, " %s", name);
    if (plane->dtype == CLATTN_F32 && q->dtype != CLATTN_F32)
        add(text, ":f32");
    for (int d = 0; d < 4; d++)
        repeats = repeats || plane->dims[d] < full[d];
    for (int d = 0; d < 4 && repeats; d++)
        add(text, "%s%c", d ? "," : "=", plane->dims[d] == 1 ? '1' : 'n');
}

static void add_sequences(struct text *text, const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    const bool q = op->q_offsets.rank > 0, k = op->k_offsets.rank > 0;
    if (q || k)
        add(text, " ragged%s=%lld",
            q && (k || op->page_table.rank > 0) ? ""
            : q                                 ? "_q"
                                                : "_k",
            (long long)job_attention_sequences(job));
    if (op->page_table.rank > 0)
        add(text, " paged=%lld", (long long)op->k.dims[2]);
    for (const char *const *name = (const char *const[]){"q_lengths", "k_lengths", "alibi", "sinks", NULL}; *name;
         name++)
        if (job_find(job, *name))
            add(text, " %s", *name);
    if (op->max_q)
        add(text, " max_q=%lld", (long long)op->max_q);
    if (op->max_k)
        add(text, " max_k=%lld", (long long)op->max_k);
}

/* " k=i8:64", blocks of 32 going without saying */
static void add_codes(struct text *text, const struct job *job, const char *name,
                      const clattn_quantization *quantization) {
    const struct job_tensor *tensor = job_find(job, name);
    if (!job_attention_holds_codes(tensor))
        return;
    add(text, " %s=%s", name, tensor->view.dtype == CLATTN_I8 ? "i8" : tensor->view.dtype == CLATTN_I4 ? "i4" : "f8");
    if (quantization->block == 64)
        add(text, ":64");
    if (quantization->nibbles == CLATTN_NIBBLES_HALVES)
        add(text, ":halves");
    if (quantization->zeros.rank > 0)
        add(text, ":zeros");
}

void job_attention_describe(const struct job *job, char *to, size_t size) {
    static const char *const causal[] = {"", " bottom_right", " top_left"};
    const clattn_attention_op *op = job_attention_op(job);
    struct text text = {to, size, 0};
    add(&text, "%lld,%lld,%lld,%lld,%lld,%lld", (long long)op->q.dims[0], (long long)op->q.dims[1],
        (long long)op->k.dims[1], (long long)op->q.dims[2], (long long)job_attention_columns(job),
        (long long)op->q.dims[3]);
    if (op->v.dims[3] != op->q.dims[3])
        add(&text, ",%lld", (long long)op->v.dims[3]);
    if (job_find(job, "v")->within)
        add(&text, " v_in_k");
    add(&text, "%s", causal[op->causal]);
    if (op->has_diagonal)
        add(&text, " diagonal=%lld", (long long)op->diagonal);
    if (op->window_left >= 0 || op->window_right >= 0)
        add(&text, " window=%lld,%lld", (long long)op->window_left, (long long)op->window_right);
    if (op->softcap != 0)
        add(&text, " softcap=%g", (double)op->softcap);
    add_plane(&text, job, "mask", &op->mask);
    add_plane(&text, job, "bias", &op->bias);
    add_sequences(&text, job);
    add_codes(&text, job, "k", &op->k_quantization);
    add_codes(&text, job, "v", &op->v_quantization);
}

const struct job_kind job_attention = {.name = "attention",
                                       .shape = "B,HQ,HKV,NQ,NK,D[,DV]",
                                       .op = CLATTN_OP_ATTENTION,
                                       .generate = job_attention_generate,
                                       .arrange = arrange,
                                       .hide = job_attention_hide,
                                       .bind = job_attention_bind,
                                       .call = call,
                                       .rows = rows,
                                       .reference = reference,
                                       .original = job_attention_original,
                                       .flops = flops,
                                       .describe = job_attention_describe};

/* The same operation by the variants for few queries, which are bound by memory. */
const struct job_kind job_attention_decode = {.name = "attention_decode",
                                              .shape = "B,HQ,HKV,NQ,NK,D[,DV]",
                                              .op = CLATTN_OP_ATTENTION,
                                              .memory_bound = true,
                                              .variants = "decode",
                                              .generate = job_attention_generate,
                                              .arrange = arrange_decode,
                                              .hide = job_attention_hide,
                                              .bind = job_attention_bind,
                                              .call = call,
                                              .rows = rows,
                                              .reference = reference,
                                              .original = job_attention_original,
                                              .flops = flops,
                                              .bytes = job_attention_bytes,
                                              .describe = job_attention_describe};
