/* Head dims that fit no vector, value dims unlike the head dim, lengths around tile edges, head maps. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The products of unfused attention are programs of their own for each short Nk: fp32 takes all of them, the half types
 * those that are longer than a slice. */
static void check_lengths(const struct attention_data *data) {
    size_t index = 0;
    if (data->dtype == CLATTN_F32 || data->problem.nk >= 64) {
        attention_check(data);
        return;
    }
    for (const char *variant; (variant = attention_next_variant(data, &index));) {
        if (strcmp(variant, "unfused") == 0)
            continue;
        struct attention_result result = attention_run(data, variant);
        attention_compare(data, &result, variant, 64);
        attention_result_free(&result);
    }
}

static void check(const char *name, clattn_dtype dtype, int64_t heads, int64_t kv_heads, int64_t nq, int64_t nk,
                  int64_t head_dim, int64_t value_dim, clattn_causal causal) {
    const struct attention_case shape = {.name = name,
                                         .batch = 1,
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .nq = nq,
                                         .nk = nk,
                                         .head_dim = head_dim,
                                         .value_dim = value_dim,
                                         .q = fill_u1,
                                         .k = fill_u2,
                                         .v = fill_u3,
                                         .causal = causal};
    struct attention_data data = attention_data_of(&shape, dtype);
    check_lengths(&data);
    attention_data_free(&data);
}

/* A35. Each head dim is a program of its own, so the half types take every fifth, each others, where not all are asked
 * for. */
static void head_dims(clattn_dtype dtype, size_t first, size_t step) {
    const int64_t dims[] = {1, 2, 3, 5, 8, 33, 40, 46, 72, 80, 96, 100, 127, 128, 160, 256, 511, 512};
    const bool all = getenv("CLATTN_TEST_FULL") != NULL;
    for (size_t i = all ? 0 : first; i < sizeof dims / sizeof dims[0]; i += all ? 1 : step)
        check("A35 head dims", dtype, 2, 2, 5, 37, dims[i], dims[i], CLATTN_CAUSAL_NONE);
}

static void head_dims_in_fp32(void **state) {
    (void)state;
    head_dims(CLATTN_F32, 0, 1);
}

static void head_dims_in_fp16(void **state) {
    (void)state;
    head_dims(CLATTN_F16, 2, 5);
}

static void head_dims_in_bf16(void **state) {
    (void)state;
    head_dims(CLATTN_BF16, 4, 5);
}

/* A36. All dims in fp32, the first few in the half types. */
static void value_dims_unlike_head_dims(void **state) {
    const int64_t dims[][2] = {{24, 40}, {64, 128}, {192, 128}, {576, 512}, {3, 5}, {64, 1}, {320, 300}};
    const size_t counts[] = {7, 3, 4};
    const bool all = getenv("CLATTN_TEST_FULL") != NULL;
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < (all ? 7 : counts[t]); i++)
            check("A36 value dims", all_dtypes[t], 2, 1, 17, 35, dims[i][0], dims[i][1], CLATTN_CAUSAL_BOTTOM_RIGHT);
}

static void lengths_around_tiles(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 3, 15, 16, 17, 31, 33, 63, 64, 65, 113, 129};
    const size_t count = sizeof lengths / sizeof lengths[0];
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < count; i++) {
            check("lengths", all_dtypes[t], 2, 1, lengths[i], lengths[(i * 5 + 3) % count], 64, 64, CLATTN_CAUSAL_NONE);
            check("lengths", all_dtypes[t], 2, 1, lengths[i], lengths[(i * 7 + 1) % count], 64, 64,
                  CLATTN_CAUSAL_BOTTOM_RIGHT);
        }
}

/* A35's second half, smaller: many short sequences at once. */
static void many_batches(void **state) {
    (void)state;
    const struct attention_case shape = {.name = "many batches",
                                         .batch = 300,
                                         .heads = 8,
                                         .kv_heads = 8,
                                         .nq = 4,
                                         .nk = 4,
                                         .head_dim = 40,
                                         .value_dim = 40,
                                         .q = fill_u1,
                                         .k = fill_u2,
                                         .v = fill_u3};
    struct attention_data data = attention_data_of(&shape, CLATTN_F16);
    attention_check(&data);
    attention_data_free(&data);
}

static void lse_may_be_absent(void **state) {
    (void)state;
    const struct attention_case shape = {
        .name = "no lse", .batch = 1, .heads = 2, .kv_heads = 2, .nq = 19, .nk = 41, .head_dim = 64, .value_dim = 64};
    struct attention_data data = attention_data_random(&shape, CLATTN_F32, 3);
    data.without_lse = true;
    attention_check(&data);
    attention_data_free(&data);
}

static void too_large_dims_are_refused(void **state) {
    (void)state;
    const int64_t dims[][2] = {{577, 64}, {64, 513}, {1024, 1024}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        clattn_attention_op op;
        const int64_t k_dims[] = {1, 2, 7, dims[i][0]}, v_dims[] = {1, 2, 7, dims[i][1]};
        double *zeros = test_array(2 * 7 * 1024);
        clattn_attention_init(&op);
        struct test_tensor k = test_input(CLATTN_F32, 4, k_dims, zeros, NULL, (double)NAN);
        struct test_tensor v = test_input(CLATTN_F32, 4, v_dims, zeros, NULL, (double)NAN);
        struct test_tensor o = test_output(CLATTN_F32, 4, v_dims, NULL);
        op.q = op.k = k.view;
        op.v = v.view;
        op.o = o.view;
        clattn_launch launch;
        clattn_launch_init(&launch, device.queue);
        support_expect(clattn_supported(device.clattn, &op.head, NULL), CLATTN_UNSUPPORTED, "clattn_supported");
        support_expect(clattn_attention(device.clattn, &op, &launch), CLATTN_UNSUPPORTED, "clattn_attention");
        test_untouched(&o, "o");
        test_release(&k);
        test_release(&v);
        test_release(&o);
        free(zeros);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_dims_in_fp32),    cmocka_unit_test(head_dims_in_fp16),
        cmocka_unit_test(head_dims_in_bf16),    cmocka_unit_test(value_dims_unlike_head_dims),
        cmocka_unit_test(lengths_around_tiles), cmocka_unit_test(many_batches),
        cmocka_unit_test(lse_may_be_absent),    cmocka_unit_test(too_large_dims_are_refused),
    };
    return support_main("attention shapes", tests, sizeof tests / sizeof tests[0]);
}
