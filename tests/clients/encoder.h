/* A BERT-like sentence encoder whose every step is a command on one queue: token ids in, embeddings out. */
#ifndef CLIENTS_ENCODER_H
#define CLIENTS_ENCODER_H

#include "client.h"

#include <stdint.h>

enum { ENCODER_MOST_LAYERS = 24 };

/* As config.json has them. */
struct encoder_shape {
    int64_t hidden, heads, layers, inner, words, positions;
    float eps;
};

/* Where a layer's weights are in the buffer of all weights, in elements; those of q, k and v lie one behind the other
 * in a buffer of their own. */
struct encoder_layer {
    clattn_tensor qkv;
    int64_t qkv_bias;
    int64_t context, context_bias, context_norm, context_norm_bias;
    int64_t inner, inner_bias, outer, outer_bias, outer_norm, outer_norm_bias;
};

struct encoder {
    struct client *client;
    struct encoder_shape shape;
    clattn_dtype dtype;                  /* of weights and of what lies between two steps */
    int64_t most_tokens, most_sentences; /* of a batch */
    cl_mem weights;
    cl_mem qkv_weights; /* of all layers: [3 hidden, hidden] and then the bias each */
    int64_t words, places, types, norm, norm_bias;
    struct encoder_layer layers[ENCODER_MOST_LAYERS];
    cl_kernel embed, fill, bias_gelu, pool;
    cl_mem ids, positions, offsets;       /* the batch, int32 */
    cl_mem rows, qkv, context, sum, wide; /* [tokens, ..]: between steps */
    cl_mem embeddings;                    /* fp32 [sentences, hidden] */
};

/* Sentences one behind the other: sentence b is tokens offsets[b] .. offsets[b + 1] - 1. */
struct encoder_batch {
    const int32_t *ids, *positions, *offsets;
    int64_t tokens, sentences, longest;
};

/* From the model's folder: config.json and model.safetensors. dtype: CLATTN_F32 or CLATTN_F16. */
void encoder_open(struct encoder *encoder, struct client *client, const char *folder, clattn_dtype dtype,
                  int64_t most_tokens, int64_t most_sentences);
void encoder_close(struct encoder *encoder);

/* Enqueues the whole batch and waits for its embeddings [sentences, hidden], each one unit long. */
void encoder_run(struct encoder *encoder, const struct encoder_batch *batch, float *embeddings);

#endif
