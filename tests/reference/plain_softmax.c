/* Softmax of one row, and the merges of partial results, the plain way in fp32, results rounded to their storage type.
 */
#include "reference.h"

#include <math.h>

void plain_softmax_row(clattn_softmax_function function, clattn_dtype out_dtype, int64_t columns, const double *x,
                       double *result, double *l) {
    float max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < columns; c++)
        max = fmaxf(max, (float)x[c]);
    for (int64_t c = 0; c < columns; c++)
        sum += expf((float)x[c] - max);
    if (function == CLATTN_LOG_SUM_EXP)
        result[0] = reference_round(out_dtype, (double)(max + logf(sum)));
    if (function == CLATTN_SOFTMAX_STATE) {
        result[0] = (double)max;
        l[0] = (double)sum;
    }
    for (int64_t c = 0; c < columns && function == CLATTN_SOFTMAX; c++)
        result[c] = reference_round(out_dtype, (double)(expf((float)x[c] - max) / sum));
    for (int64_t c = 0; c < columns && function == CLATTN_LOG_SOFTMAX; c++)
        result[c] = reference_round(out_dtype, (double)((float)x[c] - max - logf(sum)));
}

void plain_softmax_merge(int count, const double *m_in, const double *l_in, double *m, double *l) {
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        max = fmaxf(max, (float)m_in[i]);
    for (int i = 0; i < count; i++)
        if (m_in[i] != -INFINITY)
            sum += (float)l_in[i] * expf((float)m_in[i] - max);
    *m = (double)max;
    *l = (double)sum;
}

void plain_attention_merge_row(int count, clattn_dtype out_dtype, int64_t value_dim, const double *const *o_in,
                               const double *lse_in, double *o, double *lse) {
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        if (lse_in[i] != INFINITY)
            max = fmaxf(max, (float)lse_in[i]);
    for (int i = 0; i < count; i++)
        if (fabs(lse_in[i]) != INFINITY)
            sum += expf((float)lse_in[i] - max);
    for (int64_t c = 0; c < value_dim; c++) {
        float total = 0;
        for (int i = 0; i < count; i++)
            if (fabs(lse_in[i]) != INFINITY)
                total += expf((float)lse_in[i] - max) * (float)o_in[i][c];
        o[c] = reference_round(out_dtype, sum == 0 ? 0 : (double)(total / sum));
    }
    *lse = sum == 0 ? -(double)INFINITY : (double)(max + logf(sum));
}
