/* Attention forward as a pipeline (after FlashAttention-3, arXiv:2407.08608): one warp fetches blocks of queries, keys
 * and values, tile groups compute. While a group's matrix products of one block run, it takes the softmax of the block
 * before, and groups take turns at issuing products, so that one multiplies while another takes exponentials.
 * Parameters: pipeline.clh. */
#include "pipeline.clh"

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

/* Block number `count` of all that this work-group has fetched. In pages it takes the whole warp, else one lane. */
static INLINED void fetch_block(uint places, int bytes, barrier_t full, barrier_t empty, const __global uint *map,
                                int columns, const task_t *task, const job_t *job, int step, uint count) {
    const uint stage = stage_of(count), to = places + stage * (uint)bytes;
    barrier_wait(empty + 8 * stage, parity_of(count) ^ 1);
    if (PAGED)
        fetch_pieces(to, full + 8 * stage, map, columns, job, job_first_key(job, step), task);
    else
        fetch(to, full + 8 * stage, map, BLOCK_KEYS, columns, job->sequence.k_row + job_first_key(job, step),
              job->kv_head, job->sequence.k_batch);
}

static INLINED void fetch_keys(const line_t *line, const __global uint *maps, const task_t *task, const job_t *job,
                               int step, uint count) {
    fetch_block(line->k, K_BYTES, line->k_full, line->k_empty, maps + MAP_K * MAP_WORDS, HEAD_DIM, task, job, step,
                count);
}

static INLINED void fetch_values(const line_t *line, const __global uint *maps, const task_t *task, const job_t *job,
                                 int step, uint count) {
    fetch_block(line->v, V_BYTES, line->v_full, line->v_empty, maps + MAP_V * MAP_WORDS, VALUE_DIM, task, job, step,
                count);
}

static INLINED void fetch_queries(const line_t *line, const __global uint *maps, const job_t *job, uint turn) {
    const uint slot = q_slot_of(turn);
    barrier_wait(line->q_empty + 8 * slot, q_parity_of(turn) ^ 1);
    fetch(line->q + slot * Q_BYTES, line->q_full + 8 * slot, maps + MAP_Q * MAP_WORDS, BLOCK_QUERIES, HEAD_DIM,
          job->sequence.q_row + job->first_query, job->head, job->sequence.q_batch);
}

/* Values follow one block behind the keys, as they are used. Returns the count after the job's last block. */
static INLINED uint fetch_job(const line_t *line, const __global uint *maps, const task_t *task, const job_t *job,
                              uint turn, uint count) {
    int step = job_step(job, 0);
    fetch_keys(line, maps, task, job, step, count);
    if (get_local_id(0) % 32 == 0)
        fetch_queries(line, maps, job, turn);
    for (int next; (next = job_step(job, step + 1)) < job->key_blocks; step = next, count++) {
        fetch_keys(line, maps, task, job, next, count + 1);
        fetch_values(line, maps, task, job, step, count);
    }
    fetch_values(line, maps, task, job, step, count);
    return count + 1;
}

/* By one warp. */
static INLINED void produce(const line_t *line, const task_t *task, volatile __global uint *workspace,
                            const __global uint *maps) {
    const int jobs = task->pipeline->jobs;
    const bool first = get_local_id(0) % 32 == 0, draws = jobs > (int)get_num_groups(0);
    uint done = 0;
    if (first && draws && get_group_id(0) == 0)
        workspace_begin(workspace, task->pipeline->mark);
    for (uint turn = 0;; turn++) {
        job_t job;
        if (job_draw(line, task, workspace, turn, &job) >= jobs)
            break;
        if (first || PAGED)
            done = fetch_job(line, maps, task, &job, turn, done);
    }
    if (first && draws)
        workspace_end(workspace);
}

static INLINED void inspect(const line_t *line, const task_t *task, __local uchar *memory) {
    uint done = 0, checked = 0;
    for (uint turn = 0;; turn++) {
        job_t job;
        if (job_take(line, turn, &job) >= task->pipeline->jobs)
            break;
        for (int step = job_step(&job, 0); step < job.key_blocks; step = job_step(&job, step + 1), done++) {
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
    bias_t bias;
    bool biases_adjoin;
    plane_t mask;
    long distance; /* of key 0 from its first query, the band's offset included */
    uint turn;     /* jobs before this one */
    uint done;     /* blocks of keys before the one that is next */
    uint checked;  /* blocks of values so far that were inspected */
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

/* Blocks go by their count in the work-group's life: count says where, step says which keys. */
static INLINED void keys_wait(const part_t *part, uint count) {
    barrier_wait(part->line->k_full + 8 * stage_of(count), parity_of(count));
}

static INLINED void keys_free(const part_t *part, uint count) {
    warp_arrive(part->line->k_empty + 8 * stage_of(count));
}

static INLINED void values_arrive(part_t *part, int step, uint count) {
    if (INSPECTS && job_straddles(&part->job, step)) {
        barrier_wait(part->line->v_checked + 8 * stage_of(part->checked), parity_of(part->checked));
        part->checked++;
    }
    barrier_wait(part->line->v_full + 8 * stage_of(count), parity_of(count));
}

static INLINED void values_free(const part_t *part, uint count) {
    warp_arrive(part->line->v_empty + 8 * stage_of(count));
}

static INLINED void scores_issue(const part_t *part, acc_t *s, const uint *q, uint count) {
    const ulong k = operand_at(part->line->k, 16) + stage_of(count) * (K_BYTES / 16);
    products_begin();
    if (Q_HELD)
        scores_product_held(s, q, k);
    else
        scores_product(s, operand_at(part_queries(part), 16), BLOCK_QUERIES, k);
}

static INLINED void values_issue(part_t *part, acc_t *o, const uint *p, int step, uint count) {
    values_arrive(part, step, count);
    products_begin();
    values_product(o, p, operand_at(part->line->v, PANEL_BYTES(BLOCK_KEYS)) + stage_of(count) * (V_BYTES / 16));
}

/* Do biases come in pairs? */
static INLINED bool biases_come(const part_t *part, int step) {
    return PAIRS_NARROW && part->biases_adjoin && job_first_key(&part->job, step) + BLOCK_KEYS <= part->job.sequence.nk;
}

/* Into registers, while the scores are made. */
static INLINED void biases_fetch(const part_t *part, uint *biases, int step) {
    if (!BIASES_STAGED && biases_come(part, step))
        pairs_fetch(biases, part->bias.plane, part->first_query, job_first_key(&part->job, step),
                    part->job.sequence.nq);
}

static INLINED __local uchar *biases_place(const part_t *part) {
    return part->line->biases + part->group * (TILE_M * BLOCK_KEYS * 2);
}

/* Into local memory, when scores have left their registers free. Steps beyond the last have none. */
static INLINED void biases_stage(const part_t *part, int step) {
#if BIASES_STAGED
    if (step < part->job.key_blocks)
        pairs_stage(biases_place(part), part->bias.plane, part->first_query, job_first_key(&part->job, step),
                    part->job.sequence.nq, part->job.sequence.nk);
#endif
}

static INLINED void biases_arrive(void) {
#if BIASES_STAGED
    pairs_arrive();
#endif
}

static INLINED void scores_bend(const part_t *part, acc_t *s, const uint *biases, int step) {
    const int first_key = job_first_key(&part->job, step);
    const bool come = BIASES_STAGED || biases_come(part, step), scaled = BIAS && !SOFTCAP && !ALIBI && come;
    if (!scaled)
        pairs_curve(s, part->bias, (float)(part->distance + first_key));
    if (come) {
        biases_arrive();
        pairs_add(s, biases, biases_place(part), scaled ? part->bias.scale : 1.0f);
    } else if (BIAS) {
        pairs_add_singly(s, part->bias, part->first_query, first_key, part->job.sequence.nq, part->job.sequence.nk);
    }
}

/* What happens to scores between product and softmax. Both ends of a band are rarely in one block. */
static INLINED void scores_change(const part_t *part, acc_t *s, const uint *biases, int step) {
    const job_t *job = &part->job;
    const int first_key = job_first_key(job, step), last_row = TILE_M - 1;
    int column[ROW_SLOTS]; /* the first or last visible one, counted from this work-item's first */
    if (CHANGES_SCORES)
        scores_bend(part, s, biases, step);
    if (first_key + BLOCK_KEYS - 1 > band_last(job->band, part->first_query)) {
#pragma unroll
        for (int r = 0; r < ROW_SLOTS; r++)
            column[r] = band_last(job->band, part->first_query + slot_row(r)) - first_key - acc_col(0);
#pragma unroll
        for (int t = 0; t < SCORE_TILES; t++)
            ACC_FOR_EACH (i)
                ACC(s[t], i) = t * TILE_N + i % 2 > column[acc_slot(i)] ? -INFINITY : ACC(s[t], i);
    }
    if (BAND && first_key < band_first(job->band, part->first_query + last_row)) {
#pragma unroll
        for (int r = 0; r < ROW_SLOTS; r++)
            column[r] = band_first(job->band, part->first_query + slot_row(r)) - first_key - acc_col(0);
#pragma unroll
        for (int t = 0; t < SCORE_TILES; t++)
            ACC_FOR_EACH (i)
                ACC(s[t], i) = t * TILE_N + i % 2 < column[acc_slot(i)] ? -INFINITY : ACC(s[t], i);
    }
    if (MASK && job_mask_state(job, step) != MASK_OPEN)
        mask_block(s, job->band, part->mask, part->first_query, first_key, job->sequence.nq);
}

/* Blocks that no row of the group sees: passed by, in step with the other groups. */
static INLINED int skip_hidden(part_t *part, int step) {
    const int last = band_last(part->job.band, part->first_query + TILE_M - 1);
    while (step < part->job.key_blocks - 1 && job_first_key(&part->job, step) > last) {
        take_turn(part);
        pass_turn(part->group);
        keys_wait(part, part->done);
        keys_free(part, part->done);
        values_arrive(part, step, part->done);
        values_free(part, part->done);
        part->done++;
        step = job_step(&part->job, step + 1);
    }
    return step;
}

/* All blocks of keys of a job. */
static INLINED void attend(part_t *part, float scale, const uint *q, acc_t *o, lazy_state_t *state) {
    acc_t s[SCORE_TILES];
    uint p[2 * SCORE_TILES], biases[PAIRS_WORDS];
    float factor[ROW_SLOTS];
    int step = job_step(&part->job, 0);
    if (BAND && GROUPS > 1)
        step = skip_hidden(part, step);
    uint count = part->done;
    biases_stage(part, step);
    keys_wait(part, count);
    take_turn(part);
    scores_issue(part, s, q, count);
    pass_turn(part->group);
    biases_fetch(part, biases, step);
    scores_wait(s, 0);
    keys_free(part, count);
    scores_change(part, s, biases, step);
    lazy_raise(state, s, scale, factor);
    lazy_exponentiate(state, s, scale);
    operand_pack_all(p, s);
    biases_stage(part, job_step(&part->job, step + 1));
    for (int next; (next = job_step(&part->job, step + 1)) < part->job.key_blocks; step = next, count++) {
        keys_wait(part, count + 1);
        take_turn(part);
        scores_issue(part, s, q, count + 1);
        values_issue(part, o, p, step, count);
        pass_turn(part->group);
        biases_fetch(part, biases, next);
        scores_wait(s, 1);
        keys_free(part, count + 1);
        scores_change(part, s, biases, next);
        const bool grown = lazy_raise(state, s, scale, factor);
        lazy_exponentiate(state, s, scale);
        values_wait(o);
        values_free(part, count);
        if (grown)
            lazy_rescale(o, VALUE_TILES, factor);
        operand_pack_all(p, s);
        biases_stage(part, job_step(&part->job, next + 1));
    }
    if (!Q_HELD)
        part_free_queries(part);
    values_issue(part, o, p, step, count);
    values_wait(o);
    values_free(part, count);
    part->done = count + 1;
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

/* 32 columns of one row at a time where rows are aligned and of 16 bits; else pairs. */
static INLINED void store_row(const acc_t *o, int slot, float factor, __global byte_t *out, long at, bool blank) {
    int n = 0;
    if (OUT_ALIGNED && OUT_ELEMENT != DTYPE_F32) {
#pragma unroll
        for (n = 0; n + 4 <= VALUE_TILES; n += 4) {
            uint w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = blank ? 0 : operand_pack(ACC(o[n + i], 2 * slot) * factor, ACC(o[n + i], 2 * slot + 1) * factor);
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
                element_store(out, at + t * TILE_N + acc_col(e), blank ? 0.0f : ACC(o[t], 2 * slot + e) * factor,
                              OUT_ELEMENT);
}

/* Rows that are no queries get zeros; those beyond the sequence belong to others. */
static INLINED void store(const part_t *part, const attention_t *call, const acc_t *o, const lazy_state_t *state,
                          __global byte_t *out, __global float *lse) {
    const sequence_t *sequence = &part->job.sequence;
#pragma unroll
    for (int r = 0; r < ROW_SLOTS; r++) {
        const int query = part->first_query + slot_row(r), row = sequence->q_row + query;
        const bool inside = query < sequence->rows, blank = SEQUENCES && query >= sequence->nq;
        const long at = view_element(call->o, sequence->q_batch, part->job.head, row);
        store_row(o, r, state->l[r] == 0.0f ? 1.0f : 1.0f / state->l[r], out, inside ? at : -1, blank);
        if (lse && inside && ROW_LEADER)
            lse[view_element(call->lse, sequence->q_batch, part->job.head, row)] =
                blank ? -INFINITY : lazy_lse(state->reference[r], state->l[r]);
    }
}

/* The sum of NaN and infinity in column `col` of V, among those keys that were inspected and that the query sees. Not
 * special_of() of sight.clh: with a call in it a kernel would have its matrix products one after the other. */
static INLINED float inspected_special(const part_t *part, matrix_t values, int query, int col) {
    const job_t *job = &part->job;
    const int first = band_first(job->band, query), last = band_last(job->band, query);
    float sum = 0.0f;
    for (int step = job_step(job, 0); step < job->key_blocks; step = job_step(job, step + 1)) {
        const int first_key = job_first_key(job, step);
        if (!job_straddles(job, step))
            continue;
        for (int key = max(first_key, first); key <= min(first_key + BLOCK_KEYS - 1, last); key++) {
            const long row = matrix_row(values, key);
            const float value = row < 0 ? 0.0f : element_load(values.base, row + col, ELEMENT);
            if ((as_uint(value) & 0x7f800000u) == 0x7f800000u && mask_shows(part->mask, query, key) &&
                bias_shows(part->bias.plane, query, key))
                sum += value;
        }
    }
    return sum;
}

/* Adds what inspectors took out of V to the elements that may see it. Rare, and after the store, since it is NaN or
 * infinite whatever it is multiplied by. Each warp sees to the 16 rows that it has stored. */
static INLINED void add_special(const part_t *part, const task_t *task, const __global byte_t *v,
                                __global byte_t *out) {
    const attention_t *call = task->call;
    const sequence_t *sequence = &part->job.sequence;
    const matrix_t values = sequence_keys(sequence, task->modifiers, call, v, call->v, part->job.kv_head);
    const matrix_t rows = sequence_queries(sequence, out, call->o, part->job.head);
    warp_meet();
    for (int i = WG_LANE; i < 16 * VALUE_DIM; i += 32) {
        const int query = part->first_query + WG_WARP * 16 + i / VALUE_DIM, col = i % VALUE_DIM;
        const float sum = query < sequence->nq ? inspected_special(part, values, query, col) : 0.0f;
        if (sum != 0.0f) {
            const long at = matrix_row(rows, query) + col;
            element_store(out, at, element_load(out, at, OUT_ELEMENT) + sum, OUT_ELEMENT);
        }
    }
}

/* What of the call's modifiers is the group's own, for a job that has just been taken. */
static INLINED float part_set_modifiers(part_t *part, const task_t *task) {
    const attention_t *call = task->call;
    const modifiers_t *modifiers = task->modifiers;
    const job_t *job = &part->job;
    part->bias = bias_of(modifiers, call, job->batch, job->head);
    part->biases_adjoin = pairs_adjoin(part->bias.plane);
    part->mask = mask_of(modifiers, call, job->batch, job->head);
    part->distance = -sequence_off(&job->sequence, call) - part->first_query;
    return SINKS ? modifiers->sinks[call->sinks + job->head] : -INFINITY;
}

static INLINED void consume(const line_t *line, const task_t *task, const __global byte_t *v, __global byte_t *out,
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
        if (job_take(line, turn, &part.job) >= task->pipeline->jobs)
            break;
        part.first_query = part.job.first_query + part.group * TILE_M;
        const float sink = part_set_modifiers(&part, task);
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
        attend(&part, task->pipeline->scale, q, o, &state);
        rows_all_sum(state.l, 0);
        lazy_stop(&state, task->pipeline->scale);
        if (SINKS)
            lazy_end(&state, o, VALUE_TILES, sink);
        store(&part, task->call, o, &state, out, lse);
        if (INSPECTS && rows_any(*line->special != 0))
            add_special(&part, task, v, out);
    }
    if (part.group == 0)
        take_turn(&part); /* the turn that the last group gave at the end */
}

__kernel __attribute__((reqd_work_group_size(PIPELINE_ITEMS, 1, 1))) void
attention_forward_pipelined(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                            __global byte_t *o, __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                            __global byte_t *workspace, long offset, pipelined_t pipeline) {
    STAGE_MEMORY(memory, PIPELINE_BYTES);
    const line_t line = line_at(memory);
    MODIFIERS(modifiers);
    task_t task;
    task.call = &call, task.modifiers = &modifiers, task.pipeline = &pipeline;
    line_open(&line);
    if ((int)get_local_id(0) >= GROUPS * TILE_GROUP) {
        registers_give(GIVE_REGISTERS);
        if ((int)get_local_id(0) < GROUPS * TILE_GROUP + 32) {
            volatile __global uint *shared = workspace_at(workspace, offset);
            produce(&line, &task, shared, make_maps(shared, memory, q, k, v, &task));
        } else if (INSPECTS) {
            inspect(&line, &task, memory);
        }
    } else {
        registers_take(TAKE_REGISTERS);
        consume(&line, &task, v, o, lse);
    }
}
