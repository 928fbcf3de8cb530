/* Transfers of keys' gradients. */
#include "ring_sums.h"
#include "status.h"

#include <string.h>

void ring_sums_begin(struct ring_sums *sums, const clattn_ring_launch *launch,
                     const struct ring_gradient_layout *layout, size_t host) {
    memset(sums, 0, sizeof *sums);
    sums->launch = launch;
    sums->layout = layout;
    if (layout->blocks.ranks > 1) {
        sums->out = (char *)launch->host + host;
        sums->in = (char *)sums->out + ring_slot_bytes(&layout->blocks);
    }
}

void ring_sums_end(struct ring_sums *sums) {
    for (int i = 0; i < RING_SLOTS; i++)
        ring_event_keep(&sums->read[i], NULL);
    ring_event_keep(&sums->wrote, NULL);
}

size_t ring_sums_bytes(const struct ring_sums *sums, int32_t step) {
    return ring_block_bytes(&sums->layout->blocks, ring_owner(sums->launch->transport, step));
}

clattn_status ring_sums_upload(struct ring_sums *sums, int32_t step, clattn_tensor received[2]) {
    const clattn_ring_launch *launch = sums->launch;
    const size_t at = launch->workspace.offset + sums->layout->received, bytes = ring_sums_bytes(sums, step);
    cl_event wrote = NULL;
    ring_block_place(&sums->layout->blocks, ring_owner(launch->transport, step), launch->workspace.buffer, at,
                     &received[0], &received[1]);
    if (bytes == 0)
        return CLATTN_SUCCESS;
    FORWARD_CL(clEnqueueWriteBuffer(launch->copy_queue, launch->workspace.buffer, CL_FALSE, at, bytes, sums->in, 0,
                                    NULL, &wrote),
               "clEnqueueWriteBuffer");
    ring_event_keep(&sums->wrote, wrote);
    FORWARD_CL(clFlush(launch->copy_queue), "clFlush");
    return CLATTN_SUCCESS;
}

clattn_status ring_sums_read(struct ring_sums *sums, int32_t step, cl_event after) {
    const clattn_ring_launch *launch = sums->launch;
    const int32_t slot = step % RING_SLOTS;
    const size_t at = launch->workspace.offset + sums->layout->sum[slot], bytes = ring_sums_bytes(sums, step);
    cl_event read = NULL;
    if (bytes == 0)
        return CLATTN_SUCCESS;
    FORWARD_CL(clEnqueueReadBuffer(launch->copy_queue, launch->workspace.buffer, CL_FALSE, at, bytes, sums->out, 1,
                                   &after, &read),
               "clEnqueueReadBuffer");
    ring_event_keep(&sums->read[slot], read);
    FORWARD_CL(clFlush(launch->copy_queue), "clFlush");
    return CLATTN_SUCCESS;
}

clattn_status ring_sums_settle(struct ring_sums *sums, int32_t step) {
    FORWARD(ring_event_await(sums->wrote));
    return step > 0 ? ring_event_await(sums->read[(step - 1) % RING_SLOTS]) : CLATTN_SUCCESS;
}

void ring_sums_pass(struct ring_sums *sums) {
    void *through = sums->in;
    sums->in = sums->out;
    sums->out = through;
}
