/* Problems of clattn_rope_append(): made, run twice, and held against the oracle, what must not be written included. */
#ifndef CLATTN_ROPE_HARNESS_H
#define CLATTN_ROPE_HARNESS_H

#include "support.h"

#include <clattn/kv_cache.h>

enum { ROPE_Q = 1, ROPE_K = 2, ROPE_V = 4, ROPE_QKV = 7 };

struct rope_problem {
    int parts; /* of ROPE_Q, ROPE_K, ROPE_V */
    int64_t batch, rows, heads, kv_heads, head_dim, value_dim;
    clattn_dtype q, q_out, k, v, k_cache, v_cache;
    bool in_place;
    clattn_rope_style style;
    int32_t rotary_dim; /* -1: head_dim */
    double base, scale;

    int64_t cache_rows;       /* of a page, where there are pages */
    int64_t pages, max_pages; /* 0: contiguous */
    int64_t sequences;        /* where q_offsets is given, else 0 */
    const double *page_table; /* [sequences, max_pages] */
    const double *k_lengths;  /* [sequences] */
    const double *q_lengths;  /* likewise */
    const double *q_offsets;  /* [sequences + 1] */
    const double *positions;  /* [batch, rows] */
    const double *position_offsets;
    int64_t table_rows; /* 0: angles are computed */
    clattn_dtype cos, sin;
    const struct test_layout *q_layout, *k_layout, *v_layout, *k_cache_layout, *v_cache_layout;
};

/* All three parts in fp32, contiguous, of two sequences. */
struct rope_problem rope_usual(void);
void rope_set_dtypes(struct rope_problem *problem, clattn_dtype in, clattn_dtype out);
/* Runs it and compares; `name` is for messages. */
void rope_check(const struct rope_problem *problem, const char *name);

/* Runs it and looks only at what lies round the outputs. */
void rope_survive(const struct rope_problem *problem);

#endif
