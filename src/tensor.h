/* What is known of tensors and dtypes beside the public functions of tensor.c. */
#ifndef CLATTN_TENSOR_H
#define CLATTN_TENSOR_H

#include <clattn/clattn.h>
#include <stdbool.h>

/* "f32", "f16", "bf16" and so on; "unknown" for any other value. */
const char *tensor_dtype_name(clattn_dtype dtype);
/* Bits of one element; 0 for an unknown dtype. */
int64_t tensor_dtype_bits(clattn_dtype dtype);

bool tensor_is_present(const clattn_tensor *tensor);
/* A dim is 0. */
bool tensor_is_empty(const clattn_tensor *tensor);
/* Bytes from the buffer's start to the end of the last element; false where they exceed 64 bits. Not for empty ones. */
bool tensor_end_in_bytes(const clattn_tensor *tensor, int64_t *end);

#endif
