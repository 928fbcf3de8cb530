/* Attention forward, fused: O = softmax(scale Q K^T) V and the log-sum-exp of each row, in one pass over the keys and
 * without the score matrix (FlashAttention-2, arXiv:2307.08691). A work-group owns a block of queries of one head and
 * walks the blocks of keys that any of them may see. Parameters: attention_block.clh and the tile back-end. */
#include "attention_block.clh"
#include "forward_softmax.clh"

/* One block of keys. */
static inline __attribute__((always_inline)) void walk(block_t *block, forward_softmax_t *softmax, acc_t *out,
                                                       int first_key, bool straddles, bool plain) {
    acc_t s[SCORE_TILES];
    block_scores(block, s, first_key, straddles, plain);
    forward_softmax_step(softmax, s, out, block->scratch);
    block_values(block, out, s, first_key, straddles, plain);
}

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_forward(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v, __global byte_t *o,
                  __global float *lse MODIFIER_ARGUMENTS, attention_t call) {
    BLOCK_LOCAL_MEMORY(q_tile, slots, p_tile, special);
    MODIFIERS(modifiers);
    block_t block = block_begin(q, k, v, &modifiers, &call, q_tile, slots, p_tile, &special, get_group_id(0));
    block_stage_queries(&block);
    const key_range_t range = block_key_range(&block);

    acc_t out[MAX_OF(VALUE_TILES, 1)];
    forward_softmax_t softmax;
    softmax_state_t state;
    forward_softmax_begin(&softmax, &block);
    tiles_zero(out, VALUE_TILES);
    block.next_key = block_next(&block, range.begin, range.end);
    block_issue_first(&block, block.next_key, range.end);
    for (int first_key = block.next_key; first_key < range.end; first_key = block.next_key) {
        const bool straddles = block_straddles(&block, range, first_key);
        block.next_key = block_next(&block, first_key + BLOCK_KEYS, range.end);
        if (STAGE_AHEAD && block_is_plain(&block, straddles))
            walk(&block, &softmax, out, first_key, false, true);
        else
            walk(&block, &softmax, out, first_key, straddles, false);
    }
    GROUP_BARRIER();
    forward_softmax_finish(&softmax, &state, block.scratch);

    block_store(&block, out, state.l, o, call.o);
    block_store_lse(&block, &state, lse, call.lse);
}
