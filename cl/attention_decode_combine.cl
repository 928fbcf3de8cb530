/* The second launch of split decode attention: the partial results of a row become its output, in one fixed order. A
 * work-group takes a row; its PARTS teams of LANES work-items take splits in turn, a work-item four columns, and the
 * teams' sums meet in local memory. What a split without keys left in the place of its values is not read.
 * Parameters: attention_rows.clh with ITEMS = PARTS * LANES; VALUE_DIM. */
#include "attention_rows.clh"
#include "split.clh"
#include "state.clh"

#define PACKETS ((VALUE_DIM + 3) / 4)
#define LANE ((int)get_local_id(0) % LANES)
#define PART ((int)get_local_id(0) / LANES)

/* Sums of one work-item: values, and the state that they were weighed against. */
typedef struct {
    float4 values;
    state_t state;
} sum_t;

static inline sum_t sum_add(sum_t sum, state_t state, float4 values) {
    const float max = fmax(sum.state.x, state.x), reference = state_reference(max);
    const float old = exp2((sum.state.x - reference) * LOG2_E), new = exp2((state.x - reference) * LOG2_E);
    sum.values = sum.values * old + values * new;
    sum.state = (state_t)(max, sum.state.y * old + state.y * new);
    return sum;
}

static inline sum_t sum_splits(const __global float *partials, const split_t *split, int splits, long values,
                               long states, int packet) {
    sum_t sum;
    sum.values = (float4)(0.0f);
    sum.state = STATE_EMPTY;
#pragma unroll 4
    for (int s = PART; s < splits; s += PARTS) {
        const state_t state = vload2(states + s, partials);
        const bool counts = state.x != -INFINITY || state.y != 0.0f;
        if (counts && VALUE_DIM > 0)
            sum = sum_add(sum, state, vload4(0, partials + values + s * split->pitch + packet * 4));
        else if (counts)
            sum = sum_add(sum, state, (float4)(0.0f));
    }
    return sum;
}

static inline void store_packet(__global byte_t *o, long at, int packet, float4 values, float sum) {
    const float columns[4] = {values.x, values.y, values.z, values.w};
    for (int i = 0; i < 4 && packet * 4 + i < VALUE_DIM; i++) {
        const float value = sum == 0.0f ? 0.0f : score_quotient(columns[i], sum, 1.0f / sum);
        element_store(o, at + packet * 4 + i, value, OUT_ELEMENT);
    }
}

ROWS_KERNEL void attention_decode_combine(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                                          __global byte_t *o, __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                                          const __global float *partials, split_t split) {
    __local float4 part_values[ITEMS];
    __local float2 part_states[ITEMS];
    MODIFIERS(modifiers);
    const bool joined = SEQUENCES && modifiers.q_offsets;
    row_place_t place = row_place(get_group_id(0), call.heads, sequence_blocks(&modifiers, &call, 1));
    if (joined)
        place.batch = sequence_find(&modifiers, &call, 1, place.index, &place.index);
    const sequence_t sequence = sequence_of(&modifiers, &call, place.batch);
    const bool is_row = place.index >= 0 && place.index < sequence.rows, is_query = is_row && place.index < sequence.nq;
    const __global byte_t *base = (const __global byte_t *)partials;
    const long values = matrix_row(sequence_queries(&sequence, base, split.values, place.head), place.index);
    const long states = matrix_row(sequence_queries(&sequence, base, split.states, place.head), place.index);
    const long to = matrix_row(sequence_queries(&sequence, o, call.o, place.head), place.index);
    const matrix_t lse_rows = sequence_queries(&sequence, (const __global byte_t *)lse, call.lse, place.head);

    for (int first = 0; first < max(PACKETS, 1); first += LANES) {
        const int packet = min(first + LANE, max(PACKETS - 1, 0));
        sum_t sum = sum_splits(partials, &split, is_query ? split.splits : 0, values, states, packet);
        if (PARTS > 1) {
            part_values[get_local_id(0)] = sum.values;
            part_states[get_local_id(0)] = sum.state;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int part = 1; part < PARTS && PART == 0; part++)
                sum = sum_add(sum, part_states[part * LANES + LANE], part_values[part * LANES + LANE]);
        }
        if (is_row && PART == 0 && first + LANE < PACKETS)
            store_packet(o, to, packet, sum.values, sum.state.y);
        if (is_row && lse && get_local_id(0) == 0 && first == 0) {
            const float all = sum.state.y == 0.0f ? -INFINITY : sum.state.x + log2(sum.state.y) * LN_2;
            lse[matrix_row(lse_rows, place.index)] = all;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
