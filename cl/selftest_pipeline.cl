/* Self-test of what attention's pipeline is made of: maps, copies, barriers, the products of a tile group, registers
 * that change hands. One work-group. Input, output and judgement are those of selftest_tile.cl, with 64 columns and
 * steps; maps are kept behind the output. */
#include "pipeline.clh"

#define SIZE 64
#define ROWS BLOCK_QUERIES
#define MET_AT (2 * ROWS * SIZE + 2 * ROWS)

static INLINED view_t matrix_view(int first_row) {
    view_t view;
    view.offset = first_row * SIZE, view.outer = view.inner = ROWS * SIZE, view.row = SIZE;
    return view;
}

static INLINED void copy_all(const line_t *line, const __global uint *maps) {
    fetch(line->q, line->q_full, maps + MAP_Q * MAP_WORDS, ROWS, SIZE, 0, 0, 0);
    fetch(line->k, line->k_full, maps + MAP_K * MAP_WORDS, SIZE, SIZE, 0, 0, 0);
    fetch(line->v, line->v_full, maps + MAP_V * MAP_WORDS, SIZE, SIZE, 0, 0, 0);
}

/* Of the calling group, whose first row is `row`. */
static INLINED void put_sums(const acc_t *acc, __global float *out, int row) {
#pragma unroll
    for (int n = 0; n < SIZE / TILE_N; n++)
        ACC_FOR_EACH (i)
            out[(row + acc_row(i)) * SIZE + n * TILE_N + acc_col(i)] = ACC(acc[n], i);
}

static INLINED void put_rows(const acc_t *s, __global float *top_out, __global float *sum_out, int row) {
    float top[ROW_SLOTS], sum[ROW_SLOTS] = {0.0f, 0.0f};
    lazy_top(s, top);
#pragma unroll
    for (int n = 0; n < SIZE / TILE_N; n++)
        ACC_FOR_EACH (i)
            sum[acc_slot(i)] += ACC(s[n], i);
    rows_all_sum(sum, 0);
    for (int r = 0; r < ROW_SLOTS; r++)
        if (ROW_LEADER) {
            top_out[row + slot_row(r)] = top[r];
            sum_out[row + slot_row(r)] = sum[r];
        }
}

/* Scores twice, with queries in local memory and in registers. */
static INLINED void compute(const line_t *line, __global float *out) {
    acc_t s[SCORE_TILES], held[SCORE_TILES], r[VALUE_TILES];
    uint q[HEAD_DIM / 4], p[2 * SCORE_TILES];
    const int row = (int)get_local_id(0) / TILE_GROUP * TILE_M;
    const uint q_at = line->q + PANEL_BYTES(row);
    barrier_wait(line->q_full, 0);
    barrier_wait(line->k_full, 0);
    operand_load(q, q_at, ROWS);
    products_begin();
    scores_product(s, operand_at(q_at, 16), ROWS, operand_at(line->k, 16));
    scores_wait(s, 0);
    products_begin();
    scores_product_held(held, q, operand_at(line->k, 16));
    scores_wait(held, 0);
    operand_pack_all(p, s);
#pragma unroll
    for (int n = 0; n < VALUE_TILES; n++)
        ACC_FOR_EACH (i)
            ACC(r[n], i) = 0.0f;
    barrier_wait(line->v_checked, 0);
    products_begin();
    values_product(r, p, operand_at(line->v, PANEL_BYTES(SIZE)));
    values_wait(r);
    put_sums(held, out, row);
    put_sums(r, out + ROWS * SIZE, row);
    put_rows(s, out + 2 * ROWS * SIZE, out + 2 * ROWS * SIZE + ROWS, row);
}

static INLINED void inspect(const line_t *line, __local uchar *memory, volatile __global int *met) {
    barrier_wait(line->v_full, 0);
    if (only_finite(memory + (line->v - line->q)))
        atomic_inc(met);
    warp_meet();
    warp_arrive(line->v_checked);
}

__kernel __attribute__((reqd_work_group_size(PIPELINE_ITEMS, 1, 1))) void
selftest_pipeline(const __global byte_t *in, __global byte_t *out_bytes) {
    STAGE_MEMORY(memory, PIPELINE_BYTES);
    __global float *out = (__global float *)out_bytes;
    attention_t call;
    modifiers_t modifiers;
    task_t task;
    task.call = &call, task.modifiers = &modifiers;
    call.q = matrix_view(0), call.k = matrix_view(ROWS), call.v = matrix_view(ROWS + SIZE);
    call.q_rows = ROWS, call.k_rows = SIZE, call.batches = call.heads = call.heads_per_kv = 1;
    const line_t line = line_at(memory);
    line_open(&line);
    if ((int)get_local_id(0) >= GROUPS * TILE_GROUP) {
        registers_give(GIVE_REGISTERS);
        if ((int)get_local_id(0) < GROUPS * TILE_GROUP + 32) {
            const __global uint *maps = make_maps(workspace_at(out_bytes, (MET_AT + 1) * 4), memory, in, in, in, &task);
            if (get_local_id(0) % 32 == 0)
                copy_all(&line, maps);
        } else {
            inspect(&line, memory, (volatile __global int *)(out + MET_AT));
        }
    } else {
        registers_take(TAKE_REGISTERS);
        compute(&line, out);
    }
}
