/* A rank's call of any of the ring's operations: check, agree, run, agree. */
#include "ring_call.h"
#include "status.h"

#include <string.h>

#define HOST_ALIGN 64

void clattn_ring_launch_init(clattn_ring_launch *launch, cl_command_queue queue, cl_command_queue copy_queue,
                             const clattn_ring_transport *transport) {
    memset(launch, 0, sizeof *launch);
    launch->size = sizeof *launch;
    launch->queue = queue;
    launch->copy_queue = copy_queue;
    launch->transport = transport;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_launch_size(const clattn_ring_launch *launch) {
    RETURN_IF(launch == NULL, CLATTN_INVALID_ARGUMENT, "launch is NULL");
    RETURN_IF(launch->size < sizeof *launch, CLATTN_INVALID_ARGUMENT,
              "launch: size is %zu; was clattn_ring_launch_init() called?", launch->size);
    return ring_check_transport(launch->transport);
}

static clattn_status check_queues(clattn_context *context, const clattn_ring_launch *launch, size_t workspace) {
    const clattn_launch compute = {.size = sizeof compute,
                                   .queue = launch->queue,
                                   .num_events_in_wait_list = launch->num_events_in_wait_list,
                                   .event_wait_list = launch->event_wait_list,
                                   .workspace = launch->workspace};
    const clattn_launch copy = {.size = sizeof copy, .queue = launch->copy_queue};
    FORWARD(check_launch(context, &compute, workspace));
    const clattn_status status = check_launch(context, &copy, 0);
    return status == CLATTN_SUCCESS ? status : status_set(status, "copy_queue: %s", clattn_last_error());
}

static clattn_status check_host(const clattn_ring_launch *launch, size_t bytes) {
    RETURN_IF(bytes > 0 && launch->host == NULL, CLATTN_INVALID_ARGUMENT, "host is NULL, and %zu bytes are needed",
              bytes);
    RETURN_IF((uintptr_t)launch->host % HOST_ALIGN != 0, CLATTN_INVALID_ARGUMENT, "host: %p is not aligned to %d bytes",
              launch->host, HOST_ALIGN);
    RETURN_IF(launch->host_size < bytes, CLATTN_WORKSPACE_TOO_SMALL, "host_size: %zu bytes are given, %zu are needed",
              launch->host_size, bytes);
    return CLATTN_SUCCESS;
}

/* Everything that this rank can be refused for. */
static clattn_status plan(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch,
                          const struct ring_kind *kind, struct ring_sizes *sizes) {
    FORWARD(kind->plan(context, op, launch, false, sizes));
    FORWARD(check_queues(context, launch, sizes->device));
    FORWARD(check_host(launch, sizes->host));
    /* Self-tests run kernels: what is refused without them has been refused by now. */
    FORWARD(kind->plan(context, op, launch, true, sizes));
    return check_queues(context, launch, sizes->device);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static const struct ring_kind *kind_of(const clattn_op *op) {
    static const struct ring_kind *const kinds[] = {&ring_attention, &ring_attention_backward, &ring_decode};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (op != NULL && op->kind == kinds[i]->kind)
            return kinds[i];
    return NULL;
}

clattn_status clattn_ring_staging(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch,
                                  size_t *device_bytes, size_t *host_bytes) {
    struct ring_sizes sizes = {0};
    RETURN_IF(device_bytes == NULL, CLATTN_INVALID_ARGUMENT, "device_bytes is NULL");
    RETURN_IF(host_bytes == NULL, CLATTN_INVALID_ARGUMENT, "host_bytes is NULL");
    *device_bytes = *host_bytes = 0;
    FORWARD(check_launch_size(launch));
    RETURN_IF(op == NULL, CLATTN_INVALID_ARGUMENT, "op is NULL");
    const struct ring_kind *kind = kind_of(op);
    RETURN_IF(kind == NULL, CLATTN_INVALID_ARGUMENT, "op: kind %d is none of clattn/ring.h", (int)op->kind);
    FORWARD(kind->plan(context, op, launch, false, &sizes));
    *device_bytes = sizes.device;
    *host_bytes = sizes.host;
    return CLATTN_SUCCESS;
}

/* Leaves nothing running, whatever was enqueued. */
static void drain(const clattn_ring_launch *launch, cl_event *event) {
    (void)clFinish(launch->copy_queue);
    (void)clFinish(launch->queue);
    if (*event != NULL)
        clReleaseEvent(*event);
    *event = NULL;
}

static void hand_over(const clattn_ring_launch *launch, cl_event event) {
    if (launch->event != NULL)
        *launch->event = event;
    else if (event != NULL)
        clReleaseEvent(event);
}

clattn_status ring_call(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch,
                        const struct ring_kind *kind) {
    struct ring_sizes sizes = {0};
    struct ring_talk talk;
    cl_event event = NULL;
    FORWARD(check_launch_size(launch));
    ring_talk_begin(&talk, launch->transport);
    ring_note(&talk, plan(context, op, launch, kind, &sizes));
    if (ring_agree(&talk, sizes.digest)) {
        kind->run(context, op, launch, &talk, &event);
        if (talk.status != CLATTN_SUCCESS) /* before others learn of it, whose memory may be in use */
            drain(launch, &event);
        if (!ring_agree(&talk, 0))
            drain(launch, &event);
        else
            hand_over(launch, event);
    }
    if (launch->waited != NULL)
        *launch->waited = (double)talk.waited_ns * 1e-9;
    return ring_talk_end(&talk);
}
