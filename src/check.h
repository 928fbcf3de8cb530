/* Argument checks shared by the front-ends. Every message names the argument and its value. */
#ifndef CLATTN_CHECK_H
#define CLATTN_CHECK_H

#include "device.h"
#include <clattn/clattn.h>

enum check_access { CHECK_INPUT, CHECK_OUTPUT };

/* Present: memory kind, dtype, rank within [1,4], dims >= 0, strides >= 0 (and, for outputs, no two elements on one
 * address), offset >= 0, buffer belongs to the context's cl_context, last element inside the buffer (64-bit overflow
 * refused). A tensor with a zero dim needs no valid buffer. */
clattn_status check_tensor(clattn_context *context, const char *name, const clattn_tensor *tensor,
                           enum check_access access);
clattn_status check_rank(const char *name, const clattn_tensor *tensor, int rank);
clattn_status check_dim(const char *name, const clattn_tensor *tensor, int dim, int64_t expected, const char *meaning);
/* dtype is one of those in the mask of 1 << dtype bits. */
clattn_status check_dtype(const char *name, const clattn_tensor *tensor, unsigned allowed);
/* The stride of the last dim is 1, or the dim is at most 1. */
clattn_status check_innermost_dense(const char *name, const clattn_tensor *tensor);
/* A tensor with its name, for checks over several. */
struct check_named {
    const char *name;
    const clattn_tensor *tensor;
};
#define CHECK_MOST_NAMED 20

/* Refuses outputs that cannot be proven disjoint from each other and from the inputs: tensors[0 .. outputs - 1] are
 * written, the others up to count (at most CHECK_MOST_NAMED) are read. Decided on the parent buffers; disjoint element
 * ranges, or equal strides with offsets that interleave (packed QKV), are accepted. Absent and empty tensors overlap
 * nothing. */
clattn_status check_all_disjoint(const struct check_named *tensors, int outputs, int count);
clattn_status check_disjoint(const char *output_name, const clattn_tensor *output, const char *other_name,
                             const clattn_tensor *other);
/* Same memory, offset, dtype, dims and strides: the documented in-place form. */
bool check_same_view(const clattn_tensor *a, const clattn_tensor *b);
/* The same where the dtypes need only be of one size. */
bool check_same_place(const clattn_tensor *a, const clattn_tensor *b);

/* A view in bytes of the parent buffer; first and end as in a half-open range. */
struct check_extent {
    cl_mem parent;
    int64_t first, end, element;
    const clattn_tensor *tensor;
};
/* One of any number of tensors. */
struct check_member {
    const char *name;
    int index; /* in the array of that name; -1: it is no array's */
    bool written;
    const clattn_tensor *tensor; /* present and not empty */
    struct check_extent extent;  /* made by the check */
};
/* As check_all_disjoint(), for many: sorts the members. */
clattn_status check_members_disjoint(struct check_member *members, int count);
/* Struct size, queue present, on this context and device, wait list consistent, workspace inside its buffer and at
 * least `needed` bytes, aligned. That it overlaps none of the call's tensors is the caller's duty. */
clattn_status check_launch(clattn_context *context, const clattn_launch *launch, size_t needed);
/* A single element of the dtype. */
clattn_status check_scalar(clattn_context *context, const char *name, const clattn_tensor *tensor, clattn_dtype dtype,
                           enum check_access access);
/* context, op not NULL, head.kind as expected, head.size at least `minimum`. */
clattn_status check_op(const clattn_context *context, const clattn_op *op, clattn_op_kind kind, size_t minimum);

/* The product of dims, INT64_MAX where it is larger: a dim of 0 may stand beside dims of any size. */
int64_t check_product(const int64_t *dims, int count);

/* Every row (all strides but the innermost, and the offset) starts at a multiple of `bytes`. */
bool check_aligned(const clattn_tensor *tensor, size_t bytes);

#endif
