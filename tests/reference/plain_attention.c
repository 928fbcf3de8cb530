/* Attention the plain way in the precision that the kernels have: fp32 arithmetic, P and the result rounded to their
 * storage types. Its error against the oracle is the yardstick for every variant. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

static float score(const struct reference_attention *problem, const struct reference_row *at, const double *query,
                   const double *keys, int64_t j) {
    const float softcap = (float)problem->softcap;
    float x = 0;
    for (int64_t c = 0; c < problem->head_dim; c++)
        x += (float)query[c] * (float)keys[j * problem->head_dim + c];
    x *= (float)problem->scale;
    if (softcap > 0)
        x = softcap * tanhf(x / softcap);
    x += (float)reference_attention_slope(problem, at) * (float)((double)j - at->position);
    return x + (float)reference_attention_bias(problem, at, j);
}

/* Turns scores into probabilities of the storage type; returns the row's log-sum-exp. */
static float softmax(float *scores, int64_t count, float sink, clattn_dtype dtype) {
    float max = sink, sum = 0;
    for (int64_t j = 0; j < count; j++)
        max = fmaxf(max, scores[j]);
    if (sink != -INFINITY)
        sum = expf(sink - max);
    for (int64_t j = 0; j < count; j++)
        sum += scores[j] = expf(scores[j] - max);
    for (int64_t j = 0; j < count; j++)
        scores[j] = (float)reference_round(dtype, (double)(scores[j] / sum));
    return max + logf(sum);
}

void plain_attention_row_at(const struct reference_attention *problem, const struct reference_row *at,
                            clattn_dtype dtype, clattn_dtype out_dtype, const double *query, const double *keys,
                            const double *values, double *o, double *lse, double *p) {
    const int64_t dv = problem->value_dim;
    const bool in_use = at->sequence >= 0 && at->query < at->queries;
    const float sink = problem->sinks && in_use ? (float)problem->sinks[at->head] : -INFINITY;
    float *scores = malloc((size_t)(at->end_key + 1) * sizeof *scores);
    int64_t *seen = malloc((size_t)(at->end_key + 1) * sizeof *seen), count = 0;
    if (!scores || !seen)
        abort();
    for (int64_t j = at->first_key; j < at->end_key; j++)
        if (reference_attention_sees(problem, at, j)) {
            scores[count] = score(problem, at, query, keys, j);
            seen[count++] = j;
        }
    *lse = (double)(count ? softmax(scores, count, sink, dtype) : sink);
    for (int64_t c = 0; c < dv; c++) {
        float sum = 0;
        for (int64_t n = 0; n < count; n++)
            sum += scores[n] * (float)values[seen[n] * dv + c];
        o[c] = reference_round(out_dtype, (double)sum);
    }
    for (int64_t j = 0; p && j < reference_attention_columns(problem); j++)
        p[j] = 0;
    for (int64_t n = 0; p && n < count; n++)
        p[seen[n]] = (double)scores[n];
    free(scores);
    free(seen);
}

void plain_attention_row(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                         const double *q, const double *k, const double *v, int64_t row, double *o, double *lse,
                         double *p) {
    const struct reference_row at = reference_attention_locate(problem, row);
    double *keys, *values;
    reference_attention_gather(problem, &at, k, v, &keys, &values);
    plain_attention_row_at(problem, &at, dtype, out_dtype, q + row * problem->head_dim, keys, values, o, lse, p);
    free(keys);
    free(values);
}
