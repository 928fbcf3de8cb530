/* The merges of partial attention results and of softmax states: the published cases, random operands against the
 * oracle in every dtype, in place, strided, and more operands than one launch takes. */
#include "reference.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 24 };

/* ---- one merge of attention results ---- */

/* Dense values: o_in[i] [rows, dv] and lse_in[i] [rows], rows = dims[0] * dims[1] * dims[2]. */
struct merge {
    int count;
    int64_t dims[4];
    clattn_dtype dtype, out_dtype;
    double *o_in[MAX_OPERANDS], *lse_in[MAX_OPERANDS];
    const struct test_layout *o_layout, *lse_layout; /* of all operands and results; NULL: dense */
    int own;                                         /* the operand that the result overwrites; -1: none */
    bool without_lse;
};

struct merged {
    double *o, *lse;
};

static int64_t rows_of(const struct merge *merge) {
    return merge->dims[0] * merge->dims[1] * merge->dims[2];
}

static struct merge merge_of(int count, int64_t b, int64_t h, int64_t n, int64_t dv, clattn_dtype dtype) {
    struct merge merge = {.count = count, .dims = {b, h, n, dv}, .dtype = dtype, .out_dtype = dtype, .own = -1};
    for (int i = 0; i < count; i++) {
        merge.o_in[i] = test_array(b * h * n * dv);
        merge.lse_in[i] = test_array(b * h * n);
    }
    return merge;
}

static void merge_free(struct merge *merge) {
    for (int i = 0; i < merge->count; i++) {
        free(merge->o_in[i]);
        free(merge->lse_in[i]);
    }
}

static void merged_free(struct merged *merged) {
    free(merged->o);
    free(merged->lse);
}

static void read_back(const clattn_attention_merge_op *op, const struct test_tensor *o, const struct test_tensor *lse,
                      struct merged *result) {
    test_read(o, result->o);
    if (op->lse.memory.kind != CLATTN_MEMORY_NONE)
        test_read(lse, result->lse);
}

/* Runs it, twice unless in place, and demands the same bits and untouched surroundings. */
static struct merged merge_run(const struct merge *merge) {
    const int64_t rows = rows_of(merge), values = rows * merge->dims[3];
    struct test_tensor o_in[MAX_OPERANDS], lse_in[MAX_OPERANDS];
    clattn_tensor o_views[MAX_OPERANDS], lse_views[MAX_OPERANDS];
    struct test_tensor o = test_output(merge->out_dtype, 4, merge->dims, merge->o_layout);
    struct test_tensor lse = test_output(CLATTN_F32, 3, merge->dims, merge->lse_layout);
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    for (int i = 0; i < merge->count; i++) {
        o_in[i] = test_input(merge->dtype, 4, merge->dims, merge->o_in[i], merge->o_layout, NAN);
        lse_in[i] = test_input(CLATTN_F32, 3, merge->dims, merge->lse_in[i], merge->lse_layout, NAN);
        o_views[i] = o_in[i].view;
        lse_views[i] = lse_in[i].view;
    }
    op.count = merge->count;
    op.o_in = o_views;
    op.lse_in = lse_views;
    op.o = merge->own >= 0 ? o_views[merge->own] : o.view;
    if (!merge->without_lse)
        op.lse = merge->own >= 0 ? lse_views[merge->own] : lse.view;
    test_run(&op.head, NULL);

    const struct test_tensor *o_at = merge->own >= 0 ? &o_in[merge->own] : &o;
    const struct test_tensor *lse_at = merge->own >= 0 ? &lse_in[merge->own] : &lse;
    struct merged result = {test_array(values), test_array(rows)}, again = {test_array(values), test_array(rows)};
    read_back(&op, o_at, lse_at, &result);
    if (merge->own < 0) {
        test_run(&op.head, NULL);
        read_back(&op, o_at, lse_at, &again);
        assert_memory_equal(result.o, again.o, (size_t)values * sizeof(double));
        assert_memory_equal(result.lse, again.lse, (size_t)rows * sizeof(double));
    }
    for (int i = 0; i < merge->count; i++) {
        if (i != merge->own) {
            test_untouched(&o_in[i], "o_in");
            test_untouched(&lse_in[i], "lse_in");
        }
        test_release(&o_in[i]);
        test_release(&lse_in[i]);
    }
    test_release(&o);
    test_release(&lse);
    merged_free(&again);
    return result;
}

static void compare_rows(const struct merge *merge, const struct merged *got) {
    const int64_t rows = rows_of(merge), dv = merge->dims[3];
    double *want = test_array(rows * dv), *plain = test_array(rows * dv);
    double *want_lse = test_array(rows), *plain_lse = test_array(rows);
    for (int64_t r = 0; r < rows; r++) {
        const double *o_in[MAX_OPERANDS];
        double lse_in[MAX_OPERANDS];
        for (int i = 0; i < merge->count; i++) {
            o_in[i] = merge->o_in[i] + r * dv;
            lse_in[i] = merge->lse_in[i][r];
        }
        reference_attention_merge_row(merge->count, dv, o_in, lse_in, want + r * dv, want_lse + r);
        plain_attention_merge_row(merge->count, merge->out_dtype, dv, o_in, lse_in, plain + r * dv, plain_lse + r);
    }
    struct reference_error error = {0}, lse_error = {0};
    reference_compare(&error, rows * dv, got->o, want, reference_plain_error(rows * dv, want, plain), merge->out_dtype);
    if (error.bad)
        fail_msg("%d operands: o[%lld] is %.9g, not %.9g (bound %.3g)", merge->count, (long long)error.index, error.got,
                 error.want, error.bound);
    reference_compare(&lse_error, merge->without_lse ? 0 : rows, got->lse, want_lse,
                      reference_plain_error(rows, want_lse, plain_lse), CLATTN_F32);
    if (lse_error.bad)
        fail_msg("%d operands: lse[%lld] is %.9g, not %.9g (bound %.3g)", merge->count, (long long)lse_error.index,
                 lse_error.got, lse_error.want, lse_error.bound);
    free(want);
    free(plain);
    free(want_lse);
    free(plain_lse);
}

static void merge_check(const struct merge *merge) {
    struct merged got = merge_run(merge);
    compare_rows(merge, &got);
    merged_free(&got);
}

/* Operands of unlike weights; every seventh row of every third operand has seen no key and holds NaN. */
static void fill_random(struct merge *merge, uint64_t seed) {
    const int64_t rows = rows_of(merge), dv = merge->dims[3];
    for (int i = 0; i < merge->count; i++)
        for (int64_t r = 0; r < rows; r++) {
            const bool empty = i % 3 == 1 && r % 7 == 2;
            merge->lse_in[i][r] =
                empty ? -INFINITY : (double)(float)(3 * reference_normal((uint64_t)(r * 64 + i), seed));
            for (int64_t c = 0; c < dv; c++) {
                const uint64_t index = (uint64_t)((r * dv + c) * 64 + i);
                merge->o_in[i][r * dv + c] =
                    empty ? NAN : reference_round(merge->dtype, reference_normal(index, seed + 1));
            }
        }
}

/* ---- published cases ---- */

static void merge_pair(double o0, double lse0, double o1, double lse1, double want_o, double want_lse,
                       double tolerance) {
    struct merge merge = merge_of(2, 1, 1, 1, 2, CLATTN_F32);
    const double o[2][2] = {{o0, 2 * o0}, {o1, 2 * o1}}, lse[2] = {lse0, lse1};
    for (int i = 0; i < 2; i++) {
        memcpy(merge.o_in[i], o[i], sizeof o[i]);
        merge.lse_in[i][0] = lse[i];
    }
    struct merged got = merge_run(&merge);
    struct reference_error error = {0};
    const double want[] = {want_o, 2 * want_o, want_lse}, found[] = {got.o[0], got.o[1], got.lse[0]};
    reference_compare_within(&error, 3, found, want, tolerance, tolerance);
    if (error.bad)
        fail_msg("(%g, %g) + (%g, %g): %.9g where %.9g was expected", o0, lse0, o1, lse1, error.got, error.want);
    merged_free(&got);
    merge_free(&merge);
}

/* A08 */
static void empty_and_far_operands(void **state) {
    (void)state;
    merge_pair(0, -INFINITY, 0, -INFINITY, 0, -INFINITY, 0);
    merge_pair(0, -INFINITY, 3, 2, 3, 2, 0);
    merge_pair(3, 2, 0, -INFINITY, 3, 2, 0);
    merge_pair(3, log(3), 1, 0, 2.5, log(4), 1e-6);
    merge_pair(1, -120000, 3, -120001, 1.5378828427, -119999.6867383, 1e-6);
    merge_pair(1, 300, 3, 301, 2.4621171573, 301.3132616875, 1e-6);
    merge_pair(NAN, -INFINITY, 3, 2, 3, 2, 0);
    merge_pair(INFINITY, -INFINITY, 3, 2, 3, 2, 0);
    merge_pair(NAN, INFINITY, 3, 2, 3, 2, 0);
    merge_pair(NAN, INFINITY, NAN, -INFINITY, 0, -INFINITY, 0);
    merge_pair(7, 0, 0, -INFINITY, 7, 0, 0);
    merge_pair(1, NAN, 3, 2, NAN, NAN, 0);
}

static void counts_from_none_to_many(void **state) {
    static const int counts[] = {0, 1, 5, 8, 9, 15, 16, 23};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct merge merge = merge_of(counts[i], 1, 2, 10, 12, CLATTN_F32);
        fill_random(&merge, 40 + i);
        merge_check(&merge);
        merge_free(&merge);
    }
}

static void every_dtype_and_width(void **state) {
    static const int64_t widths[] = {1, 3, 40, 64, 128};
    (void)state;
    for (int in = CLATTN_F32; in <= CLATTN_BF16; in++)
        for (int out = CLATTN_F32; out <= CLATTN_BF16; out++) {
            const int64_t width = widths[(in * 3 + out) % 5];
            struct merge merge = merge_of(3, 2, 3, 17, width, (clattn_dtype)in);
            merge.out_dtype = (clattn_dtype)out;
            fill_random(&merge, 50);
            merge_check(&merge);
            merge_free(&merge);
        }
}

static void many_operands_in_half(void **state) {
    (void)state;
    struct merge merge = merge_of(20, 1, 2, 10, 24, CLATTN_F16);
    fill_random(&merge, 60);
    merge_check(&merge);
    merge.without_lse = true;
    merge_check(&merge);
    merge_free(&merge);
}

static void strided_and_offset(void **state) {
    static const struct test_layout o = {3, {2000, 500, 30, 1}}, lse = {5, {1, 40, 4}};
    (void)state;
    struct merge merge = merge_of(4, 2, 3, 10, 24, CLATTN_F32);
    fill_random(&merge, 70);
    merge.o_layout = &o;
    merge.lse_layout = &lse;
    merge_check(&merge);
    merge_free(&merge);
}

static void in_place(void **state) {
    static const int cases[][2] = {{2, 0}, {2, 1}, {5, 3}, {12, 0}, {12, 10}}; /* operands, the result's own */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct merge merge = merge_of(cases[i][0], 1, 2, 33, 72, CLATTN_F32);
        fill_random(&merge, 80 + i);
        merge.own = cases[i][1];
        merge_check(&merge);
        merge_free(&merge);
    }
}

/* ---- number formats ---- */

/* One operand of weight 1 comes out as it went in, rounded to the result's type. */
static void convert(clattn_dtype dtype, const uint32_t *bits, int count, int64_t width, double *result) {
    const int64_t dims[4] = {1, 1, 1, width};
    double zeros[16] = {0}, zero = 0;
    struct test_tensor in = test_input(CLATTN_F32, 4, dims, zeros, NULL, NAN), out = test_output(dtype, 4, dims, NULL);
    struct test_tensor lse = test_input(CLATTN_F32, 3, dims, &zero, NULL, NAN);
    CHECK_CL(clEnqueueWriteBuffer(device.queue, in.buffer, CL_TRUE, (size_t)in.view.offset * 4, (size_t)count * 4, bits,
                                  0, NULL, NULL));
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    op.count = 1;
    op.o_in = &in.view;
    op.lse_in = &lse.view;
    op.o = out.view;
    test_run(&op.head, NULL);
    test_read(&out, result);
    test_release(&in);
    test_release(&out);
    test_release(&lse);
}

static uint32_t bits_of(double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

static void narrow_types_round_to_even(void **state) {
    const uint32_t to_bf16[] = {bits_of(0.2691408770292272),
                                bits_of(1 + 0x1p-8),
                                bits_of(1 + 3 * 0x1p-8),
                                bits_of(1 + 0x1p-8 + 0x1p-16),
                                bits_of(3.4e38),
                                0x7F800001,
                                0xFFFFFFFF,
                                bits_of(-(double)INFINITY)};
    const double bf16[] = {0.26953125, 1, 1.015625, 1.0078125, INFINITY, NAN, NAN, -INFINITY};
    const uint32_t to_f16[] = {bits_of(65519),   bits_of(65520),      bits_of(1.5 * 0x1p-25),
                               bits_of(0x1p-25), bits_of(-65519),     0x7F800001,
                               0xFFFFFFFF,       bits_of(1 + 0x1p-11)};
    const double f16[] = {65504, INFINITY, 0x1p-24, 0, -65504, NAN, NAN, 1};
    (void)state;
    for (int64_t width = 8; width <= 9; width++) { /* by packets, and one by one */
        double got[16];
        struct reference_error error = {0};
        convert(CLATTN_BF16, to_bf16, 8, width, got);
        reference_compare_within(&error, 8, got, bf16, 0, 0);
        convert(CLATTN_F16, to_f16, 8, width, got);
        reference_compare_within(&error, 8, got, f16, 0, 0);
        if (error.bad)
            fail_msg("value %lld came out as %.9g, not %.9g", (long long)error.index, error.got, error.want);
    }
}

static void overlapping_is_refused(void **state) {
    (void)state;
    const int64_t dims[4] = {1, 1, 4, 8};
    double values[32] = {0};
    struct test_tensor a = test_input(CLATTN_F32, 4, dims, values, NULL, NAN);
    struct test_tensor b = test_input(CLATTN_F32, 4, dims, values, NULL, NAN);
    struct test_tensor lse = test_input(CLATTN_F32, 3, dims, values, NULL, NAN);
    const clattn_tensor o_in[] = {a.view, b.view}, lse_in[] = {lse.view, lse.view};
    clattn_attention_merge_op op;
    clattn_launch launch;
    clattn_attention_merge_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.count = 2;
    op.o_in = o_in;
    op.lse_in = lse_in;
    op.o = a.view;
    op.o.offset += 1;
    support_expect(clattn_attention_merge(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, "shifted o");
    op.o = a.view;
    op.lse = lse.view; /* of both operands */
    support_expect(clattn_attention_merge(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, "lse of another");
    assert_non_null(strstr(clattn_last_error(), "lse"));
    test_untouched(&a, "o_in[0]");
    test_release(&a);
    test_release(&b);
    test_release(&lse);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_and_far_operands),     cmocka_unit_test(counts_from_none_to_many),
        cmocka_unit_test(every_dtype_and_width),      cmocka_unit_test(many_operands_in_half),
        cmocka_unit_test(strided_and_offset),         cmocka_unit_test(in_place),
        cmocka_unit_test(narrow_types_round_to_even), cmocka_unit_test(overlapping_is_refused),
    };
    return support_main("merge", tests, sizeof tests / sizeof tests[0]);
}
