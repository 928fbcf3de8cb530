/* Gradients of softmax and log-softmax along rows that a team holds in registers: every element is read once. */

/* Parameters: those of softmax_backward.clh and row_share.clh. */
#include "softmax_backward.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_backward_registers(global const byte_t *y, global const byte_t *dy, global byte_t *dx,
                           const struct rows_layout layout, const float scale) {
    REDUCE_SCRATCH(scratch);
    struct gradient gradient = {y, dy, dx, 0, 0, 0, 1, 1, 1};
    struct row row;
    packet_t result[PACKETS], given[PACKETS];
    float sum = 0.0f;
    row_mine(&layout, &row);
    gradient_locate(&layout, row.number, &gradient);
    FOR_EACH_VALUE (i) {
        result[i] = gradient_y(&gradient, &row, PACKET_INDEX(i));
        given[i] = gradient_dy(&gradient, &row, PACKET_INDEX(i));
    }
    FOR_EACH_VALUE (i)
        sum += gradient_term(result[i], given[i]);
    sum = team_all_sum(sum, scratch);
    FOR_EACH_VALUE (i)
        gradient_write(&gradient, &row, PACKET_INDEX(i), result[i], given[i], sum, scale);
}
