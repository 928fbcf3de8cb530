/* Programs on the fake driver: both caches, failures at every call, first use from many threads. */
#include "fake_context.h"
#include "status.h"
#include "temporary.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 8

static const struct program_key key_a = {"a.cl", "a", "-DELEMENT=1"};

static int setup(void **state) {
    *state = fake_fixture_new(1);
    return 0;
}

static int setup_two_devices(void **state) {
    *state = fake_fixture_new(2);
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

static struct program *get(struct fake_fixture *fixture, const struct program_key *key) {
    struct program *program = NULL;
    assert_int_equal(program_get(&fixture->context, key, &program), CLATTN_SUCCESS);
    assert_non_null(program);
    return program;
}

static void assert_counters(const struct fake_fixture *fixture, uint64_t built, uint64_t loaded) {
    assert_int_equal(fixture->context.programs.built, built);
    assert_int_equal(fixture->context.programs.loaded, loaded);
}

/* ---- the table ----------------------------------------------------------------------------------------------------
 */

static void same_key_same_program(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *first = get(fixture, &key_a);
    const struct program_key copy = {"a.cl", "a", strdup(key_a.options)};
    assert_ptr_equal(get(fixture, &copy), first);
    free((char *)copy.options);
    assert_int_equal(fake_calls("clBuildProgram"), 1);
    assert_counters(fixture, 1, 0);
}

static void every_part_of_the_key_counts(void **state) {
    struct fake_fixture *fixture = *state;
    fake_fixture_write(fixture, "c.cl", "kernel void a(int x) {}\n");
    const struct program_key others[] = {
        {"a.cl", "b", "-DELEMENT=1"}, {"a.cl", "a", "-DELEMENT=2"}, {"c.cl", "a", "-DELEMENT=1"}, {"a.cl", "a", ""}};
    struct program *first = get(fixture, &key_a);
    for (size_t i = 0; i < 4; i++)
        assert_ptr_not_equal(get(fixture, &others[i]), first);
    assert_ptr_equal(get(fixture, &key_a), first);
    assert_counters(fixture, 5, 0);
}

static void many_programs_stay_at_their_addresses(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *programs[200];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 200; i++) {
            char options[32];
            snprintf(options, sizeof options, "-DN=%d", i);
            struct program *program = get(fixture, &(struct program_key){"a.cl", "a", options});
            if (round == 0)
                programs[i] = program;
            assert_ptr_equal(program, programs[i]);
        }
    assert_counters(fixture, 200, 0);
}

static void facts_of_the_program(void **state) {
    struct fake_fixture *fixture = *state;
    fake_device[0].kernel_max_group = 96;
    const struct program *program = get(fixture, &key_a);
    assert_int_equal(program_max_group(program), 96);
    assert_string_equal(program_name(program), "a of a.cl");
}

/* A driver that names a limit below the size that it has accepted to build for. */
static void a_required_size_counts_as_possible(void **state) {
    struct fake_fixture *fixture = *state;
    fake_device[0].kernel_max_group = 32;
    memcpy(fake_device[0].kernel_required_group, (size_t[3]){16, 8, 1}, 3 * sizeof(size_t));
    assert_int_equal(program_max_group(get(fixture, &key_a)), 128);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------
 */

static void kernels_are_used_again(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = get(fixture, &key_a);
    cl_kernel kernels[5];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++)
            assert_int_equal(program_acquire_kernel(program, &kernels[i]), CLATTN_SUCCESS);
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < i; j++)
                assert_ptr_not_equal(kernels[i], kernels[j]);
        for (int i = 0; i < 5; i++)
            program_release_kernel(program, kernels[i]);
    }
    assert_int_equal(fake_calls("clCreateKernel"), 5);
}

static void a_kernel_that_cannot_be_made_is_reported(void **state) {
    struct fake_fixture *fixture = *state;
    struct program *program = get(fixture, &key_a);
    cl_kernel first, second;
    assert_int_equal(program_acquire_kernel(program, &first), CLATTN_SUCCESS);
    fake_fail_function("clCreateKernel", CL_OUT_OF_HOST_MEMORY);
    assert_int_equal(program_acquire_kernel(program, &second), CLATTN_OUT_OF_HOST_MEMORY);
    fake_fail_function(NULL, CL_SUCCESS);
    assert_int_equal(program_acquire_kernel(program, &second), CLATTN_SUCCESS);
    program_release_kernel(program, first);
    program_release_kernel(program, second);
}

/* ---- failures -----------------------------------------------------------------------------------------------------
 */

static void assert_get_fails(struct fake_fixture *fixture, const struct program_key *key, clattn_status status) {
    struct program *program = NULL;
    assert_int_equal(program_get(&fixture->context, key, &program), status);
    assert_null(program);
}

static void assert_text_holds(const char *word) {
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" is not in: %s", word, clattn_last_error());
}

static void a_refused_source_is_reported_and_tried_again(void **state) {
    struct fake_fixture *fixture = *state;
    fake_fixture_write(fixture, "part.clh", "#error no\n");
    assert_get_fails(fixture, &key_a, CLATTN_BUILD_FAILED);
    assert_text_holds("a.cl");
    assert_text_holds("-DELEMENT=1 -DDEVICE_WIDE -cl-std=CL1.2");
    assert_text_holds("CL_BUILD_PROGRAM_FAILURE (-11)");
    assert_text_holds("the source says so");
    fake_settings.no_build_log = true;
    assert_get_fails(fixture, &key_a, CLATTN_BUILD_FAILED);
    assert_text_holds("no build log");
    fake_fail_function("clGetProgramBuildInfo", CL_INVALID_VALUE);
    assert_get_fails(fixture, &key_a, CLATTN_BUILD_FAILED);
    fake_fail_function(NULL, CL_SUCCESS);
    fake_fixture_write(fixture, "part.clh", "fine\n");
    get(fixture, &key_a);
    assert_counters(fixture, 1, 0);
}

static void missing_things_are_named(void **state) {
    struct fake_fixture *fixture = *state;
    assert_get_fails(fixture, &(struct program_key){"none.cl", "a", ""}, CLATTN_INVALID_ARGUMENT);
    assert_text_holds("none.cl");
    assert_text_holds("CLATTN_CL_DIR");
    assert_get_fails(fixture, &(struct program_key){"a.cl", "nothing", ""}, CLATTN_OPENCL_ERROR);
    assert_text_holds("kernel nothing of a.cl: CL_INVALID_KERNEL_NAME");
    char options[4000];
    memset(options, 'x', sizeof options);
    options[sizeof options - 1] = '\0';
    assert_get_fails(fixture, &(struct program_key){"a.cl", "a", options}, CLATTN_INTERNAL_ERROR);
}

static const struct {
    cl_int code;
    clattn_status status;
} failures[] = {
    {CL_OUT_OF_HOST_MEMORY, CLATTN_OUT_OF_HOST_MEMORY},
    {CL_OUT_OF_RESOURCES, CLATTN_OUT_OF_DEVICE_MEMORY},
    {CL_DEVICE_NOT_AVAILABLE, CLATTN_DEVICE_LOST},
    {CL_INVALID_OPERATION, CLATTN_OPENCL_ERROR},
};

/* With the disk cache off, each call of a build matters. */
static void every_failing_call_gives_its_status(void **state) {
    struct fake_fixture *fixture = *state;
    const long live = fake_live();
    for (size_t f = 0; f < sizeof failures / sizeof failures[0]; f++)
        for (int nth = 1;; nth++) {
            fake_fail_nth(nth, failures[f].code);
            struct program *program = NULL;
            const clattn_status status = program_get(&fixture->context, &key_a, &program);
            const bool failed = fake_has_failed();
            fake_fail_nth(0, CL_SUCCESS);
            if (!failed) {
                assert_true(nth > 4);
                assert_int_equal(status, CLATTN_SUCCESS);
                fake_fixture_restart(fixture, false);
                break;
            }
            assert_int_equal(status, failures[f].status);
            assert_int_equal(fake_live(), live);
        }
}

/* With it on, what only the cache needs may fail without harm; warm tells whether there is an entry. */
static void try_every_failure_with_cache(struct fake_fixture *fixture, bool warm) {
    int succeeded = 0, nth = 0;
    for (bool failed = true; failed;) {
        if (!warm) {
            temporary_remove(fixture->cache);
            fixture->cache = temporary_folder();
        }
        fake_fixture_restart(fixture, true);
        const long live = fake_live();
        fake_fail_nth(++nth, CL_OUT_OF_RESOURCES);
        struct program *program = NULL;
        const clattn_status status = program_get(&fixture->context, &key_a, &program);
        failed = fake_has_failed();
        fake_fail_nth(0, CL_SUCCESS);
        succeeded += failed && status == CLATTN_SUCCESS;
        if (status != CLATTN_SUCCESS) {
            assert_int_equal(status, CLATTN_OUT_OF_DEVICE_MEMORY);
            assert_int_equal(fake_live(), live);
        }
        assert_int_equal(program_get(&fixture->context, &key_a, &program), CLATTN_SUCCESS);
    }
    assert_true(succeeded >= 6);
    assert_int_equal(fixture->warnings, 0);
}

static void failures_around_a_cold_cache(void **state) {
    try_every_failure_with_cache(*state, false);
}

static void failures_around_a_warm_cache(void **state) {
    struct fake_fixture *fixture = *state;
    fake_fixture_restart(fixture, true);
    get(fixture, &key_a);
    try_every_failure_with_cache(fixture, true);
}

/* ---- the disk cache -----------------------------------------------------------------------------------------------
 */

static void second_process_builds_nothing(void **state) {
    struct fake_fixture *fixture = *state;
    fake_fixture_restart(fixture, true);
    get(fixture, &key_a);
    assert_counters(fixture, 1, 0);
    fake_fixture_restart(fixture, true);
    get(fixture, &key_a);
    assert_counters(fixture, 0, 1);
    assert_int_equal(fake_calls("clCreateProgramWithSource"), 1);
    assert_int_equal(fake_calls("clCreateProgramWithBinary"), 1);
}

static void expect(struct fake_fixture *fixture, bool hit) {
    fake_fixture_restart(fixture, true);
    get(fixture, &key_a);
    assert_counters(fixture, hit ? 0 : 1, hit ? 1 : 0);
}

/* All that may change the code is in the key; what is changed back hits again. */
static void whatever_changes_the_code_misses(void **state) {
    struct fake_fixture *fixture = *state;
    struct device_facts *facts = &fixture->context.facts;
    expect(fixture, false);
    fake_fixture_write(fixture, "part.clh", "#define PART 2\n");
    expect(fixture, false);
    fake_fixture_write(fixture, "part.clh", "#define PART 1\n");
    expect(fixture, true);
    char *texts[] = {facts->name, facts->vendor_name, facts->driver, facts->platform};
    for (size_t i = 0; i < 4; i++) {
        texts[i][0] ^= 1;
        expect(fixture, false);
        texts[i][0] ^= 1;
        expect(fixture, true);
    }
    facts->build_options = "-DDEVICE_WIDE=2";
    expect(fixture, false);
    facts->build_options = NULL;
    expect(fixture, false);
    facts->build_options = "-DDEVICE_WIDE";
    facts->opencl_1_2 = false;
    expect(fixture, false);
    facts->opencl_1_2 = true;
    fake_settings.platform_version = "OpenCL 1.2 fake 2";
    expect(fixture, false);
    fake_settings.platform_version = "OpenCL 1.2 fake 1";
    expect(fixture, true);
}

static void note_entry(void *user, const char *path, const char *name, uint64_t size, int64_t modified_ns) {
    (void)name, (void)size, (void)modified_ns;
    char **entry = user;
    free(*entry);
    *entry = os_copy_text(path);
}

/* The key of the only entry, from its file's header. */
static struct binary_key key_of_entry(const struct fake_fixture *fixture) {
    char *entry = NULL;
    os_list_files(fixture->cache, note_entry, &entry);
    size_t size = 0;
    char *file = os_read_file(entry, 1 << 20, &size);
    struct binary_key key;
    memcpy(&key.low, file + 16, sizeof key.low);
    memcpy(&key.high, file + 24, sizeof key.high);
    free(file);
    free(entry);
    return key;
}

/* An entry that is sound, of this key, and that the driver refuses. */
static void a_refused_binary_is_replaced(void **state) {
    struct fake_fixture *fixture = *state;
    expect(fixture, false);
    binary_cache_store(&fixture->context.cache, key_of_entry(fixture), "nonsense", 8);
    expect(fixture, false);
    expect(fixture, true);
    fake_fail_function("clCreateProgramWithBinary", CL_INVALID_BINARY);
    expect(fixture, false);
    assert_int_equal(fixture->warnings, 0);
}

static void a_damaged_entry_is_replaced(void **state) {
    struct fake_fixture *fixture = *state;
    expect(fixture, false);
    char *entry = NULL;
    os_list_files(fixture->cache, note_entry, &entry);
    size_t size = 0;
    char *file = os_read_file(entry, 1 << 20, &size);
    file[size - 3] ^= 1;
    assert_true(os_write_file_atomic(entry, file, size));
    expect(fixture, false);
    expect(fixture, true);
    assert_int_equal(fixture->warnings, 0);
    free(file);
    free(entry);
}

/* The context has two devices and clattn uses the second: only its binary counts. */
static void binary_is_that_of_the_contexts_device(void **state) {
    struct fake_fixture *fixture = *state;
    expect(fixture, false);
    expect(fixture, true);
}

/* ---- threads ------------------------------------------------------------------------------------------------------
 */

struct thread_work {
    struct fake_fixture *fixture;
    pthread_barrier_t *barrier;
    const char *kernel;
    struct program *program;
    clattn_status status;
};

static void *first_use(void *user) {
    struct thread_work *work = user;
    const struct program_key key = {"a.cl", work->kernel, "-DELEMENT=1"};
    pthread_barrier_wait(work->barrier);
    work->status = program_get(&work->fixture->context, &key, &work->program);
    for (int i = 0; i < 50 && work->status == CLATTN_SUCCESS; i++) {
        cl_kernel kernel;
        work->status = program_acquire_kernel(work->program, &kernel);
        if (work->status != CLATTN_SUCCESS)
            break;
        /* The fake driver notices a kernel that two threads hold. */
        const size_t one = 1;
        clSetKernelArg(kernel, 0, sizeof i, &i);
        clEnqueueNDRangeKernel(work->fixture->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
        program_release_kernel(work->program, kernel);
    }
    return NULL;
}

static void run_threads(struct fake_fixture *fixture, struct thread_work *work, const char *(*kernel_of)(int)) {
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct thread_work){.fixture = fixture, .barrier = &barrier, .kernel = kernel_of(i)};
        assert_int_equal(pthread_create(&threads[i], NULL, first_use, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static const char *kernel_a(int index) {
    (void)index;
    return "a";
}

static const char *kernel_a_or_b(int index) {
    return index % 2 == 0 ? "a" : "b";
}

static void threads_share_one_build(void **state) {
    struct fake_fixture *fixture = *state;
    fake_settings.build_delay_us = 20000;
    struct thread_work work[THREADS];
    run_threads(fixture, work, kernel_a);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(work[i].status, CLATTN_SUCCESS);
        assert_ptr_equal(work[i].program, work[0].program);
    }
    assert_int_equal(fake_calls("clBuildProgram"), 1);
    assert_counters(fixture, 1, 0);
}

static void threads_build_different_programs_at_once(void **state) {
    struct fake_fixture *fixture = *state;
    fake_settings.builds_meet = 2; /* one after the other they would never meet, and fail */
    struct thread_work work[THREADS];
    run_threads(fixture, work, kernel_a_or_b);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(work[i].status, CLATTN_SUCCESS);
    assert_ptr_not_equal(work[0].program, work[1].program);
    assert_counters(fixture, 2, 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(same_key_same_program),
        TEST(every_part_of_the_key_counts),
        TEST(many_programs_stay_at_their_addresses),
        TEST(facts_of_the_program),
        TEST(a_required_size_counts_as_possible),
        TEST(kernels_are_used_again),
        TEST(a_kernel_that_cannot_be_made_is_reported),
        TEST(a_refused_source_is_reported_and_tried_again),
        TEST(missing_things_are_named),
        TEST(every_failing_call_gives_its_status),
        TEST(failures_around_a_cold_cache),
        TEST(failures_around_a_warm_cache),
        TEST(second_process_builds_nothing),
        TEST(whatever_changes_the_code_misses),
        TEST(a_refused_binary_is_replaced),
        TEST(a_damaged_entry_is_replaced),
        cmocka_unit_test_setup_teardown(binary_is_that_of_the_contexts_device, setup_two_devices, teardown),
        TEST(threads_share_one_build),
        TEST(threads_build_different_programs_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
