/* Values come back under their keys alone, the first that was kept stays, and the memo stays bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "memo.h"

#include <cmocka.h>

static void keeps_by_key(void **state) {
    struct memo memo;
    const int one = 1, two = 2, ten = 10, twenty = 20;
    int value = 0;
    (void)state;
    memo_init(&memo);
    assert_false(memo_find(&memo, &one, sizeof one, &value, sizeof value));
    memo_keep(&memo, &one, sizeof one, &ten, sizeof ten);
    memo_keep(&memo, &two, sizeof two, &twenty, sizeof twenty);
    memo_keep(&memo, &one, sizeof one, &twenty, sizeof twenty);
    assert_true(memo_find(&memo, &one, sizeof one, &value, sizeof value));
    assert_int_equal(value, 10);
    assert_true(memo_find(&memo, &two, sizeof two, &value, sizeof value));
    assert_int_equal(value, 20);
    memo_free(&memo);
}

static void sizes_count(void **state) {
    struct memo memo;
    const int64_t key = 7;
    int64_t value = 9;
    int small = 0;
    (void)state;
    memo_init(&memo);
    memo_keep(&memo, &key, sizeof key, &value, sizeof value);
    assert_false(memo_find(&memo, &key, 4, &value, sizeof value));
    assert_false(memo_find(&memo, &key, sizeof key, &small, sizeof small));
    memo_free(&memo);
}

static void stays_bounded(void **state) {
    struct memo memo;
    int value = 0;
    (void)state;
    memo_init(&memo);
    for (int key = 0; key < 10000; key++)
        memo_keep(&memo, &key, sizeof key, &key, sizeof key);
    assert_in_range(memo.count, 1000, 9999);
    for (int key = 0; key < 1000; key++) {
        assert_true(memo_find(&memo, &key, sizeof key, &value, sizeof value));
        assert_int_equal(value, key);
    }
    memo_free(&memo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_by_key),
        cmocka_unit_test(sizes_count),
        cmocka_unit_test(stays_bounded),
    };
    return cmocka_run_group_tests_name("memo", tests, NULL, NULL);
}
