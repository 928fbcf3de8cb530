/* Attention problems with known answers, shared by the test of the oracle and by the tests of the kernels. */
#ifndef CLATTN_ATTENTION_CASES_H
#define CLATTN_ATTENTION_CASES_H

#include <clattn/clattn.h>
#include <stddef.h>

/* An element's value from its index (b, h, row, column) and its flat row-major index. */
typedef double (*case_fill)(const int64_t at[4], int64_t flat);

double fill_u1(const int64_t at[4], int64_t flat); /* u(flat, 1) */
double fill_u2(const int64_t at[4], int64_t flat);
double fill_u3(const int64_t at[4], int64_t flat);
double fill_zero(const int64_t at[4], int64_t flat);
double fill_one(const int64_t at[4], int64_t flat);
double fill_row(const int64_t at[4], int64_t flat); /* the row's index */
double fill_row_from_1(const int64_t at[4], int64_t flat);
double fill_power(const int64_t at[4], int64_t flat); /* 2^row */
double fill_row_mod_5(const int64_t at[4], int64_t flat);
double fill_head_from_1(const int64_t at[4], int64_t flat);

struct attention_case {
    const char *name;
    int64_t batch, heads, kv_heads, nq, nk, head_dim, value_dim;
    case_fill q, k, v;
    clattn_causal causal;
    int has_diagonal;
    int64_t diagonal;
    int has_scale;
    float scale;
    /* Expected values, flat from the first row on; fewer than all is fine. NULL: not known from elsewhere. */
    const double *o;
    size_t o_count;
    const double *lse;
    size_t lse_count;
    double tolerance; /* of o, absolute, in fp32; 0: 1e-5 */
};

extern const struct attention_case attention_cases[];
extern const size_t attention_case_count;

/* Fills a dense [batch, heads, rows, columns] array. */
void case_values(case_fill fill, int64_t batch, int64_t heads, int64_t rows, int64_t columns, double *values);

#endif
