/* The gradients of blocks of keys on their way: down to the host as this rank leaves them, on to the next rank, up
 * to the device of the next. */
#ifndef CLATTN_RING_SUMS_H
#define CLATTN_RING_SUMS_H

#include "ring_gradients.h"
#include "ring_stage.h"

struct ring_sums {
    const clattn_ring_launch *launch;
    const struct ring_gradient_layout *layout;
    void *out, *in;            /* on the host: what goes on, what comes in */
    cl_event read[RING_SLOTS]; /* of the sums of even and odd steps, from the device */
    cl_event wrote;            /* of what came in, to the device */
};

/* host: where they lie in the host's memory, in bytes. */
void ring_sums_begin(struct ring_sums *sums, const clattn_ring_launch *launch,
                     const struct ring_gradient_layout *layout, size_t host);
void ring_sums_end(struct ring_sums *sums);

size_t ring_sums_bytes(const struct ring_sums *sums, int32_t step);
/* Enqueues the way of what came in to the device; where it lies there. What was there was added in the step before and
 * has been read since. */
clattn_status ring_sums_upload(struct ring_sums *sums, int32_t step, clattn_tensor received[2]);
/* Enqueues the way of a step's sums to the host, after an event. */
clattn_status ring_sums_read(struct ring_sums *sums, int32_t step, cl_event after);
/* Waits until the host's memory is no longer used by the device, and holds the sums of the step before. */
clattn_status ring_sums_settle(struct ring_sums *sums, int32_t step);
/* What came in goes on as it is. */
void ring_sums_pass(struct ring_sums *sums);

#endif
