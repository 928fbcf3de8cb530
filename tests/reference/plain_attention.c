/* Attention the plain way in the precision that the kernels have: fp32 arithmetic, P and the result rounded to their
 * storage types. Its error against the oracle is the yardstick for every variant. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

static float dot(const double *a, const double *b, int64_t count) {
    float sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += (float)a[c] * (float)b[c];
    return sum;
}

/* Turns scores into probabilities of the storage type; returns the row's log-sum-exp. */
static float softmax(float *score, int64_t count, clattn_dtype dtype) {
    float max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < count; j++)
        max = fmaxf(max, score[j]);
    for (int64_t j = 0; j < count; j++)
        sum += score[j] = expf(score[j] - max);
    for (int64_t j = 0; j < count; j++)
        score[j] = (float)reference_round(dtype, (double)(score[j] / sum));
    return max + logf(sum);
}

void plain_attention_row(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                         const double *q, const double *k, const double *v, int64_t row, double *o, double *lse,
                         double *p) {
    const int64_t d = problem->head_dim, dv = problem->value_dim, nk = problem->nk;
    const int64_t i = row % problem->nq, h = row / problem->nq % problem->heads;
    const int64_t kv =
        row / problem->nq / problem->heads * problem->kv_heads + h / (problem->heads / problem->kv_heads);
    const int64_t visible = reference_visible_keys(problem, i);
    float *score = malloc((size_t)(nk + 1) * sizeof *score);
    if (!score)
        abort();
    for (int64_t j = 0; j < visible; j++)
        score[j] = dot(q + row * d, k + (kv * nk + j) * d, d) * (float)problem->scale;
    *lse = visible ? (double)softmax(score, visible, dtype) : -(double)INFINITY;
    for (int64_t c = 0; c < dv; c++) {
        float sum = 0;
        for (int64_t j = 0; j < visible; j++)
            sum += score[j] * (float)v[(kv * nk + j) * dv + c];
        o[c] = reference_round(out_dtype, (double)sum);
    }
    for (int64_t j = 0; p && j < nk; j++)
        p[j] = j < visible ? (double)score[j] : 0;
    free(score);
}
