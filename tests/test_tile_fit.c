/* Tile parameters on invented devices: what shapes follow from them, which are refused, and how they shrink until they
 * fit. */
#include "tile_fit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct device_facts facts_of(uint32_t max_group, uint64_t local_memory) {
    return (struct device_facts){.max_group = max_group,
                                 .max_item = {max_group, max_group, max_group},
                                 .local_memory = local_memory,
                                 .subgroup = SUBGROUP_LOCAL,
                                 .subgroup_size = 1};
}

static struct parameters parameters_of(const char *text) {
    struct parameters set = {0};
    assert_int_equal(parameters_parse(&set, text), CLATTN_SUCCESS);
    return set;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static void shapes_follow_the_parameters(void **state) {
    const struct device_facts facts = facts_of(1024, 49152);
    const struct parameters fma = parameters_of("fma_items=8,fma_rows=4,groups=16"), cpu = parameters_of("cpu_rows=64"),
                            mma = parameters_of("mma_rows=32,groups=4");
    (void)state;
    struct tile_shape shape = tile_shape_of(BACKEND_FMA, &fma, &facts);
    assert_int_equal(shape.items, 8);
    assert_int_equal(shape.n, 32);
    assert_int_equal(tile_a_bytes(&shape, 64, 16), 64 * 20 * 4);
    assert_int_equal(tile_left_bytes(&shape, 64, 32), 64 * 36 * 4);
    assert_int_equal(tile_row_scratch_bytes(&shape), 16 * 8 * 4 * 4);
    shape = tile_shape_of(BACKEND_CPU_VECTOR, &cpu, &facts);
    assert_int_equal(shape.items, 1);
    assert_int_equal(shape.m, 64);
    assert_int_equal(tile_bt_bytes(&shape, 128, 32), 128 * 32 * 4);
    assert_int_equal(tile_row_scratch_bytes(&shape), 0);
    shape = tile_shape_of(BACKEND_NVIDIA_MMA, &mma, &facts);
    assert_int_equal(shape.items, 32);
    assert_int_equal(tile_b_bytes(&shape, 32, 128), 32 * 136 * 2);
    assert_int_equal(tile_left_bytes(&shape, 128, 32), 0);
}

/* Sub-groups hold whole tile groups, and the work-group whole sub-groups; else rows meet in local memory. */
static void subgroups_are_used_where_they_fit(void **state) {
    struct device_facts facts = facts_of(1024, 49152);
    (void)state;
    facts.subgroup = SUBGROUP_KHR;
    facts.subgroup_size = 32;
    struct parameters set = parameters_of("fma_items=16,fma_rows=4,groups=4");
    struct tile_shape shape = tile_shape_of(BACKEND_FMA, &set, &facts);
    assert_int_equal(shape.subgroup, SUBGROUP_KHR);
    assert_int_equal(shape.subgroup_size, 32);
    assert_int_equal(tile_row_scratch_bytes(&shape), 0);
    parameters_put(&set, "groups", 1);
    shape = tile_shape_of(BACKEND_FMA, &set, &facts);
    assert_int_equal(shape.subgroup, SUBGROUP_LOCAL);
    assert_true(tile_row_scratch_bytes(&shape) > 0);
    facts.subgroup_size = 8;
    parameters_put(&set, "groups", 4);
    assert_int_equal(tile_shape_of(BACKEND_FMA, &set, &facts).subgroup, SUBGROUP_LOCAL);
}

static void options_name_the_shape(void **state) {
    char options[256];
    struct device_facts facts = facts_of(1024, 49152);
    const struct parameters set = parameters_of("fma_items=8,fma_rows=4,groups=16");
    (void)state;
    facts.is_cpu = true;
    const struct tile_shape shape = tile_shape_of(BACKEND_FMA, &set, &facts);
    tile_options(&shape, "plain", options, sizeof options);
    assert_string_equal(options, "-DTILE_BACKEND=fma -DFMA_ITEMS=8 -DFMA_ROWS=4 -DTILE_UNROLL=0 -DGROUPS=16 "
                                 "-DSTAGE_BACKEND=plain -DSUBGROUP_BACKEND=local -DSG_SIZE=1");
}

static void impossible_parameters_are_refused(void **state) {
    static const struct {
        enum backend backend;
        const char *text, *word;
    } bad[] = {
        {BACKEND_FMA, "fma_items=12", "fma_items"},      {BACKEND_FMA, "fma_items=64", "fma_items"},
        {BACKEND_FMA, "fma_rows=3", "fma_rows"},         {BACKEND_FMA, "groups=0", "groups"},
        {BACKEND_CPU_VECTOR, "cpu_rows=4", "cpu_rows"},  {BACKEND_CPU_VECTOR, "groups=2", "groups"},
        {BACKEND_NVIDIA_MMA, "mma_rows=64", "mma_rows"}, {BACKEND_NVIDIA_MMA, "groups=-1", "groups"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct parameters set = parameters_of(bad[i].text);
        const char *reason = tile_shape_refusal(bad[i].backend, CLATTN_OP_ATTENTION, &set);
        assert_non_null(reason);
        assert_non_null(strstr(reason, bad[i].word));
    }
    const struct parameters good = parameters_of("fma_items=32,fma_rows=8,groups=32,cpu_rows=8,mma_rows=16");
    assert_null(tile_shape_refusal(BACKEND_FMA, CLATTN_OP_GEMM, &good));
    assert_null(tile_shape_refusal(BACKEND_NVIDIA_MMA, CLATTN_OP_ATTENTION, &good));
}

/* ---- fitting ----------------------------------------------------------------------------------------------------- */

/* A kernel of groups * items work-items that keeps `slice` floats for each. */
static struct tile_need need(const struct tile_plan *plan, const struct parameters *parameters,
                             const struct device_facts *facts) {
    const uint64_t items =
        (uint64_t)parameters_get(parameters, "groups", 1) * (uint64_t)parameters_get(parameters, "fma_items", 1);
    (void)plan, (void)facts;
    return (struct tile_need){items, items * (uint64_t)parameters_get(parameters, "slice", 1) * 4 + 100};
}

static void spell_out(const struct tile_plan *plan, const struct parameters *parameters,
                      const struct device_facts *facts, struct parameters *out) {
    (void)plan, (void)facts;
    parameters_put(out, "slice", parameters_get(parameters, "slice", 16));
}

static const struct tile_step for_local[] = {{"slice", 3, false}, {"groups", 1, false}, {NULL, 0, false}};
static const struct tile_kernel kernel = {for_local, need, spell_out};
static const struct problem problem = {.op = CLATTN_OP_ATTENTION}, product = {.op = CLATTN_OP_GEMM};
static const struct tile_plan plan = {&kernel, &problem, BACKEND_FMA};

static void what_fits_stays(void **state) {
    struct parameters set = parameters_of("groups=16,fma_items=16,slice=16");
    const struct parameters before = set;
    const struct device_facts facts = facts_of(256, 256 * 16 * 4 + 100);
    (void)state;
    assert_true(tile_fit(&plan, &facts, &set));
    assert_memory_equal(&set, &before, sizeof set);
}

static void first_steps_are_taken_first(void **state) {
    struct parameters set = parameters_of("groups=16,fma_items=16,slice=16");
    (void)state;
    struct device_facts facts = facts_of(64, 1 << 20);
    assert_true(tile_fit(&plan, &facts, &set));
    assert_int_equal(parameters_get(&set, "groups", 0), 4);
    assert_int_equal(parameters_get(&set, "fma_items", 0), 16);
    facts = facts_of(8, 1 << 20);
    assert_true(tile_fit(&plan, &facts, &set));
    assert_int_equal(parameters_get(&set, "groups", 0), 1);
    assert_int_equal(parameters_get(&set, "fma_items", 0), 8);
}

static void local_memory_counts_too(void **state) {
    struct parameters set = parameters_of("groups=16,fma_items=16,slice=16");
    (void)state;
    const struct device_facts facts = facts_of(256, 128 * 3 * 4 + 100);
    assert_true(tile_fit(&plan, &facts, &set));
    assert_int_equal(parameters_get(&set, "slice", 0), 3); /* its least value, not half of 4 */
    assert_int_equal(parameters_get(&set, "groups", 0), 8);
}

static void a_dimension_may_be_shorter_than_the_group(void **state) {
    struct parameters set = parameters_of("groups=16,fma_items=16,slice=1");
    struct device_facts facts = facts_of(256, 1 << 20);
    (void)state;
    facts.max_item[0] = 128;
    assert_true(tile_fit(&plan, &facts, &set));
    assert_int_equal(parameters_get(&set, "groups", 0), 8);
}

static void what_cannot_fit_is_told(void **state) {
    struct parameters set = parameters_of("groups=16,fma_items=16,slice=16");
    (void)state;
    struct device_facts facts = facts_of(0, 1 << 20);
    assert_false(tile_fit(&plan, &facts, &set));
    facts = facts_of(256, 100);
    set = parameters_of("groups=16,fma_items=16,slice=16");
    assert_false(tile_fit(&plan, &facts, &set));
    assert_int_equal(parameters_get(&set, "fma_items", 0), 1);
}

/* A product stages rows in packets of four. */
static void products_keep_four_rows(void **state) {
    const struct device_facts facts = facts_of(256, 1);
    const struct tile_plan of_product = {&kernel, &product, BACKEND_FMA};
    struct parameters set = parameters_of("fma_rows=8"), same = set;
    (void)state;
    assert_false(tile_fit(&of_product, &facts, &set));
    assert_int_equal(parameters_get(&set, "fma_rows", 0), 4);
    assert_false(tile_fit(&plan, &facts, &same));
    assert_int_equal(parameters_get(&same, "fma_rows", 0), 1);
    const struct parameters two = parameters_of("fma_rows=2");
    assert_non_null(tile_shape_refusal(BACKEND_FMA, CLATTN_OP_GEMM, &two));
    assert_null(tile_shape_refusal(BACKEND_FMA, CLATTN_OP_ATTENTION, &two));
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static struct choice choice_of(const char *text, bool overridden) {
    return (struct choice){.variant = variant_named(CLATTN_OP_ATTENTION, "fused_fma"),
                           .facts = facts_of(64, 1 << 20),
                           .parameters = parameters_of(text),
                           .overridden = overridden};
}

/* Every parameter that runs is named, and nothing that no kernel reads. */
static void rows_shrink_and_are_spelled_out(void **state) {
    char text[128];
    struct choice choice = choice_of("nobody_reads=7,groups=16,slice=8", false);
    (void)state;
    assert_int_equal(tile_choose(&kernel, &problem, &choice), CLATTN_SUCCESS);
    parameters_print(&choice.parameters, text, sizeof text);
    assert_string_equal(text, "fma_items=16,fma_rows=4,groups=4,slice=8");
}

static void what_a_caller_asks_for_does_not_shrink(void **state) {
    struct choice choice = choice_of("groups=16", true);
    (void)state;
    assert_int_equal(tile_choose(&kernel, &problem, &choice), CLATTN_UNSUPPORTED);
    choice = choice_of("groups=4", true);
    assert_int_equal(tile_choose(&kernel, &problem, &choice), CLATTN_SUCCESS);
    choice = choice_of("groups=4", false);
    choice.facts.local_memory = 100;
    assert_int_equal(tile_choose(&kernel, &problem, &choice), CLATTN_UNSUPPORTED);
}

static void groups_of_a_launch_are_bounded(void **state) {
    size_t groups = 0;
    (void)state;
    assert_int_equal(tile_count_groups("q", 1, INT32_MAX, 1, &groups), CLATTN_SUCCESS);
    assert_int_equal(groups, INT32_MAX);
    assert_int_equal(tile_count_groups("q", 2, INT64_C(1) << 30, 1, &groups), CLATTN_UNSUPPORTED);
    assert_int_equal(tile_count_groups("q", INT64_MAX, INT64_MAX, 3, &groups), CLATTN_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_follow_the_parameters),
        cmocka_unit_test(subgroups_are_used_where_they_fit),
        cmocka_unit_test(options_name_the_shape),
        cmocka_unit_test(impossible_parameters_are_refused),
        cmocka_unit_test(what_fits_stays),
        cmocka_unit_test(first_steps_are_taken_first),
        cmocka_unit_test(local_memory_counts_too),
        cmocka_unit_test(a_dimension_may_be_shorter_than_the_group),
        cmocka_unit_test(what_cannot_fit_is_told),
        cmocka_unit_test(products_keep_four_rows),
        cmocka_unit_test(rows_shrink_and_are_spelled_out),
        cmocka_unit_test(what_a_caller_asks_for_does_not_shrink),
        cmocka_unit_test(groups_of_a_launch_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
