/* The matrix product in double precision, one row of C at a time. */
#include "reference.h"

void reference_gemm_row(const struct reference_gemm *problem, const double *a, const double *b, const double *c_in,
                        int64_t row, double *c) {
    const int64_t m = problem->m, n = problem->n, depth = problem->k;
    const int64_t batch = row / m, i = row % m;
    a += batch * m * depth;
    b += batch * depth * n;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t l = 0; l < depth; l++)
            sum += (problem->transpose_a ? a[l * m + i] : a[i * depth + l]) *
                   (problem->transpose_b ? b[j * depth + l] : b[l * n + j]);
        c[j] = problem->alpha * sum;
        if (problem->beta != 0)
            c[j] += problem->beta * c_in[row * n + j];
    }
}
