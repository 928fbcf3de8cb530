/* Attention forward as a pipeline (after FlashAttention-3, arXiv:2407.08608): one warp fetches blocks of queries, keys
 * and values, tile groups compute. While a group's matrix products of one block run, it takes the softmax of the block
 * before, and groups take turns at issuing products, so that one multiplies while another takes exponentials.
 * Parameters: pipeline.clh. */
#include "pipeline.clh"

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

static INLINED void fetch_keys(const line_t *line, const __global uint *maps, const job_t *job, int step, uint count) {
    const uint stage = stage_of(count);
    barrier_wait(line->k_empty + 8 * stage, parity_of(count) ^ 1);
    fetch(line->k + stage * K_BYTES, line->k_full + 8 * stage, maps + MAP_K * MAP_WORDS, BLOCK_KEYS, HEAD_DIM,
          job_first_key(job, step), job->kv_head, job->batch);
}

static INLINED void fetch_values(const line_t *line, const __global uint *maps, const job_t *job, int step,
                                 uint count) {
    const uint stage = stage_of(count);
    barrier_wait(line->v_empty + 8 * stage, parity_of(count) ^ 1);
    fetch(line->v + stage * V_BYTES, line->v_full + 8 * stage, maps + MAP_V * MAP_WORDS, BLOCK_KEYS, VALUE_DIM,
          job_first_key(job, step), job->kv_head, job->batch);
}

/* By one warp, whose first lane issues the copies. Values follow one block behind the keys, as they are used. */
static INLINED void produce(const line_t *line, const pipelined_t *call, volatile __global uint *workspace,
                            const __global uint *maps) {
    const bool issues = get_local_id(0) % 32 == 0, draws = call->jobs > (int)get_num_groups(0);
    uint done = 0;
    if (issues && draws && get_group_id(0) == 0)
        workspace_begin(workspace, call->mark);
    for (uint turn = 0;; turn++) {
        const int index = job_draw(line, call, workspace, turn);
        if (index >= call->jobs)
            break;
        const job_t job = job_at(call, index);
        if (issues) {
            fetch_keys(line, maps, &job, 0, done);
            const uint slot = q_slot_of(turn);
            barrier_wait(line->q_empty + 8 * slot, q_parity_of(turn) ^ 1);
            fetch(line->q + slot * Q_BYTES, line->q_full + 8 * slot, maps + MAP_Q * MAP_WORDS, BLOCK_QUERIES, HEAD_DIM,
                  job.first_query, job.head, job.batch);
            for (int step = 1; step < job.key_blocks; step++) {
                fetch_keys(line, maps, &job, step, done + (uint)step);
                fetch_values(line, maps, &job, step - 1, done + (uint)step - 1);
            }
            fetch_values(line, maps, &job, job.key_blocks - 1, done + (uint)job.key_blocks - 1);
        }
        done += (uint)job.key_blocks;
    }
    if (issues && draws)
        workspace_end(workspace);
}

static INLINED void inspect(const line_t *line, const pipelined_t *call, __local uchar *memory) {
    uint done = 0, checked = 0;
    for (uint turn = 0;; turn++) {
        const int index = job_take(line, turn);
        if (index >= call->jobs)
            break;
        const job_t job = job_at(call, index);
        for (int step = 0; step < job.key_blocks; step++, done++) {
            const uint stage = stage_of(done);
            barrier_wait(line->v_full + 8 * stage, parity_of(done));
            const bool straddles = job_straddles(&job, step);
            if (straddles && only_finite(memory + (line->v - line->q) + stage * V_BYTES))
                *line->special = 1;
            warp_meet();
            if (straddles)
                warp_arrive(line->v_checked + 8 * stage_of(checked++));
            warp_arrive(line->v_empty + 8 * stage);
        }
    }
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* One tile group's part of a job. */
typedef struct {
    const line_t *line;
    job_t job;
    int group;
    int first_query; /* of the group's rows */
    int last_key;    /* that its first row may see; each row sees one more, up to the last of all */
    uint turn;       /* jobs before this one */
    uint done;       /* blocks of keys before it */
    uint checked;    /* blocks of values so far that were inspected */
} part_t;

static INLINED uint part_queries(const part_t *part) {
    return part->line->q + q_slot_of(part->turn) * Q_BYTES + (uint)part->group * PANEL_BYTES(TILE_M);
}

static INLINED void part_free_queries(const part_t *part) {
    warp_arrive(part->line->q_empty + 8 * q_slot_of(part->turn));
}

static INLINED void take_turn(const part_t *part) {
    if (GROUPS > 1)
        turn_wait(1 + part->group, 2 * TILE_GROUP);
}

static INLINED void pass_turn(int group) {
    if (GROUPS > 1)
        turn_give(1 + (group + 1) % GROUPS, 2 * TILE_GROUP);
}

static INLINED void keys_wait(const part_t *part, int step) {
    const uint count = part->done + (uint)step;
    barrier_wait(part->line->k_full + 8 * stage_of(count), parity_of(count));
}

static INLINED void keys_free(const part_t *part, int step) {
    warp_arrive(part->line->k_empty + 8 * stage_of(part->done + (uint)step));
}

static INLINED void values_arrive(part_t *part, int step) {
    const uint count = part->done + (uint)step;
    if (INSPECTS && job_straddles(&part->job, step)) {
        barrier_wait(part->line->v_checked + 8 * stage_of(part->checked), parity_of(part->checked));
        part->checked++;
    }
    barrier_wait(part->line->v_full + 8 * stage_of(count), parity_of(count));
}

static INLINED void values_free(const part_t *part, int step) {
    warp_arrive(part->line->v_empty + 8 * stage_of(part->done + (uint)step));
}

static INLINED void scores_issue(const part_t *part, acc_t *s, const uint *q, int step) {
    const ulong k = operand_at(part->line->k, 16) + stage_of(part->done + (uint)step) * (K_BYTES / 16);
    products_begin();
    if (Q_HELD)
        scores_product_held(s, q, k);
    else
        scores_product(s, operand_at(part_queries(part), 16), BLOCK_QUERIES, k);
}

static INLINED void values_issue(part_t *part, acc_t *o, const uint *p, int step) {
    values_arrive(part, step);
    products_begin();
    values_product(
        o, p, operand_at(part->line->v, PANEL_BYTES(BLOCK_KEYS)) + stage_of(part->done + (uint)step) * (V_BYTES / 16));
}

/* As band_last(), with margins: what lies far outside is brought near, which changes no answer. */
static INLINED int last_key_of(const pipelined_t *call, int query) {
    const long last = CAUSAL ? query + call->diagonal : call->nk;
    return (int)clamp(last, -(long)TILE_M - 1, (long)call->nk);
}

static INLINED void scores_mask(const part_t *part, const pipelined_t *call, acc_t *s, int step) {
    const int first_key = job_first_key(&part->job, step), first_last = min(part->last_key, call->nk - 1);
    int last[ROW_SLOTS]; /* the last visible column, counted from this work-item's first */
    if (first_key + BLOCK_KEYS - 1 <= first_last)
        return;
#pragma unroll
    for (int r = 0; r < ROW_SLOTS; r++)
        last[r] = min(part->last_key + (CAUSAL ? slot_row(r) : 0), call->nk - 1) - first_key - acc_col(0);
#pragma unroll
    for (int t = 0; t < SCORE_TILES; t++)
        ACC_FOR_EACH (i)
            ACC(s[t], i) = t * TILE_N + i % 2 > last[acc_slot(i)] ? -INFINITY : ACC(s[t], i);
}

/* Blocks that no row of the group sees: passed by, in step with the other groups. */
static INLINED int skip_hidden(part_t *part, const pipelined_t *call) {
    const int last = part->last_key + TILE_M - 1;
    int step = 0;
    for (; step < part->job.key_blocks - 1 && job_first_key(&part->job, step) > last; step++) {
        take_turn(part);
        pass_turn(part->group);
        keys_wait(part, step);
        keys_free(part, step);
        values_arrive(part, step);
        values_free(part, step);
    }
    return step;
}

/* All blocks of keys of a job. */
static INLINED void attend(part_t *part, const pipelined_t *call, float scale, const uint *q, acc_t *o,
                           lazy_state_t *state) {
    acc_t s[SCORE_TILES];
    uint p[2 * SCORE_TILES];
    float factor[ROW_SLOTS];
    const int blocks = part->job.key_blocks;
    int step = CAUSAL && GROUPS > 1 ? skip_hidden(part, call) : 0;
    keys_wait(part, step);
    take_turn(part);
    scores_issue(part, s, q, step);
    pass_turn(part->group);
    scores_wait(s, 0);
    keys_free(part, step);
    scores_mask(part, call, s, step);
    lazy_raise(state, s, scale, factor);
    lazy_exponentiate(state, s, scale);
    operand_pack_all(p, s);
    for (step++; step < blocks; step++) {
        keys_wait(part, step);
        take_turn(part);
        scores_issue(part, s, q, step);
        values_issue(part, o, p, step - 1);
        pass_turn(part->group);
        scores_wait(s, 1);
        keys_free(part, step);
        scores_mask(part, call, s, step);
        const bool grown = lazy_raise(state, s, scale, factor);
        lazy_exponentiate(state, s, scale);
        values_wait(o);
        values_free(part, step - 1);
        if (grown)
            lazy_rescale(o, VALUE_TILES, factor);
        operand_pack_all(p, s);
    }
    if (!Q_HELD)
        part_free_queries(part);
    values_issue(part, o, p, blocks - 1);
    values_wait(o);
    values_free(part, blocks - 1);
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

/* 32 columns of one row at a time where rows are aligned and of 16 bits; else pairs. */
static INLINED void store_row(const acc_t *o, int slot, float factor, __global byte_t *out, long at) {
    int n = 0;
    if (OUT_ALIGNED && OUT_ELEMENT != DTYPE_F32) {
#pragma unroll
        for (n = 0; n + 4 <= VALUE_TILES; n += 4) {
            uint w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = operand_pack(ACC(o[n + i], 2 * slot) * factor, ACC(o[n + i], 2 * slot + 1) * factor);
            const uint4 chunk = row_gather(w[0], w[1], w[2], w[3]);
            if (at >= 0)
                *(__global uint4 *)(out + (at + (n + WG_LANE % 4) * 8) * 2) = chunk;
        }
    }
#pragma unroll
    for (int t = OUT_ALIGNED && OUT_ELEMENT != DTYPE_F32 ? VALUE_TILES / 4 * 4 : 0; t < VALUE_TILES; t++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (at >= 0)
                element_store(out, at + t * TILE_N + acc_col(e), ACC(o[t], 2 * slot + e) * factor, OUT_ELEMENT);
}

static INLINED void store(const part_t *part, const pipelined_t *call, const acc_t *o, const lazy_state_t *state,
                          __global byte_t *out, __global float *lse) {
#pragma unroll
    for (int r = 0; r < ROW_SLOTS; r++) {
        const int query = part->first_query + slot_row(r);
        const bool inside = query < call->nq;
        const long at = view_element(call->o, part->job.batch, part->job.head, query);
        store_row(o, r, state->l[r] == 0.0f ? 1.0f : 1.0f / state->l[r], out, inside ? at : -1);
        if (lse && inside && ROW_LEADER)
            lse[view_element(call->lse, part->job.batch, part->job.head, query)] =
                lazy_lse(state->reference[r], state->l[r]);
    }
}

/* Adds what inspectors took out of V to the elements that may see it. Rare, and after the store, since it is NaN or
 * infinite whatever it is multiplied by. Each warp sees to the 16 rows that it has stored. */
static INLINED void add_special(const part_t *part, const pipelined_t *call, const __global byte_t *v,
                                __global byte_t *out) {
    const long first = part->job.open / BLOCK_KEYS * BLOCK_KEYS;
    warp_meet();
    for (int i = WG_LANE; i < 16 * VALUE_DIM; i += 32) {
        const int query = part->first_query + WG_WARP * 16 + i / VALUE_DIM, col = i % VALUE_DIM;
        const long last = query < call->nq ? band_last(call_band(call), query) : -1;
        float sum = 0.0f;
        for (long key = first; key <= last; key++) {
            const float value =
                element_load(v, view_element(call->v, part->job.batch, part->job.kv_head, key) + col, ELEMENT);
            if ((as_uint(value) & 0x7f800000u) == 0x7f800000u)
                sum += value;
        }
        if (sum != 0.0f) {
            const long at = view_element(call->o, part->job.batch, part->job.head, query) + col;
            element_store(out, at, element_load(out, at, OUT_ELEMENT) + sum, OUT_ELEMENT);
        }
    }
}

static INLINED void consume(const line_t *line, const pipelined_t *call, const __global byte_t *v, __global byte_t *out,
                            __global float *lse) {
    acc_t o[VALUE_TILES];
    uint q[Q_HELD ? HEAD_DIM / 4 : 1];
    lazy_state_t state;
    part_t part;
    part.line = line;
    part.group = (int)get_local_id(0) / TILE_GROUP;
    part.done = part.checked = 0;
    if (part.group == GROUPS - 1)
        pass_turn(part.group);
    for (uint turn = 0;; turn++) {
        const int index = job_take(line, turn);
        if (index >= call->jobs)
            break;
        part.job = job_at(call, index);
        part.first_query = part.job.first_query + part.group * TILE_M;
        part.last_key = last_key_of(call, part.first_query);
#pragma unroll
        for (int n = 0; n < VALUE_TILES; n++)
            ACC_FOR_EACH (i)
                ACC(o[n], i) = 0.0f;
        lazy_begin(&state);
        part.turn = turn;
        barrier_wait(line->q_full + 8 * q_slot_of(turn), q_parity_of(turn));
        if (Q_HELD) {
            operand_load(q, part_queries(&part), BLOCK_QUERIES);
            warp_meet();
            part_free_queries(&part);
        }
        attend(&part, call, call->scale, q, o, &state);
        rows_all_sum(state.l, 0);
        store(&part, call, o, &state, out, lse);
        if (INSPECTS && rows_any(*line->special != 0))
            add_special(&part, call, v, out);
        part.done += (uint)part.job.key_blocks;
    }
    if (part.group == 0)
        take_turn(&part); /* the turn that the last group gave at the end */
}

__kernel __attribute__((reqd_work_group_size(PIPELINE_ITEMS, 1, 1))) void
attention_forward_pipelined(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                            __global byte_t *o, __global float *lse, __global byte_t *workspace, long offset,
                            pipelined_t call) {
    __local uchar memory[PIPELINE_BYTES] __attribute__((aligned(1024)));
    const line_t line = line_at(memory);
    line_open(&line);
    if ((int)get_local_id(0) >= GROUPS * TILE_GROUP) {
        registers_give(GIVE_REGISTERS);
        if ((int)get_local_id(0) < GROUPS * TILE_GROUP + 32) {
            volatile __global uint *shared = workspace_at(workspace, offset);
            produce(&line, &call, shared, make_maps(shared, memory, q, k, v, &call));
        } else if (INSPECTS)
            inspect(&line, &call, memory);
    } else {
        registers_take(TAKE_REGISTERS);
        consume(&line, &call, v, o, lse);
    }
}
