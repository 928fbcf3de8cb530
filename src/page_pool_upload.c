/* Writes page tables and lengths to the device. Writes do not block, so that each has a copy of its own, which the end
 * of the command frees. */
#include "check.h"
#include "launch.h"
#include "page_pool.h"
#include "status.h"
#include "tensor.h"

#include <stdlib.h>

static clattn_status check_table(clattn_context *context, const char *name, const clattn_tensor *tensor, int rank,
                                 int32_t count, int32_t width) {
    if (tensor == NULL || !tensor_is_present(tensor))
        return CLATTN_SUCCESS;
    FORWARD(check_dtype(name, tensor, 1u << CLATTN_I32));
    FORWARD(check_tensor(context, name, tensor, CHECK_OUTPUT));
    FORWARD(check_rank(name, tensor, rank));
    FORWARD(check_dim(name, tensor, 0, count, "count"));
    if (rank == 2)
        FORWARD(check_dim(name, tensor, 1, width, "max_pages"));
    return check_innermost_dense(name, tensor);
}

static void CL_CALLBACK free_copy(cl_event event, cl_int state, void *copy) {
    (void)event;
    (void)state;
    free(copy);
}

/* Leaves the copy to the command's event, or to nobody where that fails: then the queue is waited for. */
static clattn_status hand_over(struct sequence *sequence, cl_event event, void *copy) {
    if (clSetEventCallback(event, CL_COMPLETE, free_copy, copy) == CL_SUCCESS)
        return CLATTN_SUCCESS;
    const cl_int code = clFinish(sequence->launch->queue);
    if (code == CL_SUCCESS) /* else the device may still read it */
        free(copy);
    return status_from_cl(code, "clFinish");
}

/* Rows of `width` ints, dense in copy, `pitch` apart in the buffer. A rectangle costs drivers more
 * than a run of bytes. */
static cl_int enqueue_write(cl_command_queue queue, const clattn_tensor *to, const int32_t *copy, size_t rows,
                            size_t width, size_t pitch, cl_uint count, const cl_event *list, cl_event *event) {
    const size_t size = sizeof *copy;
    const size_t origin[3] = {(size_t)to->offset * size, 0, 0}, none[3] = {0, 0, 0},
                 region[3] = {width * size, rows, 1};
    cl_mem buffer = to->memory.as.buffer;
    if (rows == 1 || pitch == width)
        return clEnqueueWriteBuffer(queue, buffer, CL_FALSE, origin[0], rows * region[0], copy, count, list, event);
    return clEnqueueWriteBufferRect(queue, buffer, CL_FALSE, origin, none, region, pitch * size, 0, region[0], 0, copy,
                                    count, list, event);
}

static clattn_status write(struct sequence *sequence, const clattn_tensor *to, int32_t *copy, size_t rows, size_t width,
                           size_t pitch) {
    cl_uint count;
    const cl_event *list;
    cl_event *event, own = NULL;
    sequence_next(sequence, &count, &list, &event);
    cl_event *made = event != NULL ? event : &own;
    const cl_int code = enqueue_write(sequence->launch->queue, to, copy, rows, width, pitch, count, list, made);
    if (code != CL_SUCCESS) {
        free(copy);
        return sequence_done(sequence, code, "clEnqueueWriteBuffer");
    }
    const clattn_status status = hand_over(sequence, *made, copy);
    if (own != NULL)
        clReleaseEvent(own);
    FORWARD(sequence_done(sequence, code, "clEnqueueWriteBuffer"));
    return status;
}

/* What is to be written; NULL where nothing is. */
struct copies {
    int32_t *table, *lengths;
};

static clattn_status make_copies(clattn_page_pool *pool, int32_t count, const int32_t *sequences, bool with_table,
                                 bool with_lengths, struct copies *copies) {
    const size_t width = (size_t)page_pool_width(pool);
    *copies = (struct copies){with_table ? malloc((size_t)count * width * sizeof(int32_t)) : NULL,
                              with_lengths ? malloc((size_t)count * sizeof(int32_t)) : NULL};
    clattn_status status = CLATTN_SUCCESS;
    if ((with_table && copies->table == NULL) || (with_lengths && copies->lengths == NULL))
        status = status_set(CLATTN_OUT_OF_HOST_MEMORY, "page pool: out of host memory for a table");
    if (status == CLATTN_SUCCESS)
        status = page_pool_snapshot(pool, count, sequences, copies->table, copies->lengths);
    if (status == CLATTN_SUCCESS)
        return status;
    free(copies->table);
    free(copies->lengths);
    return status;
}

static clattn_status write_copies(struct sequence *sequence, const clattn_tensor *table, const clattn_tensor *lengths,
                                  struct copies copies) {
    if (copies.table != NULL) {
        const clattn_status status = write(sequence, table, copies.table, (size_t)table->dims[0],
                                           (size_t)table->dims[1], (size_t)table->strides[0]);
        if (status != CLATTN_SUCCESS) {
            free(copies.lengths);
            return status;
        }
    }
    return copies.lengths != NULL ? write(sequence, lengths, copies.lengths, 1, (size_t)lengths->dims[0], 0)
                                  : CLATTN_SUCCESS;
}

clattn_status clattn_page_pool_upload(clattn_context *context, clattn_page_pool *pool, int32_t count,
                                      const int32_t *sequences, const clattn_tensor *table,
                                      const clattn_tensor *lengths, const clattn_launch *launch) {
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(pool == NULL, CLATTN_INVALID_ARGUMENT, "pool is NULL");
    RETURN_IF(count < 0, CLATTN_INVALID_ARGUMENT, "count = %d is negative", (int)count);
    RETURN_IF(sequences == NULL && count > 0, CLATTN_INVALID_ARGUMENT, "sequences is NULL");
    FORWARD(check_table(context, "table", table, 2, count, page_pool_width(pool)));
    FORWARD(check_table(context, "lengths", lengths, 1, count, 0));
    FORWARD(check_launch(context, launch, 0));
    const bool with_table = table != NULL && tensor_is_present(table) && !tensor_is_empty(table);
    const bool with_lengths = lengths != NULL && tensor_is_present(lengths) && count > 0;
    if (with_table && with_lengths)
        FORWARD(check_disjoint("table", table, "lengths", lengths));
    if (!with_table && !with_lengths)
        return sequence_empty(context, launch);
    struct copies copies;
    struct sequence sequence;
    FORWARD(make_copies(pool, count, sequences, with_table, with_lengths, &copies));
    sequence_begin(&sequence, context, launch, (with_table ? 1 : 0) + (with_lengths ? 1 : 0));
    const clattn_status status = write_copies(&sequence, table, lengths, copies);
    sequence_end(&sequence);
    return status;
}
