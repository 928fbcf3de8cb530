/* What device tests share: finding the devices, tensors with guarded surroundings on them, and single calls.
 *
 * A test executable hands its tests to support_main(), which runs them once per device; `device` is the current one.
 * Failures go through cmocka. Where there is no device the executable exits with 77, which Meson reports as skipped. */
#ifndef CLATTN_SUPPORT_H
#define CLATTN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <clattn/clattn.h>
#include <clattn/variants.h>
#include <stdbool.h>

#include <cmocka.h>

struct test_device {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    clattn_context *clattn;
    char name[128];
};
extern struct test_device device;

/* Runs the tests on every device of every platform, or on that which CLATTN_TEST_DEVICE names (an index as it is
 * printed, or a part of a name). Returns main()'s status. */
int support_main(const char *group, const struct CMUnitTest *tests, size_t count);

/* All devices; returns how many there are, of which at most `limit` are stored. */
size_t support_devices(cl_device_id *devices, size_t limit);
/* Opens a device: context, in-order queue and library context. Fails the test, or exits outside one, where it cannot.
 */
void support_open(struct test_device *out, cl_device_id id);
void support_close(struct test_device *opened);

/* Fails the test with the library's text where status is not expected. */
void support_expect(clattn_status status, clattn_status expected, const char *what);
#define CHECK(call) support_expect((call), CLATTN_SUCCESS, #call)
#define CHECK_CL(call) support_expect_cl((call), #call)
void support_expect_cl(cl_int code, const char *what);

/* Printed by every test that draws numbers; CLATTN_TEST_SEED overrides. */
uint64_t support_seed(const char *test);

/* ---- tensors on the device ---- */

enum { GUARD = 64 }; /* elements before and after a tensor */
static const double guard_value =
    12345; /* around and inside the gaps of outputs; rounds in fp16 and bf16, all the same */

struct test_layout {
    int64_t offset; /* further elements in front */
    int64_t strides[CLATTN_MAX_RANK];
};

struct test_tensor {
    clattn_tensor view;
    cl_mem buffer;
    size_t bytes;
    unsigned char *image; /* what was uploaded last */
    bool output;
};

/* An input holding dense row-major `values`; layout NULL: dense. Guards and gaps hold `gap`: what the library must not
 * read is NaN or infinity. */
struct test_tensor test_input(clattn_dtype dtype, int rank, const int64_t *dims, const double *values,
                              const struct test_layout *layout, double gap);
/* An output full of NaN; guards and gaps hold guard_value. */
struct test_tensor test_output(clattn_dtype dtype, int rank, const int64_t *dims, const struct test_layout *layout);
/* Fills the output with NaN again. */
void test_reset(struct test_tensor *tensor);
/* Waits for the queue, checks that nothing outside the elements changed, and reads the dense values. */
void test_read(const struct test_tensor *tensor, double *values);
/* The raw bytes of the whole buffer, guards included; free() them. */
unsigned char *test_bytes(const struct test_tensor *tensor);
/* Fails where a byte of the buffer differs from what was uploaded. */
void test_untouched(const struct test_tensor *tensor, const char *name);
void test_release(struct test_tensor *tensor);

double *test_array(int64_t count); /* of doubles, zeroed; never NULL; free() it */

/* ---- calls ---- */

/* Everything a call needs besides its operation, with the exact workspace, filled with NaN bytes. */
struct test_call {
    clattn_launch launch;
    cl_mem workspace;
    cl_event event;
};
void test_call_begin(struct test_call *call, const clattn_op *op, const char *variant);
void test_call_end(struct test_call *call); /* waits for the call's event and releases */

/* clattn_<op>() by kind. */
clattn_status test_dispatch(clattn_context *context, const clattn_op *op, const clattn_launch *launch);
/* One successful call of a variant (NULL: the library's choice), workspace included, completed on return. */
void test_run(const clattn_op *op, const char *variant);
void test_run_with(const clattn_op *op, const char *variant, const char *parameters);

/* The name of the next variant, from *index on, that accepts op on the current device; NULL past the last. */
const char *test_next_variant(const clattn_op *op, size_t *index);

#endif
