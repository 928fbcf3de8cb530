/* A small attention call and its oracle. */
#include "quick_call.h"

#include "reference.h"

#include <math.h>
#include <stdlib.h>

bool quick_device(cl_device_id *id) {
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    const char *wish = getenv("CLATTN_TEST_DEVICE");
    long left = wish ? strtol(wish, NULL, 10) : 0;
    if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS)
        return false;
    for (cl_uint p = 0; p < platform_count && p < 16; p++) {
        cl_device_id devices[16];
        cl_uint count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &count) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < count && d < 16; d++)
            if (left-- == 0) {
                *id = devices[d];
                return true;
            }
    }
    return false;
}

static double input(int64_t index, uint32_t seed) {
    return reference_u((uint32_t)index, seed);
}

/* A dense tensor [1,1,rows,columns] of u, or of nothing where seed is 0. */
static clattn_tensor make(cl_context context, clattn_dtype dtype, int64_t rows, int64_t columns, uint32_t seed,
                          cl_int *code) {
    const size_t bytes = (size_t)(rows * columns) * clattn_dtype_size(dtype);
    unsigned char host[QUICK_KEYS * QUICK_MAX_DIM * sizeof(float)] = {0};
    for (int64_t i = 0; i < rows * columns && seed; i++)
        reference_encode(dtype, host, i, input(i, seed));
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, host, code);
    return clattn_tensor_dense(buffer, dtype, 4, (const int64_t[]){1, 1, rows, columns});
}

static void drop(const clattn_tensor *tensor) {
    if (tensor->memory.as.buffer)
        clReleaseMemObject(tensor->memory.as.buffer);
}

/* Runs the call with as much workspace as it asks for. */
static clattn_status call_with_workspace(cl_context context, clattn_context *clattn, const clattn_attention_op *op,
                                         clattn_launch *launch) {
    size_t bytes = 0;
    cl_int code = CL_SUCCESS;
    const clattn_status asked = clattn_workspace_size(clattn, &op->head, launch, &bytes);
    if (asked != CLATTN_SUCCESS)
        return asked;
    launch->workspace.size = bytes;
    launch->workspace.buffer = bytes ? clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code) : NULL;
    const clattn_status status = code == CL_SUCCESS ? clattn_attention(clattn, op, launch) : CLATTN_OPENCL_ERROR;
    if (launch->workspace.buffer)
        clReleaseMemObject(launch->workspace.buffer);
    return status;
}

struct quick_result quick_run(cl_context context, cl_command_queue queue, clattn_context *clattn,
                              const struct quick_call *call) {
    struct quick_result result = {.status = CLATTN_OPENCL_ERROR};
    unsigned char host[QUICK_QUERIES * QUICK_MAX_DIM * sizeof(float)];
    cl_int code[4];
    clattn_attention_op op;
    clattn_launch launch;
    clattn_attention_init(&op);
    clattn_launch_init(&launch, queue);
    op.q = make(context, call->dtype, QUICK_QUERIES, call->head_dim, 1, &code[0]);
    op.k = make(context, call->dtype, QUICK_KEYS, call->head_dim, 2, &code[1]);
    op.v = make(context, call->dtype, QUICK_KEYS, call->head_dim, 3, &code[2]);
    op.o = make(context, call->dtype, QUICK_QUERIES, call->head_dim, 0, &code[3]);
    op.causal = call->causal;
    if (code[0] == CL_SUCCESS && code[1] == CL_SUCCESS && code[2] == CL_SUCCESS && code[3] == CL_SUCCESS)
        result.status = call_with_workspace(context, clattn, &op, &launch);
    const size_t bytes = (size_t)(QUICK_QUERIES * call->head_dim) * clattn_dtype_size(call->dtype);
    if (result.status == CLATTN_SUCCESS &&
        clEnqueueReadBuffer(queue, op.o.memory.as.buffer, CL_TRUE, 0, bytes, host, 0, NULL, NULL) != CL_SUCCESS)
        result.status = CLATTN_OPENCL_ERROR;
    for (int64_t i = 0; i < QUICK_QUERIES * call->head_dim && result.status == CLATTN_SUCCESS; i++)
        result.o[i] = reference_decode(call->dtype, host, i);
    drop(&op.q);
    drop(&op.k);
    drop(&op.v);
    drop(&op.o);
    return result;
}

bool quick_is_right(const struct quick_call *call, const struct quick_result *result) {
    const int64_t d = call->head_dim;
    double q[QUICK_QUERIES * QUICK_MAX_DIM], k[QUICK_KEYS * QUICK_MAX_DIM], v[QUICK_KEYS * QUICK_MAX_DIM];
    double o[QUICK_MAX_DIM], lse;
    const double tolerance = call->dtype == CLATTN_F32 ? 1e-5 : call->dtype == CLATTN_F16 ? 2e-3 : 1.6e-2;
    const struct reference_attention problem = {.batch = 1,
                                                .heads = 1,
                                                .kv_heads = 1,
                                                .nq = QUICK_QUERIES,
                                                .nk = QUICK_KEYS,
                                                .head_dim = d,
                                                .value_dim = d,
                                                .scale = 1 / sqrt((double)d),
                                                .causal = call->causal != CLATTN_CAUSAL_NONE,
                                                .top_left = call->causal == CLATTN_CAUSAL_TOP_LEFT,
                                                .window_left = -1,
                                                .window_right = -1};
    if (result->status != CLATTN_SUCCESS)
        return false;
    for (int64_t i = 0; i < QUICK_KEYS * d; i++) {
        q[i % (QUICK_QUERIES * d)] = input(i % (QUICK_QUERIES * d), 1);
        k[i] = input(i, 2);
        v[i] = input(i, 3);
    }
    for (int64_t row = 0; row < QUICK_QUERIES; row++) {
        struct reference_error error = {0};
        reference_attention_row(&problem, q, k, v, row, o, &lse, NULL);
        reference_compare_within(&error, d, result->o + row * d, o, tolerance, tolerance);
        if (error.bad)
            return false;
    }
    return true;
}
