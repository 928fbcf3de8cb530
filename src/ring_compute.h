/* What a rank computes on its queue: attentions of its queries over blocks of keys, and the merges of their partial
 * results, which lie in the workspace in fp32. Each command waits for the one before. */
#ifndef CLATTN_RING_COMPUTE_H
#define CLATTN_RING_COMPUTE_H

#include "ring.h"

/* Commands in a row. */
struct ring_chain {
    clattn_context *context;
    clattn_launch launch;             /* of the next command, but for its events and the next two */
    const char *variant, *parameters; /* of attentions and their gradients */
    cl_event last;
};

/* The first command is a marker that waits for the caller's events. */
clattn_status ring_chain_begin(struct ring_chain *chain, clattn_context *context, const clattn_ring_launch *launch);
void ring_chain_end(struct ring_chain *chain);
/* Enqueues an operation after the one before and, where not NULL, another event. */
clattn_status ring_chain_add(struct ring_chain *chain, const clattn_op *op, cl_event after);
/* Sets a dense F32 tensor. */
clattn_status ring_chain_fill(struct ring_chain *chain, const clattn_tensor *dense, float value, cl_event after);

/* The result so far, and room for that of a task. */
struct ring_results {
    clattn_tensor o, lse;           /* F32, dense, all of the rank's rows */
    clattn_tensor part_o, part_lse; /* ... as many rows as are taken at a time */
    int begun;                      /* bits of the pieces of queries that have a result */
};
/* Rows of a task that are taken at a time where they are to be merged, so that the part needs less memory. */
int64_t ring_rows_at_a_time(const clattn_attention_op *op);
/* The part of a task from its row `at` on. */
struct ring_task ring_part_of_task(const struct ring_task *task, int64_t at, int64_t rows);

size_t ring_results_bytes(const clattn_attention_op *op);
void ring_results_place(const clattn_attention_op *op, cl_mem buffer, size_t offset, struct ring_results *results);

/* Views of the task's rows. */
clattn_tensor ring_rows(const clattn_tensor *tensor, int64_t first, int64_t rows);
/* The attention of a task with its own o and lse; keys are those of the block. */
clattn_attention_op ring_task_op(const clattn_attention_op *op, const struct ring_task *task, const clattn_tensor *k,
                                 const clattn_tensor *v, const clattn_tensor *o, const clattn_tensor *lse);
/* Enqueues a task and adds its result to that so far. */
clattn_status ring_compute_task(struct ring_chain *chain, const clattn_attention_op *op, const struct ring_task *task,
                                const clattn_tensor *k, const clattn_tensor *v, cl_event after,
                                struct ring_results *results);
/* Enqueues the writing of the caller's o and lse; *event is the last command's. */
clattn_status ring_compute_end(struct ring_chain *chain, const clattn_attention_op *op,
                               const struct ring_results *results, cl_event *event);

#endif
