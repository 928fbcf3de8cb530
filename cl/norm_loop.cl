/* RMSNorm and LayerNorm along rows that are read twice instead of kept: running statistics (Welford's, by blocks), then
 * the result. For rows of any length. */

/* Parameters: those of norm_row.clh and row_share.clh. */
#include "norm_row.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_online(global const byte_t *x, global const byte_t *residual, global const byte_t *weight,
            global const byte_t *bias, global byte_t *y, global byte_t *sum, const struct rows_layout layout,
            const long weight_at, const long bias_at, const float eps) {
    REDUCE_SCRATCH(scratch);
    struct norm norm = {x, residual, weight, bias, y, sum, 0, 0, weight_at, bias_at, 0, 0};
    struct row row;
    row_mine(&layout, &row);
    norm_locate(&layout, row.number, &norm);
    const float columns = (float)row.columns;
    packet_t value[BLOCK];
    struct moments mine = MOMENTS_EMPTY;
    FOR_EACH_BLOCK (index, &row, 0) {
        FOR_EACH_PACKET (i)
            value[i] = norm_load(&norm, &row, BLOCK_INDEX(index, i));
        moments_add(&mine, &row, index, value);
    }
    float2 sums;
    const float mean = moments_merge(&mine, columns, &sums, scratch);
    const float shift = moments_shift(sums, columns), factor = moments_factor(sums, columns, eps);
    FOR_EACH_BLOCK (index, &row, 0) {
        FOR_EACH_PACKET (i)
            value[i] = norm_load(&norm, &row, BLOCK_INDEX(index, i));
        FOR_EACH_PACKET (i) {
            norm_write_sum(&norm, &row, BLOCK_INDEX(index, i), value[i]);
            norm_write(&norm, &row, BLOCK_INDEX(index, i), (value[i] - mean - shift) * factor);
        }
    }
}
