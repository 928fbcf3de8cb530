/* What attention over ranks and its gradients are given alike: a rank's tensors and the shards; and the blocks of keys and
 * values that go round. */
#ifndef CLATTN_RING_BLOCKS_H
#define CLATTN_RING_BLOCKS_H

#include "ring.h"

struct ring_attention_part {
    const clattn_attention_op *attention;
    const clattn_ring_shard *q_shard, *k_shards;
};

/* Everything but what is in the way of other tensors; results: o and lse are written, or read. */
clattn_status ring_check_attention(clattn_context *context, const struct ring_attention_part *part,
                                   const clattn_ring_transport *transport, enum check_access results);

struct ring_blocks {
    int64_t batch, heads, head_dim, value_dim;
    clattn_dtype dtype;
    const clattn_ring_shard *shards;
    int32_t ranks;
};

struct ring_blocks ring_blocks_of(const struct ring_attention_part *part, const clattn_ring_transport *transport);
/* Of what must be the same on all ranks. */
uint64_t ring_digest(const struct ring_blocks *blocks, clattn_op_kind kind);
/* A block's keys or values, dense, in no buffer. */
clattn_tensor ring_block_of(const struct ring_blocks *blocks, int32_t owner, int64_t columns);

#endif
