/* Codes are looked at as bytes: of CLATTN_I4 every row and every block starts at one, which is what makes that
 * exact. */
#include "quantization.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <stdio.h>

enum { BATCH, HEAD, ROW, COLUMN };
enum { WIDEST_LOAD = 8 }; /* bytes that a kernel takes at once */

bool quantization_is_of(const clattn_tensor *tensor) {
    return tensor->dtype == CLATTN_I8 || tensor->dtype == CLATTN_I4 || tensor->dtype == CLATTN_F8_E4M3;
}

static bool in_blocks(const clattn_tensor *tensor) {
    return tensor->dtype == CLATTN_I8 || tensor->dtype == CLATTN_I4;
}

static int64_t blocks_of(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    return tensor->dims[COLUMN] / quantization->block + (tensor->dims[COLUMN] % quantization->block != 0);
}

/* ---- the extent -------------------------------------------------------------------------------------------------- */

/* Bytes of so many codes from the start of a block. */
static int64_t bytes_of_block(clattn_dtype dtype, const clattn_quantization *quantization, int64_t codes) {
    const int64_t half = quantization->block / 2;
    if (dtype != CLATTN_I4)
        return codes;
    if (quantization->nibbles == CLATTN_NIBBLES_HALVES)
        return codes < half ? codes : half;
    return (codes + 1) / 2;
}

int64_t quantization_code_stride(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    const int64_t codes = quantization->code_stride > 0 ? quantization->code_stride : quantization->block;
    return tensor->dtype == CLATTN_I4 ? codes / 2 : codes;
}

/* False where a row's bytes exceed 64 bits. */
static bool extent_of(const clattn_tensor *tensor, const clattn_quantization *quantization, clattn_tensor *extent) {
    const int64_t codes_in_byte = tensor->dtype == CLATTN_I4 ? 2 : 1;
    *extent = *tensor;
    extent->dtype = CLATTN_U8;
    extent->offset /= codes_in_byte;
    for (int dim = BATCH; dim <= ROW; dim++)
        extent->strides[dim] /= codes_in_byte;
    extent->strides[COLUMN] = 1;
    const int64_t blocks = in_blocks(tensor) ? blocks_of(tensor, quantization) : 0;
    if (blocks == 0)
        return true;
    const int64_t rest = tensor->dims[COLUMN] - (blocks - 1) * quantization->block;
    return !__builtin_mul_overflow(blocks - 1, quantization_code_stride(tensor, quantization), &extent->dims[COLUMN]) &&
           !__builtin_add_overflow(extent->dims[COLUMN], bytes_of_block(tensor->dtype, quantization, rest),
                                   &extent->dims[COLUMN]);
}

clattn_tensor quantization_extent(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    clattn_tensor extent = *tensor;
    if (quantization_is_of(tensor))
        (void)extent_of(tensor, quantization, &extent);
    return extent;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_nothing_is_set(const struct quantized *of) {
    const clattn_quantization *quantization = of->quantization;
    const char *dtype = tensor_dtype_name(of->tensor->dtype);
    RETURN_IF(quantization->block != 0, CLATTN_INVALID_ARGUMENT,
              "%s_quantization.block: %d, but %s is %s and not in "
              "blocks",
              of->prefix, (int)quantization->block, of->name, dtype);
    RETURN_IF(quantization->nibbles != CLATTN_NIBBLES_PAIRS, CLATTN_INVALID_ARGUMENT,
              "%s_quantization.nibbles: %d, but %s is %s", of->prefix, (int)quantization->nibbles, of->name, dtype);
    RETURN_IF(quantization->code_stride != 0, CLATTN_INVALID_ARGUMENT,
              "%s_quantization.code_stride: %" PRId64 ", but %s is %s and not in blocks", of->prefix,
              quantization->code_stride, of->name, dtype);
    RETURN_IF(tensor_is_present(&quantization->zeros), CLATTN_INVALID_ARGUMENT,
              "%s_quantization.zeros is present, but %s is %s", of->prefix, of->name, dtype);
    RETURN_IF(tensor_is_present(&quantization->scales) && !quantization_is_of(of->tensor), CLATTN_INVALID_ARGUMENT,
              "%s_quantization.scales is present, but %s is %s", of->prefix, of->name, dtype);
    return CLATTN_SUCCESS;
}

static clattn_status check_blocks(const struct quantized *of) {
    const clattn_quantization *quantization = of->quantization;
    RETURN_IF(quantization->block != 32 && quantization->block != 64, CLATTN_INVALID_ARGUMENT,
              "%s_quantization.block: %d, must be 32 or 64", of->prefix, (int)quantization->block);
    RETURN_IF(quantization->nibbles != CLATTN_NIBBLES_PAIRS &&
                  (quantization->nibbles != CLATTN_NIBBLES_HALVES || of->tensor->dtype != CLATTN_I4),
              CLATTN_INVALID_ARGUMENT, "%s_quantization.nibbles: %d is unknown, or %s (%s) has none", of->prefix,
              (int)quantization->nibbles, of->name, tensor_dtype_name(of->tensor->dtype));
    RETURN_IF(quantization->code_stride != 0 && quantization->code_stride < quantization->block,
              CLATTN_INVALID_ARGUMENT, "%s_quantization.code_stride: %" PRId64 ", must be 0 or at least the block's %d",
              of->prefix, quantization->code_stride, (int)quantization->block);
    return CLATTN_SUCCESS;
}

/* Two codes a byte: what is stepped by must be whole bytes. */
static clattn_status check_even(const struct quantized *of) {
    const clattn_tensor *tensor = of->tensor;
    if (tensor->dtype != CLATTN_I4)
        return CLATTN_SUCCESS;
    RETURN_IF(tensor->offset % 2 != 0, CLATTN_INVALID_ARGUMENT,
              "%s: offset %" PRId64 " must be even (two codes a byte)", of->name, tensor->offset);
    for (int dim = BATCH; dim <= ROW; dim++)
        RETURN_IF(tensor->dims[dim] > 1 && tensor->strides[dim] % 2 != 0, CLATTN_INVALID_ARGUMENT,
                  "%s: strides[%d] = %" PRId64 " must be even (two codes a byte)", of->name, dim, tensor->strides[dim]);
    RETURN_IF(of->quantization->code_stride % 2 != 0, CLATTN_INVALID_ARGUMENT,
              "%s_quantization.code_stride: %" PRId64 " must be even (two codes a byte)", of->prefix,
              of->quantization->code_stride);
    return CLATTN_SUCCESS;
}

static clattn_status check_codes(clattn_context *context, const struct quantized *of, enum check_access access) {
    clattn_tensor extent;
    RETURN_IF(!extent_of(of->tensor, of->quantization, &extent), CLATTN_INVALID_ARGUMENT,
              "%s_quantization.code_stride: %" PRId64 " exceeds 64-bit sizes", of->prefix,
              of->quantization->code_stride);
    return check_tensor(context, of->name, &extent, access);
}

/* Scales or zeros of blocks. */
static clattn_status check_of_blocks(clattn_context *context, const struct quantized *of, const char *name,
                                     const clattn_tensor *tensor, enum check_access access) {
    static const char *const meanings[] = {"the codes' first dim", "the codes' heads", "the codes' rows"};
    FORWARD(check_dtype(name, tensor, 1u << CLATTN_F16)); /* first: a wrong one makes the extent wrong too */
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_rank(name, tensor, 4));
    for (int dim = BATCH; dim <= ROW; dim++)
        FORWARD(check_dim(name, tensor, dim, of->tensor->dims[dim], meanings[dim]));
    return check_dim(name, tensor, COLUMN, blocks_of(of->tensor, of->quantization), "blocks of the head dim");
}

/* Only read, whatever is done to the codes. */
static clattn_status check_of_heads(clattn_context *context, const struct quantized *of, const char *name,
                                    const clattn_tensor *tensor) {
    FORWARD(check_dtype(name, tensor, 1u << CLATTN_F32));
    FORWARD(check_tensor(context, name, tensor, CHECK_INPUT));
    FORWARD(check_rank(name, tensor, 1));
    return check_dim(name, tensor, 0, of->tensor->dims[HEAD], "the codes' heads");
}

clattn_status quantization_check(clattn_context *context, const struct quantized *of, enum check_access access) {
    char scales[48], zeros[48];
    const clattn_quantization *quantization = of->quantization;
    snprintf(scales, sizeof scales, "%s_quantization.scales", of->prefix);
    snprintf(zeros, sizeof zeros, "%s_quantization.zeros", of->prefix);
    if (!in_blocks(of->tensor))
        FORWARD(check_nothing_is_set(of));
    if (!quantization_is_of(of->tensor))
        return CLATTN_SUCCESS;
    if (in_blocks(of->tensor))
        FORWARD(check_blocks(of));
    FORWARD(check_even(of));
    FORWARD(check_codes(context, of, access));
    RETURN_IF(!tensor_is_present(&quantization->scales), CLATTN_INVALID_ARGUMENT, "%s is absent, but %s is %s", scales,
              of->name, tensor_dtype_name(of->tensor->dtype));
    if (!in_blocks(of->tensor))
        return check_of_heads(context, of, scales, &quantization->scales);
    FORWARD(check_of_blocks(context, of, scales, &quantization->scales, access));
    return tensor_is_present(&quantization->zeros) ? check_of_blocks(context, of, zeros, &quantization->zeros, access)
                                                   : CLATTN_SUCCESS;
}

/* The blocks as pieces of one row, where all rows are whole numbers of such steps apart: no less than the codes are. */
static clattn_tensor pieces_of(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    clattn_tensor pieces = quantization_extent(tensor, quantization);
    const int64_t between = quantization_code_stride(tensor, quantization);
    int64_t reach = pieces.dims[COLUMN] - 1;
    for (int dim = BATCH; dim <= ROW; dim++) {
        if (pieces.dims[dim] > 1 && pieces.strides[dim] % between != 0)
            return pieces;
        reach += (pieces.dims[dim] - 1) * pieces.strides[dim];
    }
    pieces.rank = 2;
    pieces.dims[0] = reach / between + 1;
    pieces.dims[1] = bytes_of_block(tensor->dtype, quantization, quantization->block);
    pieces.strides[0] = between;
    pieces.strides[1] = 1;
    return pieces;
}

static clattn_status check_plane_apart(const struct quantized *of, const char *name, const clattn_tensor *plane) {
    const clattn_tensor extent = quantization_extent(of->tensor, of->quantization);
    const clattn_tensor pieces = pieces_of(of->tensor, of->quantization);
    return check_disjoint(name, plane, of->name, &extent) == CLATTN_SUCCESS
               ? CLATTN_SUCCESS
               : check_disjoint(name, plane, of->name, &pieces);
}

clattn_status quantization_check_apart(const struct quantized *of) {
    char scales[48], zeros[48];
    const clattn_quantization *quantization = of->quantization;
    if (!in_blocks(of->tensor) || tensor_is_empty(of->tensor))
        return CLATTN_SUCCESS;
    snprintf(scales, sizeof scales, "%s_quantization.scales", of->prefix);
    snprintf(zeros, sizeof zeros, "%s_quantization.zeros", of->prefix);
    FORWARD(check_plane_apart(of, scales, &quantization->scales));
    FORWARD(check_plane_apart(of, zeros, &quantization->zeros));
    return check_disjoint(scales, &quantization->scales, zeros, &quantization->zeros);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

/* Bytes, a power of two, at whose multiples every block of every row starts. */
static int32_t alignment_of(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    const clattn_tensor extent = quantization_extent(tensor, quantization);
    const bool several = in_blocks(tensor) && blocks_of(tensor, quantization) > 1;
    const int64_t between = several ? quantization_code_stride(tensor, quantization) : 0;
    int32_t bytes = WIDEST_LOAD;
    while (bytes > 1 && (between % bytes != 0 || !check_aligned(&extent, (size_t)bytes)))
        bytes /= 2;
    return bytes;
}

struct stored quantization_stored(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    if (!quantization_is_of(tensor))
        return (struct stored){0};
    return (struct stored){
        .dtype = (int32_t)tensor->dtype,
        .block = quantization->block,
        .nibbles = (int32_t)quantization->nibbles,
        .zeros = tensor_is_present(&quantization->zeros),
        .alignment = alignment_of(tensor, quantization),
    };
}
