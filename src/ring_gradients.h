/* What a rank computes of gradients: of its queries, and its parts of those of every block of keys. All are fp32 in the
 * workspace. */
#ifndef CLATTN_RING_GRADIENTS_H
#define CLATTN_RING_GRADIENTS_H

#include "ring_blocks.h"
#include "ring_compute.h"

#include <clattn/training.h>

/* Blocks of keys' gradients, and where they lie, in bytes from the workspace's beginning. */
struct ring_gradient_layout {
    struct ring_blocks blocks; /* of F32 */
    size_t slot;               /* that any of them fits into */
    size_t sum[2];             /* of the blocks of even and odd steps: this rank's parts so far */
    size_t part, received;     /* a task's, to be added; what the ranks before have added up */
    size_t dq, dq_part, end;
};
void ring_gradient_layout(const clattn_attention_backward_op *op, const struct ring_blocks *keys, size_t begin,
                          struct ring_gradient_layout *layout);

struct ring_gradients {
    clattn_tensor dq, dq_part;      /* of all of the rank's rows */
    clattn_tensor dk, dv;           /* of the block at hand */
    clattn_tensor dk_part, dv_part; /* of a task that finds its rows begun */
    int begun, keys_begun;          /* bits of pieces that have a gradient */
};

/* The gradients' operation of a task with its own outputs. */
clattn_attention_backward_op ring_gradient_op(const clattn_attention_backward_op *op, const struct ring_task *task,
                                              const clattn_tensor *k, const clattn_tensor *v, const clattn_tensor *dq,
                                              const clattn_tensor *dk, const clattn_tensor *dv);
/* Enqueues a task and adds what it finds. Rows that are not begun hold zeros. */
clattn_status ring_gradient_task(struct ring_chain *chain, const clattn_attention_backward_op *op,
                                 const struct ring_task *task, const clattn_tensor *k, const clattn_tensor *v,
                                 cl_event after, struct ring_gradients *gradients);
/* to[i] += what[i], F32 of the same dims. */
clattn_status ring_add(struct ring_chain *chain, int32_t count, const clattn_tensor *to, const clattn_tensor *what,
                       cl_event after);

#endif
