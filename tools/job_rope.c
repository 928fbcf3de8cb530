/* Rotation and append to a cache as a job. The caches are outputs, NaN where nothing is written; the oracle takes all
 * tensors at once, as one row. */
#include "job_rope.h"
#include "command.h"

#include <clattn/kv_cache.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH, HEAD, ROW, COLUMN };
enum { PART_Q, PART_K, PART_V, PARTS };

static const char *const in_names[PARTS] = {"q", "k", "v"}, *const out_names[PARTS] = {"q_out", "k_cache", "v_cache"};

/* ---- random problems --------------------------------------------------------------------------------------------- */

static int add_integers(struct job *job, const char *name, int rank, const int64_t *dims) {
    struct array array;
    if (!array_make(&array, ELEMENT_I32, rank, dims))
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory", name);
    return job_add(job, name, false, &array);
}

static int add_lengths(struct job *job, const struct job_shape *shape, struct settings *settings, int64_t most) {
    int random = 0;
    if (!settings_text(settings, "k_lengths"))
        return EXIT_OK;
    FORWARD(settings_choice(settings, "k_lengths", "random", &random));
    FORWARD(add_integers(job, "k_lengths", 1, shape->dims));
    struct job_tensor *lengths = job_find(job, "k_lengths");
    for (int64_t b = 0; b < shape->dims[0]; b++)
        job_set_value(lengths, b,
                      floor(fmod(fabs(reference_normal((uint64_t)b, shape->seed)) * 7919, (double)most + 1)));
    return EXIT_OK;
}

/* Every page in use is one sequence's alone: page i of sequence b is number i * B + b, counted from the end. */
static int add_table(struct job *job, const struct job_shape *shape, int64_t page_size, int64_t most) {
    const int64_t batch = shape->dims[0], width = (most + page_size - 1) / page_size, dims[] = {batch, width};
    FORWARD(add_integers(job, "page_table", 2, dims));
    struct job_tensor *table = job_find(job, "page_table");
    for (int64_t i = 0; i < batch * width; i++)
        job_set_value(table, i, (double)(batch * width - 1 - (i % width * batch + i / width)));
    return EXIT_OK;
}

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    if (shape->count < 5 || shape->count > 6)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    const int64_t batch = shape->dims[0], rows = shape->dims[3], d = shape->dims[4];
    const int64_t q[] = {batch, shape->dims[1], rows, d}, k[] = {batch, shape->dims[2], rows, d};
    const int64_t v[] = {batch, shape->dims[2], rows, shape->count > 5 ? shape->dims[5] : d};
    int64_t page_size = 0;
    FORWARD(job_take_layout(job, settings));
    FORWARD(job_add_random(job, "q", shape, 4, q));
    FORWARD(job_add_random(job, "k", shape, 4, k));
    FORWARD(job_add_random(job, "v", shape, 4, v));
    FORWARD(add_lengths(job, shape, settings, 3 * rows));
    FORWARD(job_rope_generate_scales(job, settings));
    FORWARD(settings_integer(settings, "page_size", &page_size, NULL));
    return page_size > 0 ? add_table(job, shape, page_size, 4 * rows) : EXIT_OK;
}

/* ---- arranging --------------------------------------------------------------------------------------------------- */

static int take_inputs(struct job *job) {
    static const struct {
        const char *name;
        int rank;
    } integers[] = {{"k_lengths", 1}, {"q_lengths", 1},  {"q_offsets", 1},
                    {"positions", 2}, {"page_table", 2}, {"position_offsets", 1}};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        FORWARD(job_take_integers(job, integers[i].name, integers[i].rank));
    for (int i = 0; i < PARTS; i++)
        if (job_find(job, in_names[i]))
            FORWARD(job_require(job, in_names[i], 4));
    if (!job_find(job, "q") && !job_find(job, "k") && !job_find(job, "v"))
        return complain(EXIT_USAGE, "%s wants a tensor 'q', 'k' or 'v'", job->kind->name);
    if (job_find(job, "cos"))
        FORWARD(job_require(job, "cos", 2));
    return job_find(job, "sin") ? job_require(job, "sin", 2) : EXIT_OK;
}

static int take_settings(struct job *job, struct settings *settings) {
    clattn_rope_append_op *op = &job->op.rope_append;
    int style = 0;
    int64_t rotary_dim = op->rotary_dim;
    float base = (float)op->rope_base, scale = (float)op->frequency_scale;
    FORWARD(settings_choice(settings, "style", "half_split interleaved", &style));
    FORWARD(settings_integer(settings, "rotary_dim", &rotary_dim, NULL));
    FORWARD(settings_real(settings, "rope_base", &base, NULL));
    FORWARD(settings_real(settings, "frequency_scale", &scale, NULL));
    if (rotary_dim < -1 || rotary_dim > INT32_MAX)
        return complain(EXIT_USAGE, "rotary_dim=%lld is no number of elements", (long long)rotary_dim);
    op->style = (clattn_rope_style)style;
    op->rotary_dim = (int32_t)rotary_dim;
    op->rope_base = (double)base;
    op->frequency_scale = (double)scale;
    return EXIT_OK;
}

static int64_t sequences_of(const struct job *job) {
    const struct job_tensor *offsets = job_find(job, "q_offsets");
    for (int i = 0; i < PARTS && !offsets; i++)
        if (job_find(job, in_names[i]))
            return job_find(job, in_names[i])->view.dims[BATCH];
    return offsets->view.dims[0] - 1;
}

/* Rows of a cache: by the setting, else as many as the longest sequence may come to. */
static int take_rows(const struct job *job, struct settings *settings, const struct job_tensor *in, int64_t *rows) {
    const struct job_tensor *lengths = job_find(job, "k_lengths");
    double longest = 0;
    for (size_t i = 0; lengths && i < lengths->host.count; i++)
        longest = fmax(longest, array_get(&lengths->host, i));
    *rows = (int64_t)longest + in->view.dims[ROW];
    return settings_integer(settings, "cache_rows", rows, NULL);
}

/* Pages: as many as the table names. */
static int take_pages(const struct job *job, struct settings *settings, int64_t *pages, int64_t *page_size) {
    const struct job_tensor *table = job_find(job, "page_table");
    double last = -1;
    for (size_t i = 0; i < table->host.count; i++)
        last = fmax(last, array_get(&table->host, i));
    *pages = (int64_t)last + 1;
    *page_size = 16;
    FORWARD(settings_integer(settings, "page_size", page_size, NULL));
    return settings_integer(settings, "pages", pages, NULL);
}

static int add_cache(struct job *job, struct settings *settings, int part) {
    const struct job_tensor *in = job_find(job, in_names[part]);
    int64_t first = sequences_of(job), rows = 0;
    int page_layout = 0;
    enum element element;
    struct job_format format;
    if (!in)
        return EXIT_OK;
    FORWARD(job_format_take(settings, in_names[part], &format));
    FORWARD(job_take_out_element(job, settings, in_names[part], &element));
    const int64_t heads = in->view.dims[HEAD], columns = in->view.dims[COLUMN];
    const bool layout = job->sequence_first;
    FORWARD(settings_choice(settings, "page_layout", "nhd hnd", &page_layout));
    if (job_find(job, "page_table")) {
        FORWARD(take_pages(job, settings, &first, &rows));
        job->sequence_first = page_layout == 0;
    } else {
        FORWARD(take_rows(job, settings, in, &rows));
    }
    const int64_t dims[] = {first, heads, rows, columns};
    if (rows < 0 || first < 0)
        return complain(EXIT_USAGE, "%s: %lld times %lld rows", out_names[part], (long long)first, (long long)rows);
    const int code = format.codes ? job_rope_add_codes(job, settings, in_names[part], &format, dims)
                                  : job_add_output(job, out_names[part], element, 4, dims);
    job->sequence_first = layout;
    return code;
}

static int arrange(struct job *job, struct settings *settings) {
    clattn_rope_append_init(&job->op.rope_append);
    FORWARD(job_take_layout(job, settings));
    FORWARD(take_inputs(job));
    FORWARD(take_settings(job, settings));
    const struct job_tensor *q = job_find(job, "q");
    if (q)
        FORWARD(job_add_output(job, "q_out", q->host.element, 4, q->view.dims));
    FORWARD(add_cache(job, settings, PART_K));
    return add_cache(job, settings, PART_V);
}

static void bind(struct job *job) {
    clattn_rope_append_op *op = &job->op.rope_append;
    op->q = job_view(job, "q");
    op->k = job_view(job, "k");
    op->v = job_view(job, "v");
    op->q_out = job_view(job, "q_out");
    op->k_cache = job_view(job, "k_cache");
    op->v_cache = job_view(job, "v_cache");
    op->cos = job_view(job, "cos");
    op->sin = job_view(job, "sin");
    op->k_lengths = job_view(job, "k_lengths");
    op->page_table = job_view(job, "page_table");
    op->positions = job_view(job, "positions");
    op->position_offsets = job_view(job, "position_offsets");
    op->q_lengths = job_view(job, "q_lengths");
    op->q_offsets = job_view(job, "q_offsets");
    job_rope_bind_codes(job);
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_rope_append(context, (const clattn_rope_append_op *)op, launch);
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

static int64_t rotary_dim_of(const struct job *job) {
    const struct job_tensor *q = job_find(job, "q"), *of = q ? q : job_find(job, "k");
    const int32_t asked = job->op.rope_append.rotary_dim;
    return asked >= 0 ? asked : of ? of->view.dims[COLUMN] : 0;
}

/* What the oracle looks at of a part: of codes, their values. */
static struct job_tensor *output_of(const struct job *job, int part) {
    static const char *const values[PARTS] = {"q_out", "k_values", "v_values"};
    struct job_tensor *out = job_find(job, values[part]);
    return out ? out : job_find(job, out_names[part]);
}

static bool is_looked_at(const struct job *job, const struct job_tensor *tensor) {
    bool found = false;
    for (int i = 0; i < PARTS; i++)
        found = found || output_of(job, i) == tensor;
    return found;
}

static struct job_rows rows(const struct job *job) {
    struct job_rows shape = {.count = 1, .inner = 1};
    for (size_t i = 0, output = 0; i < job->count; i++) {
        const struct job_tensor *tensor = &job->tensors[i];
        if (!tensor->output)
            continue;
        shape.widths[output] = is_looked_at(job, tensor) ? (int64_t)tensor->host.count : 0;
        shape.cost += 10 * (double)shape.widths[output++];
    }
    for (int i = 0; i < PARTS; i++)
        if (job_find(job, in_names[i]))
            shape.size = (double)job_find(job, in_names[i])->view.dims[ROW];
    return shape;
}

static const double *whole(struct job_cache *cache, size_t slot, const struct job *job, const char *name) {
    const struct job_tensor *tensor = job_find(job, name);
    return tensor ? job_slice(cache, slot, tensor, 0, (int64_t)tensor->host.count) : NULL;
}

static struct reference_append append_of(const struct job *job, struct job_cache *cache, int64_t new_rows) {
    const struct job_tensor *k = job_find(job, "k_cache"), *out = k ? k : job_find(job, "v_cache");
    const struct job_tensor *table = job_find(job, "page_table"), *cos = job_find(job, "cos");
    return (struct reference_append){.rows = new_rows,
                                     .sequences = sequences_of(job),
                                     .cache_rows = out ? out->view.dims[ROW] : 1,
                                     .pages = out ? out->view.dims[BATCH] : 0,
                                     .max_pages = table ? table->view.dims[1] : 0,
                                     .table_rows = cos ? cos->view.dims[0] : 0,
                                     .page_table = out ? whole(cache, 3, job, "page_table") : NULL,
                                     .k_lengths = whole(cache, 4, job, "k_lengths"),
                                     .q_lengths = whole(cache, 5, job, "q_lengths"),
                                     .q_offsets = whole(cache, 6, job, "q_offsets"),
                                     .positions = whole(cache, 7, job, "positions"),
                                     .position_offsets = whole(cache, 8, job, "position_offsets")};
}

/* All heads of one token. */
static void put_row(const struct reference_rope *rope, const clattn_tensor *in, const clattn_tensor *out,
                    const double *values, int64_t batch, int64_t row, int64_t first, int64_t target, int64_t position,
                    double *want, double *plain) {
    const int64_t columns = out->dims[COLUMN];
    for (int64_t head = 0; first >= 0 && head < out->dims[HEAD]; head++) {
        const int64_t from = ((batch * in->dims[HEAD] + head) * in->dims[ROW] + row) * columns;
        const int64_t to = ((first * out->dims[HEAD] + head) * out->dims[ROW] + target) * columns;
        reference_rope_row(rope, columns, position, values + from, want + to);
        plain_rope_row(rope, out->dtype, columns, position, values + from, plain + to);
    }
}

static bool fill_part(const struct job *job, struct job_cache *cache, int part, double *want, double *plain) {
    const struct job_tensor *in = job_find(job, in_names[part]), *out = output_of(job, part);
    const clattn_rope_append_op *op = &job->op.rope_append;
    const double *values = whole(cache, (size_t)part, job, in_names[part]);
    const struct reference_append append = append_of(job, cache, in->view.dims[ROW]);
    const struct reference_rope rope = {.style = op->style,
                                        .rotary_dim = part == PART_V ? 0 : rotary_dim_of(job),
                                        .base = op->rope_base,
                                        .scale = op->frequency_scale,
                                        .cos = whole(cache, 9, job, "cos"),
                                        .sin = whole(cache, 10, job, "sin")};
    if (!values)
        return false;
    for (size_t i = 0; i < out->host.count; i++)
        want[i] = plain[i] = (double)NAN;
    for (int64_t b = 0; b < in->view.dims[BATCH]; b++)
        for (int64_t row = 0; row < in->view.dims[ROW]; row++) {
            const struct reference_new_row at = reference_append_locate(&append, b, row);
            if (at.exists)
                put_row(&rope, &in->view, &out->view, values, b, row, part == PART_Q ? b : at.page,
                        part == PART_Q ? row : at.row, at.position, want, plain);
        }
    if (out->derived)
        job_rope_round(job, in_names[part], plain);
    return true;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    (void)row;
    for (int part = 0; part < PARTS; part++) {
        const struct job_tensor *out = output_of(job, part);
        if (!out)
            continue;
        if (!fill_part(job, cache, part, want, plain))
            return false;
        want += out->host.count;
        plain += out->host.count;
    }
    return true;
}

static double flops(const struct job *job) {
    double turned = 0;
    for (int i = PART_Q; i <= PART_K; i++)
        if (job_find(job, in_names[i]))
            turned += (double)job_find(job, in_names[i])->host.count;
    return 3 * turned;
}

static void describe(const struct job *job, char *text, size_t size) {
    const struct job_tensor *q = job_find(job, "q"), *k = job_find(job, "k"), *v = job_find(job, "v");
    const clattn_tensor *of_kv = k ? &k->view : v ? &v->view : NULL, *any = q ? &q->view : of_kv;
    snprintf(text, size, "%lld,%lld,%lld,%lld,%lld,%lld rotary %lld%s%s%s", (long long)any->dims[BATCH],
             q ? (long long)q->view.dims[HEAD] : 0, of_kv ? (long long)of_kv->dims[HEAD] : 0, (long long)any->dims[ROW],
             (long long)any->dims[COLUMN], v ? (long long)v->view.dims[COLUMN] : 0, (long long)rotary_dim_of(job),
             job_find(job, "page_table") ? " paged" : "", job_find(job, "k_values") ? " k codes" : "",
             job_find(job, "v_values") ? " v codes" : "");
}

const struct job_kind job_rope_append = {.name = "rope_append",
                                         .shape = "B,HQ,HKV,N,D[,DV]",
                                         .op = CLATTN_OP_ROPE_APPEND,
                                         .memory_bound = true,
                                         .generate = generate,
                                         .arrange = arrange,
                                         .derive = job_rope_derive,
                                         .bind = bind,
                                         .call = call,
                                         .rows = rows,
                                         .reference = reference,
                                         .flops = flops,
                                         .describe = describe};
