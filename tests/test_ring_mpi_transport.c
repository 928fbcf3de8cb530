/* The ring's transport over MPI by itself, on ranks that mpirun has begun: messages of any size, the largest of values,
 * and that no failure leaves a rank waiting. Usage: test_ring_mpi_transport [single | large] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <clattn/ring_mpi.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTE = 60000 };

static int rank, ranks;
static clattn_ring_mpi *ring;
static clattn_ring_transport transport;

static void open_ring(uint32_t timeout_ms) {
    if (clattn_ring_mpi_create(MPI_COMM_WORLD, timeout_ms, &ring) != CLATTN_SUCCESS ||
        clattn_ring_mpi_transport(ring, &transport) != CLATTN_SUCCESS)
        fail_msg("rank %d: %s", rank, clattn_ring_mpi_last_error());
    assert_int_equal(transport.size, sizeof transport);
    assert_int_equal(transport.rank, rank);
    assert_int_equal(transport.ranks, ranks);
}

static void close_ring(void) {
    clattn_ring_mpi_release(&ring);
    assert_null(ring);
}

static clattn_status largest(uint64_t value) {
    return transport.max(transport.user, &value, 1);
}

static void expect_failure(clattn_status status, const char *text) {
    const char *got = transport.error_text(transport.user);
    if (status != CLATTN_PEER_FAILED || strstr(got, text) == NULL)
        fail_msg("rank %d: \"%s\" expected: %d, %s", rank, text, (int)status, got);
}

static unsigned char byte_of(int from, size_t i) {
    return (unsigned char)(i * 7 + i / 251 + (size_t)from * 31);
}

/* ---- what works -------------------------------------------------------------------------------------------------- */

static void the_largest_of_each_value(void **state) {
    (void)state;
    open_ring(MINUTE);
    for (int32_t count = 1; count <= 4; count++) {
        uint64_t values[5] = {0};
        for (int32_t i = 0; i < count; i++)
            values[i] = ((uint64_t)1 << 63) + (uint64_t)(i == rank ? 100 + i : rank);
        assert_int_equal(transport.max(transport.user, values, count), CLATTN_SUCCESS);
        for (int32_t i = 0; i < count; i++)
            assert_true(values[i] == ((uint64_t)1 << 63) + (uint64_t)(i < ranks ? 100 + i : ranks - 1));
        assert_true(values[count] == 0);
    }
    close_ring();
}

static const size_t sizes[] = {0, 1, 999, 1000, 1001, 3000, 70000, 3000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static size_t size_of(int of, int32_t tag, int round) {
    return sizes[(of + tag * 3 + round) % SIZES];
}

/* To the next rank and from the one before, under both tags at once. */
static void exchange(int round) {
    const int before = (rank + ranks - 1) % ranks;
    unsigned char *out[2], *in[2];
    void *requests[2];
    for (int32_t tag = 0; tag < 2; tag++) {
        const size_t sent = size_of(rank, tag, round), received = size_of(before, tag, round);
        out[tag] = malloc(sent + 1);
        in[tag] = calloc(1, received + 1);
        for (size_t i = 0; i < sent; i++)
            out[tag][i] = byte_of(rank + tag, i);
        const clattn_ring_message message = {tag, (rank + 1) % ranks, before, out[tag], in[tag], sent, received};
        assert_int_equal(transport.begin(transport.user, &message, &requests[tag]), CLATTN_SUCCESS);
    }
    for (int32_t tag = 1; tag >= 0; tag--) {
        const size_t received = size_of(before, tag, round);
        assert_int_equal(transport.wait(transport.user, requests[tag]), CLATTN_SUCCESS);
        for (size_t i = 0; i < received; i++)
            assert_int_equal(in[tag][i], byte_of(before + tag, i));
        assert_int_equal(in[tag][received], 0);
        free(out[tag]);
        free(in[tag]);
    }
}

static void messages_of_any_size(void **state) {
    (void)state;
    open_ring(MINUTE);
    for (int round = 0; round < SIZES; round++)
        exchange(round);
    close_ring();
}

static void two_rings_do_not_meet(void **state) {
    (void)state;
    open_ring(MINUTE);
    clattn_ring_mpi *const first = ring;
    const clattn_ring_transport first_transport = transport;
    open_ring(MINUTE);
    if (rank == 0)
        clattn_ring_mpi_abort(ring);
    expect_failure(largest(1), rank == 0 ? "failed before" : "rank 0 has left");
    close_ring();
    ring = first;
    transport = first_transport;
    exchange(5);
    assert_int_equal(largest(1), CLATTN_SUCCESS);
    close_ring();
}

/* ---- what fails -------------------------------------------------------------------------------------------------- */

static void a_rank_that_does_not_come_is_not_waited_for(void **state) {
    (void)state;
    open_ring(1000);
    if (rank != 0)
        assert_int_equal(largest(1), CLATTN_PEER_FAILED); /* by its own patience, or another's */
    MPI_Barrier(MPI_COMM_WORLD);
    expect_failure(largest(1), rank == 0 ? "has left the ring" : "failed before");
    close_ring();
}

static void a_rank_that_aborts_ends_the_calls_of_all(void **state) {
    (void)state;
    open_ring(MINUTE);
    const double begin = MPI_Wtime();
    if (rank == 1)
        clattn_ring_mpi_abort(ring);
    for (int i = 0; i < 2; i++)
        expect_failure(largest(1), rank == 1 || i == 1 ? "failed before" : "rank 1 has left the ring");
    assert_true(MPI_Wtime() - begin < 8);
    close_ring();
}

/* A rank leaves in place of its part of a transfer: what it was to send never comes, what it was to receive is not
 * waited for, and the memory of both is free at once. */
static void a_rank_that_leaves_in_a_transfer(void **state) {
    (void)state;
    const size_t bytes = 5000000;
    const int before = (rank + ranks - 1) % ranks, next = (rank + 1) % ranks;
    unsigned char *out = calloc(1, bytes), *in = calloc(1, bytes);
    void *request = NULL;
    const clattn_ring_message message = {0, next, before, out, in, bytes, bytes};
    open_ring(MINUTE);
    const double begin = MPI_Wtime();
    if (rank == 0) {
        clattn_ring_mpi_abort(ring);
    } else {
        assert_int_equal(transport.begin(transport.user, &message, &request), CLATTN_SUCCESS);
        const clattn_status status = transport.wait(transport.user, request);
        if (before == 0 || status != CLATTN_SUCCESS)
            expect_failure(status, "rank 0 has left the ring");
        assert_null(strstr(transport.error_text(transport.user), "in MPI's use"));
    }
    assert_true(MPI_Wtime() - begin < 8);
    free(out);
    free(in);
    assert_int_equal(largest(1), CLATTN_PEER_FAILED);
    close_ring();
}

static void sizes_that_disagree(void **state) {
    (void)state;
    for (size_t sent = 500; sent <= 1500; sent += 1000) {
        unsigned char out[1500] = {0}, in[1000];
        void *request = NULL;
        const clattn_ring_message message = {.tag = 1,
                                             .to = 1,
                                             .from = 0,
                                             .send = out,
                                             .receive = in,
                                             .send_bytes = rank == 0 ? sent : 0,
                                             .receive_bytes = rank == 1 ? 1000 : 0};
        open_ring(MINUTE);
        clattn_status status = transport.begin(transport.user, &message, &request);
        if (status == CLATTN_SUCCESS)
            status = transport.wait(transport.user, request);
        if (rank == 1 && sent < 1000)
            expect_failure(status, "rank 0 has sent 500 bytes of 1000");
        (void)largest(1);
        if (sent < 1000)
            expect_failure(largest(1), "failed before");
        close_ring();
    }
}

static void bad_messages_are_refused_everywhere(void **state) {
    (void)state;
    char byte = 0;
    void *request = NULL;
    const clattn_ring_message tag = {2, 0, 0, &byte, &byte, 1, 1}, to = {0, 99, 0, &byte, NULL, 1, 0};
    open_ring(MINUTE);
    if (rank == 0) {
        assert_int_equal(transport.begin(transport.user, &tag, &request), CLATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(transport.error_text(transport.user), "tag = 2"));
    }
    assert_int_equal(largest(1), CLATTN_PEER_FAILED);
    close_ring();
    open_ring(MINUTE); /* and what MPI itself refuses */
    if (rank == 0)
        expect_failure(transport.begin(transport.user, &to, &request), "MPI_Isend: MPI_ERR_RANK");
    assert_int_equal(largest(1), CLATTN_PEER_FAILED);
    close_ring();
}

/* ---- arguments and threads --------------------------------------------------------------------------------------- */

static void expect_refusal(clattn_status status, clattn_status expected, const char *text) {
    if (status != expected || strstr(clattn_ring_mpi_last_error(), text) == NULL)
        fail_msg("rank %d: \"%s\" expected: %d, %s", rank, text, (int)status, clattn_ring_mpi_last_error());
}

static void bad_arguments_are_named(void **state) {
    (void)state;
    clattn_ring_mpi *none = NULL;
    expect_refusal(clattn_ring_mpi_create(MPI_COMM_NULL, 0, &none), CLATTN_INVALID_ARGUMENT, "MPI_COMM_NULL");
    expect_refusal(clattn_ring_mpi_create(MPI_COMM_WORLD, MINUTE, rank == 1 ? NULL : &none),
                   rank == 1 ? CLATTN_INVALID_ARGUMENT : CLATTN_PEER_FAILED,
                   rank == 1 ? "out is NULL" : "rank 1 cannot have the ring");
    assert_null(none);
    expect_refusal(clattn_ring_mpi_transport(NULL, &transport), CLATTN_INVALID_ARGUMENT, "ring is NULL");
    open_ring(MINUTE);
    expect_refusal(clattn_ring_mpi_transport(ring, NULL), CLATTN_INVALID_ARGUMENT, "transport is NULL");
    close_ring();
    clattn_ring_mpi_release(&ring);
    clattn_ring_mpi_release(NULL);
    clattn_ring_mpi_abort(NULL);
}

/* A rank that comes too late: nobody gets a ring. */
static void a_ring_without_all_ranks_is_refused(void **state) {
    (void)state;
    MPI_Comm other = MPI_COMM_NULL;
    clattn_ring_mpi *none = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (rank == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    expect_refusal(clattn_ring_mpi_create(other, 200, &none), CLATTN_PEER_FAILED, "within 0.2 s");
    if (rank != 0)
        MPI_Barrier(MPI_COMM_WORLD);
    assert_null(none);
}

static void *call_from_elsewhere(void *argument) {
    clattn_ring_mpi *other = NULL;
    (void)argument;
    expect_refusal(clattn_ring_mpi_create(MPI_COMM_WORLD, 0, &other), CLATTN_INVALID_ARGUMENT, "another thread");
    expect_failure(largest(1), "by another thread than this one");
    clattn_ring_mpi_abort(ring);
    other = ring;
    clattn_ring_mpi_release(&other);
    assert_ptr_equal(other, ring);
    return NULL;
}

static void other_threads_are_refused(void **state) {
    (void)state;
    pthread_t thread;
    open_ring(MINUTE);
    assert_int_equal(pthread_create(&thread, NULL, call_from_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(largest(1), CLATTN_SUCCESS);
    close_ring();
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void a_message_beyond_two_gigabytes(void **state) {
    (void)state;
    const size_t bytes = ((size_t)1 << 31) + ((size_t)1 << 30) + 5;
    unsigned char *memory = calloc(1, bytes);
    void *request = NULL;
    const clattn_ring_message message = {0, 1, 0, memory, memory, rank == 0 ? bytes : 0, rank == 1 ? bytes : 0};
    assert_non_null(memory);
    for (size_t i = 0; rank == 0 && i < bytes; i += 65521)
        memory[i] = byte_of(0, i);
    open_ring(MINUTE);
    assert_int_equal(transport.begin(transport.user, &message, &request), CLATTN_SUCCESS);
    assert_int_equal(transport.wait(transport.user, request), CLATTN_SUCCESS);
    for (size_t i = 0; rank == 1 && i < bytes; i += 65521)
        assert_int_equal(memory[i], byte_of(0, i));
    assert_int_equal(largest(1), CLATTN_SUCCESS);
    close_ring();
    free(memory);
}

static void too_low_a_level_is_refused(void **state) {
    (void)state;
    expect_refusal(clattn_ring_mpi_create(MPI_COMM_WORLD, 0, &ring), CLATTN_INVALID_ARGUMENT, "MPI_THREAD_FUNNELED");
}

/* The last ring is still there when MPI ends: nothing but memory is left of it. */
static void a_ring_outlives_mpi(void **state) {
    (void)state;
    expect_failure(largest(1), "MPI has been finalised");
    clattn_ring_mpi_abort(ring);
    close_ring();
    expect_refusal(clattn_ring_mpi_create(MPI_COMM_WORLD, 0, &ring), CLATTN_INVALID_ARGUMENT, "finalised");
}

static int run(const char *mode) {
    const struct CMUnitTest single[] = {cmocka_unit_test(too_low_a_level_is_refused)};
    const struct CMUnitTest large[] = {cmocka_unit_test(a_message_beyond_two_gigabytes)};
    const struct CMUnitTest all[] = {
        cmocka_unit_test(the_largest_of_each_value),
        cmocka_unit_test(messages_of_any_size),
        cmocka_unit_test(two_rings_do_not_meet),
        cmocka_unit_test(a_rank_that_does_not_come_is_not_waited_for),
        cmocka_unit_test(a_rank_that_aborts_ends_the_calls_of_all),
        cmocka_unit_test(a_rank_that_leaves_in_a_transfer),
        cmocka_unit_test(sizes_that_disagree),
        cmocka_unit_test(bad_messages_are_refused_everywhere),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(a_ring_without_all_ranks_is_refused),
        cmocka_unit_test(other_threads_are_refused),
    };
    const struct CMUnitTest last[] = {cmocka_unit_test(a_ring_outlives_mpi)};
    if (strcmp(mode, "single") == 0)
        return cmocka_run_group_tests(single, NULL, NULL);
    if (strcmp(mode, "large") == 0)
        return cmocka_run_group_tests(large, NULL, NULL);
    int failed = cmocka_run_group_tests(all, NULL, NULL);
    open_ring(MINUTE);
    MPI_Finalize();
    return failed + cmocka_run_group_tests(last, NULL, NULL);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    int level = 0, ended = 0;
    if (clattn_ring_mpi_create(MPI_COMM_WORLD, 0, &ring) != CLATTN_INVALID_ARGUMENT)
        return EXIT_FAILURE; /* MPI has not begun */
    if (strcmp(mode, "single") == 0)
        MPI_Init(NULL, NULL);
    else
        MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int failed = run(mode);
    MPI_Finalized(&ended);
    if (!ended)
        MPI_Finalize();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
