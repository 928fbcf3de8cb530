/* What the files of clattn_rope_append() share: checks (rope_kv_check.c), the kernel's arguments
 * (rope_kv_call.c), programs and launches (rope_kv.c). */
#ifndef CLATTN_ROPE_KV_H
#define CLATTN_ROPE_KV_H

#include "check.h"
#include <clattn/kv_cache.h>

/* What the tensors say together. What is absent has a size of 0. */
struct rope_shape {
    int64_t batches, rows;   /* dims of the new tensors */
    int64_t sequences;       /* batches, or what q_offsets says */
    int64_t heads, kv_heads; /* of q; of k and v */
    int64_t head_dim, value_dim;
    int64_t rotary_dim;
    int64_t cache_rows, pages; /* rows of a cache or of a page; pages, or sequences */
};

struct rope_shape rope_kv_shape(const clattn_rope_append_op *op);

/* Checks the operation wholly. */
clattn_status rope_kv_check(clattn_context *context, const clattn_rope_append_op *op);

enum { ROPE_POWERS = 9 };

/* As view_t of cl/view.clh. */
struct rope_view {
    int64_t offset, outer, inner, row;
};

/* As plane_t of cl/rope_kv.cl. */
struct rope_plane {
    struct rope_view rows;
    int64_t block;
};

/* As call_t there, its frequencies_t in place. */
struct rope_call {
    struct rope_view q, q_out, k, v, k_cache, v_cache;
    struct rope_plane k_scales, k_zeros, v_scales, v_zeros;
    int64_t k_block_bytes, v_block_bytes;
    uint64_t first_frequency, power[ROPE_POWERS];
    int64_t page_table, page_table_row;
    int64_t k_lengths, q_lengths, q_offsets, position_offsets;
    int64_t positions, positions_batch, positions_row;
    int64_t cos, cos_row, sin, sin_row;
    int64_t tokens;
    int32_t batches, rows, heads, kv_heads, head_dim, value_dim, rotary_dim, cache_rows, pages, max_pages, table_rows;
    int32_t heads_together, units;
    float direction;
};

/* Of a checked operation, for packets of so many elements. */
struct rope_call rope_kv_call(const clattn_rope_append_op *op, const struct rope_shape *shape, int vector,
                              const struct device_facts *facts);

#endif
