/* Attention over ranks that are processes: equal to that of one device, in less memory the more there are; and a rank
 * that fails, anywhere, makes all of them return. Usage: test_ring_mpi [killed], by mpirun with 2 to 4 ranks. */
#include "ring_harness.h"

#include <clattn/ring_mpi.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SECONDS = 10, TIMEOUT_MS = 300000 };

static int own, ranks;
static clattn_ring_mpi *ring;
static clattn_ring_group *no_group;
static clattn_ring_transport transport;

static void sum(double *values, int64_t count) {
    MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static struct ring_process process = {.transport = &transport, .sum = sum};

static int open_ring(void **state) {
    if (clattn_ring_mpi_create(MPI_COMM_WORLD, TIMEOUT_MS, &ring) != CLATTN_SUCCESS ||
        clattn_ring_mpi_transport(ring, &transport) != CLATTN_SUCCESS)
        fail_msg("rank %d: %s", own, clattn_ring_mpi_last_error());
    return ring_open(state);
}

static int close_ring(void **state) {
    (void)state;
    clattn_ring_mpi_release(&ring);
    return 0;
}

/* ---- equal to one device ----------------------------------------------------------------------------------------- */

static void check_shape(const struct attention_case *shape, clattn_dtype dtype, clattn_ring_split split) {
    struct ring_problem problem = ring_problem_of(shape, dtype, split, ranks);
    ring_check(&problem);
    ring_problem_free(&problem);
}

static void every_query_sees_the_keys_of_all_ranks(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("full", 2, 45, 61, CLATTN_CAUSAL_NONE);
    check_shape(&shape, CLATTN_F32, CLATTN_RING_CONTIGUOUS);
    check_shape(&shape, CLATTN_F16, CLATTN_RING_ZIGZAG);
}

static void causal_limits_count_in_the_whole_sequence(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("causal", 1, 203, 219, CLATTN_CAUSAL_TOP_LEFT);
    check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG);
    check_shape(&shape, CLATTN_F16, CLATTN_RING_CONTIGUOUS);
}

/* Rank r has the part from r^2 to (r + 1)^2 of ranks^2 of the queries; of the keys the same in reverse, and the first
 * rank's go to the second. */
static void make_unequal(struct ring_problem *problem) {
    const int64_t nq = problem->whole.settings.q.dims[2], nk = problem->whole.settings.k.dims[2];
    const int64_t parts = (int64_t)ranks * ranks;
    memset(problem->q_shards, 0, sizeof problem->q_shards);
    memset(problem->k_shards, 0, sizeof problem->k_shards);
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t other = ranks - 1 - r, first = nk * other * other / parts;
        const int64_t q_first = nq * r * r / parts;
        problem->q_shards[r].pieces[0] = (clattn_ring_piece){q_first, nq * (r + 1) * (r + 1) / parts - q_first};
        problem->k_shards[r > 1 ? r : 1].pieces[r == 0] =
            (clattn_ring_piece){first, nk * (other + 1) * (other + 1) / parts - first};
    }
}

static void shards_may_be_unequal_and_empty(void **state) {
    (void)state;
    const clattn_causal causal[] = {CLATTN_CAUSAL_NONE, CLATTN_CAUSAL_TOP_LEFT};
    for (int c = 0; c < 2; c++) {
        const struct attention_case shape = attention_shape("unequal", 1, 70, 70, causal[c]);
        struct ring_problem problem = ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_CONTIGUOUS, ranks);
        make_unequal(&problem);
        ring_check(&problem);
        ring_problem_free(&problem);
    }
}

static void gradients_under_a_causal_limit(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("causal", 1, 99, 103, CLATTN_CAUSAL_TOP_LEFT);
    const struct attention_data forward = attention_data_random(&shape, CLATTN_F32, 11);
    struct gradient_data data = gradient_data_from(&forward, 12, false);
    struct ring_problem problem = ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, ranks);
    problem.gradients = &data;
    ring_check(&problem);
    ring_problem_free(&problem);
    gradient_data_free(&data);
}

/* Every rank compares its own result, and all have the same bits. */
static void decode_gives_every_rank_the_whole_result(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("one query", 3, 1, 101, CLATTN_CAUSAL_NONE);
    const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16};
    for (int d = 0; d < 2; d++) {
        struct ring_problem problem = ring_decode_of(&shape, dtypes[d], ranks);
        ring_check(&problem);
        ring_problem_free(&problem);
    }
}

/* Of every rank: two blocks of keys and values on either side (of two ranks one on the device, that of the other), and
 * two fp32 results on the device. */
static void memory_falls_as_one_by_ranks(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("sizes", 1, 4096, 4096, CLATTN_CAUSAL_TOP_LEFT);
    struct ring_problem problem = ring_problem_of(&shape, CLATTN_F16, CLATTN_RING_ZIGZAG, ranks);
    const size_t blocks = 2 * 4096 * 2 * (64 + 64) * 2, results = 2 * 4096 * 4 * (64 + 1) * 4;
    const size_t on_device = results + (ranks == 2 ? blocks / 2 : blocks);
    (void)ring_upload(&problem, 0);
    const struct ring_rank *rank = &ring_ranks[own];
    const size_t host = rank->host_bytes * (size_t)ranks, device_bytes = rank->device_bytes * (size_t)ranks;
    printf("rank %d of %d: %zu bytes on the host, %zu on the device\n", own, ranks, rank->host_bytes,
           rank->device_bytes);
    assert_in_range(host, blocks, blocks + blocks / 100);
    assert_in_range(device_bytes, on_device, on_device + on_device / 50);
    ring_release(ranks, &no_group);
    ring_problem_free(&problem);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static struct ring_problem small_problem(void) {
    const struct attention_case shape = attention_shape("small", 1, 24, 24, CLATTN_CAUSAL_TOP_LEFT);
    return ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, ranks);
}

/* All ranks' calls, one of which fails; returns that one's status. */
static clattn_status run_with_failure(int bad) {
    struct ring_rank *rank = &ring_ranks[own];
    const double begin = MPI_Wtime();
    char name[48];
    snprintf(name, sizeof name, "rank %d failed: CLATTN_", bad);
    ring_run(ranks);
    assert_true(MPI_Wtime() - begin < MOST_SECONDS);
    int status = (int)rank->status;
    MPI_Bcast(&status, 1, MPI_INT, bad, MPI_COMM_WORLD);
    if (own != bad)
        assert_int_equal(rank->status, status == CLATTN_SUCCESS ? CLATTN_SUCCESS : CLATTN_PEER_FAILED);
    if (own != bad && status != CLATTN_SUCCESS && strstr(rank->text, name) == NULL)
        fail_msg("rank %d: %s expected: %s", own, name, rank->text);
    return (clattn_status)status;
}

static void a_bad_argument_on_one_rank_makes_all_return(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    (void)ring_upload(&problem, 0);
    struct ring_rank *rank = &ring_ranks[own];
    const struct ring_rank good = *rank;
    for (int bad = 0; bad < ranks; bad++) {
        if (own == bad)
            rank->launch.host_size = 1;
        assert_int_equal(run_with_failure(bad), CLATTN_WORKSPACE_TOO_SMALL);
        rank->launch = good.launch;
    }
    if (own == 1)
        rank->op.attention.q.dims[0] = 7;
    assert_int_equal(run_with_failure(1), CLATTN_INVALID_ARGUMENT);
    rank->op = good.op;
    if (own == 1)
        rank->device.clattn = NULL;
    assert_int_equal(run_with_failure(1), CLATTN_INVALID_ARGUMENT);
    rank->device = good.device;
    assert_int_equal(run_with_failure(1), CLATTN_SUCCESS); /* the ring is as good as before */
    ring_release(ranks, &no_group);
    ring_problem_free(&problem);
}

/* Kernel launches that are left before one is refused, as by a device without resources; negative: none is. */
static int launches_left = -1;

typedef cl_int(CL_API_CALL *launch_function)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                                             const size_t *, cl_uint, const cl_event *, cl_event *);

/* Stands before the loader's. */
__attribute__((visibility("default"))) cl_int CL_API_CALL clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset, const size_t *global,
    const size_t *local, cl_uint count, const cl_event *list, cl_event *event) {
    launch_function real;
    *(void **)&real = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    if (launches_left >= 0 && launches_left-- == 0)
        return CL_OUT_OF_RESOURCES;
    return real(queue, kernel, dims, offset, global, local, count, list, event);
}

static void each_kernel_that_opencl_refuses_makes_all_return(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    clattn_status status = CLATTN_OPENCL_ERROR;
    int failures = 0;
    (void)ring_upload(&problem, 0);
    assert_int_equal(run_with_failure(1), CLATTN_SUCCESS);
    for (; status != CLATTN_SUCCESS; failures++) {
        launches_left = own == 1 ? failures : -1;
        status = run_with_failure(1);
        launches_left = -1;
    }
    printf("rank %d: %d kernels refused, one a call\n", own, failures - 1);
    assert_in_range(failures - 1, ranks, 100); /* a step of the ring has one at least */
    assert_int_equal(run_with_failure(1), CLATTN_SUCCESS);
    ring_release(ranks, &no_group);
    ring_problem_free(&problem);
}

/* What a program does that cannot make its call. */
static void a_rank_that_aborts_makes_all_return(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    (void)ring_upload(&problem, 0);
    const double begin = MPI_Wtime();
    if (own == 1)
        clattn_ring_mpi_abort(ring);
    ring_run(ranks);
    assert_true(MPI_Wtime() - begin < MOST_SECONDS);
    assert_int_equal(ring_ranks[own].status, CLATTN_PEER_FAILED);
    assert_non_null(strstr(ring_ranks[own].text, own == 1 ? "aborted" : "rank 1 has left the ring"));
    ring_release(ranks, &no_group);
    ring_problem_free(&problem);
}

static clattn_status die(void *user, void *request) {
    (void)user;
    (void)request;
    raise(SIGKILL);
    return CLATTN_SUCCESS;
}

/* In the midst of a call, while the others wait for what it has not sent. mpirun ends this process. */
static void a_killed_rank(void **state) {
    (void)state;
    struct ring_problem problem = small_problem();
    (void)ring_upload(&problem, 0);
    ring_run(ranks);
    assert_int_equal(ring_ranks[own].status, CLATTN_SUCCESS);
    printf("rank %d: now one is killed\n", own);
    fflush(stdout);
    if (own == 1)
        ring_ranks[own].transport.wait = die;
    ring_run(ranks);
    assert_int_equal(ring_ranks[own].status, CLATTN_PEER_FAILED);
}

#define RING_TEST(name) cmocka_unit_test_setup_teardown(name, open_ring, close_ring)

static int run(const char *mode) {
    const struct CMUnitTest tests[] = {
        RING_TEST(every_query_sees_the_keys_of_all_ranks),
        RING_TEST(causal_limits_count_in_the_whole_sequence),
        RING_TEST(shards_may_be_unequal_and_empty),
        RING_TEST(gradients_under_a_causal_limit),
        RING_TEST(decode_gives_every_rank_the_whole_result),
        RING_TEST(memory_falls_as_one_by_ranks),
        RING_TEST(a_bad_argument_on_one_rank_makes_all_return),
        RING_TEST(each_kernel_that_opencl_refuses_makes_all_return),
        RING_TEST(a_rank_that_aborts_makes_all_return),
    };
    const struct CMUnitTest killed[] = {RING_TEST(a_killed_rank)};
    if (strcmp(mode, "killed") == 0)
        return support_main("killed", killed, 1);
    return support_main("ring_mpi", tests, sizeof tests / sizeof *tests);
}

int main(int count, char **arguments) {
    int level = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level); /* the harness calls from a thread of its own */
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    process.rank = own;
    ring_process = &process;
    const int status = ranks >= 2 && ranks <= RING_MOST_RANKS ? run(count > 1 ? arguments[1] : "") : EXIT_FAILURE;
    MPI_Finalize();
    return status;
}
