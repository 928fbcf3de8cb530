/* What every attention kernel takes beside its own options: the modifiers it is compiled with, and the arguments that
 * tell where tensors and sequences lie. The counterpart of cl/attention_call.clh. */
#ifndef CLATTN_ATTENTION_CALL_H
#define CLATTN_ATTENTION_CALL_H

#include "launch.h"
#include "variant.h"

/* As view_t of cl/view.clh. */
struct attention_view {
    int64_t offset, outer, inner, row;
};

/* A tensor's first two dims, with stride 0 where a dim of 1 stands for all, and its rows. */
struct attention_view attention_view_of(const clattn_tensor *tensor);
/* The stride of a tensor's dim, 0 where the dim is 1. */
int64_t attention_stride(const clattn_tensor *tensor, int dim);

/* One byte for each block of queries and keys of an explicit mask, in the call's workspace (attention_mask.c). */
struct attention_mask_blocks {
    int queries, keys; /* of a block */
    cl_mem buffer;
    int64_t offset; /* bytes */
};

/* The options that compile the modifiers in or out, and say how keys and values are stored. */
#define ATTENTION_CALL_OPTIONS 320 /* characters */
void attention_call_options(const struct problem *problem, char *options, size_t size);

/* Sets the arguments from q on; blocks: NULL where there is no mask, or where it is not looked at by blocks. */
void attention_call_arguments(struct launch *launch, const clattn_attention_op *op, const struct problem *problem,
                              const struct attention_mask_blocks *blocks);

/* Blocks of so many queries that all sequences have together, for each head; see cl/sequence.clh. *batches: by how many
 * to multiply for sequences that do not lie one behind the other, else 1. */
int64_t attention_call_blocks(const clattn_attention_op *op, const struct problem *problem, int queries,
                              int64_t *batches);

#endif
