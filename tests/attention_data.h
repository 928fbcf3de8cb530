/* Attention problems with their inputs on the host; nothing here touches a device. */
#ifndef CLATTN_ATTENTION_DATA_H
#define CLATTN_ATTENTION_DATA_H

#include "attention_cases.h"
#include "reference.h"

struct code_format;
struct test_layout;

/* A tensor's codes, and its scales and zeros by blocks of rows (by heads); attention_codes.h makes them. */
struct attention_codes {
    const struct code_format *format; /* NULL: the tensor is not quantised */
    int *codes;
    double *scales, *zeros;
};

/* A problem's settings, its inputs as dense doubles that the dtype holds exactly, and where they lie on the device. */
struct attention_data {
    const char *name;
    clattn_dtype dtype, out_dtype;
    clattn_attention_op settings; /* dims and dtypes of all inputs; causal, scale, window ... */
    struct reference_attention problem;
    double *q, *k, *v;
    double *mask, *bias, *alibi, *sinks, *q_lengths, *k_lengths, *q_offsets, *k_offsets, *page_table; /* or NULL */

    struct attention_codes codes_k, codes_v;

    const struct test_layout *layout_q, *layout_k, *layout_v, *layout_o, *layout_lse; /* NULL: dense */
    const struct test_layout *layout_mask, *layout_bias, *layout_alibi, *layout_sinks, *layout_q_lengths,
        *layout_k_lengths, *layout_q_offsets, *layout_k_offsets, *layout_page_table;
    bool without_lse;
    bool v_in_k;            /* v, whose values are the first columns of k, has no memory of its own */
    bool wild;              /* lengths, offsets or pages are out of range: what is looked at is not known */
    const char *parameters; /* of the launch; NULL: tuned */
    double gap;             /* in what must not be read; 0 is taken for NaN */
    double tolerance;       /* of o, absolute and relative; 0: the bound from the plain version's error */
};

/* Shape and settings of a case, its fills rounded to dtype. Adjust members, then run. */
struct attention_data attention_data_of(const struct attention_case *c, clattn_dtype dtype);
/* Q, K and V normally distributed, with a spread that makes the rows of P uneven. */
struct attention_data attention_data_random(const struct attention_case *shape, clattn_dtype dtype, uint64_t seed);
/* Makes `problem` anew from settings and arrays: after either has been exchanged. */
void attention_data_bind(struct attention_data *data);
/* An optional input of the given dims, zeroed; freed with the data. attention_data_bind() afterwards. */
double *attention_data_add(clattn_tensor *shape, double **array, clattn_dtype dtype, int rank, const int64_t *dims);
/* Overwrites all that no row may look at, in q, k, v and bias, with the value. */
void attention_data_poison(struct attention_data *data, double value);
/* Fills the mask with blocks that are hidden, open or mixed, some of them larger than a kernel's. */
void attention_data_fill_mask(struct attention_data *data, uint32_t seed);
void attention_data_free(struct attention_data *data);

int64_t attention_o_count(const struct attention_data *data);
int64_t attention_row_count(const struct attention_data *data);

#endif
