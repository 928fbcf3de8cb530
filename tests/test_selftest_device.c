/* The self-test kernels on every device: what a device holds must pass, and the local sub-group back-end, which runs
 * everywhere, must satisfy the same judge at every size. */
#include "context.h"

#include <clattn/variants.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEVICES_MAX = 32, EXIT_SKIP = 77 };

static cl_device_id devices[DEVICES_MAX];
static size_t device_count;

/* CLATTN_TEST_DEVICE: an index, or a part of the name. */
static bool wanted(cl_device_id device, size_t index) {
    const char *wish = getenv("CLATTN_TEST_DEVICE");
    char name[256] = "", number[24];
    snprintf(number, sizeof number, "%zu", index);
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    return wish == NULL || wish[0] == '\0' || strcmp(wish, number) == 0 || strstr(name, wish) != NULL;
}

static void find_devices(void) {
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    size_t index = 0;
    if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS)
        return;
    for (cl_uint p = 0; p < platform_count && p < 16; p++) {
        cl_device_id found[DEVICES_MAX];
        cl_uint count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, DEVICES_MAX, found, &count) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < count && d < DEVICES_MAX && device_count < DEVICES_MAX; d++)
            if (wanted(found[d], index++))
                devices[device_count++] = found[d];
    }
}

static void print_log(void *user, clattn_log_level level, const char *message) {
    (void)user;
    (void)level;
    print_message("%s\n", message);
}

static clattn_context *open_context(cl_context *cl, cl_device_id device) {
    clattn_context_options options;
    clattn_context *context = NULL;
    clattn_context_options_init(&options);
    options.log = print_log;
    options.cache_dir = options.tuning_db = "";
    *cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    assert_non_null(*cl);
    assert_int_equal(clattn_context_create(*cl, device, &options, &context), CLATTN_SUCCESS);
    return context;
}

static void held_capabilities_pass(void **state) {
    (void)state;
    for (size_t i = 0; i < device_count; i++) {
        cl_context cl = NULL;
        clattn_context *context = open_context(&cl, devices[i]);
        for (size_t cap = 0; cap < CAP_COUNT; cap++) {
            const char *name = NULL, *verdict = NULL;
            assert_int_equal(clattn_capability_report(context, cap, 1, &name, &verdict), CLATTN_SUCCESS);
            printf("%s: %s %s\n", context->facts.name, name, verdict);
            assert_string_not_equal(verdict, "failed");
        }
        clattn_context_release(&context);
        clReleaseContext(cl);
    }
}

static void local_subgroups_satisfy_the_judge(void **state) {
    (void)state;
    for (size_t i = 0; i < device_count; i++)
        for (uint32_t size = 4; size <= 32; size *= 8) {
            cl_context cl = NULL;
            clattn_context *context = open_context(&cl, devices[i]);
            if (size <= context->facts.max_group) {
                context->facts.caps |= CAP_BIT(CAP_SUBGROUP_SHUFFLE);
                context->facts.subgroup = SUBGROUP_LOCAL;
                context->facts.subgroup_size = size;
                assert_true(selftest_passes(context, CAP_BIT(CAP_SUBGROUP_SHUFFLE)));
            }
            clattn_context_release(&context);
            clReleaseContext(cl);
        }
}

/* A back-end whose sub-groups are smaller than it says is caught. */
static void a_broken_backend_is_caught(void **state) {
    (void)state;
    for (size_t i = 0; i < device_count; i++) {
        cl_context cl = NULL;
        clattn_context *context = open_context(&cl, devices[i]);
        context->facts.caps |= CAP_BIT(CAP_SUBGROUP_SHUFFLE);
        context->facts.subgroup = SUBGROUP_LOCAL;
        context->facts.subgroup_size = 8;
        context->facts.build_options = "-DSG_SIZE=4";
        assert_false(selftest_passes(context, CAP_BIT(CAP_SUBGROUP_SHUFFLE)));
        clattn_context_release(&context);
        clReleaseContext(cl);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_capabilities_pass),
        cmocka_unit_test(local_subgroups_satisfy_the_judge),
        cmocka_unit_test(a_broken_backend_is_caught),
    };
    find_devices();
    return device_count > 0 ? cmocka_run_group_tests(tests, NULL, NULL) : EXIT_SKIP;
}
