/* The encoder's steps. Products, norms and attention are the library's; its own kernels lie between them on the same
 * in-order queue, so that no step waits on the host. */
#include "encoder.h"

#include "encoder_weights.h"

#include <string.h>

enum { POOL_ITEMS = 64 };

static cl_mem rows_of(const struct encoder *encoder, int64_t columns) {
    return client_buffer(encoder->client, (size_t)(encoder->most_tokens * columns) * clattn_dtype_size(encoder->dtype),
                         NULL);
}

static void make_kernels(struct encoder *encoder) {
    cl_program program = client_program(encoder->client, "encoder.cl", encoder->dtype);
    encoder->embed = client_kernel(program, "embed");
    encoder->fill = client_kernel(program, "fill");
    encoder->bias_gelu = client_kernel(program, "bias_gelu");
    encoder->pool = client_kernel(program, "pool");
    clReleaseProgram(program);
}

void encoder_open(struct encoder *encoder, struct client *client, const char *folder, clattn_dtype dtype,
                  int64_t most_tokens, int64_t most_sentences) {
    memset(encoder, 0, sizeof *encoder);
    encoder->client = client;
    encoder->shape = encoder_read_shape(folder);
    encoder->dtype = dtype;
    encoder->most_tokens = most_tokens;
    encoder->most_sentences = most_sentences;
    encoder_read_weights(encoder, folder);
    make_kernels(encoder);
    const int64_t hidden = encoder->shape.hidden;
    encoder->ids = client_buffer(client, (size_t)most_tokens * sizeof(int32_t), NULL);
    encoder->positions = client_buffer(client, (size_t)most_tokens * sizeof(int32_t), NULL);
    encoder->offsets = client_buffer(client, (size_t)(most_sentences + 1) * sizeof(int32_t), NULL);
    encoder->rows = rows_of(encoder, hidden);
    encoder->qkv = rows_of(encoder, 3 * hidden);
    encoder->context = rows_of(encoder, hidden);
    encoder->sum = rows_of(encoder, hidden);
    encoder->wide = rows_of(encoder, encoder->shape.inner);
    encoder->embeddings = client_buffer(client, (size_t)(most_sentences * hidden) * sizeof(float), NULL);
}

void encoder_close(struct encoder *encoder) {
    cl_mem buffers[] = {encoder->weights, encoder->qkv_weights, encoder->ids,       encoder->positions,
                        encoder->offsets, encoder->rows,        encoder->qkv,       encoder->context,
                        encoder->sum,     encoder->wide,        encoder->embeddings};
    cl_kernel kernels[] = {encoder->embed, encoder->fill, encoder->bias_gelu, encoder->pool};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        clReleaseMemObject(buffers[i]);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        clReleaseKernel(kernels[i]);
}

/* ---- the encoder's own kernels ----------------------------------------------------------------------------------- */

static void place_argument(cl_kernel kernel, cl_uint *index, int64_t place) {
    const cl_int argument = (cl_int)place;
    client_argument(kernel, index, sizeof argument, &argument);
}

static void embed(const struct encoder *encoder, int64_t tokens) {
    cl_uint index = 0;
    client_argument(encoder->embed, &index, sizeof(cl_mem), &encoder->ids);
    client_argument(encoder->embed, &index, sizeof(cl_mem), &encoder->positions);
    client_argument(encoder->embed, &index, sizeof(cl_mem), &encoder->weights);
    place_argument(encoder->embed, &index, encoder->words);
    place_argument(encoder->embed, &index, encoder->places);
    place_argument(encoder->embed, &index, encoder->types);
    client_argument(encoder->embed, &index, sizeof(cl_mem), &encoder->sum);
    client_launch(encoder->client, encoder->embed, (size_t)encoder->shape.hidden, (size_t)tokens, 0);
}

/* `fill` or `bias_gelu` over [tokens, columns]. */
static void with_bias(const struct encoder *encoder, cl_kernel kernel, cl_mem weights, int64_t bias, cl_mem values,
                      int64_t tokens, int64_t columns) {
    cl_uint index = 0;
    client_argument(kernel, &index, sizeof(cl_mem), &weights);
    place_argument(kernel, &index, bias);
    client_argument(kernel, &index, sizeof(cl_mem), &values);
    client_launch(encoder->client, kernel, (size_t)columns, (size_t)tokens, 0);
}

static void pool(const struct encoder *encoder, int64_t sentences) {
    cl_uint index = 0;
    client_argument(encoder->pool, &index, sizeof(cl_mem), &encoder->rows);
    client_argument(encoder->pool, &index, sizeof(cl_mem), &encoder->offsets);
    place_argument(encoder->pool, &index, encoder->shape.hidden);
    client_argument(encoder->pool, &index, sizeof(cl_mem), &encoder->embeddings);
    client_argument(encoder->pool, &index, POOL_ITEMS * sizeof(float), NULL);
    client_launch(encoder->client, encoder->pool, (size_t)sentences * POOL_ITEMS, 1, POOL_ITEMS);
}

/* ---- the library's operations ------------------------------------------------------------------------------------ */

static clattn_tensor weights_at(const struct encoder *encoder, int64_t place, int64_t rows, int64_t columns) {
    return client_tensor(encoder->weights, encoder->dtype, place, rows, columns);
}

static clattn_tensor vector_at(const struct encoder *encoder, int64_t place) {
    clattn_tensor vector = clattn_tensor_dense(encoder->weights, encoder->dtype, 1, &encoder->shape.hidden);
    vector.offset = place;
    return vector;
}

/* y = x weights^T + bias */
static void dense(const struct encoder *encoder, clattn_tensor x, clattn_tensor weights, int64_t bias,
                  clattn_tensor y) {
    with_bias(encoder, encoder->fill, weights.memory.as.buffer, bias, y.memory.as.buffer, y.dims[0], y.dims[1]);
    client_product(encoder->client, x, weights, y, 1);
}

/* rows = the norm of sum, or of sum + rows */
static void normalise(const struct encoder *encoder, int64_t tokens, int64_t weight, int64_t bias, int add_rows) {
    const clattn_tensor rows = client_tensor(encoder->rows, encoder->dtype, 0, tokens, encoder->shape.hidden);
    clattn_norm_op op;
    clattn_norm_init(&op);
    op.function = CLATTN_LAYER_NORM;
    op.eps = encoder->shape.eps;
    op.x = client_tensor(encoder->sum, encoder->dtype, 0, tokens, encoder->shape.hidden);
    if (add_rows)
        op.residual = rows;
    op.weight = vector_at(encoder, weight);
    op.bias = vector_at(encoder, bias);
    op.y = rows;
    client_call(encoder->client, &op.head);
}

/* Heads of packed rows [tokens, all heads, head dim], from `first` on, as attention wants them: [1, heads, tokens, head
 * dim]. */
static clattn_tensor heads_of(const struct encoder *encoder, cl_mem buffer, int64_t tokens, int64_t all,
                              int64_t first) {
    const int64_t heads = encoder->shape.heads, dim = encoder->shape.hidden / heads;
    const clattn_tensor rows = clattn_tensor_dense(buffer, encoder->dtype, 4, (const int64_t[]){1, tokens, all, dim});
    return clattn_tensor_transpose(clattn_tensor_slice(rows, 2, first, heads), 1, 2);
}

static void attend(const struct encoder *encoder, const struct encoder_batch *batch) {
    const int64_t offset_count = batch->sentences + 1, heads = encoder->shape.heads;
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = heads_of(encoder, encoder->qkv, batch->tokens, 3 * heads, 0);
    op.k = heads_of(encoder, encoder->qkv, batch->tokens, 3 * heads, heads);
    op.v = heads_of(encoder, encoder->qkv, batch->tokens, 3 * heads, 2 * heads);
    op.o = heads_of(encoder, encoder->context, batch->tokens, heads, 0);
    op.q_offsets = op.k_offsets = clattn_tensor_dense(encoder->offsets, CLATTN_I32, 1, &offset_count);
    op.max_q = op.max_k = batch->longest;
    client_call(encoder->client, &op.head);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void run_layer(const struct encoder *encoder, const struct encoder_layer *layer,
                      const struct encoder_batch *batch) {
    const int64_t hidden = encoder->shape.hidden, inner = encoder->shape.inner, tokens = batch->tokens;
    const clattn_dtype dtype = encoder->dtype;
    const clattn_tensor rows = client_tensor(encoder->rows, dtype, 0, tokens, hidden);
    const clattn_tensor qkv = client_tensor(encoder->qkv, dtype, 0, tokens, 3 * hidden);
    const clattn_tensor context = client_tensor(encoder->context, dtype, 0, tokens, hidden);
    const clattn_tensor sum = client_tensor(encoder->sum, dtype, 0, tokens, hidden);
    const clattn_tensor wide = client_tensor(encoder->wide, dtype, 0, tokens, inner);
    dense(encoder, rows, layer->qkv, layer->qkv_bias, qkv);
    attend(encoder, batch);
    dense(encoder, context, weights_at(encoder, layer->context, hidden, hidden), layer->context_bias, sum);
    normalise(encoder, tokens, layer->context_norm, layer->context_norm_bias, 1);
    client_product(encoder->client, rows, weights_at(encoder, layer->inner, inner, hidden), wide, 0);
    with_bias(encoder, encoder->bias_gelu, encoder->weights, layer->inner_bias, encoder->wide, tokens, inner);
    dense(encoder, wide, weights_at(encoder, layer->outer, hidden, inner), layer->outer_bias, sum);
    normalise(encoder, tokens, layer->outer_norm, layer->outer_norm_bias, 1);
}

void encoder_run(struct encoder *encoder, const struct encoder_batch *batch, float *embeddings) {
    if (batch->tokens > encoder->most_tokens || batch->sentences > encoder->most_sentences)
        client_fail("a batch of %d sentences, %d tokens is too large", (int)batch->sentences, (int)batch->tokens);
    client_write(encoder->client, encoder->ids, (size_t)batch->tokens * sizeof(int32_t), batch->ids);
    client_write(encoder->client, encoder->positions, (size_t)batch->tokens * sizeof(int32_t), batch->positions);
    client_write(encoder->client, encoder->offsets, (size_t)(batch->sentences + 1) * sizeof(int32_t), batch->offsets);
    embed(encoder, batch->tokens);
    normalise(encoder, batch->tokens, encoder->norm, encoder->norm_bias, 0);
    for (int64_t i = 0; i < encoder->shape.layers; i++)
        run_layer(encoder, &encoder->layers[i], batch);
    pool(encoder, batch->sentences);
    client_read(encoder->client, encoder->embeddings,
                (size_t)(batch->sentences * encoder->shape.hidden) * sizeof(float), embeddings);
}
