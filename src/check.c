/* Checks of single tensors and of the call around them. */
#include "check.h"
#include "context.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORKSPACE_ALIGN 256

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static clattn_status check_known_dtype(const char *name, const clattn_tensor *tensor) {
    RETURN_IF(tensor_dtype_bits(tensor->dtype) == 0, CLATTN_INVALID_ARGUMENT,
              "%s: dtype %d is unknown; known are f32 (%d), f16 (%d), bf16 (%d), u8 (%d), i32 (%d), i8 (%d), i4 (%d), "
              "f8_e4m3 (%d)",
              name, (int)tensor->dtype, CLATTN_F32, CLATTN_F16, CLATTN_BF16, CLATTN_U8, CLATTN_I32, CLATTN_I8,
              CLATTN_I4, CLATTN_F8_E4M3);
    return CLATTN_SUCCESS;
}

static clattn_status check_shape(const char *name, const clattn_tensor *tensor) {
    RETURN_IF(!tensor_is_present(tensor), CLATTN_INVALID_ARGUMENT, "%s is absent", name);
    RETURN_IF(tensor->memory.kind != CLATTN_MEMORY_BUFFER, CLATTN_INVALID_ARGUMENT, "%s: memory kind %d is unknown",
              name, (int)tensor->memory.kind);
    FORWARD(check_known_dtype(name, tensor));
    RETURN_IF(tensor->rank < 1 || tensor->rank > CLATTN_MAX_RANK, CLATTN_INVALID_ARGUMENT,
              "%s: rank %d is not in 1..%d", name, (int)tensor->rank, CLATTN_MAX_RANK);
    RETURN_IF(tensor->offset < 0, CLATTN_INVALID_ARGUMENT, "%s: offset %" PRId64 " is negative", name, tensor->offset);
    for (int i = 0; i < tensor->rank; i++) {
        RETURN_IF(tensor->dims[i] < 0, CLATTN_INVALID_ARGUMENT, "%s: dims[%d] = %" PRId64 " is negative", name, i,
                  tensor->dims[i]);
        RETURN_IF(tensor->strides[i] < 0, CLATTN_INVALID_ARGUMENT, "%s: strides[%d] = %" PRId64 " is negative", name, i,
                  tensor->strides[i]);
    }
    return CLATTN_SUCCESS;
}

/* With the dims sorted by stride, each stride must step over all that the smaller ones span. */
static bool overlaps_itself(const clattn_tensor *tensor) {
    int order[CLATTN_MAX_RANK], count = 0;
    int64_t span = 0; /* last element of the smaller dims; fits, because the whole does */
    for (int i = 0; i < tensor->rank; i++) {
        int at = count;
        if (tensor->dims[i] < 2)
            continue;
        for (; at > 0 && tensor->strides[order[at - 1]] > tensor->strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        count++;
    }
    for (int i = 0; i < count; i++) {
        if (tensor->strides[order[i]] <= span)
            return true;
        span += (tensor->dims[order[i]] - 1) * tensor->strides[order[i]];
    }
    return false;
}

/* The buffer's bytes, where it is a buffer of the context. */
static clattn_status buffer_size(const clattn_context *context, const char *name, cl_mem buffer, size_t *size) {
    cl_context owner = NULL;
    cl_mem_object_type type = 0;
    RETURN_IF(buffer == NULL, CLATTN_INVALID_ARGUMENT, "%s: the buffer is NULL", name);
    cl_int code = clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof type, &type, NULL);
    if (code == CL_SUCCESS)
        code = clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof owner, &owner, NULL);
    if (code == CL_SUCCESS)
        code = clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof *size, size, NULL);
    RETURN_IF(code != CL_SUCCESS, CLATTN_INVALID_ARGUMENT, "%s: the buffer is no valid cl_mem: %s (%d)", name,
              status_cl_name(code), (int)code);
    RETURN_IF(type != CL_MEM_OBJECT_BUFFER, CLATTN_INVALID_ARGUMENT, "%s: the cl_mem is no buffer", name);
    RETURN_IF(owner != context->cl, CLATTN_INVALID_ARGUMENT, "%s: the buffer is of another cl_context", name);
    return CLATTN_SUCCESS;
}

clattn_status check_tensor(clattn_context *context, const char *name, const clattn_tensor *tensor,
                           enum check_access access) {
    int64_t end = 0;
    size_t size = 0;
    FORWARD(check_shape(name, tensor));
    if (tensor_is_empty(tensor))
        return CLATTN_SUCCESS;
    RETURN_IF(!tensor_end_in_bytes(tensor, &end), CLATTN_INVALID_ARGUMENT,
              "%s: its dims and strides exceed 64-bit sizes", name);
    FORWARD(buffer_size(context, name, tensor->memory.as.buffer, &size));
    RETURN_IF((uint64_t)end > size, CLATTN_INVALID_ARGUMENT,
              "%s reaches byte %" PRId64 " of a buffer of %zu bytes (offset %" PRId64 ")", name, end, size,
              tensor->offset);
    RETURN_IF(access == CHECK_OUTPUT && overlaps_itself(tensor), CLATTN_INVALID_ARGUMENT,
              "%s is written and its strides do not keep its elements apart", name);
    return CLATTN_SUCCESS;
}

clattn_status check_rank(const char *name, const clattn_tensor *tensor, int rank) {
    RETURN_IF(tensor->rank != rank, CLATTN_INVALID_ARGUMENT, "%s: rank is %d, must be %d", name, (int)tensor->rank,
              rank);
    return CLATTN_SUCCESS;
}

clattn_status check_dim(const char *name, const clattn_tensor *tensor, int dim, int64_t expected, const char *meaning) {
    RETURN_IF(tensor->dims[dim] != expected, CLATTN_INVALID_ARGUMENT,
              "%s: dims[%d] = %" PRId64 ", must be %" PRId64 " (%s)", name, dim, tensor->dims[dim], expected, meaning);
    return CLATTN_SUCCESS;
}

clattn_status check_dtype(const char *name, const clattn_tensor *tensor, unsigned allowed) {
    char names[64] = "";
    FORWARD(check_known_dtype(name, tensor));
    if ((allowed & (1u << (unsigned)tensor->dtype)) != 0)
        return CLATTN_SUCCESS;
    for (int dtype = CLATTN_F32; dtype <= CLATTN_F8_E4M3; dtype++)
        if ((allowed & (1u << dtype)) != 0)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] != '\0' ? " or " : "",
                     tensor_dtype_name((clattn_dtype)dtype));
    return status_set(CLATTN_INVALID_ARGUMENT, "%s: dtype is %s, must be %s", name, tensor_dtype_name(tensor->dtype),
                      names);
}

clattn_status check_scalar(clattn_context *context, const char *name, const clattn_tensor *tensor, clattn_dtype dtype,
                           enum check_access access) {
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_dtype(name, tensor, 1u << dtype));
    const int64_t elements = check_product(tensor->dims, tensor->rank);
    RETURN_IF(elements != 1, CLATTN_INVALID_ARGUMENT, "%s has %" PRId64 " elements, must have 1", name, elements);
    return CLATTN_SUCCESS;
}

clattn_status check_innermost_dense(const char *name, const clattn_tensor *tensor) {
    const int last = tensor->rank - 1;
    RETURN_IF(tensor->dims[last] > 1 && tensor->strides[last] != 1, CLATTN_INVALID_ARGUMENT,
              "%s: strides[%d] = %" PRId64 ", the innermost stride must be 1", name, last, tensor->strides[last]);
    return CLATTN_SUCCESS;
}

int64_t check_product(const int64_t *dims, int count) {
    int64_t product = 1;
    for (int i = 0; i < count; i++)
        if (dims[i] == 0)
            return 0;
    for (int i = 0; i < count; i++)
        if (__builtin_mul_overflow(product, dims[i], &product))
            return INT64_MAX;
    return product;
}

bool check_aligned(const clattn_tensor *tensor, size_t bytes) {
    const int64_t element = (int64_t)clattn_dtype_size(tensor->dtype), step = (int64_t)bytes;
    void *host = NULL;
    if (!tensor_is_present(tensor) || tensor_is_empty(tensor))
        return true;
    if (tensor->offset % step * element % step != 0)
        return false;
    for (int i = 0; i < tensor->rank - 1; i++)
        if (tensor->dims[i] > 1 && tensor->strides[i] % step * element % step != 0)
            return false;
    if (tensor->memory.as.buffer == NULL)
        return true; /* a step's place in a workspace that is not there yet */
    /* Memory of the caller's own (CL_MEM_USE_HOST_PTR) may start anywhere; CPU devices use it in place. */
    if (clGetMemObjectInfo(tensor->memory.as.buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL) != CL_SUCCESS)
        return false;
    return (uintptr_t)host % bytes == 0;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static clattn_status check_queue(const clattn_context *context, cl_command_queue queue) {
    cl_context owner = NULL;
    cl_device_id device = NULL;
    RETURN_IF(queue == NULL, CLATTN_INVALID_ARGUMENT, "launch: queue is NULL");
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL);
    if (code == CL_SUCCESS)
        code = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL);
    RETURN_IF(code != CL_SUCCESS, CLATTN_INVALID_ARGUMENT, "launch: queue is no valid cl_command_queue: %s (%d)",
              status_cl_name(code), (int)code);
    RETURN_IF(owner != context->cl, CLATTN_INVALID_ARGUMENT, "launch: queue is of another cl_context");
    RETURN_IF(device != context->device, CLATTN_INVALID_ARGUMENT, "launch: queue is on another device");
    return CLATTN_SUCCESS;
}

static clattn_status check_wait_list(const clattn_launch *launch) {
    const cl_uint count = launch->num_events_in_wait_list;
    RETURN_IF((count == 0) != (launch->event_wait_list == NULL), CLATTN_INVALID_ARGUMENT,
              "launch: event_wait_list is %s while num_events_in_wait_list is %u",
              launch->event_wait_list == NULL ? "NULL" : "set", (unsigned)count);
    for (cl_uint i = 0; i < count; i++)
        RETURN_IF(launch->event_wait_list[i] == NULL, CLATTN_INVALID_ARGUMENT, "launch: event_wait_list[%u] is NULL",
                  (unsigned)i);
    return CLATTN_SUCCESS;
}

static clattn_status check_workspace(const clattn_context *context, const clattn_workspace *workspace, size_t needed) {
    size_t size = 0;
    RETURN_IF(workspace->buffer == NULL, CLATTN_WORKSPACE_TOO_SMALL, "workspace: %zu bytes are needed, none are given",
              needed);
    RETURN_IF(workspace->size < needed, CLATTN_WORKSPACE_TOO_SMALL, "workspace: %zu bytes are needed, %zu are given",
              needed, workspace->size);
    RETURN_IF(workspace->offset % WORKSPACE_ALIGN != 0, CLATTN_INVALID_ARGUMENT,
              "workspace: offset %zu is no multiple of %d", workspace->offset, WORKSPACE_ALIGN);
    FORWARD(buffer_size(context, "workspace", workspace->buffer, &size));
    RETURN_IF(workspace->offset > size || workspace->size > size - workspace->offset, CLATTN_INVALID_ARGUMENT,
              "workspace: %zu bytes from %zu do not lie in a buffer of %zu", workspace->size, workspace->offset, size);
    return CLATTN_SUCCESS;
}

clattn_status check_launch(clattn_context *context, const clattn_launch *launch, size_t needed) {
    RETURN_IF(launch == NULL, CLATTN_INVALID_ARGUMENT, "launch is NULL");
    RETURN_IF(launch->size < sizeof *launch, CLATTN_INVALID_ARGUMENT,
              "launch: size is %zu; was clattn_launch_init() called?", launch->size);
    FORWARD(check_queue(context, launch->queue));
    FORWARD(check_wait_list(launch));
    return needed > 0 ? check_workspace(context, &launch->workspace, needed) : CLATTN_SUCCESS;
}

clattn_status check_op(const clattn_context *context, const clattn_op *op, clattn_op_kind kind, size_t minimum) {
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(op == NULL, CLATTN_INVALID_ARGUMENT, "op is NULL");
    RETURN_IF(op->kind != kind, CLATTN_INVALID_ARGUMENT, "op: kind is %d, must be %d", (int)op->kind, (int)kind);
    RETURN_IF(op->size < minimum, CLATTN_INVALID_ARGUMENT, "op: size is %zu, at least %zu; was it initialised?",
              op->size, minimum);
    return CLATTN_SUCCESS;
}
