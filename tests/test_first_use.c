/* First use from many threads and in several contexts at once: every result right, every program built once. */
#include "child.h"
#include "quick_call.h"
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8 };

static const struct quick_call different[THREADS] = {
    {16, CLATTN_F32, CLATTN_CAUSAL_NONE},         {24, CLATTN_F32, CLATTN_CAUSAL_NONE},
    {16, CLATTN_F16, CLATTN_CAUSAL_NONE},         {16, CLATTN_BF16, CLATTN_CAUSAL_NONE},
    {16, CLATTN_F32, CLATTN_CAUSAL_BOTTOM_RIGHT}, {20, CLATTN_F32, CLATTN_CAUSAL_NONE},
    {24, CLATTN_F16, CLATTN_CAUSAL_NONE},         {24, CLATTN_BF16, CLATTN_CAUSAL_NONE},
};

/* One OpenCL context with a library context in it. */
struct side {
    cl_device_id id;
    cl_context context;
    clattn_context *clattn;
};

struct worker {
    const struct side *side;
    struct quick_call call;
    pthread_barrier_t *barrier;
    struct quick_result result;
    char text[256];
    bool right;
};

static bool side_open(struct side *side, cl_device_id id) {
    cl_int code = CL_SUCCESS;
    clattn_context_options options;
    clattn_context_options_init(&options);
    options.cache_dir = ""; /* every first use is a build */
    side->id = id;
    side->context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    return code == CL_SUCCESS && clattn_context_create(side->context, id, &options, &side->clattn) == CLATTN_SUCCESS;
}

static void side_close(struct side *side) {
    clattn_context_release(&side->clattn);
    clReleaseContext(side->context);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = clCreateCommandQueue(worker->side->context, worker->side->id, 0, &code);
    pthread_barrier_wait(worker->barrier);
    worker->result = quick_run(worker->side->context, queue, worker->side->clattn, &worker->call);
    snprintf(worker->text, sizeof worker->text, "%s", clattn_last_error());
    worker->right = quick_is_right(&worker->call, &worker->result);
    clReleaseCommandQueue(queue);
    return NULL;
}

/* Runs all workers at once; true where all were right. */
static bool run_workers(struct worker *workers) {
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    bool right = true;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i].barrier = &barrier;
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            abort();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < THREADS; i++)
        if (!workers[i].right) {
            printf("thread %d: %s: %s\n", i, clattn_status_name(workers[i].result.status), workers[i].text);
            right = false;
        }
    return right;
}

static uint64_t built(const struct side *side) {
    clattn_statistics statistics = {.size = sizeof statistics};
    (void)clattn_context_statistics(side->clattn, &statistics);
    return statistics.programs_built;
}

/* Eight threads make the same first call, then eight different ones, then half of them on another context. */
static bool all_stages(cl_device_id id) {
    struct worker workers[THREADS] = {0};
    struct side first, second;
    bool right = side_open(&first, id) && side_open(&second, id);
    for (int i = 0; i < THREADS; i++) {
        workers[i].side = &first;
        workers[i].call = different[0];
    }
    right = right && run_workers(workers);
    const uint64_t once = built(&first);
    for (int i = 0; i < THREADS; i++)
        workers[i].call = different[i];
    right = right && run_workers(workers);
    for (int i = 0; i < THREADS; i += 2)
        workers[i].side = &second;
    right = right && run_workers(workers);
    printf("one call built %d programs\n", (int)once);
    side_close(&first);
    side_close(&second);
    return right;
}

static int in_a_child(void) {
    cl_device_id id;
    if (!quick_device(&id))
        return 77;
    return all_stages(id) ? 0 : 1;
}

/* A63. CLATTN_TEST_PROCESSES=200 for the whole of it. */
static void many_threads_in_fresh_processes(void **state) {
    (void)state;
    const char *wish = getenv("CLATTN_TEST_PROCESSES");
    const int processes = wish && *wish ? atoi(wish) : 3;
    char output[4096];
    for (int i = 0; i < processes; i++) {
        const int status = child_run("threads", NULL, output, sizeof output);
        if (status != 0)
            fail_msg("process %d: exit status %d: %s", i, status, output);
    }
}

/* Threads that want the same program wait for one build. */
static void one_build_for_all_threads(void **state) {
    (void)state;
    struct worker workers[THREADS] = {0};
    struct side alone, shared;
    assert_true(side_open(&alone, device.id) && side_open(&shared, device.id));
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = clCreateCommandQueue(alone.context, alone.id, 0, &code);
    const struct quick_result result = quick_run(alone.context, queue, alone.clattn, &different[0]);
    assert_true(quick_is_right(&different[0], &result));
    for (int i = 0; i < THREADS; i++) {
        workers[i].side = &shared;
        workers[i].call = different[0];
    }
    assert_true(run_workers(workers));
    assert_int_equal(built(&shared), built(&alone));
    clReleaseCommandQueue(queue);
    side_close(&alone);
    side_close(&shared);
}

/* A59: two contexts of one device, taking turns. */
static void contexts_do_not_share_programs(void **state) {
    (void)state;
    struct side sides[2];
    struct quick_result results[4];
    for (int i = 0; i < 2; i++)
        assert_true(side_open(&sides[i], device.id));
    for (int i = 0; i < 4; i++) {
        cl_int code = CL_SUCCESS;
        const struct side *side = &sides[i % 2];
        cl_command_queue queue = clCreateCommandQueue(side->context, side->id, 0, &code);
        results[i] = quick_run(side->context, queue, side->clattn, &different[0]);
        support_expect(results[i].status, CLATTN_SUCCESS, "a call in turn");
        assert_true(quick_is_right(&different[0], &results[i]));
        assert_memory_equal(results[i].o, results[0].o, sizeof results[0].o);
        clReleaseCommandQueue(queue);
    }
    for (int i = 0; i < 2; i++)
        side_close(&sides[i]);
}

/* A59's second half: a thread for each of two contexts, over and over. */
static void a_thread_for_each_context(void **state) {
    (void)state;
    struct side sides[2];
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < 2; i++)
        assert_true(side_open(&sides[i], device.id));
    for (int i = 0; i < THREADS; i++) {
        workers[i].side = &sides[i % 2];
        workers[i].call = different[0];
    }
    for (int round = 0; round < 20; round++)
        assert_true(run_workers(workers));
    for (int i = 0; i < 2; i++)
        side_close(&sides[i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_in_fresh_processes),
        cmocka_unit_test(one_build_for_all_threads),
        cmocka_unit_test(contexts_do_not_share_programs),
        cmocka_unit_test(a_thread_for_each_context),
    };
    if (argc > 1 && strcmp(argv[1], "threads") == 0)
        return in_a_child();
    return support_main("first use", tests, sizeof tests / sizeof tests[0]);
}
