/* The language model on a device: a paged cache that a page pool keeps account of, and steps that each take some tokens
 * of every sequence, be they a part of its prompt or the one that the step before chose. Commands on one in-order
 * queue: a chosen token goes from step to step without passing through the host. */
#ifndef CLIENTS_DECODER_H
#define CLIENTS_DECODER_H

#include "client.h"
#include "decoder_model.h"

#include <clattn/kv_cache.h>

enum {
    SEQUENCES = 2,
    PAGE_SIZE = 16,
    MOST_PAGES = 16, /* of a sequence */
    MOST_ROWS = 64,  /* of a step */
    CHOICES = 2      /* the likeliest words that a step keeps; the first is chosen */
};

struct decoder_cache {
    cl_mem keys, values;             /* [pages, KV_HEADS, PAGE_SIZE, HEAD_DIM] */
    cl_mem key_scales, value_scales; /* fp16 [pages, KV_HEADS, PAGE_SIZE]; of codes */
};

struct decoder {
    struct client *client;
    const struct decoder_model *model;
    clattn_dtype dtype, cache_dtype; /* CLATTN_F32 or CLATTN_F16; the same, or CLATTN_I8 */
    int64_t steps, most_steps;
    cl_mem weights;
    cl_kernel embed, swiglu, last_rows;
    struct decoder_cache caches[LAYERS];
    clattn_page_pool *pool;
    int32_t sequences[SEQUENCES];
    cl_mem table, before, after;         /* pages; lengths before and after the step's rows are appended */
    cl_mem ids, offsets;                 /* the step's rows */
    int32_t host_offsets[SEQUENCES + 1]; /* what offsets holds */
    cl_mem rows, normed, packed, queries, context, sum, wide, inner, last; /* between two operations */
    cl_mem logits;                                                         /* fp32 [most_steps, SEQUENCES, WORDS] */
    cl_mem choices;                                                        /* int32 [most_steps, SEQUENCES, CHOICES] */
    cl_mem probabilities;                                                  /* fp32, of the choices */
};

void decoder_open(struct decoder *decoder, struct client *client, const struct decoder_model *model, clattn_dtype dtype,
                  clattn_dtype cache_dtype, int64_t most_steps);
void decoder_close(struct decoder *decoder);

/* Takes counts[b] >= 1 further tokens of each sequence b, whose ids lie one behind the other; ids NULL: of each
 * sequence the one that the step before chose. Does not wait where ids is NULL. */
void decoder_step(struct decoder *decoder, const int32_t *counts, const int32_t *ids);

/* Waits, and reads what the steps so far have left. Either pointer may be NULL. */
void decoder_results(const struct decoder *decoder, float *logits, int32_t *choices);

#endif
