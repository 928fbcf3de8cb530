/* The language model on the host, in double precision, one token at a time: what the device's results are compared
 * with. Asked to, it rounds where the device stores fp16 or codes, and so tells what an error may be. */
#ifndef CLIENTS_DECODER_HOST_H
#define CLIENTS_DECODER_HOST_H

#include "decoder_model.h"

#include <stdbool.h>

struct decoder_host_storage {
    bool halves; /* weights, what lies between two steps, keys and values are rounded to fp16 */
    bool codes;  /* keys and values are rounded to 8-bit codes with an fp16 scale a row */
};

/* A sequence. */
struct decoder_host {
    const struct decoder_model *model;
    struct decoder_host_storage storage;
    float *weights;        /* rounded */
    double *keys, *values; /* [LAYERS, KV_HEADS, most_tokens, HEAD_DIM] */
    int64_t tokens, most_tokens;
};

void decoder_host_open(struct decoder_host *host, const struct decoder_model *model,
                       struct decoder_host_storage storage, int64_t most_tokens);
void decoder_host_close(struct decoder_host *host);

/* Appends a token; logits [WORDS] of the next. */
void decoder_host_step(struct decoder_host *host, int32_t token, double *logits);

#endif
