/* Oracles in double precision, and the plain low-precision versions whose error bounds that of the kernels.
 *
 * All host tensors here are dense row-major arrays of double that hold values of the storage type exactly; typed memory
 * is converted at the edge (reference_encode, reference_decode). Operations with rows work row by row, so that large
 * shapes can be checked on a selection of rows. Nothing here touches a device. */
#ifndef CLATTN_REFERENCE_H
#define CLATTN_REFERENCE_H

#include <clattn/clattn.h>
#include <clattn/kv_cache.h>
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

/* A dense array [B,Hq,Nq,Nk] whose dims of 1 are repeated. */
struct reference_grid {
    const double *values; /* NULL: absent */
    int64_t dims[4];
};

struct reference_attention {
    int64_t batch; /* sequences */
    int64_t heads, kv_heads, head_dim, value_dim;
    int64_t nq, nk; /* dims[2] of q and k: with offsets all sequences' rows together, with pages those of one page */
    double scale;
    double softcap; /* 0: none */
    bool causal, top_left, has_diagonal;
    int64_t diagonal;                  /* where has_diagonal */
    int64_t window_left, window_right; /* -1: no limit */
    int64_t max_q, max_k;              /* 0: no limit */

    /* What follows is not taken from an operation but given by the caller; NULL where absent. */
    struct reference_grid mask, bias, alibi;          /* alibi [1 or B,Hq,1,1] */
    const double *sinks;                              /* [heads] */
    const double *q_lengths, *k_lengths;              /* [batch] */
    const double *q_offsets, *k_offsets, *page_table; /* [batch + 1], [batch + 1], [batch, max_pages] */
    int64_t max_pages;
};

/* From an operation's dims and settings; tensors' memory is not looked at. Optional tensors are those with a rank: the
 * dims of their arrays are taken over, their values are for the caller to set. */
struct reference_attention reference_attention_of(const clattn_attention_op *op);

/* Rows of o: [batch or 1, heads, nq]. */
int64_t reference_attention_rows(const struct reference_attention *problem);
/* The most keys that a sequence can have. */
int64_t reference_attention_columns(const struct reference_attention *problem);

/* A row of o: whose it is and what it sees. */
struct reference_row {
    int64_t sequence; /* -1: no sequence's; such rows are not written */
    int64_t head, query;
    int64_t queries, keys;      /* lengths of the sequence, cut to max_q and max_k; rows from `queries` on are empty */
    double position;            /* query + off, from which causal, window and alibi are counted */
    int64_t first_key, end_key; /* those that lengths, causal and window leave; mask and bias may hide some of them */
};
struct reference_row reference_attention_locate(const struct reference_attention *problem, int64_t row);

/* Does the row see key j of its sequence? */
bool reference_attention_sees(const struct reference_attention *problem, const struct reference_row *at, int64_t j);
/* Row [k.dims[0], kv_heads, nk] of k and v where key j of the row's sequence lies; -1 where the page does not exist. */
int64_t reference_attention_key(const struct reference_attention *problem, const struct reference_row *at, int64_t j);

/* Pairs of queries and keys that see each other, over all heads: what the work is proportional to. */
double reference_attention_pairs(const struct reference_attention *problem);

/* Row `row` of o [value_dim] and lse [1], from whole q, k and v, which the sequences' offsets and pages point into.
 * p [columns] may be NULL: the probabilities. Rows of no sequence give o = 0, lse = -inf. */
void reference_attention_row(const struct reference_attention *problem, const double *q, const double *k,
                             const double *v, int64_t row, double *o, double *lse, double *p);
/* The same from what the row needs: its query [head_dim], its sequence's keys [keys, head_dim] and values
 * [keys, value_dim] of its head. What the row does not see is not looked at. */
void reference_attention_row_at(const struct reference_attention *problem, const struct reference_row *at,
                                const double *query, const double *keys, const double *values, double *o, double *lse,
                                double *p);

/* The same in fp32, with P rounded to dtype and o to out_dtype. Of several ways to do so, which differ in the order of
 * sums and in where the division is, each element is that of the way that is farthest from what is right. */
void plain_attention_row(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                         const double *q, const double *k, const double *v, int64_t row, double *o, double *lse,
                         double *p);
void plain_attention_row_at(const struct reference_attention *problem, const struct reference_row *at,
                            clattn_dtype dtype, clattn_dtype out_dtype, const double *query, const double *keys,
                            const double *values, double *o, double *lse, double *p);

/* What is added to a capped score: slope * (j - position) + bias; 0 where there is none. */
double reference_attention_slope(const struct reference_attention *problem, const struct reference_row *at);
double reference_attention_bias(const struct reference_attention *problem, const struct reference_row *at, int64_t j);
/* Dense copies of the keys and values of the row's sequence and head; free() both. */
void reference_attention_gather(const struct reference_attention *problem, const struct reference_row *at,
                                const double *k, const double *v, double **keys, double **values);

/* Element of the bias' array that the row and key j see. */
int64_t reference_attention_bias_cell(const struct reference_attention *problem, const struct reference_row *at,
                                      int64_t j);

/* Gradients, dense like what they are of; NULL: not wanted. What the functions find is added to what is there. */
struct reference_gradients {
    double *dq, *dk, *dv, *dbias, *dsinks;
    int64_t key_slabs; /* dims[0] of k */
};

/* From the gradients of o and (may be NULL) lse, over the whole problem. */
void reference_attention_backward(const struct reference_attention *problem, const double *q, const double *k,
                                  const double *v, const double *dout, const double *dlse,
                                  const struct reference_gradients *to);
/* The same in fp32 from the results o and lse, P and the scores' gradients rounded to dtype, results to theirs. `to` is
 * overwritten: of several orders of sums, each element is that of the one farthest from what is right. */
void plain_attention_backward(const struct reference_attention *problem, clattn_dtype dtype, clattn_dtype out_dtype,
                              clattn_dtype bias_dtype, const double *q, const double *k, const double *v,
                              const double *o, const double *lse, const double *dout, const double *dlse,
                              const struct reference_gradients *right, const struct reference_gradients *to);

/* ---- quantised rows ---- */

/* What an e4m3 byte stands for. */
double reference_e4m3(int code);
/* What a code stands for as an element of `to`: worked out in fp32, then rounded. */
double reference_dequantize(clattn_dtype dtype, int code, double scale, double zero, clattn_dtype to);
/* Codes of one block in CLATTN_I8 or CLATTN_I4, its scale and zero as fp16 holds them. */
void reference_quantize(clattn_dtype dtype, bool with_zeros, int64_t count, const double *values, double *scale,
                        double *zero, int *codes);
void reference_quantize_e4m3(int64_t count, const double *values, double scale, int *codes);

/* Where the code of a column lies, counted from the first byte of its row, and the bits below it there. */
struct reference_place {
    int64_t byte;
    int shift;
};
struct reference_place reference_code_place(clattn_dtype dtype, const clattn_quantization *quantization,
                                            int64_t column);

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

/* Gradient of one row of softmax or log-softmax from its result y. */
void reference_softmax_backward_row(clattn_softmax_function function, double scale, int64_t columns, const double *y,
                                    const double *dy, double *dx);
void plain_softmax_backward_row(clattn_softmax_function function, clattn_dtype out_dtype, double scale, int64_t columns,
                                const double *y, const double *dy, double *dx);

/* The k largest elements of one row: their probabilities and indices [k], and the row's log-sum-exp. */
void reference_softmax_topk_row(clattn_empty_rows empty_rows, int64_t columns, int k, const double *x, double *values,
                                double *indices, double *lse);
/* Probabilities of those elements and log-sum-exp in fp32, rounded to out_dtype. */
void plain_softmax_topk_row(clattn_dtype out_dtype, int64_t columns, int k, const double *x, const double *indices,
                            double *values, double *lse);

/* ---- norms ---- */

struct reference_norm {
    clattn_norm_function function;
    bool one_plus_weight;
    double eps;
    int64_t columns;
    const double *weight, *bias; /* [columns]; NULL: absent */
};

/* One row v, the residual added: y [columns]. */
void reference_norm_row(const struct reference_norm *norm, const double *v, double *y);
/* The same in fp32, rounded to out_dtype. */
void plain_norm_row(const struct reference_norm *norm, clattn_dtype out_dtype, const double *v, double *y);
/* Its gradient dv [columns] from that of y; what the row adds to dweight and dbias [columns] is added there. */
void reference_norm_backward_row(const struct reference_norm *norm, const double *v, const double *dy, double *dv,
                                 double *dweight, double *dbias);
void plain_norm_backward_row(const struct reference_norm *norm, clattn_dtype out_dtype, const double *v,
                             const double *dy, double *dv, double *dweight, double *dbias);

/* ---- optimizers ---- */

struct reference_optimizer {
    int64_t number; /* of the step, from 1 */
    double scale;   /* that gradients are divided by */
    double lr, weight_decay;
    double beta1, beta2, eps;   /* AdamW */
    double momentum, dampening; /* SGD */
    bool nesterov, begins;      /* begins: the velocity becomes the gradient */
};

/* One element's step, in place. */
void reference_adamw(const struct reference_optimizer *step, double grad, double *param, double *m, double *v);
void reference_sgd(const struct reference_optimizer *step, double grad, double *param, double *velocity);
/* The same in fp32. */
void plain_adamw(const struct reference_optimizer *step, double grad, double *param, double *m, double *v);
void plain_sgd(const struct reference_optimizer *step, double grad, double *param, double *velocity);

/* A dynamic loss scale. */
struct reference_scale_rule {
    double growth, backoff, least, most;
    int64_t interval;
};
struct reference_scale {
    double scale;
    int64_t good, overflows, steps;
};
void reference_loss_scale(const struct reference_scale_rule *rule, bool overflow, struct reference_scale *state);

/* ---- merging ---- */

/* count states of parts of one row. */
void reference_softmax_merge(int count, const double *m_in, const double *l_in, double *m, double *l);
void plain_softmax_merge(int count, const double *m_in, const double *l_in, double *m, double *l);

/* count partial results of one row: o_in[i] [value_dim] and lse_in[i]; an operand whose lse is infinite is empty. */
void reference_attention_merge_row(int count, int64_t value_dim, const double *const *o_in, const double *lse_in,
                                   double *o, double *lse);
void plain_attention_merge_row(int count, clattn_dtype out_dtype, int64_t value_dim, const double *const *o_in,
                               const double *lse_in, double *o, double *lse);

/* ---- the KV cache ---- */

struct reference_rope {
    clattn_rope_style style;
    int64_t rotary_dim;
    double base, scale;
    const double *cos, *sin; /* [positions, rotary_dim / 2] in place of base and scale; NULL: absent */
};

/* One row x [columns] at a position. */
void reference_rope_row(const struct reference_rope *rope, int64_t columns, int64_t position, const double *x,
                        double *y);
/* The same in fp32, with factors rounded to fp32 and the result to out_dtype. */
void plain_rope_row(const struct reference_rope *rope, clattn_dtype out_dtype, int64_t columns, int64_t position,
                    const double *x, double *y);

struct reference_append {
    int64_t rows;              /* of a batch of the new tensors */
    int64_t sequences;         /* where there are q_offsets */
    int64_t cache_rows, pages; /* rows of a cache or of a page */
    int64_t max_pages;
    int64_t table_rows; /* of cos and sin; 0: there are none */
    const double *page_table, *k_lengths, *q_lengths, *q_offsets, *positions, *position_offsets; /* NULL: absent */
};

struct reference_new_row {
    bool exists; /* else nothing is written */
    int64_t sequence, index, position;
    int64_t page, row; /* first dim and row of the cache; page -1: dropped there */
};
struct reference_new_row reference_append_locate(const struct reference_append *append, int64_t batch, int64_t row);

/* As appending does it for CLATTN_I8 and CLATTN_I4: the codes [count] of a block, and the fp16 bits of its scale and
 * zero (0 without zeros). */
void reference_quantize_block(clattn_dtype dtype, bool zeros, int count, const float *x, uint16_t *scale_bits,
                              uint16_t *zero_bits, int *codes);
/* CLATTN_F8_E4M3, saturating; NaN for infinity. */
uint8_t reference_f8_code(double value);

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
