/* What attention over ranks and its gradients are given alike: a rank's tensors and the shards; and the blocks of
 * keys and values that go round. */
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

/* A block is keys [B,Hkv,N,D], dense, and values [B,Hkv,N,Dv] from the next multiple of RING_ALIGN bytes on. */
#define RING_ALIGN 256
size_t ring_area(int64_t elements, clattn_dtype dtype); /* bytes, rounded up to RING_ALIGN */
size_t ring_block_bytes(const struct ring_blocks *blocks, int32_t owner);
size_t ring_largest_block(const struct ring_blocks *blocks); /* rounded up to RING_ALIGN */
void ring_block_place(const struct ring_blocks *blocks, int32_t owner, cl_mem buffer, size_t at, clattn_tensor *k,
                      clattn_tensor *v);

#endif
