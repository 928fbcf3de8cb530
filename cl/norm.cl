/* RMSNorm and LayerNorm along rows that a team of work-items holds in registers: every element is read once and written
 * once; the variance is taken about the mean. */

/* Parameters: those of norm_row.clh and row_share.clh. */
#include "norm_row.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_registers(global const byte_t *x, global const byte_t *residual, global const byte_t *weight,
               global const byte_t *bias, global byte_t *y, global byte_t *sum, const struct rows_layout layout,
               const long weight_at, const long bias_at, const float eps) {
    REDUCE_SCRATCH(scratch);
    struct norm norm = {x, residual, weight, bias, y, sum, 0, 0, weight_at, bias_at, 0, 0};
    struct row row;
    row_mine(&layout, &row);
    norm_locate(&layout, row.number, &norm);
    const float columns = (float)row.columns;
    packet_t value[PACKETS];
    float mean = 0.0f;
    FOR_EACH_VALUE (i)
        value[i] = norm_load(&norm, &row, PACKET_INDEX(i));
    FOR_EACH_VALUE (i)
        norm_write_sum(&norm, &row, PACKET_INDEX(i), value[i]);
    if (LAYER) {
        FOR_EACH_VALUE (i)
            mean += packet_sum(value[i]);
        mean = team_all_sum(mean, scratch) / columns;
    }
    float2 sums = (float2)(0.0f);
    FOR_EACH_VALUE (i) {
        value[i] = LAYER ? row_inside(&row, PACKET_INDEX(i), value[i] - mean) : value[i];
        sums += (float2)(packet_sum(value[i]), packet_sum(value[i] * value[i]));
    }
    sums = LAYER ? team_all_sums(sums, scratch) : (float2)(0.0f, team_all_sum(sums.y, scratch));
    const float shift = moments_shift(sums, columns), factor = moments_factor(sums, columns, eps);
    FOR_EACH_VALUE (i)
        norm_write(&norm, &row, PACKET_INDEX(i), (value[i] - shift) * factor);
}
