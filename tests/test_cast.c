/* Casts: every pair of dtypes to the last bit, any layout, in place, and what is refused. */
#include "reference.h"
#include "support.h"

#include <clattn/training.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};

/* Both NaN, or the same value with the same sign. */
static bool alike(double a, double b) {
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static clattn_cast_op cast_of(const clattn_tensor *x, const clattn_tensor *y) {
    clattn_cast_op op;
    clattn_cast_init(&op);
    op.x = *x;
    op.y = *y;
    return op;
}

/* Casts twice, and compares each with what rounding says. parameters NULL: the library's. */
static void run(const clattn_cast_op *op, const struct test_tensor *y, const double *x, int64_t count,
                const char *parameters) {
    double *first = test_array(count), *second = test_array(count);
    for (int turn = 0; turn < 2; turn++) {
        struct test_call call;
        test_call_begin(&call, &op->head, NULL);
        call.launch.parameters = parameters;
        CHECK(clattn_cast(device.clattn, op, &call.launch));
        test_call_end(&call);
        test_read(y, turn == 0 ? first : second);
    }
    for (int64_t i = 0; i < count; i++) {
        const double want = reference_round(op->y.dtype, x[i]);
        if (!alike(first[i], want) || !alike(second[i], want))
            fail_msg("dtype %d to %d (%s): [%lld] %.9g is %.9g, then %.9g, not %.9g", (int)op->x.dtype,
                     (int)op->y.dtype, parameters ? parameters : "", (long long)i, x[i], first[i], second[i], want);
    }
    free(first);
    free(second);
}

static void check(clattn_dtype from, clattn_dtype to, int rank, const int64_t *dims, const double *values,
                  const struct test_layout *x_layout, const struct test_layout *y_layout, const char *parameters) {
    struct test_tensor x = test_input(from, rank, dims, values, x_layout, (double)NAN);
    struct test_tensor y = test_output(to, rank, dims, y_layout);
    const clattn_cast_op op = cast_of(&x.view, &y.view);
    run(&op, &y, values, reference_count(&y.view), parameters);
    test_untouched(&x, "x");
    test_release(&x);
    test_release(&y);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

enum { PATTERNS = 65536 };

/* Each value of the 16-bit type, the middle between it and the next, and the fp32 numbers beside that middle. */
static double *numbers_about(clattn_dtype narrow, int64_t *count) {
    double *numbers = test_array(4 * PATTERNS);
    *count = 0;
    for (uint32_t p = 0; p < PATTERNS; p++) {
        const uint16_t bits[] = {(uint16_t)p, (uint16_t)(p + 1)};
        const double value = reference_decode(narrow, bits, 0), next = reference_decode(narrow, bits, 1);
        const float middle = (float)(0.5 * value + 0.5 * next);
        numbers[(*count)++] = value;
        if (!isfinite(value) || !isfinite(next) || middle == 0 || p % 8 != 0)
            continue;
        numbers[(*count)++] = (double)middle;
        numbers[(*count)++] = (double)nextafterf(middle, INFINITY);
        numbers[(*count)++] = (double)nextafterf(middle, -INFINITY);
    }
    const double limits[] = {65504, 65519, 65519.99, 65520, -65520, 65536, 1e30, -1e38, 3.39e38, 0x1p-25, -0.0, NAN};
    memcpy(numbers + *count, limits, sizeof limits);
    *count += (int64_t)(sizeof limits / sizeof limits[0]);
    return numbers;
}

static void every_pair_of_dtypes_to_the_last_bit(void **state) {
    (void)state;
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            int64_t count;
            const clattn_dtype narrow = from > 0 ? dtypes[from] : to > 0 ? dtypes[to] : CLATTN_F16;
            double *numbers = numbers_about(narrow, &count);
            for (int64_t i = 0; i < count; i++)
                numbers[i] = reference_round(dtypes[from], (double)(float)numbers[i]);
            check(dtypes[from], dtypes[to], 1, &count, numbers, NULL, NULL, NULL);
            free(numbers);
        }
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static double *ramp(int64_t count) {
    double *values = test_array(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(float)(reference_normal((uint64_t)i, 3) * 100);
    return values;
}

static void any_length_and_offset(void **state) {
    (void)state;
    for (int64_t count = 1; count < 40; count += count < 20 ? 1 : 7)
        for (int64_t offset = 0; offset < 2; offset++) {
            double *values = ramp(count);
            const struct test_layout layout = {.offset = offset, .strides = {1}};
            check(CLATTN_F32, CLATTN_F16, 1, &count, values, &layout, NULL, NULL);
            check(CLATTN_F32, CLATTN_F16, 1, &count, values, NULL, &layout, NULL);
            free(values);
        }
}

static void any_strides(void **state) {
    static const struct {
        int rank;
        int64_t dims[4];
        struct test_layout x, y;
    } rows[] = {
        {2, {5, 7}, {0, {9, 1}}, {0, {7, 1}}},                         /* rows apart */
        {2, {6, 16}, {0, {32, 1}}, {0, {24, 1}}},                      /* ... that take whole packets */
        {2, {6, 16}, {1, {32, 1}}, {0, {24, 1}}},                      /* ... at an odd offset */
        {2, {5, 7}, {0, {1, 5}}, {0, {7, 1}}},                         /* transposed */
        {2, {5, 7}, {0, {1, 5}}, {0, {1, 5}}},                         /* both alike: dense in memory */
        {2, {5, 7}, {0, {0, 1}}, {0, {7, 1}}},                         /* repeated: values are set below */
        {4, {3, 4, 5, 6}, {0, {1, 3, 12, 60}}, {2, {250, 60, 11, 2}}}, /* nothing merges */
        {4, {2, 1, 3, 8}, {0, {24, 1000, 8, 1}}, {0, {24, 1, 8, 1}}},  /* a dim of 1 with an odd stride */
        {3, {40, 50, 60}, {0, {3000, 60, 1}}, {0, {4000, 80, 1}}},     /* several work-groups */
    };
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        int64_t count = 1;
        for (int d = 0; d < rows[r].rank; d++)
            count *= rows[r].dims[d];
        double *values = ramp(count);
        for (int64_t i = 0; i < count && rows[r].x.strides[0] == 0; i++)
            values[i] = values[i % rows[r].dims[1]];
        check(CLATTN_F32, CLATTN_F16, rows[r].rank, rows[r].dims, values, &rows[r].x, &rows[r].y, NULL);
        free(values);
    }
}

static void parameters_change_no_bit(void **state) {
    static const char *const parameters[] = {"vector=1", "blocks=1", "group=1"};
    const int64_t dims[] = {9, 16};
    const struct test_layout apart = {.strides = {20, 1}};
    double *values = ramp(144);
    (void)state;
    for (size_t p = 0; p < sizeof parameters / sizeof parameters[0]; p++)
        check(CLATTN_F32, CLATTN_F16, 2, dims, values, p == 0 ? &apart : NULL, NULL, parameters[p]);
    free(values);
}

/* fp16 to bf16 within one buffer; the same dtype changes nothing. */
static void in_place(void **state) {
    const int64_t dims[] = {3, 21};
    double *values = ramp(63), got[63];
    (void)state;
    for (int i = 0; i < 63; i++)
        values[i] = reference_round(CLATTN_F16, values[i]);
    for (int to = 1; to < 3; to++) {
        struct test_tensor x = test_input(CLATTN_F16, 2, dims, values, NULL, guard_value);
        struct test_tensor y = x;
        y.view.dtype = dtypes[to];
        const clattn_cast_op op = cast_of(&x.view, &y.view);
        test_run(&op.head, NULL);
        unsigned char *bytes = test_bytes(&y);
        reference_gather(&y.view, bytes, got);
        for (int i = 0; i < 63; i++)
            assert_true(alike(got[i], reference_round(dtypes[to], values[i])));
        assert_memory_equal(bytes, x.image, GUARD * 2);
        assert_memory_equal(bytes + x.bytes - GUARD * 2, x.image + x.bytes - GUARD * 2, GUARD * 2);
        free(bytes);
        test_release(&x);
    }
    free(values);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

static void nothing_to_do(void **state) {
    const int64_t dims[] = {3, 0, 2};
    (void)state;
    check(CLATTN_F32, CLATTN_F16, 3, dims, NULL, NULL, NULL, NULL);
}

static void refuse(const clattn_cast_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    const int64_t dims[] = {4, 8}, huge = INT64_C(1) << 41;
    double values[32] = {0};
    struct test_tensor x = test_input(CLATTN_F32, 2, dims, values, NULL, (double)NAN);
    struct test_tensor y = test_output(CLATTN_F16, 2, dims, NULL);
    const clattn_cast_op good = cast_of(&x.view, &y.view);
    clattn_cast_op op;
    (void)state;
    CHECK(clattn_supported(device.clattn, &good.head, NULL));
    op = good, op.x.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "x is absent");
    op = good, op.y.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "y is absent");
    op = good, op.x.dtype = CLATTN_I32, refuse(&op, "x: dtype is i32");
    op = good, op.y.dtype = CLATTN_U8, refuse(&op, "y: dtype is u8");
    op = good, op.y.rank = 1, refuse(&op, "y: rank is 1");
    op = good, op.y.dims[1] = 7, refuse(&op, "y: dims[1] = 7");
    op = good, op.y.strides[0] = 0, refuse(&op, "y is written");
    op = good, op.x.offset = 1000, refuse(&op, "x reaches byte");
    op = good, op.x.offset = INT64_MAX - 3, refuse(&op, "x");
    op = good, op.x.strides[0] = -1, refuse(&op, "strides[0] = -1");
    op = good, op.y = op.x, op.y.offset += 4, refuse(&op, "y overlaps x");
    op = good, op.y = op.x, op.y.dtype = CLATTN_F16, op.y.offset *= 2, refuse(&op, "y overlaps x");
    op = good, op.x.dims[0] = huge, op.x.strides[0] = 0, refuse(&op, "2^40");
    op = good, op.head.size = 16, refuse(&op, "size is 16");
    test_release(&x);
    test_release(&y);
}

static void bad_parameters(void **state) {
    static const struct {
        const char *parameters, *word;
    } rows[] = {{"vector=2", "vector"},   {"vector=16", "vector"},      {"group=3", "group"},
                {"group=-1", "group"},    {"blocks=-1", "blocks"},      {"blocks=100000", "blocks"},
                {"blocks=x", "blocks=x"}, {"team=1", "has no \"team\""}};
    const int64_t dims[] = {8};
    double values[8] = {0};
    struct test_tensor x = test_input(CLATTN_F32, 1, dims, values, NULL, (double)NAN);
    struct test_tensor y = test_output(CLATTN_F16, 1, dims, NULL);
    const clattn_cast_op op = cast_of(&x.view, &y.view);
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        clattn_launch launch;
        clattn_launch_init(&launch, device.queue);
        launch.parameters = rows[r].parameters;
        support_expect(clattn_cast(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, rows[r].parameters);
        assert_non_null(strstr(clattn_last_error(), rows[r].word));
    }
    test_untouched(&y, "y");
    test_release(&x);
    test_release(&y);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_dtypes_to_the_last_bit),
        cmocka_unit_test(any_length_and_offset),
        cmocka_unit_test(any_strides),
        cmocka_unit_test(parameters_change_no_bit),
        cmocka_unit_test(in_place),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(bad_parameters),
    };
    return support_main("cast", tests, sizeof tests / sizeof tests[0]);
}
