/* Gradients of attention the plain way in the precision that the kernels have: fp32 arithmetic from the rounded o and
 * lse, P and the scores' gradients rounded to the storage type. Its error is the yardstick for every variant. Sums are
 * taken in several orders, as in plain_attention.c and for its reason. */
#include "plain.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>

struct row {
    const struct reference_attention *problem;
    const struct reference_row *at;
    enum plain_order order;
    clattn_dtype dtype;
    const double *query, *keys, *values, *dout;
    float lse, delta;
};

static float score(const struct row *row, int64_t j, float *slope) {
    const struct reference_attention *problem = row->problem;
    const float softcap = (float)problem->softcap;
    float x = 0;
    for (int64_t i = 0; i < problem->head_dim; i++) {
        const int64_t c = plain_term(row->order, i, problem->head_dim);
        x += (float)row->query[c] * (float)row->keys[j * problem->head_dim + c];
    }
    x *= (float)problem->scale;
    *slope = 1;
    if (softcap > 0) {
        const float t = tanhf(x / softcap);
        x = softcap * t;
        *slope = 1 - t * t;
    }
    x += (float)reference_attention_slope(problem, row->at) * (float)((double)j - row->at->position);
    return x + (float)reference_attention_bias(problem, row->at, j);
}

static float rounded(const struct row *row, float x) {
    return (float)reference_round(row->dtype, (double)x);
}

static void add(double *sum, float x) {
    *sum = (double)((float)*sum + x);
}

static void add_key(const struct row *row, const struct reference_gradients *to, int64_t query_row, int64_t j) {
    const struct reference_attention *problem = row->problem;
    const int64_t d = problem->head_dim, dv = problem->value_dim;
    const int64_t key = reference_attention_key(problem, row->at, j);
    float slope, dp = 0;
    const float p = expf(score(row, j, &slope) - row->lse);
    for (int64_t i = 0; i < dv; i++) {
        const int64_t c = plain_term(row->order, i, dv);
        dp += (float)row->dout[c] * (float)row->values[j * dv + c];
    }
    const float ds = p * (dp - row->delta), dx = rounded(row, ds * slope), scale = (float)problem->scale;
    for (int64_t c = 0; to->dq && c < d; c++)
        add(&to->dq[query_row * d + c], scale * (dx * (float)row->keys[j * d + c]));
    for (int64_t c = 0; to->dk && key >= 0 && c < d; c++)
        add(&to->dk[key * d + c], scale * (dx * (float)row->query[c]));
    for (int64_t c = 0; to->dv && key >= 0 && c < dv; c++)
        add(&to->dv[key * dv + c], rounded(row, p) * (float)row->dout[c]);
    if (to->dbias)
        add(&to->dbias[reference_attention_bias_cell(problem, row->at, j)], ds);
}

/* What leads from dout and o to the row's gradients. */
static float delta_of(const struct row *row, const double *o, double dlse) {
    const int64_t dv = row->problem->value_dim;
    float sum = 0;
    for (int64_t i = 0; i < dv; i++) {
        const int64_t c = plain_term(row->order, i, dv);
        sum += (float)row->dout[c] * (float)o[c];
    }
    return sum - (float)dlse;
}

static void add_row(const struct row *row, const struct reference_gradients *to, int64_t query_row) {
    const struct reference_row *at = row->at;
    const double *sinks = row->problem->sinks;
    const int64_t keys = at->end_key - at->first_key;
    if (to->dsinks && sinks[at->head] != -INFINITY)
        add(&to->dsinks[at->head], -expf((float)sinks[at->head] - row->lse) * row->delta);
    for (int64_t i = 0; i < keys; i++) {
        const int64_t j = at->first_key + plain_term(row->order, i, keys);
        if (reference_attention_sees(row->problem, at, j))
            add_key(row, to, query_row, j);
    }
}

/* All that is given. */
struct call {
    const struct reference_attention *problem;
    clattn_dtype dtype;
    const double *q, *k, *v, *o, *lse, *dout, *dlse;
};

static void add_rows(const struct call *call, enum plain_order order, const struct reference_gradients *to) {
    const struct reference_attention *problem = call->problem;
    const int64_t rows = reference_attention_rows(problem), dv = problem->value_dim;
    for (int64_t n = 0; n < rows; n++) {
        const int64_t i = plain_term(order, n, rows);
        const struct reference_row at = reference_attention_locate(problem, i);
        double *keys, *values;
        if (at.sequence < 0 || at.query >= at.queries || call->lse[i] == -INFINITY)
            continue;
        reference_attention_gather(problem, &at, call->k, call->v, &keys, &values);
        struct row row = {.problem = problem,
                          .at = &at,
                          .order = order,
                          .dtype = call->dtype,
                          .query = call->q + i * problem->head_dim,
                          .keys = keys,
                          .values = values,
                          .dout = call->dout + i * dv,
                          .lse = (float)call->lse[i]};
        row.delta = delta_of(&row, call->o + i * dv, call->dlse ? call->dlse[i] : 0);
        add_row(&row, to, i);
        free(keys);
        free(values);
    }
}

/* One gradient: its place among struct reference_gradients, elements and type. */
struct gradient {
    double *right, *to, *way;
    int64_t count;
    clattn_dtype dtype;
};

static struct gradient gradient_of(double *right, double *to, int64_t count, clattn_dtype dtype) {
    struct gradient gradient = {right, to, NULL, count, dtype};
    if (to)
        gradient.way = malloc((size_t)(count + 1) * sizeof(double));
    if (to && !gradient.way)
        abort();
    return gradient;
}

static void clear(const struct gradient *gradient) {
    for (int64_t i = 0; gradient->way && i < gradient->count; i++)
        gradient->way[i] = 0;
}

static void keep(const struct gradient *gradient, bool first) {
    for (int64_t i = 0; gradient->way && i < gradient->count; i++)
        plain_keep(&gradient->to[i], reference_round(gradient->dtype, gradient->way[i]), gradient->right[i], first);
}

void plain_attention_backward(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                              clattn_dtype bias_dtype, const double *q, const double *k, const double *v,
                              const double *o, const double *lse, const double *dout, const double *dlse,
                              const struct reference_gradients *right, const struct reference_gradients *to) {
    const struct call call = {problem, dtype, q, k, v, o, lse, dout, dlse};
    const int64_t d = problem->head_dim, dv = problem->value_dim, *bias = problem->bias.dims;
    const int64_t keys = to->key_slabs * problem->kv_heads * problem->nk;
    const struct gradient all[] = {
        gradient_of(right->dq, to->dq, reference_attention_rows(problem) * d, out_dtype),
        gradient_of(right->dk, to->dk, keys * d, out_dtype),
        gradient_of(right->dv, to->dv, keys * dv, out_dtype),
        gradient_of(right->dbias, to->dbias, bias[0] * bias[1] * bias[2] * bias[3], bias_dtype),
        gradient_of(right->dsinks, to->dsinks, problem->heads, CLATTN_F32),
    };
    const struct reference_gradients way = {.dq = all[0].way,
                                            .dk = all[1].way,
                                            .dv = all[2].way,
                                            .dbias = all[3].way,
                                            .dsinks = all[4].way,
                                            .key_slabs = to->key_slabs};
    for (int order = 0; order < PLAIN_ORDERS; order++) {
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            clear(&all[i]);
        add_rows(&call, (enum plain_order)order, &way);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            keep(&all[i], order == 0);
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i].way);
}
