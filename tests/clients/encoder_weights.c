/* The encoder's weights: the file's values go to the device as they lie, tensors are places among them. */
#include "encoder.h"

#include "encoder_weights.h"
#include "safetensors.h"

#include <clattn/training.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_NAME = 128, MOST_PATH = 4096 };

/* ---- config.json ------------------------------------------------------------------------------------------------- */

static double setting(const cJSON *config, const char *name, double least, double most) {
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(config, name);
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= least && number->valuedouble <= most))
        client_fail("config.json: %s is missing, or not within %g to %g", name, least, most);
    return number->valuedouble;
}

static int64_t count_of(const cJSON *config, const char *name, double most) {
    return (int64_t)setting(config, name, 1, most);
}

struct encoder_shape encoder_read_shape(const char *folder) {
    char path[MOST_PATH];
    size_t size;
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = client_read_file(path, &size);
    cJSON *config = cJSON_ParseWithLength(text, size);
    const struct encoder_shape shape = {
        .hidden = count_of(config, "hidden_size", 4096),
        .heads = count_of(config, "num_attention_heads", 64),
        .layers = count_of(config, "num_hidden_layers", ENCODER_MOST_LAYERS),
        .inner = count_of(config, "intermediate_size", 16384),
        .words = count_of(config, "vocab_size", 1e6),
        .positions = count_of(config, "max_position_embeddings", 8192),
        .eps = (float)setting(config, "layer_norm_eps", 0, 1),
    };
    cJSON_Delete(config);
    free(text);
    return shape;
}

/* ---- places of tensors ------------------------------------------------------------------------------------------- */

struct source {
    const struct safetensors *file;
    int layer;
};

static int64_t find(struct source source, const char *name, int64_t rows, int64_t columns) {
    char whole[MOST_NAME];
    snprintf(whole, sizeof whole, "encoder.layer.%d.%s", source.layer, name);
    return safetensors_find(source.file, whole, rows, columns);
}

static void find_layer(struct encoder *encoder, struct source source, struct encoder_layer *layer) {
    const int64_t hidden = encoder->shape.hidden, inner = encoder->shape.inner;
    layer->context = find(source, "attention.output.dense.weight", hidden, hidden);
    layer->context_bias = find(source, "attention.output.dense.bias", 0, hidden);
    layer->context_norm = find(source, "attention.output.LayerNorm.weight", 0, hidden);
    layer->context_norm_bias = find(source, "attention.output.LayerNorm.bias", 0, hidden);
    layer->inner = find(source, "intermediate.dense.weight", inner, hidden);
    layer->inner_bias = find(source, "intermediate.dense.bias", 0, inner);
    layer->outer = find(source, "output.dense.weight", hidden, inner);
    layer->outer_bias = find(source, "output.dense.bias", 0, hidden);
    layer->outer_norm = find(source, "output.LayerNorm.weight", 0, hidden);
    layer->outer_norm_bias = find(source, "output.LayerNorm.bias", 0, hidden);
}

static void find_tables(struct encoder *encoder, const struct safetensors *file) {
    const struct encoder_shape *shape = &encoder->shape;
    encoder->words = safetensors_find(file, "embeddings.word_embeddings.weight", shape->words, shape->hidden);
    encoder->places = safetensors_find(file, "embeddings.position_embeddings.weight", shape->positions, shape->hidden);
    encoder->types = safetensors_find(file, "embeddings.token_type_embeddings.weight", 2, shape->hidden);
    encoder->norm = safetensors_find(file, "embeddings.LayerNorm.weight", 0, shape->hidden);
    encoder->norm_bias = safetensors_find(file, "embeddings.LayerNorm.bias", 0, shape->hidden);
}

/* ---- on the device ----------------------------------------------------------------------------------------------- */

static void copy_elements(const struct encoder *encoder, int64_t from, int64_t to, int64_t count) {
    const size_t size = clattn_dtype_size(encoder->dtype);
    client_check(clEnqueueCopyBuffer(encoder->client->queue, encoder->weights, encoder->qkv_weights,
                                     (size_t)from * size, (size_t)to * size, (size_t)count * size, 0, NULL, NULL),
                 "clEnqueueCopyBuffer");
}

/* One product makes q, k and v: their weights, and then their biases, become neighbours. */
static void join_qkv(struct encoder *encoder, struct source source, struct encoder_layer *layer) {
    static const char *const weights[] = {"attention.self.query.weight", "attention.self.key.weight",
                                          "attention.self.value.weight"};
    static const char *const biases[] = {"attention.self.query.bias", "attention.self.key.bias",
                                         "attention.self.value.bias"};
    const int64_t hidden = encoder->shape.hidden, first = source.layer * 3 * (hidden * hidden + hidden);
    layer->qkv = client_tensor(encoder->qkv_weights, encoder->dtype, first, 3 * hidden, hidden);
    layer->qkv_bias = first + 3 * hidden * hidden;
    for (int i = 0; i < 3; i++) {
        copy_elements(encoder, find(source, weights[i], hidden, hidden), first + i * hidden * hidden, hidden * hidden);
        copy_elements(encoder, find(source, biases[i], 0, hidden), layer->qkv_bias + i * hidden, hidden);
    }
}

static cl_mem in_halves(struct encoder *encoder, cl_mem floats, int64_t count) {
    cl_mem halves = client_buffer(encoder->client, (size_t)count * sizeof(cl_half), NULL);
    clattn_cast_op op;
    clattn_cast_init(&op);
    op.x = client_tensor(floats, CLATTN_F32, 0, 1, count);
    op.y = client_tensor(halves, CLATTN_F16, 0, 1, count);
    client_call(encoder->client, &op.head);
    clReleaseMemObject(floats);
    return halves;
}

void encoder_read_weights(struct encoder *encoder, const char *folder) {
    const int64_t hidden = encoder->shape.hidden;
    char path[MOST_PATH];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    struct safetensors file = safetensors_open(path);
    find_tables(encoder, &file);
    encoder->weights = client_buffer(encoder->client, file.value_bytes, file.values);
    if (encoder->dtype == CLATTN_F16)
        encoder->weights = in_halves(encoder, encoder->weights, (int64_t)(file.value_bytes / sizeof(float)));
    encoder->qkv_weights = client_buffer(
        encoder->client,
        (size_t)(encoder->shape.layers * 3 * (hidden * hidden + hidden)) * clattn_dtype_size(encoder->dtype), NULL);
    for (int i = 0; i < encoder->shape.layers; i++) {
        const struct source source = {&file, i};
        find_layer(encoder, source, &encoder->layers[i]);
        join_qkv(encoder, source, &encoder->layers[i]);
    }
    safetensors_close(&file);
}
