/* Checks of two tensors and more: are they the same memory, and can they be proven to share none? */
#include "check.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>

bool check_same_view(const clattn_tensor *a, const clattn_tensor *b) {
    if (a->memory.kind != b->memory.kind || a->memory.as.buffer != b->memory.as.buffer || a->offset != b->offset ||
        a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || (a->dims[i] > 1 && a->strides[i] != b->strides[i]))
            return false;
    return true;
}

bool check_same_place(const clattn_tensor *a, const clattn_tensor *b) {
    clattn_tensor alike = *b;
    alike.dtype = a->dtype;
    return clattn_dtype_size(a->dtype) == clattn_dtype_size(b->dtype) && check_same_view(a, &alike);
}

static clattn_status make_extent(const char *name, const clattn_tensor *tensor, struct check_extent *out) {
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
static bool block_width(const struct check_extent *extent, int64_t period, int64_t *width) {
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
static bool interleave(const struct check_extent *a, const struct check_extent *b, int64_t period) {
    int64_t width_a = 0, width_b = 0;
    if (!block_width(a, period, &width_a) || !block_width(b, period, &width_b))
        return false;
    int64_t distance = (b->first - a->first) % period;
    if (distance < 0)
        distance += period;
    return distance >= width_a && width_b <= period - distance;
}

static bool proven_disjoint(const struct check_extent *a, const struct check_extent *b) {
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
    struct check_extent extents[CHECK_MOST_NAMED] = {{0}};
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

/* ---- many -------------------------------------------------------------------------------------------------------- */

static int by_memory(const void *a, const void *b) {
    const struct check_extent *x = &((const struct check_member *)a)->extent;
    const struct check_extent *y = &((const struct check_member *)b)->extent;
    if (x->parent != y->parent)
        return (uintptr_t)x->parent < (uintptr_t)y->parent ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static void name_member(const struct check_member *member, char *name, size_t size) {
    if (member->index < 0)
        snprintf(name, size, "%s", member->name);
    else
        snprintf(name, size, "%s[%d]", member->name, member->index);
}

static clattn_status refuse_pair(const struct check_member *written, const struct check_member *other) {
    char name[48], other_name[48];
    name_member(written, name, sizeof name);
    name_member(other, other_name, sizeof other_name);
    return status_set(CLATTN_INVALID_ARGUMENT, "%s overlaps %s in memory", name, other_name);
}

clattn_status check_members_disjoint(struct check_member *members, int count) {
    for (int i = 0; i < count; i++)
        FORWARD(make_extent(members[i].name, members[i].tensor, &members[i].extent));
    qsort(members, (size_t)count, sizeof *members, by_memory);
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count && members[j].extent.parent == members[i].extent.parent &&
                            members[j].extent.first < members[i].extent.end;
             j++) {
            const struct check_member *written = members[i].written ? &members[i] : &members[j];
            const struct check_member *other = members[i].written ? &members[j] : &members[i];
            if (written->written && !proven_disjoint(&written->extent, &other->extent))
                return refuse_pair(written, other);
        }
    return CLATTN_SUCCESS;
}
