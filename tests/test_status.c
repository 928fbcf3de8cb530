/* Status codes, the error text and the log. */
#include "log.h"
#include "status.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void every_status_has_its_name(void **state) {
    (void)state;
    assert_string_equal(clattn_status_name(CLATTN_SUCCESS), "CLATTN_SUCCESS");
    for (int i = 0; i <= CLATTN_PEER_FAILED; i++) {
        assert_memory_equal(clattn_status_name((clattn_status)i), "CLATTN_", 7);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(clattn_status_name((clattn_status)i), clattn_status_name((clattn_status)j));
    }
    assert_string_equal(clattn_status_name((clattn_status)77), "unknown clattn status");
}

static void version_is_the_headers(void **state) {
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", CLATTN_VERSION_MAJOR, CLATTN_VERSION_MINOR, CLATTN_VERSION_PATCH);
    assert_string_equal(clattn_version(), expected);
}

static void text_is_kept_and_may_be_wrapped(void **state) {
    (void)state;
    assert_int_equal(status_set(CLATTN_UNSUPPORTED, "head dim %d", 300), CLATTN_UNSUPPORTED);
    assert_string_equal(clattn_last_error(), "head dim 300");
    status_set(CLATTN_UNSUPPORTED, "attention: %s", clattn_last_error());
    assert_string_equal(clattn_last_error(), "attention: head dim 300");
}

static void long_text_is_cut(void **state) {
    (void)state;
    static char text[20000];
    memset(text, 'x', sizeof text - 1);
    status_set(CLATTN_BUILD_FAILED, "%s", text);
    assert_in_range(strlen(clattn_last_error()), 6000, 9999);
}

static void *fail_elsewhere(void *user) {
    (void)user;
    status_set(CLATTN_INTERNAL_ERROR, "elsewhere");
    return NULL;
}

static void text_belongs_to_its_thread(void **state) {
    (void)state;
    status_set(CLATTN_UNSUPPORTED, "here");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(clattn_last_error(), "here");
}

static void opencl_codes_map_to_statuses(void **state) {
    (void)state;
    static const struct {
        cl_int code;
        clattn_status status;
        const char *text;
    } rows[] = {
        {CL_OUT_OF_HOST_MEMORY, CLATTN_OUT_OF_HOST_MEMORY, "x: CL_OUT_OF_HOST_MEMORY (-6)"},
        {CL_OUT_OF_RESOURCES, CLATTN_OUT_OF_DEVICE_MEMORY, "x: CL_OUT_OF_RESOURCES (-5)"},
        {CL_MEM_OBJECT_ALLOCATION_FAILURE, CLATTN_OUT_OF_DEVICE_MEMORY, "x: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"},
        {CL_BUILD_PROGRAM_FAILURE, CLATTN_BUILD_FAILED, "x: CL_BUILD_PROGRAM_FAILURE (-11)"},
        {CL_INVALID_BUILD_OPTIONS, CLATTN_BUILD_FAILED, "x: CL_INVALID_BUILD_OPTIONS (-43)"},
        {CL_COMPILER_NOT_AVAILABLE, CLATTN_BUILD_FAILED, "x: CL_COMPILER_NOT_AVAILABLE (-3)"},
        {CL_DEVICE_NOT_AVAILABLE, CLATTN_DEVICE_LOST, "x: CL_DEVICE_NOT_AVAILABLE (-2)"},
        {-9999, CLATTN_DEVICE_LOST, "x: driver-internal error (-9999)"},
        {CL_INVALID_WORK_GROUP_SIZE, CLATTN_OPENCL_ERROR, "x: CL_INVALID_WORK_GROUP_SIZE (-54)"},
        {-72, CLATTN_OPENCL_ERROR, "x: CL_MAX_SIZE_RESTRICTION_EXCEEDED (-72)"},
        {-4242, CLATTN_OPENCL_ERROR, "x: unknown OpenCL error (-4242)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(status_from_cl(rows[i].code, "x"), rows[i].status);
        assert_string_equal(clattn_last_error(), rows[i].text);
    }
    assert_int_equal(status_from_cl(CL_SUCCESS, "x"), CLATTN_SUCCESS);
}

/* 0 to -19 and -30 to -72 are all taken by OpenCL 2.2. */
static void all_codes_have_names(void **state) {
    (void)state;
    for (int code = 0; code >= -72; code--)
        if (code >= -19 || code <= -30)
            assert_memory_equal(status_cl_name(code), "CL_", 3);
}

static void note(void *user, clattn_log_level level, const char *message) {
    snprintf(user, 64, "%d %s", (int)level, message);
}

static void log_passes_on_what_was_asked_for(void **state) {
    (void)state;
    char seen[64] = "";
    const struct log log = {note, seen, CLATTN_LOG_WARNING};
    log_write(&log, CLATTN_LOG_INFO, "quiet");
    assert_string_equal(seen, "");
    log_write(&log, CLATTN_LOG_WARNING, "%s %d", "loud", 1);
    assert_string_equal(seen, "2 loud 1");
    const struct log silent = {NULL, NULL, CLATTN_LOG_DEBUG};
    log_write(&silent, CLATTN_LOG_ERROR, "nobody listens");
    log_write(NULL, CLATTN_LOG_ERROR, "nobody listens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(version_is_the_headers),
        cmocka_unit_test(text_is_kept_and_may_be_wrapped),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(text_belongs_to_its_thread),
        cmocka_unit_test(opencl_codes_map_to_statuses),
        cmocka_unit_test(all_codes_have_names),
        cmocka_unit_test(log_passes_on_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
