/* Merging of softmax states, and of partial attention results, in double precision. */
#include "reference.h"

#include <math.h>

/* The largest, NaN winning. */
static double larger(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

void reference_softmax_merge(int count, const double *m_in, const double *l_in, double *m, double *l) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        max = larger(max, m_in[i]);
    for (int i = 0; i < count; i++)
        if (m_in[i] != -INFINITY)
            sum += l_in[i] * exp(m_in[i] - max);
    *m = isnan(sum) ? NAN : max;
    *l = sum;
}

/* An operand whose lse is infinite saw no key. */
static bool is_empty(double lse) {
    return isinf(lse);
}

void reference_attention_merge_row(int count, int64_t value_dim, const double *const *o_in, const double *lse_in,
                                   double *o, double *lse) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        if (!is_empty(lse_in[i]))
            max = larger(max, lse_in[i]);
    for (int i = 0; i < count; i++)
        if (!is_empty(lse_in[i]))
            sum += exp(lse_in[i] - max);
    for (int64_t c = 0; c < value_dim; c++) {
        double total = 0;
        for (int i = 0; i < count; i++)
            if (!is_empty(lse_in[i]))
                total += exp(lse_in[i] - max) * o_in[i][c];
        o[c] = sum == 0 ? 0 : total / sum;
    }
    *lse = sum == 0 ? -INFINITY : max + log(sum);
}
