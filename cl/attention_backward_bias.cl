/* The gradient of attention's bias: dS, summed over the dims in which the bias is repeated, one after the other. A
 * work-group owns one block of dbias and walks all blocks of scores that it is added to, which are worked out anew.
 * Parameters: gradient_block.clh and the tile back-end. */
#define BY_KEYS 0
#include "gradient_block.clh"

/* The block of dbias that the work-group owns. */
typedef struct {
    int batch, head, row, col;
} owned_t;

static inline owned_t find_bias(const gradient_call_t *gradients) {
    const int down = (gradients->bias_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int across = (gradients->bias_columns + BLOCK_COLS - 1) / BLOCK_COLS;
    const long group = get_group_id(0), head = group / across / down;
    owned_t place;
    place.col = (int)(group % across) * BLOCK_COLS;
    place.row = (int)(group / across % down) * BLOCK_ROWS;
    place.head = (int)(head % gradients->bias_heads);
    place.batch = (int)(head / gradients->bias_heads);
    return place;
}

/* sum += dS of the columns from first_col on. */
INLINED void add_block(const gradient_t *block, acc_t *sum, key_range_t range, int first_col) {
    acc_t p[SCORE_TILES], ds[SCORE_TILES], slope[SOFTCAP ? SCORE_TILES : 1];
    gradient_probabilities(block, p, slope, first_col, gradient_straddles(block, range, first_col));
    gradient_scores(block, ds, p, 0, first_col);
    TILE_FOR_EACH (t, SCORE_TILES)
        ACC_FOR_EACH (i)
            ACC(sum[t], i) += ACC(ds[t], i);
    GROUP_BARRIER(); /* terms and rows may be staged anew */
}

/* All of a block of rows of one head that belongs to the owned block. */
INLINED void add_rows(gradient_t *block, acc_t *sum, int own_col, bool every_col) {
    const key_range_t range = gradient_range(block);
    const int begin = every_col ? range.begin : own_col;
    const int end = every_col ? range.end : min(own_col + 1, range.end);
    gradient_stage_rows(block);
    gradient_stage_terms(block, block->first_row);
    GROUP_BARRIER();
    for (int first_col = gradient_next(block, begin, end); first_col < end;
         first_col = gradient_next(block, first_col + BLOCK_COLS, end))
        if (first_col >= range.begin)
            add_block(block, sum, range, first_col);
    GROUP_BARRIER();
}

/* The owned block to dbias: rows, or columns, of a dim that is repeated are added up. */
INLINED void store_bias(const gradient_t *block, const acc_t *sum, owned_t place, const gradient_call_t *gradients,
                        bool every_row, bool every_col, __global byte_t *dbias) {
    __local float *tile = (__local float *)block->left_tile;
    TILE_FOR_EACH (t, SCORE_TILES)
        ACC_FOR_EACH (i) {
            __local float *at = tile + (block->row + acc_row(i)) * BLOCK_COLS + t * TILE_N + acc_col(i);
            score_t all = ACC(sum[t], i);
            SCORE_FOR_EACH_LANE(all, lane, value, at[lane] = value)
        }
    GROUP_BARRIER();
    const int rows = every_row ? 1 : min(BLOCK_ROWS, gradients->bias_rows - place.row);
    const int cols = every_col ? 1 : min(BLOCK_COLS, gradients->bias_columns - place.col);
    const long start = view_element(gradients->dbias, place.batch, place.head, place.row);
    for (int i = (int)get_local_id(0); i < rows * cols; i += GROUP_ITEMS) {
        const int row = i / cols, col = i % cols;
        float all = 0.0f;
        for (int r = row; r < (every_row ? BLOCK_ROWS : row + 1); r++)
            for (int c = col; c < (every_col ? BLOCK_COLS : col + 1); c++)
                all += tile[r * BLOCK_COLS + c];
        element_store(dbias, start + row * gradients->dbias.row + (place.col + col) * gradients->dbias_column, all,
                      BIAS);
    }
}

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
attention_backward_bias(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                        const __global byte_t *o, const __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                        const __global byte_t *dout, const __global float *terms, __global byte_t *dbias,
                        gradient_call_t gradients) {
    GRADIENT_BLOCK(block);
    MODIFIERS(modifiers);
    const operands_t operands = {q, k, v, dout, terms};
    const owned_t place = find_bias(&gradients);
    const bool every_row = gradients.bias_rows == 1, every_col = gradients.bias_columns == 1;
    const bool every_head = gradients.bias_heads == 1, every_batch = gradients.bias_batches == 1;
    acc_t sum[SCORE_TILES];
    tiles_zero(sum, SCORE_TILES);
    for (int batch = place.batch; batch < (every_batch ? call.batches : place.batch + 1); batch++) {
        block.batch = batch;
        block.sequence = sequence_of(&modifiers, &call, batch);
        const int end = every_row ? block.sequence.nq : min(place.row + 1, block.sequence.nq);
        for (int head = place.head; head < (every_head ? call.heads : place.head + 1); head++)
            for (block.first_row = place.row; block.first_row < end; block.first_row += BLOCK_ROWS) {
                gradient_limits(&block, &call);
                gradient_head(&block, &operands, &modifiers, &call, &gradients, head);
                add_rows(&block, sum, place.col, every_col);
            }
    }
    store_bias(&block, sum, place, &gradients, every_row, every_col, dbias);
}
