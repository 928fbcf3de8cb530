/* Named integers: sets, the caller's text, and its way back to text. */
#include "parameters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void gets_what_was_put(void **state) {
    struct parameters set = {0};
    (void)state;
    assert_int_equal(parameters_get(&set, "block_m", 7), 7);
    assert_true(parameters_put(&set, "block_m", 64));
    assert_true(parameters_put(&set, "block_n", 32));
    assert_true(parameters_put(&set, "block_m", 16));
    assert_int_equal(set.count, 2);
    assert_int_equal(parameters_get(&set, "block_m", 7), 16);
    assert_int_equal(parameters_get(&set, "block", 7), 7);
}

static void refuses_what_does_not_fit(void **state) {
    struct parameters set = {0};
    char name[32];
    (void)state;
    for (int i = 0; i < PARAMETERS_MAX; i++) {
        snprintf(name, sizeof name, "p%d", i);
        assert_true(parameters_put(&set, name, i));
    }
    assert_false(parameters_put(&set, "one_more", 1));
    assert_true(parameters_put(&set, "p3", 33));
    assert_false(parameters_put(&set, "", 1));
    assert_false(parameters_put(&set, "a_name_of_24_characters_", 1));
}

static void parses_and_prints(void **state) {
    static const struct {
        const char *text, *printed;
    } rows[] = {
        {"", ""},
        {"block_m=64", "block_m=64"},
        {"block_m=64,block_n=32", "block_m=64,block_n=32"},
        {"a=1,b=2,a=3", "a=3,b=2"},
        {"a=-5", "a=-5"},
        {"a=2147483647", "a=2147483647"},
        {"a=-2147483648", "a=-2147483648"},
        {"a=007", "a=7"},
    };
    char printed[128];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct parameters set = {0};
        assert_int_equal(parameters_parse(&set, rows[i].text), CLATTN_SUCCESS);
        parameters_print(&set, printed, sizeof printed);
        assert_string_equal(printed, rows[i].printed);
    }
}

static void names_the_bad_item(void **state) {
    static const struct {
        const char *text, *named;
    } rows[] = {
        {"block_m", "\"block_m\""},
        {"=5", "\"=5\""},
        {"a=", "\"a=\""},
        {"a=1,b=x", "\"b=x\""},
        {"a=1,,b=2", "\"\""},
        {"a=1.5", "\"a=1.5\""},
        {"a=2147483648", "\"a=2147483648\""},
        {"a=99999999999999999999", "\"a=99999999999999999999\""},
        {"a= 1", "\"a= 1\""},
        {"a=+1", "\"a=+1\""},
        {"a=1 ", "\"a=1 \""},
        {"A=1", "\"A=1\""},
        {"a-b=1", "\"a-b=1\""},
        {"a=1 -DEVIL=1", "\"a=1 -DEVIL=1\""},
        {"a_name_of_24_characters_=1", "\"a_name_of_24_characters_=1\""},
        {"a=1000000000000000000000000000000000000000000000000", "\"a=10000"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct parameters set = {0};
        assert_int_equal(parameters_parse(&set, rows[i].text), CLATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(clattn_last_error(), rows[i].named));
    }
}

static void prints_into_a_short_text(void **state) {
    struct parameters set = {0};
    char text[8] = "unused.";
    (void)state;
    assert_int_equal(parameters_parse(&set, "block_m=64,block_n=32"), CLATTN_SUCCESS);
    parameters_print(&set, text, sizeof text);
    assert_string_equal(text, "block_m");
    parameters_print(&set, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_what_was_put),        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(parses_and_prints),        cmocka_unit_test(names_the_bad_item),
        cmocka_unit_test(prints_into_a_short_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
