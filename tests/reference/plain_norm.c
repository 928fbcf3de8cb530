/* RMSNorm and LayerNorm of one row, and their gradients, the plain way in fp32, results rounded to their storage type.
 */
#include "reference.h"

#include <math.h>

static float mean_of(const struct reference_norm *norm, const double *v) {
    float sum = 0;
    for (int64_t c = 0; c < norm->columns && norm->function == CLATTN_LAYER_NORM; c++)
        sum += (float)v[c];
    return sum / (float)norm->columns;
}

static float factor_of(const struct reference_norm *norm, const double *v, float mean) {
    float squares = 0;
    for (int64_t c = 0; c < norm->columns; c++)
        squares += ((float)v[c] - mean) * ((float)v[c] - mean);
    return 1 / sqrtf(squares / (float)norm->columns + (float)norm->eps);
}

static float weight_at(const struct reference_norm *norm, int64_t c) {
    return norm->weight ? (float)norm->weight[c] + (norm->one_plus_weight ? 1.0f : 0.0f) : 1.0f;
}

void plain_norm_row(const struct reference_norm *norm, clattn_dtype out_dtype, const double *v, double *y) {
    const float mean = mean_of(norm, v), factor = factor_of(norm, v, mean);
    for (int64_t c = 0; c < norm->columns; c++) {
        const float bias = norm->bias ? (float)norm->bias[c] : 0.0f;
        y[c] = reference_round(out_dtype, (double)(((float)v[c] - mean) * factor * weight_at(norm, c) + bias));
    }
}

void plain_norm_backward_row(const struct reference_norm *norm, clattn_dtype out_dtype, const double *v,
                             const double *dy, double *dv, double *dweight, double *dbias) {
    const float mean = mean_of(norm, v), factor = factor_of(norm, v, mean), columns = (float)norm->columns;
    float sum = 0, product = 0;
    for (int64_t c = 0; c < norm->columns; c++) {
        const float scaled = (float)dy[c] * weight_at(norm, c), normal = ((float)v[c] - mean) * factor;
        sum += norm->function == CLATTN_LAYER_NORM ? scaled : 0.0f;
        product += scaled * normal;
        dweight[c] = (double)((float)dweight[c] + (float)dy[c] * normal);
        dbias[c] = (double)((float)dbias[c] + (float)dy[c]);
    }
    for (int64_t c = 0; c < norm->columns; c++) {
        const float normal = ((float)v[c] - mean) * factor;
        const float result = factor * ((float)dy[c] * weight_at(norm, c) - sum / columns - normal * product / columns);
        dv[c] = reference_round(out_dtype, (double)result);
    }
}
