/* The largest elements of a row by softmax, in double precision and the plain way in fp32. */
#include "reference.h"

#include <math.h>

/* Among equal elements the first counts as larger; a row with +inf or NaN has no order. */
static int64_t next_best(int64_t columns, const double *x, double bound, int64_t after) {
    int64_t best = -1;
    for (int64_t c = 0; c < columns; c++) {
        const bool left = x[c] < bound || (x[c] == bound && c > after);
        if (left && (best < 0 || x[c] > x[best]))
            best = c;
    }
    return best;
}

static bool is_ordered(int64_t columns, const double *x) {
    for (int64_t c = 0; c < columns; c++)
        if (isnan(x[c]) || x[c] == INFINITY)
            return false;
    return true;
}

void reference_softmax_topk_row(clattn_empty_rows empty_rows, int64_t columns, int k, const double *x, double *values,
                                double *indices, double *lse) {
    double bound = INFINITY;
    int64_t at = -1;
    reference_softmax_row(CLATTN_LOG_SUM_EXP, empty_rows, columns, x, lse, NULL);
    const double nothing = empty_rows == CLATTN_EMPTY_ROWS_ZERO ? 0 : (double)NAN;
    for (int i = 0; i < k; i++) {
        if (is_ordered(columns, x)) {
            at = next_best(columns, x, bound, at);
            bound = x[at];
            values[i] = *lse == -INFINITY ? nothing : exp(x[at] - *lse);
        } else {
            at = i;
            values[i] = (double)NAN;
        }
        indices[i] = (double)at;
    }
}

void plain_softmax_topk_row(clattn_dtype out_dtype, int64_t columns, int k, const double *x, const double *indices,
                            double *values, double *lse) {
    float max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < columns; c++)
        max = fmaxf(max, (float)x[c]);
    for (int64_t c = 0; c < columns; c++)
        sum += expf((float)x[c] - max);
    for (int i = 0; i < k; i++)
        values[i] = reference_round(out_dtype, (double)(expf((float)x[(int64_t)indices[i]] - max) / sum));
    *lse = (double)(max + logf(sum));
}
