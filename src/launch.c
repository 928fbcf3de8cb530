/* Enqueues a call's commands in order. An in-order queue keeps the order by itself; on an out-of-order one each command
 * waits for the event of the one before. */
#include "launch.h"
#include "context.h"
#include "status.h"
#include <stdio.h>
#include <string.h>

void clattn_launch_init(clattn_launch *launch, cl_command_queue queue) {
    memset(launch, 0, sizeof *launch);
    launch->size = sizeof *launch;
    launch->queue = queue;
}

/* ---- the sequence -------------------------------------------------------------------------------------------------
 */

static bool is_in_order(cl_command_queue queue) {
    cl_command_queue_properties properties = 0;
    const cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    return code == CL_SUCCESS && (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
}

void sequence_begin(struct sequence *sequence, clattn_context *context, const clattn_launch *launch, int commands) {
    *sequence = (struct sequence){.context = context, .launch = launch, .remaining = commands};
    sequence->chained = commands > 1 && !is_in_order(launch->queue);
}

void sequence_next(struct sequence *sequence, cl_uint *count, const cl_event **list, cl_event **event) {
    const clattn_launch *launch = sequence->launch;
    if (!sequence->started) {
        *count = launch->num_events_in_wait_list;
        *list = launch->num_events_in_wait_list > 0 ? launch->event_wait_list : NULL;
    } else {
        *count = sequence->previous != NULL ? 1 : 0;
        *list = sequence->previous != NULL ? &sequence->previous : NULL;
    }
    *event = sequence->remaining == 1 ? launch->event : sequence->chained ? &sequence->next : NULL;
}

/* A queue that was valid when the call was checked and is not now belongs to a context that has died. */
static clattn_status enqueue_failure(cl_int code, const char *what) {
    const clattn_status status = status_from_cl(code, what);
    return code == CL_INVALID_COMMAND_QUEUE ? CLATTN_DEVICE_LOST : status;
}

clattn_status sequence_done(struct sequence *sequence, cl_int code, const char *what) {
    if (code != CL_SUCCESS)
        return enqueue_failure(code, what); /* `next` is not read again, whatever the failed command wrote there */
    RETURN_IF(sequence->remaining < 1, CLATTN_INTERNAL_ERROR, "%s: more commands than the call has", what);
    if (sequence->previous != NULL)
        clReleaseEvent(sequence->previous);
    sequence->previous = sequence->next;
    sequence->next = NULL;
    sequence->started = true;
    sequence->remaining--;
    return CLATTN_SUCCESS;
}

clattn_status sequence_empty(clattn_context *context, const clattn_launch *launch) {
    if (launch->event == NULL)
        return CLATTN_SUCCESS;
    struct sequence sequence;
    sequence_begin(&sequence, context, launch, 1);
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    sequence_next(&sequence, &count, &list, &event);
    const cl_int code = clEnqueueMarkerWithWaitList(launch->queue, count, list, event);
    return sequence_done(&sequence, code, "clEnqueueMarkerWithWaitList");
}

void sequence_end(struct sequence *sequence) {
    if (sequence->previous != NULL)
        clReleaseEvent(sequence->previous);
    sequence->previous = NULL;
}

/* ---- one kernel ---------------------------------------------------------------------------------------------------
 */

void launch_begin(struct launch *launch, struct program *program) {
    *launch = (struct launch){.program = program, .code = CL_SUCCESS};
    launch->status = program_acquire_kernel(program, &launch->kernel);
}

/* After a failure nothing more is set, so that `argument` still tells which one it was. */
static void set_argument(struct launch *launch, const void *value, size_t size) {
    if (launch->status != CLATTN_SUCCESS || launch->code != CL_SUCCESS)
        return;
    launch->code = clSetKernelArg(launch->kernel, launch->argument, size, value);
    if (launch->code == CL_SUCCESS)
        launch->argument++;
}

void launch_buffer(struct launch *launch, cl_mem buffer) {
    set_argument(launch, (const void *)&buffer, sizeof buffer);
}

void launch_int(struct launch *launch, int32_t value) {
    set_argument(launch, &value, sizeof value);
}

void launch_float(struct launch *launch, float value) {
    set_argument(launch, &value, sizeof value);
}

void launch_long(struct launch *launch, int64_t value) {
    set_argument(launch, &value, sizeof value);
}

void launch_struct(struct launch *launch, const void *value, size_t size) {
    set_argument(launch, value, size);
}

static clattn_status check_group(const struct launch *launch, int dims, const size_t *local) {
    size_t items = 1;
    for (int i = 0; i < dims; i++)
        items *= local[i];
    RETURN_IF(items > program_max_group(launch->program), CLATTN_INTERNAL_ERROR,
              "%s: work-group of %zu work-items, the kernel's limit is %zu", program_name(launch->program), items,
              program_max_group(launch->program));
    return CLATTN_SUCCESS;
}

static clattn_status check_arguments(const struct launch *launch) {
    if (launch->code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    char what[256];
    snprintf(what, sizeof what, "argument %u of kernel %s", (unsigned)launch->argument, program_name(launch->program));
    return status_from_cl(launch->code, what);
}

static clattn_status enqueue_kernel(const struct launch *launch, struct sequence *sequence, int dims,
                                    const size_t *groups, const size_t *local) {
    FORWARD(check_arguments(launch));
    FORWARD(check_group(launch, dims, local));
    size_t global[3] = {1, 1, 1};
    for (int i = 0; i < dims; i++)
        global[i] = groups[i] * local[i];
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    sequence_next(sequence, &count, &list, &event);
    const cl_int code = clEnqueueNDRangeKernel(sequence->launch->queue, launch->kernel, (cl_uint)dims, NULL, global,
                                               local, count, list, event);
    FORWARD(sequence_done(sequence, code, program_name(launch->program)));
    __atomic_add_fetch(&sequence->context->launches, 1, __ATOMIC_RELAXED);
    return CLATTN_SUCCESS;
}

clattn_status launch_enqueue(struct launch *launch, struct sequence *sequence, int dims, const size_t *groups,
                             const size_t *local) {
    if (launch->status != CLATTN_SUCCESS)
        return launch->status;
    const clattn_status status = enqueue_kernel(launch, sequence, dims, groups, local);
    program_release_kernel(launch->program, launch->kernel);
    return status;
}
