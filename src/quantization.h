/* Tensors of codes and what turns them into values (clattn_quantization): checks, and how a program is to read them. */
#ifndef CLATTN_QUANTIZATION_H
#define CLATTN_QUANTIZATION_H

#include "check.h"
#include "variant.h"

#define QUANTIZATION_DTYPES (1u << CLATTN_I8 | 1u << CLATTN_I4 | 1u << CLATTN_F8_E4M3)

/* A tensor that may hold codes, as messages name it, and before "_quantization" the quantization. */
struct quantized {
    const char *name, *prefix;
    const clattn_tensor *tensor; /* [.., heads, rows, head dim], checked but for its extent where it holds codes */
    const clattn_quantization *quantization;
};

bool quantization_is_of(const clattn_tensor *tensor);

/* Everything that clattn.h asks of codes, scales and zeros, buffers' bounds to the byte; of a tensor that holds values,
 * that the quantization is all zero. */
clattn_status quantization_check(clattn_context *context, const struct quantized *quantized, enum check_access access);

/* The bytes that a checked tensor may touch, for checks of overlap: the tensor itself where it holds values, else each
 * row of codes from its first byte to its last. */
clattn_tensor quantization_extent(const clattn_tensor *tensor, const clattn_quantization *quantization);

/* Bytes from one block of a row to the next. */
int64_t quantization_code_stride(const clattn_tensor *tensor, const clattn_quantization *quantization);

/* Refuses codes, scales and zeros that are written and cannot be proven to lie apart. Scales and zeros may lie between
 * blocks of codes. */
clattn_status quantization_check_apart(const struct quantized *quantized);

/* Of a checked tensor; all zero where it holds values. */
struct stored quantization_stored(const clattn_tensor *tensor, const clattn_quantization *quantization);

#endif
