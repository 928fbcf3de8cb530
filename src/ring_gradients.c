/* Gradients of a rank's queries and its parts of those of keys and values. */
#include "ring_gradients.h"
#include "status.h"
#include "tensor.h"

enum { BATCH, HEAD, ROW, COLUMN };

void ring_gradient_layout(const clattn_attention_backward_op *op, const struct ring_blocks *keys, size_t begin,
                          struct ring_gradient_layout *layout) {
    const size_t dq = ring_area(check_product(op->attention.q.dims, 4), CLATTN_F32);
    layout->blocks = *keys;
    layout->blocks.dtype = CLATTN_F32;
    layout->slot = ring_largest_block(&layout->blocks);
    layout->sum[0] = begin;
    layout->sum[1] = layout->sum[0] + layout->slot;
    layout->part = layout->sum[1] + (keys->ranks > 1 ? layout->slot : 0);
    layout->received = layout->part + layout->slot;
    layout->dq = layout->received + (keys->ranks > 1 ? layout->slot : 0);
    layout->dq_part = layout->dq + dq;
    layout->end = layout->dq_part + dq;
}

clattn_attention_backward_op ring_gradient_op(const clattn_attention_backward_op *op, const struct ring_task *task,
                                              const clattn_tensor *k, const clattn_tensor *v, const clattn_tensor *dq,
                                              const clattn_tensor *dk, const clattn_tensor *dv) {
    clattn_attention_backward_op part = *op;
    part.attention = ring_task_op(&op->attention, task, k, v, &op->attention.o, &op->attention.lse);
    part.dout = ring_rows(&op->dout, task->q_first, task->q_rows);
    if (tensor_is_present(&op->dlse))
        part.dlse = ring_rows(&op->dlse, task->q_first, task->q_rows);
    part.dq = ring_rows(dq, task->q_first, task->q_rows);
    part.dk = ring_rows(dk, task->k_first, task->k_rows);
    part.dv = ring_rows(dv, task->k_first, task->k_rows);
    return part;
}

/* A step of gradient descent at a rate of -1. */
clattn_status ring_add(struct ring_chain *chain, int32_t count, const clattn_tensor *to, const clattn_tensor *what,
                       cl_event after) {
    clattn_sgd_op op;
    clattn_sgd_init(&op);
    op.list.count = count;
    op.list.param = to;
    op.list.grad = what;
    op.lr = -1;
    return ring_chain_add(chain, &op.head, after);
}

/* The first task of all its pieces writes the sum itself. */
clattn_status ring_gradient_task(struct ring_chain *chain, const clattn_attention_backward_op *op,
                                 const struct ring_task *task, const clattn_tensor *k, const clattn_tensor *v,
                                 cl_event after, struct ring_gradients *gradients) {
    struct ring_gradients *g = gradients;
    const bool adds_dq = (g->begun & task->pieces) != 0, adds_keys = (g->keys_begun & task->key_pieces) != 0;
    const clattn_attention_backward_op part =
        ring_gradient_op(op, task, k, v, adds_dq ? &g->dq_part : &g->dq, adds_keys ? &g->dk_part : &g->dk,
                         adds_keys ? &g->dv_part : &g->dv);
    clattn_tensor to[3], what[3];
    int32_t count = 0;
    FORWARD(ring_chain_add(chain, &part.head, after));
    if (adds_dq) {
        to[count] = ring_rows(&g->dq, task->q_first, task->q_rows);
        what[count++] = part.dq;
    }
    if (adds_keys) {
        to[count] = ring_rows(&g->dk, task->k_first, task->k_rows);
        what[count++] = part.dk;
        to[count] = ring_rows(&g->dv, task->k_first, task->k_rows);
        what[count++] = part.dv;
    }
    g->begun |= task->pieces;
    g->keys_begun |= task->key_pieces;
    return count > 0 ? ring_add(chain, count, to, what, NULL) : CLATTN_SUCCESS;
}
