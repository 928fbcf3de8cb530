/* Plain loops over doubles. store() stands where the device writes a row that another step reads. */
#include "decoder_host.h"

#include "client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounding ---------------------------------------------------------------------------------------------------- */

/* The distance of fp16 numbers around x. */
static double half_step(double x) {
    const int exponent = x != 0 ? ilogb(x) : -14;
    return ldexp(1, (exponent < -14 ? -14 : exponent) - 10);
}

static double to_half(double x) {
    const double step = half_step(x);
    return rint(x / step) * step;
}

static double to_half_upward(double x) {
    const double step = half_step(x);
    return ceil(x / step) * step;
}

static void store(const struct decoder_host *host, int64_t count, double *row) {
    for (int64_t i = 0; host->storage.halves && i < count; i++)
        row[i] = to_half(row[i]);
}

/* A row of the cache as attention reads it. */
static void store_in_cache(const struct decoder_host *host, const double *row, double *cache) {
    double largest = 0;
    memcpy(cache, row, HEAD_DIM * sizeof *cache);
    for (int i = 0; i < HEAD_DIM; i++)
        largest = fmax(largest, fabs(row[i]));
    const double scale = to_half_upward(largest / 127);
    for (int i = 0; host->storage.codes && scale > 0 && i < HEAD_DIM; i++)
        cache[i] = scale * rint(row[i] / scale);
    store(host, HEAD_DIM, cache);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* out [rows] = weights [rows, columns] in; four sums at once, for speed. */
static void product(const struct decoder_host *host, int64_t weights, int rows, int columns, const double *in,
                    double *out) {
    for (int row = 0; row < rows; row++) {
        const float *w = host->weights + weights + (int64_t)row * columns;
        double sums[4] = {0};
        for (int i = 0; i < columns; i += 4)
            for (int j = 0; j < 4; j++)
                sums[j] += (double)w[i + j] * in[i + j];
        out[row] = sums[0] + sums[1] + (sums[2] + sums[3]);
    }
}

static void norm(const struct decoder_host *host, int64_t weights, const double *in, double *out) {
    double squares = 0;
    for (int i = 0; i < HIDDEN; i++)
        squares += in[i] * in[i];
    const double factor = 1 / sqrt(squares / HIDDEN + norm_eps);
    for (int i = 0; i < HIDDEN; i++)
        out[i] = in[i] * factor * (double)host->weights[weights + i];
    store(host, HIDDEN, out);
}

static void rotate(double *head, int64_t position) {
    for (int i = 0; i < HEAD_DIM / 2; i++) {
        const double angle = (double)position * pow(rope_base, -2.0 * i / HEAD_DIM);
        const double a = head[i], b = head[i + HEAD_DIM / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + HEAD_DIM / 2] = b * cos(angle) + a * sin(angle);
    }
}

static int64_t cache_row(const struct decoder_host *host, int layer, int kv_head, int64_t token) {
    return (((int64_t)layer * KV_HEADS + kv_head) * host->most_tokens + token) * HEAD_DIM;
}

static void append(struct decoder_host *host, int layer, double *k, const double *v) {
    for (int head = 0; head < KV_HEADS; head++) {
        const int64_t row = cache_row(host, layer, head, host->tokens);
        rotate(k + head * HEAD_DIM, host->tokens);
        store_in_cache(host, k + head * HEAD_DIM, host->keys + row);
        store_in_cache(host, v + head * HEAD_DIM, host->values + row);
    }
}

/* The newest token's query of a head over the keys that its window holds. */
static void attend(const struct decoder_host *host, int layer, int head, const double *q, double *o) {
    const int64_t first = host->tokens < WINDOW ? 0 : host->tokens - WINDOW + 1;
    const int64_t row = cache_row(host, layer, head / (HEADS / KV_HEADS), first);
    const int count = (int)(host->tokens - first) + 1;
    double weights[WINDOW], largest = -INFINITY, sum = 0;
    for (int j = 0; j < count; j++) {
        weights[j] = 0;
        for (int i = 0; i < HEAD_DIM; i++)
            weights[j] += q[i] * host->keys[row + j * HEAD_DIM + i] / sqrt(HEAD_DIM);
        largest = fmax(largest, weights[j]);
    }
    for (int j = 0; j < count; j++)
        sum += weights[j] = exp(weights[j] - largest);
    store(host, count, weights);
    memset(o, 0, HEAD_DIM * sizeof *o);
    for (int j = 0; j < count; j++)
        for (int i = 0; i < HEAD_DIM; i++)
            o[i] += weights[j] * host->values[row + j * HEAD_DIM + i] / sum;
}

static void add(const struct decoder_host *host, const double *more, double *row) {
    for (int i = 0; i < HIDDEN; i++)
        row[i] += more[i];
    store(host, HIDDEN, row);
}

static void run_attention(struct decoder_host *host, int index, double *row) {
    const struct decoder_layer *layer = &host->model->layers[index];
    double in[HIDDEN], packed[PACKED_HEADS * HEAD_DIM], o[HEADS * HEAD_DIM], out[HIDDEN];
    norm(host, layer->attention_norm, row, in);
    product(host, layer->qkv, PACKED_HEADS * HEAD_DIM, HIDDEN, in, packed);
    store(host, PACKED_HEADS * HEAD_DIM, packed);
    append(host, index, packed + HEADS * HEAD_DIM, packed + (HEADS + KV_HEADS) * HEAD_DIM);
    for (int head = 0; head < HEADS; head++) {
        rotate(packed + head * HEAD_DIM, host->tokens);
        store(host, HEAD_DIM, packed + head * HEAD_DIM);
        attend(host, index, head, packed + head * HEAD_DIM, o + head * HEAD_DIM);
    }
    store(host, HEADS * HEAD_DIM, o);
    product(host, layer->out, HIDDEN, HEADS * HEAD_DIM, o, out);
    store(host, HIDDEN, out);
    add(host, out, row);
}

static void run_inner(const struct decoder_host *host, const struct decoder_layer *layer, double *row) {
    double in[HIDDEN], wide[2 * INNER], out[HIDDEN];
    norm(host, layer->inner_norm, row, in);
    product(host, layer->gate_up, 2 * INNER, HIDDEN, in, wide);
    store(host, 2 * INNER, wide);
    for (int i = 0; i < INNER; i++)
        wide[i] *= wide[INNER + i] / (1 + exp(-wide[i]));
    store(host, INNER, wide);
    product(host, layer->down, HIDDEN, INNER, wide, out);
    store(host, HIDDEN, out);
    add(host, out, row);
}

void decoder_host_step(struct decoder_host *host, int32_t token, double *logits) {
    double row[HIDDEN], last[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        row[i] = (double)host->weights[host->model->words + token * HIDDEN + i];
    for (int i = 0; i < LAYERS; i++) {
        run_attention(host, i, row);
        run_inner(host, &host->model->layers[i], row);
    }
    norm(host, host->model->final_norm, row, last);
    product(host, host->model->head, WORDS, HIDDEN, last, logits);
    host->tokens++;
}

void decoder_host_open(struct decoder_host *host, const struct decoder_model *model,
                       struct decoder_host_storage storage, int64_t most_tokens) {
    const size_t cache_bytes = (size_t)(LAYERS * KV_HEADS * most_tokens * HEAD_DIM) * sizeof(double);
    *host = (struct decoder_host){.model = model, .storage = storage, .most_tokens = most_tokens};
    host->weights = client_allocate((size_t)model->count * sizeof(float));
    for (int64_t i = 0; i < model->count; i++)
        host->weights[i] = storage.halves ? (float)to_half((double)model->weights[i]) : model->weights[i];
    host->keys = client_allocate(cache_bytes);
    host->values = client_allocate(cache_bytes);
}

void decoder_host_close(struct decoder_host *host) {
    free(host->weights);
    free(host->keys);
    free(host->values);
}
