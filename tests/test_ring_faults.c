/* A rank that fails makes all ranks return an error, soon and with its name; the next call works. Bad arguments. */
#include "ring_harness.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3 };

static struct ring_problem small_problem(void) {
    const struct attention_case shape = attention_shape("small", 1, 24, 24, CLATTN_CAUSAL_TOP_LEFT);
    return ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, RANKS);
}

static struct ring_problem passing_problem(void) {
    struct ring_problem problem = small_problem();
    problem.passes = true;
    return problem;
}

static void expect_peers_told(int32_t bad, clattn_status status) {
    char name[48];
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

/* ---- transports that fail ---- */

/* Fails in its n-th callback, as a broken connection would, and makes those of the others fail. */
struct faulty {
    clattn_ring_transport inner;
    clattn_ring_group *group;
    int calls, fails_at;
};

static bool fails(struct faulty *faulty) {
    if (++faulty->calls != faulty->fails_at)
        return false;
    clattn_ring_group_abort(faulty->group);
    return true;
}

static clattn_status faulty_begin(void *user, const clattn_ring_message *message, void **request) {
    struct faulty *faulty = user;
    return fails(faulty) ? CLATTN_INTERNAL_ERROR : faulty->inner.begin(faulty->inner.user, message, request);
}

static clattn_status faulty_wait(void *user, void *request) {
    struct faulty *faulty = user;
    return fails(faulty) ? CLATTN_INTERNAL_ERROR : faulty->inner.wait(faulty->inner.user, request);
}

static clattn_status faulty_max(void *user, uint64_t *values, int32_t count) {
    struct faulty *faulty = user;
    return fails(faulty) ? CLATTN_INTERNAL_ERROR : faulty->inner.max(faulty->inner.user, values, count);
}

static const char *faulty_text(void *user) {
    (void)user;
    return "cable pulled";
}

static int run_with_fault(const struct ring_problem *problem, int fails_at) {
    clattn_ring_group *group = ring_upload(problem, 60000);
    struct faulty faulty = {.inner = ring_ranks[2].transport, .group = group, .fails_at = fails_at};
    const clattn_ring_transport outer = {.size = sizeof outer,
                                         .rank = faulty.inner.rank,
                                         .ranks = faulty.inner.ranks,
                                         .user = &faulty,
                                         .begin = faulty_begin,
                                         .wait = faulty_wait,
                                         .max = faulty_max,
                                         .error_text = faulty_text};
    ring_ranks[2].launch.transport = &outer;
    ring_run(RANKS);
    for (int32_t i = 0; i < RANKS && fails_at > 0; i++) {
        assert_int_equal(ring_ranks[i].status, CLATTN_PEER_FAILED);
        assert_non_null(strstr(ring_ranks[i].text, i == 2 ? "cable pulled" : "aborted"));
    }
    ring_release(RANKS, &group);
    return faulty.calls;
}

static void a_transport_that_breaks_anywhere_makes_all_return(void **state) {
    (void)state;
    struct ring_problem problem = passing_problem();
    const int calls = run_with_fault(&problem, 0);
    assert_int_equal(calls, 2 + 3 * (RANKS - 1)); /* at both ends, and agree, begin, wait for each transfer */
    for (int n = 1; n <= calls; n++)
        run_with_fault(&problem, n);
    ring_problem_free(&problem);
}

/* A queue that is gone when the first transfer begins: OpenCL refuses what the rank enqueues afterwards. */
static clattn_status begin_without_queue(void *user, const clattn_ring_message *message, void **request) {
    struct faulty *faulty = user;
    ring_ranks[2].launch.copy_queue = NULL;
    return faulty->inner.begin(faulty->inner.user, message, request);
}

static clattn_status plain_wait(void *user, void *request) {
    struct faulty *faulty = user;
    return faulty->inner.wait(faulty->inner.user, request);
}

static clattn_status plain_max(void *user, uint64_t *values, int32_t count) {
    struct faulty *faulty = user;
    return faulty->inner.max(faulty->inner.user, values, count);
}

static clattn_status share_without_queue(void *user, const void *mine, const void **all) {
    struct faulty *faulty = user;
    ring_ranks[2].launch.copy_queue = NULL;
    return faulty->inner.share(faulty->inner.user, mine, all);
}

static void check_failure_midway(const struct ring_problem *problem) {
    clattn_ring_group *group = ring_upload(problem, 60000);
    struct faulty faulty = {.inner = ring_ranks[2].transport, .group = group};
    clattn_ring_transport outer = ring_ranks[2].transport;
    outer.user = &faulty;
    outer.begin = begin_without_queue;
    outer.wait = plain_wait;
    outer.max = plain_max;
    outer.error_text = NULL;
    outer.share = problem->passes ? NULL : share_without_queue;
    ring_ranks[2].launch.transport = &outer;
    ring_run(RANKS);
    expect_peers_told(2, ring_ranks[2].status);
    assert_int_equal(ring_ranks[2].status, CLATTN_OPENCL_ERROR);
    ring_ranks[2].launch.copy_queue = ring_ranks[2].copy_queue;
    ring_ranks[2].launch.transport = &ring_ranks[2].transport;
    ring_run(RANKS); /* the group is as good as before */
    for (int32_t i = 0; i < RANKS; i++)
        assert_int_equal(ring_ranks[i].status, CLATTN_SUCCESS);
    ring_release(RANKS, &group);
}

static void a_rank_that_fails_midway_makes_all_return(void **state) {
    (void)state;
    struct ring_problem shared = small_problem(), passed = passing_problem();
    check_failure_midway(&shared);
    check_failure_midway(&passed);
    ring_problem_free(&shared);
    ring_problem_free(&passed);
}

/* All ranks share their memory or none. */
static void ranks_that_share_and_ranks_that_do_not_disagree(void **state) {
    (void)state;
    struct ring_problem problem = passing_problem();
    clattn_ring_group *group = ring_upload(&problem, 60000);
    CHECK(clattn_ring_group_transport(group, 1, &ring_ranks[1].transport));
    ring_run(RANKS);
    for (int32_t i = 0; i < RANKS; i++) {
        assert_int_equal(ring_ranks[i].status, CLATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(ring_ranks[i].text, "ranks disagree"));
    }
    ring_release(RANKS, &group);
    ring_problem_free(&problem);
}

/* ---- arguments ---- */

static void expect_refusal(const char *text) {
    size_t bytes[2];
    const clattn_status status = clattn_ring_staging(ring_ranks[0].device.clattn, ring_ranks[0].made,
                                                     &ring_ranks[0].launch, &bytes[0], &bytes[1]);
    if (status == CLATTN_SUCCESS || strstr(clattn_last_error(), text) == NULL)
        fail_msg("%s expected, %s: %s", text, clattn_status_name(status), clattn_last_error());
    assert_int_equal(bytes[0] + bytes[1], 0);
}

#define REFUSED(member, value, text)         \
    do {                                     \
        const struct ring_rank good = *rank; \
        rank->member = value;                \
        expect_refusal(text);                \
        *rank = good;                        \
    } while (0)

static void bad_operations_are_named(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    clattn_ring_group *group = ring_upload(&problem, 60000);
    struct ring_rank *rank = &ring_ranks[0];
    const clattn_tensor some = rank->lse.view;
    REFUSED(op.head.size, 8, "op: size is 8");
    REFUSED(op.head.kind, CLATTN_OP_GEMM, "kind");
    REFUSED(op.attention.head.kind, CLATTN_OP_GEMM, "kind");
    REFUSED(op.attention.mask, some, "mask: not with");
    REFUSED(op.attention.bias, some, "bias: not with");
    REFUSED(op.attention.k_lengths, some, "k_lengths: not with");
    REFUSED(op.attention.page_table, some, "page_table: not with");
    REFUSED(op.attention.max_k, 3, "max_k: not with");
    REFUSED(op.attention.causal, CLATTN_CAUSAL_BOTTOM_RIGHT, "CLATTN_CAUSAL_BOTTOM_RIGHT needs a diagonal");
    REFUSED(op.attention.q.dims[2], 3, "q");
    REFUSED(op.attention.o, rank->op.attention.q, "overlap");
    REFUSED(op.q_shard.pieces[0].rows, 77, "q_shard has");
    REFUSED(op.q_shard.pieces[1].first, -1, "q_shard: pieces[1].first = -1");
    REFUSED(op.k_shards, NULL, "k_shards is NULL");
    REFUSED(launch.size, 4, "clattn_ring_launch_init");
    REFUSED(launch.transport, NULL, "transport is NULL");
    REFUSED(launch.variant, "no_such", "no_such");
    REFUSED(made, NULL, "op is NULL");
    REFUSED(transport.size, 3, "transport: size is 3");
    REFUSED(transport.ranks, 0, "transport: ranks = 0");
    REFUSED(transport.rank, 3, "transport: rank = 3");
    REFUSED(transport.begin, NULL, "transport: begin is NULL");
    REFUSED(transport.wait, NULL, "transport: wait is NULL");
    REFUSED(transport.max, NULL, "transport: max is NULL");
    ring_release(RANKS, &group);
    ring_problem_free(&problem);
}

static void expect_bad_launch(clattn_status status, const char *text) {
    ring_run(RANKS);
    expect_peers_told(0, status);
    if (strstr(ring_ranks[0].text, text) == NULL)
        fail_msg("%s expected: %s", text, ring_ranks[0].text);
}

#define BAD_LAUNCH(member, value, status, text)       \
    do {                                              \
        const clattn_ring_launch good = rank->launch; \
        rank->launch.member = value;                  \
        expect_bad_launch(status, text);              \
        rank->launch = good;                          \
    } while (0)

static void bad_launches_are_named_on_all_ranks(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    clattn_ring_group *group = ring_upload(&problem, 60000);
    struct ring_rank *rank = &ring_ranks[0];
    BAD_LAUNCH(queue, NULL, CLATTN_INVALID_ARGUMENT, "queue");
    BAD_LAUNCH(copy_queue, NULL, CLATTN_INVALID_ARGUMENT, "copy_queue");
    BAD_LAUNCH(copy_queue, ring_ranks[1].copy_queue, CLATTN_INVALID_ARGUMENT, "copy_queue");
    BAD_LAUNCH(workspace.size, 8, CLATTN_WORKSPACE_TOO_SMALL, "workspace");
    BAD_LAUNCH(host, NULL, CLATTN_INVALID_ARGUMENT, "host is NULL");
    BAD_LAUNCH(host, (char *)rank->host + 1, CLATTN_INVALID_ARGUMENT, "aligned to 64");
    BAD_LAUNCH(num_events_in_wait_list, 2, CLATTN_INVALID_ARGUMENT, "event_wait_list");
    ring_release(RANKS, &group);
    ring_problem_free(&problem);
}

/* Of a ring of one, which nobody else waits for. */
static void absent_operations_are_refused(void **state) {
    (void)state;
    clattn_ring_group *group = NULL;
    clattn_ring_transport transport;
    clattn_ring_launch launch;
    struct ring_rank *rank = &ring_ranks[0];
    CHECK(clattn_ring_group_create(1, 60000, &group));
    CHECK(clattn_ring_group_transport(group, 0, &transport));
    clattn_ring_launch_init(&launch, rank->device.queue, rank->copy_queue, &transport);
    clattn_context *context = rank->device.clattn;
    assert_int_equal(clattn_ring_attention(context, NULL, &launch), CLATTN_INVALID_ARGUMENT);
    assert_string_equal(clattn_last_error(), "op is NULL");
    assert_int_equal(clattn_ring_attention_backward(context, NULL, &launch), CLATTN_INVALID_ARGUMENT);
    assert_string_equal(clattn_last_error(), "op is NULL");
    assert_int_equal(clattn_ring_decode(context, NULL, &launch), CLATTN_INVALID_ARGUMENT);
    assert_string_equal(clattn_last_error(), "op is NULL");
    clattn_ring_group_release(&group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_refused_rank_makes_all_return, ring_open),
        cmocka_unit_test_setup(a_rank_that_does_not_come_is_not_waited_for, ring_open),
        cmocka_unit_test_setup(a_rank_that_fails_midway_makes_all_return, ring_open),
        cmocka_unit_test_setup(a_transport_that_breaks_anywhere_makes_all_return, ring_open),
        cmocka_unit_test_setup(ranks_that_share_and_ranks_that_do_not_disagree, ring_open),
        cmocka_unit_test_setup(bad_operations_are_named, ring_open),
        cmocka_unit_test_setup(bad_launches_are_named_on_all_ranks, ring_open),
        cmocka_unit_test_setup(absent_operations_are_refused, ring_open),
    };
    return support_main("ring_faults", tests, sizeof tests / sizeof *tests);
}
