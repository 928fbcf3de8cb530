/* A small causal language model of the Llama and Mistral kind: grouped heads, rotated queries and keys, a sliding
 * window, RMS norms, SwiGLU. Its weights are drawn from a seed. */
#ifndef CLIENTS_DECODER_MODEL_H
#define CLIENTS_DECODER_MODEL_H

#include <stdint.h>

enum {
    LAYERS = 4,
    HIDDEN = 256,
    HEADS = 8,
    KV_HEADS = 2,
    HEAD_DIM = 32,
    PACKED_HEADS = HEADS + 2 * KV_HEADS, /* of q, k and v, which one product makes */
    INNER = 704,
    WORDS = 1000,
    WINDOW = 64 /* keys that a query sees, its own included */
};
static const double rope_base = 10000, norm_eps = 1e-5;

/* Where weights begin; matrices are [rows, columns] and are applied to rows of `columns`. */
struct decoder_layer {
    int64_t attention_norm; /* [HIDDEN] */
    int64_t qkv;            /* [PACKED_HEADS * HEAD_DIM, HIDDEN]: q, k, v */
    int64_t out;            /* [HIDDEN, HEADS * HEAD_DIM] */
    int64_t inner_norm;     /* [HIDDEN] */
    int64_t gate_up;        /* [2 * INNER, HIDDEN]: gate, up */
    int64_t down;           /* [HIDDEN, INNER] */
};

struct decoder_model {
    float *weights;
    int64_t count;
    int64_t words;      /* [WORDS, HIDDEN]: a token's first row */
    int64_t final_norm; /* [HIDDEN] */
    int64_t head;       /* [WORDS, HIDDEN]: a row's logits */
    struct decoder_layer layers[LAYERS];
};

void decoder_model_make(struct decoder_model *model, uint64_t seed);
void decoder_model_free(struct decoder_model *model);

#endif
