/* The gradients of attention's keys and values: dV = P^T dO, dK = scale dS^T Q, summed over the query heads that share
 * them, one after the other. A work-group owns a block of keys of one head and walks the blocks of queries that see any
 * of them. Parameters: gradient_block.clh and the tile back-end. */
#define BY_KEYS 1
#include "gradient_block.clh"

static inline int find_keys(gradient_t *block, const modifiers_t *modifiers, const attention_t *call, int kv_heads) {
    const int blocks = sequence_key_blocks(modifiers, call, BLOCK_ROWS);
    const long group = get_group_id(0), outer = group / blocks;
    int number = (int)(group % blocks);
    block->batch = (int)(outer / kv_heads);
    if (SEQUENCES && modifiers->k_offsets)
        block->batch = sequence_find_keys(modifiers, call, BLOCK_ROWS, number, &number);
    block->sequence = sequence_of(modifiers, call, block->batch);
    if (SEQUENCES && number < 0)
        block->sequence.key_rows = block->sequence.nk = number = 0;
    block->first_row = number * BLOCK_ROWS;
    return (int)(outer % kv_heads);
}

/* dk, dv: NULL where not wanted. */
TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_backward_keys(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                        const __global byte_t *o, const __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                        const __global byte_t *dout, const __global float *terms, __global byte_t *dk,
                        __global byte_t *dv, gradient_call_t gradients) {
    GRADIENT_BLOCK(block);
    MODIFIERS(modifiers);
    const operands_t operands = {q, k, v, dout, terms};
    const int kv_head = find_keys(&block, &modifiers, &call, gradients.kv_heads);
    gradient_limits(&block, &call);
    const key_range_t range = gradient_range(&block);

    acc_t of_keys[K_TILES], of_values[V_TILES];
    tiles_zero(of_keys, K_TILES);
    tiles_zero(of_values, V_TILES);
    for (int i = 0; i < call.heads_per_kv && range.begin < range.end; i++) {
        gradient_head(&block, &operands, &modifiers, &call, &gradients, kv_head * call.heads_per_kv + i);
        if (i == 0)
            gradient_stage_rows(&block);
        for (int first_col = gradient_next(&block, range.begin, range.end); first_col < range.end;
             first_col = gradient_next(&block, first_col + BLOCK_COLS, range.end)) {
            const bool straddles = gradient_straddles(&block, range, first_col);
            acc_t p[SCORE_TILES], ds[SCORE_TILES], slope[SOFTCAP ? SCORE_TILES : 1];
            gradient_stage_terms(&block, first_col);
            gradient_probabilities(&block, p, slope, first_col, straddles);
            gradient_product(&block, of_values, p, block.col_v, first_col, V_WIDTH, VALUE_DIM, straddles || BIAS, true);
            if ((straddles || BIAS) && *block.special)
                gradient_add_special(&block, of_values, block.col_v, first_col, V_TILES, VALUE_DIM);
            gradient_scores(&block, ds, p, slope, first_col);
            gradient_product(&block, of_keys, ds, block.col_k, first_col, K_WIDTH, HEAD_DIM, straddles || BIAS, false);
        }
    }
    const sequence_t *sequence = &block.sequence;
    if (dk)
        gradient_store(&block, of_keys, K_TILES, HEAD_DIM, call.scale, dk,
                       view_matrix(dk, gradients.dk, sequence->k_batch, kv_head, sequence->k_row), sequence->key_rows);
    if (dv)
        gradient_store(&block, of_values, V_TILES, VALUE_DIM, 1.0f, dv,
                       view_matrix(dv, gradients.dv, sequence->k_batch, kv_head, sequence->k_row), sequence->key_rows);
}
