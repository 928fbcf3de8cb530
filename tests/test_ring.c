/* Attention over 1 to 4 ranks of one process equals attention on one device: causal and not, balanced and not,
 * shards of unequal and of no rows, modifiers. What no query sees holds NaN. */
#include "ring_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void check_shape(const struct attention_case *shape, clattn_dtype dtype, clattn_ring_split split,
                        int32_t ranks) {
    struct ring_problem problem = ring_problem_of(shape, dtype, split, ranks);
    ring_check(&problem);
    problem.passes = true;
    if (dtype == CLATTN_F32 && ranks > 1)
        ring_check(&problem);
    ring_problem_free(&problem);
}

static void every_query_sees_the_keys_of_all_ranks(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("full", 2, 45, 61, CLATTN_CAUSAL_NONE);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++)
        for (int d = 0; d < 3; d++)
            check_shape(&shape, all_dtypes[d], CLATTN_RING_CONTIGUOUS, ranks);
}

/* More keys than queries: the last ones hold NaN, and no rank has a query that sees them. */
static void causal_limits_count_in_the_whole_sequence(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("causal", 1, 203, 219, CLATTN_CAUSAL_TOP_LEFT);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++)
        for (int d = 0; d < 3; d++)
            check_shape(&shape, all_dtypes[d], ranks % 2 == 0 ? CLATTN_RING_ZIGZAG : CLATTN_RING_CONTIGUOUS, ranks);
    check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, 3);
}

/* Shards that a caller made: of unequal sizes, in any order, one of none, queries and keys spread otherwise. */
static void shards_may_be_unequal_and_empty(void **state) {
    (void)state;
    static const clattn_ring_shard queries[4] = {{{{40, 30}, {0, 3}}}, {{{3, 1}, {0, 0}}}, {{{4, 36}}}, {{{70, 0}}}};
    static const clattn_ring_shard keys[4] = {{{{9, 55}}}, {{{0, 0}}}, {{{64, 6}, {0, 9}}}, {{{70, 0}}}};
    const clattn_causal causal[] = {CLATTN_CAUSAL_NONE, CLATTN_CAUSAL_TOP_LEFT};
    for (int c = 0; c < 2; c++) {
        const struct attention_case shape = attention_shape("unequal", 1, 70, 70, causal[c]);
        struct ring_problem problem = ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, RING_MOST_RANKS);
        memcpy(problem.q_shards, queries, sizeof queries);
        memcpy(problem.k_shards, keys, sizeof keys);
        ring_check(&problem);
        problem.passes = true;
        ring_check(&problem);
        ring_problem_free(&problem);
    }
}

/* Fewer rows than ranks have chunks. */
static void sequences_may_be_shorter_than_there_are_ranks(void **state) {
    (void)state;
    for (int64_t length = 1; length <= 5; length += 2) {
        const struct attention_case shape = attention_shape("short", 1, length, length, CLATTN_CAUSAL_TOP_LEFT);
        check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, RING_MOST_RANKS);
    }
}

static const double sinks[4] = {0.5, -1, 3, 0};
static const double slopes[4] = {0.5, 0.25, 0.0625, 1};

static void modifiers_count_in_the_whole_sequence(void **state) {
    (void)state;
    struct attention_case shape = attention_shape("window, sinks, softcap", 1, 130, 130, CLATTN_CAUSAL_TOP_LEFT);
    shape.with = (struct case_modifiers){
        .has_window = true, .window_left = 20, .window_right = -1, .sinks = sinks, .softcap = 3};
    check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, 3);
    shape = attention_shape("alibi, diagonal", 1, 100, 140, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.has_diagonal = 1;
    shape.diagonal = 40;
    shape.with = (struct case_modifiers){.alibi = slopes};
    check_shape(&shape, CLATTN_F16, CLATTN_RING_CONTIGUOUS, 2);
}

/* Queries before all keys: rows that see nothing give 0 and -inf, or their sink. */
static void rows_that_see_no_key_are_empty(void **state) {
    (void)state;
    struct attention_case shape = attention_shape("empty rows", 1, 40, 40, CLATTN_CAUSAL_TOP_LEFT);
    shape.has_diagonal = 1;
    shape.diagonal = -25;
    check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, 2);
    shape.with = (struct case_modifiers){.sinks = sinks};
    check_shape(&shape, CLATTN_F32, CLATTN_RING_CONTIGUOUS, 2);
}

static void sizes_of(int32_t ranks, bool passes, size_t *device_bytes, size_t *host_bytes) {
    struct attention_case shape = attention_shape("sizes", 1, 4096, 4096, CLATTN_CAUSAL_TOP_LEFT);
    struct ring_problem problem = ring_problem_of(&shape, CLATTN_F16, CLATTN_RING_ZIGZAG, ranks);
    problem.passes = passes;
    clattn_ring_group *group = ring_upload(&problem, 60000);
    *device_bytes = ring_ranks[0].device_bytes;
    *host_bytes = ring_ranks[0].host_bytes;
    ring_release(ranks, &group);
    ring_problem_free(&problem);
}

/* Twice the ranks, half the memory: two fp32 results, and a block of keys and values where there are two ranks, else
 * two blocks. */
static void memory_falls_as_one_by_ranks(void **state) {
    (void)state;
    size_t device_bytes[2], host_bytes[2];
    const size_t block = 4096 / 2 * 2 * (64 + 64) * 2, results = 4096 / 2 * 4 * (64 + 1) * 4;
    for (int passes = 0; passes < 2; passes++) {
        sizes_of(2, passes, &device_bytes[0], &host_bytes[0]);
        sizes_of(4, passes, &device_bytes[1], &host_bytes[1]);
        assert_int_equal(host_bytes[0], (passes ? 2 : 1) * block);
        assert_int_equal(2 * host_bytes[1], host_bytes[0]);
        assert_true(device_bytes[0] >= block + 2 * results);
        assert_true(device_bytes[1] >= block + results);
        assert_true(2 * device_bytes[1] <= device_bytes[0] + block + 4096);
    }
}

/* So many that they are merged a quarter at a time. */
static void many_rows_are_merged_in_parts(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("many rows", 128, 260, 260, CLATTN_CAUSAL_TOP_LEFT);
    check_shape(&shape, CLATTN_F16, CLATTN_RING_ZIGZAG, 2);
}

/* One queue for all, or two that keep no order; the call waits for the caller's events, and gives the same bits
 * again. */
static void queues_may_be_one_or_out_of_order(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("queues", 1, 203, 203, CLATTN_CAUSAL_TOP_LEFT);
    struct ring_problem problem = ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, 3);
    cl_command_queue queues[3];
    cl_event began[3];
    clattn_ring_group *group = ring_upload(&problem, 60000);
    ring_run(3);
    struct attention_result first = ring_result(&problem);
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 3; i++) {
            struct ring_rank *rank = &ring_ranks[i];
            cl_int code = CL_SUCCESS;
            queues[i] = clCreateCommandQueue(rank->device.context, rank->device.id,
                                             CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
            support_expect_cl(code, "clCreateCommandQueue");
            CHECK_CL(clEnqueueMarkerWithWaitList(rank->copy_queue, 0, NULL, &began[i]));
            rank->launch.queue = queues[i];
            rank->launch.copy_queue = i == 1 ? rank->copy_queue : queues[i];
            rank->launch.num_events_in_wait_list = 1;
            rank->launch.event_wait_list = &began[i];
        }
        ring_run(3);
        struct attention_result again = ring_result(&problem);
        attention_same_rows(&problem.whole, "ring", &first, &again, 0, attention_row_count(&problem.whole));
        attention_result_free(&again);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ring_ranks[i].status, CLATTN_SUCCESS);
            clReleaseEvent(began[i]);
            clReleaseCommandQueue(queues[i]);
        }
    }
    attention_result_free(&first);
    ring_release(3, &group);
    ring_problem_free(&problem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_query_sees_the_keys_of_all_ranks, ring_open),
        cmocka_unit_test_setup(causal_limits_count_in_the_whole_sequence, ring_open),
        cmocka_unit_test_setup(shards_may_be_unequal_and_empty, ring_open),
        cmocka_unit_test_setup(sequences_may_be_shorter_than_there_are_ranks, ring_open),
        cmocka_unit_test_setup(modifiers_count_in_the_whole_sequence, ring_open),
        cmocka_unit_test_setup(rows_that_see_no_key_are_empty, ring_open),
        cmocka_unit_test_setup(memory_falls_as_one_by_ranks, ring_open),
        cmocka_unit_test_setup(many_rows_are_merged_in_parts, ring_open),
        cmocka_unit_test_setup(queues_may_be_one_or_out_of_order, ring_open),
    };
    return support_main("ring", tests, sizeof tests / sizeof *tests);
}
