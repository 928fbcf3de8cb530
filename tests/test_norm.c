/* RMSNorm and LayerNorm: dtypes, strides, residuals, in place, and the published cases of overflow, cancellation and
 * rounding. */
#include "norm_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- dtypes, operands, layouts ----------------------------------------------------------------------------------- */

static void both_norms_by_every_way(void **state) {
    (void)state;
    for (int f = CLATTN_RMS_NORM; f <= CLATTN_LAYER_NORM; f++) {
        struct norm_problem problem = norm_of((clattn_norm_function)f, 5, 1000);
        norm_check(&problem, ROWS_EVERY_WAY);
        norm_free(&problem);
    }
}

static void any_mix_of_dtypes(void **state) {
    static const clattn_dtype mixes[][4] = {
        {CLATTN_F16, CLATTN_F16, CLATTN_F16, CLATTN_F16},
        {CLATTN_BF16, CLATTN_BF16, CLATTN_F32, CLATTN_BF16},
        {CLATTN_F32, CLATTN_F16, CLATTN_BF16, CLATTN_F16},
        {CLATTN_F16, CLATTN_F32, CLATTN_F16, CLATTN_F32},
    };
    (void)state;
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
        for (int f = CLATTN_RMS_NORM; f <= CLATTN_LAYER_NORM; f++) {
            struct norm_problem problem = norm_of((clattn_norm_function)f, 3, 264);
            problem.with_residual = problem.with_sum = f == CLATTN_RMS_NORM;
            problem.with_bias = f == CLATTN_LAYER_NORM;
            norm_set_dtypes(&problem, mixes[i][0], mixes[i][1], mixes[i][2], mixes[i][3]);
            norm_check(&problem, i < 2 ? ROWS_VARIANTS : ROWS_CHOSEN);
            norm_free(&problem);
        }
}

static void optional_operands(void **state) {
    (void)state;
    for (int bits = 0; bits < 16; bits += 3) {
        struct norm_problem problem = norm_of(bits & 1 ? CLATTN_LAYER_NORM : CLATTN_RMS_NORM, 2, 65);
        problem.with_weight = bits & 2;
        problem.with_bias = bits & 4;
        problem.with_residual = bits & 8;
        problem.one_plus_weight = bits == 3 || bits == 6;
        norm_check(&problem, ROWS_CHOSEN);
        norm_free(&problem);
    }
}

static void in_place(void **state) {
    (void)state;
    for (int f = CLATTN_RMS_NORM; f <= CLATTN_LAYER_NORM; f++)
        for (int place = NORM_IN_X; place <= NORM_IN_RESIDUAL; place++) {
            struct norm_problem problem = norm_of((clattn_norm_function)f, 3, 257);
            problem.place = place;
            problem.with_residual = problem.with_sum = true;
            norm_check(&problem, ROWS_VARIANTS);
            norm_free(&problem);
        }
}

/* Rows apart, rows in another order, and one row for all (stride 0). */
static void strided_rows(void **state) {
    static const struct test_layout apart = {3, {2000, 500, 100, 1}}, turned = {0, {100, 400, 1600, 1}},
                                    repeated = {1, {0, 70, 0, 1}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct norm_problem problem = norm_of(CLATTN_LAYER_NORM, 2 * 3 * 4, 67);
        problem.rank = 4;
        memcpy(problem.dims, (const int64_t[]){2, 3, 4, 67}, sizeof problem.dims);
        problem.x_layout = i == 0 ? &apart : i == 1 ? &turned : &repeated;
        problem.y_layout = i == 0 ? NULL : &turned;
        for (int64_t r = 0; i == 2 && r < 24; r++) /* equal values at equal addresses */
            memcpy(problem.x + r * 67, problem.x + r / 4 % 3 * 67, 67 * sizeof(double));
        norm_check(&problem, ROWS_CHOSEN);
        norm_free(&problem);
    }
}

/* ---- A42: lengths ------------------------------------------------------------------------------------------------ */

static void row_lengths(void **state) {
    static const int64_t lengths[] = {1,    2,    3,    7,    31,   32,   33,    63,    64,    65,
                                      127,  129,  255,  257,  500,  511,  513,   1000,  1023,  1025,
                                      2047, 2049, 2592, 4095, 4097, 8191, 10000, 16385, 50257, 100003};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int f = CLATTN_RMS_NORM; f <= CLATTN_LAYER_NORM; f++) {
            struct norm_problem problem = norm_of((clattn_norm_function)f, i % 2 ? 3 : 1, lengths[i]);
            norm_check(&problem,
                       lengths[i] == 33 || lengths[i] == 1025 || lengths[i] == 50257 ? ROWS_EVERY_WAY : ROWS_CHOSEN);
            norm_free(&problem);
        }
}

static void no_rows_no_columns(void **state) {
    static const int64_t shapes[][2] = {{0, 5}, {3, 0}, {0, 0}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct norm_problem problem = norm_of(CLATTN_RMS_NORM, shapes[i][0], shapes[i][1]);
        norm_check(&problem, ROWS_CHOSEN);
        norm_free(&problem);
    }
}

/* ---- A54, A55: squares, zeros, eps ------------------------------------------------------------------------------- */

static void expect_row(clattn_norm_function function, clattn_dtype dtype, double eps, int64_t columns,
                       double (*value)(int64_t), double (*want)(int64_t), double absolute, double relative) {
    struct norm_problem problem = norm_of(function, 1, columns);
    double *wanted = test_array(columns);
    problem.eps = eps;
    problem.with_weight = problem.with_bias = false;
    for (int64_t c = 0; c < columns; c++) {
        problem.x[c] = value(c);
        wanted[c] = want(c);
    }
    norm_set_dtypes(&problem, dtype, dtype, dtype, dtype);
    norm_expect(&problem, ROWS_VARIANTS, wanted, absolute, relative);
    free(wanted);
    norm_free(&problem);
}

static double swing_300(int64_t c) {
    return c % 2 ? -300 : 300;
}

static double swing_1(int64_t c) {
    return c % 2 ? -1 : 1;
}

static double all_16(int64_t c) {
    (void)c;
    return 16;
}

static double all_1(int64_t c) {
    (void)c;
    return 1;
}

static double all_0(int64_t c) {
    (void)c;
    return 0;
}

static double all_thousandth(int64_t c) {
    (void)c;
    return 1e-3;
}

static double all_tiny(int64_t c) {
    (void)c;
    return 1e-25;
}

static double root_within(int64_t c) {
    (void)c;
    return 0.301511;
}

static double root_of_eps(int64_t c) {
    (void)c;
    return 3.1623e-23;
}

static void squares_beyond_half(void **state) {
    (void)state;
    expect_row(CLATTN_RMS_NORM, CLATTN_F16, 1e-6, 64, swing_300, swing_1, 1e-3, 0);
    expect_row(CLATTN_RMS_NORM, CLATTN_F16, 1e-6, 4096, all_16, all_1, 1e-3, 0);
}

static void zero_rows_and_eps(void **state) {
    (void)state;
    expect_row(CLATTN_RMS_NORM, CLATTN_F32, 1e-5, 100, all_0, all_0, 0, 0);
    expect_row(CLATTN_LAYER_NORM, CLATTN_F32, 1e-5, 100, all_0, all_0, 0, 0);
    expect_row(CLATTN_RMS_NORM, CLATTN_F32, 1e-5, 100, all_thousandth, root_within, 1e-6, 0);
    expect_row(CLATTN_RMS_NORM, CLATTN_F32, 1e-5, 100, all_tiny, root_of_eps, 0, 1e-4);
}

/* ---- A56: cancellation ------------------------------------------------------------------------------------------- */

static double from_40000(int64_t c) {
    return 40000 + (double)c;
}

static double from_80000(int64_t c) {
    return 80000 + (double)c;
}

static double all_1234(int64_t c) {
    (void)c;
    return 1234;
}

static double spread_of_4(int64_t c) {
    static const double want[] = {-1.341635, -0.447212, 0.447212, 1.341635};
    return want[c];
}

static void far_from_zero(void **state) {
    (void)state;
    expect_row(CLATTN_LAYER_NORM, CLATTN_F32, 1e-5, 4, from_40000, spread_of_4, 2e-6, 0);
    expect_row(CLATTN_LAYER_NORM, CLATTN_F32, 1e-5, 4, from_80000, spread_of_4, 2e-6, 0);
    expect_row(CLATTN_LAYER_NORM, CLATTN_F32, 1e-5, 256, all_1234, all_0, 0, 0);
    expect_row(CLATTN_LAYER_NORM, CLATTN_F32, 1e-5, 1000, all_1234, all_0, 0, 0);
    expect_row(CLATTN_LAYER_NORM, CLATTN_F32, 1e-5, 50257, all_1234, all_0, 0, 0);
}

static void alike_elements_give_the_bias(void **state) {
    (void)state;
    struct norm_problem problem = norm_of(CLATTN_LAYER_NORM, 1, 256);
    double want[256];
    for (int i = 0; i < 256; i++) {
        problem.x[i] = 1234;
        problem.weight[i] = 2;
        problem.bias[i] = want[i] = 0.5;
    }
    norm_expect(&problem, ROWS_EVERY_WAY, want, 0, 0);
    norm_free(&problem);
}

/* ---- A58: rounding; NaN ------------------------------------------------------------------------------------------ */

/* x times a weight, RMS 1: the row is two elements, of which the first tells. */
static void expect_rounding(clattn_dtype dtype, double weight, double want) {
    struct norm_problem problem = norm_of(CLATTN_RMS_NORM, 1, 2);
    const double wanted[] = {want, want};
    problem.eps = 0;
    problem.with_bias = false;
    problem.x[0] = problem.x[1] = 1;
    problem.weight[0] = problem.weight[1] = (double)(float)weight;
    problem.out_dtype = dtype;
    norm_expect(&problem, ROWS_CHOSEN, wanted, 0, 0);
    norm_free(&problem);
}

static void rounds_to_nearest_even(void **state) {
    (void)state;
    const double step = 0x1p-8;
    expect_rounding(CLATTN_BF16, 0.2691408770292272, 0.26953125);
    expect_rounding(CLATTN_BF16, 1 + step, 1);
    expect_rounding(CLATTN_BF16, 1 + 3 * step, 1.015625);
    expect_rounding(CLATTN_BF16, 1 + step + 0x1p-16, 1.0078125);
    expect_rounding(CLATTN_BF16, 3.4e38, (double)INFINITY);
    expect_rounding(CLATTN_BF16, (double)NAN, (double)NAN);
    expect_rounding(CLATTN_F16, 65519, 65504);
    expect_rounding(CLATTN_F16, 65520, (double)INFINITY);
    expect_rounding(CLATTN_F16, 0x1p-25 * 1.5, 0x1p-24);
    expect_rounding(CLATTN_F16, 0x1p-25, 0);
}

static void nan_spoils_its_row_alone(void **state) {
    (void)state;
    for (int f = CLATTN_RMS_NORM; f <= CLATTN_LAYER_NORM; f++) {
        struct norm_problem problem = norm_of((clattn_norm_function)f, 3, 70);
        problem.x[70 + 69] = (double)NAN;
        norm_check(&problem, ROWS_VARIANTS);
        norm_free(&problem);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refuse(const clattn_norm_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    (void)state;
    const int64_t dims[] = {3, 10};
    double zeros[30] = {0};
    struct test_tensor x = test_input(CLATTN_F32, 2, dims, zeros, NULL, 0), y = test_output(CLATTN_F32, 2, dims, NULL);
    struct test_tensor w = test_input(CLATTN_F32, 1, dims + 1, zeros, NULL, 0);
    clattn_norm_op good, op;
    clattn_norm_init(&good);
    good.x = x.view;
    good.y = y.view;
    good.weight = w.view;
    CHECK(clattn_supported(device.clattn, &good.head, NULL));
    op = good, op.function = (clattn_norm_function)2, refuse(&op, "function = 2");
    op = good, op.eps = -1, refuse(&op, "eps = -1");
    op = good, op.eps = NAN, refuse(&op, "eps = ");
    op = good, op.x.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "x is absent");
    op = good, op.y.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "y is absent");
    op = good, op.y.dims[0] = 2, refuse(&op, "y: dims[0] = 2");
    op = good, op.x.strides[1] = 2, op.x.dims[1] = 5, refuse(&op, "x: strides[1] = 2");
    op = good, op.weight.dims[0] = 9, refuse(&op, "weight: dims[0] = 9");
    op = good, op.weight.rank = 2, refuse(&op, "weight: rank is 2");
    op = good, op.sum = y.view, refuse(&op, "sum must be absent");
    op = good, op.residual = x.view, op.sum = y.view, refuse(&op, "sum overlaps y");
    op = good, op.y = x.view, op.y.offset++, op.y.memory.as.buffer = x.buffer, refuse(&op, "y overlaps x");
    op = good, op.head.size = 8, refuse(&op, "size is 8");
    test_release(&x);
    test_release(&y);
    test_release(&w);
}

/* PoCL gives wrong rows now and then where work-items share them; elsewhere they may be asked for. */
static void shared_rows_are_refused_on_pocl(void **state) {
    (void)state;
    clattn_device_info info = {.size = sizeof info};
    struct norm_problem problem = norm_of(CLATTN_RMS_NORM, 3, 70);
    const int64_t dims[] = {3, 70};
    struct test_tensor x = test_input(CLATTN_F32, 2, dims, problem.x, NULL, 0);
    struct test_tensor y = test_output(CLATTN_F32, 2, dims, NULL);
    clattn_launch launch;
    clattn_norm_op op;
    clattn_norm_init(&op);
    op.x = x.view;
    op.y = y.view;
    clattn_launch_init(&launch, device.queue);
    launch.variant = "online";
    launch.parameters = "team=2,group=2";
    CHECK(clattn_context_info(device.clattn, &info));
    const clattn_status status = clattn_supported(device.clattn, &op.head, &launch);
    if (strstr(info.platform, "Portable Computing Language") != NULL && strcmp(info.architecture, "cpu") == 0) {
        assert_int_equal(status, CLATTN_UNSUPPORTED);
        assert_non_null(strstr(clattn_last_error(), "team = 2"));
    } else {
        assert_int_equal(status, CLATTN_SUCCESS);
    }
    test_release(&x);
    test_release(&y);
    norm_free(&problem);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_norms_by_every_way),
        cmocka_unit_test(any_mix_of_dtypes),
        cmocka_unit_test(optional_operands),
        cmocka_unit_test(in_place),
        cmocka_unit_test(strided_rows),
        cmocka_unit_test(row_lengths),
        cmocka_unit_test(no_rows_no_columns),
        cmocka_unit_test(squares_beyond_half),
        cmocka_unit_test(zero_rows_and_eps),
        cmocka_unit_test(far_from_zero),
        cmocka_unit_test(alike_elements_give_the_bias),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(nan_spoils_its_row_alone),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(shared_rows_are_refused_on_pocl),
    };
    return support_main("norms", tests, sizeof tests / sizeof tests[0]);
}
