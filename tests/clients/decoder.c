/* Norms, products, rotation, attention and the choice of words are the library's. */
#include "decoder.h"

#include <clattn/training.h>
#include <string.h>

enum { PAGES = SEQUENCES * MOST_PAGES };

static void check(clattn_status status, const char *what) {
    if (status != CLATTN_SUCCESS)
        client_fail("%s: %s", what, clattn_last_error());
}

static cl_mem elements(const struct decoder *decoder, int64_t count) {
    return client_buffer(decoder->client, (size_t)count * clattn_dtype_size(decoder->dtype), NULL);
}

static cl_mem words(const struct decoder *decoder, int64_t count) {
    return client_buffer(decoder->client, (size_t)count * sizeof(cl_int), NULL);
}

static clattn_tensor integers(cl_mem buffer, int64_t count) {
    return clattn_tensor_dense(buffer, CLATTN_I32, 1, &count);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void load_weights(struct decoder *decoder) {
    const int64_t count = decoder->model->count;
    cl_mem floats = client_buffer(decoder->client, (size_t)count * sizeof(float), decoder->model->weights);
    decoder->weights = floats;
    if (decoder->dtype == CLATTN_F32)
        return;
    clattn_cast_op op;
    clattn_cast_init(&op);
    decoder->weights = elements(decoder, count);
    op.x = client_tensor(floats, CLATTN_F32, 0, 1, count);
    op.y = client_tensor(decoder->weights, decoder->dtype, 0, 1, count);
    client_call(decoder->client, &op.head);
    clReleaseMemObject(floats);
}

static void make_kernels(struct decoder *decoder) {
    cl_program program = client_program(decoder->client, "decoder.cl", decoder->dtype);
    decoder->embed = client_kernel(program, "embed");
    decoder->swiglu = client_kernel(program, "swiglu");
    decoder->last_rows = client_kernel(program, "last_rows");
    clReleaseProgram(program);
}

static void make_caches(struct decoder *decoder) {
    const size_t rows = (size_t)PAGES * KV_HEADS * PAGE_SIZE;
    const size_t bytes = rows * HEAD_DIM * clattn_dtype_size(decoder->cache_dtype);
    for (int i = 0; i < LAYERS; i++)
        decoder->caches[i] = (struct decoder_cache){
            client_buffer(decoder->client, bytes, NULL),
            client_buffer(decoder->client, bytes, NULL),
            client_buffer(decoder->client, rows * sizeof(cl_half), NULL),
            client_buffer(decoder->client, rows * sizeof(cl_half), NULL),
        };
    check(clattn_page_pool_create(PAGES, PAGE_SIZE, MOST_PAGES, &decoder->pool), "clattn_page_pool_create");
    for (int b = 0; b < SEQUENCES; b++)
        check(clattn_page_pool_add(decoder->pool, &decoder->sequences[b]), "clattn_page_pool_add");
}

static void make_buffers(struct decoder *decoder) {
    const int64_t choices = decoder->most_steps * SEQUENCES * CHOICES;
    decoder->table = words(decoder, SEQUENCES * MOST_PAGES);
    decoder->before = words(decoder, SEQUENCES);
    decoder->after = words(decoder, SEQUENCES);
    decoder->ids = words(decoder, MOST_ROWS);
    decoder->offsets = words(decoder, SEQUENCES + 1);
    decoder->rows = elements(decoder, MOST_ROWS * HIDDEN);
    decoder->normed = elements(decoder, MOST_ROWS * HIDDEN);
    decoder->packed = elements(decoder, MOST_ROWS * PACKED_HEADS * HEAD_DIM);
    decoder->queries = elements(decoder, MOST_ROWS * HEADS * HEAD_DIM);
    decoder->context = elements(decoder, MOST_ROWS * HEADS * HEAD_DIM);
    decoder->sum = elements(decoder, MOST_ROWS * HIDDEN);
    decoder->wide = elements(decoder, MOST_ROWS * 2 * INNER);
    decoder->inner = elements(decoder, MOST_ROWS * INNER);
    decoder->last = elements(decoder, SEQUENCES * HIDDEN);
    decoder->logits = words(decoder, decoder->most_steps * SEQUENCES * WORDS);
    decoder->choices = words(decoder, choices);
    decoder->probabilities = words(decoder, choices);
}

void decoder_open(struct decoder *decoder, struct client *client, const struct decoder_model *model, clattn_dtype dtype,
                  clattn_dtype cache_dtype, int64_t most_steps) {
    memset(decoder, 0, sizeof *decoder);
    decoder->client = client;
    decoder->model = model;
    decoder->dtype = dtype;
    decoder->cache_dtype = cache_dtype;
    decoder->most_steps = most_steps;
    load_weights(decoder);
    make_kernels(decoder);
    make_caches(decoder);
    make_buffers(decoder);
}

void decoder_close(struct decoder *decoder) {
    cl_mem buffers[] = {decoder->weights, decoder->table,   decoder->before,       decoder->after,  decoder->ids,
                        decoder->offsets, decoder->rows,    decoder->normed,       decoder->packed, decoder->queries,
                        decoder->context, decoder->sum,     decoder->wide,         decoder->inner,  decoder->last,
                        decoder->logits,  decoder->choices, decoder->probabilities};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        clReleaseMemObject(buffers[i]);
    for (int i = 0; i < LAYERS; i++) {
        clReleaseMemObject(decoder->caches[i].keys);
        clReleaseMemObject(decoder->caches[i].values);
        clReleaseMemObject(decoder->caches[i].key_scales);
        clReleaseMemObject(decoder->caches[i].value_scales);
    }
    clReleaseKernel(decoder->embed);
    clReleaseKernel(decoder->swiglu);
    clReleaseKernel(decoder->last_rows);
    clattn_page_pool_release(&decoder->pool);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static clattn_tensor rows_of(const struct decoder *decoder, cl_mem buffer, int64_t rows, int64_t columns) {
    return client_tensor(buffer, decoder->dtype, 0, rows, columns);
}

static clattn_tensor weights_at(const struct decoder *decoder, int64_t place, int64_t rows, int64_t columns) {
    return client_tensor(decoder->weights, decoder->dtype, place, rows, columns);
}

/* to = from weights^T */
static void project(const struct decoder *decoder, int64_t rows, cl_mem from, int64_t columns, int64_t weights,
                    cl_mem to, int64_t to_columns) {
    client_product(decoder->client, rows_of(decoder, from, rows, columns),
                   weights_at(decoder, weights, to_columns, columns), rows_of(decoder, to, rows, to_columns), 0);
}

/* normed = the norm of rows; with_sum: sum is added to rows before. */
static void normalise(const struct decoder *decoder, int64_t rows, int64_t weights, int with_sum) {
    const clattn_tensor stream = rows_of(decoder, decoder->rows, rows, HIDDEN);
    const int64_t columns = HIDDEN;
    clattn_norm_op op;
    clattn_norm_init(&op);
    op.function = CLATTN_RMS_NORM;
    op.eps = (float)norm_eps;
    op.x = stream;
    if (with_sum) {
        op.residual = rows_of(decoder, decoder->sum, rows, HIDDEN);
        op.sum = stream;
    }
    op.weight = clattn_tensor_dense(decoder->weights, decoder->dtype, 1, &columns);
    op.weight.offset = weights;
    op.y = rows_of(decoder, decoder->normed, rows, HIDDEN);
    client_call(decoder->client, &op.head);
}

/* Heads first .. first + heads - 1 of rows [rows, all, HEAD_DIM], as [1, heads, rows, HEAD_DIM]. */
static clattn_tensor heads_of(const struct decoder *decoder, cl_mem buffer, int64_t rows, int64_t all, int64_t first,
                              int64_t heads) {
    const clattn_tensor packed =
        clattn_tensor_dense(buffer, decoder->dtype, 4, (const int64_t[]){1, rows, all, HEAD_DIM});
    return clattn_tensor_transpose(clattn_tensor_slice(packed, 2, first, heads), 1, 2);
}

static clattn_tensor pages_of(const struct decoder *decoder, cl_mem buffer) {
    return clattn_tensor_dense(buffer, decoder->cache_dtype, 4,
                               (const int64_t[]){PAGES, KV_HEADS, PAGE_SIZE, HEAD_DIM});
}

static clattn_tensor table_of(const struct decoder *decoder) {
    return clattn_tensor_dense(decoder->table, CLATTN_I32, 2, (const int64_t[]){SEQUENCES, MOST_PAGES});
}

/* A scale a row, where the cache holds codes. */
static clattn_quantization scales_of(const struct decoder *decoder, cl_mem scales) {
    clattn_quantization quantization;
    memset(&quantization, 0, sizeof quantization);
    if (decoder->cache_dtype != CLATTN_I8)
        return quantization;
    quantization.block = HEAD_DIM;
    quantization.scales = clattn_tensor_dense(scales, CLATTN_F16, 4, (const int64_t[]){PAGES, KV_HEADS, PAGE_SIZE, 1});
    return quantization;
}

static void append(const struct decoder *decoder, const struct decoder_cache *cache, int64_t rows) {
    clattn_rope_append_op op;
    clattn_rope_append_init(&op);
    op.q = heads_of(decoder, decoder->packed, rows, PACKED_HEADS, 0, HEADS);
    op.k = heads_of(decoder, decoder->packed, rows, PACKED_HEADS, HEADS, KV_HEADS);
    op.v = heads_of(decoder, decoder->packed, rows, PACKED_HEADS, HEADS + KV_HEADS, KV_HEADS);
    op.q_out = heads_of(decoder, decoder->queries, rows, HEADS, 0, HEADS);
    op.rope_base = rope_base;
    op.k_cache = pages_of(decoder, cache->keys);
    op.v_cache = pages_of(decoder, cache->values);
    op.k_quantization = scales_of(decoder, cache->key_scales);
    op.v_quantization = scales_of(decoder, cache->value_scales);
    op.page_table = table_of(decoder);
    op.k_lengths = integers(decoder->before, SEQUENCES);
    op.q_offsets = integers(decoder->offsets, SEQUENCES + 1);
    client_call(decoder->client, &op.head);
}

static void attend(const struct decoder *decoder, const struct decoder_cache *cache, int64_t rows, int64_t longest) {
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = heads_of(decoder, decoder->queries, rows, HEADS, 0, HEADS);
    op.k = pages_of(decoder, cache->keys);
    op.v = pages_of(decoder, cache->values);
    op.k_quantization = scales_of(decoder, cache->key_scales);
    op.v_quantization = scales_of(decoder, cache->value_scales);
    op.o = heads_of(decoder, decoder->context, rows, HEADS, 0, HEADS);
    op.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    op.window_left = WINDOW - 1;
    op.page_table = table_of(decoder);
    op.k_lengths = integers(decoder->after, SEQUENCES);
    op.q_offsets = integers(decoder->offsets, SEQUENCES + 1);
    op.max_q = longest;
    client_call(decoder->client, &op.head);
}

static void run_kernel(const struct decoder *decoder, cl_kernel kernel, const cl_mem *buffers, int count,
                       int64_t columns, int64_t rows) {
    cl_uint index = 0;
    while ((int)index < count)
        client_argument(kernel, &index, sizeof(cl_mem), &buffers[index]);
    client_launch(decoder->client, kernel, (size_t)columns, (size_t)rows, 0);
}

static void embed(const struct decoder *decoder, int64_t rows) {
    const cl_int place = (cl_int)decoder->model->words;
    cl_uint index = 0;
    client_argument(decoder->embed, &index, sizeof(cl_mem), &decoder->ids);
    client_argument(decoder->embed, &index, sizeof(cl_mem), &decoder->weights);
    client_argument(decoder->embed, &index, sizeof place, &place);
    client_argument(decoder->embed, &index, sizeof(cl_mem), &decoder->rows);
    client_launch(decoder->client, decoder->embed, HIDDEN, (size_t)rows, 0);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void upload(const struct decoder *decoder, const clattn_tensor *table, cl_mem lengths) {
    const clattn_tensor view = integers(lengths, SEQUENCES);
    clattn_launch launch;
    clattn_launch_init(&launch, decoder->client->queue);
    check(clattn_page_pool_upload(decoder->client->clattn, decoder->pool, SEQUENCES, decoder->sequences, table, &view,
                                  &launch),
          "clattn_page_pool_upload");
}

static void make_room(const struct decoder *decoder, const int32_t *counts) {
    const clattn_tensor table = table_of(decoder);
    upload(decoder, NULL, decoder->before);
    for (int b = 0; b < SEQUENCES; b++) {
        clattn_page_copy copy;
        check(clattn_page_pool_append(decoder->pool, decoder->sequences[b], counts[b], &copy),
              "clattn_page_pool_append");
        if (copy.from >= 0)
            client_fail("sequences that were never forked share a page");
    }
    upload(decoder, &table, decoder->after);
}

/* Returns how many rows there are. */
static int64_t write_offsets(struct decoder *decoder, const int32_t *counts) {
    int32_t offsets[SEQUENCES + 1] = {0};
    for (int b = 0; b < SEQUENCES; b++)
        offsets[b + 1] = offsets[b] + counts[b];
    if (offsets[SEQUENCES] > MOST_ROWS)
        client_fail("a step of %d rows is too large", (int)offsets[SEQUENCES]);
    if (memcmp(offsets, decoder->host_offsets, sizeof offsets) != 0)
        client_write(decoder->client, decoder->offsets, sizeof offsets, offsets);
    memcpy(decoder->host_offsets, offsets, sizeof offsets);
    return offsets[SEQUENCES];
}

static void write_ids(const struct decoder *decoder, int64_t rows, const int32_t *ids) {
    if (ids != NULL) {
        client_write(decoder->client, decoder->ids, (size_t)rows * sizeof *ids, ids);
        return;
    }
    for (size_t b = 0; b < SEQUENCES; b++) {
        const size_t from = ((size_t)(decoder->steps - 1) * SEQUENCES + b) * CHOICES;
        client_check(clEnqueueCopyBuffer(decoder->client->queue, decoder->choices, decoder->ids, from * sizeof *ids,
                                         b * sizeof *ids, sizeof *ids, 0, NULL, NULL),
                     "clEnqueueCopyBuffer");
    }
}

static void run_layer(const struct decoder *decoder, int index, int64_t rows, int64_t longest) {
    const struct decoder_layer *layer = &decoder->model->layers[index];
    normalise(decoder, rows, layer->attention_norm, index > 0);
    project(decoder, rows, decoder->normed, HIDDEN, layer->qkv, decoder->packed, PACKED_HEADS * HEAD_DIM);
    append(decoder, &decoder->caches[index], rows);
    attend(decoder, &decoder->caches[index], rows, longest);
    project(decoder, rows, decoder->context, HEADS * HEAD_DIM, layer->out, decoder->sum, HIDDEN);
    normalise(decoder, rows, layer->inner_norm, 1);
    project(decoder, rows, decoder->normed, HIDDEN, layer->gate_up, decoder->wide, 2 * INNER);
    run_kernel(decoder, decoder->swiglu, (const cl_mem[]){decoder->wide, decoder->inner}, 2, INNER, rows);
    project(decoder, rows, decoder->inner, INNER, layer->down, decoder->sum, HIDDEN);
}

/* Logits of the sequences' last rows, and the likeliest words, at the step's place in the results. */
static void choose(const struct decoder *decoder, int64_t rows) {
    const int64_t place = decoder->steps * SEQUENCES;
    const clattn_tensor logits = client_tensor(decoder->logits, CLATTN_F32, place * WORDS, SEQUENCES, WORDS);
    clattn_softmax_topk_op op;
    normalise(decoder, rows, decoder->model->final_norm, 1);
    run_kernel(decoder, decoder->last_rows, (const cl_mem[]){decoder->normed, decoder->offsets, decoder->last}, 3,
               HIDDEN, SEQUENCES);
    client_product(decoder->client, rows_of(decoder, decoder->last, SEQUENCES, HIDDEN),
                   weights_at(decoder, decoder->model->head, WORDS, HIDDEN), logits, 0);
    clattn_softmax_topk_init(&op);
    op.k = CHOICES;
    op.x = logits;
    op.values = client_tensor(decoder->probabilities, CLATTN_F32, place * CHOICES, SEQUENCES, CHOICES);
    op.indices = client_tensor(decoder->choices, CLATTN_I32, place * CHOICES, SEQUENCES, CHOICES);
    client_call(decoder->client, &op.head);
}

void decoder_step(struct decoder *decoder, const int32_t *counts, const int32_t *ids) {
    int64_t longest = 0;
    if (decoder->steps == decoder->most_steps)
        client_fail("there is no room for a further step");
    const int64_t rows = write_offsets(decoder, counts);
    for (int b = 0; b < SEQUENCES; b++)
        longest = counts[b] > longest ? counts[b] : longest;
    write_ids(decoder, rows, ids);
    make_room(decoder, counts);
    embed(decoder, rows);
    for (int i = 0; i < LAYERS; i++)
        run_layer(decoder, i, rows, longest);
    choose(decoder, rows);
    decoder->steps++;
}

void decoder_results(const struct decoder *decoder, float *logits, int32_t *choices) {
    const size_t rows = (size_t)decoder->steps * SEQUENCES;
    if (logits != NULL)
        client_read(decoder->client, decoder->logits, rows * WORDS * sizeof *logits, logits);
    if (choices != NULL)
        client_read(decoder->client, decoder->choices, rows * CHOICES * sizeof *choices, choices);
}
