/* Softmax of scale * x + bias under a mask: dims that are repeated, what masked places hold, empty rows, any axis. */
#include "softmax_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_of(int rank, const int64_t *dims) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= dims[i];
    return count;
}

/* About a third of the places do not count. */
static double *random_mask(int rank, const int64_t *dims) {
    const int64_t count = count_of(rank, dims);
    double *mask = test_array(count);
    for (int64_t i = 0; i < count; i++)
        mask[i] = reference_normal((uint64_t)i, 21) > -0.4 ? 1 + (double)(i % 200) : 0;
    return mask;
}

static double *random_bias(int rank, const int64_t *dims, clattn_dtype dtype) {
    const int64_t count = count_of(rank, dims);
    double *bias = test_array(count);
    for (int64_t i = 0; i < count; i++)
        bias[i] = reference_round(dtype, reference_normal((uint64_t)i, 22));
    return bias;
}

static void take_dims(int64_t *to, const int64_t *dims, int rank) {
    memcpy(to, dims, (size_t)rank * sizeof *dims);
}

static void all_at_once_by_every_variant(void **state) {
    static const int64_t lengths[] = {37, 1027, 5000};
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int f = CLATTN_SOFTMAX; f <= (i == 1 ? CLATTN_SOFTMAX_STATE : CLATTN_SOFTMAX); f++) {
            struct softmax_problem problem = softmax_rows(4, lengths[i]);
            softmax_fill_normal(&problem, 3, 2);
            problem.function = (clattn_softmax_function)f;
            problem.empty_rows = CLATTN_EMPTY_ROWS_ZERO;
            problem.scale = -0.25;
            problem.bias_dtype = CLATTN_F32;
            take_dims(problem.mask_dims, problem.dims, 2);
            take_dims(problem.bias_dims, problem.dims, 2);
            double *mask = random_mask(2, problem.dims), *bias = random_bias(2, problem.dims, CLATTN_F32);
            for (int64_t c = 0; c < 4 * lengths[i]; c++) /* what does not count may hold anything */
                if (mask[c] == 0) {
                    problem.x[c] = c % 2 ? (double)NAN : (double)INFINITY;
                    bias[c] = c % 3 ? (double)NAN : -(double)INFINITY;
                }
            problem.mask = mask;
            problem.bias = bias;
            softmax_check(&problem, f == CLATTN_SOFTMAX && i == 1 ? EVERY_WAY : EVERY_VARIANT);
            free(mask);
            free(bias);
            softmax_free(&problem);
        }
}

/* Each dim of mask and bias whole or 1, along each axis. */
static void repeated_dims(void **state) {
    static const int64_t dims[] = {2, 3, 4, 9};
    (void)state;
    for (int bits = 0; bits < 16; bits += 5)
        for (int axis = 1; axis < 4; axis += 2) {
            struct softmax_problem problem = softmax_of(4, dims, axis);
            softmax_fill_normal(&problem, 4, 2);
            problem.empty_rows = CLATTN_EMPTY_ROWS_ZERO;
            problem.bias_dtype = CLATTN_F16;
            for (int d = 0; d < 4; d++) {
                problem.mask_dims[d] = bits >> d & 1 ? dims[d] : 1;
                problem.bias_dims[d] = bits >> d & 1 ? 1 : dims[d];
            }
            double *mask = random_mask(4, problem.mask_dims), *bias = random_bias(4, problem.bias_dims, CLATTN_F16);
            problem.mask = mask;
            problem.bias = bias;
            softmax_check(&problem, CHOSEN_WAY);
            free(mask);
            free(bias);
            softmax_free(&problem);
        }
}

/* By default NaN without a mask, 0 with one. */
static void rows_that_are_masked_whole(void **state) {
    static const double mask[] = {0, 0, 0, 1, 1, 0}, want[] = {0, 0, 0, 0.5, 0.5, 0};
    (void)state;
    struct softmax_problem problem = softmax_rows(2, 3);
    problem.empty_rows = CLATTN_EMPTY_ROWS_DEFAULT;
    problem.mask = mask;
    take_dims(problem.mask_dims, problem.dims, 2);
    softmax_expect(&problem, EVERY_VARIANT, want, 0, 0);
    problem.mask = NULL;
    const double nan_want[] = {NAN, NAN, NAN, 0, 1, 0};
    for (int i = 0; i < 6; i++)
        problem.x[i] = i == 4 ? 0 : -(double)INFINITY;
    softmax_expect(&problem, CHOSEN_WAY, nan_want, 0, 0);
    softmax_free(&problem);
}

static void half_in_place(void **state) {
    (void)state;
    struct softmax_problem problem = softmax_rows(3, 300);
    softmax_fill_normal(&problem, 6, 2);
    softmax_set_dtypes(&problem, CLATTN_F16, CLATTN_F16);
    problem.in_place = true;
    problem.scale = 0.5;
    take_dims(problem.mask_dims, problem.dims, 2);
    problem.mask_dims[0] = 1;
    double *mask = random_mask(2, problem.mask_dims);
    problem.mask = mask;
    softmax_check(&problem, CHOSEN_WAY);
    free(mask);
    softmax_free(&problem);
}

static void refuse(const clattn_softmax_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    (void)state;
    const int64_t dims[] = {3, 10};
    double zeros[30] = {0};
    struct test_tensor x = test_input(CLATTN_F32, 2, dims, zeros, NULL, 0), y = test_output(CLATTN_F32, 2, dims, NULL);
    struct test_tensor mask = test_input(CLATTN_U8, 2, dims, zeros, NULL, 0);
    clattn_softmax_op good, op;
    clattn_softmax_init(&good);
    good.x = good.bias = x.view;
    good.y = y.view;
    good.mask = mask.view;
    CHECK(clattn_supported(device.clattn, &good.head, NULL));
    op = good, op.scale = INFINITY, refuse(&op, "scale = inf");
    op = good, op.mask.dtype = CLATTN_F32, refuse(&op, "mask");
    op = good, op.mask.dims[1] = 9, refuse(&op, "mask: dims[1] = 9");
    op = good, op.mask.rank = 1, refuse(&op, "mask: rank is 1");
    op = good, op.bias.dims[0] = 2, refuse(&op, "bias: dims[0] = 2");
    op = good, op.bias = y.view, refuse(&op, "y overlaps bias");
    op = good, op.y = x.view, refuse(&op, "y overlaps bias"); /* in place of x, which is the bias too */
    test_release(&x);
    test_release(&y);
    test_release(&mask);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_at_once_by_every_variant),
        cmocka_unit_test(repeated_dims),
        cmocka_unit_test(rows_that_are_masked_whole),
        cmocka_unit_test(half_in_place),
        cmocka_unit_test(bad_arguments),
    };
    return support_main("softmax modifiers", tests, sizeof tests / sizeof tests[0]);
}
