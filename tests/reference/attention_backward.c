/* Gradients of attention as the chain rule says, one query row at a time, in double precision: a row adds what it owes
 * to its keys and values, to the cells of the bias and to its head's sink. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One row's scores and what they are made of. */
struct row {
    const struct reference_attention *problem;
    const struct reference_row *at;
    const double *query, *keys, *values;
    double max, sum, sink;
};

/* *slope: the soft cap's derivative there. */
static double score(const struct row *row, int64_t j, double *slope) {
    const struct reference_attention *problem = row->problem;
    double x = 0;
    for (int64_t c = 0; c < problem->head_dim; c++)
        x += row->query[c] * row->keys[j * problem->head_dim + c];
    x *= problem->scale;
    *slope = 1;
    if (problem->softcap > 0) {
        const double t = tanh(x / problem->softcap);
        x = problem->softcap * t;
        *slope = 1 - t * t;
    }
    x += reference_attention_slope(problem, row->at) * ((double)j - row->at->position);
    return x + reference_attention_bias(problem, row->at, j);
}

static double probability(const struct row *row, double x) {
    return exp(x - row->max) / row->sum;
}

/* False where the row sees no key. */
static bool find_state(struct row *row) {
    const struct reference_attention *problem = row->problem;
    double slope;
    bool sees = false;
    row->sink = problem->sinks ? problem->sinks[row->at->head] : -INFINITY;
    row->max = row->sink;
    for (int64_t j = row->at->first_key; j < row->at->end_key; j++)
        if (reference_attention_sees(problem, row->at, j)) {
            row->max = fmax(row->max, score(row, j, &slope));
            sees = true;
        }
    row->sum = row->sink != -INFINITY ? exp(row->sink - row->max) : 0;
    for (int64_t j = row->at->first_key; j < row->at->end_key; j++)
        if (reference_attention_sees(problem, row->at, j))
            row->sum += exp(score(row, j, &slope) - row->max);
    return sees;
}

/* dP of key j. */
static double against_value(const struct row *row, const double *dout, int64_t j) {
    const int64_t dv = row->problem->value_dim;
    double sum = 0;
    for (int64_t c = 0; c < dv; c++)
        sum += dout[c] * row->values[j * dv + c];
    return sum;
}

static void add_key(const struct row *row, const struct reference_gradients *to, int64_t query_row, const double *dout,
                    double delta, int64_t j) {
    const struct reference_attention *problem = row->problem;
    const int64_t d = problem->head_dim, dv = problem->value_dim;
    const int64_t key = reference_attention_key(problem, row->at, j);
    double slope;
    const double p = probability(row, score(row, j, &slope));
    const double ds = p * (against_value(row, dout, j) - delta), dx = ds * slope * problem->scale;
    for (int64_t c = 0; to->dq && c < d; c++)
        to->dq[query_row * d + c] += dx * row->keys[j * d + c];
    for (int64_t c = 0; to->dk && key >= 0 && c < d; c++)
        to->dk[key * d + c] += dx * row->query[c];
    for (int64_t c = 0; to->dv && key >= 0 && c < dv; c++)
        to->dv[key * dv + c] += p * dout[c];
    if (to->dbias)
        to->dbias[reference_attention_bias_cell(problem, row->at, j)] += ds;
}

static void add_row(const struct row *row, const struct reference_gradients *to, int64_t query_row, const double *dout,
                    double dlse) {
    const struct reference_attention *problem = row->problem;
    double delta = -dlse, slope;
    for (int64_t j = row->at->first_key; j < row->at->end_key; j++)
        if (reference_attention_sees(problem, row->at, j))
            delta += probability(row, score(row, j, &slope)) * against_value(row, dout, j);
    if (to->dsinks && row->sink != -INFINITY)
        to->dsinks[row->at->head] -= probability(row, row->sink) * delta;
    for (int64_t j = row->at->first_key; j < row->at->end_key; j++)
        if (reference_attention_sees(problem, row->at, j))
            add_key(row, to, query_row, dout, delta, j);
}

void reference_attention_backward(const struct reference_attention *problem, const double *q, const double *k,
                                  const double *v, const double *dout, const double *dlse,
                                  const struct reference_gradients *to) {
    for (int64_t i = 0; i < reference_attention_rows(problem); i++) {
        const struct reference_row at = reference_attention_locate(problem, i);
        double *keys, *values;
        if (at.sequence < 0 || at.query >= at.queries)
            continue;
        reference_attention_gather(problem, &at, k, v, &keys, &values);
        struct row row = {
            .problem = problem, .at = &at, .query = q + i * problem->head_dim, .keys = keys, .values = values};
        const double from_lse = dlse ? dlse[i] : 0;
        if (find_state(&row))
            add_row(&row, to, i, dout + i * problem->value_dim, from_lse);
        else if (to->dsinks && row.sink != -INFINITY)
            to->dsinks[at.head] += from_lse;
        free(keys);
        free(values);
    }
}
