/* Runs attention problems on the current device and holds them against the oracle. */
#ifndef CLATTN_ATTENTION_HARNESS_H
#define CLATTN_ATTENTION_HARNESS_H

#include "attention_codes.h"
#include "attention_data.h"
#include "support.h"

/* A problem's inputs on the device, and the operation that has them; whatever no row may look at holds data->gap. */
struct attention_inputs {
    struct test_tensor tensors[12];
    struct code_tensors codes_k, codes_v; /* where k and v are quantised, in the place of theirs */
    clattn_attention_op op;
};
struct attention_inputs attention_upload(const struct attention_data *data);
void attention_inputs_untouched(const struct attention_inputs *inputs);
void attention_inputs_release(struct attention_inputs *inputs);

struct attention_result {
    double *o, *lse; /* dense; lse NULL where the problem has none */
};

/* One variant (NULL: the library's choice): runs twice, demands equal bits, untouched guards and inputs. Whatever no
 * row may look at holds data->gap: keys and values that nothing sees, queries past a length, bias behind a mask. */
struct attention_result attention_run(const struct attention_data *data, const char *variant);
void attention_result_free(struct attention_result *result);

/* Fails unless the result agrees with the oracle; where there are more rows than `rows`, that many are sampled: first,
 * last, and a spread between. */
void attention_compare(const struct attention_data *data, const struct attention_result *result, const char *variant,
                       int64_t rows);

/* Runs and compares each variant of attention_next_variant(). Fails where none does. */
void attention_check(const struct attention_data *data);

/* Runs each variant on data that is out of range: nothing but the outputs may change, whatever they become. */
void attention_survive(const struct attention_data *data);

/* As attention_check(), for a case in a dtype, against its published numbers too. */
void attention_check_case(const struct attention_case *c, clattn_dtype dtype);
void attention_check_table(const struct attention_table *table, clattn_dtype dtype);

/* The cases of a table as three cmocka tests, one a dtype. */
#define ATTENTION_TABLE_TESTS(table)                                                       \
    cmocka_unit_test_prestate(attention_table_in_fp32, (void *)(uintptr_t) & (table)),     \
        cmocka_unit_test_prestate(attention_table_in_fp16, (void *)(uintptr_t) & (table)), \
        cmocka_unit_test_prestate(attention_table_in_bf16, (void *)(uintptr_t) & (table))
void attention_table_in_fp32(void **table);
void attention_table_in_fp16(void **table);
void attention_table_in_bf16(void **table);

/* Four query heads on two kv heads, dims of 64: the shape whose programs most tests share. */
struct attention_case attention_shape(const char *name, int64_t batch, int64_t nq, int64_t nk, clattn_causal causal);

/* All variants that accept this problem, layouts included; returns how many. */
size_t attention_variants(const struct attention_data *data, const char **names, size_t limit);
/* The variants that accept this problem, layouts included: NULL past the last. Every one is a program to compile, so
 * for dims other than 64 it is one variant only, a different one from key to key, and of those for decode none;
 * CLATTN_TEST_FULL=1 gives all. */
const char *attention_next_variant(const struct attention_data *data, size_t *index);

/* Is it one of those for few queries? */
bool attention_is_decode(const char *variant);

/* Fails where two results differ in a bit of rows [first, end). */
void attention_same_rows(const struct attention_data *data, const char *variant, const struct attention_result *a,
                         const struct attention_result *b, int64_t first, int64_t end);

const char *dtype_name(clattn_dtype dtype);
extern const clattn_dtype all_dtypes[3];

#endif
