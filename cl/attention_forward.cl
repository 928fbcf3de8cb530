/* Attention forward, fused: O = softmax(scale Q K^T) V and the log-sum-exp of each row, in one pass over the keys and
 * without the score matrix (FlashAttention-2, arXiv:2307.08691). A work-group owns a block of queries of one head and
 * walks the blocks of keys that any of them may see. Parameters: attention_block.clh and the tile back-end. */
#include "attention_block.clh"

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_forward(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v, __global byte_t *o,
                  __global float *lse, view_t q_view, view_t k_view, view_t v_view, view_t o_view, view_t lse_view,
                  int heads, int heads_per_kv, int nq, int nk, long diagonal, float scale) {
    __local local_t q_tile[Q_TILE_SIZE] __attribute__((aligned(128)));
    __local local_t slots[STAGE_SLOTS * SLOT_SIZE] __attribute__((aligned(128)));
    __local float p_tile[MAX_OF(P_TILE_SIZE, 1)] __attribute__((aligned(128)));
    __local int special;

    const int blocks = (nq + BLOCK_QUERIES - 1) / BLOCK_QUERIES;
    const long group = get_group_id(0);
    /* Later queries see more keys under a causal limit: they start first. */
    const int index = blocks - 1 - (int)(group % blocks);
    const long head = group / blocks % heads, batch = group / blocks / heads, kv_head = head / heads_per_kv;

    block_t block;
    block.q = view_matrix(q, q_view, batch, head);
    block.k = view_matrix(k, k_view, batch, kv_head);
    block.v = view_matrix(v, v_view, batch, kv_head);
    block.nq = nq, block.nk = nk;
    block.diagonal = diagonal, block.scale = scale;
    block.first_query = index * BLOCK_QUERIES;
    block.row = (int)get_local_id(0) / TILE_GROUP * TILE_M;
    block.slot = 0;
    block.q_tile = q_tile, block.slots = slots, block.p_tile = (__local local_t *)p_tile;
    block.scratch = p_tile;
    block.special = &special;
    const key_range_t range =
        key_range_of(block.first_query, min(block.first_query + BLOCK_QUERIES, nq) - 1, nk, diagonal);

    if (get_local_id(0) == 0)
        special = 0;
    GROUP_BARRIER();
    block_stage_queries(&block);

    acc_t out[MAX_OF(VALUE_TILES, 1)];
    softmax_state_t state;
    tiles_zero(out, VALUE_TILES);
    softmax_begin(&state);
    for (int first_key = 0; first_key < range.end; first_key += BLOCK_KEYS) {
        const bool straddles = first_key + BLOCK_KEYS > range.open;
        acc_t s[SCORE_TILES];
        float factor[ROW_SLOTS];
        block_scores(&block, s, first_key, straddles);
        softmax_raise(&state, s, factor, block.scratch);
        softmax_exponentiate(&state, s, factor);
        softmax_rescale(out, VALUE_TILES, factor);
        block_values(&block, out, s, first_key, straddles);
    }
    GROUP_BARRIER();
    softmax_finish(&state, block.scratch);

    block_store(&block, out, state.l, o, view_matrix(o, o_view, batch, head));
    block_store_lse(&block, &state, lse, view_matrix((__global byte_t *)lse, lse_view, batch, head));
}
