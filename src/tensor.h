/* What is known of dtypes beside the public functions of tensor.c. */
#ifndef CLATTN_TENSOR_H
#define CLATTN_TENSOR_H

#include <clattn/clattn.h>

/* "f32", "f16", "bf16"; "unknown" for any other value. */
const char *tensor_dtype_name(clattn_dtype dtype);

#endif
