/* Softmax along long rows in one launch: rows are cut into chunks of whole blocks, and a work-group either leaves the
 * state of a chunk or, once all states of a row are there, writes a chunk. Tickets deal the work out so that a chunk is
 * written soon after it was first read, while the last-level cache still holds it: memory is read once. */

/* Parameters: those of softmax_row.clh and row_share.clh; TEAM is the same as GROUP. */
#include "softmax_row.clh"

#include "grid.clh"

/* The first `lag` tickets are states, the next ones a state and a result in turn, the last `lag` results:
 *
 *   S0 S1 .. S(lag-1) | S(lag) W0 S(lag+1) W1 .. | W(chunks-lag) .. W(chunks-1)
 *
 * lag is at least the chunks of a row, so that W waits for states with lower tickets only. */
static inline bool ticket_writes(ulong ticket, ulong chunks, ulong lag, ulong *chunk) {
    const ulong paired = 2 * (chunks - lag);
    if (ticket < lag) {
        *chunk = ticket;
        return false;
    }
    if (ticket - lag < paired) {
        *chunk = (ticket - lag) % 2 == 0 ? lag + (ticket - lag) / 2 : (ticket - lag) / 2;
        return (ticket - lag) % 2 != 0;
    }
    *chunk = ticket - chunks;
    return true;
}

/* workspace: the tickets' counter in the first of two words, then a state per chunk. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_tickets(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
                volatile global ulong *workspace, const long workspace_at, const struct softmax_layout layout,
                const uint width, const uint splits, const uint lag) {
    REDUCE_SCRATCH(scratch);
    local uint shared;
    volatile global ulong *place = workspace + workspace_at + 2;
    ulong chunk;
    const uint ticket = grid_ticket((volatile global uint *)(workspace + workspace_at), &shared);
    const bool writes = ticket_writes(ticket, (ulong)layout.rows * splits, lag, &chunk);
    const uint first = (uint)(chunk % splits) * width;
    struct row row = {.mask = mask, .bias = bias};
    row_number((long)(chunk / splits), &layout, &row);
    row.columns = min(first + width, row.columns); /* the row ends where its chunk does */
    state_t state = STATE_EMPTY;
    if (writes)
        for (uint i = row.lane; i < splits; i += GROUP)
            state = state_merge(state, grid_await(place + chunk / splits * splits + i));
    else
        state = row_state(x, &row, first);
    state = team_all_state(state, scratch);
    if (writes)
        row_write(x, y, &row, first, state);
    else if (row.lane == 0)
        grid_publish(place + chunk, state);
}
