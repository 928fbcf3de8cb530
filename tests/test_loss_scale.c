/* The loss scale on the device: its state after any series of steps is that of the model, and what is refused. */
#include "reference.h"
#include "support.h"

#include <clattn/training.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t one = 1, four = 4;

static double float_of(double word) {
    const int32_t bits = (int32_t)word;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

struct fixture {
    struct test_tensor state, overflow;
    clattn_loss_scale_op op;
};

static struct fixture begin(void) {
    const double garbage[] = {-1, -2, -3, -4}, none = 0;
    struct fixture fixture;
    fixture.state = test_input(CLATTN_I32, 1, &four, garbage, NULL, guard_value);
    fixture.overflow = test_input(CLATTN_I32, 1, &one, &none, NULL, guard_value);
    clattn_loss_scale_init(&fixture.op);
    fixture.op.state = fixture.state.view;
    fixture.op.overflow = fixture.overflow.view;
    return fixture;
}

static void end(struct fixture *fixture) {
    test_release(&fixture->state);
    test_release(&fixture->overflow);
}

static void restart(struct fixture *fixture) {
    clattn_loss_scale_op op = fixture->op;
    op.restart = 1;
    op.overflow.memory.kind = CLATTN_MEMORY_NONE;
    test_run(&op.head, NULL);
}

static void step(struct fixture *fixture, int32_t overflow) {
    const size_t at = (size_t)fixture->overflow.view.offset * sizeof overflow;
    CHECK_CL(clEnqueueWriteBuffer(device.queue, fixture->overflow.buffer, CL_TRUE, at, sizeof overflow, &overflow, 0,
                                  NULL, NULL));
    test_run(&fixture->op.head, NULL);
}

static void expect(const struct fixture *fixture, const struct reference_scale *want, int number) {
    double words[4];
    test_read(&fixture->state, words);
    if (float_of(words[0]) != want->scale || words[1] != (double)want->good || words[2] != (double)want->overflows ||
        words[3] != (double)want->steps)
        fail_msg("step %d: scale %g, good %g, overflows %g, steps %g, not %g, %g, %g, %g", number, float_of(words[0]),
                 words[1], words[2], words[3], want->scale, (double)want->good, (double)want->overflows,
                 (double)want->steps);
}

/* Long runs of overflow and of good steps reach both bounds. */
static void any_series_of_steps(void **state) {
    static const struct reference_scale_rule rules[] = {
        {2, 0.5, 1, 16777216, 3}, {4, 0.25, 0.5, 1024, 1}, {1.5, 0.75, 3, 700, 2}, {1, 1, 8, 8, 2000}};
    (void)state;
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        const struct reference_scale_rule *rule = &rules[r];
        struct fixture fixture = begin();
        struct reference_scale want = {.scale = 8};
        fixture.op.growth_interval = (int32_t)rule->interval;
        fixture.op.initial = 8;
        fixture.op.growth = (float)rule->growth;
        fixture.op.backoff = (float)rule->backoff;
        fixture.op.least = (float)rule->least;
        fixture.op.most = (float)rule->most;
        restart(&fixture);
        expect(&fixture, &want, 0);
        for (int i = 1; i <= 90; i++) {
            const bool overflow = i < 30 ? reference_u((uint32_t)i, 3) > 0.3 : i < 60 ? i % 2 != 0 || i > 50 : false;
            step(&fixture, overflow ? i : 0);
            reference_loss_scale(rule, overflow, &want);
            want.scale = (double)(float)want.scale;
            expect(&fixture, &want, i);
        }
        end(&fixture);
    }
}

static void refuse(const clattn_loss_scale_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    struct fixture fixture = begin();
    const clattn_loss_scale_op good = fixture.op;
    clattn_loss_scale_op op;
    (void)state;
    CHECK(clattn_supported(device.clattn, &good.head, NULL));
    op = good, op.growth_interval = 0, refuse(&op, "growth_interval = 0");
    op = good, op.growth = 0.5f, refuse(&op, "growth = 0.5");
    op = good, op.growth = INFINITY, refuse(&op, "growth = inf");
    op = good, op.backoff = 0, refuse(&op, "backoff = 0");
    op = good, op.backoff = 1.5f, refuse(&op, "backoff = 1.5");
    op = good, op.backoff = NAN, refuse(&op, "backoff = ");
    op = good, op.least = 0, refuse(&op, "least = 0");
    op = good, op.least = 1e-40f, refuse(&op, "least = 9.99");
    op = good, op.most = INFINITY, refuse(&op, "most = inf");
    op = good, op.most = 0.5f, refuse(&op, "most = 0.5");
    op = good, op.initial = NAN, refuse(&op, "initial = ");
    op = good, op.initial = 0.5f, refuse(&op, "initial = 0.5");
    op = good, op.state.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "state is absent");
    op = good, op.state.dtype = CLATTN_F32, refuse(&op, "state: dtype is f32");
    op = good, op.state.dims[0] = 3, refuse(&op, "state: dims[0] = 3");
    op = good, op.state.strides[0] = 2, refuse(&op, "state: strides[0] = 2");
    op = good, op.overflow.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "overflow is absent");
    op = good, op.overflow.dtype = CLATTN_U8, refuse(&op, "overflow: dtype is u8");
    op = good, op.overflow = op.state, op.overflow.dims[0] = 1, refuse(&op, "state overlaps overflow");
    test_untouched(&fixture.state, "state");
    end(&fixture);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_series_of_steps),
        cmocka_unit_test(bad_arguments),
    };
    return support_main("loss scale", tests, sizeof tests / sizeof tests[0]);
}
