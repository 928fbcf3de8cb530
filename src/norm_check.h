/* Checks that the norms and their gradients share. */
#ifndef CLATTN_NORM_CHECK_H
#define CLATTN_NORM_CHECK_H

#include "check.h"

#define NORM_DTYPES (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)
/* One work-group can loop over so many columns (SOFTMAX_ITERATIONS). */
#define NORM_MOST_COLUMNS (INT64_C(1) << 24)

clattn_status norm_check_settings(clattn_norm_function function, float eps);
/* The tensor that gives the shape. */
clattn_status norm_check_x(clattn_context *context, const clattn_tensor *x);
/* One of x's dims. */
clattn_status norm_check_whole(clattn_context *context, const clattn_tensor *x, const char *name,
                               const clattn_tensor *tensor, enum check_access access);
/* One of a row's length; absent is right too. */
clattn_status norm_check_columns(clattn_context *context, const clattn_tensor *x, const char *name,
                                 const clattn_tensor *tensor, enum check_access access);
/* tensors[0] is written and may be exactly one of the next `places`; it must not overlap any other, up to count. */
clattn_status norm_check_apart(const struct check_named *tensors, int places, int count);

#endif
