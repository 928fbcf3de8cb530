/* The matrix product on the devices found: every variant that accepts a problem, against the oracle. */
#include "reference.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};

/* SPREAD: rows apart, odd offsets, batches in no single stride, and one matrix b for all of the inner batch. */
enum layout { DENSE, SPREAD };

struct spec {
    clattn_dtype dtype, out;
    int transpose; /* 1: a, 2: b */
    int64_t outer, inner, m, n, k;
    float alpha, beta;
    enum layout layout;
};

struct product {
    struct reference_gemm problem;
    double *a, *b, *c, *want;
    double plain_error;
    struct test_tensor on_a, on_b, on_c;
    clattn_gemm_op op;
};

/* ---- making a problem -------------------------------------------------------------------------------------------- */

static double *values(clattn_dtype dtype, int64_t count, uint64_t seed) {
    double *array = test_array(count);
    for (int64_t i = 0; i < count; i++)
        array[i] = reference_round(dtype, reference_normal((uint64_t)i, seed));
    return array;
}

static struct test_layout spread(const int64_t *dims, bool shared) {
    const int64_t row = dims[3] + 3, inner = shared ? 0 : dims[2] * row + 1;
    const int64_t inner_extent = shared ? dims[2] * row : dims[1] * inner;
    return (struct test_layout){.offset = 5, .strides = {inner_extent + 7, inner, row, 1}};
}

/* On the device b has one matrix for each outer index where it is shared; the oracle gets it repeated. */
static void share(double *b, int64_t outer, int64_t inner, int64_t size) {
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 1; i < inner; i++)
            for (int64_t e = 0; e < size; e++)
                b[(o * inner + i) * size + e] = b[o * inner * size + e];
}

static struct test_tensor input(const struct spec *spec, const int64_t *dims, const double *data, bool shared) {
    const struct test_layout layout = spread(dims, shared);
    return test_input(spec->dtype, 4, dims, data, spec->layout == SPREAD ? &layout : NULL, (double)NAN);
}

static struct test_tensor output(const struct spec *spec, const int64_t *dims, const double *data) {
    const struct test_layout layout = spread(dims, false);
    const struct test_layout *chosen = spec->layout == SPREAD ? &layout : NULL;
    return spec->beta == 0 ? test_output(spec->out, 4, dims, chosen)
                           : test_input(spec->out, 4, dims, data, chosen, guard_value);
}

static void solve(const struct spec *spec, struct product *product) {
    const int64_t rows = product->problem.batch * spec->m, count = rows * spec->n;
    double *plain = test_array(count);
    product->want = test_array(count);
    for (int64_t row = 0; row < rows; row++) {
        reference_gemm_row(&product->problem, product->a, product->b, product->c, row, product->want + row * spec->n);
        plain_gemm_row(&product->problem, spec->out, product->a, product->b, product->c, row, plain + row * spec->n);
    }
    product->plain_error = reference_plain_error(count, product->want, plain);
    free(plain);
}

static struct product make(const struct spec *spec) {
    const int ta = spec->transpose & 1, tb = spec->transpose & 2;
    const int64_t m = spec->m, n = spec->n, k = spec->k, batch = spec->outer * spec->inner;
    const int64_t a_dims[] = {spec->outer, spec->inner, ta ? k : m, ta ? m : k};
    const int64_t b_dims[] = {spec->outer, spec->inner, tb ? n : k, tb ? k : n};
    const int64_t c_dims[] = {spec->outer, spec->inner, m, n};
    struct product product = {.problem = {batch, m, n, k, ta != 0, tb != 0, (double)spec->alpha, (double)spec->beta}};
    product.a = values(spec->dtype, batch * m * k, 1);
    product.b = values(spec->dtype, batch * k * n, 2);
    product.c = values(spec->out, batch * m * n, 3);
    if (spec->layout == SPREAD)
        share(product.b, spec->outer, spec->inner, k * n);
    product.on_a = input(spec, a_dims, product.a, false);
    product.on_b = input(spec, b_dims, product.b, true);
    product.on_c = output(spec, c_dims, product.c);
    solve(spec, &product);
    clattn_gemm_init(&product.op);
    product.op.transpose_a = ta;
    product.op.transpose_b = tb;
    product.op.alpha = spec->alpha;
    product.op.beta = spec->beta;
    product.op.a = product.on_a.view;
    product.op.b = product.on_b.view;
    product.op.c = product.on_c.view;
    return product;
}

static void drop(struct product *product) {
    free(product->a);
    free(product->b);
    free(product->c);
    free(product->want);
    test_release(&product->on_a);
    test_release(&product->on_b);
    test_release(&product->on_c);
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

static void compare(const struct spec *spec, const struct product *product, const double *got, const char *variant) {
    struct reference_error error = {0};
    const int64_t count = product->problem.batch * spec->m * spec->n;
    reference_compare(&error, count, got, product->want, product->plain_error, spec->out);
    if (error.bad)
        fail_msg("%s, transpose %d, dtypes %d %d, %lldx%lldx%lld of %lld: [%lld] is %.9g, not %.9g (bound %.3g)",
                 variant, spec->transpose, (int)spec->dtype, (int)spec->out, (long long)spec->m, (long long)spec->n,
                 (long long)spec->k, (long long)product->problem.batch, (long long)error.index, error.got, error.want,
                 error.bound);
}

/* Twice, for equal bits. */
static void run(const struct spec *spec, struct product *product, const char *variant) {
    const int64_t count = product->problem.batch * spec->m * spec->n;
    double *first = test_array(count), *second = test_array(count);
    test_reset(&product->on_c);
    test_run(&product->op.head, variant);
    test_read(&product->on_c, first);
    compare(spec, product, first, variant);
    test_reset(&product->on_c);
    test_run(&product->op.head, variant);
    test_read(&product->on_c, second);
    assert_memory_equal(first, second, (size_t)count * sizeof *first);
    test_untouched(&product->on_a, "a");
    test_untouched(&product->on_b, "b");
    free(first);
    free(second);
}

static void check(struct spec spec) {
    struct product product = make(&spec);
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = test_next_variant(&product.op.head, &index)) != NULL; ran++)
        run(&spec, &product, variant);
    assert_true(ran > 0);
    drop(&product);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Every kind of product is a program to compile: each transpose in fp32, each kind of load in a half type. Below, K is
 * more than a slice where it need not be short: shorter ones would be programs of their own. */
static void transposes_and_dtypes(void **state) {
    (void)state;
    for (int transpose = 0; transpose < 4; transpose++) {
        const clattn_dtype half = transpose == 0 || transpose == 3 ? CLATTN_F16 : CLATTN_BF16;
        check((struct spec){CLATTN_F32, CLATTN_F32, transpose, 1, 1, 37, 53, 113, 1, 0, DENSE});
        check((struct spec){half, half, transpose, 1, 1, 37, 53, 113, 1, 0, DENSE});
    }
}

static void awkward_shapes(void **state) {
    static const int64_t shapes[][3] = {{1, 1, 1},    {3, 1, 113},  {1, 113, 3},
                                        {113, 3, 66}, {64, 64, 64}, {130, 70, 200}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int transpose = 0; transpose < 4; transpose += 3)
            check((struct spec){CLATTN_F32, CLATTN_F32, transpose, 1, 1, shapes[i][0], shapes[i][1], shapes[i][2], 1, 0,
                                DENSE});
}

static void batches_and_strides(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        const int transpose = dtypes[t] == CLATTN_F16 ? 3 : 2;
        check((struct spec){dtypes[t], dtypes[t], transpose, 2, 3, 19, 21, 70, 1, 0, SPREAD});
        check((struct spec){dtypes[t], dtypes[t], transpose, 2, 3, 16, 24, 72, 1, 0, DENSE});
    }
    check((struct spec){CLATTN_F32, CLATTN_F32, 1, 3, 1, 19, 21, 70, 1, 0, SPREAD});
    check((struct spec){CLATTN_F32, CLATTN_F32, 0, 1, 3, 19, 21, 70, 1, 0, SPREAD});
}

static void alpha_and_beta(void **state) {
    static const float pairs[][2] = {{2, 0}, {-0.5f, 1}, {1, -2}, {0, 0.5f}, {0, 0}};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
            check((struct spec){dtypes[t], dtypes[t], t == 0 ? 2 : 3, 1, 2, 16, 24, 70, pairs[i][0], pairs[i][1],
                                SPREAD});
}

static void single_precision_results(void **state) {
    (void)state;
    for (int t = 1; t < 3; t++)
        for (int beta = 0; beta < 2; beta++)
            check((struct spec){dtypes[t], CLATTN_F32, 2, 1, 2, 33, 47, 70, 0.25f, (float)beta, SPREAD});
}

static void no_terms(void **state) {
    (void)state;
    check((struct spec){CLATTN_F32, CLATTN_F32, 0, 1, 2, 5, 7, 0, 1, 0, DENSE});
    check((struct spec){CLATTN_F16, CLATTN_F16, 0, 1, 2, 5, 7, 0, 1, 0.5f, DENSE});
}

/* With alpha = 0 not even a NaN in a matters. */
static void alpha_zero_reads_nothing(void **state) {
    (void)state;
    struct spec spec = {CLATTN_F32, CLATTN_F32, 0, 1, 1, 5, 7, 15, 0, 2, DENSE};
    struct product product = make(&spec);
    for (int64_t i = 0; i < 5 * 15; i++)
        reference_encode(CLATTN_F32, product.on_a.image, product.on_a.view.offset + i, (double)NAN);
    test_reset(&product.on_a);
    run(&spec, &product, NULL);
    drop(&product);
}

static void overlapping_rows_of_inputs(void **state) {
    (void)state;
    struct spec spec = {CLATTN_F32, CLATTN_F32, 0, 1, 1, 20, 7, 15, 1, 0, DENSE};
    struct product product = make(&spec);
    /* Row i of a starts at element i: what is left of a's first rows, seen through a window. */
    product.op.a.strides[2] = 1;
    for (int64_t i = 0; i < 20; i++)
        for (int64_t l = 0; l < 15; l++)
            product.a[i * 15 + l] = i + l < 15 ? product.a[i + l] : 0;
    for (int64_t e = 15; e < 34; e++)
        reference_encode(CLATTN_F32, product.on_a.image, product.on_a.view.offset + e, 0);
    test_reset(&product.on_a);
    free(product.want);
    solve(&spec, &product);
    size_t index = 0;
    for (const char *variant; (variant = test_next_variant(&product.op.head, &index)) != NULL;)
        run(&spec, &product, variant);
    drop(&product);
}

static void smallest_parameters(void **state) {
    (void)state;
    struct spec spec = {CLATTN_F32, CLATTN_F32, 3, 1, 1, 21, 23, 40, 1, 0, DENSE};
    struct product product = make(&spec);
    double *got = test_array(21 * 23);
    struct test_call call;
    test_call_begin(&call, &product.op.head, "tiled_fma");
    call.launch.parameters = "fma_items=1,fma_rows=4,groups=1,column_tiles=1,k_slice=4";
    CHECK(clattn_gemm(device.clattn, &product.op, &call.launch));
    test_call_end(&call);
    test_read(&product.on_c, got);
    compare(&spec, &product, got, "tiled_fma");
    free(got);
    drop(&product);
}

static void bad_parameters_are_refused(void **state) {
    static const char *const bad[] = {"fma_items=3", "fma_rows=2",    "column_tiles=0",
                                      "k_slice=0",   "stage_slots=3", "groups=0"};
    (void)state;
    struct spec spec = {CLATTN_F32, CLATTN_F32, 0, 1, 1, 5, 7, 9, 1, 0, DENSE};
    struct product product = make(&spec);
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    launch.variant = "tiled_fma";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        launch.parameters = bad[i];
        support_expect(clattn_gemm(device.clattn, &product.op, &launch), CLATTN_INVALID_ARGUMENT, bad[i]);
    }
    launch.parameters = "groups=1024,column_tiles=64,fma_items=32,k_slice=1024";
    support_expect(clattn_gemm(device.clattn, &product.op, &launch), CLATTN_UNSUPPORTED, launch.parameters);
    test_untouched(&product.on_c, "c");
    drop(&product);
}

/* c += a b, twice, on a queue that keeps no order: only events do. */
static void events_order_calls(void **state) {
    (void)state;
    cl_int code = CL_SUCCESS;
    struct spec spec = {CLATTN_F32, CLATTN_F32, 0, 2, 3, 65, 33, 130, 1, 1, SPREAD};
    struct product product = make(&spec);
    cl_command_queue queue =
        clCreateCommandQueue(device.context, device.id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
    support_expect_cl(code, "clCreateCommandQueue");
    const int64_t count = product.problem.batch * spec.m * spec.n;
    double *got = test_array(count);
    for (int64_t i = 0; i < count; i++)
        product.want[i] += product.want[i] - product.c[i];
    size_t index = 0;
    for (const char *variant; (variant = test_next_variant(&product.op.head, &index)) != NULL;) {
        cl_event first = NULL, second = NULL;
        clattn_launch launch;
        clattn_launch_init(&launch, queue);
        launch.variant = variant;
        launch.event = &first;
        test_reset(&product.on_c);
        CHECK(clattn_gemm(device.clattn, &product.op, &launch));
        launch.event = &second;
        launch.num_events_in_wait_list = 1;
        launch.event_wait_list = &first;
        CHECK(clattn_gemm(device.clattn, &product.op, &launch));
        CHECK_CL(clWaitForEvents(1, &second));
        test_read(&product.on_c, got);
        product.plain_error *= 2;
        compare(&spec, &product, got, variant);
        product.plain_error /= 2;
        clReleaseEvent(first);
        clReleaseEvent(second);
    }
    free(got);
    clReleaseCommandQueue(queue);
    drop(&product);
}

/* a starts beyond 2^31 elements of its buffer. */
static void offsets_beyond_32_bits(void **state) {
    enum { EXTENT = 8 };
    const int64_t offset = (INT64_C(1) << 31) + 64;
    const size_t bytes = ((size_t)offset + EXTENT * EXTENT) * 2;
    cl_ulong most = 0;
    cl_int code = CL_SUCCESS;
    (void)state;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    if (most < bytes || getenv("CLATTN_TEST_LARGE") == NULL)
        skip();
    struct spec spec = {CLATTN_F16, CLATTN_F16, 0, 1, 1, EXTENT, EXTENT, EXTENT, 1, 0, DENSE};
    struct product product = make(&spec);
    cl_mem large = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    CHECK_CL(clEnqueueCopyBuffer(device.queue, product.on_a.buffer, large, (size_t)product.on_a.view.offset * 2,
                                 (size_t)offset * 2, (size_t)EXTENT * EXTENT * 2, 0, NULL, NULL));
    product.op.a.memory.as.buffer = large;
    product.op.a.offset = offset;
    size_t index = 0;
    for (const char *variant; (variant = test_next_variant(&product.op.head, &index)) != NULL;)
        run(&spec, &product, variant);
    clReleaseMemObject(large);
    drop(&product);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposes_and_dtypes),    cmocka_unit_test(awkward_shapes),
        cmocka_unit_test(batches_and_strides),      cmocka_unit_test(alpha_and_beta),
        cmocka_unit_test(single_precision_results), cmocka_unit_test(no_terms),
        cmocka_unit_test(alpha_zero_reads_nothing), cmocka_unit_test(overlapping_rows_of_inputs),
        cmocka_unit_test(smallest_parameters),      cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(events_order_calls),       cmocka_unit_test(offsets_beyond_32_bits),
    };
    return support_main("gemm", tests, sizeof tests / sizeof tests[0]);
}
