/* Tensors that reach beyond 2^31 elements of their buffer: strides and offsets are 64 bits wide everywhere. One buffer
 * holds q, k, v, o, a mask and a bias side by side in slots that lie far apart; the result must have the bits of the
 * same call on dense tensors. */
#include "support.h"

#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 2, ROWS = 33, DIM = 64, SLOTS = BATCH * HEADS * ROWS };
enum { Q_AT = 0, K_AT = 64, V_AT = 128, O_AT = 192, BIAS_AT = 256, MASK_AT = 512, SLOT_USED = 1024 };
enum { FIRST_PLANE_SLOT = SLOTS - ROWS }; /* of mask and bias */

static cl_mem large;
static bool ran_somewhere;
static int64_t slot_size; /* elements of 16 bits */

/* More than 2^31 elements of 16 bits; where the device's largest buffer is smaller, still more than 2^31 of the
 * mask. */
static bool make_large(void) {
    const uint64_t wanted = UINT64_C(9) << 29, least = UINT64_C(9) << 28;
    cl_ulong most = 0;
    cl_int code = CL_SUCCESS;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    if (most < least)
        return false;
    const uint64_t bytes = most < wanted ? most : wanted;
    slot_size = ((int64_t)(bytes / 2) - SLOT_USED) / (SLOTS - 1) / 8 * 8;
    large = clCreateBuffer(device.context, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
    return code == CL_SUCCESS;
}

static clattn_tensor far_apart(int64_t at) {
    const int64_t dims[] = {BATCH, HEADS, ROWS, DIM};
    clattn_tensor tensor = clattn_tensor_dense(large, CLATTN_F16, 4, dims);
    tensor.offset = at;
    tensor.strides[0] = HEADS * ROWS * slot_size;
    tensor.strides[1] = ROWS * slot_size;
    tensor.strides[2] = slot_size;
    return tensor;
}

/* unit: elements of the plane's dtype in one of 16 bits. */
static clattn_tensor far_plane(clattn_dtype dtype, int64_t at, int64_t unit) {
    const int64_t dims[] = {1, 1, ROWS, ROWS};
    clattn_tensor tensor = clattn_tensor_dense(large, dtype, 4, dims);
    tensor.offset = FIRST_PLANE_SLOT * slot_size * unit + at;
    tensor.strides[2] = slot_size * unit;
    return tensor;
}

static void copy_row(cl_mem from, int64_t from_byte, cl_mem to, int64_t to_byte, size_t bytes) {
    CHECK_CL(clEnqueueCopyBuffer(device.queue, from, to, (size_t)from_byte, (size_t)to_byte, bytes, 0, NULL, NULL));
}

static void spread(const struct test_tensor *dense, int64_t at) {
    for (int64_t slot = 0; slot < SLOTS; slot++)
        copy_row(dense->buffer, (dense->view.offset + slot * DIM) * 2, large, (slot * slot_size + at) * 2, DIM * 2);
}

static void spread_plane(const struct test_tensor *dense, const clattn_tensor *plane) {
    const int64_t size = (int64_t)clattn_dtype_size(plane->dtype);
    for (int64_t row = 0; row < ROWS; row++)
        copy_row(dense->buffer, (dense->view.offset + row * ROWS) * size, large,
                 (plane->offset + row * plane->strides[2]) * size, (size_t)(ROWS * size));
}

static double *normal(int64_t count, uint64_t seed) {
    double *values = test_array(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = reference_normal((uint64_t)i, seed);
    return values;
}

static struct test_tensor dense_input(uint64_t seed) {
    const int64_t dims[] = {BATCH, HEADS, ROWS, DIM};
    double *values = normal(SLOTS * DIM, seed);
    struct test_tensor tensor = test_input(CLATTN_F16, 4, dims, values, NULL, (double)NAN);
    free(values);
    return tensor;
}

static struct test_tensor dense_plane(clattn_dtype dtype, uint64_t seed) {
    const int64_t dims[] = {1, 1, ROWS, ROWS};
    double *values = normal(ROWS * ROWS, seed);
    for (int i = 0; dtype == CLATTN_U8 && i < ROWS * ROWS; i++)
        values[i] = values[i] > -1;
    struct test_tensor tensor = test_input(dtype, 4, dims, values, NULL, 0);
    free(values);
    return tensor;
}

/* The far tensors' output, gathered slot by slot, against the dense one. */
static void compare(const struct test_tensor *dense_o, const char *variant) {
    unsigned char *want = test_bytes(dense_o);
    for (int64_t slot = 0; slot < SLOTS; slot++) {
        unsigned char got[DIM * 2];
        CHECK_CL(clEnqueueReadBuffer(device.queue, large, CL_TRUE, (size_t)(slot * slot_size + O_AT) * 2, sizeof got,
                                     got, 0, NULL, NULL));
        if (memcmp(got, want + (dense_o->view.offset + slot * DIM) * 2, sizeof got) != 0)
            fail_msg("%s: row %lld differs from that of dense tensors", variant, (long long)slot);
    }
    free(want);
}

static void beyond_32_bits(void **state) {
    (void)state;
    if (!make_large())
        skip();
    const int64_t dims[] = {BATCH, HEADS, ROWS, DIM};
    struct test_tensor q = dense_input(1), k = dense_input(2), v = dense_input(3);
    struct test_tensor mask = dense_plane(CLATTN_U8, 4), bias = dense_plane(CLATTN_F16, 5);
    struct test_tensor o = test_output(CLATTN_F16, 4, dims, NULL);
    clattn_attention_op near, far;
    clattn_attention_init(&near);
    near.q = q.view, near.k = k.view, near.v = v.view, near.o = o.view;
    near.mask = mask.view, near.bias = bias.view;
    near.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    far = near;
    far.q = far_apart(Q_AT), far.k = far_apart(K_AT), far.v = far_apart(V_AT), far.o = far_apart(O_AT);
    far.mask = far_plane(CLATTN_U8, MASK_AT * 2, 2), far.bias = far_plane(CLATTN_F16, BIAS_AT, 1);
    spread(&q, Q_AT), spread(&k, K_AT), spread(&v, V_AT);
    spread_plane(&mask, &far.mask), spread_plane(&bias, &far.bias);
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = test_next_variant(&far.head, &index)) != NULL; ran++) {
        test_reset(&o);
        test_run(&near.head, variant);
        test_run(&far.head, variant);
        compare(&o, variant);
    }
    assert_true(ran > 0);
    ran_somewhere = true;
    struct test_tensor *const tensors[] = {&q, &k, &v, &mask, &bias, &o};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        test_release(tensors[i]);
    clReleaseMemObject(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(beyond_32_bits)};
    const int status = support_main("attention, large tensors", tests, sizeof tests / sizeof tests[0]);
    return status == 0 && !ran_somewhere ? 77 : status; /* too small a device is no pass */
}
