/* The oracles against numbers computed elsewhere, and the number formats against their definition: what the tests of
 * the kernels trust is tested first. */
#include "plain.h"
#include "reference.h"

#include "../src/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void generator_gives_the_published_values(void **state) {
    (void)state;
    const double expected[] = {0.375, -0.953125, -0.4375, 0.484375, -0.8125, -0.765625};
    for (uint32_t i = 0; i < 6; i++)
        assert_true(reference_u(i, 1) == expected[i]);
    for (uint32_t i = 0; i < 4096; i++) {
        const double u = reference_u(i, 7);
        assert_true(u >= -1 && u <= 63 / 64.0);
        assert_true(reference_round(CLATTN_BF16, u) == u && reference_round(CLATTN_F16, u) == u);
    }
}

static void normal_values_have_the_right_moments(void **state) {
    (void)state;
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        const double x = reference_normal(i, 5);
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / 1e5) < 0.02 && fabs(squares / 1e5 - 1) < 0.02);
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void bf16_is_rounded_to_nearest_even(void **state) {
    (void)state;
    assert_true(reference_round(CLATTN_BF16, 0.2691408770292272) == 0.26953125);
    assert_true(reference_round(CLATTN_BF16, 1 + 0x1p-8) == 1.0);
    assert_true(reference_round(CLATTN_BF16, 1 + 0x3p-8) == 1.015625);
    assert_true(reference_round(CLATTN_BF16, 1 + 0x1p-8 + 0x1p-16) == 1.0078125);
    assert_true(reference_round(CLATTN_BF16, 3.4e38) == (double)INFINITY);
    assert_true(isnan(reference_round(CLATTN_BF16, (double)from_bits(0x7f800001u))));
    assert_true(isnan(reference_round(CLATTN_BF16, (double)from_bits(0xffffffffu))));
}

static void fp16_is_rounded_to_nearest_even(void **state) {
    (void)state;
    assert_true(reference_round(CLATTN_F16, 65519) == 65504);
    assert_true(reference_round(CLATTN_F16, 65520) == (double)INFINITY);
    assert_true(reference_round(CLATTN_F16, -65520) == -(double)INFINITY);
    assert_true(reference_round(CLATTN_F16, 1.5 * 0x1p-25) == 0x1p-24);
    assert_true(reference_round(CLATTN_F16, 0x1p-25) == 0);
    assert_true(half_from_double(-0.0) == 0x8000u);
}

static void every_16_bit_value_survives_a_round_trip(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const double half = half_to_double((uint16_t)bits), bf16 = bf16_to_double((uint16_t)bits);
        assert_true(isnan(half) ? isnan(half_to_double(half_from_double(half))) : half_from_double(half) == bits);
        assert_true(isnan(bf16) ? isnan(bf16_to_double(bf16_from_double(bf16))) : bf16_from_double(bf16) == bits);
        assert_true(isnan(bf16) || bf16 == (double)from_bits(bits << 16));
    }
}

static void ulp_is_the_gap_to_the_next_number(void **state) {
    (void)state;
    assert_true(reference_ulp(CLATTN_F32, 1) == 0x1p-23 && reference_ulp(CLATTN_F32, -3) == 0x1p-22);
    assert_true(reference_ulp(CLATTN_F16, 1) == 0x1p-10 && reference_ulp(CLATTN_F16, 1e-9) == 0x1p-24);
    assert_true(reference_ulp(CLATTN_BF16, 256) == 2 && reference_ulp(CLATTN_F16, 0) == 0x1p-24);
}

static void views_are_gathered_and_scattered_by_their_strides(void **state) {
    (void)state;
    float memory[16] = {0};
    const clattn_tensor view = {.offset = 1, .dtype = CLATTN_F32, .rank = 2, .dims = {2, 3}, .strides = {1, 5}};
    const double values[6] = {1, 2, 3, 4, 5, 6};
    double back[6];
    reference_scatter(&view, memory, values);
    assert_true(memory[1] == 1 && memory[6] == 2 && memory[11] == 3 && memory[2] == 4 && memory[12] == 6);
    reference_gather(&view, memory, back);
    assert_memory_equal(values, back, sizeof values);
}

/* ---- products and comparing ---- */

static void products_agree_in_all_transpositions(void **state) {
    (void)state;
    const double a[6] = {1, 2, 3, 4, 5, 6}, a_t[6] = {1, 4, 2, 5, 3, 6};
    const double b[6] = {1, -1, 2, 0, 3, 1}, b_t[6] = {1, 2, 3, -1, 0, 1};
    const double c_in[4] = {10, 20, 30, 40}, expected[4] = {33, 14, 79, 24};
    for (int t = 0; t < 4; t++) {
        const struct reference_gemm problem = {1, 2, 2, 3, t & 1, t & 2, 2, 0.5};
        for (int64_t row = 0; row < 2; row++) {
            double c[2], plain[2];
            reference_gemm_row(&problem, t & 1 ? a_t : a, t & 2 ? b_t : b, c_in, row, c);
            plain_gemm_row(&problem, CLATTN_F32, t & 1 ? a_t : a, t & 2 ? b_t : b, c_in, row, plain);
            assert_memory_equal(c, expected + row * 2, sizeof c);
            assert_memory_equal(plain, expected + row * 2, sizeof plain);
        }
    }
}

static void comparison_never_skips_a_non_finite_value(void **state) {
    (void)state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double got[] = {1, nan, nan, 1, inf, -inf, inf}, want[] = {1, nan, 1, nan, inf, inf, 70000};
    struct reference_error error = {0};
    reference_compare(&error, 7, got, want, 0, CLATTN_F16);
    assert_int_equal(error.bad, 3);
    assert_int_equal(error.class_mismatches, 3);
    assert_int_equal(error.index, 2);
}

static void comparison_counts_what_exceeds_the_bound(void **state) {
    (void)state;
    const double got[] = {1 + 0x1p-23, 1 + 0x1p-21}, want[] = {1, 1};
    struct reference_error error = {0};
    reference_compare(&error, 2, got, want, 0, CLATTN_F32);
    assert_int_equal(error.bad, 1);
    assert_true(error.largest == 0x1p-21 && error.bound == 0x1p-23);
}

/* ---- plain versions of several ways ---- */

static void orders_take_every_term_once(void **state) {
    (void)state;
    for (int order = 0; order < 24; order++)
        for (int64_t count = 0; count < 30; count++) {
            unsigned seen = 0;
            for (int64_t i = 0; i < count; i++)
                seen |= 1u << plain_term(order, i, count);
            assert_int_equal(seen, (1u << count) - 1);
        }
    assert_int_equal(plain_term(PLAIN_DOWN, 0, 5), 4);
    assert_int_equal(plain_term(PLAIN_EVEN_FIRST, 1, 5), 2);
    assert_int_equal(plain_term(3, 2, 5), 1); /* 0, 3, 1, 4, 2 */
}

static void the_farthest_value_is_kept(void **state) {
    double kept = 7;
    (void)state;
    plain_keep(&kept, 1.5, 1, true);
    assert_true(kept == 1.5);
    plain_keep(&kept, 1.25, 1, false);
    assert_true(kept == 1.5);
    plain_keep(&kept, 0.25, 1, false);
    assert_true(kept == 0.25);
    plain_keep(&kept, 9, (double)NAN, false);
    assert_true(kept == 0.25);
}

/* P = (1/2, 1/2 - 2^-10) rounds in bf16 before the division and behind it, with other errors. */
static void the_plain_attention_has_the_larger_error_of_both_divisions(void **state) {
    const double q[] = {1}, k[] = {0, -0.00390625}, v[] = {1, -1};
    struct reference_attention problem = {.batch = 1,
                                          .heads = 1,
                                          .kv_heads = 1,
                                          .head_dim = 1,
                                          .value_dim = 1,
                                          .nq = 1,
                                          .nk = 2,
                                          .scale = 1,
                                          .window_left = -1,
                                          .window_right = -1};
    double right, plain, lse;
    (void)state;
    reference_attention_row(&problem, q, k, v, 0, &right, &lse, NULL);
    plain_attention_row(&problem, CLATTN_BF16, CLATTN_F32, q, k, v, 0, &plain, &lse, NULL);
    const double e = exp(k[1]), sum = 1 + e;
    const double before = (1 - reference_round(CLATTN_BF16, e)) / sum,
                 behind = reference_round(CLATTN_BF16, 1 / sum) - reference_round(CLATTN_BF16, e / sum);
    assert_true(fabs(fabs(plain - right) - fmax(fabs(before - right), fabs(behind - right))) < 1e-6);
    assert_true(fabs(before - behind) > 1e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_gives_the_published_values),
        cmocka_unit_test(normal_values_have_the_right_moments),
        cmocka_unit_test(bf16_is_rounded_to_nearest_even),
        cmocka_unit_test(fp16_is_rounded_to_nearest_even),
        cmocka_unit_test(every_16_bit_value_survives_a_round_trip),
        cmocka_unit_test(ulp_is_the_gap_to_the_next_number),
        cmocka_unit_test(views_are_gathered_and_scattered_by_their_strides),
        cmocka_unit_test(products_agree_in_all_transpositions),
        cmocka_unit_test(comparison_never_skips_a_non_finite_value),
        cmocka_unit_test(comparison_counts_what_exceeds_the_bound),
        cmocka_unit_test(orders_take_every_term_once),
        cmocka_unit_test(the_farthest_value_is_kept),
        cmocka_unit_test(the_plain_attention_has_the_larger_error_of_both_divisions),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
