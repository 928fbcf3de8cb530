/* Softmax along rows that are read again instead of kept: for rows of any length, and as forms to compare with. */

/* Parameters: those of softmax_row.clh and row_share.clh. */
#include "softmax_row.clh"

static inline void write_all(global const byte_t *x, global byte_t *y, global byte_t *l, const struct row *row,
                             state_t state) {
    if (WRITES_ROW)
        row_write(x, y, row, 0, state);
    row_write_state(y, l, row, state);
}

/* Two passes: the state, then the result. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_online(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
               global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    struct row row = {.mask = mask, .bias = bias};
    row_mine(&layout, &row);
    const state_t state = row_state(x, &row, 0);
    write_all(x, y, l, &row, team_all_state(state, scratch));
}

/* Three passes: the maximum, the sum, then the result. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_three_pass(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
                   global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    struct row row = {.mask = mask, .bias = bias};
    row_mine(&layout, &row);
    packet_t value[BLOCK];
    state_t state = STATE_EMPTY;
    FOR_EACH_BLOCK (index, &row, 0) {
        block_load(x, &row, index, value);
        state.x = fmax(state.x, block_max(value));
    }
    state.x = team_all_max(state.x, scratch);
    FOR_EACH_BLOCK (index, &row, 0) {
        block_load(x, &row, index, value);
        state.y += block_sum(value, state_reference(state.x));
    }
    state.y = team_all_sum(state.y, scratch);
    write_all(x, y, l, &row, state);
}
