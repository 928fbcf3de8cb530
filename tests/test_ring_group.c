/* The transport between threads: what is sent is what is received, maxima are those of all ranks, and nobody waits
 * for a rank that is gone. */
#include "os.h"
#include "ring.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, ROUNDS = 50, BYTES = 3000 };

/* A rank's thread: what it does, and what came of it. */
struct rank {
    clattn_ring_transport transport;
    clattn_status status;
    int wrong;        /* values that were not as they should be */
    int leaves_after; /* rounds; the rank then does not come again */
};

static struct rank ranks[RANKS];

static unsigned char byte_of(int rank, int round, int tag, int i) {
    return (unsigned char)(rank * 31 + round * 7 + tag * 3 + i);
}

/* Both tags at once, of sizes that differ from rank to rank. */
static size_t size_of(int rank, int tag) {
    return tag == 0 ? (size_t)(BYTES - 100 * rank) : (size_t)(rank == 1 ? 0 : 64);
}

static clattn_status exchange(struct rank *rank, int round) {
    const clattn_ring_transport *t = &rank->transport;
    static _Thread_local unsigned char send[2][BYTES], receive[2][BYTES];
    void *requests[2] = {NULL, NULL};
    const int to = (t->rank + 1) % RANKS, from = (t->rank + RANKS - 1) % RANKS;
    for (int tag = 0; tag < 2; tag++) {
        for (int i = 0; i < BYTES; i++)
            send[tag][i] = byte_of(t->rank, round, tag, i);
        const clattn_ring_message message = {.tag = tag,
                                             .to = to,
                                             .from = from,
                                             .send = send[tag],
                                             .receive = receive[tag],
                                             .send_bytes = size_of(t->rank, tag),
                                             .receive_bytes = size_of(from, tag)};
        const clattn_status status = t->begin(t->user, &message, &requests[tag]);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    for (int tag = 1; tag >= 0; tag--) {
        const clattn_status status = t->wait(t->user, requests[tag]);
        if (status != CLATTN_SUCCESS)
            return status;
        for (int i = 0; i < (int)size_of(from, tag); i++)
            rank->wrong += receive[tag][i] != byte_of(from, round, tag, i);
    }
    return CLATTN_SUCCESS;
}

static void *work(void *argument) {
    struct rank *rank = argument;
    const clattn_ring_transport *t = &rank->transport;
    for (int round = 0; round < rank->leaves_after && rank->status == CLATTN_SUCCESS; round++) {
        uint64_t values[4] = {(uint64_t)(t->rank == round % RANKS ? 1000 + round : round), (uint64_t)t->rank,
                              UINT64_MAX - (uint64_t)t->rank, 0};
        rank->status = t->max(t->user, values, 4);
        if (rank->status != CLATTN_SUCCESS)
            break;
        rank->wrong += values[0] != (uint64_t)(1000 + round) || values[1] != RANKS - 1 || values[2] != UINT64_MAX ||
                       values[3] != 0;
        rank->status = exchange(rank, round);
    }
    return NULL;
}

static clattn_ring_group *run(uint32_t timeout_ms, int leaves_after_of_rank_2) {
    clattn_ring_group *group = NULL;
    pthread_t threads[RANKS];
    assert_int_equal(clattn_ring_group_create(RANKS, timeout_ms, &group), CLATTN_SUCCESS);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.leaves_after = i == 2 ? leaves_after_of_rank_2 : ROUNDS};
        assert_int_equal(clattn_ring_group_transport(group, i, &ranks[i].transport), CLATTN_SUCCESS);
        assert_int_equal(pthread_create(&threads[i], NULL, work, &ranks[i]), 0);
    }
    if (timeout_ms == 0 && leaves_after_of_rank_2 < ROUNDS) {
        pthread_join(threads[2], NULL);
        clattn_ring_group_abort(group);
    }
    for (int i = 0; i < RANKS; i++)
        if (timeout_ms > 0 || leaves_after_of_rank_2 >= ROUNDS || i != 2)
            pthread_join(threads[i], NULL);
    return group;
}

static void what_is_sent_is_received(void **state) {
    (void)state;
    clattn_ring_group *group = run(60000, ROUNDS);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].status, CLATTN_SUCCESS);
        assert_int_equal(ranks[i].wrong, 0);
    }
    clattn_ring_group_release(&group);
}

static void expect_left_alone(clattn_ring_group *group) {
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].wrong, 0);
        assert_int_equal(ranks[i].status, i == 2 ? CLATTN_SUCCESS : CLATTN_PEER_FAILED);
    }
    uint64_t value = 0; /* for good */
    const clattn_ring_transport *t = &ranks[0].transport;
    assert_int_equal(t->max(t->user, &value, 1), CLATTN_PEER_FAILED);
    assert_non_null(strstr(t->error_text(t->user), "failed before"));
    clattn_ring_group_release(&group);
}

static void a_rank_that_is_gone_is_waited_for_until_the_timeout(void **state) {
    (void)state;
    const uint64_t start = os_time_ns();
    expect_left_alone(run(300, 3));
    assert_true(os_time_ns() - start < UINT64_C(10000000000));
}

static void abort_wakes_those_who_wait(void **state) {
    (void)state;
    expect_left_alone(run(0, 5));
}

/* ---- shared memory ---- */

struct sharer {
    clattn_ring_transport transport;
    clattn_ring_group *group; /* that it aborts while it reads; or NULL */
    int value, sum;
    clattn_status status;
};

static struct sharer sharers[2];

static void *share_and_read(void *argument) {
    struct sharer *sharer = argument;
    const clattn_ring_transport *t = &sharer->transport;
    const void *all[2] = {NULL, NULL};
    uint64_t value = 0;
    sharer->status = t->share(t->user, &sharer->value, all);
    if (sharer->status != CLATTN_SUCCESS)
        return NULL;
    if (sharer->group) {
        clattn_ring_group_abort(sharer->group);
        usleep(100000);
    }
    sharer->sum = *(const int *)all[0] + *(const int *)all[1];
    sharer->status = t->max(t->user, &value, 1);
    sharer->value = 1000; /* its own again */
    return NULL;
}

/* Also where the group breaks: a rank gets its memory back when the others have read it. */
static void shared_memory_is_the_others_until_they_are_done(void **state) {
    (void)state;
    for (int breaks = 0; breaks < 2; breaks++) {
        clattn_ring_group *group = NULL;
        pthread_t threads[2];
        assert_int_equal(clattn_ring_group_create(2, 0, &group), CLATTN_SUCCESS);
        for (int i = 0; i < 2; i++) {
            sharers[i] = (struct sharer){.value = 3 + i, .group = breaks && i == 1 ? group : NULL};
            assert_int_equal(clattn_ring_group_transport(group, i, &sharers[i].transport), CLATTN_SUCCESS);
            assert_int_equal(pthread_create(&threads[i], NULL, share_and_read, &sharers[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sharers[i].sum, 7);
            assert_int_equal(sharers[i].status, breaks ? CLATTN_PEER_FAILED : CLATTN_SUCCESS);
        }
        clattn_ring_group_release(&group);
    }
}

static void *meet_once(void *argument) {
    struct rank *rank = argument;
    uint64_t value = 0;
    rank->status = rank->transport.max(rank->transport.user, &value, 1);
    return NULL;
}

/* Or each would read what the absent rank has shared in an earlier call. */
static void a_rank_that_is_there_twice_is_found(void **state) {
    (void)state;
    clattn_ring_group *group = NULL;
    pthread_t threads[2];
    assert_int_equal(clattn_ring_group_create(2, 60000, &group), CLATTN_SUCCESS);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (struct rank){.status = CLATTN_SUCCESS};
        assert_int_equal(clattn_ring_group_transport(group, 1, &ranks[i].transport), CLATTN_SUCCESS);
        assert_int_equal(pthread_create(&threads[i], NULL, meet_once, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(ranks[i].status, CLATTN_PEER_FAILED);
    }
    assert_non_null(ranks[1].transport.error_text(ranks[1].transport.user));
    clattn_ring_group_release(&group);
}

static void sizes_that_differ_fail(void **state) {
    (void)state;
    clattn_ring_group *group = NULL;
    clattn_ring_transport transport;
    unsigned char bytes[2][8] = {{0}};
    void *request = NULL;
    assert_int_equal(clattn_ring_group_create(1, 1000, &group), CLATTN_SUCCESS);
    assert_int_equal(clattn_ring_group_transport(group, 0, &transport), CLATTN_SUCCESS);
    const clattn_ring_message message = {.send = bytes[0], .receive = bytes[1], .send_bytes = 8, .receive_bytes = 7};
    assert_int_equal(transport.begin(transport.user, &message, &request), CLATTN_SUCCESS);
    assert_int_equal(transport.wait(transport.user, request), CLATTN_PEER_FAILED);
    assert_non_null(strstr(transport.error_text(transport.user), "more or less"));
    clattn_ring_group_release(&group);
}

static void bad_groups_are_refused(void **state) {
    (void)state;
    clattn_ring_group *group = NULL;
    clattn_ring_transport transport;
    assert_int_equal(clattn_ring_group_create(0, 0, &group), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_ring_group_create(257, 0, &group), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "ranks = 257"));
    assert_int_equal(clattn_ring_group_create(2, 0, NULL), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_ring_group_create(2, 0, &group), CLATTN_SUCCESS);
    assert_int_equal(clattn_ring_group_transport(group, 2, &transport), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "rank = 2"));
    assert_int_equal(clattn_ring_group_transport(NULL, 0, &transport), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_ring_group_transport(group, 0, NULL), CLATTN_INVALID_ARGUMENT);
    clattn_ring_group_release(&group);
    assert_null(group);
    clattn_ring_group_release(&group);
    clattn_ring_group_abort(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_is_received),
        cmocka_unit_test(a_rank_that_is_gone_is_waited_for_until_the_timeout),
        cmocka_unit_test(abort_wakes_those_who_wait),
        cmocka_unit_test(shared_memory_is_the_others_until_they_are_done),
        cmocka_unit_test(a_rank_that_is_there_twice_is_found),
        cmocka_unit_test(sizes_that_differ_fail),
        cmocka_unit_test(bad_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
