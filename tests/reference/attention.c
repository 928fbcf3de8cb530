/* Attention as its definition says, one query row at a time, in double precision. Which rows and keys a row of the
 * result is about is in attention_rows.c. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

static double score(const struct reference_attention *problem, const struct reference_row *at, const double *query,
                    const double *keys, int64_t j) {
    double x = 0;
    for (int64_t c = 0; c < problem->head_dim; c++)
        x += query[c] * keys[j * problem->head_dim + c];
    x *= problem->scale;
    if (problem->softcap > 0)
        x = problem->softcap * tanh(x / problem->softcap);
    x += reference_attention_slope(problem, at) * ((double)j - at->position);
    return x + reference_attention_bias(problem, at, j);
}

void reference_attention_row_at(const struct reference_attention *problem, const struct reference_row *at,
                                const double *query, const double *keys, const double *values, double *o, double *lse,
                                double *p) {
    const int64_t dv = problem->value_dim;
    const bool in_use = at->sequence >= 0 && at->query < at->queries;
    const double sink = problem->sinks && in_use ? problem->sinks[at->head] : -INFINITY;
    double max = sink, sum = 0;
    int64_t visible = 0;

    for (int64_t c = 0; c < dv; c++)
        o[c] = 0;
    for (int64_t j = 0; p && j < reference_attention_columns(problem); j++)
        p[j] = 0;
    for (int pass = 0; pass < 3; pass++) { /* the maximum; the sum; the output */
        for (int64_t j = at->first_key; j < at->end_key; j++) {
            if (!reference_attention_sees(problem, at, j))
                continue;
            const double x = score(problem, at, query, keys, j);
            visible += pass == 0;
            if (pass == 0)
                max = fmax(max, x);
            if (pass == 1)
                sum += exp(x - max);
            const double weight = pass == 2 ? exp(x - max) / sum : 0;
            for (int64_t c = 0; pass == 2 && c < dv; c++)
                o[c] += weight * values[j * dv + c];
            if (pass == 2 && p)
                p[j] = weight;
        }
        if (pass == 0 && visible == 0)
            break;
        if (pass == 1 && problem->sinks)
            sum += exp(sink - max);
    }
    *lse = visible == 0 ? sink : max + log(sum);
}

void reference_attention_row(const struct reference_attention *problem, const double *q, const double *k,
                             const double *v, int64_t row, double *o, double *lse, double *p) {
    const struct reference_row at = reference_attention_locate(problem, row);
    double *keys, *values;
    reference_attention_gather(problem, &at, k, v, &keys, &values);
    reference_attention_row_at(problem, &at, q + row * problem->head_dim, keys, values, o, lse, p);
    free(keys);
    free(values);
}
