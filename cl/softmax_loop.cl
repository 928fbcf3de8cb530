/* Softmax along rows that are read again instead of kept: for rows of any length, and as forms to compare with.
 * Parameters as in softmax.cl, without PACKETS. */
#include "softmax_row.clh"

static inline void write_all(global const byte_t *x, global byte_t *y, global byte_t *l, struct row row,
                             state_t state) {
    if (WRITES_ROW)
        row_write(x, y, row, 0, state);
    row_write_state(y, l, &row, state);
}

/* Two passes: the state, then the result. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_online(global const byte_t *x, global byte_t *y, global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    const struct row row = row_mine(&layout);
    const state_t state = row_state(x, row, 0);
    write_all(x, y, l, row, team_all_state(state, scratch));
}

/* Three passes: the maximum, the sum, then the result. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_three_pass(global const byte_t *x, global byte_t *y, global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    const struct row row = row_mine(&layout);
    packet_t value[BLOCK];
    state_t state = state_empty();
    FOR_EACH_BLOCK (index, 0) {
        block_load(x, &row, index, value);
        state.max = fmax(state.max, block_max(value));
    }
    state.max = team_all_max(state.max, scratch);
    FOR_EACH_BLOCK (index, 0) {
        block_load(x, &row, index, value);
        state.sum += block_sum(value, state_reference(state.max));
    }
    state.sum = team_all_sum(state.sum, scratch);
    write_all(x, y, l, row, state);
}
