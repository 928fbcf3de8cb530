/* Calls of several commands, on the fake driver: all programs are built before the first command, so that a build which
 * fails leaves outputs as they were. */
#include "context.h"
#include "fake_cl.h"

#include <clattn/training.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { OPERANDS = 20 }; /* three launches of a merge */

static cl_context cl;
static cl_command_queue queue;
static cl_mem memory;
static clattn_context *context;
static int built_before; /* programs, when the first command came; -1: none has come */

static void note_builds(const struct fake_command *command) {
    (void)command;
    if (built_before < 0)
        built_before = fake_calls("clBuildProgram");
}

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    clattn_context_options options;
    (void)state;
    fake_reset();
    clattn_context_options_init(&options);
    options.cache_dir = options.tuning_db = options.cl_dir = "";
    options.capabilities = "none"; /* no self-test, whose commands would be counted */
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    queue = clCreateCommandQueue(cl, device, 0, NULL);
    memory = clCreateBuffer(cl, CL_MEM_READ_WRITE, 1 << 22, NULL, NULL);
    fake_settings.execute = note_builds;
    built_before = -1;
    return clattn_context_create(cl, device, &options, &context) == CLATTN_SUCCESS ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    clattn_context_release(&context);
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(cl);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

static clattn_tensor tensor_at(int64_t offset, clattn_dtype dtype, int rank, const int64_t *dims) {
    clattn_tensor tensor = clattn_tensor_dense(memory, dtype, rank, dims);
    tensor.offset = offset;
    return tensor;
}

/* The call takes several programs, has enqueued nothing when one of them fails, and builds none behind a command. */
static void check(clattn_status (*call)(const clattn_launch *launch), int programs, int commands) {
    clattn_launch launch;
    cl_event event = NULL;
    clattn_launch_init(&launch, queue);
    launch.workspace = (clattn_workspace){memory, 1 << 21, 1 << 21};
    launch.event = &event;
    fake_fail_function("clBuildProgram", CL_BUILD_PROGRAM_FAILURE);
    assert_int_equal(call(&launch), CLATTN_BUILD_FAILED);
    assert_int_equal(fake_command_count(), 0);
    fake_fail_function(NULL, CL_SUCCESS);
    const int failed = fake_calls("clBuildProgram");
    assert_int_equal(call(&launch), CLATTN_SUCCESS);
    assert_int_equal(fake_calls("clBuildProgram") - failed, programs);
    assert_int_equal(built_before - failed, programs);
    assert_int_equal(fake_command_count(), commands);
    assert_non_null(event);
    clReleaseEvent(event);
}

static clattn_status merge_states(const clattn_launch *launch) {
    const int64_t dims[] = {10};
    clattn_tensor m[OPERANDS], l[OPERANDS];
    clattn_softmax_merge_op op;
    clattn_softmax_merge_init(&op);
    for (int i = 0; i < OPERANDS; i++) {
        m[i] = tensor_at(32 * i, CLATTN_F32, 1, dims);
        l[i] = tensor_at(32 * i + 16, CLATTN_F32, 1, dims);
    }
    op.count = OPERANDS;
    op.m_in = m;
    op.l_in = l;
    op.m = tensor_at(32 * OPERANDS, CLATTN_F32, 1, dims);
    op.l = tensor_at(32 * OPERANDS + 16, CLATTN_F32, 1, dims);
    return clattn_softmax_merge(context, &op, launch);
}

static clattn_status merge_results(const clattn_launch *launch) {
    const int64_t dims[] = {1, 2, 3, 8};
    clattn_tensor o[OPERANDS], lse[OPERANDS];
    clattn_attention_merge_op op;
    clattn_attention_merge_init(&op);
    for (int i = 0; i < OPERANDS; i++) {
        o[i] = tensor_at(128 * i, CLATTN_BF16, 4, dims);
        lse[i] = tensor_at(64 * i + 32, CLATTN_F32, 3, dims);
    }
    op.count = OPERANDS;
    op.o_in = o;
    op.lse_in = lse;
    op.o = tensor_at(128 * OPERANDS, CLATTN_BF16, 4, dims);
    op.lse = tensor_at(64 * OPERANDS + 32, CLATTN_F32, 3, dims);
    return clattn_attention_merge(context, &op, launch);
}

/* bf16, which no other library multiplies; grouped heads in two batches, so that each product is two. */
static clattn_status attend(const clattn_launch *launch) {
    const int64_t q[] = {2, 4, 16, 32}, kv[] = {2, 2, 16, 32};
    clattn_launch unfused = *launch;
    clattn_attention_op op;
    clattn_attention_init(&op);
    unfused.variant = "unfused";
    op.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    op.q = tensor_at(0, CLATTN_BF16, 4, q);
    op.k = tensor_at(16384, CLATTN_BF16, 4, kv);
    op.v = tensor_at(32768, CLATTN_BF16, 4, kv);
    op.o = tensor_at(49152, CLATTN_BF16, 4, q);
    op.lse = tensor_at(65536, CLATTN_F32, 3, q);
    return clattn_attention(context, &op, &unfused);
}

static clattn_status split_softmax(const clattn_launch *launch) {
    const int64_t dims[] = {1, 1 << 17};
    clattn_launch split = *launch;
    clattn_softmax_op op;
    clattn_softmax_init(&op);
    split.variant = "split";
    op.x = tensor_at(0, CLATTN_F32, 2, dims);
    op.y = tensor_at(1 << 18, CLATTN_F32, 2, dims);
    return clattn_softmax(context, &op, &split);
}

/* Two dtypes, and more tensors of one than a launch takes: three launches and the counter. */
static clattn_status step(const clattn_launch *launch) {
    enum { TENSORS = 17 };
    const int64_t dims[] = {40}, one = 1;
    clattn_tensor of[5][TENSORS];
    clattn_adamw_op op;
    clattn_adamw_init(&op);
    for (int i = 0; i < TENSORS; i++)
        for (int v = 0; v < 5; v++)
            of[v][i] = tensor_at(64 * (5 * i + v), CLATTN_F32, 1, dims);
    of[1][3] = tensor_at(2 * of[1][3].offset, CLATTN_BF16, 1, dims);
    op.list = (clattn_optimizer_list){.count = TENSORS, .param = of[0], .grad = of[1]};
    op.list.steps = tensor_at(64 * 5 * TENSORS, CLATTN_I32, 1, &one);
    op.m = of[3];
    op.v = of[4];
    return clattn_adamw(context, &op, launch);
}

static void states_merge_after_all_builds(void **state) {
    (void)state;
    check(merge_states, 2, 3);
}

static void results_merge_after_all_builds(void **state) {
    (void)state;
    check(merge_results, 3, 3);
}

static void attention_starts_after_all_builds(void **state) {
    (void)state;
    check(attend, 5, 1 + 1 + 2 + 1 + 2 + 1);
}

static void split_softmax_starts_after_all_builds(void **state) {
    (void)state;
    check(split_softmax, 2, 2);
}

static void a_step_starts_after_all_builds(void **state) {
    (void)state;
    check(step, 3, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(states_merge_after_all_builds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_merge_after_all_builds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(attention_starts_after_all_builds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(split_softmax_starts_after_all_builds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_starts_after_all_builds, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("the order of commands", tests, NULL, NULL);
}
