/* Gradients of attention the plain way in the precision that the kernels have: fp32 arithmetic from the rounded o and
 * lse, P and the scores' gradients rounded to the storage type. Its error is the yardstick for every variant. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

struct row {
    const struct reference_attention *problem;
    const struct reference_row *at;
    clattn_dtype dtype;
    const double *query, *keys, *values, *dout;
    float lse, delta;
};

static float score(const struct row *row, int64_t j, float *slope) {
    const struct reference_attention *problem = row->problem;
    const float softcap = (float)problem->softcap;
    float x = 0;
    for (int64_t c = 0; c < problem->head_dim; c++)
        x += (float)row->query[c] * (float)row->keys[j * problem->head_dim + c];
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
    for (int64_t c = 0; c < dv; c++)
        dp += (float)row->dout[c] * (float)row->values[j * dv + c];
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

static void round_all(double *values, int64_t count, clattn_dtype dtype) {
    for (int64_t i = 0; values && i < count; i++)
        values[i] = reference_round(dtype, values[i]);
}

static int64_t keys_of(const struct reference_attention *problem, const struct reference_gradients *to) {
    return to->key_slabs * problem->kv_heads * problem->nk;
}

void plain_attention_backward(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                              clattn_dtype bias_dtype, const double *q, const double *k, const double *v,
                              const double *o, const double *lse, const double *dout, const double *dlse,
                              const struct reference_gradients *to) {
    const int64_t rows = reference_attention_rows(problem), d = problem->head_dim, dv = problem->value_dim;
    const int64_t *bias = problem->bias.dims;
    for (int64_t i = 0; i < rows; i++) {
        const struct reference_row at = reference_attention_locate(problem, i);
        double *keys, *values;
        if (at.sequence < 0 || at.query >= at.queries || lse[i] == -INFINITY)
            continue;
        reference_attention_gather(problem, &at, k, v, &keys, &values);
        struct row row = {problem, &at, dtype, q + i * d, keys, values, dout + i * dv, (float)lse[i], 0};
        for (int64_t c = 0; c < dv; c++)
            row.delta += (float)row.dout[c] * (float)o[i * dv + c];
        row.delta -= dlse ? (float)dlse[i] : 0;
        if (to->dsinks && problem->sinks[at.head] != -INFINITY)
            add(&to->dsinks[at.head], -expf((float)problem->sinks[at.head] - row.lse) * row.delta);
        for (int64_t j = at.first_key; j < at.end_key; j++)
            if (reference_attention_sees(problem, &at, j))
                add_key(&row, to, i, j);
        free(keys);
        free(values);
    }
    round_all(to->dq, rows * d, out_dtype);
    round_all(to->dk, keys_of(problem, to) * d, out_dtype);
    round_all(to->dv, keys_of(problem, to) * dv, out_dtype);
    round_all(to->dbias, bias[0] * bias[1] * bias[2] * bias[3], bias_dtype);
}
