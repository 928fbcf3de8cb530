/* A rank that fails makes all ranks return an error, soon and with its name; the next call works. Bad arguments. */
#include "ring_harness.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3 };

static struct ring_problem small_problem(void) {
    const struct attention_case shape = attention_shape("small", 1, 24, 24, CLATTN_CAUSAL_TOP_LEFT);
    return ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, RANKS);
}

static void expect_peers_told(int32_t bad, clattn_status status) {
    char name[32];
    snprintf(name, sizeof name, "rank %d failed: CLATTN_", (int)bad);
    for (int32_t i = 0; i < RANKS; i++) {
        assert_int_equal(ring_ranks[i].status, i == bad ? status : CLATTN_PEER_FAILED);
        if (i != bad)
            assert_non_null(strstr(ring_ranks[i].text, name));
    }
}

static void a_refused_rank_makes_all_return(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    clattn_ring_group *group = ring_upload(&problem, 60000);
    for (int32_t bad = 0; bad < RANKS; bad++) {
        const size_t size = ring_ranks[bad].launch.host_size;
        ring_ranks[bad].launch.host_size = 0;
        ring_run(RANKS);
        expect_peers_told(bad, CLATTN_WORKSPACE_TOO_SMALL);
        ring_ranks[bad].launch.host_size = size;
    }
    ring_run(RANKS);
    for (int32_t i = 0; i < RANKS; i++)
        assert_int_equal(ring_ranks[i].status, CLATTN_SUCCESS);
    ring_release(RANKS, &group);
    ring_problem_free(&problem);
}

static void a_rank_that_does_not_come_is_not_waited_for(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    clattn_ring_group *group = ring_upload(&problem, 200);
    ring_ranks[1].made = NULL;
    ring_run(RANKS);
    for (int32_t i = 0; i < RANKS; i += 2)
        assert_int_equal(ring_ranks[i].status, CLATTN_PEER_FAILED);
    ring_release(RANKS, &group);
    ring_problem_free(&problem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_refused_rank_makes_all_return, ring_open, ring_close),
        cmocka_unit_test_setup_teardown(a_rank_that_does_not_come_is_not_waited_for, ring_open, ring_close),
    };
    return support_main("ring_faults", tests, sizeof tests / sizeof *tests);
}
