/* Tensors on the device with guarded surroundings: an input's gaps hold what must not be read, an output's gaps what
 * must not change. */
#include "reference.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double *test_array(int64_t count) {
    double *array = calloc((size_t)(count > 0 ? count : 1), sizeof *array);
    assert_non_null(array);
    return array;
}

/* Dims and strides; returns how many elements lie between the first and the last. */
static int64_t lay_out(clattn_tensor *view, int rank, const int64_t *dims, const struct test_layout *layout) {
    int64_t dense = 1, last = 0;
    view->rank = rank;
    for (int d = rank - 1; d >= 0; d--) {
        view->dims[d] = dims[d];
        view->strides[d] = layout ? layout->strides[d] : dense;
        dense *= dims[d];
        last += dims[d] > 0 ? (dims[d] - 1) * view->strides[d] : 0;
    }
    return dense > 0 ? last + 1 : 0;
}

static struct test_tensor make(clattn_dtype dtype, int rank, const int64_t *dims, const struct test_layout *layout,
                               double gap) {
    struct test_tensor tensor = {.view = {.dtype = dtype, .memory.kind = CLATTN_MEMORY_BUFFER}};
    const int64_t extent = lay_out(&tensor.view, rank, dims, layout);
    const int64_t elements = GUARD + (layout ? layout->offset : 0) + extent + GUARD;
    cl_int code = CL_SUCCESS;
    tensor.view.offset = GUARD + (layout ? layout->offset : 0);
    tensor.bytes = (size_t)elements * clattn_dtype_size(dtype);
    tensor.image = malloc(tensor.bytes);
    assert_non_null(tensor.image);
    for (int64_t i = 0; i < elements; i++)
        reference_encode(dtype, tensor.image, i, gap);
    tensor.buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, tensor.bytes, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    tensor.view.memory.as.buffer = tensor.buffer;
    return tensor;
}

static void upload(const struct test_tensor *tensor) {
    CHECK_CL(
        clEnqueueWriteBuffer(device.queue, tensor->buffer, CL_TRUE, 0, tensor->bytes, tensor->image, 0, NULL, NULL));
}

struct test_tensor test_input(clattn_dtype dtype, int rank, const int64_t *dims, const double *values,
                              const struct test_layout *layout, double gap) {
    struct test_tensor tensor = make(dtype, rank, dims, layout, gap);
    reference_scatter(&tensor.view, tensor.image, values);
    upload(&tensor);
    return tensor;
}

struct test_tensor test_output(clattn_dtype dtype, int rank, const int64_t *dims, const struct test_layout *layout) {
    struct test_tensor tensor = make(dtype, rank, dims, layout, guard_value);
    const int64_t count = reference_count(&tensor.view);
    double *nan = test_array(count);
    for (int64_t i = 0; i < count; i++)
        nan[i] = (double)NAN;
    reference_scatter(&tensor.view, tensor.image, nan);
    free(nan);
    tensor.output = true;
    upload(&tensor);
    return tensor;
}

void test_reset(struct test_tensor *tensor) {
    upload(tensor);
}

unsigned char *test_bytes(const struct test_tensor *tensor) {
    unsigned char *bytes = malloc(tensor->bytes);
    assert_non_null(bytes);
    CHECK_CL(clEnqueueReadBuffer(device.queue, tensor->buffer, CL_TRUE, 0, tensor->bytes, bytes, 0, NULL, NULL));
    return bytes;
}

void test_read(const struct test_tensor *tensor, double *values) {
    unsigned char *bytes = test_bytes(tensor);
    reference_gather(&tensor->view, bytes, values);
    /* With the elements put back as they were uploaded, the buffers must be equal. */
    const int64_t count = reference_count(&tensor->view);
    double *before = test_array(count);
    unsigned char *image = malloc(tensor->bytes);
    assert_non_null(image);
    memcpy(image, tensor->image, tensor->bytes);
    reference_gather(&tensor->view, tensor->image, before);
    reference_scatter(&tensor->view, image, before);
    reference_scatter(&tensor->view, bytes, before);
    const size_t size = clattn_dtype_size(tensor->view.dtype);
    for (size_t at = 0; at < tensor->bytes; at += size)
        if (memcmp(image + at, bytes + at, size) != 0)
            fail_msg("element %zu of the buffer, outside the tensor, was written", at / size);
    free(image);
    free(before);
    free(bytes);
}

void test_untouched(const struct test_tensor *tensor, const char *name) {
    unsigned char *bytes = test_bytes(tensor);
    if (memcmp(bytes, tensor->image, tensor->bytes) != 0)
        fail_msg("%s was written", name);
    free(bytes);
}

void test_release(struct test_tensor *tensor) {
    if (tensor->buffer)
        clReleaseMemObject(tensor->buffer);
    free(tensor->image);
    memset(tensor, 0, sizeof *tensor);
}
