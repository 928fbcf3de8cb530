/* The matrix product in fp32, the result rounded to its storage type: the yardstick for every variant. */
#include "reference.h"

void plain_gemm_row(const struct reference_gemm *problem, clattn_dtype out_dtype, const double *a, const double *b,
                    const double *c_in, int64_t row, double *c) {
    const int64_t m = problem->m, n = problem->n, depth = problem->k;
    const int64_t batch = row / m, i = row % m;
    a += batch * m * depth;
    b += batch * depth * n;
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int64_t l = 0; l < depth; l++)
            sum += (float)(problem->transpose_a ? a[l * m + i] : a[i * depth + l]) *
                   (float)(problem->transpose_b ? b[j * depth + l] : b[l * n + j]);
        float value = (float)problem->alpha * sum;
        if (problem->beta != 0)
            value += (float)problem->beta * (float)c_in[row * n + j];
        c[j] = reference_round(out_dtype, (double)value);
    }
}
