/* AdamW and SGD: single steps against the oracle in any mix of dtypes and layouts, steps that are skipped, a training
 * with a dynamic loss scale against the same on the host, and what is refused. */
#include "reference.h"
#include "support.h"

#include <clattn/training.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 24, PARAM = 0, GRAD, COPY, FIRST, SECOND, VIEWS };

static const char *const names[VIEWS] = {"param", "grad", "copy", "m", "v"};
static const int64_t one = 1;

/* A list of both optimizers; SGD's velocity is FIRST. Everything may be written but grad. */
struct training {
    int count;
    struct test_tensor tensor[VIEWS][MOST];
    clattn_tensor view[VIEWS][MOST];
    double *values[VIEWS][MOST];
    struct test_tensor overflow, scale, rate, steps;
    clattn_adamw_op adamw;
    clattn_sgd_op sgd;
};

static struct test_tensor scalar(clattn_dtype dtype, double value) {
    return test_input(dtype, 1, &one, &value, NULL, guard_value);
}

static void begin(struct training *t, double steps) {
    memset(t, 0, sizeof *t);
    t->overflow = scalar(CLATTN_I32, 0);
    t->scale = scalar(CLATTN_F32, 24);
    t->rate = scalar(CLATTN_F32, 0.25);
    t->steps = scalar(CLATTN_I32, steps);
    clattn_adamw_init(&t->adamw);
    clattn_sgd_init(&t->sgd);
    t->adamw.lr = t->sgd.lr = 0.125f;
    t->adamw.weight_decay = t->sgd.weight_decay = 0.1f;
    t->adamw.list.param = t->view[PARAM];
    t->adamw.list.grad = t->view[GRAD];
    t->adamw.list.copy = t->view[COPY];
    t->adamw.list.steps = t->steps.view;
    t->adamw.m = t->view[FIRST];
    t->adamw.v = t->view[SECOND];
    t->sgd.list = t->adamw.list;
}

/* copy 0: none. */
static void add(struct training *t, clattn_dtype grad, clattn_dtype copy, int rank, const int64_t *dims,
                const struct test_layout *layout) {
    const int i = t->count++;
    const clattn_dtype dtypes[VIEWS] = {CLATTN_F32, grad, copy, CLATTN_F32, CLATTN_F32};
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= dims[d];
    for (int v = 0; v < VIEWS; v++) {
        if (dtypes[v] == 0)
            continue;
        t->values[v][i] = test_array(count);
        for (int64_t e = 0; e < count; e++) {
            const double x = reference_normal((uint64_t)e, (uint64_t)(i * VIEWS + v));
            t->values[v][i][e] = reference_round(dtypes[v], v == SECOND ? x * x : v == GRAD ? 20 * x : x);
        }
        t->tensor[v][i] = test_input(dtypes[v], rank, dims, t->values[v][i], layout, guard_value);
        t->view[v][i] = t->tensor[v][i].view;
    }
    t->adamw.list.count = t->sgd.list.count = t->count;
}

static void end(struct training *t) {
    for (int v = 0; v < VIEWS; v++)
        for (int i = 0; i < t->count; i++) {
            test_release(&t->tensor[v][i]);
            free(t->values[v][i]);
        }
    test_release(&t->overflow);
    test_release(&t->scale);
    test_release(&t->rate);
    test_release(&t->steps);
}

static double read_scalar(const struct test_tensor *tensor) {
    double value;
    test_read(tensor, &value);
    return value;
}

static void write_scalar(const struct test_tensor *tensor, double value) {
    unsigned char bytes[4];
    reference_encode(tensor->view.dtype, bytes, 0, value);
    CHECK_CL(clEnqueueWriteBuffer(device.queue, tensor->buffer, CL_TRUE, (size_t)tensor->view.offset * 4, 4, bytes, 0,
                                  NULL, NULL));
}

/* ---- the host's step --------------------------------------------------------------------------------------------- */

struct answer {
    double *value[VIEWS];
};

static struct answer answer_of(const struct training *t, int i, const struct reference_optimizer *step, bool adamw,
                               bool plain) {
    const int64_t count = reference_count(&t->view[PARAM][i]);
    struct answer answer = {{NULL}};
    for (int v = 0; v < VIEWS; v++) {
        answer.value[v] = test_array(count);
        if (t->values[v][i] != NULL)
            memcpy(answer.value[v], t->values[v][i], (size_t)count * sizeof(double));
    }
    for (int64_t e = 0; e < count; e++) {
        double *p = &answer.value[PARAM][e], *m = &answer.value[FIRST][e], *v = &answer.value[SECOND][e];
        const double grad = answer.value[GRAD][e];
        if (adamw)
            (plain ? plain_adamw : reference_adamw)(step, grad, p, m, v);
        else
            (plain ? plain_sgd : reference_sgd)(step, grad, p, m);
        answer.value[COPY][e] = plain && t->view[COPY][i].dtype != 0 ? reference_round(t->view[COPY][i].dtype, *p) : *p;
    }
    return answer;
}

static void free_answer(struct answer *answer) {
    for (int v = 0; v < VIEWS; v++)
        free(answer->value[v]);
}

static void compare(const struct training *t, int i, int v, const double *want, const double *plain) {
    const int64_t count = reference_count(&t->view[PARAM][i]);
    struct reference_error error = {0};
    double *got = test_array(count);
    test_read(&t->tensor[v][i], got);
    reference_compare(&error, count, got, want, reference_plain_error(count, want, plain), t->view[v][i].dtype);
    if (error.bad)
        fail_msg("tensor %d: %s[%lld] is %.9g, not %.9g (bound %.3g)", i, names[v], (long long)error.index, error.got,
                 error.want, error.bound);
    free(got);
}

static void check_step(const struct training *t, const struct reference_optimizer *step, bool adamw) {
    for (int i = 0; i < t->count; i++) {
        struct answer want = answer_of(t, i, step, adamw, false), plain = answer_of(t, i, step, adamw, true);
        for (int v = 0; v < VIEWS; v++)
            if (t->tensor[v][i].buffer == NULL || v == GRAD || (!adamw && v >= FIRST && step->momentum == 0))
                continue;
            else if (adamw || v != SECOND)
                compare(t, i, v, want.value[v], plain.value[v]);
        test_untouched(&t->tensor[GRAD][i], "grad");
        free_answer(&want);
        free_answer(&plain);
    }
}

static struct reference_optimizer adamw_step(const clattn_adamw_op *op, int64_t number, double scale) {
    return (struct reference_optimizer){.number = number,
                                        .scale = scale,
                                        .lr = (double)op->lr,
                                        .weight_decay = (double)op->weight_decay,
                                        .beta1 = (double)op->beta1,
                                        .beta2 = (double)op->beta2,
                                        .eps = (double)op->eps};
}

static struct reference_optimizer sgd_step(const clattn_sgd_op *op, double scale, bool begins) {
    return (struct reference_optimizer){.scale = scale,
                                        .lr = (double)op->lr,
                                        .weight_decay = (double)op->weight_decay,
                                        .momentum = (double)op->momentum,
                                        .dampening = (double)op->dampening,
                                        .nesterov = op->nesterov != 0,
                                        .begins = begins};
}

/* ---- single steps ------------------------------------------------------------------------------------------------ */

static const int64_t small[] = {1}, odd[] = {29}, none[] = {0}, large[] = {40001}, matrix[] = {9, 16};
static const struct test_layout apart = {0, {24, 1}}, turned = {0, {1, 9}}, shifted = {3, {1}},
                                scattered = {1, {50, 3}};

/* Lists of one tensor take programs of their own; these have two at least. */
static void add_pair(struct training *t, int64_t length) {
    add(t, CLATTN_F16, CLATTN_F16, 1, &length, NULL);
    add(t, CLATTN_F16, CLATTN_F16, 1, small, NULL);
}

static void add_mix(struct training *t) {
    add(t, CLATTN_F32, 0, 1, odd, NULL);
    add(t, CLATTN_F16, CLATTN_F16, 1, small, NULL);
    add(t, CLATTN_F16, CLATTN_F16, 1, none, NULL);
    add(t, CLATTN_F16, CLATTN_F16, 1, large, NULL);
    add(t, CLATTN_F16, CLATTN_F16, 2, matrix, &turned);
    add(t, CLATTN_F16, CLATTN_F16, 1, odd, &shifted);
    add(t, CLATTN_F16, CLATTN_F16, 2, matrix, &apart);
    add(t, CLATTN_F16, CLATTN_F16, 2, matrix, &scattered);
    add(t, CLATTN_BF16, CLATTN_BF16, 1, odd, NULL);
}

static void adamw_of_any_mix(void **state) {
    struct training t;
    (void)state;
    begin(&t, 6);
    add_mix(&t);
    t.adamw.list.scale = t.scale.view;
    test_run(&t.adamw.head, NULL);
    const struct reference_optimizer step = adamw_step(&t.adamw, 7, 24);
    check_step(&t, &step, true);
    assert_true(read_scalar(&t.steps) == 7);
    end(&t);
}

/* The first step, where bias correction is strongest; a rate on the device; betas of 0; eps beside moments of 0. */
static void adamw_settings(void **state) {
    (void)state;
    for (int s = 0; s < 5; s++) {
        struct training t;
        begin(&t, s == 4 ? 100000 : 0);
        add_pair(&t, 29);
        if (s == 1)
            t.adamw.list.rate = t.rate.view;
        if (s == 2)
            t.adamw.beta1 = t.adamw.beta2 = 0;
        if (s == 3)
            t.adamw.eps = 0.5f;
        test_run(&t.adamw.head, NULL);
        struct reference_optimizer step = adamw_step(&t.adamw, s == 4 ? 100001 : 1, 1);
        step.lr = s == 1 ? 0.25 : step.lr;
        check_step(&t, &step, true);
        end(&t);
    }
}

static void sgd_of_any_mix(void **state) {
    struct training t;
    (void)state;
    begin(&t, 6);
    add_pair(&t, 40001);
    add(&t, CLATTN_BF16, 0, 2, matrix, &apart);
    add(&t, CLATTN_BF16, 0, 2, matrix, &scattered);
    t.sgd.list.scale = t.scale.view;
    t.sgd.momentum = 0.9f;
    t.sgd.dampening = 0.25f;
    t.sgd.velocity = t.view[FIRST];
    test_run(&t.sgd.head, NULL);
    const struct reference_optimizer step = sgd_step(&t.sgd, 24, false);
    check_step(&t, &step, false);
    assert_true(read_scalar(&t.steps) == 7);
    end(&t);
}

static void sgd_settings(void **state) {
    (void)state;
    for (int s = 0; s < 4; s++) {
        struct training t;
        begin(&t, 0);
        add_pair(&t, 29);
        t.sgd.momentum = s == 0 ? 0 : 0.9f;
        t.sgd.velocity = s == 0 ? NULL : t.view[FIRST];
        t.sgd.nesterov = s == 1;
        t.sgd.dampening = s > 1 ? 0.5f : 0;
        if (s == 2)
            t.sgd.list.steps.memory.kind = CLATTN_MEMORY_NONE;
        test_run(&t.sgd.head, NULL);
        const struct reference_optimizer step = sgd_step(&t.sgd, 1, s != 2);
        check_step(&t, &step, false);
        assert_true(read_scalar(&t.steps) == (s == 2 ? 0 : 1));
        end(&t);
    }
}

/* Eight dense tensors take one launch on any device, and the counter another. */
static void as_few_launches_as_arguments_allow(void **state) {
    clattn_statistics before = {.size = sizeof before}, after = {.size = sizeof after};
    struct training t;
    (void)state;
    begin(&t, 0);
    for (int i = 0; i < 8; i++)
        add(&t, CLATTN_F16, CLATTN_F16, 1, odd, NULL);
    CHECK(clattn_context_statistics(device.clattn, &before));
    test_run(&t.adamw.head, NULL);
    CHECK(clattn_context_statistics(device.clattn, &after));
    assert_int_equal(after.kernel_launches - before.kernel_launches, 2);
    end(&t);
}

/* ---- skipping ---------------------------------------------------------------------------------------------------- */

static void assert_untouched(const struct training *t) {
    for (int v = 0; v < VIEWS; v++)
        for (int i = 0; i < t->count; i++)
            if (t->tensor[v][i].buffer != NULL)
                test_untouched(&t->tensor[v][i], names[v]);
    test_untouched(&t->steps, "steps");
}

static void an_overflow_changes_nothing(void **state) {
    struct training t;
    (void)state;
    begin(&t, 5);
    add_pair(&t, 29);
    write_scalar(&t.overflow, 1);
    t.adamw.list.overflow = t.sgd.list.overflow = t.overflow.view;
    t.sgd.momentum = 0.9f;
    t.sgd.velocity = t.view[FIRST];
    test_run(&t.adamw.head, NULL);
    test_run(&t.sgd.head, NULL);
    assert_untouched(&t);
    write_scalar(&t.overflow, 0);
    test_run(&t.adamw.head, NULL);
    assert_true(read_scalar(&t.steps) == 6);
    end(&t);
}

static void nothing_to_do_is_a_step(void **state) {
    struct training t;
    (void)state;
    begin(&t, 5);
    test_run(&t.adamw.head, NULL);
    assert_true(read_scalar(&t.steps) == 6);
    t.sgd.list.steps.memory.kind = CLATTN_MEMORY_NONE;
    test_run(&t.sgd.head, NULL);
    assert_true(read_scalar(&t.steps) == 6);
    end(&t);
}

/* ---- a training -------------------------------------------------------------------------------------------------- */

enum { SIZE = 61, STEPS = 60 };

/* The gradient of step i with a scale, as fp16 would hold it: some steps are too steep for large scales. */
static void fill_gradient(int i, double scale, double *grad, bool *overflow) {
    *overflow = false;
    for (int e = 0; e < SIZE; e++) {
        const double steep = i % 9 == 4 ? 40 : 1;
        grad[e] = reference_round(CLATTN_F16, steep * reference_normal((uint64_t)e, (uint64_t)i) * scale);
        *overflow = *overflow || !isfinite(grad[e]);
    }
}

struct model {
    double value[VIEWS][SIZE];
    int64_t steps;
};

static void model_step(struct model *model, const struct training *t, bool plain, const double *grad, double scale) {
    const struct reference_optimizer step = adamw_step(&t->adamw, ++model->steps, scale);
    for (int e = 0; e < SIZE; e++)
        (plain ? plain_adamw : reference_adamw)(&step, grad[e], &model->value[PARAM][e], &model->value[FIRST][e],
                                                &model->value[SECOND][e]);
}

/* Nothing is read back before the end: the host's model only decides which gradients to upload. */
static void train(struct training *t, struct model *want, struct model *plain, struct reference_scale *scale) {
    const struct reference_scale_rule rule = {2, 0.5, 1, 16777216, 4};
    const int64_t four = 4;
    const double zeros[4] = {0};
    struct test_tensor state = test_input(CLATTN_I32, 1, &four, zeros, NULL, guard_value);
    clattn_loss_scale_op update;
    clattn_unscale_op look;
    clattn_loss_scale_init(&update);
    update.state = state.view;
    update.overflow = t->overflow.view;
    update.growth_interval = 4;
    clattn_loss_scale_op start = update;
    start.restart = 1;
    test_run(&start.head, NULL);
    clattn_unscale_init(&look);
    look.count = t->count;
    look.x = t->view[GRAD];
    look.overflow = t->overflow.view;
    look.scale = state.view;
    look.scale.dtype = CLATTN_F32;
    look.scale.dims[0] = 1;
    t->adamw.list.overflow = t->overflow.view;
    t->adamw.list.scale = look.scale;
    for (int i = 0; i < STEPS; i++) {
        double grad[SIZE];
        bool overflow;
        fill_gradient(i, scale->scale, grad, &overflow);
        reference_scatter(&t->view[GRAD][0], t->tensor[GRAD][0].image, grad);
        test_reset(&t->tensor[GRAD][0]);
        test_run(&look.head, NULL);
        test_run(&t->adamw.head, NULL);
        test_run(&update.head, NULL);
        if (!overflow) {
            model_step(want, t, false, grad, scale->scale);
            model_step(plain, t, true, grad, scale->scale);
        }
        reference_loss_scale(&rule, overflow, scale);
    }
    double words[4];
    test_read(&state, words);
    const int32_t bits = (int32_t)words[0];
    float device_scale;
    memcpy(&device_scale, &bits, sizeof device_scale);
    assert_true((double)device_scale == scale->scale && words[1] == (double)scale->good);
    assert_true(words[2] == (double)scale->overflows && words[3] == STEPS);
    test_release(&state);
}

static void a_training_is_that_of_the_host(void **state) {
    struct training t;
    struct model want = {.steps = 0}, plain;
    struct reference_scale scale = {.scale = 65536};
    (void)state;
    begin(&t, 0);
    add_pair(&t, SIZE);
    for (int v = 0; v < VIEWS; v++)
        memcpy(want.value[v], t.values[v][0], sizeof want.value[v]);
    plain = want;
    t.adamw.lr = 0.01f;
    train(&t, &want, &plain, &scale);
    assert_in_range(scale.overflows, 3, STEPS / 2); /* or nothing was tried */
    assert_true(read_scalar(&t.steps) == (double)want.steps && want.steps == STEPS - scale.overflows);
    for (int v = 0; v < VIEWS; v++)
        if (v != GRAD && v != COPY)
            compare(&t, 0, v, want.value[v], plain.value[v]);
    double copied[SIZE], param[SIZE];
    test_read(&t.tensor[COPY][0], copied);
    test_read(&t.tensor[PARAM][0], param);
    for (int e = 0; e < SIZE; e++)
        assert_true(copied[e] == reference_round(CLATTN_F16, param[e]));
    end(&t);
}

static void the_same_bits_twice(void **state) {
    struct training t[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(&t[i], 3);
        add_pair(&t[i], 40001);
        test_run(&t[i].adamw.head, NULL);
    }
    for (int v = 0; v < VIEWS; v++) {
        unsigned char *a = test_bytes(&t[0].tensor[v][0]), *b = test_bytes(&t[1].tensor[v][0]);
        assert_memory_equal(a, b, t[0].tensor[v][0].bytes);
        free(a);
        free(b);
    }
    end(&t[0]);
    end(&t[1]);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void refuse(const clattn_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, op, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_settings(void **state) {
    struct training t;
    (void)state;
    begin(&t, 0);
    add(&t, CLATTN_F16, CLATTN_F16, 1, odd, NULL);
    clattn_adamw_op a = t.adamw;
    CHECK(clattn_supported(device.clattn, &a.head, NULL));
    a.lr = NAN, refuse(&a.head, "lr = "), a = t.adamw;
    a.beta1 = 1, refuse(&a.head, "beta1 = 1"), a = t.adamw;
    a.beta2 = -0.5f, refuse(&a.head, "beta2 = -0.5"), a = t.adamw;
    a.eps = -1, refuse(&a.head, "eps = -1"), a = t.adamw;
    a.weight_decay = INFINITY, refuse(&a.head, "weight_decay = inf"), a = t.adamw;
    a.list.steps.memory.kind = CLATTN_MEMORY_NONE, refuse(&a.head, "steps is absent"), a = t.adamw;
    a.list.count = -3, refuse(&a.head, "count = -3"), a = t.adamw;
    a.m = NULL, refuse(&a.head, "m is NULL"), a = t.adamw;
    a.list.grad = NULL, refuse(&a.head, "grad is NULL"), a = t.adamw;
    a.list.scale = t.steps.view, refuse(&a.head, "scale: dtype is i32"), a = t.adamw;
    a.list.overflow = t.steps.view, refuse(&a.head, "steps overlaps overflow"), a = t.adamw;
    a.list.rate = t.rate.view, a.list.rate.offset += 1000, refuse(&a.head, "rate reaches byte"), a = t.adamw;
    a.head.size = 32, refuse(&a.head, "size is 32");
    clattn_sgd_op s = t.sgd;
    CHECK(clattn_supported(device.clattn, &s.head, NULL));
    s.momentum = INFINITY, s.velocity = t.view[FIRST], refuse(&s.head, "momentum = inf"), s = t.sgd;
    s.dampening = NAN, refuse(&s.head, "dampening = "), s = t.sgd;
    s.nesterov = 1, refuse(&s.head, "nesterov"), s = t.sgd;
    s.velocity = t.view[FIRST], refuse(&s.head, "velocity is given"), s = t.sgd;
    s.momentum = 0.5f, refuse(&s.head, "velocity is NULL");
    assert_untouched(&t);
    end(&t);
}

static void bad_tensors(void **state) {
    struct training t;
    const clattn_op *op = &t.adamw.head;
    (void)state;
    begin(&t, 0);
    for (int i = 0; i < 3; i++)
        add(&t, CLATTN_F16, CLATTN_F16, 1, odd, NULL);
    const struct training good = t;
    t.view[PARAM][1].dtype = CLATTN_F16, refuse(op, "param[1]: dtype is f16"), t.view[PARAM][1] = good.view[PARAM][1];
    t.view[GRAD][2].dtype = CLATTN_U8, refuse(op, "grad[2]: dtype is u8"), t.view[GRAD][2] = good.view[GRAD][2];
    t.view[COPY][0].dtype = CLATTN_U8, refuse(op, "copy[0]: dtype is u8"), t.view[COPY][0] = good.view[COPY][0];
    t.view[SECOND][1].dims[0] = 28, refuse(op, "v[1]: dims[0] = 28"), t.view[SECOND][1] = good.view[SECOND][1];
    t.view[FIRST][2].memory.kind = CLATTN_MEMORY_NONE, refuse(op, "m[2] is absent");
    t.view[FIRST][2] = good.view[FIRST][2];
    t.view[FIRST][2] = t.view[SECOND][0], refuse(op, "overlaps"), t.view[FIRST][2] = good.view[FIRST][2];
    t.view[FIRST][1] = t.view[PARAM][1], refuse(op, "overlaps"), t.view[FIRST][1] = good.view[FIRST][1];
    t.view[COPY][1] = t.view[GRAD][1], refuse(op, "copy[1] overlaps grad[1]");
    t.view[COPY][1] = good.view[COPY][1];
    CHECK(clattn_supported(device.clattn, op, NULL));
    assert_untouched(&t);
    end(&t);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_of_any_mix),
        cmocka_unit_test(adamw_settings),
        cmocka_unit_test(sgd_of_any_mix),
        cmocka_unit_test(sgd_settings),
        cmocka_unit_test(as_few_launches_as_arguments_allow),
        cmocka_unit_test(an_overflow_changes_nothing),
        cmocka_unit_test(nothing_to_do_is_a_step),
        cmocka_unit_test(a_training_is_that_of_the_host),
        cmocka_unit_test(the_same_bits_twice),
        cmocka_unit_test(bad_settings),
        cmocka_unit_test(bad_tensors),
    };
    return support_main("optimizer", tests, sizeof tests / sizeof tests[0]);
}
