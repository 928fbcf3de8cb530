/* The largest K elements of rows, as softmax gives them, and the rows' log-sum-exp, in one pass. A work-group walks
 * along a row by tiles. What may be among the best of its tile is left in local memory, and the best so far and those
 * candidates are ranked anew; after the first tiles few elements are candidates. Among equal elements the first counts
 * as larger, so that the result does not depend on the order in which candidates arrive. */

/* Parameters, beside those of row_share.clh, where TEAM is the same as GROUP. */
#ifndef X_DTYPE
#define X_DTYPE 1 /* of x, a number of clattn_dtype */
#endif
#ifndef VALUES_DTYPE
#define VALUES_DTYPE 1 /* of values */
#endif
#ifndef K
#define K 1 /* how many elements */
#endif
#ifndef EMPTY_ZERO
#define EMPTY_ZERO 0 /* 1: the probabilities of an all -inf row are 0, not NaN */
#endif

#include "rows.clh"

#define TILE (GROUP * VECTOR * BLOCK)
/* Candidates that there is room for: one per work-item, or the tile of a work-item alone. */
#define LEAST_ROOM (GROUP == 1 ? TILE : GROUP)
#define ROOM (LEAST_ROOM > K ? LEAST_ROOM : K)

/* A work-item alone needs none, and PoCL's compiler had better not see any. */
#if GROUP > 1
#define GROUP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define GROUP_BARRIER()
#endif

/* The best so far in best[turn], ordered; candidates behind them. Places that no element has taken hold -inf and
 * indices beyond all others. */
struct selection {
    local float *value; /* [2][K], then [ROOM] */
    local int *index;   /* likewise */
    volatile local int *count;
    int turn;
    float least; /* of the best: what a candidate must beat */
    int least_index;
};

static inline bool is_better(float a, int a_index, float b, int b_index) {
    return a > b || (a == b && a_index < b_index);
}

static inline void offer(struct selection *selection, float value, uint index) {
    if (!is_better(value, (int)index, selection->least, selection->least_index))
        return;
    const int at = atomic_inc(selection->count);
    if (at < ROOM) {
        selection->value[2 * K + at] = value;
        selection->index[2 * K + at] = (int)index;
    }
}

/* Element i of the best, or of the candidates behind them. */
static inline uint entry(const struct selection *selection, uint i) {
    return i < K ? selection->turn * K + i : K + i;
}

/* Ranks the best and `count` candidates. All work-items make the call, behind a barrier. */
static inline void rank_all(struct selection *selection, uint count, uint lane) {
    const uint to = (1 - selection->turn) * K;
    for (uint i = lane; i < K + count; i += GROUP) {
        const float value = selection->value[entry(selection, i)];
        const int index = selection->index[entry(selection, i)];
        uint rank = 0;
        for (uint j = 0; j < K + count; j++)
            rank +=
                is_better(selection->value[entry(selection, j)], selection->index[entry(selection, j)], value, index)
                    ? 1
                    : 0;
        if (rank < K) {
            selection->value[to + rank] = value;
            selection->index[to + rank] = index;
        }
    }
    GROUP_BARRIER();
    if (lane == 0)
        *selection->count = 0;
    selection->turn = 1 - selection->turn;
    selection->least = selection->value[to + K - 1];
    selection->least_index = selection->index[to + K - 1];
    GROUP_BARRIER();
}

/* The K-th largest of the work-items' maxima: no smaller element of the tile can be among the best. */
static inline void first_bound(struct selection *selection, float max, uint lane) {
    if (GROUP < K || GROUP == 1)
        return;
    selection->value[2 * K + lane] = max;
    GROUP_BARRIER();
    uint rank = 0;
    for (uint j = 0; j < GROUP; j++)
        rank += is_better(selection->value[2 * K + j], (int)j, max, (int)lane) ? 1 : 0;
    if (rank == K - 1)
        selection->value[K] = max;
    GROUP_BARRIER();
    selection->least = selection->value[K];
    GROUP_BARRIER();
}

/* A tile with more candidates than there is room for, again, one element of each work-item at a time. */
static inline void select_slowly(struct selection *selection, global const byte_t *x, long start, long step,
                                 const struct row *row, uint tile) {
    GROUP_BARRIER();
    if (row->lane == 0)
        *selection->count = 0;
    GROUP_BARRIER();
    for (uint first = tile; first < min(tile + TILE, row->columns); first += GROUP) {
        const uint index = first + row->lane;
        if (index < row->columns)
            offer(selection, element_load(x, start + (long)index * step, X_DTYPE), index);
        GROUP_BARRIER();
        const uint count = (uint)*selection->count;
        GROUP_BARRIER();
        if (count > 0)
            rank_all(selection, count, row->lane);
    }
}

static inline void offer_block(struct selection *selection, const struct row *row, uint index, const packet_t *value) {
    FOR_EACH_PACKET (i) {
        const union packet_elements elements = {value[i]};
#pragma unroll
        for (uint c = 0; c < VECTOR; c++)
            if (BLOCK_INDEX(index, i) + c < row->columns)
                offer(selection, elements.element[c], BLOCK_INDEX(index, i) + c);
    }
}

static inline state_t add_block(state_t state, const packet_t *value, float max) {
    const float all = fmax(state.x, max), reference = state_reference(all);
    float sum = state.y * state_weight(state.x, reference);
    FOR_EACH_PACKET (i)
        sum += packet_sum(exp(value[i] - reference));
    return (state_t)(all, sum);
}

/* Rows that hold +inf or NaN give NaN, in the order of their elements. */
static inline void write_best(const struct selection *selection, global byte_t *values, global int *indices,
                              const struct rows_layout *layout, const struct row *row, state_t state) {
    const float reference = state_reference(state.x);
    const float inverse = EMPTY_ZERO && state.y == 0.0f ? 0.0f : 1.0f / state.y;
    const long values_at = row_start(layout, 1, row->number), indices_at = row_start(layout, 2, row->number);
    for (uint i = row->lane; i < K; i += GROUP) {
        const uint from = selection->turn * K + i;
        const bool ordered = !isnan(state.y);
        element_store(values, values_at + (long)i * layout->view[1].step,
                      ordered ? exp(selection->value[from] - reference) * inverse : NAN, VALUES_DTYPE);
        indices[indices_at + (long)i * layout->view[2].step] = ordered ? selection->index[from] : (int)i;
    }
}

kernel SG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_topk(global const byte_t *x, global byte_t *values, global int *indices, global float *lse,
             const struct rows_layout layout) {
    REDUCE_SCRATCH(scratch);
    local float value_room[2 * K + ROOM];
    local int index_room[2 * K + ROOM];
    volatile local int count_room;
    struct selection selection = {value_room, index_room, &count_room, 0, -INFINITY, INT_MAX};
    struct row row;
    row_mine(&layout, &row);
    const long start = row_start(&layout, 0, row.number), step = ROW_STEP(&layout, 0);
    for (uint i = row.lane; i < K; i += GROUP) {
        value_room[i] = -INFINITY;
        index_room[i] = INT_MAX - K + (int)i;
    }
    if (row.lane == 0)
        count_room = 0;
    GROUP_BARRIER();
    state_t state = STATE_EMPTY;
    for (uint tile = 0; tile < row.columns; tile += TILE) {
        const uint index = tile + row.lane * VECTOR;
        packet_t value[BLOCK];
        float max = -INFINITY;
        FOR_EACH_PACKET (i)
            value[i] = packet_load(x, start, BLOCK_INDEX(index, i), row.columns, step, X_DTYPE, -INFINITY);
        FOR_EACH_PACKET (i)
            max = fmax(max, packet_max(value[i]));
        state = add_block(state, value, max);
        if (tile == 0)
            first_bound(&selection, max, row.lane);
        if (max >= selection.least)
            offer_block(&selection, &row, index, value);
        GROUP_BARRIER();
        const uint count = (uint)count_room;
        GROUP_BARRIER();
        if (count > ROOM)
            select_slowly(&selection, x, start, step, &row, tile);
        else if (count > 0)
            rank_all(&selection, count, row.lane);
    }
    state = team_all_state(state, scratch);
    if (row.columns == 0)
        return;
    write_best(&selection, values, indices, &layout, &row, state);
    if (lse != 0 && row.lane == 0)
        lse[row_start(&layout, 3, row.number)] = state.x + log(state.y);
}
