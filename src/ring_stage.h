/* Keys and values of all ranks on their way through one: from the device or the rank before into host memory, on to the
 * next rank, and up to the device. The host has two slots, of which step s uses number s % 2. The device has two, or
 * one where there are but two ranks: step s, from 1 on, uses number (s - 1) % 2; the first is this rank's own block's
 * on its way to the host before that. Where ranks share their memory the host has one slot, which holds the rank's own
 * block throughout, and others are read where they are. */
#ifndef CLATTN_RING_STAGE_H
#define CLATTN_RING_STAGE_H

#include "ring_blocks.h"

enum { RING_SLOTS = 2 };

/* An event of one's own in place of another, which is released; either may be NULL. */
void ring_event_keep(cl_event *event, cl_event by);
/* Waits for a transfer, if there is one. */
clattn_status ring_event_await(cl_event event);

size_t ring_slot_bytes(const struct ring_blocks *blocks);   /* that any block fits into; 0 for one rank */
size_t ring_device_bytes(const struct ring_blocks *blocks); /* of all slots of the device */

/* A rank's staging memory and what uses it. */
struct ring_stage {
    clattn_context *context;
    const clattn_ring_launch *launch;
    struct ring_blocks blocks;
    const void **shared; /* [ranks], where the host's memory of all ranks can be read; NULL: blocks are passed on */
    cl_event copied[RING_SLOTS]; /* the last command that reads or writes the host's slot */
    cl_event used[RING_SLOTS];   /* the last that computes with the device's */
};

void ring_stage_begin(struct ring_stage *stage, clattn_context *context, const clattn_ring_launch *launch,
                      const struct ring_blocks *blocks);
void ring_stage_end(struct ring_stage *stage);
/* Makes room for `shared`. */
clattn_status ring_stage_share(struct ring_stage *stage);

/* Enqueues the way of this rank's own keys and values into the host's first slot, after the caller's events. */
clattn_status ring_stage_pack(struct ring_stage *stage, const clattn_tensor *k, const clattn_tensor *v);
/* Waits until the host's slot of a step is no longer used by the device. */
clattn_status ring_stage_settle(struct ring_stage *stage, int32_t step);
/* Enqueues the block's way to the device, and where it lies there. */
clattn_status ring_stage_upload(struct ring_stage *stage, int32_t step);
void ring_stage_place(const struct ring_stage *stage, int32_t step, clattn_tensor *k, clattn_tensor *v);
/* The last command that computes with the block. */
clattn_status ring_stage_used(struct ring_stage *stage, int32_t step, cl_event event);

void *ring_stage_host(const struct ring_stage *stage, int32_t step);

#endif
