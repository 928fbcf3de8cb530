/* Runs attention problems on the current device and holds them against the oracle. */
#ifndef CLATTN_ATTENTION_HARNESS_H
#define CLATTN_ATTENTION_HARNESS_H

#include "attention_cases.h"
#include "reference.h"
#include "support.h"

/* A problem's settings, its inputs as dense doubles that the dtype holds exactly, and where they lie on the device. */
struct attention_data {
    const char *name;
    clattn_dtype dtype, out_dtype;
    clattn_attention_op settings; /* dims of q, k, v; causal, diagonal, scale */
    struct reference_attention problem;
    double *q, *k, *v;
    const struct test_layout *layout_q, *layout_k, *layout_v, *layout_o, *layout_lse; /* NULL: dense */
    bool without_lse;
    double gap;       /* in what must not be read; 0 is taken for NaN */
    double tolerance; /* of o, absolute and relative; 0: the bound from the plain version's error */
};

struct attention_result {
    double *o, *lse; /* dense; lse NULL where the problem has none */
};

/* Shape and settings of a case, its fills rounded to dtype. Adjust members, then run. */
struct attention_data attention_data_of(const struct attention_case *c, clattn_dtype dtype);
/* Q, K and V normally distributed, with a spread that makes the rows of P uneven. */
struct attention_data attention_data_random(const struct attention_case *shape, clattn_dtype dtype, uint64_t seed);
void attention_data_free(struct attention_data *data);

/* One variant (NULL: the library's choice): runs twice, demands equal bits, untouched guards and inputs. */
struct attention_result attention_run(const struct attention_data *data, const char *variant);
void attention_result_free(struct attention_result *result);

/* Fails unless the result agrees with the oracle; where there are more rows than `rows`, that many are sampled: first,
 * last, and a spread between. */
void attention_compare(const struct attention_data *data, const struct attention_result *result, const char *variant,
                       int64_t rows);

/* Runs and compares each variant of attention_next_variant(). Fails where none does. */
void attention_check(const struct attention_data *data);

/* As attention_check(), for a case in a dtype, against its published numbers too. */
void attention_check_case(const struct attention_case *c, clattn_dtype dtype);

int64_t attention_o_count(const struct attention_data *data);
int64_t attention_row_count(const struct attention_data *data);

/* The variants that accept this problem, layouts included: NULL past the last. Every one is a program to compile, so
 * for dims other than 64 it is one variant only, a different one from key to key; CLATTN_TEST_FULL=1 gives all. */
const char *attention_next_variant(const struct attention_data *data, size_t *index);

/* Fails where two results differ in a bit of rows [first, end). */
void attention_same_rows(const struct attention_data *data, const char *variant, const struct attention_result *a,
                         const struct attention_result *b, int64_t first, int64_t end);

const char *dtype_name(clattn_dtype dtype);
extern const clattn_dtype all_dtypes[3];

#endif
