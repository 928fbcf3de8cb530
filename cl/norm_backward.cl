/* Gradients of RMSNorm and LayerNorm along rows that a team holds in registers, as it does, there or in local memory,
 * its part of dweight and dbias: every element is read once. While a row is worked on, the team's next one is on its
 * way to the last-level cache. */

/* Parameters: those of norm_backward.clh and row_share.clh. */
#include "norm_backward.clh"

/* The team's sums, which only the work-item that adds to them reads. dbias's lie behind dweight's. */
#define SUMS ((DWEIGHT + DBIAS) * PACKETS)
#if LOCAL_SUMS
#define DECLARE_SUMS(name) local packet_t name[SUMS > 0 ? SUMS * GROUP : 1]
#define DWEIGHT_SUM(name, i) name[(i)*GROUP + sg_item()]
#define DBIAS_SUM(name, i) name[(DWEIGHT * PACKETS + (i)) * GROUP + sg_item()]
#else
#define DECLARE_SUMS(name) packet_t name[SUMS > 0 ? SUMS : 1]
#define DWEIGHT_SUM(name, i) name[i]
#define DBIAS_SUM(name, i) name[DWEIGHT * PACKETS + (i)]
#endif

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_backward_registers(global const byte_t *x, global const byte_t *dy, global const byte_t *dsum,
                        global const byte_t *weight, global byte_t *dx, global float *workspace,
                        const struct rows_layout layout, const long weight_at, const long partial_at, const long plane,
                        const int groups, const float eps) {
    REDUCE_SCRATCH(scratch);
    struct gradient gradient = {x, dy, dsum, weight, dx, 0, 0, 0, 0, 0};
    struct row row;
    DECLARE_SUMS(parts);
    packet_t value[PACKETS], weighed[PACKETS];
    const long team = (long)get_group_id(0) * (GROUP / TEAM) + sg_item() / TEAM, teams = (long)groups * (GROUP / TEAM);
    const float columns = (float)layout.columns;
    row_numbered(&layout, 0, &row);
    FOR_EACH_VALUE (i) {
        if (DWEIGHT)
            DWEIGHT_SUM(parts, i) = (packet_t)(0.0f);
        if (DBIAS)
            DBIAS_SUM(parts, i) = (packet_t)(0.0f);
    }
    for (long first = 0; first < layout.rows; first += teams) {
        row_numbered(&layout, first + team, &row);
        gradient_locate(&layout, row.number, row_from_lane(&row), weight_at, &gradient);
        float mean = 0.0f;
        FOR_EACH_VALUE (i) {
            value[i] = gradient_x(&gradient, &row, PACKET_OFFSET(i));
            weighed[i] = gradient_dy(&gradient, &row, PACKET_OFFSET(i));
        }
        gradient_prefetch(&layout, &gradient, first + teams + team, row.lane);
        if (LAYER) {
            FOR_EACH_VALUE (i)
                mean += packet_sum(value[i]);
            mean = team_all_sum(mean, scratch) / columns;
        }
        float2 sums = (float2)(0.0f);
        FOR_EACH_VALUE (i) {
            value[i] = LAYER ? row_inside(&row, PACKET_OFFSET(i), value[i] - mean) : value[i];
            sums += (float2)(packet_sum(value[i]), packet_sum(value[i] * value[i]));
        }
        sums = team_all_sums(sums, scratch);
        const float shift = moments_shift(sums, columns), factor = moments_factor(sums, columns, eps);
        float2 means = (float2)(0.0f);
        FOR_EACH_VALUE (i) {
            value[i] = (value[i] - shift) * factor;
            if (DWEIGHT && row.columns > 0)
                DWEIGHT_SUM(parts, i) += weighed[i] * value[i];
            if (DBIAS && row.columns > 0)
                DBIAS_SUM(parts, i) += weighed[i];
            weighed[i] = gradient_weigh(&gradient, &row, PACKET_OFFSET(i), weighed[i]);
            means += (float2)(packet_sum(weighed[i]), packet_sum(weighed[i] * value[i]));
        }
        means = team_all_sums(means, scratch) / columns;
        FOR_EACH_VALUE (i)
            gradient_write(&gradient, &row, PACKET_OFFSET(i), weighed[i], value[i], means, factor);
    }
    row_numbered(&layout, 0, &row);
    const long at = partial_at + team * layout.columns + row_from_lane(&row);
    FOR_EACH_VALUE (i) {
        const uint index = PACKET_OFFSET(i);
        if (DWEIGHT)
            packet_store(workspace, at, index, row.columns, 1, DWEIGHT_SUM(parts, i), DTYPE_F32);
        if (DBIAS)
            packet_store(workspace, at + plane, index, row.columns, 1, DBIAS_SUM(parts, i), DTYPE_F32);
    }
}
