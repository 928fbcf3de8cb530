/* Attention the plain way in the precision that the kernels have: fp32 arithmetic, P and the result rounded to their
 * storage types. Its error against the oracle is the yardstick for every variant.
 *
 * "The plain way" leaves open in which order sums are taken, and whether P is divided by its sum before it is rounded
 * or the result afterwards, as everything does that works block by block. The error of one such way is a single draw.
 * It is small by chance where a few scores decide: in a row of one or two keys, or where one row's scores are far
 * larger than all others'. So many ways are gone, and of their results the one farthest from the oracle's counts,
 * element by element. A model of a faultless kernel (sums upward, each step rounded once) exceeds twice that in fp32 in
 *
 *     rows, keys         1, 1     1, 2     3, 2     1, 16
 *     3 orders of sums   1.6 %    1.9 %    0.8 %    0.5 %
 *     12 orders          0.07 %   0.1 %    0.05 %   0.02 %
 *     24 orders          0.02 %   0.02 %   0.02 %   0
 *
 * of 10,000 problems, o or lse. Every row thus has as many orders as cost about the same, from 24 down to 3. */
#include "plain.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ORDERS = 24, KEYS_FOR_ALL = 64 };

struct way {
    int order;
    bool divides_last;
};

/* A row's problem. */
struct plain_row {
    const struct reference_attention *problem;
    const struct reference_row *at;
    clattn_dtype dtype, out_dtype;
    const double *query, *keys, *values;
    int64_t *seen, count;            /* the keys that it sees */
    int64_t *column_turn, *key_turn; /* an order's turns [head_dim], [count] */
    float *scores, *exponentials;    /* [count] */
};

/* What one way makes of it; p [count] belongs to the keys seen[]. */
struct result {
    double lse, *o, *p;
};

int64_t plain_term(int order, int64_t i, int64_t count) {
    if (order == PLAIN_DOWN)
        return count - 1 - i;
    const int64_t stride = order == PLAIN_UP ? 1 : order;
    int64_t first = 0;
    for (int64_t in_turn; (in_turn = (count - first + stride - 1) / stride) <= i; first++)
        i -= in_turn;
    return first + i * stride;
}

void plain_keep(double *kept, double value, double right, bool first) {
    if (first || fabs(value - right) > fabs(*kept - right))
        *kept = value;
}

static void take_turns(const struct plain_row *row, int order) {
    for (int64_t i = 0; i < row->problem->head_dim; i++)
        row->column_turn[i] = plain_term(order, i, row->problem->head_dim);
    for (int64_t i = 0; i < row->count; i++)
        row->key_turn[i] = plain_term(order, i, row->count);
}

static float score(const struct plain_row *row, int64_t j) {
    const struct reference_attention *problem = row->problem;
    const float softcap = (float)problem->softcap;
    const double *key = row->keys + j * problem->head_dim;
    float x = 0;
    for (int64_t i = 0; i < problem->head_dim; i++) {
        const int64_t c = row->column_turn[i];
        x += (float)row->query[c] * (float)key[c];
    }
    x *= (float)problem->scale;
    if (softcap > 0)
        x = softcap * tanhf(x / softcap);
    x += (float)reference_attention_slope(problem, row->at) * (float)((double)j - row->at->position);
    return x + (float)reference_attention_bias(problem, row->at, j);
}

/* Turns scores into exponentials; returns their sum, *max is what they were taken against. */
static float exponentiate(const struct plain_row *row, float sink, float *max) {
    float sum = 0;
    *max = sink;
    for (int64_t n = 0; n < row->count; n++)
        *max = fmaxf(*max, row->scores[n]);
    if (sink != -INFINITY)
        sum = expf(sink - *max);
    for (int64_t n = 0; n < row->count; n++)
        row->exponentials[n] = expf(row->scores[n] - *max);
    for (int64_t n = 0; n < row->count; n++)
        sum += row->exponentials[row->key_turn[n]];
    return sum;
}

static void weigh_values(const struct plain_row *row, bool divides_last, float sum, struct result *result) {
    const int64_t dv = row->problem->value_dim;
    float *p = row->scores;
    for (int64_t n = 0; n < row->count; n++) {
        const float e = row->exponentials[n];
        p[n] = (float)reference_round(row->dtype, (double)(divides_last ? e : e / sum));
        result->p[n] = (double)(divides_last ? p[n] / sum : p[n]);
    }
    for (int64_t c = 0; c < dv; c++) {
        float value = 0;
        for (int64_t i = 0; i < row->count; i++) {
            const int64_t n = row->key_turn[i];
            value += p[n] * (float)row->values[row->seen[n] * dv + c];
        }
        result->o[c] = reference_round(row->out_dtype, (double)(divides_last ? value / sum : value));
    }
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

static void keep(const struct plain_row *row, const struct result *result, const struct result *right,
                 struct result *kept, bool first) {
    for (int64_t c = 0; c < row->problem->value_dim; c++)
        plain_keep(&kept->o[c], result->o[c], right->o[c], first);
    for (int64_t n = 0; n < row->count; n++)
        plain_keep(&kept->p[row->seen[n]], result->p[n], right->p[row->seen[n]], first);
}

/* Where P is rounded to 16 bits, the order of sums decides lse alone. */
static void go(const struct plain_row *row, int order, const struct result *right, struct result *result,
               struct result *kept) {
    const bool in_use = row->at->sequence >= 0 && row->at->query < row->at->queries;
    const float sink = row->problem->sinks && in_use ? (float)row->problem->sinks[row->at->head] : -INFINITY;
    float max = sink, sum = 1;
    take_turns(row, order);
    for (int64_t n = 0; n < row->count; n++)
        row->scores[n] = score(row, row->seen[n]);
    if (row->count > 0)
        sum = exponentiate(row, sink, &max);
    plain_keep(&kept->lse, (double)(row->count > 0 ? max + logf(sum) : sink), right->lse, order == 0);
    if (order >= PLAIN_ORDERS && row->dtype != CLATTN_F32)
        return;
    for (int divides_last = 0; divides_last < 2; divides_last++) {
        weigh_values(row, divides_last, sum, result);
        keep(row, result, right, kept, order + divides_last == 0);
    }
}

static int orders_of(int64_t count) {
    const int64_t orders = MOST_ORDERS * KEYS_FOR_ALL / (count > 0 ? count : 1);
    return orders > MOST_ORDERS ? MOST_ORDERS : orders < PLAIN_ORDERS ? PLAIN_ORDERS : (int)orders;
}

static void go_all(struct plain_row *row, const struct result *right, struct result *kept) {
    const int64_t columns = reference_attention_columns(row->problem);
    struct result result = result_of(row->problem);
    row->seen = memory_of(columns, sizeof *row->seen);
    for (int64_t j = row->at->first_key; j < row->at->end_key; j++)
        if (reference_attention_sees(row->problem, row->at, j))
            row->seen[row->count++] = j;
    row->column_turn = memory_of(row->problem->head_dim, sizeof *row->column_turn);
    row->key_turn = memory_of(row->count, sizeof *row->key_turn);
    row->scores = memory_of(row->count, sizeof *row->scores);
    row->exponentials = memory_of(row->count, sizeof *row->exponentials);
    for (int order = 0; order < orders_of(row->count); order++)
        go(row, order, right, &result, kept);
    free(row->seen);
    free(row->column_turn);
    free(row->key_turn);
    free(row->scores);
    free(row->exponentials);
    release(&result);
}

void plain_attention_row_at(const struct reference_attention *problem, const struct reference_row *at,
                            clattn_dtype dtype, clattn_dtype out_dtype, const double *query, const double *keys,
                            const double *values, double *o, double *lse, double *p) {
    struct plain_row row = {.problem = problem, .at = at, .dtype = dtype, .out_dtype = out_dtype};
    row.query = query, row.keys = keys, row.values = values;
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
