/* How attention's gradients are worked out: tile sizes, workspace, programs and launches. The front-end is
 * attention_backward.c. */
#ifndef CLATTN_ATTENTION_GRADIENTS_H
#define CLATTN_ATTENTION_GRADIENTS_H

#include "choice.h"

#include <clattn/training.h>

/* What the choice depends on, of a checked struct; out: the dtype of dq, dk and dv. */
void attention_gradients_describe(const clattn_attention_backward_op *op, clattn_dtype out, struct problem *problem);

/* Makes choice->parameters those that run; refuses what cannot run. Comes before all of these. */
clattn_status attention_gradients_plan(const clattn_attention_backward_op *op, const struct problem *problem,
                                       struct choice *choice);
clattn_status attention_gradients_workspace(const clattn_attention_backward_op *op, const struct problem *problem,
                                            const struct choice *choice, size_t *bytes);
clattn_status attention_gradients_prepare(clattn_context *context, const clattn_attention_backward_op *op,
                                          const struct problem *problem, const struct choice *choice);
clattn_status attention_gradients_enqueue(clattn_context *context, const clattn_attention_backward_op *op,
                                          const struct problem *problem, const struct choice *choice,
                                          const clattn_launch *launch);

/* Rows and columns of a block, for names. */
void attention_gradients_blocks(const struct problem *problem, const struct choice *choice, int *rows, int *columns);

#endif
