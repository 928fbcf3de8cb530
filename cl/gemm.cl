/* C = alpha op(A) op(B) + beta C for batches of matrices. A work-group owns a block of C and walks K in slices, each
 * staged in local memory. Sums are fp32 whatever the storage type. */

/* ELEMENT, OUT_ELEMENT   numbers of clattn_dtype: of a and b, and of c
 * TRANSPOSE_A            1: a lies as K rows of M elements
 * TRANSPOSE_B            1: b lies as N rows of K elements
 * ALIGNED                1: all rows of a and b start at multiples of 16 bytes
 * GROUPS                 tile groups in a work-group, one below the other
 * COLUMN_TILES           a block of C is COLUMN_TILES * TILE_N columns wide
 * K_SLICE                terms of the sum staged at a time: a multiple of TILE_K
 * STAGE_SLOTS            1 or 2 places for staged slices; 2 save a barrier per slice
 * TILE_BACKEND           a file of cl/tile/, with parameters of its own (FMA_ROWS, FMA_ITEMS; CPU_ROWS; MMA_ROWS)
 * TILE_UNROLL            1: loops over tiles become copies of their bodies
 * STAGE_BACKEND          a file of cl/stage/
 * SUBGROUP_BACKEND       a file of cl/subgroup/
 * SG_SIZE                lanes of a sub-group */
#include "tile_ops.clh"

#define BLOCK_M (GROUPS * TILE_M)
#define BLOCK_N (COLUMN_TILES * TILE_N)
#define A_TILE_SIZE A_SIZE(BLOCK_M, K_SLICE)
#define B_TILE_SIZE (TRANSPOSE_B ? BT_SIZE(BLOCK_N, K_SLICE) : B_SIZE(K_SLICE, BLOCK_N))
#define BAND 8 /* rows of blocks that are walked together, so that what they read of B is still in a cache */

typedef struct {
    int row, col; /* of the block's first element */
} place_of_block_t;

/* Bands from top to bottom, in a band column by column. */
static inline place_of_block_t block_place(long index, int block_rows, int block_cols) {
    const long per_band = (long)BAND * block_cols;
    const int band = (int)(index / per_band), within = (int)(index % per_band);
    const int height = min(BAND, block_rows - band * BAND);
    place_of_block_t place;
    place.row = (band * BAND + within % height) * BLOCK_M;
    place.col = within / height * BLOCK_N;
    return place;
}

static inline void store_block(const acc_t *acc, __global byte_t *base, matrix_t c, int first_row, int first_col, int m,
                               int n, float alpha, float beta) {
    for (int t = 0; t < COLUMN_TILES; t++)
        ACC_FOR_EACH (i) {
            const int row = first_row + acc_row(i), col = first_col + t * TILE_N + acc_col(i);
            const long index = c.offset + row * c.stride + col;
            if (row < m) {
                score_t value = alpha * ACC(acc[t], i);
                if (beta != 0.0f)
                    value += beta * score_load(base, index, n - col);
                score_store(value, base, index, n - col);
            }
        }
}

/* The call, laid out as the host's struct (src/gemm.c). */
typedef struct {
    view_t a, b, c;
    int inner, m, n, k; /* inner: matrices along the inner batch dimension */
    float alpha, beta;
} gemm_t;

TILE_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
gemm(const __global byte_t *a_base, const __global byte_t *b_base, __global byte_t *c_base, gemm_t call) {
    __local local_t a_slots[STAGE_SLOTS * A_TILE_SIZE] __attribute__((aligned(128)));
    __local local_t b_slots[STAGE_SLOTS * B_TILE_SIZE] __attribute__((aligned(128)));

    const int m = call.m, n = call.n, k = call.k;
    const int block_rows = (m + BLOCK_M - 1) / BLOCK_M, block_cols = (n + BLOCK_N - 1) / BLOCK_N;
    const long blocks = (long)block_rows * block_cols, group = get_group_id(0);
    const long outer = group / blocks / call.inner, inner = group / blocks % call.inner;
    const matrix_t a = view_matrix(a_base, call.a, outer, inner, 0), b = view_matrix(b_base, call.b, outer, inner, 0);
    const place_of_block_t block = block_place(group % blocks, block_rows, block_cols);
    const int own_row = (int)get_local_id(0) / TILE_GROUP * TILE_M;

    acc_t acc[COLUMN_TILES];
    tiles_zero(acc, COLUMN_TILES);
    int slot = 0;
    for (int first = 0; first < k; first += K_SLICE) {
        __local local_t *a_tile = a_slots + slot * A_TILE_SIZE, *b_tile = b_slots + slot * B_TILE_SIZE;
        slot = (slot + 1) % STAGE_SLOTS;
        if (TRANSPOSE_A)
            stage_at(a_tile, BLOCK_M, K_SLICE, a, first, k, block.row, m);
        else
            stage_a(a_tile, BLOCK_M, K_SLICE, a, block.row, m, first, k);
        if (TRANSPOSE_B)
            stage_bt(b_tile, BLOCK_N, K_SLICE, b, block.col, n, first, k);
        else
            stage_b(b_tile, K_SLICE, BLOCK_N, b, first, k, block.col, n);
        stage_wait();
        if (TRANSPOSE_B)
            tiles_product_bt(acc, COLUMN_TILES, a_tile, K_SLICE, own_row, 0, b_tile, K_SLICE);
        else
            tiles_product_b(acc, COLUMN_TILES, a_tile, K_SLICE, own_row, 0, b_tile, K_SLICE);
        stage_free();
    }
    store_block(acc, c_base, view_matrix(c_base, call.c, outer, inner, 0), block.row + own_row, block.col, m, n,
                call.alpha, call.beta);
}
