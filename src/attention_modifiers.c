/* The checks of attention's optional tensors and settings. Values that lie on the device are not looked at here. */
#include "attention_modifiers.h"
#include "attention.h"
#include "status.h"
#include "tensor.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

enum { BATCH, HEAD, ROW, COLUMN };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t attention_query_sequences(const clattn_attention_op *op) {
    return tensor_is_present(&op->q_offsets) ? op->q_offsets.dims[0] - 1 : op->q.dims[BATCH];
}

static int64_t key_sequences(const clattn_attention_op *op) {
    if (tensor_is_present(&op->page_table))
        return op->page_table.dims[0];
    return tensor_is_present(&op->k_offsets) ? op->k_offsets.dims[0] - 1 : op->k.dims[BATCH];
}

int64_t attention_longest_q(const clattn_attention_op *op) {
    return op->max_q > 0 ? least(op->max_q, op->q.dims[ROW]) : op->q.dims[ROW];
}

int64_t attention_longest_k(const clattn_attention_op *op) {
    int64_t most = op->k.dims[ROW];
    if (tensor_is_present(&op->page_table) && __builtin_mul_overflow(op->page_table.dims[1], most, &most))
        most = INT64_MAX;
    return op->max_k > 0 ? least(op->max_k, most) : most;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static clattn_status check_window(const char *name, int64_t value) {
    RETURN_IF(value < -1, CLATTN_INVALID_ARGUMENT, "%s: %" PRId64 " is below -1 (no limit)", name, value);
    return CLATTN_SUCCESS;
}

static clattn_status check_most(const char *name, int64_t value) {
    RETURN_IF(value < 0, CLATTN_INVALID_ARGUMENT, "%s: %" PRId64 " is negative", name, value);
    return CLATTN_SUCCESS;
}

clattn_status attention_modifiers_check_settings(const clattn_attention_op *op) {
    FORWARD(check_window("window_left", op->window_left));
    FORWARD(check_window("window_right", op->window_right));
    /* Kernels divide by it, and a device may take what is smaller for 0. */
    RETURN_IF(!isfinite(op->softcap) || op->softcap < 0 || (op->softcap > 0 && op->softcap < FLT_MIN),
              CLATTN_INVALID_ARGUMENT, "softcap: %g is neither 0 nor a positive, finite, normal number",
              (double)op->softcap);
    FORWARD(check_most("max_q", op->max_q));
    return check_most("max_k", op->max_k);
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static clattn_status check_vector(clattn_context *context, const char *name, const clattn_tensor *tensor,
                                  clattn_dtype dtype) {
    FORWARD(check_dtype(name, tensor, 1u << dtype)); /* first: a wrong one makes the extent wrong too */
    FORWARD(check_tensor(context, name, tensor, CHECK_INPUT));
    return check_innermost_dense(name, tensor);
}

static clattn_status check_offsets(clattn_context *context, const char *name, const clattn_tensor *offsets,
                                   const char *of, const clattn_tensor *tensor) {
    if (!tensor_is_present(offsets))
        return CLATTN_SUCCESS;
    FORWARD(check_vector(context, name, offsets, CLATTN_I32));
    FORWARD(check_rank(name, offsets, 1));
    RETURN_IF(offsets->dims[0] < 1, CLATTN_INVALID_ARGUMENT, "%s: dims[0] = 0, of B sequences it is B + 1", name);
    RETURN_IF(tensor->dims[BATCH] != 1, CLATTN_INVALID_ARGUMENT, "%s: dims[0] = %" PRId64 ", with %s it must be 1", of,
              tensor->dims[BATCH], name);
    return CLATTN_SUCCESS;
}

static clattn_status check_page_table(clattn_context *context, const clattn_attention_op *op) {
    const clattn_tensor *table = &op->page_table;
    if (!tensor_is_present(table))
        return CLATTN_SUCCESS;
    RETURN_IF(tensor_is_present(&op->k_offsets), CLATTN_INVALID_ARGUMENT, "page_table: not together with k_offsets");
    FORWARD(check_vector(context, "page_table", table, CLATTN_I32));
    FORWARD(check_rank("page_table", table, 2));
    RETURN_IF(op->k.dims[ROW] == 0 && table->dims[1] > 0, CLATTN_INVALID_ARGUMENT,
              "k: dims[2] = 0, with page_table it is the size of a page");
    return CLATTN_SUCCESS;
}

static clattn_status check_lengths(clattn_context *context, const char *name, const clattn_tensor *lengths,
                                   int64_t sequences) {
    if (!tensor_is_present(lengths))
        return CLATTN_SUCCESS;
    FORWARD(check_vector(context, name, lengths, CLATTN_I32));
    FORWARD(check_rank(name, lengths, 1));
    return check_dim(name, lengths, 0, sequences, "the number of sequences");
}

clattn_status attention_modifiers_check_sequences(clattn_context *context, const clattn_attention_op *op) {
    FORWARD(check_offsets(context, "q_offsets", &op->q_offsets, "q", &op->q));
    FORWARD(check_offsets(context, "k_offsets", &op->k_offsets, "k", &op->k));
    FORWARD(check_page_table(context, op));
    const int64_t sequences = attention_query_sequences(op), of_keys = key_sequences(op);
    const char *name = tensor_is_present(&op->page_table)  ? "page_table"
                       : tensor_is_present(&op->k_offsets) ? "k_offsets"
                                                           : "k";
    RETURN_IF(of_keys != sequences, CLATTN_INVALID_ARGUMENT, "%s: %" PRId64 " sequences, %s has %" PRId64, name,
              of_keys, tensor_is_present(&op->q_offsets) ? "q_offsets" : "q", sequences);
    FORWARD(check_lengths(context, "q_lengths", &op->q_lengths, sequences));
    return check_lengths(context, "k_lengths", &op->k_lengths, sequences);
}

/* ---- mask, bias, slopes, sinks ----------------------------------------------------------------------------------- */

static clattn_status check_repeated(const char *name, const clattn_tensor *tensor, int dim, int64_t expected,
                                    const char *meaning) {
    return tensor->dims[dim] == 1 ? CLATTN_SUCCESS : check_dim(name, tensor, dim, expected, meaning);
}

/* Of sequences with offsets or pages, whose lengths the host does not know, a plane may be larger. */
static clattn_status check_extent(const char *name, const clattn_tensor *tensor, int dim, int64_t expected, bool open,
                                  const char *meaning) {
    const int64_t size = tensor->dims[dim];
    if (!open)
        return check_repeated(name, tensor, dim, expected, meaning);
    RETURN_IF(size != 1 && (size < expected || size > INT32_MAX), CLATTN_INVALID_ARGUMENT,
              "%s: dims[%d] = %" PRId64 ", expected 1 or at least %" PRId64 " (%s)", name, dim, size, expected,
              meaning);
    return CLATTN_SUCCESS;
}

static clattn_status check_plane(clattn_context *context, const clattn_attention_op *op, const char *name,
                                 const clattn_tensor *tensor, unsigned dtypes) {
    if (!tensor_is_present(tensor))
        return CLATTN_SUCCESS;
    const bool open_q = tensor_is_present(&op->q_offsets);
    const bool open_k = tensor_is_present(&op->k_offsets) || tensor_is_present(&op->page_table) || op->max_k > 0;
    FORWARD(check_dtype(name, tensor, dtypes)); /* first: a wrong one makes the extent wrong too */
    FORWARD(check_tensor(context, name, tensor, CHECK_INPUT));
    FORWARD(check_rank(name, tensor, 4));
    FORWARD(check_repeated(name, tensor, BATCH, attention_query_sequences(op), "the number of sequences"));
    FORWARD(check_repeated(name, tensor, HEAD, op->q.dims[HEAD], "q's heads"));
    FORWARD(check_extent(name, tensor, ROW, open_q ? attention_longest_q(op) : op->q.dims[ROW], open_q,
                         "the longest sequence of queries"));
    return check_extent(name, tensor, COLUMN, attention_longest_k(op), open_k, "the longest sequence of keys");
}

static clattn_status check_alibi(clattn_context *context, const clattn_attention_op *op) {
    const clattn_tensor *alibi = &op->alibi;
    if (!tensor_is_present(alibi))
        return CLATTN_SUCCESS;
    FORWARD(check_vector(context, "alibi", alibi, CLATTN_F32));
    RETURN_IF(op->has_diagonal && attention_diagonal(op) != op->diagonal, CLATTN_INVALID_ARGUMENT,
              "diagonal: %" PRId64 ", with alibi it is a distance and at most 2^40", op->diagonal);
    RETURN_IF(alibi->rank > 2, CLATTN_INVALID_ARGUMENT, "alibi: rank %d, expected 1 or 2", (int)alibi->rank);
    if (alibi->rank == 2)
        FORWARD(check_repeated("alibi", alibi, 0, attention_query_sequences(op), "the number of sequences"));
    return check_dim("alibi", alibi, alibi->rank - 1, op->q.dims[HEAD], "q's heads");
}

static clattn_status check_sinks(clattn_context *context, const clattn_attention_op *op) {
    if (!tensor_is_present(&op->sinks))
        return CLATTN_SUCCESS;
    FORWARD(check_vector(context, "sinks", &op->sinks, CLATTN_F32));
    FORWARD(check_rank("sinks", &op->sinks, 1));
    return check_dim("sinks", &op->sinks, 0, op->q.dims[HEAD], "q's heads");
}

clattn_status attention_modifiers_check(clattn_context *context, const clattn_attention_op *op) {
    FORWARD(check_plane(context, op, "mask", &op->mask, 1u << CLATTN_U8));
    FORWARD(check_plane(context, op, "bias", &op->bias, 1u << op->q.dtype | 1u << CLATTN_F32));
    FORWARD(check_alibi(context, op));
    return check_sinks(context, op);
}

unsigned attention_modifiers_of(const clattn_attention_op *op) {
    const bool band = op->causal != CLATTN_CAUSAL_NONE || op->window_left >= 0 || op->window_right >= 0;
    const bool sequences = tensor_is_present(&op->q_lengths) || tensor_is_present(&op->k_lengths) ||
                           tensor_is_present(&op->q_offsets) || tensor_is_present(&op->k_offsets);
    return (band ? MODIFIER_BAND : 0u) | (tensor_is_present(&op->mask) ? MODIFIER_MASK : 0u) |
           (tensor_is_present(&op->bias) ? MODIFIER_BIAS : 0u) | (tensor_is_present(&op->alibi) ? MODIFIER_ALIBI : 0u) |
           (sequences ? MODIFIER_SEQUENCES : 0u) | (tensor_is_present(&op->page_table) ? MODIFIER_PAGED : 0u) |
           (op->softcap > 0 ? MODIFIER_SOFTCAP : 0u) | (tensor_is_present(&op->sinks) ? MODIFIER_SINKS : 0u);
}
