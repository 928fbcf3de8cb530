/* Attention problems with known answers, shared by the test of the oracle and by the tests of the kernels. */
#ifndef CLATTN_ATTENTION_CASES_H
#define CLATTN_ATTENTION_CASES_H

#include <clattn/clattn.h>
#include <stdbool.h>
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
double fill_four_u1(const int64_t at[4], int64_t flat); /* 4 u(flat, 1) */
double fill_four_u2(const int64_t at[4], int64_t flat);

/* Values of a tensor whose dims of 1 are repeated: listed, or by a function. */
struct case_grid {
    int64_t dims[4]; /* all 0: absent */
    const double *values;
    case_fill fill; /* where values is NULL */
};

/* Everything optional; zero or NULL is absent. */
struct case_modifiers {
    bool has_window;
    int64_t window_left, window_right;
    float softcap;
    struct case_grid mask, bias;
    const double *alibi, *sinks;         /* [heads] */
    const double *q_lengths, *k_lengths; /* [batch] */
    const double *q_offsets, *k_offsets; /* [batch + 1]: nq or nk is that of all sequences together */
    const double *page_table;            /* [batch, max_pages]: nk is that of a page */
    int64_t max_pages, pages;
    int64_t max_q, max_k;
};

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
    struct case_modifiers with;
};

/* For tables: an array of doubles and its length; infinity below all scores. */
#define LIST(...) (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)
#define EMPTY (-(double)INFINITY)

extern const struct attention_case attention_cases[];
extern const size_t attention_case_count;

/* Those with modifiers, by what they are about. */
struct attention_table {
    const struct attention_case *cases;
    size_t count;
};
extern const struct attention_table mask_cases, window_cases, length_cases, paged_cases, bias_cases, sink_cases;

/* Fills a dense [batch, heads, rows, columns] array. */
void case_values(case_fill fill, int64_t batch, int64_t heads, int64_t rows, int64_t columns, double *values);

#endif
