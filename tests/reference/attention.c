/* Attention as its definition says, one query row at a time, in double precision. */
#include "reference.h"

#include <math.h>

struct reference_attention reference_attention_of(const clattn_attention_op *op) {
    struct reference_attention problem = {
        .batch = op->q.dims[0],
        .heads = op->q.dims[1],
        .nq = op->q.dims[2],
        .head_dim = op->q.dims[3],
        .kv_heads = op->k.dims[1],
        .nk = op->k.dims[2],
        .value_dim = op->v.dims[3],
        .causal = op->causal != CLATTN_CAUSAL_NONE,
    };
    problem.scale = op->has_scale ? (double)op->scale : 1 / sqrt((double)problem.head_dim);
    problem.diagonal = op->causal == CLATTN_CAUSAL_BOTTOM_RIGHT ? problem.nk - problem.nq : 0;
    if (op->has_diagonal)
        problem.diagonal = op->diagonal;
    return problem;
}

int64_t reference_visible_keys(const struct reference_attention *problem, int64_t i) {
    if (!problem->causal || problem->diagonal >= problem->nk - 1 - i)
        return problem->nk;
    return problem->diagonal < -i ? 0 : i + problem->diagonal + 1;
}

void reference_attention_row(const struct reference_attention *problem, const double *q, const double *k,
                             const double *v, int64_t row, double *o, double *lse, double *p) {
    const int64_t d = problem->head_dim, dv = problem->value_dim, nk = problem->nk;
    const int64_t i = row % problem->nq, h = row / problem->nq % problem->heads;
    const int64_t b = row / problem->nq / problem->heads;
    const int64_t kv = b * problem->kv_heads + h / (problem->heads / problem->kv_heads);
    const double *query = q + row * d, *keys = k + kv * nk * d, *values = v + kv * nk * dv;
    const int64_t visible = reference_visible_keys(problem, i);

    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < dv; c++)
        o[c] = 0;
    for (int64_t j = 0; p && j < nk; j++)
        p[j] = 0;
    *lse = -INFINITY;
    if (visible == 0)
        return;
    for (int pass = 0; pass < 3; pass++) { /* the maximum; the sum; the output */
        for (int64_t j = 0; j < visible; j++) {
            double score = 0;
            for (int64_t c = 0; c < d; c++)
                score += query[c] * keys[j * d + c];
            score *= problem->scale;
            if (pass == 0)
                max = fmax(max, score);
            if (pass == 1)
                sum += exp(score - max);
            for (int64_t c = 0; pass == 2 && c < dv; c++)
                o[c] += exp(score - max) / sum * values[j * dv + c];
            if (pass == 2 && p)
                p[j] = exp(score - max) / sum;
        }
    }
    *lse = max + log(sum);
}
