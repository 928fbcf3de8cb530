/* Devices and calls for the device tests. */
#include "support.h"

#include <clattn/kv_cache.h>
#include <clattn/training.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_device device;

enum { MAX_PLATFORMS = 16, MAX_DEVICES = 64, EXIT_SKIP = 77 };

size_t support_devices(cl_device_id *devices, size_t limit) {
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint platform_count = 0;
    size_t count = 0;
    if (clGetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < MAX_PLATFORMS; p++) {
        cl_device_id found[MAX_DEVICES];
        cl_uint found_count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, found, &found_count) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < found_count && d < MAX_DEVICES; d++, count++)
            if (count < limit)
                devices[count] = found[d];
    }
    return count;
}

void support_expect_cl(cl_int code, const char *what) {
    if (code != CL_SUCCESS)
        fail_msg("%s: OpenCL error %d", what, code);
}

void support_expect(clattn_status status, clattn_status expected, const char *what) {
    if (status != expected)
        fail_msg("%s: %s where %s was expected: %s", what, clattn_status_name(status), clattn_status_name(expected),
                 status == CLATTN_SUCCESS ? "" : clattn_last_error());
}

static void log_to_stderr(void *user, clattn_log_level level, const char *message) {
    (void)user;
    fprintf(stderr, "clattn[%d]: %s\n", (int)level, message);
}

void support_open(struct test_device *out, cl_device_id id) {
    cl_int code = CL_SUCCESS;
    memset(out, 0, sizeof *out);
    out->id = id;
    CHECK_CL(clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof out->platform, &out->platform, NULL));
    CHECK_CL(clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof out->name - 1, out->name, NULL));
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)out->platform, 0};
    out->context = clCreateContext(properties, 1, &id, NULL, NULL, &code);
    support_expect_cl(code, "clCreateContext");
    out->queue = clCreateCommandQueue(out->context, id, 0, &code);
    support_expect_cl(code, "clCreateCommandQueue");
    clattn_context_options options;
    clattn_context_options_init(&options);
    options.log = log_to_stderr;
    CHECK(clattn_context_create(out->context, id, &options, &out->clattn));
}

void support_close(struct test_device *opened) {
    clattn_context_release(&opened->clattn);
    if (opened->queue)
        clReleaseCommandQueue(opened->queue);
    if (opened->context)
        clReleaseContext(opened->context);
    memset(opened, 0, sizeof *opened);
}

/* Is this the device that CLATTN_TEST_DEVICE asks for? Unset or empty asks for all. */
static bool wanted(cl_device_id id, size_t index) {
    const char *wish = getenv("CLATTN_TEST_DEVICE");
    char name[128] = "", *end;
    if (!wish || !*wish)
        return true;
    const unsigned long number = strtoul(wish, &end, 10);
    if (*end == '\0')
        return number == index;
    (void)clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    return strstr(name, wish) != NULL;
}

static cl_device_id current_id;

static int open_current(void **state) {
    (void)state;
    support_open(&device, current_id);
    return 0;
}

static int close_current(void **state) {
    (void)state;
    support_close(&device);
    return 0;
}

int support_main(const char *group, const struct CMUnitTest *tests, size_t count) {
    cl_device_id ids[MAX_DEVICES];
    const size_t found = support_devices(ids, MAX_DEVICES);
    int failures = 0, ran = 0;
    for (size_t i = 0; i < found && i < MAX_DEVICES; i++) {
        char name[128] = "", title[256];
        if (!wanted(ids[i], i))
            continue;
        current_id = ids[i];
        (void)clGetDeviceInfo(ids[i], CL_DEVICE_NAME, sizeof name - 1, name, NULL);
        snprintf(title, sizeof title, "%s on device %zu, %s", group, i, name);
        printf("%s\n", title);
        failures += _cmocka_run_group_tests(title, tests, count, open_current, close_current);
        ran++;
    }
    if (ran == 0) {
        printf("skipped: %s\n", found ? "no device matches CLATTN_TEST_DEVICE" : "no OpenCL device");
        return EXIT_SKIP;
    }
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

uint64_t support_seed(const char *test) {
    const char *wish = getenv("CLATTN_TEST_SEED");
    const uint64_t seed = wish && *wish ? strtoull(wish, NULL, 0) : 20240229;
    printf("%s: seed %llu (CLATTN_TEST_SEED)\n", test, (unsigned long long)seed);
    return seed;
}

/* ---- calls ---- */

clattn_status test_dispatch(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    switch (op->kind) {
    case CLATTN_OP_ATTENTION:
        return clattn_attention(context, (const clattn_attention_op *)op, launch);
    case CLATTN_OP_ATTENTION_MERGE:
        return clattn_attention_merge(context, (const clattn_attention_merge_op *)op, launch);
    case CLATTN_OP_SOFTMAX:
        return clattn_softmax(context, (const clattn_softmax_op *)op, launch);
    case CLATTN_OP_SOFTMAX_MERGE:
        return clattn_softmax_merge(context, (const clattn_softmax_merge_op *)op, launch);
    case CLATTN_OP_ATTENTION_BACKWARD:
        return clattn_attention_backward(context, (const clattn_attention_backward_op *)op, launch);
    case CLATTN_OP_NORM_BACKWARD:
        return clattn_norm_backward(context, (const clattn_norm_backward_op *)op, launch);
    case CLATTN_OP_SOFTMAX_BACKWARD:
        return clattn_softmax_backward(context, (const clattn_softmax_backward_op *)op, launch);
    case CLATTN_OP_SOFTMAX_TOPK:
        return clattn_softmax_topk(context, (const clattn_softmax_topk_op *)op, launch);
    case CLATTN_OP_ROPE_APPEND:
        return clattn_rope_append(context, (const clattn_rope_append_op *)op, launch);
    case CLATTN_OP_NORM:
        return clattn_norm(context, (const clattn_norm_op *)op, launch);
    case CLATTN_OP_CAST:
        return clattn_cast(context, (const clattn_cast_op *)op, launch);
    case CLATTN_OP_UNSCALE:
        return clattn_unscale(context, (const clattn_unscale_op *)op, launch);
    case CLATTN_OP_LOSS_SCALE:
        return clattn_loss_scale_update(context, (const clattn_loss_scale_op *)op, launch);
    case CLATTN_OP_ADAMW:
        return clattn_adamw(context, (const clattn_adamw_op *)op, launch);
    case CLATTN_OP_SGD:
        return clattn_sgd(context, (const clattn_sgd_op *)op, launch);
    case CLATTN_OP_GEMM:
        return clattn_gemm(context, (const clattn_gemm_op *)op, launch);
    case CLATTN_OP_ATTENTION_CASCADE:
        return clattn_attention_cascade(context, (const clattn_attention_cascade_op *)op, launch);
    case CLATTN_OP_RING_ATTENTION: /* ring_harness.h */
    case CLATTN_OP_RING_DECODE:
    case CLATTN_OP_RING_ATTENTION_BACKWARD:
        break;
    }
    fail_msg("no call for operation kind %d", (int)op->kind);
    return CLATTN_INTERNAL_ERROR;
}

static void begin_with(struct test_call *call, const clattn_op *op, const char *variant, const char *parameters) {
    size_t bytes = 0;
    memset(call, 0, sizeof *call);
    clattn_launch_init(&call->launch, device.queue);
    call->launch.variant = variant;
    call->launch.parameters = parameters;
    call->launch.event = &call->event;
    CHECK(clattn_workspace_size(device.clattn, op, &call->launch, &bytes));
    if (bytes == 0)
        return;
    cl_int code = CL_SUCCESS;
    call->workspace = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    support_expect_cl(code, "clCreateBuffer of the workspace");
    const cl_uchar ones = 0xff;
    CHECK_CL(clEnqueueFillBuffer(device.queue, call->workspace, &ones, 1, 0, bytes, 0, NULL, NULL));
    call->launch.workspace.buffer = call->workspace;
    call->launch.workspace.size = bytes;
}

void test_call_begin(struct test_call *call, const clattn_op *op, const char *variant) {
    begin_with(call, op, variant, NULL);
}

void test_call_end(struct test_call *call) {
    if (call->event) {
        cl_int state = CL_COMPLETE;
        CHECK_CL(clWaitForEvents(1, &call->event));
        CHECK_CL(clGetEventInfo(call->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
        assert_int_equal(state, CL_COMPLETE);
        clReleaseEvent(call->event);
    }
    CHECK_CL(clFinish(device.queue));
    if (call->workspace)
        clReleaseMemObject(call->workspace);
    memset(call, 0, sizeof *call);
}

void test_run(const clattn_op *op, const char *variant) {
    test_run_with(op, variant, NULL);
}

void test_run_with(const clattn_op *op, const char *variant, const char *parameters) {
    struct test_call call;
    begin_with(&call, op, variant, parameters);
    const clattn_status status = test_dispatch(device.clattn, op, &call.launch);
    if (status != CLATTN_SUCCESS)
        fail_msg("variant %s: %s: %s", variant ? variant : "chosen", clattn_status_name(status), clattn_last_error());
    assert_non_null(call.event);
    test_call_end(&call);
}

const char *test_next_variant(const clattn_op *op, size_t *index) {
    char reason[256];
    while (*index < clattn_variant_count(op->kind)) {
        const char *name = clattn_variant_name(op->kind, (*index)++);
        assert_non_null(name);
        CHECK(clattn_variant_question(device.clattn, op, name, reason, sizeof reason));
        if (reason[0] == '\0')
            return name;
    }
    return NULL;
}
