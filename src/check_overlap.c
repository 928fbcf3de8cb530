/* Checks of two tensors and more: are they the same memory, and can they be proven to share none? */
#include "check.h"
#include "status.h"
#include "tensor.h"

bool check_same_view(const clattn_tensor *a, const clattn_tensor *b) {
    if (a->memory.kind != b->memory.kind || a->memory.as.buffer != b->memory.as.buffer || a->offset != b->offset ||
        a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || (a->dims[i] > 1 && a->strides[i] != b->strides[i]))
            return false;
    return true;
}

/* A view in bytes of the parent buffer; first and end as in a half-open range. */
struct extent {
    cl_mem parent;
    int64_t first, end, element;
    const clattn_tensor *tensor;
};

static clattn_status make_extent(const char *name, const clattn_tensor *tensor, struct extent *out) {
    const cl_mem buffer = tensor->memory.as.buffer;
    cl_mem parent = NULL;
    size_t origin = 0;
    cl_int code = clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL);
    if (code == CL_SUCCESS && parent != NULL)
        code = clGetMemObjectInfo(buffer, CL_MEM_OFFSET, sizeof origin, &origin, NULL);
    RETURN_IF(code != CL_SUCCESS, CLATTN_INVALID_ARGUMENT, "%s: the buffer is no valid cl_mem: %s (%d)", name,
              status_cl_name(code), (int)code);
    out->tensor = tensor;
    out->parent = parent != NULL ? parent : buffer;
    out->element = (int64_t)clattn_dtype_size(tensor->dtype);
    RETURN_IF(!tensor_end_in_bytes(tensor, &out->end), CLATTN_INVALID_ARGUMENT,
              "%s: its dims and strides exceed 64-bit sizes", name);
    out->first = (int64_t)origin + tensor->offset * out->element;
    out->end += (int64_t)origin;
    return CLATTN_SUCCESS;
}

/* Modulo `period` bytes: how wide is the block that all elements fall into, when strides below the period span it and
 * those above are whole multiples of it? False where one is not, or the block is wider than the period. */
static bool block_width(const struct extent *extent, int64_t period, int64_t *width) {
    const clattn_tensor *tensor = extent->tensor;
    *width = extent->element;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dims[i] < 2) /* its stride may be anything */
            continue;
        const int64_t stride = tensor->strides[i] * extent->element;
        if (stride % period == 0)
            continue;
        if (stride > period)
            return false;
        *width += (tensor->dims[i] - 1) * stride;
    }
    return *width <= period;
}

/* Blocks on a circle of `period` bytes that do not meet. */
static bool interleave(const struct extent *a, const struct extent *b, int64_t period) {
    int64_t width_a = 0, width_b = 0;
    if (!block_width(a, period, &width_a) || !block_width(b, period, &width_b))
        return false;
    int64_t distance = (b->first - a->first) % period;
    if (distance < 0)
        distance += period;
    return distance >= width_a && width_b <= period - distance;
}

static bool proven_disjoint(const struct extent *a, const struct extent *b) {
    if (a->parent != b->parent || a->end <= b->first || b->end <= a->first)
        return true;
    /* Any stride of the output may be the one that both share. */
    for (int i = 0; i < a->tensor->rank; i++) {
        const int64_t period = a->tensor->dims[i] > 1 ? a->tensor->strides[i] * a->element : 0;
        if (period > 0 && interleave(a, b, period))
            return true;
    }
    return false;
}

clattn_status check_all_disjoint(const struct check_named *tensors, int outputs, int count) {
    struct extent extents[CHECK_MOST_NAMED] = {{0}};
    for (int i = 0; i < count; i++)
        if (tensor_is_present(tensors[i].tensor) && !tensor_is_empty(tensors[i].tensor))
            FORWARD(make_extent(tensors[i].name, tensors[i].tensor, &extents[i]));
    for (int i = 0; i < outputs; i++)
        for (int j = i + 1; j < count; j++)
            RETURN_IF(extents[i].tensor != NULL && extents[j].tensor != NULL &&
                          !proven_disjoint(&extents[i], &extents[j]),
                      CLATTN_INVALID_ARGUMENT, "%s overlaps %s in memory", tensors[i].name, tensors[j].name);
    return CLATTN_SUCCESS;
}

clattn_status check_disjoint(const char *output_name, const clattn_tensor *output, const char *other_name,
                             const clattn_tensor *other) {
    const struct check_named pair[] = {{output_name, output}, {other_name, other}};
    return check_all_disjoint(pair, 1, 2);
}
