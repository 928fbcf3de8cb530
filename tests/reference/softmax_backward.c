/* Gradients of softmax and log-softmax of one row, from the result y: in double precision, and the plain way in
 * fp32. */
#include "reference.h"

#include <math.h>

void reference_softmax_backward_row(clattn_softmax_function function, double scale, int64_t columns, const double *y,
                                    const double *dy, double *dx) {
    const bool logarithm = function == CLATTN_LOG_SOFTMAX;
    double sum = 0;
    for (int64_t c = 0; c < columns; c++)
        sum += logarithm ? dy[c] : y[c] * dy[c];
    for (int64_t c = 0; c < columns; c++)
        dx[c] = scale * (logarithm ? dy[c] - exp(y[c]) * sum : y[c] * (dy[c] - sum));
}

void plain_softmax_backward_row(clattn_softmax_function function, clattn_dtype out_dtype, double scale, int64_t columns,
                                const double *y, const double *dy, double *dx) {
    const bool logarithm = function == CLATTN_LOG_SOFTMAX;
    float sum = 0;
    for (int64_t c = 0; c < columns; c++)
        sum += logarithm ? (float)dy[c] : (float)y[c] * (float)dy[c];
    for (int64_t c = 0; c < columns; c++) {
        const float given = (float)dy[c], result = (float)y[c];
        const float gradient = logarithm ? given - expf(result) * sum : result * (given - sum);
        dx[c] = reference_round(out_dtype, (double)((float)scale * gradient));
    }
}
