/* The checks of attention over ranks, and what its blocks of keys are. */
#include "ring_blocks.h"
#include "attention.h"
#include "quantization.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <xxhash.h>

enum { BATCH, HEAD, ROW, COLUMN };

static clattn_status check_modifiers(const clattn_attention_op *op) {
    const struct {
        const char *name;
        bool present;
    } refused[] = {{"mask", tensor_is_present(&op->mask)},
                   {"bias", tensor_is_present(&op->bias)},
                   {"q_lengths", tensor_is_present(&op->q_lengths)},
                   {"k_lengths", tensor_is_present(&op->k_lengths)},
                   {"q_offsets", tensor_is_present(&op->q_offsets)},
                   {"k_offsets", tensor_is_present(&op->k_offsets)},
                   {"page_table", tensor_is_present(&op->page_table)},
                   {"max_q", op->max_q != 0},
                   {"max_k", op->max_k != 0},
                   {"k", quantization_is_of(&op->k)},
                   {"v", quantization_is_of(&op->v)}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        RETURN_IF(refused[i].present, CLATTN_UNSUPPORTED, "%s: %s keys that are spread over ranks", refused[i].name,
                  i < 9 ? "not with" : "quantised; not with");
    RETURN_IF(op->causal == CLATTN_CAUSAL_BOTTOM_RIGHT && !op->has_diagonal, CLATTN_INVALID_ARGUMENT,
              "causal: CLATTN_CAUSAL_BOTTOM_RIGHT needs a diagonal: a rank does not know how many queries there are");
    return CLATTN_SUCCESS;
}

static clattn_status check_rows(const char *name, const clattn_tensor *tensor, const char *shard_name,
                                const clattn_ring_shard *shard) {
    const int64_t rows = clattn_ring_shard_rows(shard);
    RETURN_IF(tensor->dims[ROW] != rows, CLATTN_INVALID_ARGUMENT,
              "%s: dims[2] = %" PRId64 ", but %s has %" PRId64 " rows", name, tensor->dims[ROW], shard_name, rows);
    RETURN_IF(rows > ATTENTION_MAX_LENGTH, CLATTN_UNSUPPORTED, "%s: length %" PRId64 " is above %" PRId64, name, rows,
              ATTENTION_MAX_LENGTH);
    return CLATTN_SUCCESS;
}

/* ---- the public struct's parts ----------------------------------------------------------------------------------- */

clattn_status ring_check_attention(clattn_context *context, const struct ring_attention_part *part,
                                   const clattn_ring_transport *transport, enum check_access results) {
    const clattn_attention_op *attention = part->attention;
    FORWARD(check_op(context, &attention->head, CLATTN_OP_ATTENTION, sizeof *attention));
    FORWARD(check_modifiers(attention));
    FORWARD(attention_check(context, attention, results));
    FORWARD(ring_check_shard("q_shard", part->q_shard));
    FORWARD(ring_check_shards(part->k_shards, transport->ranks));
    FORWARD(check_rows("q", &attention->q, "q_shard", part->q_shard));
    return check_rows("k", &attention->k, "k_shards[rank]", &part->k_shards[transport->rank]);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct ring_blocks ring_blocks_of(const struct ring_attention_part *part, const clattn_ring_transport *transport) {
    const struct ring_blocks blocks = {.batch = part->attention->k.dims[BATCH],
                                       .heads = part->attention->k.dims[HEAD],
                                       .head_dim = part->attention->k.dims[COLUMN],
                                       .value_dim = part->attention->v.dims[COLUMN],
                                       .dtype = part->attention->k.dtype,
                                       .shards = part->k_shards,
                                       .ranks = transport->ranks};
    return blocks;
}

uint64_t ring_digest(const struct ring_blocks *blocks, clattn_op_kind kind) {
    const int64_t values[] = {(int64_t)kind,    blocks->ranks,     blocks->batch,         blocks->heads,
                              blocks->head_dim, blocks->value_dim, (int64_t)blocks->dtype};
    return XXH64(blocks->shards, (size_t)blocks->ranks * sizeof *blocks->shards, XXH64(values, sizeof values, 0));
}

size_t ring_area(int64_t elements, clattn_dtype dtype) {
    const size_t bytes = (size_t)elements * clattn_dtype_size(dtype);
    return (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

static int64_t key_rows(const struct ring_blocks *blocks, int32_t owner) {
    return blocks->batch * blocks->heads * clattn_ring_shard_rows(&blocks->shards[owner]);
}

static size_t keys_bytes(const struct ring_blocks *blocks, int32_t owner) {
    return ring_area(key_rows(blocks, owner) * blocks->head_dim, blocks->dtype);
}

size_t ring_block_bytes(const struct ring_blocks *blocks, int32_t owner) {
    const int64_t values = key_rows(blocks, owner) * blocks->value_dim;
    return keys_bytes(blocks, owner) + (size_t)values * clattn_dtype_size(blocks->dtype);
}

size_t ring_largest_block(const struct ring_blocks *blocks) {
    size_t most = 0;
    for (int32_t i = 0; i < blocks->ranks; i++) {
        const size_t bytes = ring_block_bytes(blocks, i);
        most = bytes > most ? bytes : most;
    }
    return (most + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

void ring_block_place(const struct ring_blocks *blocks, int32_t owner, cl_mem buffer, size_t at, clattn_tensor *k,
                      clattn_tensor *v) {
    const int64_t rows = clattn_ring_shard_rows(&blocks->shards[owner]);
    const int64_t k_dims[4] = {blocks->batch, blocks->heads, rows, blocks->head_dim};
    const int64_t v_dims[4] = {blocks->batch, blocks->heads, rows, blocks->value_dim};
    const size_t element = clattn_dtype_size(blocks->dtype);
    *k = clattn_tensor_dense(buffer, blocks->dtype, 4, k_dims);
    *v = clattn_tensor_dense(buffer, blocks->dtype, 4, v_dims);
    k->offset = (int64_t)(at / element);
    v->offset = (int64_t)((at + keys_bytes(blocks, owner)) / element);
}
