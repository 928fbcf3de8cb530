/* How decode attention splits keys, on invented devices. */
#include "attention_split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct device_facts device_of(uint32_t units, bool cpu) {
    return (struct device_facts){.compute_units = units, .is_cpu = cpu, .is_gpu = !cpu};
}

static struct attention_split split_on(uint32_t units, bool cpu, int64_t blocks, int64_t rows, int64_t keys) {
    const struct device_facts facts = device_of(units, cpu);
    const struct attention_split_task task = {.blocks = blocks, .rows = rows, .keys = keys, .block_keys = 32};
    return attention_split_of(&facts, &task);
}

static void is(struct attention_split split, int64_t splits, int64_t chunk) {
    assert_int_equal(split.splits, splits);
    assert_int_equal(split.chunk, chunk);
}

static void splits_fill_the_device(void **state) {
    (void)state;
    is(split_on(132, false, 8, 4, 8192), 64, 128);    /* one sequence: as small as chunks get */
    is(split_on(132, false, 128, 4, 8192), 16, 512);  /* 16 groups a unit */
    is(split_on(132, false, 4096, 4, 8192), 1, 8192); /* the blocks alone are enough */
    is(split_on(132, false, 8, 64, 8192), 4, 2048);   /* 32 keys a row */
    is(split_on(2, true, 1, 8, 8192), 8, 1024);       /* a CPU: 4 groups a unit */
    is(split_on(2, true, 1, 8, 600), 2, 512);         /* ... and 512 keys */
    is(split_on(132, false, 8, 4, 100), 1, 128);      /* too short */
    is(split_on(1, false, 1, 1, INT64_C(2000000000)), 16, INT64_C(125000000));
}

static struct attention_split split_in(int64_t resident, bool even, int64_t blocks, int64_t rows, int64_t keys) {
    const struct device_facts facts = device_of(132, false);
    const struct attention_split_task task = {
        .blocks = blocks, .rows = rows, .keys = keys, .block_keys = 64, .resident = resident, .even = even};
    return attention_split_of(&facts, &task);
}

/* Work-groups of 32 rows that have a unit each to themselves, or five to a unit. */
static void large_work_groups_run_in_waves(void **state) {
    (void)state;
    is(split_in(1, true, 128, 32, 8192), 1, 8192);  /* 128 of 132 places */
    is(split_in(1, true, 64, 32, 8192), 2, 4096);   /* the same with two */
    is(split_in(1, true, 100, 32, 8192), 5, 1664);  /* 500 of 528 */
    is(split_in(1, true, 120, 32, 8192), 1, 8192);  /* too few by one wave, and by two */
    is(split_in(1, false, 128, 32, 8192), 8, 1024); /* lengths differ: they have to balance */
    is(split_in(1, true, 2, 32, 8192), 64, 128);    /* one sequence: chunks are made small for the units' sake */
    is(split_in(1, false, 2, 32, 8192), 64, 128);
    is(split_in(5, true, 64, 4, 8192), 10, 832);  /* as many as fit at once */
    is(split_in(5, true, 64, 64, 8192), 4, 2048); /* 32 keys a row, and no unit is left empty */
    is(split_in(5, true, 8, 64, 8192), 64, 128);  /* some would be */
    is(split_in(5, true, 512, 4, 8192), 1, 8192); /* 512 of 660 places */
    is(split_in(5, true, 400, 4, 8192), 6, 1408); /* too few, and twice as many do not fit */
    is(split_in(5, true, 700, 4, 8192), 4, 2048); /* they do not fit at all */
    is(split_in(1, true, 1, 64, 100), 1, 128);
    is(split_in(1, true, 5000, 64, 8192), 1, 8192);
}

static void any_task_gets_a_split(void **state) {
    (void)state;
    is(split_on(132, false, 0, 4, 0), 1, 32);
    is(split_on(0, false, 1, 0, 1), 1, 32);
    for (int64_t keys = 1; keys < 3000; keys += 37)
        for (int64_t blocks = 1; blocks < 5000; blocks *= 3) {
            const struct attention_split split = split_on(20, false, blocks, 16, keys);
            assert_int_equal(split.chunk % 32, 0);
            assert_true(split.splits >= 1 && split.splits * split.chunk >= keys);
            assert_true((split.splits - 1) * split.chunk < keys);
        }
}

static void given_sizes_are_rounded(void **state) {
    const struct attention_split_task task = {.blocks = 1, .rows = 1, .keys = 1000, .block_keys = 64};
    (void)state;
    is(attention_split_given(&task, 1, 0), 16, 64);
    is(attention_split_given(&task, 65, 0), 8, 128);
    is(attention_split_given(&task, INT64_C(1) << 31, 0), 1, 1024);
    is(attention_split_given(&task, 128, 3), 8, 128); /* the chunk counts */
    is(attention_split_given(&task, 0, 1), 1, 1024);
    is(attention_split_given(&task, 0, 3), 3, 384);
    is(attention_split_given(&task, 0, 5), 4, 256);
    is(attention_split_given(&task, 0, INT32_MAX), 16, 64); /* no split without a key */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_fill_the_device),
        cmocka_unit_test(large_work_groups_run_in_waves),
        cmocka_unit_test(any_task_gets_a_split),
        cmocka_unit_test(given_sizes_are_rounded),
    };
    return cmocka_run_group_tests_name("attention split", tests, NULL, NULL);
}
