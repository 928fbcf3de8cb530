/* Softmax along few long rows: each row is cut into chunks of whole packets, one work-group a chunk. The first kernel
 * leaves the chunks' states in the workspace, the second merges a row's states and writes. */

/* Parameters: those of softmax_row.clh and row_share.clh; TEAM is the same as GROUP. */
#include "softmax_row.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_partial(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global state_t *partial,
                const long partial_offset, const struct softmax_layout layout, const uint chunk, const uint splits) {
    REDUCE_SCRATCH(scratch);
    const uint first = (uint)(get_group_id(0) % splits) * chunk;
    struct row row = {.mask = mask, .bias = bias};
    row_number((long)(get_group_id(0) / splits), &layout, &row);
    row.columns = min(first + chunk, row.columns); /* the row ends where its chunk does */
    const state_t state = team_all_state(row_state(x, &row, first), scratch);
    if (row.writes)
        partial[partial_offset + (long)get_group_id(0)] = state;
}

/* The row's state from those of its chunks. */
static inline state_t merge_partial(global const state_t *partial, uint splits, uint lane, local float *scratch) {
    state_t state = STATE_EMPTY;
    for (uint i = lane; i < splits; i += GROUP)
        state = state_merge(state, partial[i]);
    return team_all_state(state, scratch);
}

/* One group per chunk; where only the state is wanted, one per row. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_finish(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
               global byte_t *l, global const state_t *partial, const long partial_offset,
               const struct softmax_layout layout, const uint chunk, const uint splits) {
    REDUCE_SCRATCH(scratch);
    const uint groups = WRITES_ROW ? splits : 1;
    const long number = (long)(get_group_id(0) / groups);
    const uint first = (uint)(get_group_id(0) % groups) * chunk;
    struct row row = {.mask = mask, .bias = bias};
    row_number(number, &layout, &row);
    row.columns = min(first + chunk, row.columns);
    const state_t state = merge_partial(partial + partial_offset + number * splits, splits, row.lane, scratch);
    if (WRITES_ROW)
        row_write(x, y, &row, first, state);
    else
        row_write_state(y, l, &row, state);
}
