/* Few queries over caches that are spread over ranks: every rank gets what one device gives, and all get the same
 * bits. */
#include "ring_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void same_on_all_ranks(const struct ring_problem *problem) {
    const size_t bytes = ring_ranks[0].o.bytes;
    unsigned char *first = NULL;
    for (int32_t i = 0; i < problem->ranks; i++) {
        const struct test_device before = device;
        device = ring_ranks[i].device;
        unsigned char *own = test_bytes(&ring_ranks[i].o);
        device = before;
        if (first == NULL) {
            first = own;
            continue;
        }
        assert_memory_equal(first, own, bytes);
        free(own);
    }
    free(first);
}

static void check_decode(struct attention_case *shape, clattn_dtype dtype, int32_t ranks) {
    struct ring_problem problem = ring_decode_of(shape, dtype, ranks);
    clattn_ring_group *group = ring_upload(&problem, 60000);
    ring_run(ranks);
    for (int32_t i = 0; i < ranks; i++)
        if (ring_ranks[i].status != CLATTN_SUCCESS)
            fail_msg("rank %d: %s", (int)i, ring_ranks[i].text);
    struct attention_result result = ring_result(&problem);
    attention_compare(&problem.whole, &result, "decode", 64);
    same_on_all_ranks(&problem);
    attention_result_free(&result);
    ring_release(ranks, &group);
    ring_problem_free(&problem);
}

static void every_rank_gets_the_whole_result(void **state) {
    (void)state;
    struct attention_case shape = attention_shape("one query", 3, 1, 101, CLATTN_CAUSAL_NONE);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++)
        check_decode(&shape, ranks % 2 ? CLATTN_F16 : CLATTN_F32, ranks);
}

static const double sinks[4] = {0.5, -1, 3, 0};

/* More ranks than keys, so that some have none; the first query sees the keys of some ranks alone; a sink counts
 * once. */
static void positions_and_sinks_count_over_all_ranks(void **state) {
    (void)state;
    struct attention_case shape = attention_shape("some queries", 2, 5, 60, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.with = (struct case_modifiers){.sinks = sinks, .has_window = true, .window_left = 33, .window_right = 0};
    check_decode(&shape, CLATTN_F32, 4);
    shape = attention_shape("three keys", 1, 3, 3, CLATTN_CAUSAL_TOP_LEFT);
    shape.with = (struct case_modifiers){.sinks = sinks};
    check_decode(&shape, CLATTN_BF16, 4);
}

static void what_cannot_be_spread_is_refused(void **state) {
    (void)state;
    struct attention_case shape = attention_shape("refused", 1, 2, 20, CLATTN_CAUSAL_NONE);
    struct ring_problem problem = ring_decode_of(&shape, CLATTN_F32, 2);
    clattn_ring_group *group = ring_upload(&problem, 60000);
    ring_ranks[1].decode.attention.q.dims[2] = 1;
    ring_ranks[1].decode.attention.o.dims[2] = 1;
    ring_ranks[1].decode.attention.lse.dims[2] = 1;
    ring_run(2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ring_ranks[i].status, CLATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(ring_ranks[i].text, "ranks disagree"));
    }
    ring_ranks[1].decode.attention.scale = (float)INFINITY;
    ring_ranks[1].decode.attention.has_scale = 1;
    ring_run(2);
    assert_int_equal(ring_ranks[0].status, CLATTN_PEER_FAILED);
    assert_int_equal(ring_ranks[1].status, CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(ring_ranks[1].text, "scale"));
    ring_release(2, &group);
    ring_problem_free(&problem);
}

/* Values of no columns leave lse alone to be computed: the ranks that want it must not wait for one that does not. */
static void ranks_that_want_a_result_and_ranks_that_do_not_disagree(void **state) {
    (void)state;
    struct attention_case shape = attention_shape("no values", 1, 2, 20, CLATTN_CAUSAL_NONE);
    struct ring_problem problem = ring_decode_of(&shape, CLATTN_F32, 2);
    clattn_ring_group *group = ring_upload(&problem, 60000);
    for (int i = 0; i < 2; i++)
        ring_ranks[i].decode.attention.v.dims[3] = ring_ranks[i].decode.attention.o.dims[3] = 0;
    ring_run(2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ring_ranks[i].status, CLATTN_SUCCESS);
    ring_ranks[1].decode.attention.lse.memory.kind = CLATTN_MEMORY_NONE;
    ring_run(2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ring_ranks[i].status, CLATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(ring_ranks[i].text, "ranks disagree"));
    }
    ring_release(2, &group);
    ring_problem_free(&problem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_rank_gets_the_whole_result, ring_open),
        cmocka_unit_test_setup(positions_and_sinks_count_over_all_ranks, ring_open),
        cmocka_unit_test_setup(what_cannot_be_spread_is_refused, ring_open),
        cmocka_unit_test_setup(ranks_that_want_a_result_and_ranks_that_do_not_disagree, ring_open),
    };
    return support_main("ring_decode", tests, sizeof tests / sizeof *tests);
}
