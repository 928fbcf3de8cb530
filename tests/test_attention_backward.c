/* Gradients of attention: known answers, dtypes, sizes off the tile, wide heads, what a call may leave out, zero sizes,
 * repeated runs and calls that must be refused. Modifiers in all combinations are in
 * test_attention_backward_property.c. */
#include "gradient_harness.h"

#include <clattn/training.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIANTS = 16 };

/* ---- known answers ---- */

static void compare_published(const struct gradient_case *c, const struct reference_gradients *got,
                              const char *variant) {
    struct reference_gradients from = *got;
    for (const struct gradient_list *list = c->lists; list->of; list++)
        for (size_t e = 0; e < list->count; e++) {
            const double value = (*gradient_of(&from, list->of))[list->first + (int64_t)e];
            if (!(fabs(value - list->values[e]) <= 2e-5))
                fail_msg("%s, %s: d%c[%lld] is %.9g, not %.9g", c->forward.name, variant, list->of,
                         (long long)list->first + (long long)e, value, list->values[e]);
        }
}

/* A02, A13, A22, A38, A50, by variants in turn, since every kind of case is programs of its own. The tolerance is
 * fixed: of a few numbers the plain version may happen to make no error at all. */
static void gives_the_published_values(void **state) {
    (void)state;
    for (size_t i = 0; i < gradient_case_count; i++) {
        const struct gradient_case *c = &gradient_cases[i];
        struct gradient_data data = gradient_data_of(c, CLATTN_F32);
        const char *names[MAX_VARIANTS];
        const size_t count = gradient_variants(&data, NULL, names, MAX_VARIANTS);
        assert_true(count > 0);
        const size_t turn = (size_t)c->forward.head_dim + (data.forward.bias ? 1 : 0) + (c->forward.causal ? 1 : 0);
        struct reference_gradients got = gradients_run(&data, NULL, names[turn % count]);
        compare_published(c, &got, names[turn % count]);
        gradients_free(&got);
        gradient_data_free(&data);
    }
}

/* ---- shapes ---- */

#define D64 .head_dim = 64, .value_dim = 64

/* Variant number `turn` of those that accept; all where it is negative. */
static void check_shape(const struct attention_case *shape, clattn_dtype dtype, clattn_dtype out_dtype, int turn) {
    struct gradient_data data = gradient_data_random(shape, dtype, 7);
    const char *names[MAX_VARIANTS];
    const size_t count = gradient_variants(&data, NULL, names, MAX_VARIANTS);
    data.out_dtype = out_dtype;
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (turn >= 0 && i != (size_t)turn % count)
            continue;
        struct reference_gradients got = gradients_run(&data, NULL, names[i]);
        gradients_compare(&data, &got, names[i]);
        gradients_free(&got);
    }
    gradient_data_free(&data);
}

static void dtypes(void **state) {
    (void)state;
    const struct attention_case shape = {
        .name = "dtypes", .batch = 2, .heads = 4, .kv_heads = 2, .nq = 70, .nk = 133, D64};
    check_shape(&shape, CLATTN_F32, CLATTN_F32, -1);
    check_shape(&shape, CLATTN_F16, CLATTN_F16, 0);
    check_shape(&shape, CLATTN_BF16, CLATTN_F32, 1);
}

/* Wide heads are walked in slices, and values may be narrower than keys. */
static void wide_heads(void **state) {
    (void)state;
    const struct attention_case widest = {
        .name = "widest", .batch = 1, .heads = 1, .kv_heads = 1, .nq = 9, .nk = 37, .head_dim = 576, .value_dim = 512};
    const struct attention_case uneven = {.name = "192/128",
                                          .batch = 1,
                                          .heads = 2,
                                          .kv_heads = 1,
                                          .nq = 33,
                                          .nk = 21,
                                          .head_dim = 192,
                                          .value_dim = 128};
    check_shape(&widest, CLATTN_F32, CLATTN_F32, 1);
    check_shape(&uneven, CLATTN_F32, CLATTN_F32, 0);
}

/* A51: ones everywhere, at sizes round those of tiles. */
static void tails_of_tiles(void **state) {
    (void)state;
    const int64_t keys[] = {8, 16, 32, 63, 64, 65, 128}, more[] = {-7, 0, 1, 5, 16};
    for (size_t i = 0; i < 35; i++) {
        const struct gradient_case c = {{.name = "A51 ones",
                                         .batch = 1,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .nq = keys[i / 5] + more[i % 5],
                                         .nk = keys[i / 5],
                                         D64,
                                         .q = fill_one,
                                         .k = fill_one,
                                         .v = fill_one},
                                        fill_one,
                                        {{0}}};
        struct gradient_data data = gradient_data_of(&c, CLATTN_F32);
        const char *names[MAX_VARIANTS];
        const size_t count = gradient_variants(&data, NULL, names, MAX_VARIANTS);
        struct reference_gradients got = gradients_run(&data, NULL, names[i % count]);
        const double share = (double)c.forward.nq / (double)c.forward.nk;
        for (int64_t e = 0; e < gradient_count(&data, 'q'); e++)
            assert_true(fabs(got.dq[e]) <= 1e-6);
        for (int64_t e = 0; e < gradient_count(&data, 'k'); e++)
            assert_true(fabs(got.dk[e]) <= 1e-6 && fabs(got.dv[e] - share) <= 2e-6 * share);
        gradients_free(&got);
        gradient_data_free(&data);
    }
}

static double fill_three_u(const int64_t at[4], int64_t flat) {
    (void)at;
    return 3 * reference_u((uint32_t)flat, 1);
}

/* A52: with a single key all gradients but that of its value vanish. */
static void a_single_key(void **state) {
    (void)state;
    const struct gradient_case c = {{.name = "A52",
                                     .batch = 1,
                                     .heads = 1,
                                     .kv_heads = 1,
                                     .nq = 1,
                                     .nk = 1,
                                     D64,
                                     .q = fill_three_u,
                                     .k = fill_three_u,
                                     .v = fill_three_u},
                                    fill_one,
                                    {{0}}};
    for (int t = 0; t < 2; t++) {
        struct gradient_data data = gradient_data_of(&c, all_dtypes[t]);
        struct reference_gradients got = gradients_run(&data, NULL, NULL);
        for (int64_t e = 0; e < 64; e++) {
            assert_true(fabs(got.dq[e]) <= 1e-6 && fabs(got.dk[e]) <= 1e-6);
            assert_true(got.dv[e] == 1);
        }
        gradients_free(&got);
        gradient_data_free(&data);
    }
}

/* ---- what a call may leave out ---- */

static void same_bits(const struct gradient_data *data, const struct reference_gradients *a,
                      const struct reference_gradients *b, const char *outputs) {
    struct reference_gradients x = *a, y = *b;
    for (const char *of = outputs; *of; of++)
        if (memcmp(*gradient_of(&x, *of), *gradient_of(&y, *of), (size_t)gradient_count(data, *of) * sizeof(double)) !=
            0)
            fail_msg("d%c has other bits where %s alone are asked for", *of, outputs);
}

static const struct attention_case usual = {
    .name = "usual", .batch = 2, .heads = 4, .kv_heads = 2, .nq = 37, .nk = 71, D64};

static void outputs_are_optional(void **state) {
    (void)state;
    const char *const some[] = {"q", "k", "v", "qk", "kv"};
    struct gradient_data data = gradient_data_random(&usual, CLATTN_F32, 3);
    struct reference_gradients all = gradients_run(&data, NULL, NULL);
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const struct gradient_request request = {.outputs = some[i]};
        struct reference_gradients got = gradients_run(&data, &request, NULL);
        same_bits(&data, &all, &got, some[i]);
        gradients_free(&got);
    }
    gradients_free(&all);
    gradient_data_free(&data);
}

/* A53, and 20 runs that give the same bits. */
static void every_run_gives_the_same_bits(void **state) {
    (void)state;
    struct gradient_data data = gradient_data_random(&usual, CLATTN_F32, 3);
    const char *names[MAX_VARIANTS];
    const size_t count = gradient_variants(&data, NULL, names, MAX_VARIANTS);
    for (size_t v = 0; v < count; v++) {
        struct reference_gradients first = gradients_run(&data, NULL, names[v]);
        for (int i = 0; i < 9; i++) { /* each is two runs */
            struct reference_gradients again = gradients_run(&data, NULL, names[v]);
            same_bits(&data, &first, &again, "qkv");
            gradients_free(&again);
        }
        gradients_free(&first);
    }
    gradient_data_free(&data);
}

/* Inputs that repeat by strides of 0: one head of keys for all batches. */
static void inputs_may_repeat(void **state) {
    (void)state;
    struct gradient_data data = gradient_data_random(&usual, CLATTN_F32, 5);
    const int64_t slab = 2 * 71 * 64;
    const struct test_layout repeated = {.strides = {0, 71 * 64, 64, 1}};
    memcpy(data.forward.k + slab, data.forward.k, (size_t)slab * sizeof(double));
    memcpy(data.forward.v + slab, data.forward.v, (size_t)slab * sizeof(double));
    data.forward.layout_k = data.forward.layout_v = &repeated;
    struct gradient_data whole = gradient_data_from(&data.forward, 5, false);
    gradients_check(&whole, NULL);
    gradient_data_free(&whole);
    free(data.o), free(data.lse), free(data.dout);
}

/* ---- nothing ---- */

/* Keys that no query sees get zeros; without keys so do queries. */
static void zero_sizes(void **state) {
    (void)state;
    struct attention_case none = usual;
    for (int which = 0; which < 3; which++) {
        none.nq = which == 0 ? 0 : 5;
        none.nk = which == 1 ? 0 : 7;
        none.batch = which == 2 ? 0 : 2;
        struct gradient_data data = gradient_data_random(&none, CLATTN_F32, 3);
        struct reference_gradients got = gradients_run(&data, NULL, NULL);
        for (const char *of = "qkv"; *of; of++)
            for (int64_t e = 0; e < gradient_count(&data, *of); e++)
                assert_true((*gradient_of(&got, *of))[e] == 0);
        gradients_free(&got);
        gradient_data_free(&data);
    }
}

/* ---- refusals ---- */

struct bad {
    const char *says;
    void (*spoil)(clattn_attention_backward_op *op);
    clattn_status status;
};

static void no_lse(clattn_attention_backward_op *op) {
    op->attention.lse.memory.kind = CLATTN_MEMORY_NONE;
}
static void no_init(clattn_attention_backward_op *op) {
    op->attention.head.size = 0;
}
static void pages(clattn_attention_backward_op *op) {
    op->attention.page_table = op->attention.q_lengths;
    op->attention.page_table.memory = op->attention.q.memory;
}
static void short_dout(clattn_attention_backward_op *op) {
    op->dout.dims[2]--;
}
static void half_dout(clattn_attention_backward_op *op) {
    op->dout.dtype = CLATTN_F16;
}
static void strided_dout(clattn_attention_backward_op *op) {
    op->dout.strides[3] = 2, op->dout.dims[3] /= 2;
}
static void half_dq(clattn_attention_backward_op *op) {
    op->dq.dtype = CLATTN_F16;
}
static void other_dk(clattn_attention_backward_op *op) {
    op->dk.dims[1] = 1;
}
static void flat_dv(clattn_attention_backward_op *op) {
    op->dv.strides[2] = 0;
}
static void dq_is_q(clattn_attention_backward_op *op) {
    op->dq = op->attention.q;
}
static void dv_is_dk(clattn_attention_backward_op *op) {
    op->dv = op->dk;
}
static void dbias_alone(clattn_attention_backward_op *op) {
    op->dbias = op->dq;
}
static void dsinks_alone(clattn_attention_backward_op *op) {
    op->dsinks = op->dq;
}
static void half_dlse(clattn_attention_backward_op *op) {
    op->dlse = op->attention.lse;
    op->dlse.dtype = CLATTN_F16;
}
static void quantised(clattn_attention_backward_op *op) {
    op->attention.k.dtype = CLATTN_I8;
}
static void beyond(clattn_attention_backward_op *op) {
    op->dq.offset += INT64_C(1) << 40;
}

static const struct bad bad_calls[] = {
    {"lse", no_lse, CLATTN_INVALID_ARGUMENT},          {"size", no_init, CLATTN_INVALID_ARGUMENT},
    {"page_table", pages, CLATTN_UNSUPPORTED},         {"dout: dims[2] = 36", short_dout, CLATTN_INVALID_ARGUMENT},
    {"dout", half_dout, CLATTN_INVALID_ARGUMENT},      {"dout", strided_dout, CLATTN_INVALID_ARGUMENT},
    {"dq", half_dq, CLATTN_INVALID_ARGUMENT},          {"dk: dims[1] = 1", other_dk, CLATTN_INVALID_ARGUMENT},
    {"dv", flat_dv, CLATTN_INVALID_ARGUMENT},          {"dq", dq_is_q, CLATTN_INVALID_ARGUMENT},
    {"dk", dv_is_dk, CLATTN_INVALID_ARGUMENT},         {"dbias", dbias_alone, CLATTN_INVALID_ARGUMENT},
    {"dsinks", dsinks_alone, CLATTN_INVALID_ARGUMENT}, {"dlse", half_dlse, CLATTN_INVALID_ARGUMENT},
    {"k: i8", quantised, CLATTN_UNSUPPORTED},          {"dq", beyond, CLATTN_INVALID_ARGUMENT},
};

static void bad_calls_are_refused(void **state) {
    (void)state;
    const int64_t q[] = {2, 4, 37, 64}, k[] = {2, 2, 71, 64};
    double *zeros = test_array(2 * 4 * 71 * 64);
    struct test_tensor in_q = test_input(CLATTN_F32, 4, q, zeros, NULL, 0),
                       in_k = test_input(CLATTN_F32, 4, k, zeros, NULL, 0);
    struct test_tensor lse = test_input(CLATTN_F32, 3, q, zeros, NULL, 0);
    struct test_tensor dq = test_output(CLATTN_F32, 4, q, NULL), dk = test_output(CLATTN_F32, 4, k, NULL);
    struct test_tensor dv = test_output(CLATTN_F32, 4, k, NULL);
    clattn_attention_backward_op op;
    clattn_attention_backward_init(&op);
    op.attention.q = op.attention.o = op.dout = in_q.view;
    op.attention.k = op.attention.v = in_k.view;
    op.attention.lse = lse.view;
    op.dq = dq.view, op.dk = dk.view, op.dv = dv.view;
    CHECK(clattn_supported(device.clattn, &op.head, NULL));
    for (size_t i = 0; i < sizeof bad_calls / sizeof bad_calls[0]; i++) {
        clattn_attention_backward_op spoilt = op;
        bad_calls[i].spoil(&spoilt);
        const clattn_status status = clattn_supported(device.clattn, &spoilt.head, NULL);
        if (status == CLATTN_SUCCESS || status != bad_calls[i].status ||
            !strstr(clattn_last_error(), bad_calls[i].says))
            fail_msg("bad call %zu gives %s: %s", i, clattn_status_name(status), clattn_last_error());
    }
    test_untouched(&dq, "dq");
    test_release(&in_q), test_release(&in_k), test_release(&lse);
    test_release(&dq), test_release(&dk), test_release(&dv);
    free(zeros);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(zero_sizes),
        cmocka_unit_test(tails_of_tiles),
        cmocka_unit_test(a_single_key),
        cmocka_unit_test(outputs_are_optional),
        cmocka_unit_test(inputs_may_repeat),
        cmocka_unit_test(every_run_gives_the_same_bits),
        cmocka_unit_test(gives_the_published_values),
        cmocka_unit_test(wide_heads),
    };
    return support_main("attention's gradients", tests, sizeof tests / sizeof tests[0]);
}
