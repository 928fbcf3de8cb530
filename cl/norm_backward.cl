/* Gradients of RMSNorm and LayerNorm along rows that a team holds in registers, as it does its part of dweight and
 * dbias: every element is read once. */

/* Parameters: those of norm_backward.clh and row_share.clh. */
#include "norm_backward.clh"

/* The team's rows of dweight and dbias in the workspace. */
static inline void write_partials(global float *partial, long team, const struct row *row, const packet_t *dweight,
                                  const packet_t *dbias, long plane, uint i) {
    const long at = team * row->columns;
    const uint index = (i * TEAM + row->lane) * VECTOR;
    packet_store(partial, at, index, row->columns, 1, dweight[i], DTYPE_F32);
    packet_store(partial + plane, at, index, row->columns, 1, dbias[i], DTYPE_F32);
}

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_backward_registers(global const byte_t *x, global const byte_t *dy, global const byte_t *dsum,
                        global const byte_t *weight, global byte_t *dx, global float *workspace,
                        const struct rows_layout layout, const long weight_at, const long partial_at, const long plane,
                        const int groups, const float eps) {
    REDUCE_SCRATCH(scratch);
    struct gradient gradient = {x, dy, dsum, weight, dx, 0, 0, 0, 0, weight_at};
    struct row row;
    packet_t dweight[PACKETS], dbias[PACKETS], value[PACKETS], weighed[PACKETS];
    const long team = (long)get_group_id(0) * (GROUP / TEAM) + sg_item() / TEAM, teams = (long)groups * (GROUP / TEAM);
    const float columns = (float)layout.columns;
    row_numbered(&layout, 0, &row);
    FOR_EACH_VALUE (i)
        dweight[i] = dbias[i] = (packet_t)(0.0f);
    for (long first = 0; first < layout.rows; first += teams) {
        row_numbered(&layout, first + team, &row);
        gradient_locate(&layout, row.number, &gradient);
        float mean = 0.0f;
        FOR_EACH_VALUE (i) {
            value[i] = gradient_x(&gradient, &row, PACKET_INDEX(i));
            weighed[i] = gradient_dy(&gradient, &row, PACKET_INDEX(i));
        }
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
        sums = team_all_sums(sums, scratch);
        const float shift = moments_shift(sums, columns), factor = moments_factor(sums, columns, eps);
        float2 means = (float2)(0.0f);
        FOR_EACH_VALUE (i) {
            value[i] = (value[i] - shift) * factor;
            if (row.columns > 0) {
                dweight[i] += weighed[i] * value[i];
                dbias[i] += weighed[i];
            }
            weighed[i] = gradient_weigh(&gradient, &row, PACKET_INDEX(i), weighed[i]);
            means += (float2)(packet_sum(weighed[i]), packet_sum(weighed[i] * value[i]));
        }
        means = team_all_sums(means, scratch) / columns;
        FOR_EACH_VALUE (i)
            gradient_write(&gradient, &row, PACKET_INDEX(i), weighed[i], value[i], means, factor);
    }
    row_numbered(&layout, 0, &row);
    if (PARTIALS)
        FOR_EACH_VALUE (i)
            write_partials(workspace + partial_at, team, &row, dweight, dbias, plane, i);
}
