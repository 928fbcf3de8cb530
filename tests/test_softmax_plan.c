/* How softmax deals rows out, on invented devices: what is chosen can be launched everywhere, and shuffles are used
 * where a work-group holds whole sub-groups, never for a work-item alone. */
#include "softmax_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const enum schedule schedules[] = {SCHEDULE_SUBGROUP, SCHEDULE_GROUP,  SCHEDULE_SPLIT,     SCHEDULE_TICKETS,
                                          SCHEDULE_HELD,     SCHEDULE_ONLINE, SCHEDULE_THREE_PASS};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

static struct device_facts device_of(bool cpu, enum subgroup_backend subgroup, uint32_t subgroup_size,
                                     uint32_t max_group) {
    struct device_facts facts = {.is_cpu = cpu,
                                 .is_gpu = !cpu,
                                 .caps = cpu ? CAP_BIT(CAP_CPU) : 0,
                                 .subgroup = subgroup,
                                 .subgroup_size = subgroup_size,
                                 .compute_units = 8,
                                 .max_group = max_group,
                                 .max_item = {max_group, max_group, max_group}};
    if (subgroup != SUBGROUP_LOCAL)
        facts.caps |= CAP_BIT(CAP_SUBGROUP_SHUFFLE);
    return facts;
}

static struct softmax_rows rows_of(int64_t rows, int64_t columns, clattn_dtype dtype, bool dense) {
    struct softmax_rows made = {
        .outer = 1, .x_dtype = dtype, .y_dtype = dtype, .writes_row = true, .dense = dense, .aligned = dense};
    made.layout.rows = made.layout.dim[2] = rows;
    made.layout.dim[0] = made.layout.dim[1] = 1;
    made.layout.columns = columns;
    made.layout.x_step = made.layout.y_step = dense ? 1 : rows;
    return made;
}

/* ---- what any plan must hold ---- */

static bool is_power_of_2(int n) {
    return n > 0 && (n & (n - 1)) == 0;
}

static void can_be_launched(const struct device_facts *facts, const struct softmax_plan *plan) {
    assert_true(is_power_of_2(plan->group) && (uint32_t)plan->group <= facts->max_group);
    assert_true(is_power_of_2(plan->team) && plan->team <= plan->group);
    assert_true(is_power_of_2(plan->subgroup) && plan->group % plan->subgroup == 0);
    assert_true(plan->team <= plan->subgroup || plan->team == plan->group);
}

static void shuffles_whole_subgroups(const struct device_facts *facts, const struct softmax_plan *plan) {
    if (plan->backend == SUBGROUP_LOCAL)
        return;
    assert_int_equal(plan->backend, facts->subgroup);
    assert_int_equal(plan->subgroup, facts->subgroup_size);
    assert_true(plan->team > 1);
}

static void holds_the_row(enum schedule schedule, const struct softmax_rows *rows, const struct softmax_plan *plan) {
    const int64_t columns = rows->layout.columns;
    assert_true(plan->vector == 1 || rows->dense);
    if (schedule == SCHEDULE_SUBGROUP || schedule == SCHEDULE_GROUP)
        assert_true((int64_t)plan->team * plan->packets * plan->vector >= columns);
    if (schedule == SCHEDULE_HELD)
        assert_true((int64_t)plan->team * plan->packets * plan->vector >= plan->chunk && plan->team == plan->group);
    if (schedule == SCHEDULE_SPLIT || schedule == SCHEDULE_HELD)
        assert_true(plan->chunk % ((int64_t)plan->group * plan->vector) == 0 && plan->chunk * plan->splits >= columns);
}

static void expect_plan(const struct device_facts *facts, enum schedule schedule, const struct softmax_rows *rows,
                        const struct parameters *parameters) {
    struct softmax_plan plan;
    assert_int_equal(softmax_plan_make(facts, schedule, rows, parameters, &plan), CLATTN_SUCCESS);
    can_be_launched(facts, &plan);
    shuffles_whole_subgroups(facts, &plan);
    holds_the_row(schedule, rows, &plan);
}

/* ---- devices and rows ---- */

static void on_rows_of_every_length(const struct device_facts *facts, const struct parameters *parameters) {
    static const int64_t columns[] = {0, 1, 3, 16, 300, 1024, 1025, 32768, 65536, 1 << 20};
    static const int64_t counts[] = {1, 16, 100000};
    for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
        for (size_t r = 0; r < sizeof counts / sizeof counts[0]; r++)
            for (int dtype = CLATTN_F32; dtype <= CLATTN_BF16; dtype++)
                for (int dense = 0; dense < 2; dense++)
                    for (int s = 0; s < SCHEDULES; s++) {
                        const struct softmax_rows rows =
                            rows_of(counts[r], columns[c], (clattn_dtype)dtype, dense == 1);
                        expect_plan(facts, schedules[s], &rows, parameters);
                    }
}

static void on_every_device(const struct parameters *parameters, uint32_t least_group) {
    static const uint32_t sizes[] = {1, 8, 12, 16, 32, 64}, groups[] = {1, 8, 24, 32, 64, 256, 1024, 8192};
    for (int cpu = 0; cpu < 2; cpu++)
        for (int subgroup = SUBGROUP_LOCAL; subgroup <= SUBGROUP_NVIDIA; subgroup++)
            for (size_t s = subgroup == SUBGROUP_LOCAL ? 0 : 1; s < sizeof sizes / sizeof sizes[0]; s++)
                for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
                    const struct device_facts facts =
                        device_of(cpu == 1, (enum subgroup_backend)subgroup, sizes[s], groups[g]);
                    if (groups[g] >= least_group)
                        on_rows_of_every_length(&facts, parameters);
                }
}

static void what_is_chosen_can_be_launched(void **state) {
    const struct parameters none = {0};
    (void)state;
    on_every_device(&none, 1);
}

/* Powers of two that the device can launch: the sub-group's size is no reason to refuse one. */
static void any_group_can_be_asked_for(void **state) {
    struct parameters asked;
    (void)state;
    for (int group = 1; group <= 64; group *= 2) {
        asked = (struct parameters){0};
        parameters_put(&asked, "group", group);
        on_every_device(&asked, (uint32_t)group);
        parameters_put(&asked, "team", 1);
        parameters_put(&asked, "vector", 1);
        on_every_device(&asked, (uint32_t)group);
    }
}

static void teams_exchange_by_shuffles_where_they_can(void **state) {
    const struct device_facts gpu = device_of(false, SUBGROUP_KHR, 32, 1024),
                              cpu = device_of(true, SUBGROUP_KHR, 16, 4096);
    const struct softmax_rows few = rows_of(4, 300, CLATTN_F32, true), narrow = rows_of(4, 64, CLATTN_F32, true);
    const struct parameters none = {0};
    struct softmax_plan plan;
    (void)state;
    for (int s = 0; s < SCHEDULES; s++) {
        assert_int_equal(softmax_plan_make(&gpu, schedules[s], &few, &none, &plan), CLATTN_SUCCESS);
        assert_int_equal(plan.backend, SUBGROUP_KHR);
    }
    assert_int_equal(softmax_plan_make(&cpu, SCHEDULE_SUBGROUP, &narrow, &none, &plan), CLATTN_SUCCESS);
    assert_true(plan.team < 16);
    assert_int_equal(plan.backend, SUBGROUP_KHR);
    assert_int_equal(softmax_plan_make(&cpu, SCHEDULE_ONLINE, &few, &none, &plan), CLATTN_SUCCESS);
    assert_int_equal(plan.team, 1);
    assert_int_equal(plan.backend, SUBGROUP_LOCAL);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_chosen_can_be_launched),
        cmocka_unit_test(any_group_can_be_asked_for),
        cmocka_unit_test(teams_exchange_by_shuffles_where_they_can),
    };
    return cmocka_run_group_tests_name("softmax plan", tests, NULL, NULL);
}
