/* Checks that the norms and their gradients share. */
#include "norm_check.h"
#include "status.h"
#include "tensor.h"

#include <math.h>

clattn_status norm_check_settings(clattn_norm_function function, float eps) {
    RETURN_IF(function != CLATTN_RMS_NORM && function != CLATTN_LAYER_NORM, CLATTN_INVALID_ARGUMENT,
              "function = %d is no clattn_norm_function", (int)function);
    RETURN_IF(!isfinite(eps) || eps < 0, CLATTN_INVALID_ARGUMENT, "eps = %g is not finite and at least 0", (double)eps);
    return CLATTN_SUCCESS;
}

clattn_status norm_check_x(clattn_context *context, const clattn_tensor *x) {
    FORWARD(check_tensor(context, "x", x, CHECK_INPUT));
    FORWARD(check_dtype("x", x, NORM_DTYPES));
    FORWARD(check_innermost_dense("x", x));
    RETURN_IF(x->dims[x->rank - 1] > NORM_MOST_COLUMNS, CLATTN_INVALID_ARGUMENT,
              "x.dims[%d] = %lld is more than 2^24 columns", (int)x->rank - 1, (long long)x->dims[x->rank - 1]);
    return CLATTN_SUCCESS;
}

clattn_status norm_check_whole(clattn_context *context, const clattn_tensor *x, const char *name,
                               const clattn_tensor *tensor, enum check_access access) {
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_dtype(name, tensor, NORM_DTYPES));
    FORWARD(check_rank(name, tensor, x->rank));
    for (int i = 0; i < x->rank; i++)
        FORWARD(check_dim(name, tensor, i, x->dims[i], "x has it too"));
    return check_innermost_dense(name, tensor);
}

clattn_status norm_check_columns(clattn_context *context, const clattn_tensor *x, const char *name,
                                 const clattn_tensor *tensor, enum check_access access) {
    if (!tensor_is_present(tensor))
        return CLATTN_SUCCESS;
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_dtype(name, tensor, NORM_DTYPES));
    FORWARD(check_rank(name, tensor, 1));
    FORWARD(check_dim(name, tensor, 0, x->dims[x->rank - 1], "x's last"));
    return check_innermost_dense(name, tensor);
}

clattn_status norm_check_apart(const struct check_named *tensors, int places, int count) {
    for (int i = 1; i < count; i++)
        if (i > places || !check_same_view(tensors[0].tensor, tensors[i].tensor))
            FORWARD(check_disjoint(tensors[0].name, tensors[0].tensor, tensors[i].name, tensors[i].tensor));
    return CLATTN_SUCCESS;
}
