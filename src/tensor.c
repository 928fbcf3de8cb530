/* Helpers for the public tensor struct. */
#include "tensor.h"
#include <string.h>

size_t clattn_dtype_size(clattn_dtype dtype) {
    switch (dtype) {
    case CLATTN_F32:
    case CLATTN_I32:
        return 4;
    case CLATTN_F16:
    case CLATTN_BF16:
        return 2;
    case CLATTN_U8:
    case CLATTN_I8:
    case CLATTN_F8_E4M3:
        return 1;
    case CLATTN_I4:
        return 0;
    }
    return 0;
}

int64_t tensor_dtype_bits(clattn_dtype dtype) {
    return dtype == CLATTN_I4 ? 4 : 8 * (int64_t)clattn_dtype_size(dtype);
}

const char *tensor_dtype_name(clattn_dtype dtype) {
    switch (dtype) {
    case CLATTN_F32:
        return "f32";
    case CLATTN_F16:
        return "f16";
    case CLATTN_BF16:
        return "bf16";
    case CLATTN_U8:
        return "u8";
    case CLATTN_I32:
        return "i32";
    case CLATTN_I8:
        return "i8";
    case CLATTN_I4:
        return "i4";
    case CLATTN_F8_E4M3:
        return "f8_e4m3";
    }
    return "unknown";
}

/* Unsigned, because absurd dims, which a call refuses later, must not overflow here. */
static int64_t multiply_wrapping(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

clattn_tensor clattn_tensor_dense(cl_mem buffer, clattn_dtype dtype, int32_t rank, const int64_t *dims) {
    clattn_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.memory.kind = CLATTN_MEMORY_BUFFER;
    tensor.memory.as.buffer = buffer;
    tensor.dtype = dtype;
    tensor.rank = rank < 1 ? 1 : rank > CLATTN_MAX_RANK ? CLATTN_MAX_RANK : rank;
    int64_t stride = 1;
    for (int i = tensor.rank - 1; i >= 0; i--) {
        tensor.dims[i] = dims[i];
        tensor.strides[i] = stride;
        stride = multiply_wrapping(stride, dims[i]);
    }
    return tensor;
}

/* Its index from 0 on; -1 where the tensor has no such dim. */
static int dim_of(const clattn_tensor *tensor, int32_t dim) {
    const int32_t rank = tensor->rank < CLATTN_MAX_RANK ? tensor->rank : CLATTN_MAX_RANK;
    return rank < 1 || dim < -rank || dim >= rank ? -1 : dim < 0 ? dim + rank : dim;
}

clattn_tensor clattn_tensor_slice(clattn_tensor tensor, int32_t dim, int64_t first, int64_t count) {
    const int at = dim_of(&tensor, dim);
    int64_t step;
    if (at < 0 || first < 0 || count < 0 || first > tensor.dims[at] || count > tensor.dims[at] - first ||
        __builtin_mul_overflow(first, tensor.strides[at], &step) ||
        __builtin_add_overflow(tensor.offset, step, &tensor.offset)) {
        tensor.rank = 0;
        return tensor;
    }
    tensor.dims[at] = count;
    return tensor;
}

clattn_tensor clattn_tensor_transpose(clattn_tensor tensor, int32_t dim, int32_t other) {
    const int a = dim_of(&tensor, dim), b = dim_of(&tensor, other);
    if (a < 0 || b < 0) {
        tensor.rank = 0;
        return tensor;
    }
    const int64_t size = tensor.dims[a], stride = tensor.strides[a];
    tensor.dims[a] = tensor.dims[b];
    tensor.strides[a] = tensor.strides[b];
    tensor.dims[b] = size;
    tensor.strides[b] = stride;
    return tensor;
}

bool tensor_is_present(const clattn_tensor *tensor) {
    return tensor->memory.kind != CLATTN_MEMORY_NONE;
}

bool tensor_is_empty(const clattn_tensor *tensor) {
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] == 0)
            return true;
    return false;
}

/* Guarded step by step: sizes come from callers, and a wrapped sum would accept a view that reaches far outside its
 * buffer. */
bool tensor_end_in_bytes(const clattn_tensor *tensor, int64_t *end) {
    int64_t last = tensor->offset, step = 0;
    for (int i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(tensor->dims[i] - 1, tensor->strides[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    if (__builtin_add_overflow(last, 1, &last))
        return false;
    if (tensor->dtype == CLATTN_I4) {
        *end = last / 2 + last % 2;
        return true;
    }
    return !__builtin_mul_overflow(last, (int64_t)clattn_dtype_size(tensor->dtype), end);
}
