/* Gradients of RMSNorm and LayerNorm along rows that are read three times instead of kept: statistics, the means of the
 * gradient, the result. The team's part of dweight and dbias grows in the workspace. For rows of any length. */

/* Parameters: those of norm_backward.clh and row_share.clh. */
#include "norm_backward.clh"

/* Adds a packet to the team's row of dweight or dbias, which starts at `at`; its first row sets it. Only one work-item
 * uses the place. */
static inline void add_partial(global float *workspace, long at, const struct row *row, uint index, packet_t packet,
                               bool first) {
    if (!first)
        packet += packet_load(workspace, at, index, row->columns, 1, DTYPE_F32, 0.0f);
    packet_store(workspace, at, index, row->columns, 1, packet, DTYPE_F32);
}

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_backward_loop(global const byte_t *x, global const byte_t *dy, global const byte_t *dsum,
                   global const byte_t *weight, global byte_t *dx, global float *workspace,
                   const struct rows_layout layout, const long weight_at, const long partial_at, const long plane,
                   const int groups, const float eps) {
    REDUCE_SCRATCH(scratch);
    struct gradient gradient = {x, dy, dsum, weight, dx, 0, 0, 0, 0, 0};
    const long team = (long)get_group_id(0) * (GROUP / TEAM) + sg_item() / TEAM, teams = (long)groups * (GROUP / TEAM);
    const long sums_at = partial_at + team * layout.columns;
    const float columns = (float)layout.columns;
    struct row row;
    struct moments mine;
    float2 sums, means;
    for (long first = 0; first < layout.rows; first += teams) {
        row_numbered(&layout, first + team, &row);
        gradient_locate(&layout, row.number, 0, weight_at, &gradient);
        mine.count = mine.mean = mine.squares = 0.0f;
        FOR_EACH_BLOCK (index, &row, 0) {
            packet_t value[BLOCK];
            FOR_EACH_PACKET (i)
                value[i] = gradient_x(&gradient, &row, BLOCK_INDEX(index, i));
            moments_add(&mine, &row, index, value);
        }
        means = (float2)(0.0f);
        const float mean = moments_merge(&mine, columns, &sums, scratch);
        const float shift = moments_shift(sums, columns), factor = moments_factor(sums, columns, eps);
        FOR_EACH_BLOCK (index, &row, 0) {
            FOR_EACH_PACKET (i) {
                const uint at = BLOCK_INDEX(index, i);
                const packet_t normal = (gradient_x(&gradient, &row, at) - mean - shift) * factor;
                const packet_t weighed = gradient_weigh(&gradient, &row, at, gradient_dy(&gradient, &row, at));
                means += (float2)(packet_sum(weighed), packet_sum(weighed * normal));
            }
        }
        means = team_all_sums(means, scratch) / columns;
        FOR_EACH_BLOCK (index, &row, 0) {
            FOR_EACH_PACKET (i) {
                const uint at = BLOCK_INDEX(index, i);
                const packet_t normal = (gradient_x(&gradient, &row, at) - mean - shift) * factor;
                const packet_t given = gradient_dy(&gradient, &row, at);
                if (DWEIGHT)
                    add_partial(workspace, sums_at, &row, at, given * normal, first == 0);
                if (DBIAS)
                    add_partial(workspace, sums_at + plane, &row, at, given, first == 0);
                gradient_write(&gradient, &row, at, gradient_weigh(&gradient, &row, at, given), normal, means, factor);
            }
        }
    }
}
