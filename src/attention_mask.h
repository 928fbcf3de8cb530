/* The pre-pass over an explicit mask: which of its blocks are hidden or open as a whole. */
#ifndef CLATTN_ATTENTION_MASK_H
#define CLATTN_ATTENTION_MASK_H

#include "attention_call.h"

/* Bytes of workspace that the blocks of the mask take; UNSUPPORTED where they are more than a launch has groups. */
clattn_status attention_mask_workspace(const clattn_attention_op *op, int queries, int keys, size_t *bytes);

/* Builds the pre-pass; the program lives as long as the context. */
clattn_status attention_mask_program(clattn_context *context, const struct device_facts *facts,
                                     struct program **program);

/* Enqueues it, one command: fills blocks->buffer from blocks->offset on. Not for a mask without elements. */
clattn_status attention_mask_enqueue(struct program *program, const struct device_facts *facts,
                                     const clattn_attention_op *op, const struct attention_mask_blocks *blocks,
                                     struct sequence *sequence);

#endif
