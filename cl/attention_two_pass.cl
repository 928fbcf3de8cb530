/* Attention forward in two passes over the keys: the first finds each row's maximum and sum, the second weighs the
 * values with finished probabilities, so that the output is never rescaled. It does the scores twice; it is here to be
 * compared with the fused form. Parameters: attention_block.clh and the tile back-end. */
#include "attention_block.clh"

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_two_pass(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v, __global byte_t *o,
                   __global float *lse MODIFIER_ARGUMENTS, attention_t call) {
    BLOCK_LOCAL_MEMORY(q_tile, slots, p_tile, special);
    MODIFIERS(modifiers);
    block_t block = block_begin(q, k, v, &modifiers, &call, q_tile, slots, p_tile, &special, get_group_id(0));
    block_stage_queries(&block);
    const key_range_t range = block_key_range(&block);
    acc_t s[SCORE_TILES];

    softmax_state_t state;
    softmax_begin(&state, block.sink);
    for (int first_key = block_next(&block, range.begin, range.end); first_key < range.end;
         first_key = block_next(&block, first_key + BLOCK_KEYS, range.end)) {
        float factor[ROW_SLOTS];
        block_scores(&block, s, first_key, block_straddles(&block, range, first_key));
        softmax_raise(&state, s, factor, block.scratch);
        softmax_exponentiate(&state, s, factor);
    }
    GROUP_BARRIER();
    softmax_finish(&state, block.scratch);

    acc_t out[MAX_OF(VALUE_TILES, 1)];
    softmax_state_t none;
    float one[ROW_SLOTS];
    tiles_zero(out, VALUE_TILES);
    for (int r = 0; r < ROW_SLOTS; r++) {
        one[r] = 1.0f;
        none.m[r] = state.m[r];
        none.l[r] = 0.0f;
    }
    for (int first_key = block_next(&block, range.begin, range.end); first_key < range.end && VALUE_DIM > 0;
         first_key = block_next(&block, first_key + BLOCK_KEYS, range.end)) {
        const bool straddles = block_straddles(&block, range, first_key);
        block_scores(&block, s, first_key, straddles);
        softmax_exponentiate(&none, s, one);
        block_values(&block, out, s, first_key, straddles);
    }

    block_store(&block, out, state.l, o, call.o);
    block_store_lse(&block, &state, lse, call.lse);
}
