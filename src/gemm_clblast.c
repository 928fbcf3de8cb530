/* The matrix product through CLBlast. It takes no wait list and gives one event a kernel, so that its calls stand
 * between two barriers, which also keep it in order on an out-of-order queue. Without CLBlast the variant refuses
 * before anything here is called. */
#include "gemm.h"
#include "status.h"

#ifdef CLATTN_HAVE_CLBLAST
#include <clblast_c.h>

/* CLBlast's own codes lie below OpenCL's. */
static clattn_status status_of(CLBlastStatusCode code) {
    enum { LOWEST_OPENCL_CODE = -1000 };
    if ((int)code > LOWEST_OPENCL_CODE)
        return status_from_cl((cl_int)code, "CLBlast");
    return status_set(CLATTN_INTERNAL_ERROR, "CLBlast refuses the product: its status is %d", (int)code);
}

static clattn_status open_fence(struct sequence *sequence) {
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    sequence_next(sequence, &count, &list, &event);
    const cl_int code = clEnqueueBarrierWithWaitList(sequence->launch->queue, count, list, event);
    return sequence_done(sequence, code, "clEnqueueBarrierWithWaitList");
}

/* The products come after the first fence, so that their event stands for that as well. */
static clattn_status close_fence(struct sequence *sequence, const cl_event *products) {
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    sequence_next(sequence, &count, &list, &event);
    const cl_int code = clEnqueueBarrierWithWaitList(sequence->launch->queue, 1, products, event);
    return sequence_done(sequence, code, "clEnqueueBarrierWithWaitList");
}

/* *all becomes an event that stands for both, and takes them over. */
static clattn_status join(cl_command_queue queue, cl_event *all, cl_event one) {
    const cl_event both[2] = {*all, one};
    cl_event joined = NULL;
    if (*all == NULL) {
        *all = one;
        return CLATTN_SUCCESS;
    }
    const cl_int code = clEnqueueMarkerWithWaitList(queue, 2, both, &joined);
    clReleaseEvent(both[0]);
    clReleaseEvent(one);
    *all = code == CL_SUCCESS ? joined : NULL;
    return status_from_cl(code, "clEnqueueMarkerWithWaitList");
}

/* A matrix as CLBlast takes it; a single row may have any stride. */
struct operand {
    cl_mem buffer;
    size_t offset, row, batch;
};

static struct operand operand_of(const clattn_tensor *tensor, int64_t outer_index, bool by_outer) {
    const struct gemm_view view = gemm_view_of(tensor);
    const int64_t width = tensor->dims[tensor->rank - 1];
    return (struct operand){.buffer = tensor->memory.as.buffer,
                            .offset = (size_t)(view.offset + outer_index * view.outer),
                            .row = (size_t)(view.row > width ? view.row : width),
                            .batch = (size_t)(by_outer ? view.outer : view.inner)};
}

static clattn_status multiply(const clattn_gemm_op *op, const struct problem *problem, const struct operand *a,
                              const struct operand *b, const struct operand *c, int64_t count, cl_command_queue queue,
                              cl_event *event) {
    const CLBlastTranspose ta = problem->transpose_a ? CLBlastTransposeYes : CLBlastTransposeNo;
    const CLBlastTranspose tb = problem->transpose_b ? CLBlastTransposeYes : CLBlastTransposeNo;
    const size_t m = (size_t)problem->m, n = (size_t)problem->n, k = (size_t)problem->k;
    if (count == 1)
        return status_of(CLBlastSgemm(CLBlastLayoutRowMajor, ta, tb, m, n, k, op->alpha, a->buffer, a->offset, a->row,
                                      b->buffer, b->offset, b->row, op->beta, c->buffer, c->offset, c->row, &queue,
                                      event));
    return status_of(CLBlastSgemmStridedBatched(CLBlastLayoutRowMajor, ta, tb, m, n, k, op->alpha, a->buffer, a->offset,
                                                a->row, a->batch, b->buffer, b->offset, b->row, b->batch, op->beta,
                                                c->buffer, c->offset, c->row, c->batch, (size_t)count, &queue, event));
}

/* Both batch dims are one where the outer stride continues the inner. */
static bool is_regular(const clattn_tensor *tensor, int64_t inner) {
    const struct gemm_view view = gemm_view_of(tensor);
    return view.outer == view.inner * inner;
}

static clattn_status multiply_all(const clattn_gemm_op *op, const struct problem *problem, cl_command_queue queue,
                                  cl_event *all) {
    int64_t outer = 0, inner = 0;
    gemm_batches(op, &outer, &inner);
    const bool by_outer = inner == 1;
    const bool one =
        outer == 1 || by_outer || (is_regular(&op->a, inner) && is_regular(&op->b, inner) && is_regular(&op->c, inner));
    for (int64_t i = 0; i < (one ? 1 : outer); i++) {
        const struct operand a = operand_of(&op->a, i, by_outer), b = operand_of(&op->b, i, by_outer),
                             c = operand_of(&op->c, i, by_outer);
        cl_event done = NULL;
        FORWARD(multiply(op, problem, &a, &b, &c, one ? outer * inner : inner, queue, &done));
        FORWARD(join(queue, all, done));
    }
    return CLATTN_SUCCESS;
}

clattn_status gemm_clblast_enqueue(const clattn_gemm_op *op, const struct problem *problem, struct sequence *sequence) {
    cl_event all = NULL;
    FORWARD(open_fence(sequence));
    clattn_status status = multiply_all(op, problem, sequence->launch->queue, &all);
    if (status == CLATTN_SUCCESS)
        status = close_fence(sequence, &all);
    if (all != NULL)
        clReleaseEvent(all);
    return status;
}

#else

clattn_status gemm_clblast_enqueue(const clattn_gemm_op *op, const struct problem *problem, struct sequence *sequence) {
    (void)op, (void)problem, (void)sequence;
    return status_set(CLATTN_UNSUPPORTED, "this library was built without CLBlast");
}

#endif
