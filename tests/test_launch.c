/* Launches on the fake driver: arguments, the order of commands on both kinds of queue, events, failures. */
#include "fake_context.h"
#include "launch.h"
#include "status.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMMANDS 3
#define THREADS 8
#define CALLS 200

static int setup(void **state) {
    *state = fake_fixture_new(1);
    return 0;
}

static int teardown(void **state) {
    fake_fail_function(NULL, CL_SUCCESS);
    fake_fail_nth(0, CL_SUCCESS);
    fake_fixture_free(*state);
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_misuse(), 0);
    return 0;
}

static struct program *program_a(struct fake_fixture *fixture) {
    struct program *program = NULL;
    const struct program_key key = {"a.cl", "a", ""};
    assert_int_equal(program_get(&fixture->context, &key, &program), CLATTN_SUCCESS);
    return program;
}

static clattn_status launch_one(struct program *program, struct sequence *sequence, int32_t value) {
    const size_t groups[1] = {4}, local[1] = {32};
    struct launch launch;
    launch_begin(&launch, program);
    launch_int(&launch, value);
    return launch_enqueue(&launch, sequence, 1, groups, local);
}

static clattn_status enqueue_all(struct program *program, struct sequence *sequence) {
    for (int i = 0; i < COMMANDS; i++)
        FORWARD(launch_one(program, sequence, i));
    return CLATTN_SUCCESS;
}

/* A call of several commands, as a front-end writes it. */
static clattn_status call(struct fake_fixture *fixture, struct program *program, const clattn_launch *launch) {
    struct sequence sequence;
    sequence_begin(&sequence, &fixture->context, launch, COMMANDS);
    const clattn_status status = enqueue_all(program, &sequence);
    sequence_end(&sequence);
    return status;
}

static cl_event some_event(struct fake_fixture *fixture) {
    cl_event event = NULL;
    assert_int_equal(clEnqueueMarkerWithWaitList(fixture->queue, 0, NULL, &event), CL_SUCCESS);
    return event;
}

/* ---- one launch ---------------------------------------------------------------------------------------------------
 */

static void launch_init_gives_defaults(void **state) {
    struct fake_fixture *fixture = *state;
    clattn_launch launch, zero;
    memset(&launch, 0xff, sizeof launch);
    memset(&zero, 0, sizeof zero);
    clattn_launch_init(&launch, fixture->queue);
    assert_int_equal(launch.size, sizeof launch);
    assert_ptr_equal(launch.queue, fixture->queue);
    zero.size = sizeof zero;
    zero.queue = fixture->queue;
    assert_memory_equal(&launch, &zero, sizeof zero);
}

static void assert_argument(const struct fake_command *command, int index, const void *value, size_t size) {
    assert_int_equal(command->argument[index].size, size);
    assert_false(command->argument[index].null);
    assert_memory_equal(command->argument[index].bytes, value, size);
}

static void arguments_arrive_in_order(void **state) {
    struct fake_fixture *fixture = *state;
    struct {
        int32_t a[5];
    } block = {{1, 2, 3, 4, 5}};
    const cl_mem buffer = (cl_mem)(uintptr_t)0x1234, none = NULL;
    const int32_t small = -7;
    const int64_t large = INT64_MIN + 5;
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    struct sequence sequence;
    sequence_begin(&sequence, &fixture->context, &options, 1);
    struct launch launch;
    launch_begin(&launch, program_a(fixture));
    launch_buffer(&launch, buffer);
    launch_buffer(&launch, none);
    launch_int(&launch, small);
    launch_long(&launch, large);
    launch_struct(&launch, &block, sizeof block);
    const size_t groups[3] = {5, 6, 7}, local[3] = {4, 2, 8};
    assert_int_equal(launch_enqueue(&launch, &sequence, 3, groups, local), CLATTN_SUCCESS);
    sequence_end(&sequence);
    assert_int_equal(fake_command_count(), 1);
    const struct fake_command *command = fake_command(0);
    assert_int_equal(command->kind, FAKE_KERNEL);
    assert_string_equal(command->kernel, "a");
    assert_argument(command, 0, (const void *)&buffer, sizeof buffer);
    assert_argument(command, 1, (const void *)&none, sizeof none);
    assert_argument(command, 2, &small, sizeof small);
    assert_argument(command, 3, &large, sizeof large);
    assert_argument(command, 4, &block, sizeof block);
    assert_int_equal(command->argument[5].size, 0);
    assert_int_equal(command->dims, 3);
    const size_t global[3] = {20, 12, 56};
    assert_memory_equal(command->global, global, sizeof global);
    assert_memory_equal(command->local, local, sizeof local);
    assert_int_equal(fixture->context.launches, 1);
}

static void a_single_command_makes_no_event(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = program_a(fixture);
    clattn_launch options;
    clattn_launch_init(&options, fixture->unordered);
    const int queries = fake_calls("clGetCommandQueueInfo");
    struct sequence sequence;
    sequence_begin(&sequence, &fixture->context, &options, 1);
    const long live = fake_live();
    assert_int_equal(launch_one(program, &sequence, 0), CLATTN_SUCCESS);
    assert_null(fake_command(0)->event);
    assert_int_equal(fake_command(0)->waits, 0);
    assert_int_equal(fake_live(), live);
    assert_int_equal(fake_calls("clGetCommandQueueInfo"), queries);
    sequence_end(&sequence);
}

static void a_group_above_the_limit_is_refused(void **state) {
    struct fake_fixture *fixture = *state;
    fake_device[0].kernel_max_group = 31;
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    assert_int_equal(call(fixture, program_a(fixture), &options), CLATTN_INTERNAL_ERROR);
    assert_non_null(strstr(clattn_last_error(), "a of a.cl: work-group of 32 work-items, the kernel's limit is 31"));
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(fixture->context.launches, 0);
}

static void a_bad_argument_is_numbered(void **state) {
    struct fake_fixture *fixture = *state;
    static const char big[FAKE_ARGUMENT_BYTES + 1];
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    struct sequence sequence;
    sequence_begin(&sequence, &fixture->context, &options, 1);
    struct launch launch;
    launch_begin(&launch, program_a(fixture));
    launch_int(&launch, 1);
    launch_struct(&launch, big, sizeof big);
    launch_int(&launch, 2);
    const size_t one[1] = {1};
    assert_int_equal(launch_enqueue(&launch, &sequence, 1, one, one), CLATTN_OPENCL_ERROR);
    assert_string_equal(clattn_last_error(), "argument 1 of kernel a of a.cl: CL_INVALID_ARG_SIZE (-51)");
    sequence_end(&sequence);
    assert_int_equal(fake_command_count(), 0);
}

/* ---- the sequence -------------------------------------------------------------------------------------------------
 */

static void check_caller_events(struct fake_fixture *fixture, cl_command_queue queue, bool chained) {
    struct program *program = program_a(fixture);
    const cl_event waits[2] = {some_event(fixture), some_event(fixture)};
    const int first = fake_command_count();
    cl_event event = NULL;
    clattn_launch options;
    clattn_launch_init(&options, queue);
    options.num_events_in_wait_list = 2;
    options.event_wait_list = waits;
    options.event = &event;
    assert_int_equal(call(fixture, program, &options), CLATTN_SUCCESS);
    assert_int_equal(fake_command_count(), first + COMMANDS);
    assert_int_equal(fake_command(first)->waits, 2);
    assert_memory_equal(fake_command(first)->wait, waits, sizeof waits);
    for (int i = 1; i < COMMANDS; i++) {
        assert_int_equal(fake_command(first + i)->waits, chained ? 1 : 0);
        if (chained)
            assert_ptr_equal(fake_command(first + i)->wait[0], fake_command(first + i - 1)->event);
        else
            assert_null(fake_command(first + i - 1)->event);
    }
    assert_non_null(event);
    assert_ptr_equal(fake_command(first + COMMANDS - 1)->event, event);
    for (int i = 0; i < COMMANDS; i++)
        assert_int_equal(fake_command(first + i)->argument[0].bytes[0], i);
    clReleaseEvent(event);
    clReleaseEvent(waits[0]);
    clReleaseEvent(waits[1]);
}

static void unordered_commands_wait_for_each_other(void **state) {
    struct fake_fixture *fixture = *state;
    check_caller_events(fixture, fixture->unordered, true);
}

static void ordered_commands_need_no_events(void **state) {
    struct fake_fixture *fixture = *state;
    check_caller_events(fixture, fixture->queue, false);
}

/* Where the queue does not say what it is, events keep the order. */
static void unknown_queues_are_chained(void **state) {
    struct fake_fixture *fixture = *state;
    fake_fail_function("clGetCommandQueueInfo", CL_INVALID_VALUE);
    check_caller_events(fixture, fixture->queue, true);
}

static void no_caller_event_leaves_none(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = program_a(fixture);
    clattn_launch options;
    clattn_launch_init(&options, fixture->unordered);
    const long live = fake_live();
    assert_int_equal(call(fixture, program, &options), CLATTN_SUCCESS);
    assert_int_equal(fake_live(), live);
    assert_null(fake_command(COMMANDS - 1)->event);
}

/* A fill between two kernels takes its place in the chain. */
static void foreign_commands_join_the_chain(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = program_a(fixture);
    const cl_mem buffer = clCreateBuffer(fixture->context.cl, CL_MEM_READ_WRITE, 16, NULL, NULL);
    clattn_launch options;
    clattn_launch_init(&options, fixture->unordered);
    struct sequence sequence;
    sequence_begin(&sequence, &fixture->context, &options, COMMANDS);
    assert_int_equal(launch_one(program, &sequence, 1), CLATTN_SUCCESS);
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    const cl_int zero = 0;
    sequence_next(&sequence, &count, &list, &event);
    const cl_int code = clEnqueueFillBuffer(fixture->unordered, buffer, &zero, sizeof zero, 0, 16, count, list, event);
    assert_int_equal(sequence_done(&sequence, code, "clEnqueueFillBuffer"), CLATTN_SUCCESS);
    assert_int_equal(launch_one(program, &sequence, 2), CLATTN_SUCCESS);
    sequence_end(&sequence);
    assert_int_equal(fake_command(1)->kind, FAKE_FILL);
    assert_ptr_equal(fake_command(1)->wait[0], fake_command(0)->event);
    assert_ptr_equal(fake_command(2)->wait[0], fake_command(1)->event);
    assert_int_equal(fixture->context.launches, 2);
    clReleaseMemObject(buffer);
}

static void more_commands_than_announced_are_an_error(void **state) {
    struct fake_fixture *fixture = *state;
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    struct sequence sequence;
    sequence_begin(&sequence, &fixture->context, &options, 1);
    assert_int_equal(sequence_done(&sequence, CL_SUCCESS, "first"), CLATTN_SUCCESS);
    assert_int_equal(sequence_done(&sequence, CL_SUCCESS, "second"), CLATTN_INTERNAL_ERROR);
    sequence_end(&sequence);
}

static void empty_calls_give_their_event(void **state) {
    struct fake_fixture *fixture = *state;
    const cl_event wait = some_event(fixture);
    cl_event event = NULL;
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    assert_int_equal(sequence_empty(&fixture->context, &options), CLATTN_SUCCESS);
    assert_int_equal(fake_command_count(), 1);
    options.num_events_in_wait_list = 1;
    options.event_wait_list = &wait;
    options.event = &event;
    assert_int_equal(sequence_empty(&fixture->context, &options), CLATTN_SUCCESS);
    assert_int_equal(fake_command(1)->kind, FAKE_MARKER);
    assert_ptr_equal(fake_command(1)->wait[0], wait);
    assert_ptr_equal(fake_command(1)->event, event);
    assert_int_equal(fixture->context.launches, 0);
    clReleaseEvent(event);
    clReleaseEvent(wait);
}

/* ---- failures -----------------------------------------------------------------------------------------------------
 */

static const struct {
    cl_int code;
    clattn_status status;
} failures[] = {
    {CL_OUT_OF_HOST_MEMORY, CLATTN_OUT_OF_HOST_MEMORY},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, CLATTN_OUT_OF_DEVICE_MEMORY},
    {-9999, CLATTN_DEVICE_LOST},
    {CL_INVALID_KERNEL_ARGS, CLATTN_OPENCL_ERROR},
};

/* The query about the queue may fail (see above); every other call's failure is the call's. */
static void every_failing_call_gives_its_status(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = program_a(fixture);
    for (size_t f = 0; f < sizeof failures / sizeof failures[0]; f++)
        for (int nth = 1;; nth++) {
            cl_event event = NULL;
            clattn_launch options;
            clattn_launch_init(&options, fixture->unordered);
            options.event = &event;
            const long live = fake_live();
            fake_fail_nth(nth, failures[f].code);
            const clattn_status status = call(fixture, program, &options);
            const bool failed = fake_has_failed();
            fake_fail_nth(0, CL_SUCCESS);
            assert_int_equal(status, failed && nth > 1 ? failures[f].status : CLATTN_SUCCESS);
            if (status == CLATTN_SUCCESS)
                clReleaseEvent(event);
            assert_int_equal(fake_live(), live);
            if (!failed) {
                assert_int_equal(nth, 1 + 2 * COMMANDS + 1);
                break;
            }
        }
}

static void a_dead_queue_means_a_lost_device(void **state) {
    struct fake_fixture *fixture = *state;
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    struct program *program = program_a(fixture);
    fake_fail_function("clEnqueueNDRangeKernel", CL_INVALID_COMMAND_QUEUE);
    assert_int_equal(call(fixture, program, &options), CLATTN_DEVICE_LOST);
    assert_string_equal(clattn_last_error(), "a of a.cl: CL_INVALID_COMMAND_QUEUE (-36)");
}

static void a_missing_kernel_object_is_the_launchs_failure(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = program_a(fixture);
    cl_kernel held;
    assert_int_equal(program_acquire_kernel(program, &held), CLATTN_SUCCESS);
    fake_fail_function("clCreateKernel", CL_OUT_OF_RESOURCES);
    clattn_launch options;
    clattn_launch_init(&options, fixture->queue);
    assert_int_equal(call(fixture, program, &options), CLATTN_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(fake_command_count(), 0);
    program_release_kernel(program, held);
}

/* ---- threads ------------------------------------------------------------------------------------------------------
 */

struct thread_work {
    struct fake_fixture *fixture;
    int32_t value;
    clattn_status status;
};

static void *launch_many(void *user) {
    struct thread_work *work = user;
    clattn_launch options;
    clattn_launch_init(&options, work->fixture->unordered);
    struct program *program = NULL;
    const struct program_key key = {"a.cl", "a", ""};
    work->status = program_get(&work->fixture->context, &key, &program);
    for (int i = 0; i < CALLS && work->status == CLATTN_SUCCESS; i++) {
        struct sequence sequence;
        sequence_begin(&sequence, &work->fixture->context, &options, 1);
        struct launch launch;
        launch_begin(&launch, program);
        launch_int(&launch, work->value);
        launch_int(&launch, -work->value);
        const size_t one[1] = {1};
        work->status = launch_enqueue(&launch, &sequence, 1, one, one);
        sequence_end(&sequence);
    }
    return NULL;
}

static void threads_do_not_mix_their_arguments(void **state) {
    struct fake_fixture *fixture = *state;
    pthread_t threads[THREADS];
    struct thread_work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct thread_work){.fixture = fixture, .value = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, launch_many, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].status, CLATTN_SUCCESS);
    }
    int seen[THREADS + 1] = {0};
    assert_int_equal(fake_command_count(), THREADS * CALLS);
    for (int i = 0; i < fake_command_count(); i++) {
        int32_t value, negative;
        memcpy(&value, fake_command(i)->argument[0].bytes, sizeof value);
        memcpy(&negative, fake_command(i)->argument[1].bytes, sizeof negative);
        assert_int_equal(negative, -value);
        seen[value]++;
    }
    for (int i = 1; i <= THREADS; i++)
        assert_int_equal(seen[i], CALLS);
    assert_int_equal(fixture->context.launches, THREADS * CALLS);
    assert_true(fake_calls("clCreateKernel") <= THREADS);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(launch_init_gives_defaults),
        TEST(arguments_arrive_in_order),
        TEST(a_single_command_makes_no_event),
        TEST(a_group_above_the_limit_is_refused),
        TEST(a_bad_argument_is_numbered),
        TEST(unordered_commands_wait_for_each_other),
        TEST(ordered_commands_need_no_events),
        TEST(unknown_queues_are_chained),
        TEST(no_caller_event_leaves_none),
        TEST(foreign_commands_join_the_chain),
        TEST(more_commands_than_announced_are_an_error),
        TEST(empty_calls_give_their_event),
        TEST(every_failing_call_gives_its_status),
        TEST(a_dead_queue_means_a_lost_device),
        TEST(a_missing_kernel_object_is_the_launchs_failure),
        TEST(threads_do_not_mix_their_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
