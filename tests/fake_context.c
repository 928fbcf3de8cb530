/* See fake_context.h. */
#include "fake_context.h"
#include "temporary.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_warnings(void *user, clattn_log_level level, const char *message) {
    (void)message;
    struct fake_fixture *fixture = user;
    if (level <= CLATTN_LOG_WARNING)
        __atomic_add_fetch(&fixture->warnings, 1, __ATOMIC_RELAXED);
}

static void fill_facts(struct device_facts *facts) {
    snprintf(facts->name, sizeof facts->name, "Fake Device");
    snprintf(facts->vendor_name, sizeof facts->vendor_name, "Fake Vendor");
    snprintf(facts->driver, sizeof facts->driver, "1.0");
    snprintf(facts->platform, sizeof facts->platform, "Fake Platform");
    facts->opencl_1_2 = true;
    facts->build_options = "-DDEVICE_WIDE";
}

struct fake_fixture *fake_fixture_new(int devices) {
    fake_reset();
    struct fake_fixture *fixture = calloc(1, sizeof *fixture);
    fixture->kernels = temporary_folder();
    fixture->cache = temporary_folder();
    fake_fixture_write(fixture, "a.cl", "#include \"part.clh\"\nkernel void a(int x) {}\nkernel void b(int x) {}\n");
    fake_fixture_write(fixture, "part.clh", "#define PART 1\n");
    const cl_device_id list[FAKE_DEVICES] = {fake_device_id(0), fake_device_id(1)};
    clattn_context *context = &fixture->context;
    context->cl = clCreateContext(NULL, (cl_uint)devices, list, NULL, NULL, NULL);
    context->device = list[devices - 1];
    fixture->queue = clCreateCommandQueue(context->cl, context->device, 0, NULL);
    fixture->unordered =
        clCreateCommandQueue(context->cl, context->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, NULL);
    context->cl_dir = fixture->kernels;
    context->log = (struct log){count_warnings, fixture, CLATTN_LOG_DEBUG};
    fill_facts(&context->facts);
    program_table_init(&context->programs);
    binary_cache_open(&context->cache, "", 0, &context->log);
    return fixture;
}

void fake_fixture_write(struct fake_fixture *fixture, const char *name, const char *text) {
    temporary_write(fixture->kernels, name, text, strlen(text));
}

void fake_fixture_restart(struct fake_fixture *fixture, bool with_cache) {
    clattn_context *context = &fixture->context;
    program_table_free(&context->programs);
    program_table_init(&context->programs);
    binary_cache_close(&context->cache);
    binary_cache_open(&context->cache, with_cache ? fixture->cache : "", 1 << 20, &context->log);
}

void fake_fixture_free(struct fake_fixture *fixture) {
    program_table_free(&fixture->context.programs);
    binary_cache_close(&fixture->context.cache);
    clReleaseCommandQueue(fixture->queue);
    clReleaseCommandQueue(fixture->unordered);
    clReleaseContext(fixture->context.cl);
    temporary_remove(fixture->kernels);
    temporary_remove(fixture->cache);
    free(fixture);
}
