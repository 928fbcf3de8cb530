/* Staging of keys and values between ranks. */
#include "ring_stage.h"
#include "operation.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

size_t ring_slot_bytes(const struct ring_blocks *blocks) {
    return blocks->ranks > 1 ? ring_largest_block(blocks) : 0;
}

static int32_t device_slots(const struct ring_blocks *blocks) {
    return blocks->ranks - 1 < RING_SLOTS ? blocks->ranks - 1 : RING_SLOTS;
}

size_t ring_device_bytes(const struct ring_blocks *blocks) {
    return (size_t)device_slots(blocks) * ring_slot_bytes(blocks);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void ring_event_keep(cl_event *event, cl_event by) {
    if (*event != NULL)
        clReleaseEvent(*event);
    *event = by;
}

clattn_status ring_event_await(cl_event event) {
    if (event != NULL)
        FORWARD_CL(clWaitForEvents(1, &event), "clWaitForEvents of a transfer to or from the device");
    return CLATTN_SUCCESS;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int32_t device_slot(int32_t step) {
    return step > 0 ? (step - 1) % RING_SLOTS : 0;
}

static size_t device_offset(const struct ring_stage *stage, int32_t step) {
    return stage->launch->workspace.offset + (size_t)device_slot(step) * ring_slot_bytes(&stage->blocks);
}

void *ring_stage_host(const struct ring_stage *stage, int32_t step) {
    return (char *)stage->launch->host + (size_t)(step % RING_SLOTS) * ring_slot_bytes(&stage->blocks);
}

void ring_stage_place(const struct ring_stage *stage, int32_t step, clattn_tensor *k, clattn_tensor *v) {
    ring_block_place(&stage->blocks, ring_owner(stage->launch->transport, step), stage->launch->workspace.buffer,
                     device_offset(stage, step), k, v);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void ring_stage_begin(struct ring_stage *stage, clattn_context *context, const clattn_ring_launch *launch,
                      const struct ring_blocks *blocks) {
    memset(stage, 0, sizeof *stage);
    stage->context = context;
    stage->launch = launch;
    stage->blocks = *blocks;
}

clattn_status ring_stage_share(struct ring_stage *stage) {
    stage->shared = calloc((size_t)stage->blocks.ranks, sizeof *stage->shared);
    RETURN_IF(stage->shared == NULL, CLATTN_OUT_OF_HOST_MEMORY, "ring: out of host memory for %d ranks",
              (int)stage->blocks.ranks);
    return CLATTN_SUCCESS;
}

void ring_stage_end(struct ring_stage *stage) {
    free(stage->shared);
    for (int i = 0; i < RING_SLOTS; i++) {
        ring_event_keep(&stage->copied[i], NULL);
        ring_event_keep(&stage->used[i], NULL);
    }
}

/* ---- the way ----------------------------------------------------------------------------------------------------- */

/* Copies a tensor of any strides into a dense one, after the events. */
static clattn_status copy(const struct ring_stage *stage, const clattn_tensor *from, const clattn_tensor *to,
                          cl_uint count, const cl_event *events, cl_event *event) {
    clattn_launch launch;
    clattn_cast_op op;
    clattn_launch_init(&launch, stage->launch->copy_queue);
    launch.num_events_in_wait_list = count;
    launch.event_wait_list = events;
    launch.event = event;
    clattn_cast_init(&op);
    op.x = *from;
    op.y = *to;
    return operation_run(stage->context, &op.head, CLATTN_OP_CAST, &launch);
}

clattn_status ring_stage_pack(struct ring_stage *stage, const clattn_tensor *k, const clattn_tensor *v) {
    const clattn_ring_launch *launch = stage->launch;
    const size_t bytes = ring_block_bytes(&stage->blocks, launch->transport->rank);
    clattn_tensor k_to, v_to;
    cl_event copied[2] = {NULL, NULL};
    if (bytes == 0)
        return CLATTN_SUCCESS;
    ring_stage_place(stage, 0, &k_to, &v_to);
    clattn_status status = copy(stage, k, &k_to, launch->num_events_in_wait_list, launch->event_wait_list, &copied[0]);
    if (status == CLATTN_SUCCESS)
        status = copy(stage, v, &v_to, 1, &copied[0], &copied[1]);
    if (status == CLATTN_SUCCESS)
        status = status_from_cl(clEnqueueReadBuffer(launch->copy_queue, launch->workspace.buffer, CL_FALSE,
                                                    device_offset(stage, 0), bytes, ring_stage_host(stage, 0), 1,
                                                    &copied[1], &stage->copied[0]),
                                "clEnqueueReadBuffer");
    ring_event_keep(&copied[0], NULL);
    ring_event_keep(&copied[1], NULL);
    FORWARD(status);
    FORWARD_CL(clFlush(launch->copy_queue), "clFlush");
    return CLATTN_SUCCESS;
}

clattn_status ring_stage_settle(struct ring_stage *stage, int32_t step) {
    return ring_event_await(stage->copied[step % RING_SLOTS]);
}

clattn_status ring_stage_upload(struct ring_stage *stage, int32_t step) {
    const clattn_ring_launch *launch = stage->launch;
    const cl_event used = stage->used[device_slot(step)];
    const int32_t owner = ring_owner(launch->transport, step);
    const void *host = stage->shared != NULL ? stage->shared[owner] : ring_stage_host(stage, step);
    cl_event copied = NULL;
    FORWARD_CL(clEnqueueWriteBuffer(launch->copy_queue, launch->workspace.buffer, CL_FALSE, device_offset(stage, step),
                                    ring_block_bytes(&stage->blocks, owner), host, used != NULL ? 1 : 0,
                                    used != NULL ? &used : NULL, &copied),
               "clEnqueueWriteBuffer");
    ring_event_keep(&stage->copied[step % RING_SLOTS], copied);
    FORWARD_CL(clFlush(launch->copy_queue), "clFlush");
    return CLATTN_SUCCESS;
}

clattn_status ring_stage_used(struct ring_stage *stage, int32_t step, cl_event event) {
    FORWARD_CL(clRetainEvent(event), "clRetainEvent");
    ring_event_keep(&stage->used[device_slot(step)], event);
    return CLATTN_SUCCESS;
}
