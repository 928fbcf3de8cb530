/* Oracles in double precision, and the plain low-precision versions whose error bounds that of the kernels.
 *
 * All host tensors here are dense row-major arrays of double that hold values of the storage type exactly; typed memory
 * is converted at the edge (reference_encode, reference_decode). Operations with rows work row by row, so that large
 * shapes can be checked on a selection of rows. Nothing here touches a device. */
#ifndef CLATTN_REFERENCE_H
#define CLATTN_REFERENCE_H

#include <clattn/clattn.h>
#include <stdbool.h>

/* ---- numbers ---- */

/* The value of the storage type that is nearest to value (ties to even). */
double reference_round(clattn_dtype dtype, double value);
/* The distance from |value| to the next larger number of the type. */
double reference_ulp(clattn_dtype dtype, double value);
/* Element `index` of typed memory. */
double reference_decode(clattn_dtype dtype, const void *data, int64_t index);
void reference_encode(clattn_dtype dtype, void *data, int64_t index, double value);

/* The number of elements of a tensor. */
int64_t reference_count(const clattn_tensor *shape);
/* Copies a view's elements out of (into) typed memory, where the view's offset and strides lie, in logical order. */
void reference_gather(const clattn_tensor *view, const void *memory, double *values);
void reference_scatter(const clattn_tensor *view, void *memory, const double *values);

/* u(i, s) of the test cases: multiples of 1/64 in [-1, 63/64], exact in every dtype. */
double reference_u(uint32_t index, uint32_t seed);
/* Standard normal values from a seeded generator; index and seed alone decide the value. */
double reference_normal(uint64_t index, uint64_t seed);

/* ---- attention ---- */

struct reference_attention {
    int64_t batch, heads, kv_heads, nq, nk, head_dim, value_dim;
    double scale;
    bool causal;
    int64_t diagonal; /* where causal: key j is visible to query i where j <= i + diagonal */
};

/* From an operation's dims and settings; tensors' memory is not looked at. */
struct reference_attention reference_attention_of(const clattn_attention_op *op);

/* How many keys query i sees; they are the first ones. */
int64_t reference_visible_keys(const struct reference_attention *problem, int64_t i);

/* Row (b * heads + h) * nq + i of o [value_dim] and lse [1]. p [nk] may be NULL: the probabilities. */
void reference_attention_row(const struct reference_attention *problem, const double *q, const double *k,
                             const double *v, int64_t row, double *o, double *lse, double *p);

/* The same in fp32, with P rounded to dtype and o to out_dtype. */
void plain_attention_row(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                         const double *q, const double *k, const double *v, int64_t row, double *o, double *lse,
                         double *p);

/* ---- matrix product ---- */

struct reference_gemm {
    int64_t batch, m, n, k; /* batch: all leading dims together, dense in all three */
    bool transpose_a, transpose_b;
    double alpha, beta;
};

/* Row b * m + i of c [n]: alpha op(a) op(b) + beta c_in. c_in (whole matrix) is not read where beta is 0. */
void reference_gemm_row(const struct reference_gemm *problem, const double *a, const double *b, const double *c_in,
                        int64_t row, double *c);
void plain_gemm_row(const struct reference_gemm *problem, clattn_dtype out_dtype, const double *a, const double *b,
                    const double *c_in, int64_t row, double *c);

/* ---- softmax ---- */

/* One row. result: [columns] of softmax and log-softmax, else [1] (of a state: the maximum); l [1]: a state's sum. */
void reference_softmax_row(clattn_softmax_function function, clattn_empty_rows empty_rows, int64_t columns,
                           const double *x, double *result, double *l);
/* The same in fp32, rounded to out_dtype. */
void plain_softmax_row(clattn_softmax_function function, clattn_dtype out_dtype, int64_t columns, const double *x,
                       double *result, double *l);

/* ---- merging ---- */

/* count states of parts of one row. */
void reference_softmax_merge(int count, const double *m_in, const double *l_in, double *m, double *l);
void plain_softmax_merge(int count, const double *m_in, const double *l_in, double *m, double *l);

/* count partial results of one row: o_in[i] [value_dim] and lse_in[i]; an operand whose lse is infinite is empty. */
void reference_attention_merge_row(int count, int64_t value_dim, const double *const *o_in, const double *lse_in,
                                   double *o, double *lse);
void plain_attention_merge_row(int count, clattn_dtype out_dtype, int64_t value_dim, const double *const *o_in,
                               const double *lse_in, double *o, double *lse);

/* ---- comparing ---- */

/* Errors over all that was compared so far; zero-initialise before the first. */
struct reference_error {
    int64_t count;
    double largest;           /* |got - want| */
    double relative;          /* |got - want| / |want|, where want is not 0 */
    double plain_largest;     /* of the plain version */
    int64_t bad;              /* elements over the bound */
    double got, want, bound;  /* the first bad one */
    int64_t index;            /* ... and where it was, counted over all calls */
    int64_t class_mismatches; /* NaN or infinity on one side only, or infinities of unlike sign */
};

/* The largest finite |plain - want|. */
double reference_plain_error(int64_t count, const double *want, const double *plain);

/* Each |got - want| must be at most 2 * plain_error + 1 ulp of want in dtype; non-finite values must be of one class.
 */
void reference_compare(struct reference_error *error, int64_t count, const double *got, const double *want,
                       double plain_error, clattn_dtype dtype);

/* Each |got - want| must be at most absolute + relative * |want|; non-finite values must be of one class. */
void reference_compare_within(struct reference_error *error, int64_t count, const double *got, const double *want,
                              double absolute, double relative);

#endif
