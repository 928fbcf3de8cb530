/* A size of zero is no error: the call succeeds, gives its event, and writes nothing, or what an empty sum means. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

/* The call's outputs are as they were. */
static void writes_nothing(const clattn_op *op, const struct test_tensor *a, const struct test_tensor *b) {
    test_run(op, NULL);
    test_untouched(a, "the output");
    if (b)
        test_untouched(b, "the second output");
}

/* ---- attention ---- */

enum { B, HQ, HKV, NQ, NK, D, DV, SIZES };

struct attention_tensors {
    struct test_tensor q, k, v, o, lse;
    clattn_attention_op op;
};

static struct attention_tensors make(const int64_t size[SIZES], clattn_dtype dtype, clattn_causal causal) {
    struct attention_tensors t = {0};
    double *ones = test_array(4096);
    for (int i = 0; i < 4096; i++)
        ones[i] = 1;
    const int64_t q[] = {size[B], size[HQ], size[NQ], size[D]}, k[] = {size[B], size[HKV], size[NK], size[D]};
    const int64_t v[] = {size[B], size[HKV], size[NK], size[DV]}, o[] = {size[B], size[HQ], size[NQ], size[DV]};
    t.q = test_input(dtype, 4, q, ones, NULL, (double)NAN);
    t.k = test_input(dtype, 4, k, ones, NULL, (double)NAN);
    t.v = test_input(dtype, 4, v, ones, NULL, (double)NAN);
    t.o = test_output(dtype, 4, o, NULL);
    t.lse = test_output(CLATTN_F32, 3, o, NULL);
    clattn_attention_init(&t.op);
    t.op.q = t.q.view;
    t.op.k = t.k.view;
    t.op.v = t.v.view;
    t.op.o = t.o.view;
    t.op.lse = t.lse.view;
    t.op.causal = causal;
    free(ones);
    return t;
}

static void release(struct attention_tensors *t) {
    test_release(&t->q);
    test_release(&t->k);
    test_release(&t->v);
    test_release(&t->o);
    test_release(&t->lse);
}

static const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
static const int64_t usual[SIZES] = {2, 4, 2, 5, 7, 8, 6};

static void attention_of_nothing(int which, clattn_dtype dtype, clattn_causal causal) {
    int64_t size[SIZES];
    for (int i = 0; i < SIZES; i++)
        size[i] = i == which ? 0 : usual[i];
    if (which == HQ)
        size[HKV] = 2;
    struct attention_tensors t = make(size, dtype, causal);
    writes_nothing(&t.op.head, &t.o, &t.lse);
    release(&t);
}

static void no_batch_heads_or_queries(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++)
        for (int causal = 0; causal < 3; causal++) {
            attention_of_nothing(B, dtypes[d], (clattn_causal)causal);
            attention_of_nothing(HQ, dtypes[d], (clattn_causal)causal);
            attention_of_nothing(NQ, dtypes[d], (clattn_causal)causal);
        }
}

/* Hq = Hkv = 0: no heads at all. */
static void no_heads_at_all(void **state) {
    (void)state;
    const int64_t size[SIZES] = {2, 0, 0, 5, 7, 8, 6};
    struct attention_tensors t = make(size, CLATTN_F32, CLATTN_CAUSAL_NONE);
    writes_nothing(&t.op.head, &t.o, &t.lse);
    release(&t);
}

static void no_keys(void **state) {
    (void)state;
    const int64_t size[SIZES] = {2, 4, 2, 5, 0, 8, 6};
    for (int causal = 0; causal < 3; causal++)
        for (int d = 0; d < 3; d++) {
            struct attention_tensors t = make(size, dtypes[d], (clattn_causal)causal);
            double o[2 * 4 * 5 * 6], lse[2 * 4 * 5];
            test_run(&t.op.head, NULL);
            test_read(&t.o, o);
            test_read(&t.lse, lse);
            for (int i = 0; i < 2 * 4 * 5 * 6; i++)
                assert_true(o[i] == 0);
            for (int i = 0; i < 2 * 4 * 5; i++)
                assert_true(lse[i] == -(double)INFINITY);
            release(&t);
        }
}

/* The keys' tensors need no memory where they have no element. */
static void no_keys_and_no_memory(void **state) {
    (void)state;
    const int64_t size[SIZES] = {2, 4, 2, 5, 0, 8, 6};
    struct attention_tensors t = make(size, CLATTN_F32, CLATTN_CAUSAL_NONE);
    double o[2 * 4 * 5 * 6];
    t.op.k.memory.as.buffer = t.op.v.memory.as.buffer = NULL;
    t.op.mask = clattn_tensor_dense(NULL, CLATTN_U8, 4, (const int64_t[]){1, 1, 5, 0}); /* no pre-pass over nothing */
    test_run(&t.op.head, NULL);
    test_read(&t.o, o);
    for (int i = 0; i < 2 * 4 * 5 * 6; i++)
        assert_true(o[i] == 0);
    release(&t);
}

static void no_value_columns(void **state) {
    (void)state;
    const int64_t size[SIZES] = {2, 4, 2, 5, 7, 8, 0};
    for (int causal = 0; causal < 2; causal++) {
        struct attention_tensors t = make(size, CLATTN_F32, (clattn_causal)causal);
        double lse[2 * 4 * 5];
        test_run(&t.op.head, NULL);
        test_read(&t.lse, lse);
        for (int i = 0; i < 2 * 4 * 5; i++) {
            const int visible = causal ? i % 5 + 3 : 7;
            assert_true(fabs(lse[i] - (sqrt(8) + log(visible))) < 1e-5);
        }
        release(&t);
    }
}

static void no_head_dim_or_no_kv_heads(void **state) {
    (void)state;
    const int64_t sizes[][SIZES] = {{2, 4, 2, 5, 7, 0, 6}, {2, 4, 0, 5, 7, 8, 6}};
    for (int i = 0; i < 2; i++) {
        struct attention_tensors t = make(sizes[i], CLATTN_F32, CLATTN_CAUSAL_NONE);
        clattn_launch launch;
        clattn_launch_init(&launch, device.queue);
        support_expect(clattn_attention(device.clattn, &t.op, &launch), CLATTN_INVALID_ARGUMENT,
                       i ? "Hkv = 0" : "D = 0");
        test_untouched(&t.o, "o");
        test_untouched(&t.lse, "lse");
        release(&t);
    }
}

/* ---- the other operations ---- */

static void softmax_of_nothing(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{0, 5}, {5, 0}, {0, 0}};
    for (int s = 0; s < 3; s++)
        for (int function = CLATTN_SOFTMAX; function <= CLATTN_LOG_SOFTMAX; function++) {
            double none = 0;
            struct test_tensor x = test_input(CLATTN_F32, 2, shapes[s], &none, NULL, (double)NAN);
            struct test_tensor y = test_output(CLATTN_F32, 2, shapes[s], NULL);
            clattn_softmax_op op;
            clattn_softmax_init(&op);
            op.function = (clattn_softmax_function)function;
            op.x = x.view;
            op.y = y.view;
            writes_nothing(&op.head, &y, NULL);
            test_release(&x);
            test_release(&y);
        }
}

/* Rows without columns: the log of an empty sum is -inf, the state (-inf, 0). */
static void sums_over_no_columns(void **state) {
    (void)state;
    const int64_t x_dims[] = {3, 0}, y_dims[] = {3, 1};
    double none = 0, values[3];
    struct test_tensor x = test_input(CLATTN_F32, 2, x_dims, &none, NULL, (double)NAN);
    struct test_tensor y = test_output(CLATTN_F32, 2, y_dims, NULL), l = test_output(CLATTN_F32, 2, y_dims, NULL);
    clattn_softmax_op op;
    clattn_softmax_init(&op);
    op.function = CLATTN_LOG_SUM_EXP;
    op.x = x.view;
    op.y = y.view;
    test_run(&op.head, NULL);
    test_read(&y, values);
    for (int i = 0; i < 3; i++)
        assert_true(values[i] == -(double)INFINITY);
    test_reset(&y);
    clattn_softmax_init(&op);
    op.function = CLATTN_SOFTMAX_STATE;
    op.x = x.view;
    op.m = y.view;
    op.l = l.view;
    test_run(&op.head, NULL);
    test_read(&y, values);
    for (int i = 0; i < 3; i++)
        assert_true(values[i] == -(double)INFINITY);
    test_read(&l, values);
    for (int i = 0; i < 3; i++)
        assert_true(values[i] == 0);
    test_release(&x);
    test_release(&y);
    test_release(&l);
}

static void merges_of_nothing(void **state) {
    (void)state;
    const int64_t dims[] = {2, 3, 0, 4}, full[] = {1, 1, 3, 4};
    double o_values[12], lse_values[3];
    struct test_tensor o = test_output(CLATTN_F32, 4, dims, NULL), lse = test_output(CLATTN_F32, 3, dims, NULL);
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    op.o = o.view;
    op.lse = lse.view;
    writes_nothing(&op.head, &o, &lse);
    test_release(&o);
    test_release(&lse);
    o = test_output(CLATTN_F32, 4, full, NULL);
    lse = test_output(CLATTN_F32, 3, full, NULL);
    op.o = o.view;
    op.lse = lse.view;
    test_run(&op.head, NULL);
    test_read(&o, o_values);
    test_read(&lse, lse_values);
    for (int i = 0; i < 12; i++)
        assert_true(o_values[i] == 0 && lse_values[i / 4] == -(double)INFINITY);
    test_release(&o);
    test_release(&lse);
}

static void products_of_nothing(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) {
        const int64_t m = which == 0 ? 0 : 3, n = which == 1 ? 0 : 4, k = which == 2 ? 0 : 5;
        double zeros[20] = {0}, values[12] = {0};
        struct test_tensor a = test_input(CLATTN_F32, 2, (const int64_t[]){m, k}, zeros, NULL, (double)NAN);
        struct test_tensor b = test_input(CLATTN_F32, 2, (const int64_t[]){k, n}, zeros, NULL, (double)NAN);
        struct test_tensor c = test_output(CLATTN_F32, 2, (const int64_t[]){m, n}, NULL);
        clattn_gemm_op op;
        clattn_gemm_init(&op);
        op.a = a.view;
        op.b = b.view;
        op.c = c.view;
        if (which < 2)
            writes_nothing(&op.head, &c, NULL);
        if (which == 2) { /* an empty sum, over a NaN that beta = 0 must not read */
            test_run(&op.head, NULL);
            test_read(&c, values);
        }
        for (int i = 0; which == 2 && i < 12; i++)
            assert_true(values[i] == 0);
        test_release(&a);
        test_release(&b);
        test_release(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_batch_heads_or_queries),
        cmocka_unit_test(no_heads_at_all),
        cmocka_unit_test(no_keys),
        cmocka_unit_test(no_keys_and_no_memory),
        cmocka_unit_test(no_value_columns),
        cmocka_unit_test(no_head_dim_or_no_kv_heads),
        cmocka_unit_test(softmax_of_nothing),
        cmocka_unit_test(sums_over_no_columns),
        cmocka_unit_test(merges_of_nothing),
        cmocka_unit_test(products_of_nothing),
    };
    return support_main("zero sizes", tests, sizeof tests / sizeof tests[0]);
}
