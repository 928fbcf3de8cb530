/* However a process ends, it ends with status 0 and without a word; and a machine without a device, or with an empty
 * platform beside a real one, is no fault. */
#include "child.h"
#include "quick_call.h"
#include "support.h"
#include "temporary.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the children ---- */

static const struct quick_call call = {16, CLATTN_F32, CLATTN_CAUSAL_NONE};

struct objects {
    cl_context context;
    cl_command_queue queue;
    clattn_context *clattn;
};

/* Makes everything and calls once; exits with 1 where that fails. */
static struct objects call_once(void) {
    struct objects objects = {0};
    cl_device_id id;
    cl_int code = CL_SUCCESS;
    if (!quick_device(&id))
        exit(77);
    objects.context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    objects.queue = clCreateCommandQueue(objects.context, id, 0, &code);
    if (clattn_context_create(objects.context, id, NULL, &objects.clattn) != CLATTN_SUCCESS)
        exit(1);
    const struct quick_result result = quick_run(objects.context, objects.queue, objects.clattn, &call);
    if (!quick_is_right(&call, &result))
        exit(1);
    return objects;
}

static int return_from_main(void) {
    struct objects objects = call_once();
    clattn_context_release(&objects.clattn);
    clReleaseCommandQueue(objects.queue);
    clReleaseContext(objects.context);
    return 0;
}

static void *exit_here(void *unused) {
    (void)unused;
    exit(0);
}

static int exit_in_a_thread(void) {
    pthread_t thread;
    (void)call_once();
    if (pthread_create(&thread, NULL, exit_here, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 1;
}

static int release_opencl_first(void) {
    struct objects objects = call_once();
    clReleaseCommandQueue(objects.queue);
    clReleaseContext(objects.context);
    clattn_context_release(&objects.clattn);
    return 0;
}

static int never_release(void) {
    (void)call_once();
    return 0;
}

/* The number of devices, as the exit status. */
static int count_devices(void) {
    cl_device_id ids[8];
    return (int)support_devices(ids, 8);
}

static int run_no_tests(void) {
    const struct CMUnitTest none[] = {{0}};
    return support_main("nothing", none, 0);
}

static const struct {
    const char *name;
    int (*run)(void);
} children[] = {
    {"return-from-main", return_from_main},
    {"exit-in-a-thread", exit_in_a_thread},
    {"release-opencl-first", release_opencl_first},
    {"never-release", never_release},
    {"count-devices", count_devices},
    {"run-no-tests", run_no_tests},
};

/* ---- A70 ---- */

static void ends_well(const char *child) {
    char output[4096];
    for (int i = 0; i < 3; i++) {
        const int status = child_run(child, NULL, output, sizeof output);
        /* The first may build the program, of which the driver's compiler has things to say. */
        if (status != 0 || (i > 0 && output[0] != '\0'))
            fail_msg("%s: exit status %d, \"%s\"", child, status, output);
    }
}

static void returning_from_main(void **state) {
    (void)state;
    ends_well("return-from-main");
}

static void exiting_in_a_thread(void **state) {
    (void)state;
    ends_well("exit-in-a-thread");
}

static void releasing_opencl_first(void **state) {
    (void)state;
    ends_well("release-opencl-first");
}

static void never_releasing(void **state) {
    (void)state;
    ends_well("never-release");
}

/* ---- A68 ---- */

/* Folders of drivers, as both loaders call them, and files named one by one. */
#define ONLY_VENDORS(path) "OCL_ICD_VENDORS=" path, "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES"

static void no_platform_is_a_skip(void **state) {
    (void)state;
    const char *const environment[] = {ONLY_VENDORS("/nonexistent"), NULL};
    char output[4096];
    const int devices = child_run("count-devices", environment, output, sizeof output);
    if (devices > 0 && devices < 77) {
        printf("this loader has %d devices in spite of %s\n", devices, environment[0]);
        skip();
    }
    assert_int_equal(devices, 0);
    assert_int_equal(child_run("run-no-tests", environment, output, sizeof output), 77);
    assert_non_null(strstr(output, "no OpenCL device"));
}

static const char *const empty_icd = "/etc/OpenCL/vendors/rusticl.icd", *const real_icd =
                                                                            "/etc/OpenCL/vendors/pocl.icd";

static void an_empty_platform_is_a_skip(void **state) {
    (void)state;
    const char *const environment[] = {ONLY_VENDORS("/etc/OpenCL/vendors/rusticl.icd"), "RUSTICL_ENABLE=", NULL};
    char output[4096];
    if (access(empty_icd, R_OK) != 0)
        skip();
    assert_int_equal(child_run("run-no-tests", environment, output, sizeof output), 77);
}

static void an_empty_platform_hides_no_other(void **state) {
    (void)state;
    char variable[4200], command[9000], output[4096];
    const char *const environment[] = {
        variable, "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "OCL_ICD_PLATFORM_SORT=none", "RUSTICL_ENABLE=", NULL};
    if (access(empty_icd, R_OK) != 0 || access(real_icd, R_OK) != 0)
        skip();
    char *folder = temporary_folder();
    snprintf(command, sizeof command, "cp %s '%s/00-rusticl.icd' && cp %s '%s/10-pocl.icd'", empty_icd, folder,
             real_icd, folder);
    assert_int_equal(system(command), 0);
    snprintf(variable, sizeof variable, "OCL_ICD_VENDORS=%s", folder);
    assert_int_equal(child_run("count-devices", environment, output, sizeof output), 1);
    assert_int_equal(child_run("return-from-main", environment, output, sizeof output), 0);
    temporary_remove(folder);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returning_from_main),
        cmocka_unit_test(exiting_in_a_thread),
        cmocka_unit_test(releasing_opencl_first),
        cmocka_unit_test(never_releasing),
        cmocka_unit_test(no_platform_is_a_skip),
        cmocka_unit_test(an_empty_platform_is_a_skip),
        cmocka_unit_test(an_empty_platform_hides_no_other),
    };
    for (size_t i = 0; argc > 1 && i < sizeof children / sizeof children[0]; i++)
        if (strcmp(argv[1], children[i].name) == 0)
            return children[i].run();
    return support_main("exit", tests, sizeof tests / sizeof tests[0]);
}
