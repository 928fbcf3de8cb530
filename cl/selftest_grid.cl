/* Self-test of values between work-groups: each group adds one to what the group with the ticket before left, which
 * takes as long as all of them one by one. Gives up where nothing arrives, so that a failing device is not hung. */
#include "grid.clh"

#define PATIENCE (1 << 20)

/* As grid_await(), but empty where the value does not come. */
static inline float2 await_for_a_while(volatile global ulong *place) {
    ulong bits = 0;
    for (int i = 0; i < PATIENCE && bits == 0; i++)
        bits = atom_add(place, 0);
    return as_float2(bits);
}

/* out: a place for each of the GROUPS, then the tickets' counter. */
kernel void selftest_grid(global const uchar *in, global uchar *out) {
    local uint shared;
    volatile global ulong *place = (volatile global ulong *)out;
    const uint ticket = grid_ticket((volatile global uint *)(out + GROUPS * sizeof(ulong)), &shared);
    if (get_local_id(0) > 0)
        return;
    const float first = ((global const float *)in)[0];
    const float before = ticket == 0 ? first : await_for_a_while(place + ticket - 1).x;
    grid_publish(place + ticket, (float2)(before + 1.0f, (float)ticket + 1.0f));
}
