/* Tiles of attention on invented devices: when they are issued ahead of their use, and how much of that fits. */
#include "attention.h"
#include "attention_plan.h"
#include "context.h"
#include "tuning.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SM_80 = 166912, SM_86 = 101376, SM_90 = 232448 }; /* bytes of local memory */

static struct problem problem_of(int64_t head_dim) {
    return (struct problem){.op = CLATTN_OP_ATTENTION,
                            .dtype = CLATTN_F16,
                            .out_dtype = CLATTN_F16,
                            .batch = 1,
                            .heads = 1,
                            .kv_heads = 1,
                            .nq = 256,
                            .q_rows = 256,
                            .nk = 256,
                            .head_dim = head_dim,
                            .value_dim = head_dim,
                            .aligned = true};
}

static struct choice choice_of(const char *variant, const char *text, uint64_t local_memory, bool overridden) {
    struct choice choice = {.variant = variant_named(CLATTN_OP_ATTENTION, variant), .overridden = overridden};
    choice.facts = (struct device_facts){.max_group = 1024, .max_item = {1024, 1024, 64}, .local_memory = local_memory};
    assert_int_equal(parameters_parse(&choice.parameters, text), CLATTN_SUCCESS);
    return choice;
}

static clattn_status plan(const struct problem *problem, struct choice *choice) {
    clattn_context context;
    clattn_attention_op op;
    clattn_attention_init(&op);
    memo_init(&context.memo);
    const clattn_status status = attention_forward_plan(&context, &op, problem, choice);
    memo_free(&context.memo);
    return status;
}

/* The value that runs, of one that is asked for in a row. */
static int runs(const struct problem *problem, const char *name, const char *text, uint64_t local_memory) {
    struct choice choice = choice_of("fused_nvidia_mma", text, local_memory, false);
    assert_int_equal(plan(problem, &choice), CLATTN_SUCCESS);
    return parameters_get(&choice.parameters, name, -1);
}

#define LARGE "mma_rows=32,groups=4,score_tiles=4,ahead=2"

static void tiles_go_ahead_as_far_as_they_fit(void **state) {
    const struct problem of_64 = problem_of(64), of_128 = problem_of(128), of_256 = problem_of(256);
    (void)state;
    assert_int_equal(runs(&of_64, "ahead", LARGE, SM_86), 2);
    assert_int_equal(runs(&of_128, "ahead", LARGE, SM_90), 2);
    assert_int_equal(runs(&of_128, "ahead", LARGE, SM_86), 1);
    assert_int_equal(runs(&of_128, "ahead", LARGE, 80000), 1);
    assert_int_equal(runs(&of_128, "ahead", LARGE, 49152), 0);
    assert_int_equal(runs(&of_256, "ahead", LARGE, SM_90), 2);
    assert_int_equal(runs(&of_256, "ahead", LARGE, SM_80), 1);
}

/* 128 rows of q, and four places for 64 rows of k or v, 16 bytes apart from each other. */
static void sizes_are_those_of_the_kernel(void **state) {
    const struct problem problem = problem_of(128);
    const uint64_t exact = 128 + 128 * 272 + 4 * 64 * 272 + 128 + 128;
    (void)state;
    assert_int_equal(runs(&problem, "ahead", LARGE, exact), 2);
    assert_int_equal(runs(&problem, "ahead", LARGE, exact - 1), 1);
}

static void what_is_asked_for_must_fit(void **state) {
    const struct problem problem = problem_of(128);
    struct choice choice = choice_of("fused_nvidia_mma", LARGE, 80000, true);
    (void)state;
    assert_int_equal(plan(&problem, &choice), CLATTN_UNSUPPORTED);
    choice = choice_of("fused_nvidia_mma", LARGE, SM_80, true);
    assert_int_equal(plan(&problem, &choice), CLATTN_SUCCESS);
    assert_int_equal(parameters_get(&choice.parameters, "q_resident", -1), 1);
}

/* Copies need 16 bytes that lie as they are used, and there must be values to walk. */
static void what_cannot_be_copied_is_staged_plainly(void **state) {
    struct problem unaligned = problem_of(128), codes = problem_of(128), alone = problem_of(128);
    (void)state;
    unaligned.aligned = false;
    codes.v_stored.dtype = CLATTN_I8;
    alone.value_dim = 0;
    assert_int_equal(runs(&unaligned, "ahead", LARGE, SM_90), 0);
    assert_int_equal(runs(&codes, "ahead", LARGE, SM_90), 0);
    assert_int_equal(runs(&alone, "ahead", LARGE, SM_90), 0);
    const struct problem problem = problem_of(128);
    struct choice choice = choice_of("fused_fma", "ahead=2", SM_90, false);
    assert_int_equal(plan(&problem, &choice), CLATTN_SUCCESS);
    assert_int_equal(parameters_get(&choice.parameters, "ahead", -1), -1);
}

/* Sums of 32 rows and more than 128 columns would not stay in registers: what spills is slower than any copy. */
static void what_is_shipped_goes_ahead_on_every_device(void **state) {
    static const int64_t dims[] = {16, 40, 64, 80, 96, 128, 192, 256};
    static const uint64_t memories[] = {SM_80, SM_86, SM_90};
    struct tuning *tuning = NULL;
    (void)state;
    assert_int_equal(tuning_load(NULL, &(struct log){0}, &tuning), CLATTN_SUCCESS);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (size_t j = 0; j < sizeof memories / sizeof memories[0]; j++) {
            const struct problem problem = problem_of(dims[i]);
            const struct tuning_key key = {"fused_nvidia_mma", CLATTN_OP_ATTENTION, CLATTN_F16, dims[i]};
            struct choice choice = choice_of("fused_nvidia_mma", "", memories[j], false);
            assert_int_equal(tuning_find(tuning, &choice.facts, &key, &choice.parameters), TUNING_DEFAULT);
            assert_int_equal(plan(&problem, &choice), CLATTN_SUCCESS);
            assert_true(parameters_get(&choice.parameters, "ahead", 0) > 0);
            assert_int_equal(parameters_get(&choice.parameters, "mma_rows", 0), dims[i] <= 128 ? 32 : 16);
        }
    tuning_free(tuning);
}

/* The compiler is told where there is a limit, and by its own word. */
static void registers_are_limited_where_asked(void **state) {
    const struct problem problem = problem_of(64);
    char options[ATTENTION_PLAN_OPTIONS];
    (void)state;
    for (int registers = 0; registers <= 168; registers += 168) {
        char text[64];
        snprintf(text, sizeof text, LARGE ",registers=%d", registers);
        struct choice choice = choice_of("fused_nvidia_mma", text, SM_90, true);
        assert_int_equal(plan(&problem, &choice), CLATTN_SUCCESS);
        const struct attention_plan of = attention_plan_of(&problem, &choice);
        attention_plan_options(&problem, &of, CLATTN_F16, options);
        assert_int_equal(strstr(options, " -cl-nv-maxrregcount=168") != NULL, registers == 168);
        assert_int_equal(strstr(options, "maxrregcount") != NULL, registers == 168);
    }
}

/* Rows of architectures with 99 KiB a work-group are made for them: nothing has to be made smaller. */
static void rows_of_small_local_memory_fit(void **state) {
    static const char *const architectures[] = {"sm_86", "sm_89", "sm_120", "sm_121"};
    struct tuning *tuning = NULL;
    (void)state;
    assert_int_equal(tuning_load(NULL, &(struct log){0}, &tuning), CLATTN_SUCCESS);
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
        for (int64_t dim = 16; dim <= 256; dim += 16) {
            const struct problem problem = problem_of(dim);
            const struct tuning_key key = {"fused_nvidia_mma", CLATTN_OP_ATTENTION, CLATTN_F16, dim};
            struct choice choice = choice_of("fused_nvidia_mma", "", SM_86, false);
            snprintf(choice.facts.architecture, sizeof choice.facts.architecture, "%s", architectures[i]);
            assert_int_equal(tuning_find(tuning, &choice.facts, &key, &choice.parameters), TUNING_ARCHITECTURE);
            choice.overridden = true; /* what does not fit is refused then */
            assert_int_equal(plan(&problem, &choice), CLATTN_SUCCESS);
            assert_int_equal(parameters_get(&choice.parameters, "ahead", 0), 1);
        }
    tuning_free(tuning);
}

static void other_numbers_are_refused(void **state) {
    static const char *const bad[] = {"ahead=3", "ahead=-1", "registers=256"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct choice choice = choice_of("fused_nvidia_mma", bad[i], SM_90, true);
        const char *refusal = tuning_refusal(choice.variant, &choice.parameters);
        assert_non_null(refusal);
        assert_int_equal(strncmp(refusal, bad[i], 5), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_go_ahead_as_far_as_they_fit),
        cmocka_unit_test(sizes_are_those_of_the_kernel),
        cmocka_unit_test(what_is_asked_for_must_fit),
        cmocka_unit_test(what_cannot_be_copied_is_staged_plainly),
        cmocka_unit_test(what_is_shipped_goes_ahead_on_every_device),
        cmocka_unit_test(registers_are_limited_where_asked),
        cmocka_unit_test(rows_of_small_local_memory_fit),
        cmocka_unit_test(other_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
