/* Softmax along rows that a team of work-items holds in registers: every element is read once and written once. The
 * team is some lanes of a sub-group, a whole one, or a whole work-group. */

/* Parameters: those of held.clh, softmax_row.clh and row_share.clh. */
#include "held.clh"

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_registers(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
                  global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    struct row row = {.mask = mask, .bias = bias};
    row_mine(&layout, &row);
    held_t held[PACKETS];
    state_t state = STATE_EMPTY;
    FOR_EACH_VALUE (i)
        held[i] = held_load(x, &row, PACKET_INDEX(i));
    FOR_EACH_VALUE (i)
        state.x = fmax(state.x, packet_max(held_value(held[i], &row, PACKET_INDEX(i))));
    state.x = team_all_max(state.x, scratch);
    const float reference = state_reference(held_maximum(state.x));
    FOR_EACH_VALUE (i) {
        HELD_ANEW(held[i], &layout);
        const packet_t e = held_exp(held_value(held[i], &row, PACKET_INDEX(i)), reference);
        state.y += packet_sum(e);
        held_keep(&held[i], e);
    }
    state.y = team_all_sum(state.y, scratch);
    FOR_EACH_VALUE (i) {
        const uint index = PACKET_INDEX(i);
        HELD_ANEW(held[i], &layout);
        if (FUNCTION == FUNCTION_SOFTMAX)
            row_store(y, &row, index, held_kept(held[i], &row, index, reference) * state_inverse(state));
        else if (FUNCTION == FUNCTION_LOG_SOFTMAX)
            row_store(y, &row, index, held_value(held[i], &row, index) - reference - state_log_sum(state));
    }
    row_write_state(y, l, &row, state);
}
