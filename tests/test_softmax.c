/* The softmax family against the oracle: every function and variant, every pair of dtypes, any axis and strides, in
 * place, and buffers that just fit. */
#include "softmax_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void functions_by_every_variant(void **state) {
    (void)state;
    struct softmax_problem problem = softmax_rows(3, 777);
    softmax_fill_normal(&problem, 1, 4);
    for (int f = CLATTN_SOFTMAX; f <= CLATTN_SOFTMAX_STATE; f++) {
        problem.function = (clattn_softmax_function)f;
        softmax_check(&problem, f == CLATTN_SOFTMAX ? EVERY_WAY : EVERY_VARIANT);
    }
    softmax_free(&problem);
}

static void long_rows(void **state) {
    (void)state;
    struct softmax_problem problem = softmax_rows(2, 40001);
    softmax_fill_normal(&problem, 2, 4);
    for (int f = CLATTN_SOFTMAX; f <= CLATTN_SOFTMAX_STATE; f++) {
        problem.function = (clattn_softmax_function)f;
        softmax_check_way(&problem, (struct softmax_way){NULL, NULL});
        softmax_check_way(&problem, (struct softmax_way){"online", NULL});
    }
    softmax_free(&problem);
}

static void every_pair_of_dtypes(void **state) {
    (void)state;
    for (int in = CLATTN_F32; in <= CLATTN_BF16; in++)
        for (int out = CLATTN_F32; out <= CLATTN_BF16; out++) {
            struct softmax_problem problem = softmax_rows(5, 512);
            softmax_set_dtypes(&problem, (clattn_dtype)in, (clattn_dtype)out);
            softmax_fill_normal(&problem, 3, 2);
            softmax_check_way(&problem, (struct softmax_way){NULL, NULL});
            problem.function = in == out ? CLATTN_LOG_SOFTMAX : CLATTN_SOFTMAX;
            if (in == out || out == CLATTN_F32)
                softmax_check_way(&problem, (struct softmax_way){"online", NULL});
            softmax_free(&problem);
        }
}

static void any_axis(void **state) {
    static const int64_t dims[] = {3, 4, 5, 6};
    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        struct softmax_problem problem = softmax_of(4, dims, axis);
        softmax_fill_normal(&problem, 10 + (uint64_t)axis, 2);
        softmax_check_way(&problem, (struct softmax_way){NULL, NULL});
        problem.function = CLATTN_SOFTMAX_STATE;
        softmax_check_way(&problem, (struct softmax_way){"online", NULL});
        softmax_free(&problem);
    }
}

static void long_axis_that_is_not_the_last(void **state) {
    static const int64_t dims[] = {2, 1500, 3};
    (void)state;
    struct softmax_problem problem = softmax_of(3, dims, 1);
    softmax_fill_normal(&problem, 20, 3);
    softmax_check(&problem, EVERY_VARIANT);
    softmax_free(&problem);
}

/* Gaps in x hold NaN; gaps in y must stay. */
static void strides_and_offsets(void **state) {
    static const int64_t dims[] = {2, 3, 65};
    static const struct test_layout gaps = {3, {1000, 200, 2}}, transposed = {7, {1, 4, 16}},
                                    padded = {8, {400, 96, 1}}, repeated = {5, {0, 70, 1}};
    (void)state;
    struct softmax_problem problem = softmax_of(3, dims, 2);
    softmax_fill_normal(&problem, 30, 3);
    problem.x_layout = &gaps;
    problem.y_layout = &transposed;
    softmax_check(&problem, EVERY_VARIANT);
    problem.x_layout = problem.y_layout = &padded;
    softmax_check(&problem, EVERY_VARIANT);
    for (int i = 0; i < 3 * 65; i++)
        problem.x[3 * 65 + i] = problem.x[i];
    problem.x_layout = &repeated;
    problem.y_layout = NULL;
    softmax_check_way(&problem, (struct softmax_way){NULL, NULL});
    softmax_free(&problem);
}

/* Where a tensor starts must not change a bit of a variant that does not depend on alignment. */
static void offsets_agree(void **state) {
    static const struct test_layout aligned = {0, {300, 1}}, shifted = {1, {301, 1}};
    static const struct softmax_way scalar = {"online", "team=1,group=1,vector=1"};
    (void)state;
    struct softmax_problem problem = softmax_rows(4, 300);
    double *a = test_array(1200), *b = test_array(1200);
    softmax_fill_normal(&problem, 40, 3);
    problem.x_layout = problem.y_layout = &aligned;
    softmax_run(&problem, scalar, a, NULL);
    problem.x_layout = problem.y_layout = &shifted;
    softmax_run(&problem, scalar, b, NULL);
    assert_memory_equal(a, b, 1200 * sizeof *a);
    free(a);
    free(b);
    softmax_free(&problem);
}

static void in_place(void **state) {
    static const int64_t dims[] = {2, 70, 9};
    (void)state;
    struct softmax_problem rows = softmax_rows(3, 1000), columns = softmax_of(3, dims, 1);
    rows.in_place = columns.in_place = true;
    softmax_fill_normal(&rows, 50, 3);
    softmax_fill_normal(&columns, 51, 3);
    for (int f = CLATTN_SOFTMAX; f <= CLATTN_LOG_SOFTMAX; f++) {
        rows.function = columns.function = (clattn_softmax_function)f;
        softmax_check(&rows, f == CLATTN_SOFTMAX ? EVERY_WAY : EVERY_VARIANT);
        softmax_check_way(&columns, (struct softmax_way){NULL, NULL});
    }
    softmax_free(&rows);
    softmax_free(&columns);
}

/* ---- buffers that just fit, and refusals ---- */

/* Softmax of a view [2, 3] with rows 5 apart, or a column of 3 elements 2 apart, in a buffer of so many elements. */
static clattn_status run_in(int64_t elements, const clattn_tensor *shape) {
    cl_int code = CL_SUCCESS;
    const cl_float zero = 0;
    clattn_softmax_op op;
    clattn_launch launch;
    clattn_softmax_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.x = *shape;
    op.x.memory.kind = CLATTN_MEMORY_BUFFER;
    op.x.memory.as.buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, (size_t)elements * 4, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    CHECK_CL(
        clEnqueueFillBuffer(device.queue, op.x.memory.as.buffer, &zero, 4, 0, (size_t)elements * 4, 0, NULL, NULL));
    op.y = op.x;
    const clattn_status status = clattn_softmax(device.clattn, &op, &launch);
    float last = 0;
    CHECK_CL(clEnqueueReadBuffer(device.queue, op.x.memory.as.buffer, CL_TRUE, (size_t)(elements - 1) * 4, 4, &last, 0,
                                 NULL, NULL));
    assert_true(status == CLATTN_SUCCESS ? fabsf(last - 1.0f / 3) < 1e-6f : last == 0);
    clReleaseMemObject(op.x.memory.as.buffer);
    return status;
}

static void buffers_that_just_fit(void **state) {
    (void)state;
    clattn_tensor view = {.dtype = CLATTN_F32, .rank = 2, .dims = {2, 3}, .strides = {5, 1}};
    support_expect(run_in(8, &view), CLATTN_SUCCESS, "8 elements");
    support_expect(run_in(7, &view), CLATTN_INVALID_ARGUMENT, "7 elements");
    view.offset = 1;
    support_expect(run_in(9, &view), CLATTN_SUCCESS, "9 elements");
    support_expect(run_in(8, &view), CLATTN_INVALID_ARGUMENT, "8 elements from 1");
    const clattn_tensor column = {.offset = 1, .dtype = CLATTN_F32, .rank = 1, .dims = {3}, .strides = {2}};
    support_expect(run_in(6, &column), CLATTN_SUCCESS, "a column in 6 elements");
    support_expect(run_in(5, &column), CLATTN_INVALID_ARGUMENT, "a column in 5 elements");
}

static void overlapping_is_refused(void **state) {
    (void)state;
    const int64_t dims[] = {4, 8};
    double values[32] = {0};
    struct test_tensor x = test_input(CLATTN_F32, 2, dims, values, NULL, NAN);
    clattn_softmax_op op;
    clattn_launch launch;
    clattn_softmax_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.x = op.y = x.view;
    op.y.offset++;
    support_expect(clattn_softmax(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, "y shifted over x");
    assert_non_null(strstr(clattn_last_error(), "y"));
    op.y = x.view;
    op.m = x.view;
    support_expect(clattn_softmax(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, "m beside y");
    test_untouched(&x, "x");
    test_release(&x);
}

/* Rows of one element, whose states have x's dims. */
static void states_in_x_are_refused(void **state) {
    (void)state;
    const int64_t dims[] = {4, 1};
    double values[4] = {0};
    struct test_tensor x = test_input(CLATTN_F32, 2, dims, values, NULL, NAN);
    struct test_tensor other = test_output(CLATTN_F32, 2, dims, NULL);
    clattn_softmax_op op;
    clattn_launch launch;
    clattn_softmax_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.function = CLATTN_SOFTMAX_STATE;
    op.x = op.m = x.view;
    op.l = other.view;
    support_expect(clattn_softmax(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, "m is x");
    assert_non_null(strstr(clattn_last_error(), "m"));
    op.m = other.view;
    op.l = x.view;
    support_expect(clattn_softmax(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, "l is x");
    test_untouched(&x, "x");
    test_release(&x);
    test_release(&other);
}

static bool variant_runs(const clattn_op *op, const char *variant) {
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    launch.variant = variant;
    return clattn_supported(device.clattn, op, &launch) == CLATTN_SUCCESS;
}

static void bad_parameters_are_refused(void **state) {
    static const char *const bad[] = {"team=3", "vector=2", "vector=16", "group=100000", "tile=4"};
    (void)state;
    struct softmax_problem problem = softmax_rows(4, 64);
    struct test_tensor x = test_input(CLATTN_F32, 2, problem.dims, problem.x, NULL, NAN);
    clattn_softmax_op op;
    clattn_launch launch;
    clattn_softmax_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.x = op.y = x.view;
    launch.variant = "online";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        launch.parameters = bad[i];
        support_expect(clattn_softmax(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, bad[i]);
    }
    launch.variant = "split_held";
    launch.parameters = "packets=-4"; /* not as if it were not given, where a tuning row has one */
    if (variant_runs(&op.head, launch.variant))
        support_expect(clattn_softmax(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, launch.parameters);
    test_untouched(&x, "x");
    test_release(&x);
    softmax_free(&problem);
}

static size_t workspace_of(const clattn_op *op, const char *variant, const char *parameters) {
    clattn_launch launch;
    size_t bytes = 0;
    clattn_launch_init(&launch, device.queue);
    launch.variant = variant;
    launch.parameters = parameters;
    CHECK(clattn_workspace_size(device.clattn, op, &launch, &bytes));
    return bytes;
}

/* A state per chunk is kept, so that the workspace tells how long chunks are. */
static void parameters_of_chunks_take_effect(void **state) {
    (void)state;
    struct softmax_problem problem = softmax_rows(2, 20000);
    struct test_tensor x = test_input(CLATTN_F32, 2, problem.dims, problem.x, NULL, 0);
    clattn_softmax_op op;
    clattn_softmax_init(&op);
    op.x = op.y = x.view;
    if (variant_runs(&op.head, "split_tickets"))
        assert_true(workspace_of(&op.head, "split_tickets", "blocks=1") >
                    workspace_of(&op.head, "split_tickets", "blocks=4"));
    if (variant_runs(&op.head, "split_held"))
        assert_true(workspace_of(&op.head, "split_held", "packets=1") >
                    workspace_of(&op.head, "split_held", "packets=4"));
    test_release(&x);
    softmax_free(&problem);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_by_every_variant),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(every_pair_of_dtypes),
        cmocka_unit_test(any_axis),
        cmocka_unit_test(long_axis_that_is_not_the_last),
        cmocka_unit_test(strides_and_offsets),
        cmocka_unit_test(offsets_agree),
        cmocka_unit_test(in_place),
        cmocka_unit_test(buffers_that_just_fit),
        cmocka_unit_test(overlapping_is_refused),
        cmocka_unit_test(states_in_x_are_refused),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(parameters_of_chunks_take_effect),
    };
    return support_main("softmax", tests, sizeof tests / sizeof tests[0]);
}
