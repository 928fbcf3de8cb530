/* clattn: gradients of attention, softmax and the norms, and what mixed-precision training needs besides. MIT licence.
 * Calls follow the rules of clattn.h. */
#ifndef CLATTN_TRAINING_H
#define CLATTN_TRAINING_H

#include <clattn/clattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients of clattn_attention(), in O(N) memory (workspace: two floats a query, more for masks and sinks): scores and
 * probabilities are worked out again from q, k and lse.
 *
 *   attention   the forward call's struct as it was given: q, k, v, all settings and modifiers, and its results o and
 *               lse, which are read here; lse is required
 *   dout        like o, in q's dtype; innermost stride 1      dlse (optional)  like lse, F32: gradient that reaches it
 *   dq, dk, dv  like q, k, v; one dtype, that of q or F32; innermost strides of 1
 *   dbias       like bias, dims of 1 included, over which it is summed   dsinks  like sinks
 *
 * Every output is optional and written whole: rows past lengths and keys that no query sees get zeros, also where there
 * are no queries at all; rows of no sequence are not written. dk and dv are sums over the query heads that share them.
 * What masks hide has no gradient and no influence, whatever it holds; nor has a row that sees no key. Nothing is added
 * up by atomics: the result is the same on every run. Not with page_table or quantised keys and values. Outputs must
 * not overlap each other or any input. */
typedef struct clattn_attention_backward_op {
    clattn_op head;
    clattn_attention_op attention;
    clattn_tensor dout, dlse;
    clattn_tensor dq, dk, dv, dbias, dsinks;
} clattn_attention_backward_op;

CLATTN_API void clattn_attention_backward_init(clattn_attention_backward_op *op);
CLATTN_API clattn_status clattn_attention_backward(clattn_context *context, const clattn_attention_backward_op *op,
                                                   const clattn_launch *launch);

/* Gradients of clattn_norm(), whose statistics are worked out again from x: what was normalised, so that after a
 * residual add x is its sum.
 *
 *   x, dy, dsum, dx [..,C]  weight, dweight, dbias [C]   as in clattn_norm_op
 *
 * All but x, dy and dx are optional. dx = (gradient of y's part) + dsum, the gradient that reaches the sum elsewhere;
 * it is that of x and of the residual alike. dweight and dbias are sums over all rows, in a fixed order; they need
 * workspace. dx may be exactly x, dy or dsum; other overlap is refused. No rows or no columns: nothing written. */
typedef struct clattn_norm_backward_op {
    clattn_op head;
    clattn_norm_function function;
    int32_t one_plus_weight; /* as in the forward call */
    float eps;               /* likewise; default 1e-5 */
    clattn_tensor x, weight, dy, dsum, dx, dweight, dbias;
} clattn_norm_backward_op;

CLATTN_API void clattn_norm_backward_init(clattn_norm_backward_op *op);
CLATTN_API clattn_status clattn_norm_backward(clattn_context *context, const clattn_norm_backward_op *op,
                                              const clattn_launch *launch);

/* Gradients of CLATTN_SOFTMAX and CLATTN_LOG_SOFTMAX from their result y.
 *
 *   softmax: dx = scale * y * (dy - sum(y dy))   log-softmax: dx = scale * (dy - exp(y) * sum(dy))
 *
 * y, dy and dx have the same dims, any strides and a dtype each; rows of up to 2^24 elements. dx may be exactly y or
 * dy; other overlap is refused. */
typedef struct clattn_softmax_backward_op {
    clattn_op head;
    clattn_softmax_function function;
    int32_t axis; /* default -1: the last; negative counts from the end */
    float scale;  /* what the forward call scaled x by; default 1 */
    clattn_tensor y, dy, dx;
} clattn_softmax_backward_op;

CLATTN_API void clattn_softmax_backward_init(clattn_softmax_backward_op *op);
CLATTN_API clattn_status clattn_softmax_backward(clattn_context *context, const clattn_softmax_backward_op *op,
                                                 const clattn_launch *launch);

/* ---- mixed precision --------------------------------------------------------------------------------------------- */

/* The operations below walk over tensors element by element, any strides, up to 2^40 elements a tensor. Those that take
 * lists take arrays of `count` tensors, read during the call only; entry i of each array has the same dims. One launch
 * takes the tensors of a list that are alike in dtypes and layout (dense and aligned, dense, strided): up to 32 dense
 * ones, as many as the device's limit of kernel arguments leaves room for (1024 bytes: 8 of an optimizer, 16 of
 * unscaling), of strided ones fewer. Longer lists take as few launches as that allows. Empty tensors are passed over.
 *
 * Scalars on the device (a scale, a flag, a counter) are tensors with a single element. */

/* y = x in another dtype: F32, F16 or BF16 each, rounded to nearest even; what is too large becomes infinite, NaN stays
 * NaN. x and y have the same dims. y may be exactly x's view where the two dtypes are of one size; other overlap is
 * refused. */
typedef struct clattn_cast_op {
    clattn_op head;
    clattn_tensor x, y;
} clattn_cast_op;

CLATTN_API void clattn_cast_init(clattn_cast_op *op);
CLATTN_API clattn_status clattn_cast(clattn_context *context, const clattn_cast_op *op, const clattn_launch *launch);

/* Gradients divided by a loss scale, and whether they can be used: y[i] = x[i] / scale, computed as a product in fp32.
 *
 *   x[i], y[i] F32, F16 or BF16   scale F32   overflow I32
 *
 * overflow becomes 1 where any x or y is infinite or NaN, a value that overflows y's dtype included, else 0, whatever
 * it held before; all of y is written either way. y = NULL: the gradients are looked at alone, for optimizers that take
 * the scale themselves. y[i] may be exactly x[i]; other overlap is refused. */
typedef struct clattn_unscale_op {
    clattn_op head;
    int32_t count;
    const clattn_tensor *x, *y;
    clattn_tensor scale, overflow;
} clattn_unscale_op;

CLATTN_API void clattn_unscale_init(clattn_unscale_op *op);
CLATTN_API clattn_status clattn_unscale(clattn_context *context, const clattn_unscale_op *op,
                                        const clattn_launch *launch);

/* A dynamic loss scale that never leaves the device. Its state is four 32-bit words:
 *
 *   0  the scale, as the bits of an F32: a view of dtype F32 at the same place is the `scale` of other operations
 *   1  good steps since the scale last changed
 *   2  steps that overflowed, in all
 *   3  steps, in all
 *
 * A call looks at overflow once a step. Where it is not 0, the scale becomes max(scale * backoff, least) and the good
 * steps 0; else they grow by one, and at growth_interval the scale becomes min(scale * growth, most) and they 0. A call
 * with restart writes the initial state instead, and needs no overflow. */
typedef struct clattn_loss_scale_op {
    clattn_op head;
    clattn_tensor state;    /* I32 [4], dense */
    clattn_tensor overflow; /* I32, a single element */
    int32_t restart;
    int32_t growth_interval; /* default 2000; at least 1 */
    float initial;           /* default 65536; from least to most */
    float growth;            /* default 2; finite, at least 1 */
    float backoff;           /* default 0.5; above 0, at most 1 */
    float least, most;       /* default 1 and 2^24; normal and positive */
} clattn_loss_scale_op;

CLATTN_API void clattn_loss_scale_init(clattn_loss_scale_op *op);
CLATTN_API clattn_status clattn_loss_scale_update(clattn_context *context, const clattn_loss_scale_op *op,
                                                  const clattn_launch *launch);

/* What the two optimizers share. All members but param, grad and the counter of AdamW are optional. */
typedef struct clattn_optimizer_list {
    int32_t count;
    const clattn_tensor *param; /* F32: the master weights */
    const clattn_tensor *grad;  /* F32, F16 or BF16 */
    const clattn_tensor *copy;  /* F16 or BF16: receives param, rounded; single entries may be absent */
    clattn_tensor overflow;     /* I32: where it is not 0 the call changes nothing */
    clattn_tensor scale;        /* F32: gradients are divided by it first */
    clattn_tensor rate;         /* F32: the learning rate, instead of the member lr */
    clattn_tensor steps;        /* I32: steps taken so far, 0 before the first; a step that is taken adds 1 */
} clattn_optimizer_list;

/* AdamW (arXiv:1711.05101), with t = steps + 1:
 *
 *   param -= lr * weight_decay * param
 *   m = beta1 m + (1 - beta1) grad,  v = beta2 v + (1 - beta2) grad^2
 *   param -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
 *
 * The arrays m and v are F32 and start as zeros. Nothing that is written may overlap anything else. */
typedef struct clattn_adamw_op {
    clattn_op head;
    clattn_optimizer_list list;
    const clattn_tensor *m, *v;
    float lr;           /* default 1e-3; finite, as are all settings */
    float beta1, beta2; /* default 0.9 and 0.999; at least 0, below 1 */
    float eps;          /* default 1e-8; at least 0 */
    float weight_decay; /* default 0.01 */
} clattn_adamw_op;

CLATTN_API void clattn_adamw_init(clattn_adamw_op *op);
CLATTN_API clattn_status clattn_adamw(clattn_context *context, const clattn_adamw_op *op, const clattn_launch *launch);

/* Stochastic gradient descent:
 *
 *   d = grad + weight_decay * param
 *   velocity = momentum * velocity + (1 - dampening) d,  where steps is given and still 0: velocity = d
 *   param -= lr * (velocity, or d + momentum * velocity with nesterov; d without momentum)
 *
 * The array velocity is F32; it starts as zeros where steps is absent, is not read in the first step where steps is
 * given, and is NULL where momentum is 0. Nothing that is written may overlap anything else. */
typedef struct clattn_sgd_op {
    clattn_op head;
    clattn_optimizer_list list;
    const clattn_tensor *velocity;
    float lr;                  /* default 1e-3; finite, as are all settings */
    float momentum, dampening; /* default 0 */
    float weight_decay;        /* default 0 */
    int32_t nesterov;          /* non-zero: needs momentum, and dampening = 0 */
} clattn_sgd_op;

CLATTN_API void clattn_sgd_init(clattn_sgd_op *op);
CLATTN_API clattn_status clattn_sgd(clattn_context *context, const clattn_sgd_op *op, const clattn_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
