/* Which rows a rank holds, and that the tasks of all ranks cover what queries see of keys, each pair once. */
#include "ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 5, MOST_LENGTH = 41 };

static void every_row_has_one_owner(void **state) {
    (void)state;
    for (int split = CLATTN_RING_CONTIGUOUS; split <= CLATTN_RING_ZIGZAG; split++)
        for (int32_t ranks = 1; ranks <= MOST_RANKS; ranks++)
            for (int64_t length = 0; length <= MOST_LENGTH; length++) {
                int owners[MOST_LENGTH] = {0};
                int64_t total = 0;
                for (int32_t r = 0; r < ranks; r++) {
                    clattn_ring_shard shard;
                    assert_int_equal(clattn_ring_shard_of((clattn_ring_split)split, length, r, ranks, &shard), 0);
                    total += clattn_ring_shard_rows(&shard);
                    for (int i = 0; i < RING_PIECES; i++)
                        for (int64_t j = 0; j < shard.pieces[i].rows; j++)
                            owners[shard.pieces[i].first + j]++;
                }
                assert_int_equal(total, length);
                for (int64_t i = 0; i < length; i++)
                    assert_int_equal(owners[i], 1);
            }
}

static void zigzag_gives_chunks_r_and_2R_minus_1_minus_r(void **state) {
    (void)state;
    clattn_ring_shard shard;
    assert_int_equal(clattn_ring_shard_of(CLATTN_RING_ZIGZAG, 80, 1, 4, &shard), CLATTN_SUCCESS);
    assert_int_equal(shard.pieces[0].first, 10);
    assert_int_equal(shard.pieces[0].rows, 10);
    assert_int_equal(shard.pieces[1].first, 60);
    assert_int_equal(shard.pieces[1].rows, 10);
}

/* ---- tasks ---- */

static bool sees(const struct ring_limits *limits, int64_t query, int64_t key) {
    const int64_t at = query + limits->diagonal;
    if (!limits->limited)
        return true;
    return (!limits->causal || key <= at) && (limits->right < 0 || key <= at + limits->right) &&
           (limits->left < 0 || key >= at - limits->left);
}

static int64_t row_of(const clattn_ring_shard *shard, int64_t local) {
    const clattn_ring_piece *a = &shard->pieces[0], *b = &shard->pieces[1];
    return local < a->rows ? a->first + local : b->first + local - a->rows;
}

/* How often tasks have a pair, counted in local rows. */
static int times(const struct ring_task *tasks, int count, const struct ring_limits *limits, int64_t i, int64_t j) {
    int n = 0;
    for (int t = 0; t < count; t++) {
        const struct ring_task *task = &tasks[t];
        const int64_t q = i - task->q_first, k = j - task->k_first;
        struct ring_limits local = *limits;
        local.limited = task->limited;
        local.diagonal = task->diagonal;
        if (q >= 0 && q < task->q_rows && k >= 0 && k < task->k_rows && sees(&local, q, k))
            n++;
    }
    return n;
}

static void check_pair(const clattn_ring_shard *queries, const clattn_ring_shard *keys,
                       const struct ring_limits *limits) {
    struct ring_task tasks[RING_MOST_TASKS];
    const int count = ring_tasks(queries, keys, limits, tasks);
    bool any = false;
    for (int64_t i = 0; i < clattn_ring_shard_rows(queries); i++)
        for (int64_t j = 0; j < clattn_ring_shard_rows(keys); j++) {
            const bool seen = sees(limits, row_of(queries, i), row_of(keys, j));
            any = any || seen;
            assert_int_equal(times(tasks, count, limits, i, j), seen);
        }
    assert_true(any == (count > 0));
}

static const struct ring_limits limits_table[] = {
    {.left = -1, .right = -1},
    {.limited = true, .causal = true, .left = -1, .right = -1},
    {.limited = true, .causal = true, .diagonal = 7, .left = -1, .right = -1},
    {.limited = true, .causal = true, .diagonal = -5, .left = 6, .right = -1},
    {.limited = true, .left = 4, .right = 3},
    {.limited = true, .left = 0, .right = -1},
    {.limited = true, .left = -1, .right = -1, .positions_matter = true},
};

static void every_visible_pair_is_in_one_task(void **state) {
    (void)state;
    for (size_t l = 0; l < sizeof limits_table / sizeof *limits_table; l++)
        for (int split = CLATTN_RING_CONTIGUOUS; split <= CLATTN_RING_ZIGZAG; split++)
            for (int32_t ranks = 1; ranks <= 4; ranks++)
                for (int64_t length = 1; length <= 26; length += 5)
                    for (int32_t q = 0; q < ranks; q++)
                        for (int32_t k = 0; k < ranks; k++) {
                            clattn_ring_shard queries, keys;
                            clattn_ring_shard_of((clattn_ring_split)split, length, q, ranks, &queries);
                            clattn_ring_shard_of((clattn_ring_split)split, length + 3, k, ranks, &keys);
                            check_pair(&queries, &keys, &limits_table[l]);
                        }
}

/* Pieces in any order and place, as callers may make them. */
static void shards_of_any_make_are_covered_too(void **state) {
    (void)state;
    srand(5);
    for (int n = 0; n < 500; n++) {
        clattn_ring_shard shards[2];
        for (int i = 0; i < 2; i++)
            for (int p = 0; p < RING_PIECES; p++)
                shards[i].pieces[p] = (clattn_ring_piece){.first = p * 20 + rand() % 10, .rows = rand() % 10};
        if (n % 3 == 0) {
            const clattn_ring_piece piece = shards[1].pieces[0];
            shards[1].pieces[0] = shards[1].pieces[1];
            shards[1].pieces[1] = piece;
        }
        check_pair(&shards[0], &shards[1], &limits_table[(size_t)n % (sizeof limits_table / sizeof *limits_table)]);
    }
}

/* Under a causal limit every rank has as many pairs, up to the diagonal, and half of the blocks take one task each. */
static void zigzag_balances_causal_work(void **state) {
    (void)state;
    const struct ring_limits causal = {.limited = true, .causal = true, .left = -1, .right = -1};
    const int32_t ranks = 4;
    const int64_t length = 800;
    int64_t least = INT64_MAX, most = 0;
    for (int32_t q = 0; q < ranks; q++) {
        int64_t pairs = 0;
        for (int32_t k = 0; k < ranks; k++) {
            struct ring_task tasks[RING_MOST_TASKS];
            clattn_ring_shard queries, keys;
            clattn_ring_shard_of(CLATTN_RING_ZIGZAG, length, q, ranks, &queries);
            clattn_ring_shard_of(CLATTN_RING_ZIGZAG, length, k, ranks, &keys);
            const int count = ring_tasks(&queries, &keys, &causal, tasks);
            assert_int_equal(count, q == k ? (q == ranks - 1 ? 1 : 3) : 1);
            for (int t = 0; t < count; t++)
                pairs += tasks[t].q_rows * tasks[t].k_rows / (tasks[t].limited ? 2 : 1);
        }
        least = pairs < least ? pairs : least;
        most = pairs > most ? pairs : most;
    }
    assert_true(most - least <= length);
}

/* ---- arguments ---- */

static void bad_arguments_are_named(void **state) {
    (void)state;
    clattn_ring_shard shard;
    assert_int_equal(clattn_ring_shard_of(CLATTN_RING_ZIGZAG, 8, 0, 2, NULL), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_ring_shard_of(CLATTN_RING_ZIGZAG, 8, 0, 0, &shard), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "ranks = 0"));
    assert_int_equal(clattn_ring_shard_of(CLATTN_RING_ZIGZAG, 8, 2, 2, &shard), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "rank = 2"));
    assert_int_equal(clattn_ring_shard_of(CLATTN_RING_ZIGZAG, -3, 0, 2, &shard), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "length = -3"));
    assert_int_equal(clattn_ring_shard_of((clattn_ring_split)9, 8, 0, 2, &shard), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "split: 9"));
    assert_int_equal(clattn_ring_shard_rows(NULL), 0);
}

static void rows_with_two_owners_are_refused(void **state) {
    (void)state;
    clattn_ring_shard shards[2] = {{{{0, 8}, {20, 4}}}, {{{8, 12}, {23, 1}}}};
    assert_int_equal(ring_check_shards(shards, 2), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "row 23 has two owners, 0 and 1"));
    shards[1].pieces[1].first = 24;
    assert_int_equal(ring_check_shards(shards, 2), CLATTN_SUCCESS);
    shards[1].pieces[1].rows = -1;
    assert_int_equal(ring_check_shards(shards, 2), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "pieces[1].rows = -1"));
    shards[1].pieces[1] = (clattn_ring_piece){INT64_MAX, 1};
    assert_int_equal(ring_check_shards(shards, 2), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(ring_check_shards(NULL, 2), CLATTN_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_one_owner),
        cmocka_unit_test(zigzag_gives_chunks_r_and_2R_minus_1_minus_r),
        cmocka_unit_test(every_visible_pair_is_in_one_task),
        cmocka_unit_test(shards_of_any_make_are_covered_too),
        cmocka_unit_test(zigzag_balances_causal_work),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(rows_with_two_owners_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
