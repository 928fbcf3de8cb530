/* Softmax along rows that a team of work-items holds in registers: every element is read once and written once. The
 * team is some lanes of a sub-group, a whole one, or a whole work-group. */

/* Parameters. */
#ifndef X_DTYPE
#define X_DTYPE 1 /* of x, a number of clattn_dtype */
#endif
#ifndef Y_DTYPE
#define Y_DTYPE 1 /* of y */
#endif
#ifndef FUNCTION
#define FUNCTION 0 /* a number of clattn_softmax_function */
#endif
#ifndef EMPTY_ZERO
#define EMPTY_ZERO 0 /* 1: an all -inf row gives 0, not NaN */
#endif
#ifndef SCORES
#define SCORES 0 /* 1: attention's scores: a diagonal limits rows, and their log-sum-exp is written too */
#endif
#ifndef OUTER
#define OUTER 1 /* dims that rows are numbered over, 1 to 3 */
#endif
#ifndef DENSE
#define DENSE 1 /* 1: neighbours in a row are neighbours in memory */
#endif
#ifndef VECTOR
#define VECTOR 4 /* elements of a packet; 1 where not DENSE */
#endif
#ifndef ALIGNED
#define ALIGNED 1 /* 1: packets start at multiples of their size */
#endif
#ifndef PARTIAL
#define PARTIAL 0 /* 1: the number of columns is no multiple of VECTOR */
#endif
#ifndef PACKETS
#define PACKETS 4 /* packets per work-item: TEAM * PACKETS * VECTOR elements are the longest row */
#endif
#ifndef SG_SIZE
#define SG_SIZE 1 /* lanes of a sub-group */
#endif
#ifndef TEAM
#define TEAM 1 /* work-items that share a row: at most SG_SIZE, or GROUP */
#endif
#ifndef GROUP
#define GROUP 1 /* work-items of a work-group */
#endif

#ifndef UNROLLED
#define UNROLLED 1 /* 0: too many packets for copies of the loops' bodies; the row's length says how many there are */
#endif

#include "softmax_row.clh"

#if UNROLLED
#define FOR_EACH_VALUE(i) _Pragma("unroll") for (uint i = 0; i < PACKETS; i++)
#else
#define FOR_EACH_VALUE(i) for (uint i = 0; i * (TEAM * VECTOR) < row.columns; i++)
#endif

/* Packets of a team's work-items alternate, so that its accesses are contiguous. */
#define PACKET_INDEX(i) (((i)*TEAM + row.lane) * VECTOR)

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_registers(global const byte_t *x, global byte_t *y, global byte_t *l, const struct softmax_layout layout) {
    REDUCE_SCRATCH(scratch);
    struct row row;
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
