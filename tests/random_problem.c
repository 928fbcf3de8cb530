/* Draws attention problems. Everything comes from one generator whose state the seed sets, so that a problem can be
 * repeated by its seed alone. */
#include "random_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state;

static void start(uint64_t seed) {
    random_state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    random_state = (random_state ^ random_state >> 29) | 1;
}

/* Uniform in [low, high]. */
static int64_t pick(int64_t low, int64_t high) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (int64_t)((random_state >> 11) % (uint64_t)(high - low + 1));
}

static bool chance(int64_t percent) {
    return pick(1, 100) <= percent;
}

static double normal(void) {
    return reference_normal((uint64_t)pick(0, INT64_C(1) << 40), random_state);
}

static int64_t random_group(void) {
    static const int64_t groups[] = {1, 1, 2, 3, 7};
    return groups[pick(0, 4)];
}

static void draw_dims(struct random_program *p) {
    static const int64_t dims[][2] = {{64, 64}, {64, 64},  {64, 64},   {64, 64},  {64, 64},
                                      {40, 24}, {128, 64}, {192, 128}, {576, 512}};
    const int64_t number = pick(0, 10);
    p->head_dim = number < 9 ? dims[number][0] : pick(1, number == 9 ? 576 : 80);
    p->value_dim = number < 9 ? dims[number][1] : pick(1, number == 9 ? 512 : 80);
}

/* Of keys, of values, or of both, each on its own. */
static void draw_formats(struct random_program *p) {
    static const struct code_format formats[] = {
        {.dtype = CLATTN_I8, .block = 32},
        {.dtype = CLATTN_I8, .block = 64, .zeros = true, .gap = 3, .offset = 1, .tokens_first = true},
        {.dtype = CLATTN_I8, .block = 32, .zeros = true, .tokens_first = true},
        {.dtype = CLATTN_I4, .block = 32},
        {.dtype = CLATTN_I4, .block = 64, .zeros = true, .gap = 6, .offset = 2, .tokens_first = true},
        {.dtype = CLATTN_I4, .block = 64, .nibbles = CLATTN_NIBBLES_HALVES, .zeros = true, .gap = 2},
        {.dtype = CLATTN_F8_E4M3},
        {.dtype = CLATTN_F8_E4M3, .gap = 5, .offset = 3}};
    const int64_t which = chance(15) ? pick(1, 3) : 0;
    p->k_format = which & 1 ? &formats[pick(0, 7)] : NULL;
    p->v_format = which & 2 ? &formats[pick(0, 7)] : NULL;
}

struct random_program random_program(uint64_t seed, uint64_t number) {
    struct random_program p = {.dtype = all_dtypes[number % 3]};
    start(seed * 1000003 + number);
    for (int i = 0; i < 8; i++)
        (void)pick(0, 1);
    draw_dims(&p);
    draw_formats(&p);
    p.out_dtype = chance(25) ? CLATTN_F32 : p.dtype;
    p.bias_dtype = chance(50) ? CLATTN_F32 : p.dtype;
    p.band = chance(60);
    p.mask = chance(35);
    p.bias = chance(35);
    p.sequences = chance(50);
    p.paged = chance(25);
    p.alibi = chance(30);
    p.softcap = chance(30);
    p.sinks = chance(35);
    p.aligned = chance(50) && p.head_dim % 8 == 0 && p.value_dim % 8 == 0;
    p.without_lse = chance(10);
    p.variant = (uint64_t)pick(0, 1000);
    p.heads_per_kv = random_group();
    return p;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

/* The axes in any order, each with room to spare; the innermost dense where it must be. aligned: to 8 elements, where
 * their number allows it, or where they may be rounded up to that. */
static struct test_layout random_layout(const clattn_tensor *shape, bool dense, bool aligned, bool rounds) {
    const int64_t unit = aligned ? 8 : 1;
    struct test_layout layout = {.offset = chance(50) ? unit * pick(0, 40) : 0};
    int order[CLATTN_MAX_RANK] = {0, 1, 2, 3};
    const int outer = shape->rank - (dense ? 1 : 0);
    int64_t extent = dense ? shape->dims[outer] : 1;
    for (int i = outer - 1; i > 0; i--) {
        const int j = (int)pick(0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    if (dense)
        layout.strides[outer] = 1;
    for (int i = outer - 1; i >= 0; i--) {
        extent += chance(33) ? unit * pick(0, 9) : 0;
        if (rounds && extent % unit != 0 && chance(50))
            extent += unit - extent % unit;
        layout.strides[order[i]] = extent;
        extent *= shape->dims[order[i]] > 0 ? shape->dims[order[i]] : 1;
    }
    return layout;
}

/* Repeats the first slice of an axis over the others and gives the axis a stride of 0. */
static void repeat_axis(struct test_layout *layout, const clattn_tensor *shape, double *values, int axis) {
    const int64_t count = reference_count(shape);
    int64_t inner = 1;
    for (int d = axis + 1; d < shape->rank; d++)
        inner *= shape->dims[d];
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i / inner / shape->dims[axis] * shape->dims[axis] * inner + i % inner];
    layout->strides[axis] = 0;
}

static void lay_out_input(const struct random_program *program, const clattn_tensor *shape, double *values,
                          struct test_layout *layout, const struct test_layout **used, bool dense) {
    if (!values)
        return;
    const bool is_plane =
        shape->rank == 4 && shape->dims[3] != program->head_dim && shape->dims[3] != program->value_dim;
    *layout = random_layout(shape, dense, program->aligned, is_plane);
    if (shape->rank == 4 && chance(15))
        repeat_axis(layout, shape, values, (int)pick(0, dense ? 1 : 3));
    *used = layout;
}

static void lay_out(const struct random_program *program, struct attention_data *data, struct random_layouts *layouts) {
    const clattn_attention_op *op = &data->settings;
    clattn_tensor o = op->q;
    o.dims[3] = program->value_dim;
    layouts->o = random_layout(&o, true, program->aligned, false);
    o.rank = 3;
    layouts->lse = random_layout(&o, false, false, false);
    data->layout_o = &layouts->o;
    data->layout_lse = &layouts->lse;
    lay_out_input(program, &op->q, data->q, &layouts->q, &data->layout_q, true);
    if (!program->aligned) /* and not by chance either */
        layouts->q.offset |= 1;
    lay_out_input(program, &op->k, data->k, &layouts->k, &data->layout_k, true);
    lay_out_input(program, &op->v, data->v, &layouts->v, &data->layout_v, true);
    lay_out_input(program, &op->mask, data->mask, &layouts->mask, &data->layout_mask, chance(50));
    lay_out_input(program, &op->bias, data->bias, &layouts->bias, &data->layout_bias, chance(50));
    lay_out_input(program, &op->alibi, data->alibi, &layouts->alibi, &data->layout_alibi, true);
    lay_out_input(program, &op->sinks, data->sinks, &layouts->sinks, &data->layout_sinks, true);
    lay_out_input(program, &op->q_lengths, data->q_lengths, &layouts->q_lengths, &data->layout_q_lengths, true);
    lay_out_input(program, &op->k_lengths, data->k_lengths, &layouts->k_lengths, &data->layout_k_lengths, true);
    lay_out_input(program, &op->q_offsets, data->q_offsets, &layouts->q_offsets, &data->layout_q_offsets, true);
    lay_out_input(program, &op->k_offsets, data->k_offsets, &layouts->k_offsets, &data->layout_k_offsets, true);
    lay_out_input(program, &op->page_table, data->page_table, &layouts->page_table, &data->layout_page_table, true);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

enum { MOST_SEQUENCES = 5, MOST_PAGES = 6 };

/* The lists that a case points at. */
struct lists {
    double q_lengths[MOST_SEQUENCES], k_lengths[MOST_SEQUENCES];
    double q_offsets[MOST_SEQUENCES + 1], k_offsets[MOST_SEQUENCES + 1];
    double page_table[MOST_SEQUENCES * MOST_PAGES];
    double alibi[32], sinks[32];
};

static const double *draw_lengths(double *lengths, int64_t batch, int64_t most) {
    for (int64_t b = 0; b < batch; b++)
        lengths[b] = (double)(chance(15) ? 0 : chance(15) ? most : pick(0, most));
    return lengths;
}

/* Sequences of up to `most` rows one behind the other, with rows before and behind; *total is how many in all. */
static const double *draw_offsets(double *offsets, int64_t batch, int64_t most, int64_t *total) {
    offsets[0] = (double)(chance(25) ? pick(0, 9) : 0);
    for (int64_t b = 0; b < batch; b++)
        offsets[b + 1] = offsets[b] + (double)(chance(15) ? 0 : pick(0, most));
    *total = (int64_t)offsets[batch] + (chance(25) ? pick(0, 9) : 0);
    return offsets;
}

static void draw_sequences(struct attention_case *c, struct lists *lists, bool paged) {
    struct case_modifiers *with = &c->with;
    const int64_t nq = c->nq, nk = c->nk;
    const int which = (int)pick(1, 15);
    if (which & 1)
        with->q_lengths = draw_lengths(lists->q_lengths, c->batch, nq);
    if (which & 2 || (paged && which == 8))
        with->k_lengths = draw_lengths(lists->k_lengths, c->batch, paged ? with->max_pages * nk : nk);
    if (which & 4)
        with->q_offsets = draw_offsets(lists->q_offsets, c->batch, nq, &c->nq);
    if (which & 8 && !paged)
        with->k_offsets = draw_offsets(lists->k_offsets, c->batch, nk, &c->nk);
    if (with->q_offsets && chance(50))
        with->max_q = pick(nq, nq + 5);
    if (with->k_offsets && chance(50))
        with->max_k = pick(nk > 0 ? nk : 1, nk + 5);
}

static void draw_pages(struct attention_case *c, struct lists *lists, int64_t page_size) {
    static const int64_t sizes[] = {1, 5, 16, 16, 32, 64, 100};
    const int64_t drawn = sizes[pick(0, 6)];
    c->nk = page_size > 0 ? page_size : drawn;
    c->with.max_pages = pick(1, MOST_PAGES);
    c->with.pages = pick(1, 9);
    for (int64_t i = 0; i < c->batch * c->with.max_pages; i++)
        lists->page_table[i] = (double)pick(0, c->with.pages - 1);
    c->with.page_table = lists->page_table;
}

static void draw_band(struct attention_case *c) {
    struct case_modifiers *with = &c->with;
    c->causal = (clattn_causal)pick(0, 2);
    with->has_window = c->causal == CLATTN_CAUSAL_NONE || chance(40);
    with->window_left = chance(30) ? -1 : pick(0, chance(50) ? 20 : 200);
    with->window_right = with->window_left >= 0 && chance(30) ? -1 : pick(0, chance(50) ? 20 : 200);
}

static void draw_heads(struct attention_case *c, struct lists *lists, const struct random_program *program) {
    const int64_t group = random_group();
    c->kv_heads = pick(1, 3);
    c->heads = c->kv_heads * (program->heads_per_kv > 0 ? program->heads_per_kv : group);
    for (int64_t h = 0; h < c->heads; h++) {
        lists->alibi[h] = (double)(float)(ldexp(1, (int)-pick(1, 8)) * (chance(10) ? -1 : 1));
        lists->sinks[h] = chance(10) ? EMPTY : (double)(float)(3 * normal());
    }
    c->with.alibi = program->alibi ? lists->alibi : NULL;
    c->with.sinks = program->sinks ? lists->sinks : NULL;
}

static struct attention_case draw_case(const struct random_program *program, struct lists *lists) {
    struct attention_case c = {.name = "random", .head_dim = program->head_dim, .value_dim = program->value_dim};
    c.batch = pick(1, program->sequences ? MOST_SEQUENCES : 3);
    c.nq = chance(75) ? pick(1, 40) : pick(1, 150);
    c.nk = chance(75) ? pick(0, 70) : pick(1, 300);
    draw_heads(&c, lists, program);
    if (program->band)
        draw_band(&c);
    if (program->paged)
        draw_pages(&c, lists, program->page_size);
    if (program->sequences)
        draw_sequences(&c, lists, program->paged);
    c.has_diagonal = chance(20);
    c.diagonal = pick(-c.nq - 5, c.nk + 5);
    c.has_scale = chance(30);
    c.scale = (float)pick(-64, 64) / 256;
    c.with.softcap = program->softcap ? (float)ldexp(1, (int)pick(-1, 6)) : 0;
    return c;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

/* Each axis whole or 1; of sequences with offsets or pages, the longest that there can be. */
static void draw_plane(struct attention_data *data, clattn_tensor *shape, double **array, clattn_dtype dtype) {
    const struct reference_attention *p = &data->problem;
    const int64_t columns = reference_attention_columns(p);
    const int64_t longest_q = p->q_offsets && p->max_q > 0 && p->max_q < p->nq ? p->max_q : p->nq;
    const int64_t longest_k = p->max_k > 0 && p->max_k < columns ? p->max_k : columns;
    const int64_t extra = p->q_offsets ? pick(0, 3) : 0;
    const int64_t all[4] = {p->batch, p->heads, longest_q + extra, longest_k};
    int64_t dims[4];
    for (int d = 0; d < 4; d++)
        dims[d] = chance(d < 2 ? 40 : 75) ? all[d] : 1;
    attention_data_add(shape, array, dtype, 4, dims);
}

static void draw_planes(const struct random_program *program, struct attention_data *data) {
    clattn_attention_op *op = &data->settings;
    if (program->mask) {
        draw_plane(data, &op->mask, &data->mask, CLATTN_U8);
        attention_data_fill_mask(data, (uint32_t)pick(0, 1 << 20));
    }
    if (program->bias) {
        draw_plane(data, &op->bias, &data->bias, program->bias_dtype);
        for (int64_t i = 0; i < reference_count(&op->bias); i++)
            data->bias[i] = chance(10) ? EMPTY : reference_round(program->bias_dtype, normal());
    }
    if (program->alibi && chance(50)) { /* slopes of each sequence's own */
        const int64_t heads = data->problem.heads, dims[2] = {data->problem.batch, heads};
        attention_data_add(&op->alibi, &data->alibi, CLATTN_F32, 2, dims);
        for (int64_t i = 0; i < dims[0] * heads; i++)
            data->alibi[i] = ldexp(1, (int)-pick(1, 8));
    }
    attention_data_bind(data);
}

/* Table entries that no key needs hold anything. */
static void spoil_unused_pages(struct attention_data *data) {
    static const double junk[] = {-1, 2147483647, -2147483647, 1000, 9};
    const struct reference_attention *p = &data->problem;
    const int64_t columns = reference_attention_columns(p);
    for (int64_t b = 0; b < p->batch && data->page_table; b++) {
        double keys = data->k_lengths ? data->k_lengths[b] : (double)columns;
        if (p->max_k > 0)
            keys = fmin(keys, (double)p->max_k);
        for (int64_t page = 0; page < p->max_pages; page++)
            if ((double)(page * p->nk) >= keys)
                data->page_table[b * p->max_pages + page] = junk[pick(0, 4)];
    }
}

/* NaN or infinity in values and NaN in keys, seen by some rows, by all or by none. Codes have none. */
static void spoil_seen_values(const struct random_program *program, struct attention_data *data) {
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    const int64_t keys = reference_count(&data->settings.k) / data->problem.head_dim;
    if (keys == 0 || !chance(12) || program->k_format || program->v_format)
        return;
    data->v[pick(0, keys - 1) * data->problem.value_dim + pick(0, data->problem.value_dim - 1)] = special[pick(0, 2)];
    if (chance(30))
        data->k[pick(0, keys - 1) * data->problem.head_dim] = (double)NAN;
}

static void describe(const struct attention_data *data, const struct attention_case *c, char *text, size_t size) {
    const clattn_attention_op *op = &data->settings;
    snprintf(
        text, size,
        "%s B%lld H%lld/%lld q%lld k%lld D%lld/%lld causal %d diagonal %d:%lld window %lld:%lld scale %d:%g cap %g "
        "max %lld:%lld%s%s%s%s%s%s%s%s%s%s%s",
        dtype_name(data->dtype), (long long)c->batch, (long long)c->heads, (long long)c->kv_heads, (long long)c->nq,
        (long long)c->nk, (long long)c->head_dim, (long long)c->value_dim, (int)op->causal, op->has_diagonal,
        (long long)op->diagonal, (long long)op->window_left, (long long)op->window_right, op->has_scale,
        (double)op->scale, (double)op->softcap, (long long)op->max_q, (long long)op->max_k, data->mask ? " mask" : "",
        data->bias ? " bias" : "", data->alibi ? " alibi" : "", data->sinks ? " sinks" : "",
        data->q_lengths ? " q_lengths" : "", data->k_lengths ? " k_lengths" : "", data->q_offsets ? " q_offsets" : "",
        data->k_offsets ? " k_offsets" : "", data->page_table ? " pages" : "",
        data->codes_k.format ? " codes of k" : "", data->codes_v.format ? " codes of v" : "");
}

struct attention_data random_problem(const struct random_program *program, uint64_t seed,
                                     struct random_layouts *layouts, char *text, size_t size) {
    struct lists lists;
    start(seed);
    for (int i = 0; i < 8; i++)
        (void)pick(0, 1);
    const struct attention_case c = draw_case(program, &lists);
    struct attention_data data = attention_data_random(&c, program->dtype, random_state);
    data.out_dtype = program->out_dtype;
    data.without_lse = program->without_lse;
    data.gap = chance(50) ? (double)INFINITY : 0;
    draw_planes(program, &data);
    spoil_unused_pages(&data);
    spoil_seen_values(program, &data);
    lay_out(program, &data, layouts);
    if (program->k_format)
        attention_codes_make(&data, &data.codes_k, program->k_format);
    if (program->v_format)
        attention_codes_make(&data, &data.codes_v, program->v_format);
    describe(&data, &c, text, size);
    data.name = text;
    return data;
}
