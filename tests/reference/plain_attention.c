/* Attention the plain way in the precision that the kernels have: fp32 arithmetic, P and the result rounded to their
 * storage types. Its error against the oracle is the yardstick for every variant.
 *
 * "The plain way" leaves open in which order sums are taken, and whether P is divided by its sum before it is rounded or
 * the result afterwards, as everything does that works block by block. The error of one such way is a single draw: where
 * a few rows decide, a kernel whose errors are spread just alike exceeds twice that draw in 1 of 250 problems in fp32.
 * So all six ways are gone, and of their results the one farthest from the oracle's counts, element by element. */
#include "plain.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>

enum { WAYS = 2 * PLAIN_ORDERS };

struct way {
    enum plain_order order;
    bool divides_last;
};

/* A row's problem. */
struct plain_row {
    const struct reference_attention *problem;
    const struct reference_row *at;
    clattn_dtype dtype, out_dtype;
    const double *query, *keys, *values;
};

/* What one way makes of it; p [count] belongs to the keys seen[]. */
struct result {
    double lse, *o, *p;
};

int64_t plain_term(enum plain_order order, int64_t i, int64_t count) {
    const int64_t even = (count + 1) / 2;
    switch (order) {
    case PLAIN_DOWN:
        return count - 1 - i;
    case PLAIN_EVEN_FIRST:
        return i < even ? 2 * i : 2 * (i - even) + 1;
    default:
        return i;
    }
}

void plain_keep(double *kept, double value, double right, bool first) {
    if (first || fabs(value - right) > fabs(*kept - right))
        *kept = value;
}

static float score(const struct plain_row *row, enum plain_order order, int64_t j) {
    const struct reference_attention *problem = row->problem;
    const float softcap = (float)problem->softcap;
    const double *key = row->keys + j * problem->head_dim;
    float x = 0;
    for (int64_t i = 0; i < problem->head_dim; i++) {
        const int64_t c = plain_term(order, i, problem->head_dim);
        x += (float)row->query[c] * (float)key[c];
    }
    x *= (float)problem->scale;
    if (softcap > 0)
        x = softcap * tanhf(x / softcap);
    x += (float)reference_attention_slope(problem, row->at) * (float)((double)j - row->at->position);
    return x + (float)reference_attention_bias(problem, row->at, j);
}

/* Turns scores into exponentials; returns their sum, *max is what they were taken against. */
static float exponentiate(float *scores, int64_t count, float sink, enum plain_order order, float *max) {
    float sum = 0;
    *max = sink;
    for (int64_t j = 0; j < count; j++)
        *max = fmaxf(*max, scores[j]);
    if (sink != -INFINITY)
        sum = expf(sink - *max);
    for (int64_t j = 0; j < count; j++)
        scores[j] = expf(scores[j] - *max);
    for (int64_t j = 0; j < count; j++)
        sum += scores[plain_term(order, j, count)];
    return sum;
}

static void go(const struct plain_row *row, struct way way, const int64_t *seen, int64_t count, float *scores,
               struct result *result) {
    const bool in_use = row->at->sequence >= 0 && row->at->query < row->at->queries;
    const float sink = row->problem->sinks && in_use ? (float)row->problem->sinks[row->at->head] : -INFINITY;
    const int64_t dv = row->problem->value_dim;
    float max = sink, sum = 1;
    for (int64_t n = 0; n < count; n++)
        scores[n] = score(row, way.order, seen[n]);
    if (count > 0)
        sum = exponentiate(scores, count, sink, way.order, &max);
    for (int64_t n = 0; n < count; n++) {
        scores[n] = (float)reference_round(row->dtype, (double)(way.divides_last ? scores[n] : scores[n] / sum));
        result->p[n] = (double)(way.divides_last ? scores[n] / sum : scores[n]);
    }
    for (int64_t c = 0; c < dv; c++) {
        float value = 0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t n = plain_term(way.order, i, count);
            value += scores[n] * (float)row->values[seen[n] * dv + c];
        }
        result->o[c] = reference_round(row->out_dtype, (double)(way.divides_last ? value / sum : value));
    }
    result->lse = (double)(count > 0 ? max + logf(sum) : sink);
}

static void *memory_of(int64_t count, size_t size) {
    void *memory = calloc((size_t)count + 1, size);
    if (!memory)
        abort();
    return memory;
}

static struct result result_of(const struct reference_attention *problem) {
    return (struct result){0, memory_of(problem->value_dim, sizeof(double)),
                           memory_of(reference_attention_columns(problem), sizeof(double))};
}

static void release(struct result *result) {
    free(result->o);
    free(result->p);
}

static int64_t keys_seen(const struct plain_row *row, int64_t *seen) {
    int64_t count = 0;
    for (int64_t j = row->at->first_key; j < row->at->end_key; j++)
        if (reference_attention_sees(row->problem, row->at, j))
            seen[count++] = j;
    return count;
}

static void keep(const struct plain_row *row, const struct result *result, const int64_t *seen, int64_t count,
                 const struct result *right, struct result *kept, bool first) {
    for (int64_t c = 0; c < row->problem->value_dim; c++)
        plain_keep(&kept->o[c], result->o[c], right->o[c], first);
    for (int64_t n = 0; n < count; n++)
        plain_keep(&kept->p[seen[n]], result->p[n], right->p[seen[n]], first);
    plain_keep(&kept->lse, result->lse, right->lse, first);
}

static void go_all(const struct plain_row *row, const struct result *right, struct result *kept) {
    const int64_t columns = reference_attention_columns(row->problem);
    int64_t *seen = memory_of(columns, sizeof *seen);
    float *scores = memory_of(columns, sizeof *scores);
    struct result result = result_of(row->problem);
    const int64_t count = keys_seen(row, seen);
    for (int number = 0; number < WAYS; number++) {
        const struct way way = {(enum plain_order)(number / 2), number % 2 == 1};
        go(row, way, seen, count, scores, &result);
        keep(row, &result, seen, count, right, kept, number == 0);
    }
    free(seen);
    free(scores);
    release(&result);
}

void plain_attention_row_at(const struct reference_attention *problem, const struct reference_row *at,
                            clattn_dtype dtype, clattn_dtype out_dtype, const double *query, const double *keys,
                            const double *values, double *o, double *lse, double *p) {
    const struct plain_row row = {problem, at, dtype, out_dtype, query, keys, values};
    struct result right = result_of(problem), kept = result_of(problem);
    reference_attention_row_at(problem, at, query, keys, values, right.o, &right.lse, right.p);
    go_all(&row, &right, &kept);
    for (int64_t c = 0; c < problem->value_dim; c++)
        o[c] = kept.o[c];
    for (int64_t j = 0; p && j < reference_attention_columns(problem); j++)
        p[j] = kept.p[j];
    *lse = kept.lse;
    release(&right);
    release(&kept);
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
