/* Attention for few queries and many keys: as attention_forward.cl, but the query heads that share a kv head are rows
 * of one block (PACKED), so that a key is loaded once for all of them, and the keys of a block may be split over
 * work-groups (Flash-Decoding), whose partial results attention_decode_combine.cl puts together. Splits count from the
 * first key that a block sees; those beyond its last, by the lengths on the device, find nothing. Parameters:
 * attention_block.clh and the tile back-end; SPLIT (1: partial results go to the workspace, and OUT_ELEMENT is
 * fp32). */
#include "attention_block.clh"
#include "split.clh"

/* A sink counts in one split. */
static inline void begin_softmax(softmax_state_t *state, const block_t *block, const modifiers_t *modifiers,
                                 const attention_t *call, bool sinks) {
    for (int r = 0; r < ROW_SLOTS; r++) {
        const int head = block->head + row_head(block->first_row + block->row + slot_row(r));
        softmax_begin_row(state, r,
                          SINKS && sinks && block->share == 0 ? modifiers->sinks[call->sinks + head] : -INFINITY);
    }
}

static inline void store_states(const block_t *block, const softmax_state_t *state, __global float *partials,
                                view_t view) {
    const matrix_t out = sequence_queries(&block->sequence, (const __global byte_t *)partials, view, block->head);
    for (int r = 0; r < ROW_SLOTS; r++) {
        const int row = block->first_row + block->row + slot_row(r);
        if (ROW_LEADER && block->share == 0 && row_query(row) < block->sequence.nq)
            vstore2((float2)(state->m[r], state->l[r]), matrix_row(out, row), partials);
    }
}

/* Sums as they are. */
static inline void store_values(const block_t *block, const acc_t *out, __global float *partials, view_t view) {
    float one[ROW_SLOTS];
    for (int r = 0; r < ROW_SLOTS; r++)
        one[r] = 1.0f;
    block_store(block, out, one, (__global byte_t *)partials, view);
}

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_decode(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v, __global byte_t *o,
                 __global float *lse MODIFIER_ARGUMENTS, attention_t call, __global float *partials, split_t split) {
    BLOCK_LOCAL_MEMORY(q_tile, slots, p_tile, special);
    MODIFIERS(modifiers);
    const int number = SPLIT ? (int)(get_group_id(0) / split.groups) : 0;
    const long group = SPLIT ? (long)(get_group_id(0) % split.groups) : (long)get_group_id(0);
    block_t block = block_begin(q, k, v, &modifiers, &call, q_tile, slots, p_tile, &special, group);
    key_range_t range = block_key_range(&block);
    if (SPLIT)
        range = split_range(range, number, split.chunk);

    acc_t out[MAX_OF(VALUE_TILES, 1)];
    softmax_state_t state;
    begin_softmax(&state, &block, &modifiers, &call, number == 0);
    block_stage_queries(&block);
    tiles_zero(out, VALUE_TILES);
    block_issue_first(&block, range.begin, range.end);
    for (int first_key = range.begin; first_key < range.end; first_key += BLOCK_KEYS) {
        const bool straddles = block_straddles(&block, range, first_key);
        acc_t s[SCORE_TILES];
        float factor[ROW_SLOTS];
        block.next_key = first_key + BLOCK_KEYS;
        block_scores(&block, s, first_key, straddles);
        softmax_raise(&state, s, factor, block.scratch);
        softmax_exponentiate(&state, s, factor);
        softmax_rescale(out, VALUE_TILES, factor);
        block_values(&block, out, s, first_key, straddles);
    }
    GROUP_BARRIER();
    softmax_finish(&state, block.scratch);

    if (SPLIT) {
        store_states(&block, &state, partials, split_view(split.states, number));
        store_values(&block, out, partials, split_view(split.values, number * split.pitch));
    } else {
        block_store(&block, out, state.l, o, call.o);
        block_store_lse(&block, &state, lse, call.lse);
    }
}
