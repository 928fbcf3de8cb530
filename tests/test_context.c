/* A context's life on the fake driver: options, environment, versions of public structs, failures of every call. */
#include "context.h"
#include "fake_cl.h"
#include "temporary.h"

#include <clattn/variants.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const variables[] = {"CLATTN_CAPS", "CLATTN_CL_DIR", "CLATTN_CACHE_DIR", "CLATTN_TUNING_DB",
                                        "CLATTN_LOG",  "XDG_DATA_HOME", "XDG_CACHE_HOME",   "HOME"};
static cl_context cl;
static char *folder, *home;
static char last_message[512];
static int messages;

static void keep_message(void *user, clattn_log_level level, const char *message) {
    (void)user;
    (void)level;
    messages++;
    snprintf(last_message, sizeof last_message, "%s", message);
}

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    (void)state;
    fake_reset();
    folder = temporary_folder();
    home = temporary_path(folder, "home");
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    setenv("HOME", home, 1);
    messages = 0;
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    clReleaseContext(cl);
    free(home);
    temporary_remove(folder);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

static clattn_context *create(const clattn_context_options *options) {
    clattn_context *context = NULL;
    assert_int_equal(clattn_context_create(cl, fake_device_id(0), options, &context), CLATTN_SUCCESS);
    assert_non_null(context);
    return context;
}

static clattn_device_info info_of(clattn_context *context) {
    clattn_device_info info = {.size = sizeof info};
    assert_int_equal(clattn_context_info(context, &info), CLATTN_SUCCESS);
    return info;
}

static void defaults_are_in_the_home_folder(void **state) {
    char path[1024];
    (void)state;
    clattn_context *context = create(NULL);
    clattn_device_info info = info_of(context);
    snprintf(path, sizeof path, "%s/.local/share/clattn/tuning.json", home);
    assert_string_equal(info.tuning_db, path);
    snprintf(path, sizeof path, "%s/.cache/clattn", home);
    assert_string_equal(info.cache_dir, path);
    assert_string_equal(info.name, "Fake Device");
    assert_string_equal(info.vendor, "Fake Vendor");
    assert_string_equal(info.platform, "Fake Platform");
    assert_string_equal(info.driver, "1.0");
    assert_string_equal(info.architecture, "unknown");
    assert_string_equal(info.capabilities, "");
    assert_string_equal(info.subgroup_backend, "local");
    assert_int_equal(info.compute_units, 4);
    assert_int_equal(info.max_work_group_size, 256);
    assert_int_equal(info.local_memory, 32768);
    clattn_context_release(&context);
    assert_null(context);
    clattn_context_release(&context);
    clattn_context_release(NULL);
    setenv("XDG_DATA_HOME", folder, 1);
    context = create(NULL);
    snprintf(path, sizeof path, "%s/clattn/tuning.json", folder);
    assert_string_equal(info_of(context).tuning_db, path);
    clattn_context_release(&context);
    setenv("XDG_DATA_HOME", "relative", 1);
    unsetenv("HOME");
    context = create(NULL);
    assert_string_equal(info_of(context).tuning_db, "");
    assert_string_equal(info_of(context).cache_dir, "");
    clattn_context_release(&context);
}

static void options_come_before_the_environment(void **state) {
    clattn_context_options options;
    (void)state;
    fake_device[0].extensions = "cl_khr_fp16";
    setenv("CLATTN_TUNING_DB", "/from/environment.json", 1);
    setenv("CLATTN_CACHE_DIR", "", 1);
    setenv("CLATTN_CL_DIR", CL_DIR, 1);
    setenv("CLATTN_CAPS", "none", 1);
    clattn_context *context = create(NULL);
    assert_string_equal(info_of(context).tuning_db, "/from/environment.json");
    assert_string_equal(info_of(context).cache_dir, "");
    assert_string_equal(info_of(context).capabilities, "");
    assert_string_equal(context->cl_dir, CL_DIR);
    clattn_context_release(&context);
    clattn_context_options_init(&options);
    options.tuning_db = "";
    options.cache_dir = folder;
    options.cl_dir = "";
    options.capabilities = "all";
    context = create(&options);
    setenv("CLATTN_CAPS", "none", 1); /* never read again */
    assert_string_equal(info_of(context).tuning_db, "");
    assert_string_equal(info_of(context).cache_dir, folder);
    assert_string_equal(info_of(context).capabilities, "half");
    assert_null(context->cl_dir);
    clattn_context_release(&context);
}

static void log_level_is_read(void **state) {
    static const struct {
        clattn_log_level given;
        const char *environment;
        clattn_log_level expected;
    } rows[] = {
        {(clattn_log_level)0, NULL, CLATTN_LOG_WARNING},      {(clattn_log_level)0, "debug", CLATTN_LOG_DEBUG},
        {(clattn_log_level)0, "error", CLATTN_LOG_ERROR},     {(clattn_log_level)0, "info", CLATTN_LOG_INFO},
        {(clattn_log_level)0, "", CLATTN_LOG_WARNING},        {CLATTN_LOG_ERROR, "loud", CLATTN_LOG_ERROR},
        {(clattn_log_level)0, "warning", CLATTN_LOG_WARNING},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        clattn_context_options options;
        clattn_context_options_init(&options);
        options.log = keep_message;
        options.log_level = rows[i].given;
        if (rows[i].environment != NULL)
            setenv("CLATTN_LOG", rows[i].environment, 1);
        else
            unsetenv("CLATTN_LOG");
        messages = 0;
        clattn_context *context = create(&options);
        assert_int_equal(context->log.level, rows[i].expected);
        assert_int_equal(messages > 0, rows[i].expected >= CLATTN_LOG_INFO);
        clattn_context_release(&context);
    }
}

static void bad_arguments_are_named(void **state) {
    const cl_device_id device = fake_device_id(0), stranger = fake_device_id(1);
    clattn_context_options options;
    clattn_context *context = (clattn_context *)&options;
    const char *capability = NULL;
    (void)state;
    clattn_context_options_init(&options);
#define REFUSED(call, words)                           \
    assert_int_equal((call), CLATTN_INVALID_ARGUMENT); \
    if (strstr(clattn_last_error(), (words)) == NULL)  \
    fail_msg("\"%s\" does not say \"%s\"", clattn_last_error(), (words))
    REFUSED(clattn_context_create(cl, device, &options, NULL), "out is NULL");
    options.cl_dir = "/no/kernels";
    REFUSED(clattn_context_create(cl, device, &options, &context), "options: cl_dir = \"/no/kernels\" is no folder");
    assert_null(context);
    options.cl_dir = NULL;
    setenv("CLATTN_CL_DIR", __FILE__, 1);
    REFUSED(clattn_context_create(cl, device, &options, &context), "CLATTN_CL_DIR = ");
    unsetenv("CLATTN_CL_DIR");
    context = (clattn_context *)&options;
    REFUSED(clattn_context_create(NULL, device, &options, &context), "context is NULL");
    assert_null(context);
    REFUSED(clattn_context_create(cl, NULL, &options, &context), "device is NULL");
    REFUSED(clattn_context_create(cl, stranger, &options, &context), "device is none of the context's 1 devices");
    options.capabilities = "all,-everything";
    REFUSED(clattn_context_create(cl, device, &options, &context), "\"everything\"");
    assert_null(context);
    clattn_context_options_init(&options);
    options.size = 0;
    REFUSED(clattn_context_create(cl, device, &options, &context), "options: size is 0");
    clattn_context_options_init(&options);
    options.log_level = (clattn_log_level)9;
    REFUSED(clattn_context_create(cl, device, &options, &context), "log_level 9");
    setenv("CLATTN_LOG", "loud", 1);
    REFUSED(clattn_context_create(cl, device, NULL, &context), "CLATTN_LOG = \"loud\" is none of: error");
    assert_null(context);
    unsetenv("CLATTN_LOG");
    clattn_device_info info = {0};
    clattn_statistics statistics = {0};
    context = create(NULL);
    REFUSED(clattn_context_info(NULL, &info), "context is NULL");
    REFUSED(clattn_context_info(context, NULL), "info is NULL");
    REFUSED(clattn_context_info(context, &info), "info: size is 0");
    REFUSED(clattn_context_statistics(NULL, &statistics), "context is NULL");
    REFUSED(clattn_context_statistics(context, NULL), "statistics is NULL");
    REFUSED(clattn_context_statistics(context, &statistics), "statistics: size is 0");
    REFUSED(clattn_capability_report(NULL, 0, 0, &capability, &capability), "context is NULL");
    REFUSED(clattn_capability_report(context, 0, 0, NULL, &capability), "capability is NULL");
    REFUSED(clattn_capability_report(context, 0, 0, &capability, NULL), "verdict is NULL");
#undef REFUSED
    clattn_context_release(&context);
}

/* A program built against an older header has shorter structs: nothing behind their end is read or written. */
static void shorter_structs_are_respected(void **state) {
    clattn_context_options options;
    clattn_device_info info;
    clattn_statistics statistics;
    (void)state;
    clattn_context_options_init(&options);
    options.size = offsetof(clattn_context_options, capabilities);
    options.capabilities = "all,-everything";
    clattn_context *context = create(&options);
    memset(&info, 0x55, sizeof info);
    info.size = offsetof(clattn_device_info, driver);
    assert_int_equal(clattn_context_info(context, &info), CLATTN_SUCCESS);
    assert_int_equal(info.size, offsetof(clattn_device_info, driver));
    assert_string_equal(info.vendor, "Fake Vendor");
    assert_int_equal(info.driver[0], 0x55);
    memset(&statistics, 0x55, sizeof statistics);
    statistics.size = offsetof(clattn_statistics, kernel_launches);
    assert_int_equal(clattn_context_statistics(context, &statistics), CLATTN_SUCCESS);
    assert_int_equal(statistics.programs_built, 0);
    assert_true(statistics.kernel_launches == UINT64_C(0x5555555555555555));
    clattn_context_release(&context);
}

static void capabilities_are_listed_to_the_end(void **state) {
    (void)state;
    clattn_context *context = create(NULL);
    const char *capability = "", *verdict = "";
    for (size_t i = 0; i < CAP_COUNT; i++) {
        assert_int_equal(clattn_capability_report(context, i, 0, &capability, &verdict), CLATTN_SUCCESS);
        assert_string_equal(capability, device_capability_name((enum device_capability)i));
        assert_string_equal(verdict, "absent");
    }
    assert_int_equal(clattn_capability_report(context, CAP_COUNT, 0, &capability, &verdict), CLATTN_SUCCESS);
    assert_null(capability);
    assert_null(verdict);
    clattn_context_release(&context);
}

/* Creation touches nothing of the device but its facts; each call of it may fail without a leak. */
static void any_call_may_fail(void **state) {
    int nth = 0, errors = 0;
    (void)state;
    do {
        clattn_context *context = NULL;
        fake_fail_nth(++nth, CL_OUT_OF_HOST_MEMORY);
        const clattn_status status = clattn_context_create(cl, fake_device_id(0), NULL, &context);
        assert_int_equal(status == CLATTN_SUCCESS, context != NULL);
        errors += status == CLATTN_OUT_OF_HOST_MEMORY;
        clattn_context_release(&context);
        assert_int_equal(fake_live(), 1);
    } while (fake_has_failed());
    assert_true(errors > 8);
}

static void version_is_the_header_s(void **state) {
    char version[32];
    (void)state;
    snprintf(version, sizeof version, "%d.%d.%d", CLATTN_VERSION_MAJOR, CLATTN_VERSION_MINOR, CLATTN_VERSION_PATCH);
    assert_string_equal(clattn_version(), version);
}

static void variants_are_enumerated(void **state) {
    (void)state;
    for (int kind = CLATTN_OP_ATTENTION; kind <= CLATTN_OP_SOFTMAX_TOPK; kind++) {
        const size_t count = clattn_variant_count((clattn_op_kind)kind);
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++)
            assert_non_null(clattn_variant_name((clattn_op_kind)kind, i));
        assert_null(clattn_variant_name((clattn_op_kind)kind, count));
    }
    assert_int_equal(clattn_variant_count((clattn_op_kind)0), 0);
    assert_null(clattn_variant_name((clattn_op_kind)99, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_in_the_home_folder),
        TEST(options_come_before_the_environment),
        TEST(log_level_is_read),
        TEST(bad_arguments_are_named),
        TEST(shorter_structs_are_respected),
        TEST(capabilities_are_listed_to_the_end),
        TEST(any_call_may_fail),
        TEST(version_is_the_header_s),
        TEST(variants_are_enumerated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
