/* The inputs of attention problems: from the rows of the tables of cases, or random. */
#include "attention_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *array_of(int64_t count) {
    double *array = calloc((size_t)(count > 0 ? count : 1), sizeof *array);
    if (!array)
        abort();
    return array;
}

static clattn_tensor shape_of(clattn_dtype dtype, int rank, const int64_t *dims) {
    clattn_tensor shape = {.dtype = dtype, .rank = rank};
    memcpy(shape.dims, dims, (size_t)rank * sizeof *dims);
    return shape;
}

double *attention_data_add(clattn_tensor *shape, double **array, clattn_dtype dtype, int rank, const int64_t *dims) {
    *shape = shape_of(dtype, rank, dims);
    free(*array);
    return *array = array_of(reference_count(shape));
}

int64_t attention_row_count(const struct attention_data *data) {
    return reference_attention_rows(&data->problem);
}

int64_t attention_o_count(const struct attention_data *data) {
    return attention_row_count(data) * data->problem.value_dim;
}

/* ---- from a case ---- */

static void fill(double *array, case_fill values, clattn_dtype dtype, const int64_t *dims) {
    case_values(values, dims[0], dims[1], dims[2], dims[3], array);
    for (int64_t i = 0; i < dims[0] * dims[1] * dims[2] * dims[3]; i++)
        array[i] = reference_round(dtype, array[i]);
}

static void add_grid(clattn_tensor *shape, double **array, clattn_dtype dtype, const struct case_grid *grid) {
    if (grid->dims[0] == 0)
        return;
    attention_data_add(shape, array, dtype, 4, grid->dims);
    if (grid->fill)
        fill(*array, grid->fill, dtype, grid->dims);
    for (int64_t i = 0; grid->values && i < reference_count(shape); i++)
        (*array)[i] = reference_round(dtype, grid->values[i]);
}

static void add_list(clattn_tensor *shape, double **array, clattn_dtype dtype, int64_t count, const double *values) {
    if (values)
        memcpy(attention_data_add(shape, array, dtype, 1, &count), values, (size_t)count * sizeof *values);
}

static void add_modifiers(struct attention_data *data, const struct attention_case *c) {
    const struct case_modifiers *with = &c->with;
    clattn_attention_op *op = &data->settings;
    op->window_left = with->has_window ? with->window_left : -1;
    op->window_right = with->has_window ? with->window_right : -1;
    op->softcap = with->softcap;
    op->max_q = with->max_q;
    op->max_k = with->max_k;
    add_grid(&op->mask, &data->mask, CLATTN_U8, &with->mask);
    add_grid(&op->bias, &data->bias, data->dtype, &with->bias);
    add_list(&op->alibi, &data->alibi, CLATTN_F32, c->heads, with->alibi);
    add_list(&op->sinks, &data->sinks, CLATTN_F32, c->heads, with->sinks);
    add_list(&op->q_lengths, &data->q_lengths, CLATTN_I32, c->batch, with->q_lengths);
    add_list(&op->k_lengths, &data->k_lengths, CLATTN_I32, c->batch, with->k_lengths);
    add_list(&op->q_offsets, &data->q_offsets, CLATTN_I32, c->batch + 1, with->q_offsets);
    add_list(&op->k_offsets, &data->k_offsets, CLATTN_I32, c->batch + 1, with->k_offsets);
    if (with->page_table) {
        const int64_t dims[2] = {c->batch, with->max_pages};
        memcpy(attention_data_add(&op->page_table, &data->page_table, CLATTN_I32, 2, dims), with->page_table,
               (size_t)(dims[0] * dims[1]) * sizeof(double));
    }
}

void attention_data_bind(struct attention_data *data) {
    data->problem = reference_attention_of(&data->settings);
    data->problem.mask.values = data->mask;
    data->problem.bias.values = data->bias;
    data->problem.alibi.values = data->alibi;
    data->problem.sinks = data->sinks;
    data->problem.q_lengths = data->q_lengths;
    data->problem.k_lengths = data->k_lengths;
    data->problem.q_offsets = data->q_offsets;
    data->problem.k_offsets = data->k_offsets;
    data->problem.page_table = data->page_table;
}

struct attention_data attention_data_of(const struct attention_case *c, clattn_dtype dtype) {
    const int64_t q_slabs = c->with.q_offsets ? 1 : c->batch;
    const int64_t k_slabs = c->with.page_table ? c->with.pages : c->with.k_offsets ? 1 : c->batch;
    const int64_t q_dims[4] = {q_slabs, c->heads, c->nq, c->head_dim};
    const int64_t k_dims[4] = {k_slabs, c->kv_heads, c->nk, c->head_dim};
    const int64_t v_dims[4] = {k_slabs, c->kv_heads, c->nk, c->value_dim};
    struct attention_data data = {.name = c->name, .dtype = dtype, .out_dtype = dtype};
    clattn_attention_op *op = &data.settings;
    op->head.size = sizeof *op;
    op->head.kind = CLATTN_OP_ATTENTION;
    op->causal = c->causal;
    op->has_diagonal = c->has_diagonal;
    op->diagonal = c->diagonal;
    op->has_scale = c->has_scale;
    op->scale = c->scale;
    fill(attention_data_add(&op->q, &data.q, dtype, 4, q_dims), c->q, dtype, q_dims);
    fill(attention_data_add(&op->k, &data.k, dtype, 4, k_dims), c->k, dtype, k_dims);
    fill(attention_data_add(&op->v, &data.v, dtype, 4, v_dims), c->v, dtype, v_dims);
    add_modifiers(&data, c);
    attention_data_bind(&data);
    return data;
}

struct attention_data attention_data_random(const struct attention_case *shape, clattn_dtype dtype, uint64_t seed) {
    struct attention_case c = *shape;
    c.q = c.k = c.v = fill_zero;
    struct attention_data data = attention_data_of(&c, dtype);
    double *const arrays[] = {data.q, data.k, data.v};
    const clattn_tensor *const shapes[] = {&data.settings.q, &data.settings.k, &data.settings.v};
    for (uint64_t a = 0; a < 3; a++)
        for (int64_t i = 0; i < reference_count(shapes[a]); i++)
            arrays[a][i] = reference_round(dtype, (a == 0 ? 2 : 1) * reference_normal((uint64_t)i, seed * 3 + a));
    return data;
}

void attention_data_fill_mask(struct attention_data *data, uint32_t seed) {
    const int64_t *dims = data->settings.mask.dims;
    int64_t at[4], flat = 0;
    for (at[0] = 0; at[0] < dims[0]; at[0]++)
        for (at[1] = 0; at[1] < dims[1]; at[1]++)
            for (at[2] = 0; at[2] < dims[2]; at[2]++)
                for (at[3] = 0; at[3] < dims[3]; at[3]++, flat++) {
                    const uint32_t block = (uint32_t)((at[0] * dims[1] + at[1]) * 64 + at[2] / 40 * 16 + at[3] / 50);
                    const double kind = reference_u(block, seed), mixed = reference_u((uint32_t)flat, seed + 1);
                    data->mask[flat] = kind < -0.4 ? 0 : kind > 0.4 || mixed > 0 ? 1 + (double)(flat % 255) : 0;
                }
}

/* ---- what is not looked at ---- */

struct seen {
    bool *queries, *keys, *biases;
};

static void note_row(const struct attention_data *data, const struct reference_attention *without_bias, int64_t row,
                     struct seen *seen) {
    const struct reference_row at = reference_attention_locate(&data->problem, row);
    const int64_t *dims = data->problem.bias.dims;
    seen->queries[row] = at.sequence >= 0 && at.query < at.queries;
    for (int64_t j = at.first_key; j < at.end_key; j++) {
        if (!reference_attention_sees(without_bias, &at, j))
            continue;
        if (data->bias) {
            const int64_t index[4] = {at.sequence, at.head, at.query, j};
            int64_t flat = 0;
            for (int d = 0; d < 4; d++)
                flat = flat * dims[d] + (dims[d] == 1 ? 0 : index[d]);
            seen->biases[flat] = true;
        }
        const int64_t key = reference_attention_key(&data->problem, &at, j);
        if (key >= 0 && reference_attention_sees(&data->problem, &at, j))
            seen->keys[key] = true;
    }
}

static void poison_rows(double *array, const bool *seen, int64_t rows, int64_t columns, double value) {
    for (int64_t i = 0; i < rows * columns; i++)
        if (!seen[i / columns])
            array[i] = value;
}

void attention_data_poison(struct attention_data *data, double value) {
    const int64_t rows = attention_row_count(data), dv = data->problem.value_dim;
    const int64_t keys = reference_count(&data->settings.k) / data->problem.head_dim;
    const int64_t biases = data->bias ? reference_count(&data->settings.bias) : 0;
    struct reference_attention without_bias = data->problem;
    struct seen seen = {calloc((size_t)rows + 1, 1), calloc((size_t)keys + 1, 1), calloc((size_t)biases + 1, 1)};
    if (!seen.queries || !seen.keys || !seen.biases)
        abort();
    without_bias.bias.values = NULL;
    for (int64_t row = 0; row < rows; row++)
        note_row(data, &without_bias, row, &seen);
    poison_rows(data->q, seen.queries, rows, data->problem.head_dim, value);
    poison_rows(data->k, seen.keys, keys, data->problem.head_dim, value);
    if (dv > 0)
        poison_rows(data->v, seen.keys, keys, dv, value);
    if (data->bias)
        poison_rows(data->bias, seen.biases, biases, 1, value);
    free(seen.queries);
    free(seen.keys);
    free(seen.biases);
}

static void free_codes(const struct attention_codes *codes) {
    free(codes->codes);
    free(codes->scales);
    free(codes->zeros);
}

void attention_data_free(struct attention_data *data) {
    double *const arrays[] = {data->q,         data->k,         data->v,         data->mask,
                              data->bias,      data->alibi,     data->sinks,     data->q_lengths,
                              data->k_lengths, data->q_offsets, data->k_offsets, data->page_table};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    free_codes(&data->codes_k);
    free_codes(&data->codes_v);
    memset(data, 0, sizeof *data);
}
