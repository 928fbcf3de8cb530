/* Thousands of calls leave nothing behind, and memory that cannot be had is reported. */
#include "child.h"
#include "support.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UP = 500, CALLS = 5000, CONTEXTS = 300 };

static int open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = -3; /* ".", ".." and this one */
    if (!dir)
        return 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* KiB. */
static long resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long total = 0, pages = 0;
    if (file && fscanf(file, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

struct usage {
    int files;
    long kib;
};

static struct usage usage_now(void) {
    return (struct usage){open_files(), resident()};
}

static void no_growth(const char *what, struct usage before, long allowed_kib) {
    const struct usage after = usage_now();
    printf("%s: files %d -> %d, resident %ld -> %ld KiB\n", what, before.files, after.files, before.kib, after.kib);
    if (after.files > before.files)
        fail_msg("%s: %d files were open, now %d", what, before.files, after.files);
    if (after.kib > before.kib + allowed_kib)
        fail_msg("%s: %ld KiB were resident, now %ld", what, before.kib, after.kib);
}

static void call_often(const clattn_op *op, int times, bool with_event) {
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    for (int i = 0; i < times; i++) {
        cl_event event = NULL;
        launch.event = with_event ? &event : NULL;
        CHECK(test_dispatch(device.clattn, op, &launch));
        if (with_event) {
            assert_non_null(event);
            clReleaseEvent(event);
        }
        if (i % 64 == 0)
            CHECK_CL(clFinish(device.queue));
    }
    CHECK_CL(clFinish(device.queue));
}

static void leaves_nothing(const char *what, const clattn_op *op) {
    call_often(op, WARM_UP, true);
    call_often(op, WARM_UP, false);
    const struct usage before = usage_now();
    call_often(op, CALLS / 2, true);
    call_often(op, CALLS / 2, false);
    no_growth(what, before, 2048);
}

/* ---- A69, one operation a test ---- */

static struct test_tensor in(int rank, const int64_t *dims) {
    double zeros[512] = {0};
    return test_input(CLATTN_F32, rank, dims, zeros, NULL, (double)NAN);
}

static const int64_t rows_dims[] = {1, 2, 3, 16};

static void attention_leaves_nothing(void **state) {
    (void)state;
    struct test_tensor q = in(4, rows_dims), o = test_output(CLATTN_F32, 4, rows_dims, NULL);
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = op.k = op.v = q.view;
    op.o = o.view;
    leaves_nothing("attention", &op.head);
    test_release(&q);
    test_release(&o);
}

static void attention_merge_leaves_nothing(void **state) {
    (void)state;
    struct test_tensor part = in(4, rows_dims), part_lse = in(3, rows_dims),
                       o = test_output(CLATTN_F32, 4, rows_dims, NULL);
    const clattn_tensor o_in[] = {part.view, part.view}, lse_in[] = {part_lse.view, part_lse.view};
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    op.count = 2;
    op.o_in = o_in;
    op.lse_in = lse_in;
    op.o = o.view;
    leaves_nothing("attention_merge", &op.head);
    test_release(&part);
    test_release(&part_lse);
    test_release(&o);
}

static void softmax_leaves_nothing(void **state) {
    (void)state;
    struct test_tensor x = in(4, rows_dims), y = test_output(CLATTN_F32, 4, rows_dims, NULL);
    clattn_softmax_op op;
    clattn_softmax_init(&op);
    op.x = x.view;
    op.y = y.view;
    leaves_nothing("softmax", &op.head);
    test_release(&x);
    test_release(&y);
}

static void norm_leaves_nothing(void **state) {
    (void)state;
    struct test_tensor x = in(4, rows_dims), y = test_output(CLATTN_F32, 4, rows_dims, NULL);
    clattn_norm_op op;
    clattn_norm_init(&op);
    op.x = x.view;
    op.y = y.view;
    leaves_nothing("norm", &op.head);
    test_release(&x);
    test_release(&y);
}

static void softmax_merge_leaves_nothing(void **state) {
    (void)state;
    struct test_tensor part = in(3, rows_dims), m = test_output(CLATTN_F32, 3, rows_dims, NULL);
    struct test_tensor l = test_output(CLATTN_F32, 3, rows_dims, NULL);
    const clattn_tensor m_in[] = {part.view, part.view}, l_in[] = {part.view, part.view};
    clattn_softmax_merge_op op;
    clattn_softmax_merge_init(&op);
    op.count = 2;
    op.m_in = m_in;
    op.l_in = l_in;
    op.m = m.view;
    op.l = l.view;
    leaves_nothing("softmax_merge", &op.head);
    test_release(&part);
    test_release(&m);
    test_release(&l);
}

static void gemm_leaves_nothing(void **state) {
    (void)state;
    const int64_t dims[] = {16, 16};
    struct test_tensor a = in(2, dims), c = test_output(CLATTN_F32, 2, dims, NULL);
    clattn_gemm_op op;
    clattn_gemm_init(&op);
    op.a = op.b = a.view;
    op.c = c.view;
    leaves_nothing("gemm", &op.head);
    test_release(&a);
    test_release(&c);
}

static void refused_calls_leave_nothing(void **state) {
    (void)state;
    struct test_tensor q = in(4, rows_dims);
    clattn_attention_op op;
    clattn_launch launch;
    clattn_attention_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.q = op.k = op.v = op.o = q.view;
    struct usage before = {0};
    for (int i = 0; i < CALLS; i++) {
        if (i == WARM_UP)
            before = usage_now();
        assert_int_equal(clattn_attention(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT);
    }
    no_growth("refused calls", before, 1024);
    test_release(&q);
}

static void contexts_leave_nothing(void **state) {
    (void)state;
    struct usage before = {0};
    for (int i = 0; i < CONTEXTS; i++) {
        clattn_context *context = NULL;
        if (i == CONTEXTS / 10)
            before = usage_now();
        CHECK(clattn_context_create(device.context, device.id, NULL, &context));
        clattn_context_release(&context);
        assert_null(context);
        clattn_context_release(&context);
    }
    no_growth("contexts", before, 2048);
}

/* ---- A67: scratch beyond what the device allocates ---- */

/* A variant that wants scratch takes neither less of it nor a claim that the buffer does not keep. */
static void false_workspaces(const clattn_attention_op *op, clattn_launch *launch, cl_ulong limit) {
    size_t bytes = 0;
    const clattn_status status = clattn_workspace_size(device.clattn, &op->head, launch, &bytes);
    printf("%s: %s, %zu of at most %llu bytes\n", launch->variant, clattn_status_name(status), bytes,
           (unsigned long long)limit);
    assert_true(status == CLATTN_SUCCESS || status == CLATTN_UNSUPPORTED || status == CLATTN_OUT_OF_DEVICE_MEMORY);
    if (bytes == 0)
        return;
    cl_mem small = clCreateBuffer(device.context, CL_MEM_READ_WRITE, 4096, NULL, NULL);
    launch->workspace = (clattn_workspace){small, 0, 4096};
    support_expect(clattn_attention(device.clattn, op, launch), CLATTN_WORKSPACE_TOO_SMALL, "a small workspace");
    launch->workspace.size = bytes;
    support_expect(clattn_attention(device.clattn, op, launch), CLATTN_INVALID_ARGUMENT, "a false size");
    clReleaseMemObject(small);
}

/* Scores of 4 heads x 4608 x 4608 in fp32 are 340 MB. The large tensors are outputs of nothing: no call is made. */
static void large_scratch_is_refused_or_avoided(void **state) {
    (void)state;
    const int64_t dims[] = {1, 4, 4608, 64};
    cl_ulong limit = 0;
    size_t bytes = 0;
    double *zeros = test_array(4 * 4608 * 64);
    struct test_tensor q = test_input(CLATTN_F32, 4, dims, zeros, NULL, 0), o = test_output(CLATTN_F32, 4, dims, NULL);
    clattn_attention_op op;
    clattn_launch launch;
    clattn_attention_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.q = op.k = op.v = q.view;
    op.o = o.view;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof limit, &limit, NULL));
    CHECK(clattn_workspace_size(device.clattn, &op.head, NULL, &bytes));
    assert_true(bytes <= limit);
    for (size_t i = 0; i < clattn_variant_count(CLATTN_OP_ATTENTION); i++) {
        launch.variant = clattn_variant_name(CLATTN_OP_ATTENTION, i);
        false_workspaces(&op, &launch, limit);
    }
    test_untouched(&o, "o");
    test_release(&q);
    test_release(&o);
    free(zeros);
    attention_leaves_nothing(state); /* the next calls work */
}

static int limited_memory(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_scratch_is_refused_or_avoided)};
    return support_main("limited memory", tests, 1);
}

static void scratch_under_a_memory_limit(void **state) {
    (void)state;
    const char *const environment[] = {"POCL_MEMORY_LIMIT=1", NULL};
    char output[16384];
    const int status = child_run("limited", environment, output, sizeof output);
    if (status != 0)
        fail_msg("exit status %d: %s", status, output);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_leaves_nothing),     cmocka_unit_test(attention_merge_leaves_nothing),
        cmocka_unit_test(norm_leaves_nothing),          cmocka_unit_test(softmax_leaves_nothing),
        cmocka_unit_test(softmax_merge_leaves_nothing), cmocka_unit_test(gemm_leaves_nothing),
        cmocka_unit_test(refused_calls_leave_nothing),  cmocka_unit_test(contexts_leave_nothing),
        cmocka_unit_test(scratch_under_a_memory_limit),
    };
    if (argc > 1 && strcmp(argv[1], "limited") == 0)
        return limited_memory();
    return support_main("resources", tests, sizeof tests / sizeof tests[0]);
}
