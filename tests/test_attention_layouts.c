/* Strides, offsets and broadcast: where elements lie must not change a bit. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, HQ = 4, HKV = 2, NQ = 9, NK = 19, D = 64 };

static struct attention_case shape_of(const char *name, clattn_causal causal) {
    return (struct attention_case){.name = name,
                                   .batch = B,
                                   .heads = HQ,
                                   .kv_heads = HKV,
                                   .nq = NQ,
                                   .nk = NK,
                                   .head_dim = D,
                                   .value_dim = D,
                                   .q = fill_u1,
                                   .k = fill_u2,
                                   .v = fill_u3,
                                   .causal = causal};
}

/* Each variant, dense and laid out otherwise, with NaN and then infinity in the gaps: the same bits. */
static void same_as_dense(const struct attention_data *laid_out) {
    const double gaps[] = {(double)NAN, (double)INFINITY};
    struct attention_data dense = *laid_out, other = *laid_out;
    dense.layout_q = dense.layout_k = dense.layout_v = dense.layout_o = dense.layout_lse = NULL;
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = attention_next_variant(&other, &index)); ran++) {
        struct attention_result expected = attention_run(&dense, variant);
        attention_compare(&dense, &expected, variant, 64);
        for (size_t g = 0; g < 2; g++) {
            other.gap = gaps[g];
            struct attention_result result = attention_run(&other, variant);
            attention_same_rows(&other, variant, &expected, &result, 0, attention_row_count(&other));
            attention_result_free(&result);
        }
        attention_result_free(&expected);
    }
    if (ran == 0)
        fail_msg("%s, %s: no variant accepts", laid_out->name, dtype_name(laid_out->dtype));
}

/* [B,N,H,D] in memory. */
static struct test_layout bshd(int64_t heads, int64_t rows, int64_t pad) {
    return (struct test_layout){0, {rows * heads * (D + pad), D + pad, heads * (D + pad), 1}};
}

static void sequences_before_heads(void **state) {
    (void)state;
    const struct attention_case shape = shape_of("BSHD", CLATTN_CAUSAL_BOTTOM_RIGHT);
    const struct test_layout q = bshd(HQ, NQ, 0), kv = bshd(HKV, NK, 0), lse = {0, {NQ * HQ, 1, HQ}};
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        data.layout_q = data.layout_o = &q;
        data.layout_k = data.layout_v = &kv;
        data.layout_lse = &lse;
        same_as_dense(&data);
        attention_data_free(&data);
    }
}

/* A45, and paddings that spoil any alignment. */
static void every_tensor_with_strides_of_its_own(void **state) {
    (void)state;
    const struct attention_case shape = shape_of("A45 unlike strides", CLATTN_CAUSAL_NONE);
    const struct test_layout q = {0, {HQ * NQ * (D + 3), NQ * (D + 3), D + 3, 1}};
    const struct test_layout k = {0, {HKV * NK * 2 * D, NK * 2 * D, 2 * D, 1}}, v = bshd(HKV, NK, 5);
    const struct test_layout o = bshd(HQ, NQ, 1), lse = {2, {HQ * NQ * 3, NQ * 3, 3}};
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        data.layout_q = &q;
        data.layout_k = &k;
        data.layout_v = &v;
        data.layout_o = &o;
        data.layout_lse = &lse;
        same_as_dense(&data);
        attention_data_free(&data);
    }
}

/* A45's mirror: one value column, read down a transposed view. */
static void a_value_column_has_any_stride(void **state) {
    (void)state;
    struct attention_case shape = shape_of("A45 column", CLATTN_CAUSAL_NONE);
    const struct test_layout v = {0, {HKV * NK * 3, NK * 3, 3, 7}};
    shape.value_dim = 1;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
        data.layout_v = &v;
        same_as_dense(&data);
        attention_data_free(&data);
    }
}

/* A46 */
static void base_offsets(void **state) {
    (void)state;
    const struct attention_case shape = shape_of("A46 offsets", CLATTN_CAUSAL_NONE);
    const int64_t offsets[] = {3, 8, 1000};
    for (size_t i = 0; i < 3; i++)
        for (int t = 0; t < 3; t++) {
            const struct test_layout q = {offsets[i], {HQ * NQ * D, NQ * D, D, 1}};
            const struct test_layout kv = {offsets[(i + 1) % 3], {HKV * NK * D, NK * D, D, 1}};
            const struct test_layout lse = {offsets[i], {HQ * NQ, NQ, 1}};
            struct attention_data data = attention_data_of(&shape, all_dtypes[t]);
            data.layout_q = data.layout_o = &q;
            data.layout_k = data.layout_v = &kv;
            data.layout_lse = &lse;
            same_as_dense(&data);
            attention_data_free(&data);
        }
}

/* A49: a stride of 0 repeats a batch or a head. */
static void broadcast_inputs(clattn_dtype dtype) {
    const struct attention_case shape = shape_of("A49 broadcast", CLATTN_CAUSAL_NONE);
    const struct test_layout kv_batch = {0, {0, NK * D, D, 1}}, kv_head = {0, {NK * D, 0, D, 1}};
    const struct test_layout q_batch = {0, {0, NQ * D, D, 1}};
    for (int what = 0; what < 3; what++) {
        struct attention_data data = attention_data_of(&shape, dtype);
        const int64_t q_half = HQ * NQ * D, kv_half = HKV * NK * D, head = NK * D;
        if (what == 0) {
            memcpy(data.k + kv_half, data.k, (size_t)kv_half * sizeof(double));
            memcpy(data.v + kv_half, data.v, (size_t)kv_half * sizeof(double));
            data.layout_k = data.layout_v = &kv_batch;
        } else if (what == 1) {
            for (int64_t b = 0; b < B; b++) {
                memcpy(data.k + b * kv_half + head, data.k + b * kv_half, (size_t)head * sizeof(double));
                memcpy(data.v + b * kv_half + head, data.v + b * kv_half, (size_t)head * sizeof(double));
            }
            data.layout_k = data.layout_v = &kv_head;
        } else {
            memcpy(data.q + q_half, data.q, (size_t)q_half * sizeof(double));
            data.layout_q = &q_batch;
        }
        same_as_dense(&data);
        attention_data_free(&data);
    }
}

static void broadcast_in_every_dtype(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        broadcast_inputs(all_dtypes[t]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_before_heads),        cmocka_unit_test(every_tensor_with_strides_of_its_own),
        cmocka_unit_test(a_value_column_has_any_stride), cmocka_unit_test(base_offsets),
        cmocka_unit_test(broadcast_in_every_dtype),
    };
    return support_main("attention layouts", tests, sizeof tests / sizeof tests[0]);
}
