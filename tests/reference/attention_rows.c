/* Which query of which sequence a row of the result is, where its keys lie, and which of them it sees. Shared by the
 * oracle and the plain version. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct reference_grid grid_of(const clattn_tensor *tensor) {
    struct reference_grid grid = {.dims = {1, 1, 1, 1}};
    for (int d = 0; d < tensor->rank; d++)
        grid.dims[d] = tensor->dims[d];
    return grid;
}

/* alibi [Hq] or [B,Hq] */
static struct reference_grid head_grid_of(const clattn_tensor *tensor) {
    struct reference_grid grid = {.dims = {1, 1, 1, 1}};
    if (tensor->rank > 0)
        grid.dims[1] = tensor->dims[tensor->rank - 1];
    if (tensor->rank == 2)
        grid.dims[0] = tensor->dims[0];
    return grid;
}

struct reference_attention reference_attention_of(const clattn_attention_op *op) {
    return (struct reference_attention){
        .batch = op->q_offsets.rank ? op->q_offsets.dims[0] - 1 : op->q.dims[0],
        .heads = op->q.dims[1],
        .nq = op->q.dims[2],
        .head_dim = op->q.dims[3],
        .kv_heads = op->k.dims[1],
        .nk = op->k.dims[2],
        .value_dim = op->v.dims[3],
        .scale = op->has_scale ? (double)op->scale : 1 / sqrt((double)op->q.dims[3]),
        .softcap = (double)op->softcap,
        .causal = op->causal != CLATTN_CAUSAL_NONE,
        .top_left = op->causal == CLATTN_CAUSAL_TOP_LEFT,
        .has_diagonal = op->has_diagonal != 0,
        .diagonal = op->diagonal,
        .window_left = op->window_left,
        .window_right = op->window_right,
        .max_q = op->max_q,
        .max_k = op->max_k,
        .mask = grid_of(&op->mask),
        .bias = grid_of(&op->bias),
        .alibi = head_grid_of(&op->alibi),
        .max_pages = op->page_table.rank ? op->page_table.dims[1] : 0,
    };
}

int64_t reference_attention_rows(const struct reference_attention *problem) {
    return (problem->q_offsets ? 1 : problem->batch) * problem->heads * problem->nq;
}

int64_t reference_attention_columns(const struct reference_attention *problem) {
    return problem->page_table ? problem->max_pages * problem->nk : problem->nk;
}

static int64_t cell_of(const struct reference_grid *grid, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t index[4] = {b, h, i, j};
    int64_t flat = 0;
    for (int d = 0; d < 4; d++)
        flat = flat * grid->dims[d] + (grid->dims[d] == 1 ? 0 : index[d]);
    return flat;
}

static double at_grid(const struct reference_grid *grid, int64_t b, int64_t h, int64_t i, int64_t j) {
    return grid->values[cell_of(grid, b, h, i, j)];
}

/* ---- lengths ---- */

/* `all` rows, or those between two offsets, cut to a given length and to the longest allowed. */
static int64_t length_of(int64_t all, const double *offsets, const double *lengths, int64_t longest, int64_t sequence) {
    int64_t length = offsets ? (int64_t)(offsets[sequence + 1] - offsets[sequence]) : all;
    if (lengths && lengths[sequence] < (double)length)
        length = lengths[sequence] > 0 ? (int64_t)lengths[sequence] : 0;
    return longest > 0 && longest < length ? longest : length;
}

static double off_of(const struct reference_attention *problem, const struct reference_row *at) {
    if (problem->has_diagonal)
        return (double)problem->diagonal;
    return problem->top_left ? 0 : (double)(at->keys - at->queries);
}

/* The sequence that has row r among those of all sequences, or -1. */
static int64_t sequence_of(const struct reference_attention *problem, int64_t r) {
    for (int64_t b = 0; b < problem->batch; b++)
        if ((double)r >= problem->q_offsets[b] && (double)r < problem->q_offsets[b + 1])
            return b;
    return -1;
}

/* ---- what a row sees ---- */

/* In double: whole numbers are exact, and no sum of diagonal and window overflows. */
static void find_key_range(const struct reference_attention *problem, struct reference_row *at) {
    double first = 0, end = (double)at->keys;
    if (problem->causal)
        end = fmin(end, at->position + 1);
    if (problem->window_left >= 0)
        first = fmax(first, at->position - (double)problem->window_left);
    if (problem->window_right >= 0)
        end = fmin(end, at->position + (double)problem->window_right + 1);
    if (at->query >= at->queries || end < first)
        end = first = 0;
    at->first_key = (int64_t)first;
    at->end_key = (int64_t)end;
}

struct reference_row reference_attention_locate(const struct reference_attention *problem, int64_t row) {
    const int64_t r = row % problem->nq;
    struct reference_row at = {.head = row / problem->nq % problem->heads, .query = r};
    at.sequence = problem->q_offsets ? sequence_of(problem, r) : row / problem->nq / problem->heads;
    if (at.sequence < 0)
        return at;
    if (problem->q_offsets)
        at.query = r - (int64_t)problem->q_offsets[at.sequence];
    at.queries = length_of(problem->nq, problem->q_offsets, problem->q_lengths, problem->max_q, at.sequence);
    at.keys = length_of(reference_attention_columns(problem), problem->k_offsets, problem->k_lengths, problem->max_k,
                        at.sequence);
    at.position = (double)at.query + off_of(problem, &at);
    find_key_range(problem, &at);
    return at;
}

bool reference_attention_sees(const struct reference_attention *problem, const struct reference_row *at, int64_t j) {
    const struct reference_grid *mask = &problem->mask, *bias = &problem->bias;
    if (j < at->first_key || j >= at->end_key)
        return false;
    if (mask->values && at_grid(mask, at->sequence, at->head, at->query, j) == 0)
        return false;
    return !bias->values || at_grid(bias, at->sequence, at->head, at->query, j) != -INFINITY;
}

double reference_attention_slope(const struct reference_attention *problem, const struct reference_row *at) {
    return problem->alibi.values ? at_grid(&problem->alibi, at->sequence, at->head, 0, 0) : 0;
}

double reference_attention_bias(const struct reference_attention *problem, const struct reference_row *at, int64_t j) {
    return problem->bias.values ? at_grid(&problem->bias, at->sequence, at->head, at->query, j) : 0;
}

int64_t reference_attention_bias_cell(const struct reference_attention *problem, const struct reference_row *at,
                                      int64_t j) {
    return cell_of(&problem->bias, at->sequence, at->head, at->query, j);
}

/* Heads differ only where mask or bias do. */
double reference_attention_pairs(const struct reference_attention *problem) {
    const bool listed = problem->mask.values || problem->bias.values;
    const bool alike = problem->mask.dims[1] == 1 && problem->bias.dims[1] == 1;
    double pairs = 0;
    for (int64_t row = 0; row < reference_attention_rows(problem); row++) {
        const struct reference_row at = reference_attention_locate(problem, row);
        if (at.sequence < 0 || (alike && at.head > 0))
            continue;
        int64_t seen = at.end_key - at.first_key;
        if (listed)
            seen = 0;
        for (int64_t j = at.first_key; listed && j < at.end_key; j++)
            seen += reference_attention_sees(problem, &at, j);
        pairs += (double)seen * (alike ? (double)problem->heads : 1);
    }
    return pairs;
}

/* ---- where the keys lie ---- */

int64_t reference_attention_key(const struct reference_attention *problem, const struct reference_row *at, int64_t j) {
    int64_t slab = at->sequence, row = j;
    if (problem->k_offsets) {
        slab = 0;
        row = (int64_t)problem->k_offsets[at->sequence] + j;
    } else if (problem->page_table) {
        slab = (int64_t)problem->page_table[at->sequence * problem->max_pages + j / problem->nk];
        row = j % problem->nk;
    }
    const int64_t kv_head = at->head / (problem->heads / problem->kv_heads);
    return slab < 0 ? -1 : (slab * problem->kv_heads + kv_head) * problem->nk + row;
}

void reference_attention_gather(const struct reference_attention *problem, const struct reference_row *at,
                                const double *k, const double *v, double **keys, double **values) {
    const int64_t d = problem->head_dim, dv = problem->value_dim;
    *keys = calloc((size_t)(at->end_key * d + 1), sizeof **keys);
    *values = calloc((size_t)(at->end_key * dv + 1), sizeof **values);
    if (!*keys || !*values)
        abort();
    for (int64_t j = at->first_key; j < at->end_key; j++) {
        const int64_t row = reference_attention_key(problem, at, j);
        if (row < 0)
            continue;
        memcpy(*keys + j * d, k + row * d, (size_t)d * sizeof **keys);
        memcpy(*values + j * dv, v + row * dv, (size_t)dv * sizeof **values);
    }
}
