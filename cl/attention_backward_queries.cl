/* The gradient of attention's queries: dQ = scale dS K. A work-group owns a block of queries of one head and walks the
 * blocks of keys that any of them sees. Parameters: gradient_block.clh and the tile back-end. */
#define BY_KEYS 0
#include "gradient_block.clh"

/* Later queries see more keys under a causal limit: their work-groups come first. */
static inline int find_queries(gradient_t *block, const modifiers_t *modifiers, const attention_t *call) {
    const int blocks = sequence_blocks(modifiers, call, BLOCK_ROWS);
    const long group = get_group_id(0), outer = group / blocks;
    int number = blocks - 1 - (int)(group % blocks);
    block->batch = (int)(outer / call->heads);
    if (SEQUENCES && modifiers->q_offsets)
        block->batch = sequence_find(modifiers, call, BLOCK_ROWS, number, &number);
    block->sequence = sequence_of(modifiers, call, block->batch);
    if (SEQUENCES && number < 0)
        block->sequence.rows = block->sequence.nq = number = 0;
    block->first_row = number * BLOCK_ROWS;
    return (int)(outer % call->heads);
}

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_backward_queries(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                           const __global byte_t *o, const __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                           const __global byte_t *dout, const __global float *terms, __global byte_t *dq,
                           gradient_call_t gradients) {
    GRADIENT_BLOCK(block);
    MODIFIERS(modifiers);
    const operands_t operands = {q, k, v, dout, terms};
    const int head = find_queries(&block, &modifiers, &call);
    gradient_limits(&block, &call);
    gradient_head(&block, &operands, &modifiers, &call, &gradients, head);
    gradient_stage_rows(&block);
    gradient_stage_terms(&block, block.first_row);
    const key_range_t range = gradient_range(&block);

    acc_t out[K_TILES];
    tiles_zero(out, K_TILES);
    for (int first_col = gradient_next(&block, range.begin, range.end); first_col < range.end;
         first_col = gradient_next(&block, first_col + BLOCK_COLS, range.end)) {
        const bool straddles = gradient_straddles(&block, range, first_col);
        acc_t p[SCORE_TILES], ds[SCORE_TILES], slope[SOFTCAP ? SCORE_TILES : 1];
        gradient_probabilities(&block, p, slope, first_col, straddles);
        gradient_scores(&block, ds, p, slope, first_col);
        gradient_product(&block, out, ds, block.col_k, first_col, K_WIDTH, HEAD_DIM, straddles || BIAS, false);
    }
    gradient_store(&block, out, K_TILES, HEAD_DIM, call.scale, dq,
                   sequence_queries(&block.sequence, dq, gradients.dq, head), block.sequence.rows);
}
