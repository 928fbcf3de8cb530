/* What the ring's operations have in common: checks of a launch, the agreement before and after, and how a call that
 * has failed is left. */
#ifndef CLATTN_RING_CALL_H
#define CLATTN_RING_CALL_H

#include "ring.h"

/* What a call of an operation needs. */
struct ring_sizes {
    size_t device, host;
    uint64_t digest; /* of all that must be the same on all ranks */
};

struct ring_kind {
    clattn_op_kind kind;
    /* Checks the operation wholly, its struct's head included, and the transport's part in it. run_selftest: see
     * choice_make(). */
    clattn_status (*plan)(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch,
                          bool run_selftest, struct ring_sizes *sizes);
    /* Enqueues and talks; failures are noted. *event: of the last command, for the caller to release; may stay NULL. */
    void (*run)(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch, struct ring_talk *talk,
                cl_event *event);
};

extern const struct ring_kind ring_attention, ring_attention_backward, ring_decode;

/* The whole of a public call. */
clattn_status ring_call(clattn_context *context, const clattn_op *op, const clattn_ring_launch *launch,
                        const struct ring_kind *kind);

#endif
