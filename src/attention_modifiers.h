/* The checks of attention's optional tensors and settings. */
#ifndef CLATTN_ATTENTION_MODIFIERS_H
#define CLATTN_ATTENTION_MODIFIERS_H

#include "check.h"
#include "variant.h"

/* Sequences in the batch. */
int64_t attention_query_sequences(const clattn_attention_op *op);
/* The most queries and keys that one sequence can have. */
int64_t attention_longest_q(const clattn_attention_op *op);
int64_t attention_longest_k(const clattn_attention_op *op);

/* Settings alone; looks at no tensor. */
clattn_status attention_modifiers_check_settings(const clattn_attention_op *op);
/* Lengths, offsets and page table; then the number of sequences is known. */
clattn_status attention_modifiers_check_sequences(clattn_context *context, const clattn_attention_op *op);
/* Mask, bias, slopes and sinks; after those. */
clattn_status attention_modifiers_check(clattn_context *context, const clattn_attention_op *op);

/* Of enum modifier. */
unsigned attention_modifiers_of(const clattn_attention_op *op);

#endif
