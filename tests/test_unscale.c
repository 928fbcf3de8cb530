/* Unscaling of gradients: values, the flag at every position, lists of many tensors, and what is refused. */
#include "reference.h"
#include "support.h"

#include <clattn/training.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 48 };

/* A list with its tensors, whose gaps hold NaN: were one looked at, the flag would tell. */
struct gradients {
    int count;
    struct test_tensor x[MOST], y[MOST];
    clattn_tensor x_view[MOST], y_view[MOST];
    double *values[MOST];
    struct test_tensor scale, overflow;
    clattn_unscale_op op;
};

static const int64_t one = 1;

static void begin(struct gradients *g, double scale) {
    const double garbage = 7;
    memset(g, 0, sizeof *g);
    g->scale = test_input(CLATTN_F32, 1, &one, &scale, NULL, (double)NAN);
    g->overflow = test_input(CLATTN_I32, 1, &one, &garbage, NULL, guard_value);
    clattn_unscale_init(&g->op);
    g->op.x = g->x_view;
    g->op.y = g->y_view;
    g->op.scale = g->scale.view;
    g->op.overflow = g->overflow.view;
}

/* y_dtype 0: in place. */
static void add(struct gradients *g, clattn_dtype x_dtype, clattn_dtype y_dtype, int rank, const int64_t *dims,
                const struct test_layout *layout) {
    const int i = g->count++;
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= dims[d];
    g->values[i] = test_array(count);
    for (int64_t e = 0; e < count; e++)
        g->values[i][e] = reference_round(x_dtype, 50 * reference_normal((uint64_t)e, (uint64_t)i));
    g->x[i] = test_input(x_dtype, rank, dims, g->values[i], layout, (double)NAN);
    g->x_view[i] = g->y_view[i] = g->x[i].view;
    if (y_dtype != 0) {
        g->y[i] = test_output(y_dtype, rank, dims, NULL);
        g->y_view[i] = g->y[i].view;
    }
    g->op.count = g->count;
}

static void end(struct gradients *g) {
    for (int i = 0; i < g->count; i++) {
        test_release(&g->x[i]);
        test_release(&g->y[i]);
        free(g->values[i]);
    }
    test_release(&g->scale);
    test_release(&g->overflow);
}

static int flag_of(const struct gradients *g) {
    double flag;
    test_read(&g->overflow, &flag);
    return (int)flag;
}

static void check_values(const struct gradients *g, int i) {
    const int64_t count = reference_count(&g->x_view[i]);
    const bool apart = g->y[i].buffer != NULL;
    double scale, *got = test_array(count), *want = test_array(count), *plain = test_array(count);
    struct reference_error error = {0};
    test_read(&g->scale, &scale);
    test_read(apart ? &g->y[i] : &g->x[i], got);
    for (int64_t e = 0; e < count; e++) {
        want[e] = g->values[i][e] / scale;
        plain[e] = reference_round(g->y_view[i].dtype, (double)((float)g->values[i][e] * (1 / (float)scale)));
    }
    reference_compare(&error, count, got, want, reference_plain_error(count, want, plain), g->y_view[i].dtype);
    if (error.bad)
        fail_msg("tensor %d: y[%lld] is %.9g, not %.9g (bound %.3g)", i, (long long)error.index, error.got, error.want,
                 error.bound);
    if (apart)
        test_untouched(&g->x[i], "x");
    free(got);
    free(want);
    free(plain);
}

static uint64_t launches(void) {
    clattn_statistics statistics = {.size = sizeof statistics};
    CHECK(clattn_context_statistics(device.clattn, &statistics));
    return statistics.kernel_launches;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static const int64_t small[] = {1}, odd[] = {17}, none[] = {0}, large[] = {100003}, matrix[] = {13, 24},
                     cube[] = {3, 5, 7};
static const struct test_layout apart = {0, {40, 1}}, turned = {0, {1, 13}}, shifted = {3, {1}},
                                scattered = {0, {80, 15, 2}};

static void check_all(struct gradients *g) {
    test_run(&g->op.head, NULL);
    assert_int_equal(flag_of(g), 0);
    for (int i = 0; i < g->count; i++)
        check_values(g, i);
}

static void lists_of_any_mix(void **state) {
    struct gradients g;
    (void)state;
    begin(&g, 3000);
    add(&g, CLATTN_F16, CLATTN_F32, 1, small, NULL);
    add(&g, CLATTN_F16, CLATTN_F32, 1, odd, &shifted);
    add(&g, CLATTN_F32, CLATTN_F32, 1, none, NULL);
    add(&g, CLATTN_F16, CLATTN_F32, 1, large, NULL);
    add(&g, CLATTN_F16, CLATTN_F32, 2, matrix, &apart);
    add(&g, CLATTN_F16, CLATTN_F32, 2, matrix, &turned);
    add(&g, CLATTN_F16, CLATTN_F32, 3, cube, &scattered);
    add(&g, CLATTN_BF16, CLATTN_F32, 2, matrix, NULL);
    check_all(&g);
    end(&g);
}

static void in_place(void **state) {
    struct gradients g;
    (void)state;
    begin(&g, 1024);
    add(&g, CLATTN_F16, 0, 1, large, NULL);
    add(&g, CLATTN_F16, 0, 3, cube, &scattered);
    check_all(&g);
    end(&g);
}

static void the_same_bits_twice(void **state) {
    const int64_t dims[] = {5001};
    struct gradients g;
    (void)state;
    begin(&g, 3);
    add(&g, CLATTN_F16, CLATTN_F32, 1, dims, NULL);
    test_run(&g.op.head, NULL);
    unsigned char *first = test_bytes(&g.y[0]);
    test_reset(&g.y[0]);
    test_run(&g.op.head, NULL);
    unsigned char *second = test_bytes(&g.y[0]);
    assert_memory_equal(first, second, g.y[0].bytes);
    free(first);
    free(second);
    end(&g);
}

/* Sixteen dense tensors of one kind take one launch on any device, forty-eight three at most. */
static void as_few_launches_as_arguments_allow(void **state) {
    static const int counts[] = {1, 16, 48};
    (void)state;
    for (int c = 0; c < 3; c++) {
        struct gradients g;
        begin(&g, 2);
        for (int i = 0; i < counts[c]; i++)
            add(&g, CLATTN_F16, CLATTN_F32, 1, (const int64_t[]){i % 5 * 9 + 1}, NULL);
        const uint64_t before = launches();
        test_run(&g.op.head, NULL);
        assert_in_range(launches() - before, 1, c < 2 ? 1 : 3);
        for (int i = 0; i < g.count; i++)
            check_values(&g, i);
        end(&g);
    }
}

/* ---- the flag ---------------------------------------------------------------------------------------------------- */

static void put(const struct gradients *g, int i, int64_t position, double value) {
    const clattn_tensor *view = &g->x_view[i];
    unsigned char bytes[4];
    int64_t at = view->offset;
    reference_encode(view->dtype, bytes, 0, value);
    for (int d = view->rank - 1; d >= 0; d--) {
        at += position % view->dims[d] * view->strides[d];
        position /= view->dims[d];
    }
    const size_t size = clattn_dtype_size(view->dtype);
    CHECK_CL(
        clEnqueueWriteBuffer(device.queue, g->x[i].buffer, CL_TRUE, (size_t)at * size, size, bytes, 0, NULL, NULL));
}

static void every_position_is_looked_at(void **state) {
    static const int64_t lengths[][2] = {{37, 1}, {1, 1}, {3, 7}, {5, 8}};
    const struct test_layout off = {1, {1, 1}}, spread = {0, {1, 3}}, packets = {0, {16, 1}};
    const double bad[] = {INFINITY, -(double)INFINITY, NAN};
    const struct test_layout *const layouts[] = {NULL, &off, &spread, &packets};
    struct gradients g;
    (void)state;
    begin(&g, 4);
    for (int i = 0; i < 4; i++)
        add(&g, CLATTN_F16, CLATTN_F32, 2, lengths[i], layouts[i]);
    for (int look_only = 0; look_only < 2; look_only++) {
        g.op.y = look_only ? NULL : g.y_view;
        for (int i = 0; i < g.count; i++)
            for (int64_t p = 0; p < reference_count(&g.x_view[i]); p++) {
                put(&g, i, p, bad[(p + i) % 3]);
                test_run(&g.op.head, NULL);
                if (flag_of(&g) != 1)
                    fail_msg("tensor %d, element %lld: the flag is %d", i, (long long)p, flag_of(&g));
                put(&g, i, p, g.values[i][p]);
            }
        test_run(&g.op.head, NULL);
        assert_int_equal(flag_of(&g), 0);
    }
    end(&g);
}

/* The largest fp16 is 65504; what rounds to more is infinite. */
static void results_that_overflow_are_flagged(void **state) {
    static const struct {
        double value, scale;
        int flag;
    } rows[] = {{65519.99, 1, 0}, {65520, 1, 1},     {-65520, 1, 1},           {32768, 0.5, 1}, {32752, 0.5, 0},
                {0, 1, 0},        {1e30, 0x1p90, 0}, {1, (double)INFINITY, 1}, {1, NAN, 1},     {1, 0, 1}};
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const int64_t dims[] = {1};
        struct gradients g;
        begin(&g, rows[r].scale);
        add(&g, CLATTN_F32, CLATTN_F16, 1, dims, NULL);
        put(&g, 0, 0, rows[r].value);
        test_run(&g.op.head, NULL);
        if (flag_of(&g) != rows[r].flag)
            fail_msg("%g / %g: the flag is %d", rows[r].value, rows[r].scale, flag_of(&g));
        end(&g);
    }
}

static void nothing_to_do_clears_the_flag(void **state) {
    const int64_t empty[] = {4, 0};
    struct gradients g;
    (void)state;
    begin(&g, 2);
    test_run(&g.op.head, NULL);
    assert_int_equal(flag_of(&g), 0);
    add(&g, CLATTN_F32, CLATTN_F32, 2, empty, NULL);
    test_reset(&g.overflow);
    assert_int_equal(flag_of(&g), 7);
    test_run(&g.op.head, NULL);
    assert_int_equal(flag_of(&g), 0);
    end(&g);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void refuse(const clattn_unscale_op *op, const char *word) {
    clattn_launch launch;
    const uint64_t before = launches();
    clattn_launch_init(&launch, device.queue);
    assert_int_equal(clattn_unscale(device.clattn, op, &launch), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
    assert_int_equal(launches(), before);
}

static void refuse_view(struct gradients *g, clattn_tensor *view, const clattn_tensor *bad, const char *word) {
    const clattn_tensor good = *view;
    *view = *bad;
    refuse(&g->op, word);
    *view = good;
}

static void bad_arguments(void **state) {
    const int64_t dims[] = {4, 6};
    struct gradients g;
    clattn_unscale_op op;
    clattn_tensor bad;
    (void)state;
    begin(&g, 2);
    for (int i = 0; i < 3; i++)
        add(&g, CLATTN_F32, CLATTN_F32, 2, dims, NULL);
    CHECK(clattn_supported(device.clattn, &g.op.head, NULL));
    op = g.op, op.count = -1, refuse(&op, "count = -1");
    op = g.op, op.x = NULL, refuse(&op, "x is NULL");
    op = g.op, op.scale.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "scale is absent");
    op = g.op, op.scale.dtype = CLATTN_I32, refuse(&op, "scale: dtype is i32");
    op = g.op, op.overflow.dtype = CLATTN_F32, refuse(&op, "overflow: dtype is f32");
    op = g.op, op.overflow.dims[0] = 2, refuse(&op, "overflow has 2 elements");
    op = g.op, op.overflow.dims[0] = 0, refuse(&op, "overflow has 0 elements");
    op = g.op, op.overflow.offset = 1000000, refuse(&op, "overflow reaches byte");
    op = g.op, op.overflow.memory.as.buffer = g.y[1].buffer, refuse(&op, "overflow");
    op = g.op, op.head.size = 8, refuse(&op, "size is 8");
    bad = g.x_view[2], bad.dtype = CLATTN_U8, refuse_view(&g, &g.x_view[2], &bad, "x[2]: dtype is u8");
    bad = g.x_view[2], bad.memory.kind = CLATTN_MEMORY_NONE, refuse_view(&g, &g.x_view[2], &bad, "x[2] is absent");
    bad = g.x_view[1], bad.offset = 1 << 20, refuse_view(&g, &g.x_view[1], &bad, "x[1] reaches byte");
    bad = g.y_view[1], bad.dims[0] = 3, refuse_view(&g, &g.y_view[1], &bad, "y[1]: dims[0] = 3");
    bad = g.y_view[1], bad.rank = 1, refuse_view(&g, &g.y_view[1], &bad, "y[1]: rank is 1");
    bad = g.y_view[0], bad.strides[1] = 0, refuse_view(&g, &g.y_view[0], &bad, "y[0] is written");
    bad = g.y_view[2], refuse_view(&g, &g.y_view[0], &bad, "overlaps y[");
    bad = g.x_view[2], refuse_view(&g, &g.y_view[0], &bad, "y[0] overlaps x[2]");
    bad = g.x_view[0], bad.offset += 6, refuse_view(&g, &g.y_view[0], &bad, "y[0] overlaps x[0]");
    for (int i = 0; i < 3; i++)
        test_untouched(&g.y[i], "y");
    end(&g);
}

/* The second class of the list has more work-groups than a launch: nothing may run, not even the first. */
static void too_many_work_groups(void **state) {
    const int64_t dims[] = {4};
    struct gradients g;
    clattn_launch launch;
    (void)state;
    begin(&g, 2);
    add(&g, CLATTN_F32, CLATTN_F32, 1, dims, NULL);
    add(&g, CLATTN_F16, CLATTN_F32, 1, dims, NULL);
    g.op.y = NULL;
    g.x_view[1].dims[0] = INT64_C(1) << 39;
    g.x_view[1].strides[0] = 0;
    clattn_launch_init(&launch, device.queue);
    launch.parameters = "group=1,blocks=1";
    const uint64_t before = launches();
    support_expect(clattn_unscale(device.clattn, &g.op, &launch), CLATTN_UNSUPPORTED, "work-groups");
    assert_non_null(strstr(clattn_last_error(), "x: "));
    assert_non_null(strstr(clattn_last_error(), "blocks = 1"));
    assert_int_equal(launches(), before);
    test_untouched(&g.overflow, "overflow");
    end(&g);
}

/* Columns of one matrix interleave in memory without sharing any. */
static void views_of_one_buffer(void **state) {
    const int64_t dims[] = {8, 12};
    struct gradients g;
    (void)state;
    begin(&g, 2);
    add(&g, CLATTN_F32, CLATTN_F32, 2, dims, NULL);
    const clattn_tensor x = g.x_view[0], y = g.y_view[0];
    for (int i = 0; i < 3; i++) {
        g.x_view[i] = x;
        g.y_view[i] = y;
        g.x_view[i].dims[1] = g.y_view[i].dims[1] = 4;
        g.x_view[i].offset += 4 * i;
        g.y_view[i].offset += 4 * i;
    }
    g.op.count = 3;
    test_run(&g.op.head, NULL);
    g.x_view[0] = x;
    g.y_view[0] = y;
    check_values(&g, 0);
    end(&g);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_any_mix),
        cmocka_unit_test(in_place),
        cmocka_unit_test(the_same_bits_twice),
        cmocka_unit_test(as_few_launches_as_arguments_allow),
        cmocka_unit_test(every_position_is_looked_at),
        cmocka_unit_test(results_that_overflow_are_flagged),
        cmocka_unit_test(nothing_to_do_clears_the_flag),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(too_many_work_groups),
        cmocka_unit_test(views_of_one_buffer),
    };
    return support_main("unscale", tests, sizeof tests / sizeof tests[0]);
}
