/* Self-test of a tile back-end and of its staging: one work-group, every verb that kernels use. With whole numbers as
 * input each result is exact:
 *
 *   in   A [ROWS, DEPTH], BT [COLS, DEPTH], V [COLS, COLS] of ELEMENT, one behind the other
 *   out  S = A BT^T, R = S V' and the maximum and the sum of each row of S as fp32; then how many work-items met a NaN
 * or an infinity in V, which V' has zeros for */
#include "tile_ops.clh"

#define TILES 2
#define ROWS (GROUPS * TILE_M)
#define COLS (TILES * TILE_N)
#define DEPTH (2 * TILE_K)
#define LEFT (LEFT_SIZE(ROWS, COLS) > 0 ? LEFT_SIZE(ROWS, COLS) : 1)

static inline void put_tiles(const acc_t *acc, __global float *out, int row) {
    for (int n = 0; n < TILES; n++)
        ACC_FOR_EACH (i) {
            const int at = (row + acc_row(i)) * COLS + n * TILE_N + acc_col(i);
            score_store(ACC(acc[n], i), (__global byte_t *)out, at, SCORE_WIDTH);
        }
}

static inline void put_rows(const float *value, __global float *out, int row) {
    for (int s = 0; s < ROW_SLOTS; s++)
        if (ROW_LEADER || TILE_GROUP == 1)
            out[row + slot_row(s)] = value[s];
}

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
selftest_tile(const __global byte_t *in, __global byte_t *out_bytes) {
    __local local_t a_tile[A_SIZE(ROWS, DEPTH)] __attribute__((aligned(128)));
    __local local_t bt_tile[BT_SIZE(COLS, DEPTH)] __attribute__((aligned(128)));
    __local local_t v_tile[B_SIZE(COLS, COLS)] __attribute__((aligned(128)));
    __local local_t left_tile[LEFT] __attribute__((aligned(128)));
    __local float scratch[ROW_SCRATCH + 1];
    __global float *s_out = (__global float *)out_bytes, *r_out = s_out + ROWS * COLS;
    __global float *max_out = r_out + ROWS * COLS, *sum_out = max_out + ROWS;
    const int row = (int)get_local_id(0) / TILE_GROUP * TILE_M;
    bool met = false;
    acc_t s[TILES], r[TILES];
    float top[ROW_SLOTS], sum[ROW_SLOTS];

    stage_a(a_tile, ROWS, DEPTH, matrix_at(in, 0, DEPTH), 0, ROWS, 0, DEPTH);
    stage_bt(bt_tile, COLS, DEPTH, matrix_at(in, ROWS * DEPTH, DEPTH), 0, COLS, 0, DEPTH);
    stage_b_finite(v_tile, COLS, COLS, matrix_at(in, (ROWS + COLS) * DEPTH, COLS), 0, COLS, 0, COLS, met);
    stage_wait();
    tiles_zero(s, TILES);
    tiles_zero(r, TILES);
    tiles_product_bt(s, TILES, a_tile, DEPTH, row, 0, bt_tile, DEPTH);
    for (int slot = 0; slot < ROW_SLOTS; slot++) {
        top[slot] = -INFINITY;
        sum[slot] = 0.0f;
    }
    for (int n = 0; n < TILES; n++)
        ACC_FOR_EACH (i) {
            top[acc_slot(i)] = fmax(top[acc_slot(i)], score_max(ACC(s[n], i)));
            sum[acc_slot(i)] += score_sum(ACC(s[n], i));
        }
    rows_all_max(top, scratch);
    rows_all_sum(sum, scratch);
    tiles_store_left(left_tile, COLS, row, s, TILES);
    stage_wait();
    tiles_product_left(r, TILES, left_tile, COLS, row, s, TILES, v_tile);

    put_tiles(s, s_out, row);
    put_tiles(r, r_out, row);
    put_rows(top, max_out, row);
    put_rows(sum, sum_out, row);
    if (met)
        atomic_inc((volatile __global int *)(sum_out + ROWS));
}
