/* Gradients of softmax and log-softmax along rows that are read twice instead of kept. For rows of any length. */

/* Parameters: those of softmax_backward.clh and row_share.clh. */
#include "softmax_backward.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_backward_loop(global const byte_t *y, global const byte_t *dy, global byte_t *dx,
                      const struct rows_layout layout, const float scale) {
    REDUCE_SCRATCH(scratch);
    struct gradient gradient = {y, dy, dx, 0, 0, 0, 1, 1, 1};
    struct row row;
    packet_t result[BLOCK], given[BLOCK];
    float sum = 0.0f;
    row_mine(&layout, &row);
    gradient_locate(&layout, row.number, &gradient);
    FOR_EACH_BLOCK (index, &row, 0) {
        FOR_EACH_PACKET (i) {
            result[i] = LOGARITHM ? (packet_t)(0.0f) : gradient_y(&gradient, &row, BLOCK_INDEX(index, i));
            given[i] = gradient_dy(&gradient, &row, BLOCK_INDEX(index, i));
        }
        float part = 0.0f;
        FOR_EACH_PACKET (i)
            part += gradient_term(result[i], given[i]);
        sum += part;
    }
    sum = team_all_sum(sum, scratch);
    FOR_EACH_BLOCK (index, &row, 0) {
        FOR_EACH_PACKET (i) {
            result[i] = gradient_y(&gradient, &row, BLOCK_INDEX(index, i));
            given[i] = gradient_dy(&gradient, &row, BLOCK_INDEX(index, i));
        }
        FOR_EACH_PACKET (i)
            gradient_write(&gradient, &row, BLOCK_INDEX(index, i), result[i], given[i], sum, scale);
    }
}
