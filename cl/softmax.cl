/* Softmax along rows that a team of work-items holds in registers: every element is read once and written once. The
 * team is some lanes of a sub-group, a whole one, or a whole work-group. */

/* Parameters: those of softmax_row.clh and row_share.clh. */
#include "softmax_row.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_registers(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
                  global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    struct row row = {.mask = mask, .bias = bias};
    row_mine(&layout, &row);
    packet_t value[PACKETS];
    state_t state = STATE_EMPTY;
    FOR_EACH_VALUE (i)
        value[i] = row_load(x, &row, PACKET_INDEX(i));
    FOR_EACH_VALUE (i)
        state.x = fmax(state.x, packet_max(value[i]));
    state.x = team_all_max(state.x, scratch);
    const float reference = state_reference(state.x);
    FOR_EACH_VALUE (i) {
        const packet_t e = row_exp(value[i], reference);
        state.y += packet_sum(e);
        value[i] = FUNCTION == FUNCTION_SOFTMAX ? e : value[i];
    }
    state.y = team_all_sum(state.y, scratch);
    FOR_EACH_VALUE (i)
        if (FUNCTION == FUNCTION_SOFTMAX)
            row_store(y, &row, PACKET_INDEX(i), value[i] * state_inverse(state));
        else if (FUNCTION == FUNCTION_LOG_SOFTMAX)
            row_store(y, &row, PACKET_INDEX(i), value[i] - reference - state_log_sum(state));
    row_write_state(y, l, &row, state);
}
