/* Every operation, variant and dtype once, small: run under conditions that a whole suite would be too slow for, such
 * as tiny work-groups, masked capabilities, checkers and other drivers. */
#include "attention_harness.h"
#include "gradient_harness.h"
#include "norm_harness.h"
#include "rope_harness.h"

#include <clattn/training.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ran;
static bool brief; /* fp32, and fp16 once: where each run is a build of its own */

/* No variant at all is fine where the library says why, before it enqueues anything. */
static bool refused_clearly(const clattn_op *op) {
    const clattn_status status = clattn_supported(device.clattn, op, NULL);
    if (status == CLATTN_SUCCESS)
        return false;
    support_expect(status, CLATTN_UNSUPPORTED, "clattn_supported");
    assert_true(clattn_last_error()[0] != '\0');
    printf("refused: %s\n", clattn_last_error());
    return true;
}

/* Each variant, and the library's choice. */
static void attention_of(const struct attention_case *c, clattn_dtype dtype) {
    struct attention_data data = attention_data_of(c, dtype);
    const int ran_before = ran;
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index)); ran++) {
        struct attention_result result = attention_run(&data, variant);
        attention_compare(&data, &result, variant, 64);
        attention_result_free(&result);
    }
    if (ran > ran_before) {
        struct attention_result chosen = attention_run(&data, NULL);
        attention_compare(&data, &chosen, "chosen", 64);
        attention_result_free(&chosen);
    }
    attention_data_free(&data);
}

static void every_attention(void **state) {
    (void)state;
    const struct attention_case shape = {.name = "small",
                                         .batch = 1,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .nq = 19,
                                         .nk = 37,
                                         .head_dim = 64,
                                         .value_dim = 64,
                                         .q = fill_u1,
                                         .k = fill_u2,
                                         .v = fill_u3};
    for (int causal = 0; causal < 2; causal++)
        for (int t = brief ? causal : 0; t < (brief ? causal + 1 : 3); t++) {
            struct attention_case c = shape;
            c.causal = (clattn_causal)causal;
            attention_of(&c, all_dtypes[t]);
        }
}

static double every_third(const int64_t at[4], int64_t flat) {
    (void)flat;
    return (at[2] + at[3]) % 3 != 0;
}

/* All modifiers at once, in two calls because pages and offsets of keys exclude each other. */
static const double slopes[] = {0.25, 0.0625}, sinks[] = {0.5, -1}, q_offsets[] = {0, 14, 21},
                    k_offsets[] = {3, 40, 60};
static const struct attention_case modified = {.name = "modifiers",
                                               .batch = 2,
                                               .heads = 2,
                                               .kv_heads = 1,
                                               .nq = 23,
                                               .nk = 61,
                                               .head_dim = 64,
                                               .value_dim = 64,
                                               .q = fill_u1,
                                               .k = fill_u2,
                                               .v = fill_u3,
                                               .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
                                               .with = {.has_window = true,
                                                        .window_left = 17,
                                                        .window_right = -1,
                                                        .softcap = 3,
                                                        .mask = {.dims = {1, 2, 23, 61}, .fill = every_third},
                                                        .bias = {.dims = {1, 1, 23, 61}, .fill = fill_u3},
                                                        .alibi = slopes,
                                                        .sinks = sinks,
                                                        .q_offsets = q_offsets,
                                                        .k_offsets = k_offsets}};

static void every_modifier_of_attention(void **state) {
    struct attention_case c = modified;
    (void)state;
    attention_of(&c, CLATTN_F32);
    c.nk = 16;
    c.with = (struct case_modifiers){.page_table = (const double[]){2, 0, 3, 4, 2, -1},
                                     .max_pages = 3,
                                     .pages = 5,
                                     .q_lengths = (const double[]){23, 5},
                                     .k_lengths = (const double[]){45, 20}};
    attention_of(&c, CLATTN_F16);
}

/* Each variant, or the preferred one where brief. */
static void every_gradient_of_attention(void **state) {
    const struct attention_data forward = attention_data_random(&modified, CLATTN_F32, 11);
    struct gradient_data data = gradient_data_from(&forward, 11, true);
    const char *names[8];
    (void)state;
    const size_t count = gradient_variants(&data, NULL, names, 8);
    for (size_t i = 0; i < (brief && count > 1 ? 1 : count); i++, ran++) {
        struct reference_gradients got = gradients_run(&data, NULL, names[i]);
        gradients_compare(&data, &got, names[i]);
        gradients_free(&got);
    }
    assert_true(count > 0);
    gradient_data_free(&data);
}

/* x = ln(c + 1) gives y = 2 (c + 1) / (N (N + 1)) and a log-sum-exp of ln(N (N + 1) / 2). */
static void softmax_in(clattn_dtype dtype, int64_t columns, clattn_softmax_function last) {
    const int64_t rows = 3, dims[] = {rows, columns};
    double *values = test_array(rows * columns), *got = test_array(rows * columns);
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = log((double)(i % columns) + 1);
    struct test_tensor x = test_input(dtype, 2, dims, values, NULL, (double)NAN);
    struct test_tensor y = test_output(dtype, 2, dims, NULL);
    const double tolerance = dtype == CLATTN_F32 ? 1e-5 : dtype == CLATTN_F16 ? 4e-3 : 3e-2;
    for (int function = CLATTN_SOFTMAX; function <= (int)last; function++) {
        clattn_softmax_op op;
        clattn_softmax_init(&op);
        op.function = (clattn_softmax_function)function;
        op.x = x.view;
        op.y = y.view;
        size_t index = 0;
        if (refused_clearly(&op.head))
            continue;
        for (const char *variant; (variant = test_next_variant(&op.head, &index)); ran++) {
            test_reset(&y);
            test_run(&op.head, variant);
            test_read(&y, got);
            for (int64_t i = 0; i < rows * columns; i++) {
                const double p = 2 * (double)(i % columns + 1) / ((double)columns * (double)(columns + 1));
                const double want = function == CLATTN_SOFTMAX ? p : log(p);
                if (!(fabs(got[i] - want) <= tolerance * (1 + fabs(want))))
                    fail_msg("softmax function %d, %s, %s: [%lld] is %.9g, not %.9g", function, variant,
                             dtype_name(dtype), (long long)i, got[i], want);
            }
        }
    }
    test_release(&x);
    test_release(&y);
    free(values);
    free(got);
}

static void every_softmax(void **state) {
    (void)state;
    for (int t = 0; t < (brief ? 1 : 3); t++)
        softmax_in(all_dtypes[t], 300, brief || t > 0 ? CLATTN_SOFTMAX : CLATTN_LOG_SOFTMAX);
}

/* Two equal states merge into the same maximum with twice the sum. */
static void every_softmax_merge(void **state) {
    (void)state;
    const int64_t dims[] = {7};
    const double m_values[] = {0, 1, -2, 3, -(double)INFINITY, 5, 6}, l_values[] = {1, 2, 3, 4, 0, 6, 7};
    double m_got[7], l_got[7];
    struct test_tensor m_in = test_input(CLATTN_F32, 1, dims, m_values, NULL, (double)NAN);
    struct test_tensor l_in = test_input(CLATTN_F32, 1, dims, l_values, NULL, (double)NAN);
    struct test_tensor m = test_output(CLATTN_F32, 1, dims, NULL), l = test_output(CLATTN_F32, 1, dims, NULL);
    const clattn_tensor ms[] = {m_in.view, m_in.view}, ls[] = {l_in.view, l_in.view};
    clattn_softmax_merge_op op;
    clattn_softmax_merge_init(&op);
    op.count = 2;
    op.m_in = ms;
    op.l_in = ls;
    op.m = m.view;
    op.l = l.view;
    size_t index = 0;
    for (const char *variant; (variant = test_next_variant(&op.head, &index)); ran++) {
        test_run(&op.head, variant);
        test_read(&m, m_got);
        test_read(&l, l_got);
        for (int i = 0; i < 7; i++)
            assert_true(m_got[i] == m_values[i] && fabs(l_got[i] - 2 * l_values[i]) <= 1e-5);
    }
    test_release(&m_in);
    test_release(&l_in);
    test_release(&m);
    test_release(&l);
}

/* Two operands of equal weight merge into their mean. */
static void every_attention_merge(void **state) {
    (void)state;
    const int64_t dims[] = {1, 2, 3, 5};
    double a_values[30], b_values[30], zeros[6] = {0}, got[30], lse_got[6];
    for (int i = 0; i < 30; i++) {
        a_values[i] = i;
        b_values[i] = 3 * i + 2;
    }
    for (int t = 0; t < 3; t++) {
        struct test_tensor a = test_input(all_dtypes[t], 4, dims, a_values, NULL, (double)NAN);
        struct test_tensor b = test_input(all_dtypes[t], 4, dims, b_values, NULL, (double)NAN);
        struct test_tensor in_lse = test_input(CLATTN_F32, 3, dims, zeros, NULL, (double)NAN);
        struct test_tensor o = test_output(all_dtypes[t], 4, dims, NULL), lse = test_output(CLATTN_F32, 3, dims, NULL);
        const clattn_tensor o_in[] = {a.view, b.view}, lse_in[] = {in_lse.view, in_lse.view};
        clattn_attention_merge_op op;
        clattn_attention_merge_init(&op);
        op.count = 2;
        op.o_in = o_in;
        op.lse_in = lse_in;
        op.o = o.view;
        op.lse = lse.view;
        size_t index = 0;
        for (const char *variant; (variant = test_next_variant(&op.head, &index)); ran++) {
            test_run(&op.head, variant);
            test_read(&o, got);
            test_read(&lse, lse_got);
            for (int i = 0; i < 30; i++)
                assert_true(fabs(got[i] - (2 * i + 1)) <= 1e-5 && fabs(lse_got[i / 5] - log(2)) <= 1e-6);
        }
        test_release(&a);
        test_release(&b);
        test_release(&in_lse);
        test_release(&o);
        test_release(&lse);
    }
}

static void gemm_in(clattn_dtype dtype, int transpose) {
    enum { M = 13, N = 17, K = 19 };
    const int64_t a_dims[] = {transpose & 1 ? K : M, transpose & 1 ? M : K};
    const int64_t b_dims[] = {transpose & 2 ? N : K, transpose & 2 ? K : N}, c_dims[] = {M, N};
    double a_values[M * K], b_values[K * N], got[M * N], want[M * N], plain[M * N];
    for (uint32_t i = 0; i < M * K; i++)
        a_values[i] = reference_u(i, 1);
    for (uint32_t i = 0; i < K * N; i++)
        b_values[i] = reference_u(i, 2);
    const struct reference_gemm problem = {1, M, N, K, transpose & 1, transpose & 2, 1, 0};
    for (int64_t row = 0; row < M; row++) {
        reference_gemm_row(&problem, a_values, b_values, NULL, row, want + row * N);
        plain_gemm_row(&problem, dtype, a_values, b_values, NULL, row, plain + row * N);
    }
    struct test_tensor a = test_input(dtype, 2, a_dims, a_values, NULL, (double)NAN);
    struct test_tensor b = test_input(dtype, 2, b_dims, b_values, NULL, (double)NAN);
    struct test_tensor c = test_output(dtype, 2, c_dims, NULL);
    clattn_gemm_op op;
    clattn_gemm_init(&op);
    op.transpose_a = transpose & 1;
    op.transpose_b = transpose & 2;
    op.a = a.view;
    op.b = b.view;
    op.c = c.view;
    size_t index = 0;
    for (const char *variant; (variant = test_next_variant(&op.head, &index)); ran++) {
        struct reference_error error = {0};
        test_reset(&c);
        test_run(&op.head, variant);
        test_read(&c, got);
        reference_compare(&error, M * N, got, want, reference_plain_error(M * N, want, plain), dtype);
        if (error.bad)
            fail_msg("gemm %d, %s, %s: [%lld] is %.9g, not %.9g", transpose, variant, dtype_name(dtype),
                     (long long)error.index, error.got, error.want);
    }
    test_release(&a);
    test_release(&b);
    test_release(&c);
}

static void every_gemm(void **state) {
    (void)state;
    for (int t = 0; t < (brief ? 1 : 3); t++)
        gemm_in(all_dtypes[t], 0);
    gemm_in(CLATTN_F32, 3);
}

static void every_norm(void **state) {
    (void)state;
    for (int t = 0; t < (brief ? 1 : 3); t++) {
        struct norm_problem problem = norm_of(t > 0 ? CLATTN_RMS_NORM : CLATTN_LAYER_NORM, 3, 300);
        problem.with_residual = problem.with_sum = t != 1;
        norm_set_dtypes(&problem, all_dtypes[t], all_dtypes[t], CLATTN_F32, all_dtypes[t]);
        norm_check(&problem, ROWS_VARIANTS);
        norm_free(&problem);
        ran++;
    }
}

static void every_append(void **state) {
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.rows = 20;
    problem.cache_rows = 23;
    rope_check(&problem, "append");
    ran++;
}

/* A gradient of 6 under a loss scale of 4, by a list of two; SGD with a rate of 1 takes it off the weights. */
static void every_step_of_training(void **state) {
    enum { N = 21 };
    const int64_t dims[] = {N}, one = 1, four = 4;
    const double zero = 0, zeros[4] = {0};
    double six[N], ten[N], got[N], words[4];
    (void)state;
    for (int i = 0; i < N; i++) {
        six[i] = 6;
        ten[i] = 10;
    }
    struct test_tensor scale = test_input(CLATTN_I32, 1, &four, zeros, NULL, guard_value);
    struct test_tensor flag = test_input(CLATTN_I32, 1, &one, &zero, NULL, guard_value);
    struct test_tensor x[2], y[2], param[2];
    clattn_tensor xs[2], ys[2], params[2];
    for (int i = 0; i < 2; i++) {
        x[i] = test_input(CLATTN_F16, 1, dims, six, NULL, (double)NAN);
        y[i] = test_output(CLATTN_F32, 1, dims, NULL);
        param[i] = test_input(CLATTN_F32, 1, dims, ten, NULL, guard_value);
        xs[i] = x[i].view;
        ys[i] = y[i].view;
        params[i] = param[i].view;
    }
    clattn_loss_scale_op start;
    clattn_loss_scale_init(&start);
    start.state = scale.view;
    start.restart = 1;
    start.initial = 4;
    test_run(&start.head, NULL);
    test_read(&scale, words);
    assert_true(words[0] == 0x40800000 && words[1] == 0);
    clattn_unscale_op unscale;
    clattn_unscale_init(&unscale);
    unscale.count = 2;
    unscale.x = xs;
    unscale.y = ys;
    unscale.scale = scale.view;
    unscale.scale.dtype = CLATTN_F32;
    unscale.scale.dims[0] = 1;
    unscale.overflow = flag.view;
    test_run(&unscale.head, NULL);
    clattn_sgd_op sgd;
    clattn_sgd_init(&sgd);
    sgd.list = (clattn_optimizer_list){.count = 2, .param = params, .grad = ys, .overflow = flag.view};
    sgd.lr = 1;
    test_run(&sgd.head, NULL);
    clattn_cast_op cast;
    clattn_cast_init(&cast);
    cast.x = params[1];
    cast.y = xs[1];
    test_run(&cast.head, NULL);
    test_read(&param[0], got);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == 8.5);
    test_read(&x[1], got);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == 8.5);
    for (int i = 0; i < 2; i++) {
        test_release(&x[i]);
        test_release(&y[i]);
        test_release(&param[i]);
    }
    test_release(&scale);
    test_release(&flag);
    ran += 4;
}

static void something_ran(void **state) {
    (void)state;
    printf("%d calls of variants\n", ran);
    assert_true(ran > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_attention),
        cmocka_unit_test(every_modifier_of_attention),
        cmocka_unit_test(every_gradient_of_attention),
        cmocka_unit_test(every_softmax),
        cmocka_unit_test(every_softmax_merge),
        cmocka_unit_test(every_attention_merge),
        cmocka_unit_test(every_gemm),
        cmocka_unit_test(every_norm),
        cmocka_unit_test(every_append),
        cmocka_unit_test(every_step_of_training),
        cmocka_unit_test(something_ran),
    };
    brief = argc > 1 && strcmp(argv[1], "brief") == 0;
    return support_main("every operation", tests, sizeof tests / sizeof tests[0]);
}
