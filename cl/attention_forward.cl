/* Attention forward, fused: O = softmax(scale Q K^T) V and the log-sum-exp of each row, in one pass over the keys and
 * without the score matrix (FlashAttention-2, arXiv:2307.08691). A work-group owns a block of queries of one head and
 * walks the blocks of keys that any of them may see. Parameters: attention_block.clh and the tile back-end. */
#include "attention_block.clh"
#include "forward_softmax.clh"

typedef struct {
    acc_t values[MAX_OF(VALUE_TILES, 1)];
    forward_softmax_t softmax;
} forward_sums_t;

/* Takes in the block of keys at next_key. */
static inline void take_block(block_t *block, forward_sums_t *sums, key_range_t range) {
    const int first_key = block->next_key;
    const bool straddles = !block->plain && block_straddles(block, range, first_key);
    acc_t s[SCORE_TILES];
    block->next_key = block_next(block, first_key + BLOCK_KEYS, range.end);
    block_scores(block, s, first_key, straddles);
    forward_softmax_step(&sums->softmax, s, sums->values, block->scratch);
    block_values(block, sums->values, s, first_key, straddles);
}

/* Takes in blocks of which nothing has to be asked, the last one of those excepted: one straight piece of code, whose
 * instructions the compiler can mix. */
static inline void take_plain_blocks(block_t *block, forward_sums_t *sums, key_range_t range) {
    if (!STAGE_AHEAD || MASK || !block->raw || block->next_key < range.open)
        return;
    block->plain = true;
    while (block->next_key <= range.open_end - 2 * BLOCK_KEYS)
        take_block(block, sums, range);
    block->plain = false;
}

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_forward(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v, __global byte_t *o,
                  __global float *lse MODIFIER_ARGUMENTS, attention_t call) {
    BLOCK_LOCAL_MEMORY(q_tile, slots, p_tile, special);
    MODIFIERS(modifiers);
    block_t block = block_begin(q, k, v, &modifiers, &call, q_tile, slots, p_tile, &special, get_group_id(0));
    block_stage_queries(&block);
    const key_range_t range = block_key_range(&block);

    forward_sums_t sums;
    softmax_state_t state;
    forward_softmax_begin(&sums.softmax, &block);
    tiles_zero(sums.values, VALUE_TILES);
    block.next_key = block_next(&block, range.begin, range.end);
    block_issue_first(&block, block.next_key, range.end);
    while (block.next_key < range.end) {
        take_plain_blocks(&block, &sums, range);
        take_block(&block, &sums, range);
    }
    GROUP_BARRIER();
    forward_softmax_finish(&sums.softmax, &block, sums.values, &state);

    block_store(&block, sums.values, state.l, o, call.o);
    block_store_lse(&block, &state, lse, call.lse);
}
