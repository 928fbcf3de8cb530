/* The table of variants and the choice among them, on invented devices. */
#include "variant.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const clattn_op_kind kinds[] = {CLATTN_OP_ATTENTION,     CLATTN_OP_ATTENTION_MERGE,
                                       CLATTN_OP_SOFTMAX,       CLATTN_OP_SOFTMAX_MERGE,
                                       CLATTN_OP_GEMM,          CLATTN_OP_NORM,
                                       CLATTN_OP_NORM_BACKWARD, CLATTN_OP_SOFTMAX_BACKWARD,
                                       CLATTN_OP_SOFTMAX_TOPK,  CLATTN_OP_ROPE_APPEND,
                                       CLATTN_OP_CAST,          CLATTN_OP_UNSCALE,
                                       CLATTN_OP_LOSS_SCALE,    CLATTN_OP_ADAMW,
                                       CLATTN_OP_SGD,           CLATTN_OP_ATTENTION_CASCADE};
#define KINDS (sizeof kinds / sizeof kinds[0])

static struct device_facts facts_with(uint64_t caps) {
    struct device_facts facts = {.is_gpu = true,
                                 .caps = caps,
                                 .max_group = 1024,
                                 .local_memory = 49152,
                                 .max_allocation = UINT64_C(1) << 30,
                                 .compute_units = 16,
                                 .subgroup_size = 32};
    facts.subgroup = (caps & CAP_BIT(CAP_SUBGROUP_SHUFFLE)) != 0 ? SUBGROUP_NVIDIA : SUBGROUP_LOCAL;
    return facts;
}

static const uint64_t every_cap = (UINT64_C(1) << CAP_COUNT) - 1;

/* An ordinary problem that suits every specialised variant. */
static struct problem problem_of(clattn_op_kind op) {
    return (struct problem){.op = op,
                            .dtype = CLATTN_F16,
                            .out_dtype = CLATTN_F16,
                            .batch = 1,
                            .heads = 8,
                            .kv_heads = 8,
                            .nq = 256,
                            .nk = 256,
                            .head_dim = 64,
                            .value_dim = 64,
                            .aligned = true,
                            .copyable = true,
                            .positive_scale = true,
                            .rows = 8,
                            .columns = 256,
                            .m = 128,
                            .n = 128,
                            .k = 128,
                            .rows_apart = true};
}

static void table_is_small_and_names_are_unique(void **state) {
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    (void)state;
    assert_in_range(count, KINDS, 80);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(table[i].accepts);
        assert_true(strlen(table[i].name) < 64);
        assert_ptr_equal(variant_named(table[i].op, table[i].name), &table[i]);
        assert_int_equal((table[i].needs | table[i].uses) & ~every_cap, 0);
        assert_string_not_equal(variant_backend_name(table[i].backend), "unknown");
        assert_string_not_equal(variant_op_name(table[i].op), "unknown");
    }
    assert_null(variant_named(CLATTN_OP_GEMM, "fused_fma"));
    assert_null(variant_named(CLATTN_OP_ATTENTION, ""));
    assert_null(variant_named((clattn_op_kind)99, "fused_fma"));
}

/* Which of the table's rows can be had at all, by asking for each with all capabilities. */
static void every_row_is_reachable(void **state) {
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    const struct device_facts facts = facts_with(every_cap);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        struct problem problem = problem_of(table[i].op);
#ifndef CLATTN_HAVE_CLBLAST
        if (table[i].backend == BACKEND_CLBLAST)
            continue;
#endif
        if (table[i].backend == BACKEND_CLBLAST)
            problem.dtype = problem.out_dtype = CLATTN_F32;
        const char *reason = variant_refusal(&table[i], &facts, &problem);
        if (reason != NULL)
            fail_msg("%s refuses: %s", table[i].name, reason);
    }
}

/* Larger products made it read outside its buffers. */
static void clblast_counts_in_32_bits(void **state) {
    const struct device_facts facts = facts_with(0);
    struct problem problem = problem_of(CLATTN_OP_GEMM);
    const struct variant *clblast = variant_named(CLATTN_OP_GEMM, "clblast");
    (void)state;
    problem.dtype = problem.out_dtype = CLATTN_F32;
    problem.batch = 1;
    problem.m = problem.n = 46340; /* squared just below 2^31, but not padded */
    assert_non_null(variant_refusal(clblast, &facts, &problem));
    problem.m = problem.n = 4096;
    problem.batch = 128;
    assert_non_null(variant_refusal(clblast, &facts, &problem));
    problem.m = problem.n = 64;
    problem.reach = INT64_C(1) << 31;
    assert_non_null(variant_refusal(clblast, &facts, &problem));
}

/* With work-groups of one work-item it failed at its launch. */
static void clblast_needs_large_groups(void **state) {
    struct device_facts facts = facts_with(0);
    const struct variant *clblast = variant_named(CLATTN_OP_GEMM, "clblast");
    const struct problem problem = problem_of(CLATTN_OP_GEMM);
    (void)state;
    facts.max_group = 128;
    const char *reason = variant_refusal(clblast, &facts, &problem);
    assert_non_null(reason);
#ifdef CLATTN_HAVE_CLBLAST
    assert_non_null(strstr(reason, "256"));
#endif
}

/* A wrong row now and then where PoCL keeps registers over barriers. */
static void pocl_keeps_no_rows(void **state) {
    struct device_facts facts = facts_with(0);
    const struct problem problem = problem_of(CLATTN_OP_SOFTMAX);
    const struct variant *group = variant_named(CLATTN_OP_SOFTMAX, "group");
    (void)state;
    assert_null(variant_refusal(group, &facts, &problem));
    snprintf(facts.platform, sizeof facts.platform, "Portable Computing Language");
    assert_non_null(variant_refusal(group, &facts, &problem));
}

static void unfused_needs_room_for_its_scores(void **state) {
    struct device_facts facts = facts_with(0);
    struct problem problem = problem_of(CLATTN_OP_ATTENTION);
    const struct variant *unfused = variant_named(CLATTN_OP_ATTENTION, "unfused");
    (void)state;
    facts.max_allocation = 8 * 256 * 256 * 4;
    assert_null(variant_refusal(unfused, &facts, &problem));
    problem.nk = 257;
    assert_non_null(variant_refusal(unfused, &facts, &problem));
    problem.nk = 256;
    problem.nq = problem.nk = INT64_C(1) << 31;
    assert_non_null(variant_refusal(unfused, &facts, &problem));
}

static void the_pipeline_takes_every_modifier(void **state) {
    const struct device_facts facts = facts_with(every_cap);
    struct problem problem = problem_of(CLATTN_OP_ATTENTION);
    const struct variant *pipeline = variant_named(CLATTN_OP_ATTENTION, "fused_nvidia_wgmma");
    (void)state;
    problem.bias_dtype = CLATTN_F16;
    for (problem.modifiers = 0; problem.modifiers < 2 * MODIFIER_SINKS; problem.modifiers++) {
        problem.page_size = (problem.modifiers & MODIFIER_PAGED) != 0 ? 16 : 0;
        assert_null(variant_refusal(pipeline, &facts, &problem));
    }
    problem.modifiers = MODIFIER_BAND, problem.page_size = 0;
    problem.k_rows = problem.nk + 1; /* the last block holds a row that nobody may see */
    assert_non_null(strstr(variant_refusal(pipeline, &facts, &problem), "all rows of q and k"));
    problem.modifiers = MODIFIER_SEQUENCES;
    assert_null(variant_refusal(pipeline, &facts, &problem));
    problem.page_size = 4; /* a copy must not start within 8 rows */
    assert_non_null(strstr(variant_refusal(pipeline, &facts, &problem), "8 keys"));
    problem.page_size = 0, problem.k_rows = problem.nk;
    problem.positive_scale = false, problem.modifiers = MODIFIER_SOFTCAP;
    assert_null(variant_refusal(pipeline, &facts, &problem));
    problem.modifiers = MODIFIER_MASK;
    assert_non_null(strstr(variant_refusal(pipeline, &facts, &problem), "positive"));
}

static void each_operation_runs_without_any_capability(void **state) {
    static const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    static const int64_t sizes[] = {1, 7, 256, 1025, 40000, INT32_MAX};
    const struct device_facts facts = facts_with(0);
    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t d = 0; d < 3; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
                struct problem problem = problem_of(kinds[k]);
                problem.dtype = dtypes[d];
                problem.out_dtype = CLATTN_F32;
                problem.aligned = false;
                problem.columns = problem.nk = problem.nq = problem.m = problem.n = problem.k = sizes[s];
                problem.head_dim = sizes[s] < 256 ? sizes[s] : 256;
                problem.value_dim = sizes[s] < 256 ? sizes[s] - 1 : 256;
                assert_non_null(variant_pick(&facts, &problem));
            }
}

static void picks_the_first_that_accepts(void **state) {
    static const struct {
        clattn_op_kind op;
        uint64_t caps;
        clattn_dtype dtype;
        int64_t size; /* head dim or columns */
        const char *expected;
    } rows[] = {
        {CLATTN_OP_ATTENTION, 0, CLATTN_F32, 64, "fused_fma"},
        {CLATTN_OP_ATTENTION, CAP_BIT(CAP_CPU), CLATTN_F32, 64, "fused_cpu_vector"},
        {CLATTN_OP_ATTENTION, CAP_BIT(CAP_NVIDIA_MMA) | CAP_BIT(CAP_SUBGROUP_SHUFFLE), CLATTN_F16, 64,
         "fused_nvidia_mma"},
        {CLATTN_OP_ATTENTION, CAP_BIT(CAP_NVIDIA_MMA) | CAP_BIT(CAP_SUBGROUP_SHUFFLE), CLATTN_BF16, 256,
         "fused_nvidia_mma"},
        {CLATTN_OP_ATTENTION, CAP_BIT(CAP_NVIDIA_MMA) | CAP_BIT(CAP_SUBGROUP_SHUFFLE), CLATTN_F32, 64, "fused_fma"},
        {CLATTN_OP_ATTENTION, CAP_BIT(CAP_NVIDIA_MMA) | CAP_BIT(CAP_SUBGROUP_SHUFFLE), CLATTN_F16, 63,
         "fused_nvidia_mma"},
        {CLATTN_OP_ATTENTION, CAP_BIT(CAP_NVIDIA_MMA), CLATTN_F16, 64, "fused_fma"},
        {CLATTN_OP_ATTENTION_MERGE, 0, CLATTN_F32, 64, "fold"},
        {CLATTN_OP_SOFTMAX_MERGE, 0, CLATTN_F32, 64, "fold"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct device_facts facts = facts_with(rows[i].caps);
        struct problem problem = problem_of(rows[i].op);
        problem.dtype = rows[i].dtype;
        problem.head_dim = problem.value_dim = problem.columns = rows[i].size;
        assert_string_equal(variant_pick(&facts, &problem)->name, rows[i].expected);
    }
}

/* Longer rows never go back to a schedule for shorter ones. */
static void softmax_schedules_follow_the_row_length(void **state) {
    const struct device_facts facts = facts_with(0);
    struct problem problem = problem_of(CLATTN_OP_SOFTMAX);
    enum schedule last = SCHEDULE_SUBGROUP;
    (void)state;
    for (problem.columns = 1; problem.columns < INT32_MAX; problem.columns = problem.columns * 2 + 1) {
        const enum schedule schedule = variant_pick(&facts, &problem)->schedule;
        assert_in_range(schedule, last, SCHEDULE_SPLIT);
        last = schedule;
    }
    assert_int_equal(last, SCHEDULE_SPLIT);
}

/* Many rows fill the device by themselves, and are split only where one work-group's loops could not walk them. */
static void softmax_splits_many_rows_last(void **state) {
    const struct device_facts facts = facts_with(0);
    struct problem problem = problem_of(CLATTN_OP_SOFTMAX);
    (void)state;
    problem.rows = 1024;
    problem.columns = 100000;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_ONLINE);
    problem.columns = INT32_MAX;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SPLIT);
    assert_non_null(variant_refusal(variant_named(CLATTN_OP_SOFTMAX, "online"), &facts, &problem));
    assert_non_null(variant_refusal(variant_named(CLATTN_OP_SOFTMAX, "three_pass"), &facts, &problem));
}

static void norms_leave_lanes_early(void **state) {
    struct device_facts facts = facts_with(0);
    struct problem problem = problem_of(CLATTN_OP_NORM);
    (void)state;
    problem.dtype = CLATTN_F32;
    problem.columns = NORM_SUBGROUP_COLUMNS;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SUBGROUP);
    problem.columns++;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_GROUP);
    assert_null(variant_refusal(variant_named(CLATTN_OP_NORM, "subgroup"), &facts, &problem));
    problem.dtype = CLATTN_F16;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SUBGROUP);
    problem.dtype = CLATTN_F32;
    snprintf(facts.platform, sizeof facts.platform,
             "Portable Computing Language"); /* work-groups share no rows there */
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SUBGROUP);
}

/* Where groups wait for each other: long rows whose chunks all run at once. */
static void softmax_holds_long_rows(void **state) {
    struct device_facts facts = facts_with(CAP_BIT(CAP_GRID));
    struct problem problem = problem_of(CLATTN_OP_SOFTMAX);
    (void)state;
    problem.columns = 16 * SOFTMAX_CHUNK_BYTES / 2; /* of fp16: a chunk per compute unit */
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SPLIT);
    facts.starts_in_order = true;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_HELD);
    problem.columns++;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SPLIT);
    assert_null(variant_refusal(variant_named(CLATTN_OP_SOFTMAX, "split_held"), &facts, &problem));
    problem.columns = SOFTMAX_GROUP_COLUMNS;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_GROUP);
    problem.columns++;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_HELD);
    problem.softmax_function = CLATTN_LOG_SUM_EXP;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SPLIT);
    facts.caps = 0;
    problem.softmax_function = CLATTN_SOFTMAX;
    assert_int_equal(variant_pick(&facts, &problem)->schedule, SCHEDULE_SPLIT);
}

/* Every operation, row and unsuitable problem: a refusal begins with a capital and ends with a full stop. */
static const char *pick_of(uint64_t caps, int64_t batch, int64_t nq, int64_t nk) {
    const struct device_facts facts = facts_with(caps);
    struct problem problem = problem_of(CLATTN_OP_ATTENTION);
    problem.batch = batch;
    problem.nq = nq;
    problem.nk = nk;
    return variant_pick(&facts, &problem)->name;
}

/* Heads are 8 and units 16. */
static void few_queries_are_decoded(void **state) {
    const uint64_t cpu = CAP_BIT(CAP_CPU);
    (void)state;
    assert_string_equal(pick_of(every_cap, 1, 1, 8192), "decode_nvidia_mma");
    assert_string_equal(pick_of(every_cap, 64, 16, 128), "decode_nvidia_mma");
    assert_string_equal(pick_of(every_cap, 64, 17, 8192), "fused_nvidia_wgmma");
    assert_string_equal(pick_of(every_cap, 1, 1, 127), "fused_nvidia_wgmma");
    assert_string_equal(pick_of(cpu, 1, 1, 8192), "decode_cpu_vector");
    assert_string_equal(pick_of(cpu, 1, 200, 256), "fused_cpu_vector");
    assert_string_equal(pick_of(0, 1, 1, 8192), "decode_fma");
}

static void long_keys_are_split_where_queries_do_not_fill_the_device(void **state) {
    (void)state;
    assert_string_equal(pick_of(0, 1, 64, 8192), "decode_fma");
    assert_string_equal(pick_of(0, 1, 65, 8192), "fused_fma"); /* 16 blocks of queries */
    assert_string_equal(pick_of(0, 2, 64, 8192), "fused_fma");
    assert_string_equal(pick_of(0, 1, 64, 2047), "fused_fma");
    assert_string_equal(pick_of(0, INT64_MAX, 64, 8192), "fused_fma");
}

static void refusals_are_sentences(void **state) {
    size_t count = 0, refusals = 0;
    const struct variant *table = variant_table(&count);
    (void)state;
    for (size_t i = 0; i < count; i++)
        for (unsigned bits = 0; bits < 512; bits++) {
            struct device_facts facts = facts_with(bits & 1 ? every_cap : 0);
            struct problem problem = problem_of(table[i].op);
            problem.dtype = bits & 4 ? CLATTN_F32 : bits & 8 ? CLATTN_BF16 : CLATTN_F16;
            problem.out_dtype = bits & 16 ? CLATTN_F32 : problem.dtype;
            problem.aligned = (bits & 32) == 0;
            problem.head_dim = bits & 64 ? 65 : 64;
            problem.value_dim = bits & 128 ? 0 : 72;
            problem.nk = problem.k = bits & 256 ? 0 : 100;
            problem.columns = bits & 4 ? 2000000 : 3;
            const char *reason = variant_refusal(&table[i], &facts, &problem);
            if (reason == NULL)
                continue;
            refusals++;
            assert_true(isupper((unsigned char)reason[0]));
            assert_int_equal(reason[strlen(reason) - 1], '.');
            assert_non_null(strchr(reason, ' '));
        }
    assert_true(refusals > 100);
}

static void pick_and_refusal_agree(void **state) {
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    (void)state;
    for (uint64_t caps = 0; caps <= every_cap; caps++)
        for (size_t k = 0; k < KINDS; k++) {
            const struct device_facts facts = facts_with(caps);
            const struct problem problem = problem_of(kinds[k]);
            const struct variant *picked = variant_pick(&facts, &problem);
            assert_non_null(picked);
            assert_null(variant_refusal(picked, &facts, &problem));
            for (const struct variant *row = table; row < picked; row++)
                if (row->op == kinds[k])
                    assert_non_null(variant_pick_refusal(row, &facts, &problem));
        }
    const struct device_facts facts = facts_with(every_cap);
    const struct problem unknown = problem_of((clattn_op_kind)99);
    assert_null(variant_pick(&facts, &unknown));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_small_and_names_are_unique),
        cmocka_unit_test(every_row_is_reachable),
        cmocka_unit_test(clblast_counts_in_32_bits),
        cmocka_unit_test(pocl_keeps_no_rows),
        cmocka_unit_test(clblast_needs_large_groups),
        cmocka_unit_test(unfused_needs_room_for_its_scores),
        cmocka_unit_test(the_pipeline_takes_every_modifier),
        cmocka_unit_test(each_operation_runs_without_any_capability),
        cmocka_unit_test(picks_the_first_that_accepts),
        cmocka_unit_test(softmax_schedules_follow_the_row_length),
        cmocka_unit_test(softmax_splits_many_rows_last),
        cmocka_unit_test(softmax_holds_long_rows),
        cmocka_unit_test(norms_leave_lanes_early),
        cmocka_unit_test(few_queries_are_decoded),
        cmocka_unit_test(long_keys_are_split_where_queries_do_not_fill_the_device),
        cmocka_unit_test(refusals_are_sentences),
        cmocka_unit_test(pick_and_refusal_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
