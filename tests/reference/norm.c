/* RMSNorm and LayerNorm of one row, and their gradients, in double precision. */
#include "reference.h"

#include <math.h>

static double mean_of(const struct reference_norm *norm, const double *v) {
    double sum = 0;
    for (int64_t c = 0; c < norm->columns && norm->function == CLATTN_LAYER_NORM; c++)
        sum += v[c];
    return sum / (double)norm->columns;
}

/* 1 / sqrt(variance + eps) */
static double factor_of(const struct reference_norm *norm, const double *v, double mean) {
    double squares = 0;
    for (int64_t c = 0; c < norm->columns; c++)
        squares += (v[c] - mean) * (v[c] - mean);
    return 1 / sqrt(squares / (double)norm->columns + norm->eps);
}

static double weight_at(const struct reference_norm *norm, int64_t c) {
    return norm->weight ? norm->weight[c] + (norm->one_plus_weight ? 1 : 0) : 1;
}

void reference_norm_row(const struct reference_norm *norm, const double *v, double *y) {
    const double mean = mean_of(norm, v), factor = factor_of(norm, v, mean);
    for (int64_t c = 0; c < norm->columns; c++)
        y[c] = (v[c] - mean) * factor * weight_at(norm, c) + (norm->bias ? norm->bias[c] : 0);
}

void reference_norm_backward_row(const struct reference_norm *norm, const double *v, const double *dy, double *dv,
                                 double *dweight, double *dbias) {
    const double mean = mean_of(norm, v), factor = factor_of(norm, v, mean), columns = (double)norm->columns;
    double sum = 0, product = 0;
    for (int64_t c = 0; c < norm->columns; c++) {
        const double scaled = dy[c] * weight_at(norm, c), normal = (v[c] - mean) * factor;
        sum += norm->function == CLATTN_LAYER_NORM ? scaled : 0;
        product += scaled * normal;
        dweight[c] += dy[c] * normal;
        dbias[c] += dy[c];
    }
    for (int64_t c = 0; c < norm->columns; c++)
        dv[c] = factor * (dy[c] * weight_at(norm, c) - sum / columns - (v[c] - mean) * factor * product / columns);
}
