/* clattn: gradients of softmax and the norms. MIT licence. Calls follow the rules of clattn.h. */
#ifndef CLATTN_TRAINING_H
#define CLATTN_TRAINING_H

#include <clattn/clattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients of clattn_norm(), whose statistics are worked out again from x: what was normalised, so that after a
 * residual add x is its sum.
 *
 *   x, dy, dsum, dx [..,C]  weight, dweight, dbias [C]   as in clattn_norm_op
 *
 * All but x, dy and dx are optional. dx = (gradient of y's part) + dsum, the gradient that reaches the sum elsewhere; it
 * is that of x and of the residual alike. dweight and dbias are sums over all rows, in a fixed order; they need
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
 * y, dy and dx have the same dims, any strides and a dtype each; rows of up to 2^24 elements. dx may be exactly y or dy;
 * other overlap is refused. */
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

#ifdef __cplusplus
}
#endif

#endif
