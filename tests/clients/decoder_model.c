/* Weights are sums of uniform numbers, so that every machine draws the same. */
#include "decoder_model.h"

#include "client.h"

#include <math.h>
#include <stdlib.h>

/* splitmix64 */
static double uniform(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* Of mean 0 and variance 1, nearly normal. */
static double draw(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += uniform(state);
    return (sum - 2) * sqrt(3);
}

struct filler {
    struct decoder_model *model;
    uint64_t state;
};

static int64_t add(struct filler *filler, int64_t count, double mean, double deviation) {
    const int64_t first = filler->model->count;
    for (int64_t i = 0; i < count; i++)
        filler->model->weights[first + i] = (float)(mean + deviation * draw(&filler->state));
    filler->model->count += count;
    return first;
}

/* Rows of variance 1 give rows of variance gain^2. */
static int64_t add_matrix(struct filler *filler, int64_t rows, int64_t columns, double gain) {
    return add(filler, rows * columns, 0, gain / sqrt((double)columns));
}

static int64_t add_norm(struct filler *filler) {
    return add(filler, HIDDEN, 1, 0.1);
}

static void add_layer(struct filler *filler, struct decoder_layer *layer) {
    layer->attention_norm = add_norm(filler);
    layer->qkv = add_matrix(filler, PACKED_HEADS * HEAD_DIM, HIDDEN, 1.5);
    layer->out = add_matrix(filler, HIDDEN, HEADS * HEAD_DIM, 1);
    layer->inner_norm = add_norm(filler);
    layer->gate_up = add_matrix(filler, 2 * INNER, HIDDEN, 1);
    layer->down = add_matrix(filler, HIDDEN, INNER, 1);
}

void decoder_model_make(struct decoder_model *model, uint64_t seed) {
    const int64_t layer = HIDDEN * (2 + PACKED_HEADS * HEAD_DIM + HEADS * HEAD_DIM + 3 * INNER);
    struct filler filler = {model, seed};
    model->weights = client_allocate((size_t)(LAYERS * layer + HIDDEN * (1 + 2 * WORDS)) * sizeof(float));
    model->count = 0;
    model->words = add(&filler, WORDS * HIDDEN, 0, 1);
    for (int i = 0; i < LAYERS; i++)
        add_layer(&filler, &model->layers[i]);
    model->final_norm = add_norm(&filler);
    model->head = add_matrix(&filler, WORDS, HIDDEN, 1);
}

void decoder_model_free(struct decoder_model *model) {
    free(model->weights);
}
