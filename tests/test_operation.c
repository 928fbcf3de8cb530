/* The calls that are generic over operations, on the fake driver: what they refuse, in which order, and what they leave
 * undone. Results are for the device tests. */
#include "context.h"
#include "fake_cl.h"
#include "operation.h"
#include "temporary.h"

#include <clattn/kv_cache.h>
#include <clattn/variants.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static cl_context cl;
static cl_command_queue queue;
static cl_mem memory;
static clattn_context *context;
static char log_text[4096];

static void keep_log(void *user, clattn_log_level level, const char *message) {
    const size_t used = strlen(log_text);
    (void)user;
    (void)level;
    snprintf(log_text + used, sizeof log_text - used, "%s\n", message);
}

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    clattn_context_options options;
    (void)state;
    fake_reset();
    clattn_context_options_init(&options);
    options.log = keep_log;
    options.log_level = CLATTN_LOG_DEBUG;
    options.cache_dir = options.tuning_db = options.cl_dir = "";
    options.capabilities = "all";
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    queue = clCreateCommandQueue(cl, device, 0, NULL);
    memory = clCreateBuffer(cl, CL_MEM_READ_WRITE, 1 << 20, NULL, NULL);
    log_text[0] = '\0';
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

static clattn_attention_op attention_of(int64_t batch) {
    const int64_t dims[] = {batch, 4, 16, 32};
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = clattn_tensor_dense(memory, CLATTN_F32, 4, dims);
    op.k = op.v = op.o = op.q;
    op.k.offset = 65536;
    op.v.offset = 2 * 65536;
    op.o.offset = 3 * 65536;
    return op;
}

static void assert_says(clattn_status status, clattn_status expected, const char *words) {
    assert_int_equal(status, expected);
    if (strstr(clattn_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", clattn_last_error(), words);
}

static void asking_enqueues_and_builds_nothing(void **state) {
    const clattn_attention_op op = attention_of(1);
    clattn_choice choice = {.size = sizeof choice};
    size_t bytes = 77;
    char reason[64];
    (void)state;
    assert_int_equal(clattn_supported(context, &op.head, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_workspace_size(context, &op.head, NULL, &bytes), CLATTN_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_int_equal(clattn_variant_question(context, &op.head, "fused_fma", reason, sizeof reason), CLATTN_SUCCESS);
    assert_string_equal(reason, "");
    assert_int_equal(clattn_variant_choose(context, &op.head, NULL, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant, "fused_fma");
    assert_string_equal(choice.source, "default");
    assert_non_null(strstr(choice.name, "attention"));
    assert_non_null(strstr(choice.parameters, "="));
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(fake_calls("clBuildProgram"), 0);
    assert_int_equal(clattn_prepare(context, &op.head, NULL), CLATTN_SUCCESS);
    assert_int_equal(fake_command_count(), 0);
    assert_true(fake_calls("clBuildProgram") > 0);
    assert_non_null(strstr(log_text, "not fused_cpu_vector: "));
}

static void questions_are_answered_with_reasons(void **state) {
    const clattn_attention_op op = attention_of(1);
    char reason[128] = "unused", cut[8];
    (void)state;
    assert_int_equal(clattn_variant_question(context, &op.head, "fused_cpu_vector", reason, sizeof reason),
                     CLATTN_SUCCESS);
    assert_non_null(strstr(reason, "CPU"));
    assert_int_equal(clattn_variant_question(context, &op.head, "fused_cpu_vector", cut, sizeof cut), CLATTN_SUCCESS);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_says(clattn_variant_question(context, &op.head, "fastest", reason, sizeof reason), CLATTN_INVALID_ARGUMENT,
                "\"fastest\"");
    assert_string_equal(reason, "");
    assert_says(clattn_variant_question(context, &op.head, NULL, reason, sizeof reason), CLATTN_INVALID_ARGUMENT,
                "variant is NULL");
    assert_says(clattn_variant_question(context, &op.head, "fused_fma", NULL, 8), CLATTN_INVALID_ARGUMENT, "reason");
    assert_says(clattn_variant_question(context, &op.head, "fused_fma", reason, 0), CLATTN_INVALID_ARGUMENT, "reason");
}

static void structs_that_are_no_operation_are_refused(void **state) {
    clattn_attention_op op = attention_of(1);
    clattn_choice choice = {.size = sizeof choice};
    size_t bytes = 77;
    (void)state;
    assert_says(clattn_supported(NULL, &op.head, NULL), CLATTN_INVALID_ARGUMENT, "context is NULL");
    assert_says(clattn_supported(context, NULL, NULL), CLATTN_INVALID_ARGUMENT, "op is NULL");
    assert_says(clattn_prepare(context, NULL, NULL), CLATTN_INVALID_ARGUMENT, "op is NULL");
    assert_says(clattn_workspace_size(context, &op.head, NULL, NULL), CLATTN_INVALID_ARGUMENT, "bytes is NULL");
    assert_says(clattn_variant_choose(context, &op.head, NULL, NULL), CLATTN_INVALID_ARGUMENT, "choice is NULL");
    choice.size = 0;
    assert_says(clattn_variant_choose(context, &op.head, NULL, &choice), CLATTN_INVALID_ARGUMENT, "choice: size");
    op.head.kind = (clattn_op_kind)77;
    assert_says(clattn_supported(context, &op.head, NULL), CLATTN_INVALID_ARGUMENT, "kind 77");
    assert_says(clattn_workspace_size(context, &op.head, NULL, &bytes), CLATTN_INVALID_ARGUMENT, "kind 77");
    assert_int_equal(bytes, 0);
    op.head.kind = CLATTN_OP_SOFTMAX;
    assert_says(clattn_attention(context, &op, NULL), CLATTN_INVALID_ARGUMENT, "kind is 3, must be 1");
    op = attention_of(1);
    op.head.size = sizeof op.head;
    assert_says(clattn_supported(context, &op.head, NULL), CLATTN_INVALID_ARGUMENT, "op: size");
}

static void bad_launches_enqueue_nothing(void **state) {
    const clattn_attention_op op = attention_of(1);
    clattn_launch launch;
    (void)state;
    assert_says(clattn_attention(context, &op, NULL), CLATTN_INVALID_ARGUMENT, "launch is NULL");
    clattn_launch_init(&launch, NULL);
    assert_says(clattn_attention(context, &op, &launch), CLATTN_INVALID_ARGUMENT, "queue is NULL");
    assert_int_equal(clattn_supported(context, &op.head, &launch), CLATTN_SUCCESS); /* needs no queue */
    launch.size = 3;
    assert_says(clattn_supported(context, &op.head, &launch), CLATTN_INVALID_ARGUMENT, "launch: size is 3");
    clattn_launch_init(&launch, queue);
    launch.variant = "fastest";
    assert_says(clattn_attention(context, &op, &launch), CLATTN_INVALID_ARGUMENT, "\"fastest\"");
    launch.variant = "fused_cpu_vector";
    assert_says(clattn_attention(context, &op, &launch), CLATTN_UNSUPPORTED, "fused_cpu_vector");
    launch.variant = NULL;
    launch.parameters = "speed=11";
    assert_says(clattn_attention(context, &op, &launch), CLATTN_INVALID_ARGUMENT, "\"speed\"");
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(fake_calls("clBuildProgram"), 0);
}

static void overrides_show_in_the_choice(void **state) {
    const clattn_attention_op op = attention_of(1);
    clattn_choice choice = {.size = sizeof choice};
    clattn_launch launch;
    (void)state;
    clattn_launch_init(&launch, queue);
    launch.variant = "fused_fma";
    launch.parameters = "groups=8";
    assert_int_equal(clattn_variant_choose(context, &op.head, &launch, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.source, "call");
    assert_non_null(strstr(choice.parameters, "groups=8"));
    choice.size = offsetof(clattn_choice, name);
    memset(choice.name, 0x55, sizeof choice.name);
    assert_int_equal(clattn_variant_choose(context, &op.head, &launch, &choice), CLATTN_SUCCESS);
    assert_int_equal(choice.name[0], 0x55);
}

/* ---- what is refused is refused everywhere ----------------------------------------------------------------------- */

static clattn_status call_op(const clattn_op *op, const clattn_launch *launch) {
    if (op->kind == CLATTN_OP_ATTENTION)
        return clattn_attention(context, (const clattn_attention_op *)op, launch);
    return op->kind == CLATTN_OP_GEMM ? clattn_gemm(context, (const clattn_gemm_op *)op, launch)
                                      : clattn_softmax(context, (const clattn_softmax_op *)op, launch);
}

/* Every way to ask gives the status of the call, and none builds anything. */
static void assert_refused(const clattn_op *op, const char *variant, const char *parameters, clattn_status expected,
                           const char *words) {
    clattn_choice choice = {.size = sizeof choice};
    clattn_launch launch;
    size_t bytes = 0;
    clattn_launch_init(&launch, queue);
    launch.variant = variant;
    launch.parameters = parameters;
    assert_says(clattn_supported(context, op, &launch), expected, words);
    assert_says(clattn_workspace_size(context, op, &launch, &bytes), expected, words);
    assert_says(clattn_variant_choose(context, op, &launch, &choice), expected, words);
    assert_says(clattn_prepare(context, op, &launch), expected, words);
    assert_says(call_op(op, &launch), expected, words);
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(fake_calls("clBuildProgram"), 0);
}

static clattn_gemm_op gemm_of(int64_t m, int64_t n, int64_t k) {
    clattn_gemm_op op;
    clattn_gemm_init(&op);
    op.a = clattn_tensor_dense(memory, CLATTN_F32, 2, (const int64_t[]){m, k});
    op.b = clattn_tensor_dense(memory, CLATTN_F32, 2, (const int64_t[]){k, n});
    op.c = clattn_tensor_dense(memory, CLATTN_F32, 2, (const int64_t[]){m, n});
    op.b.offset = 65536;
    op.c.offset = 2 * 65536;
    return op;
}

static void parameters_are_refused_everywhere(void **state) {
    static const char *const of_attention[] = {
        "score_tiles=65", "score_tiles=0", "k_slice=2147483647", "v_slice=2147483647", "v_slice=0",
        "stage_slots=3",  "q_resident=2",  "fma_items=3",        "groups=-1",          "groups=1025",
    };
    static const char *const of_gemm[] = {"column_tiles=65", "k_slice=65537", "fma_rows=2", "stage_slots=0"};
    const clattn_attention_op attention = attention_of(1);
    const clattn_gemm_op gemm = gemm_of(16, 16, 16);
    clattn_softmax_op softmax;
    clattn_softmax_init(&softmax);
    softmax.x = softmax.y = gemm.a;
    (void)state;
    for (size_t i = 0; i < sizeof of_attention / sizeof of_attention[0]; i++)
        assert_refused(&attention.head, "fused_fma", of_attention[i], CLATTN_INVALID_ARGUMENT, "parameters: ");
    for (size_t i = 0; i < sizeof of_gemm / sizeof of_gemm[0]; i++)
        assert_refused(&gemm.head, "tiled_fma", of_gemm[i], CLATTN_INVALID_ARGUMENT, "parameters: ");
    assert_refused(&attention.head, "fused_fma", "groups=1024", CLATTN_UNSUPPORTED, "work-items");
    assert_refused(&softmax.head, "subgroup", "team=3", CLATTN_INVALID_ARGUMENT, "team");
    assert_refused(&softmax.head, "subgroup", "vector=2", CLATTN_INVALID_ARGUMENT, "vector");
    assert_refused(&softmax.head, "group", "group=512", CLATTN_INVALID_ARGUMENT, "group"); /* the device has 256 */
}

static cl_mem far_memory(void) {
    const cl_buffer_region region = {1 << 20, (size_t)1 << 50};
    return clCreateSubBuffer(memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, NULL);
}

static void launches_of_too_many_groups_are_refused_everywhere(void **state) {
    const int64_t heads = INT64_C(1) << 32;
    const cl_mem far = far_memory();
    clattn_attention_op attention = attention_of(1);
    clattn_gemm_op gemm = gemm_of(INT64_C(1) << 23, INT64_C(1) << 23, 1);
    char reason[128];
    (void)state;
    attention.o = clattn_tensor_dense(far, CLATTN_F32, 4, (const int64_t[]){1, heads, 16, 32});
    attention.q.dims[1] = heads;
    attention.q.strides[1] = 0;
    gemm.a.strides[0] = 0;
    gemm.b.memory.as.buffer = far;
    gemm.b.offset = INT64_C(1) << 47;
    gemm.c.memory.as.buffer = far;
    assert_refused(&attention.head, "fused_fma", NULL, CLATTN_UNSUPPORTED, "q: more than 2^31");
    assert_int_equal(clattn_variant_question(context, &attention.head, "fused_fma", reason, sizeof reason),
                     CLATTN_SUCCESS);
    assert_non_null(strstr(reason, "2^31"));
    assert_refused(&gemm.head, "tiled_fma", NULL, CLATTN_UNSUPPORTED, "c: more than 2^31");
    clReleaseMemObject(far);
}

/* The score matrix alone would fit the largest buffer; with probabilities beside it the workspace does not. */
static void workspaces_that_no_buffer_holds_are_refused_everywhere(void **state) {
    const int64_t rows = 1024;
    clattn_attention_op op = attention_of(1);
    char reason[160];
    (void)state;
    context->facts.max_allocation = (uint64_t)(4 * rows * rows * 4 + 256);
    op.q.dtype = op.k.dtype = op.v.dtype = op.o.dtype = CLATTN_F16;
    op.q.dims[2] = op.k.dims[2] = op.v.dims[2] = op.o.dims[2] = rows;
    op.q.strides[2] = op.k.strides[2] = op.v.strides[2] = 0;
    op.o = clattn_tensor_dense(memory, CLATTN_F16, 4, op.o.dims);
    op.o.offset = 4 * 65536;
    assert_refused(&op.head, "unfused", NULL, CLATTN_UNSUPPORTED, "workspace");
    assert_int_equal(clattn_variant_question(context, &op.head, "unfused", reason, sizeof reason), CLATTN_SUCCESS);
    assert_non_null(strstr(reason, "workspace"));
}

/* What is shown is what runs: here the device's 256 work-items and 32 columns of k. */
static void choices_show_what_runs(void **state) {
    const clattn_attention_op attention = attention_of(1);
    const clattn_gemm_op gemm = gemm_of(16, 16, 5);
    clattn_choice choice = {.size = sizeof choice};
    (void)state;
    context->facts.max_group = 64;
    assert_int_equal(clattn_variant_choose(context, &attention.head, NULL, &choice), CLATTN_SUCCESS);
    assert_string_equal(
        choice.parameters,
        "fma_items=8,fma_rows=4,groups=8,score_tiles=1,k_slice=32,v_slice=32,q_resident=1,stage_slots=1");
    assert_string_equal(choice.name, "attention_forward_f32_d32__fma_32x32");
    clattn_launch launch = {.size = sizeof launch, .variant = "tiled_fma"};
    assert_int_equal(clattn_variant_choose(context, &gemm.head, &launch, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.parameters, "fma_items=16,fma_rows=4,groups=4,column_tiles=1,k_slice=8,stage_slots=1");
    clattn_launch_init(&launch, queue);
    if (clattn_attention(context, &attention, &launch) != CLATTN_SUCCESS)
        fail_msg("%s", clattn_last_error());
    assert_non_null(strstr(log_text, "attention_forward_f32_d32__fma_32x32 (fma_items=8,fma_rows=4,groups=8,"));
}

/* In the place of the shipped rows alone. */
static void use_rows(const char *rows) {
    char text[1024];
    char *folder = temporary_folder(), *path = temporary_path(folder, "tuning.json");
    const int size = snprintf(text, sizeof text, "{\"rows\": [%s]}", rows);
    temporary_write(folder, "tuning.json", text, (size_t)size);
    tuning_free(context->tuning);
    assert_int_equal(tuning_load(path, &context->log, &context->tuning), CLATTN_SUCCESS);
    free(path);
    temporary_remove(folder);
}

/* Values that no kernel takes, and values for a larger device. */
static void rows_of_a_user_fail_no_call(void **state) {
    static const char *const rows[] = {
        "{\"variant\": \"fused_fma\", \"parameters\": {\"score_tiles\": 0}}",
        "{\"variant\": \"fused_fma\", \"parameters\": {\"fma_items\": 3, \"groups\": 1073741824}}",
        "{\"variant\": \"fused_fma\", \"parameters\": {\"groups\": 1024, \"score_tiles\": 64, \"fma_items\": 32}}",
        "{\"variant\": \"subgroup\", \"parameters\": {\"team\": 1024, \"group\": 1024, \"vector\": 4}}",
        "{\"variant\": \"subgroup\", \"parameters\": {\"team\": 3}}",
    };
    const clattn_attention_op attention = attention_of(1);
    clattn_softmax_op softmax;
    clattn_launch launch;
    (void)state;
    clattn_softmax_init(&softmax);
    softmax.x = softmax.y = gemm_of(16, 16, 16).a;
    clattn_launch_init(&launch, queue);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        clattn_choice choice = {.size = sizeof choice};
        use_rows(rows[i]);
        assert_int_equal(clattn_attention(context, &attention, &launch), CLATTN_SUCCESS);
        assert_int_equal(clattn_softmax(context, &softmax, &launch), CLATTN_SUCCESS);
        assert_int_equal(clattn_variant_choose(context, &softmax.head, NULL, &choice), CLATTN_SUCCESS);
        assert_null(strstr(choice.parameters, "1024"));
    }
}

static void empty_calls_give_only_an_event(void **state) {
    const clattn_attention_op op = attention_of(0);
    clattn_choice choice = {.size = sizeof choice};
    clattn_launch launch;
    cl_event event = NULL;
    char reason[64] = "unused";
    size_t bytes = 77;
    (void)state;
    assert_int_equal(clattn_supported(context, &op.head, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_prepare(context, &op.head, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_workspace_size(context, &op.head, NULL, &bytes), CLATTN_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_int_equal(clattn_variant_question(context, &op.head, "fused_cpu_vector", reason, sizeof reason),
                     CLATTN_SUCCESS);
    assert_string_equal(reason, "");
    assert_int_equal(clattn_variant_choose(context, &op.head, NULL, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant, "");
    clattn_launch_init(&launch, queue);
    launch.event = &event;
    assert_int_equal(clattn_attention(context, &op, &launch), CLATTN_SUCCESS);
    assert_non_null(event);
    clReleaseEvent(event);
    launch.queue = NULL;
    assert_says(clattn_attention(context, &op, &launch), CLATTN_INVALID_ARGUMENT, "queue is NULL");
    assert_int_equal(fake_calls("clEnqueueNDRangeKernel"), 0);
    assert_int_equal(fake_calls("clBuildProgram"), 0);
}

static void launches_are_counted_and_named_in_the_log(void **state) {
    const clattn_attention_op op = attention_of(1);
    clattn_statistics statistics = {.size = sizeof statistics};
    clattn_launch launch;
    (void)state;
    clattn_launch_init(&launch, queue);
    for (int i = 0; i < 3; i++)
        if (clattn_attention(context, &op, &launch) != CLATTN_SUCCESS)
            fail_msg("%s", clattn_last_error());
    assert_int_equal(clattn_context_statistics(context, &statistics), CLATTN_SUCCESS);
    assert_int_equal(statistics.kernel_launches, fake_calls("clEnqueueNDRangeKernel"));
    assert_true(statistics.kernel_launches >= 3);
    assert_int_equal(statistics.programs_built, fake_calls("clBuildProgram"));
    assert_non_null(strstr(log_text, "attention_forward_f32_d32__"));
    assert_int_equal(fake_calls("clFinish"), 0);
}

/* Also where it is an optional one, which must not be taken for absent. */
static void views_without_a_rank_are_refused(void **state) {
    clattn_norm_op op;
    (void)state;
    clattn_norm_init(&op);
    op.x = op.y = attention_of(1).q;
    op.residual = clattn_tensor_slice(op.x, 0, 0, 2);
    assert_says(clattn_supported(context, &op.head, NULL), CLATTN_INVALID_ARGUMENT, "residual: rank 0");
    op.residual = clattn_tensor_transpose(op.x, 0, 4);
    assert_says(clattn_supported(context, &op.head, NULL), CLATTN_INVALID_ARGUMENT, "residual: rank 0");
}

/* clattn_enqueue() is the call that the kind names: its checks, its launches. */
static void calls_by_kind(void **state) {
    clattn_attention_op attention = attention_of(1);
    clattn_norm_op norm;
    clattn_launch launch;
    (void)state;
    clattn_launch_init(&launch, queue);
    assert_says(clattn_enqueue(NULL, &attention.head, &launch), CLATTN_INVALID_ARGUMENT, "context is NULL");
    assert_says(clattn_enqueue(context, NULL, &launch), CLATTN_INVALID_ARGUMENT, "op is NULL");
    assert_says(clattn_enqueue(context, &attention.head, NULL), CLATTN_INVALID_ARGUMENT, "launch is NULL");
    clattn_norm_init(&norm);
    norm.x = norm.y = attention.q;
    norm.y.dims[3] = 7;
    assert_says(clattn_enqueue(context, &norm.head, &launch), CLATTN_INVALID_ARGUMENT, "y: ");
    assert_int_equal(fake_command_count(), 0);
    norm.y = attention.q;
    assert_int_equal(clattn_enqueue(context, &norm.head, &launch), CLATTN_SUCCESS);
    assert_non_null(strstr(log_text, "rms_norm_"));
    assert_null(strstr(log_text, "attention_forward_f32_d32__"));
    assert_int_equal(clattn_enqueue(context, &attention.head, &launch), CLATTN_SUCCESS);
    assert_non_null(strstr(log_text, "attention_forward_f32_d32__"));
    attention.head.kind = (clattn_op_kind)77;
    assert_says(clattn_enqueue(context, &attention.head, &launch), CLATTN_INVALID_ARGUMENT, "kind 77");
}

/* ---- before self-tests ------------------------------------------------------------------------------------------- */

/* As if the device promised shuffles. The fake runs nothing, so that their test fails. */
static void promise_shuffles(void) {
    context->facts.caps |= CAP_BIT(CAP_SUBGROUP_SHUFFLE);
    context->facts.subgroup = SUBGROUP_KHR;
    context->facts.subgroup_size = 32;
}

static const char *shuffle_verdict(void) {
    const char *name = NULL, *verdict = NULL;
    assert_int_equal(clattn_capability_report(context, CAP_SUBGROUP_SHUFFLE, 0, &name, &verdict), CLATTN_SUCCESS);
    return verdict;
}

static void assert_too_small_before_self_tests(const clattn_op *op, clattn_launch *launch) {
    launch->workspace.size = 0;
    assert_says(call_op(op, launch), CLATTN_WORKSPACE_TOO_SMALL, "workspace");
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(fake_calls("clBuildProgram"), 0);
    assert_string_equal(shuffle_verdict(), "untested");
}

static void missing_workspaces_are_refused_before_self_tests(void **state) {
    const clattn_attention_op attention = attention_of(1);
    clattn_softmax_op softmax;
    clattn_launch launch;
    cl_mem workspace = clCreateBuffer(cl, CL_MEM_READ_WRITE, 1 << 20, NULL, NULL);
    (void)state;
    promise_shuffles();
    clattn_launch_init(&launch, queue);
    launch.workspace.buffer = workspace;
    clattn_softmax_init(&softmax);
    softmax.x = softmax.y = clattn_tensor_dense(memory, CLATTN_F32, 2, (const int64_t[]){1, 65536});
    launch.variant = "unfused";
    assert_too_small_before_self_tests(&attention.head, &launch);
    launch.variant = "split";
    assert_too_small_before_self_tests(&softmax.head, &launch);
    launch.workspace.size = 1 << 20;
    assert_int_equal(clattn_softmax(context, &softmax, &launch), CLATTN_SUCCESS);
    assert_string_equal(shuffle_verdict(), "failed");
    clReleaseMemObject(workspace);
}

/* Has the planned choice still a self-test before it? */
static bool awaits_self_test(const clattn_op *op, const char *variant) {
    const struct operation *operation = operation_of(op->kind);
    const clattn_launch launch = {.size = sizeof launch, .variant = variant};
    struct problem problem = {.op = op->kind};
    struct choice choice;
    bool empty = false;
    assert_int_equal(operation->check(context, op, &problem, &empty), CLATTN_SUCCESS);
    assert_int_equal(choice_make(context, &problem, &launch, operation->tuning_size(&problem), false, &choice),
                     CLATTN_SUCCESS);
    assert_int_equal(operation->plan(context, op, &problem, false, &choice), CLATTN_SUCCESS);
    return choice.untested;
}

/* Unfused attention's products and the parts of a cascade rely on more than the whole does. */
static void a_choice_awaits_the_self_tests_of_its_steps(void **state) {
    clattn_attention_op unfused = attention_of(1);
    clattn_attention_cascade_op cascade;
    (void)state;
    unfused.q.dtype = unfused.k.dtype = unfused.v.dtype = unfused.o.dtype = CLATTN_F16;
    clattn_attention_cascade_init(&cascade);
    cascade.suffix = attention_of(1);
    cascade.prefix_k = cascade.prefix_v = cascade.suffix.k;
    cascade.prefix_v.offset = 4 * 65536 / 2;
    assert_false(awaits_self_test(&unfused.head, "unfused"));
    assert_false(awaits_self_test(&cascade.head, NULL));
    context->facts.caps |= CAP_BIT(CAP_NVIDIA_MMA);
    assert_true(awaits_self_test(&unfused.head, "unfused"));
    promise_shuffles();
    assert_true(awaits_self_test(&cascade.head, NULL));
    for (int cap = 0; cap < CAP_COUNT; cap++)
        (void)selftest_passes(context, CAP_BIT(cap));
    assert_false(awaits_self_test(&unfused.head, "unfused"));
    assert_false(awaits_self_test(&cascade.head, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(asking_enqueues_and_builds_nothing),
        TEST(questions_are_answered_with_reasons),
        TEST(structs_that_are_no_operation_are_refused),
        TEST(bad_launches_enqueue_nothing),
        TEST(overrides_show_in_the_choice),
        TEST(parameters_are_refused_everywhere),
        TEST(launches_of_too_many_groups_are_refused_everywhere),
        TEST(workspaces_that_no_buffer_holds_are_refused_everywhere),
        TEST(choices_show_what_runs),
        TEST(rows_of_a_user_fail_no_call),
        TEST(empty_calls_give_only_an_event),
        TEST(launches_are_counted_and_named_in_the_log),
        TEST(views_without_a_rank_are_refused),
        TEST(calls_by_kind),
        TEST(missing_workspaces_are_refused_before_self_tests),
        TEST(a_choice_awaits_the_self_tests_of_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
