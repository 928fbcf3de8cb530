/* Softmax along rows that are read again instead of kept: for rows of any length, and as forms to compare with.
 * Parameters as in softmax.cl, without PACKETS. */
#include "softmax_row.clh"

/* The team's packets of a row, each work-item TEAM packets apart. */
#define FOR_EACH_PACKET(index) for (uint index = row.lane * VECTOR; index < row.columns; index += TEAM * VECTOR)

static inline void write_all(global const byte_t *x, global byte_t *y, global byte_t *l, struct row row,
                             state_t state) {
    if (WRITES_ROW)
        FOR_EACH_PACKET(index)
    row_write(y, &row, index, row_load(x, &row, index), state);
    row_write_state(y, l, &row, state);
}

/* Two passes: the state, then the result. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_online(global const byte_t *x, global byte_t *y, global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    const struct row row = row_mine(&layout);
    state_t state = state_empty();
    FOR_EACH_PACKET(index)
    state = state_take(state, row_load(x, &row, index));
    write_all(x, y, l, row, team_all_state(state, scratch));
}

/* Three passes: the maximum, the sum, then the result. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_three_pass(global const byte_t *x, global byte_t *y, global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    const struct row row = row_mine(&layout);
    state_t state = state_empty();
    FOR_EACH_PACKET(index)
    state.max = fmax(state.max, packet_max(row_load(x, &row, index)));
    state.max = team_all_max(state.max, scratch);
    FOR_EACH_PACKET(index)
    state.sum += packet_sum(row_exp(row_load(x, &row, index), state_reference(state.max)));
    state.sum = team_all_sum(state.sum, scratch);
    write_all(x, y, l, row, state);
}
