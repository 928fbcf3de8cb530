/* Softmax along long rows in one launch that reads every element once: a work-group holds a chunk of a row in
 * registers, publishes its state, waits for those of the row's other chunks, and writes. Tickets deal out the chunks of
 * a row one behind the other, so that its groups run together where the device holds that many.
 *
 * Nothing is taken for granted of that: a group whose patience ends makes a state that is missing itself, from the
 * elements, and goes on. A chunk's elements change (in place) only after its state is there, so that a state made of
 * changed ones always comes too late to be taken. Whoever makes a state, it has the same bits. */

/* Parameters, beside those of held.clh, softmax_row.clh and row_share.clh; TEAM is the same as GROUP. */
#ifndef LOCAL_PACKETS
#define LOCAL_PACKETS 0 /* of the PACKETS, the last so many are held in local memory */
#endif

#include "held.clh"

#include "grid.clh"

#define REGISTER_PACKETS (PACKETS - LOCAL_PACKETS)

/* A work-item's packets. Nobody else reads them. */
struct chunk {
    held_t registers[REGISTER_PACKETS > 0 ? REGISTER_PACKETS : 1];
    local held_t *shared; /* one for each work-item of the group, LOCAL_PACKETS times */
};

static inline void chunk_put(struct chunk *chunk, uint i, held_t held) {
    if (i < REGISTER_PACKETS)
        chunk->registers[i] = held;
    else
        chunk->shared[(i - REGISTER_PACKETS) * GROUP + sg_item()] = held;
}

static inline held_t chunk_get(struct chunk *chunk, uint i, const struct softmax_layout *layout) {
    if (i >= REGISTER_PACKETS)
        return chunk->shared[(i - REGISTER_PACKETS) * GROUP + sg_item()];
    HELD_ANEW(chunk->registers[i], layout);
    return chunk->registers[i];
}

/* The state of a chunk: each work-item's maximum, its sum about that, then both over the team. */
static inline state_t make_state(global const byte_t *x, const struct row *chunk, local float *scratch) {
    const struct row row = *chunk;
    state_t state = STATE_EMPTY;
#pragma unroll 1
    for (uint index = row.lane * VECTOR; index < row.columns; index += TEAM * VECTOR)
        state.x = fmax(state.x, packet_max(row_load(x, &row, index)));
    state.x = held_maximum(state.x);
    const float reference = state_reference(state.x);
#pragma unroll 1
    for (uint index = row.lane * VECTOR; index < row.columns; index += TEAM * VECTOR)
        state.y += packet_sum(held_exp(row_load(x, &row, index), reference));
    return team_all_state(state, scratch);
}

/* The row's state from those of its chunks, as far as they come. Returns the first chunk without, or `splits`. */
static inline uint merge_states(volatile global ulong *place, uint splits, uint patience, state_t *all,
                                local float *scratch) {
    uint lacking = splits;
    /* The last one comes last as a rule: one work-item looks for it, and spares the memory the others' looking. */
    if (sg_item() == 0)
        grid_look(place + splits - 1, patience);
    *all = STATE_EMPTY;
    if (GROUP > 1)
        barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = sg_item(); i < splits; i += GROUP) {
        const state_t state = grid_look(place + i, lacking == splits ? patience : 1);
        if (as_ulong(state) == 0)
            lacking = min(lacking, i);
        else
            *all = state_merge(*all, state);
    }
    lacking = splits - (uint)team_all_max((float)(splits - lacking), scratch);
    if (lacking == splits)
        *all = team_all_state(*all, scratch);
    return lacking;
}

/* workspace: the tickets' counter in the first of two words, then a state per chunk. */
kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_held(global const byte_t *x, global const uchar *mask, global const byte_t *bias, global byte_t *y,
             volatile global ulong *workspace, const long workspace_at, const struct softmax_layout layout,
             const uint width, const uint splits, const uint patience) {
    REDUCE_SCRATCH(scratch);
    local uint shared;
    const uint ticket = grid_ticket((volatile global uint *)(workspace + workspace_at), &shared);
    const uint chunk = ticket % splits;
    volatile global ulong *place = workspace + workspace_at + 2 + (ticket - chunk);
    struct row row = {.mask = mask, .bias = bias};
    row_number((long)(ticket / splits), &layout, &row);
    row_cut(&row, chunk * width, width);
#if LOCAL_PACKETS
    local held_t shared_packets[LOCAL_PACKETS * GROUP];
    struct chunk held = {.shared = shared_packets};
#else
    struct chunk held = {.shared = 0};
#endif
    state_t state = STATE_EMPTY;
    FOR_EACH_VALUE (i)
        chunk_put(&held, i, held_load(x, &row, PACKET_INDEX(i)));
    FOR_EACH_VALUE (i)
        state.x = fmax(state.x, packet_max(held_value(chunk_get(&held, i, &layout), &row, PACKET_INDEX(i))));
    state.x = held_maximum(state.x);
    if (LOCAL_PACKETS > 0 && GROUP > 1)
        barrier(CLK_LOCAL_MEM_FENCE); /* so that the compiler reads them again and does not keep them in registers */
    const float own = state_reference(state.x);
    FOR_EACH_VALUE (i)
        state.y += packet_sum(held_exp(held_value(chunk_get(&held, i, &layout), &row, PACKET_INDEX(i)), own));
    state = team_all_state(state, scratch);
    if (row.lane == 0)
        grid_offer(place + chunk, state);
    uint looks = patience; /* once lost, it is not regained */
    for (uint lacking = 0; lacking < splits; looks = 1) {
        lacking = merge_states(place, splits, looks, &state, scratch);
        if (lacking < splits) {
            struct row other = {.mask = mask, .bias = bias};
            row_number((long)(ticket / splits), &layout, &other);
            row_cut(&other, lacking * width, width);
            const state_t made = make_state(x, &other, scratch);
            if (row.lane == 0)
                grid_offer(place + lacking, made);
        }
    }
    const float reference = state_reference(state.x);
    FOR_EACH_VALUE (i) {
        const uint index = PACKET_INDEX(i);
        const packet_t value = held_value(chunk_get(&held, i, &layout), &row, index);
        if (FUNCTION == FUNCTION_SOFTMAX)
            row_store(y, &row, index, held_exp(value, reference) * state_inverse(state));
        else
            row_store(y, &row, index, value - reference - state_log_sum(state));
    }
}
