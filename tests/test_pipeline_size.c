/* Sizes of the pipeline: what fits the architecture that it is for, what the parameters may be. */
#include "pipeline_size.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_LOCAL 232448

static struct parameters parameters_of(int groups, int block_keys, int stages) {
    return (struct parameters){.count = 3,
                               .item = {{"groups", groups}, {"block_keys", block_keys}, {"stages", stages}}};
}

static size_t bytes_of(int groups, int block_keys, int stages, int64_t head_dim, int64_t value_dim) {
    const struct parameters parameters = parameters_of(groups, block_keys, stages);
    const struct pipeline_shape shape = pipeline_shape_of(&parameters);
    return pipeline_bytes(&shape, head_dim, value_dim);
}

static void operands_are_whole_panels(void **state) {
    (void)state;
    const size_t other = 1024 + 256 + 3 * 128 + 2 * 128;
    assert_int_equal(bytes_of(2, 128, 2, 128, 128) - other, 128 * 256 + 2 * 2 * 128 * 256);
    assert_int_equal(bytes_of(2, 128, 2, 80, 64) - other, 128 * 256 + 2 * (128 * 256 + 128 * 128));
    assert_int_equal(bytes_of(3, 16, 1, 16, 256) - other, 192 * 128 + 16 * 128 + 16 * 512);
}

static void the_largest_rows_fit(void **state) {
    (void)state;
    assert_true(bytes_of(2, 80, 2, 256, 256) <= MOST_LOCAL);
    assert_true(bytes_of(2, 112, 2, 192, 192) <= MOST_LOCAL);
    assert_false(bytes_of(2, 96, 2, 256, 256) <= MOST_LOCAL);
}

/* What groups take may not exceed what all were given at the start: 65536 registers in shares of a multiple of 8. */
static void no_registers_are_taken_that_are_not_there(void **state) {
    (void)state;
    for (int groups = 2; groups <= 3; groups++) {
        const struct parameters parameters = parameters_of(groups, 64, 1);
        const struct pipeline_shape shape = pipeline_shape_of(&parameters);
        const int share = 65536 / (int)pipeline_items(&shape) / 8 * 8;
        assert_true(groups * shape.take + shape.give <= (groups + 1) * share);
        assert_true(shape.take % 8 == 0 && shape.give % 8 == 0 && shape.give >= 24);
    }
}

static void other_parameters_are_refused(void **state) {
    (void)state;
    static const struct {
        int groups, block_keys, stages;
        const char *names;
    } cases[] = {{0, 64, 1, "groups"},      {4, 64, 1, "groups"}, {2, 0, 1, "block_keys"}, {2, 24, 1, "block_keys"},
                 {2, 272, 1, "block_keys"}, {2, 64, 0, "stages"}, {2, 64, 5, "stages"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct parameters parameters = parameters_of(cases[i].groups, cases[i].block_keys, cases[i].stages);
        const char *refusal = pipeline_refusal(&parameters);
        assert_non_null(refusal);
        assert_non_null(strstr(refusal, cases[i].names));
    }
    const struct parameters good = parameters_of(3, 256, 4);
    assert_null(pipeline_refusal(&good));
}

static void parameters_come_back(void **state) {
    (void)state;
    struct parameters parameters = parameters_of(3, 112, 4), out = {0};
    parameters_put(&parameters, "q_held", 7);
    parameters_put(&parameters, "heads_together", 32);
    const struct pipeline_shape shape = pipeline_shape_of(&parameters);
    pipeline_spell_out(&shape, &out);
    assert_int_equal(out.count, 6);
    assert_int_equal(parameters_get(&out, "groups", -1), 3);
    assert_int_equal(parameters_get(&out, "block_keys", -1), 112);
    assert_int_equal(parameters_get(&out, "stages", -1), 4);
    assert_int_equal(parameters_get(&out, "q_held", -1), 1);
    assert_int_equal(parameters_get(&out, "heads_together", -1), 32);
    assert_int_equal(pipeline_block_queries(&shape), 192);
    assert_int_equal(pipeline_items(&shape), 512);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_are_whole_panels),
        cmocka_unit_test(the_largest_rows_fit),
        cmocka_unit_test(no_registers_are_taken_that_are_not_there),
        cmocka_unit_test(other_parameters_are_refused),
        cmocka_unit_test(parameters_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
