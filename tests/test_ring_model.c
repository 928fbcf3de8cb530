/* The model of a ring: what is hidden behind computing costs nothing, what is not is waited for. */
#include "../tools/ring_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void one_rank_takes_what_one_device_takes(void **state) {
    (void)state;
    const struct ring_model model = {.ranks = 1, .alone_s = 3, .share = 1, .block_bytes = 1e9, .link_bytes_s = 1};
    const struct ring_prediction prediction = ring_predict(&model);
    assert_true(fabs(prediction.seconds - 3) < 1e-12);
    assert_true(prediction.waiting_s == 0);
}

static void transfers_hide_behind_computing_until_they_are_slower(void **state) {
    (void)state;
    struct ring_model model = {.ranks = 4, .alone_s = 8, .share = 0.25, .block_bytes = 1e9, .link_bytes_s = 4e9};
    struct ring_prediction prediction = ring_predict(&model); /* steps of 0.5 s, blocks of 0.25 s */
    assert_true(fabs(prediction.seconds - 2) < 1e-12);
    assert_true(prediction.waiting_s == 0);
    model.link_bytes_s = 1e9; /* blocks of 1 s: three steps wait for half a second each */
    prediction = ring_predict(&model);
    assert_true(fabs(prediction.waiting_s - 1.5) < 1e-12);
    assert_true(fabs(prediction.seconds - 3.5) < 1e-12);
    model.call_s = 0.01;
    assert_true(fabs(ring_predict(&model).seconds - 3.54) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_takes_what_one_device_takes),
        cmocka_unit_test(transfers_hide_behind_computing_until_they_are_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
