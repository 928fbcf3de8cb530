/* Softmax, its logarithm, log-sum-exp and state of one row, in double precision. */
#include "reference.h"

#include <math.h>

void reference_softmax_row(clattn_softmax_function function, clattn_empty_rows empty_rows, int64_t columns,
                           const double *x, double *result, double *l) {
    double max = -INFINITY, sum = 0;
    bool poisoned = false;
    for (int64_t c = 0; c < columns; c++) {
        poisoned = poisoned || isnan(x[c]) || x[c] == INFINITY;
        max = fmax(max, x[c]);
    }
    const bool empty = max == -INFINITY;
    for (int64_t c = 0; c < columns && !empty; c++)
        sum += exp(x[c] - max);
    if (poisoned)
        max = sum = NAN;

    if (function == CLATTN_LOG_SUM_EXP)
        result[0] = empty && !poisoned ? -INFINITY : max + log(sum);
    if (function == CLATTN_SOFTMAX_STATE) {
        result[0] = max;
        l[0] = sum;
    }
    for (int64_t c = 0; c < columns && function == CLATTN_SOFTMAX; c++)
        result[c] = !empty || poisoned ? exp(x[c] - max) / sum : empty_rows == CLATTN_EMPTY_ROWS_ZERO ? 0 : NAN;
    for (int64_t c = 0; c < columns && function == CLATTN_LOG_SOFTMAX; c++)
        result[c] = !empty || poisoned ? x[c] - max - log(sum) : empty_rows == CLATTN_EMPTY_ROWS_ZERO ? -INFINITY : NAN;
}
