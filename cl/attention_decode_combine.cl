/* The second launch of split decode attention: the partial results of a row become its output, in one fixed order. A
 * work-group takes a row: what each split weighs is found by all work-items together; then PARTS teams of LANES take
 * splits in turn, a work-item four columns, and the teams' sums meet in local memory. Values are loaded whatever they
 * weigh, so that all loads of a work-item are under way at once: a split without keys left zeros.
 * Parameters: attention_rows.clh with ITEMS = PARTS * LANES; VALUE_DIM. */
#include "attention_rows.clh"
#include "split.clh"
#include "state.clh"

#define PACKETS ((VALUE_DIM + 3) / 4)
#define ITEM ((int)get_local_id(0))
#define LANE (ITEM % LANES)
#define PART (ITEM / LANES)
#define ROUND 512 /* splits that are weighed at a time */

/* Sums of one work-item: of values, and of what they are divided by. */
typedef struct {
    float4 values;
    float l;
} sum_t;

/* The maximum of all splits. maxima: ITEMS floats. */
static inline float max_of_splits(const __global float *states, int splits, __local float *maxima) {
    float max = -INFINITY;
    for (int s = ITEM; s < splits; s += ITEMS)
        max = fmax(max, states[2 * s]);
    maxima[ITEM] = max;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < min(splits, ITEMS); i++)
        max = fmax(max, maxima[i]);
    return max;
}

/* (weight, weight * l) of splits first .. first + count - 1; a split without keys weighs nothing. */
static inline void weigh_splits(const __global float *states, int first, int count, float reference,
                                __local float2 *weights) {
    for (int i = ITEM; i < count; i += ITEMS) {
        const state_t state = vload2(first + i, states);
        const float weight = exp2((state.x - reference) * LOG2_E);
        const bool counts = state.x != -INFINITY || state.y != 0.0f;
        weights[i] = counts ? (float2)(weight, weight * state.y) : (float2)(0.0f);
    }
}

/* values: of split 0 and the first column of this work-item. */
static inline sum_t sum_splits(sum_t sum, const __global float *values, long pitch, int first, int count,
                               const __local float2 *weights) {
#pragma unroll 8
    for (int i = PART; i < count; i += PARTS) {
        const float2 weight = weights[i];
        if (VALUE_DIM > 0)
            sum.values += vload4(0, values + (first + i) * pitch) * weight.x;
        sum.l += weight.y;
    }
    return sum;
}

static inline sum_t sum_parts(sum_t sum, __local float4 *values, __local float *sums) {
    if (PARTS == 1)
        return sum;
    values[ITEM] = sum.values;
    sums[ITEM] = sum.l;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int part = 1; part < PARTS && PART == 0; part++) {
        sum.values += values[part * LANES + LANE];
        sum.l += sums[part * LANES + LANE];
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
    __local float part_sums[ITEMS];
    __local float2 weights[ROUND];
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

    const __global float *row_states = partials + 2 * states, *row_values = partials + values;
    const int splits = is_query ? split.splits : 0;
    const float top = max_of_splits(row_states, splits, part_sums), reference = state_reference(top);
    for (int first = 0; first < max(PACKETS, 1); first += LANES) {
        const int packet = min(first + LANE, max(PACKETS - 1, 0));
        sum_t sum = {(float4)(0.0f), 0.0f};
        for (int s = 0; s < splits; s += ROUND) {
            const int count = min(splits - s, ROUND);
            barrier(CLK_LOCAL_MEM_FENCE);
            weigh_splits(row_states, s, count, reference, weights);
            barrier(CLK_LOCAL_MEM_FENCE);
            sum = sum_splits(sum, row_values + packet * 4, split.pitch, s, count, weights);
        }
        sum = sum_parts(sum, part_values, part_sums);
        if (is_row && PART == 0 && first + LANE < PACKETS)
            store_packet(o, to, packet, sum.values, sum.l);
        if (is_row && lse && ITEM == 0 && first == 0)
            lse[matrix_row(lse_rows, place.index)] = sum.l == 0.0f ? -INFINITY : top + log2(sum.l) * LN_2;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
