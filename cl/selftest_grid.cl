/* Self-test of values between work-groups: each group adds one to what the group with the ticket before left, which
 * takes as long as all of them one by one. Gives up where nothing arrives, so that a failing device is not hung. */
#include "grid.clh"

#define PATIENCE (1 << 20)

/* out: a place for each of the GROUPS, then the tickets' counter. */
kernel void selftest_grid(global const uchar *in, global uchar *out) {
    local uint shared;
    volatile global ulong *place = (volatile global ulong *)out;
    const uint ticket = grid_ticket((volatile global uint *)(out + GROUPS * sizeof(ulong)), &shared);
    if (get_local_id(0) > 0)
        return;
    const float first = ((global const float *)in)[0];
    const float before = ticket == 0 ? first : grid_look(place + ticket - 1, PATIENCE).x;
    const float2 value = (float2)(before + 1.0f, (float)ticket + 1.0f);
    if (ticket % 2 == 0)
        grid_publish(place + ticket, value);
    grid_offer(place + ticket, ticket % 2 == 0 ? (float2)(first) : value); /* the first one stays */
}
