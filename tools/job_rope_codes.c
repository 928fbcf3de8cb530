/* Caches of codes as outputs of the job rope_append. The oracle has no codes: what they stand for is compared with what
 * was appended, and may be off by twice as much as the values of a plain quantiser. */
#include "command.h"
#include "job_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEAD = 1, ROW, COLUMN, NAME = 16 };

static struct job_tensor *find(const struct job *job, const char *name, const char *what) {
    char full[NAME];
    snprintf(full, sizeof full, "%s_%s", name, what);
    return job_find(job, full);
}

static clattn_quantization *quantization_of(const struct job *job, const char *name) {
    struct job *own = (struct job *)job;
    return name[0] == 'k' ? &own->op.rope_append.k_quantization : &own->op.rope_append.v_quantization;
}

int job_rope_generate_scales(struct job *job, struct settings *settings) {
    static const char *const names[] = {"k", "v"};
    for (int i = 0; i < 2; i++) {
        const int64_t heads = job_find(job, names[i])->view.dims[HEAD];
        struct job_format format;
        struct array scales;
        char name[NAME];
        FORWARD(job_format_take(settings, names[i], &format));
        if (!format.codes || format.dtype != CLATTN_F8_E4M3)
            continue;
        if (!array_make(&scales, ELEMENT_F32, 1, &heads))
            return complain(EXIT_UNSUPPORTED, "%s_scales: out of host memory", names[i]);
        for (int64_t head = 0; head < heads; head++)
            array_set(&scales, (size_t)head, 1.0 / 64);
        snprintf(name, sizeof name, "%s_scales", names[i]);
        FORWARD(job_add(job, name, false, &scales));
    }
    return EXIT_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static int add(struct job *job, const char *name, const char *what, enum element element, const int64_t dims[4],
               int64_t columns) {
    const int64_t own[4] = {dims[0], dims[HEAD], dims[ROW], columns};
    char full[NAME];
    snprintf(full, sizeof full, "%s_%s", name, what);
    return job_add_output(job, full, element, 4, own);
}

static int add_numbers(struct job *job, struct settings *settings, const char *name, const struct job_format *format,
                       const int64_t dims[4]) {
    const int64_t blocks = job_format_blocks(format, dims[COLUMN]);
    int32_t zeros = 0;
    char key[NAME];
    if (format->dtype == CLATTN_F8_E4M3) {
        const struct job_tensor *scales = find(job, name, "scales");
        if (!scales || scales->host.element != ELEMENT_F32 || scales->host.rank != 1)
            return complain(EXIT_USAGE, "%s_dtype=f8 wants a tensor '%s_scales' of f32, one a head", name, name);
        return EXIT_OK;
    }
    snprintf(key, sizeof key, "%s_zeros", name);
    FORWARD(settings_flag(settings, key, &zeros));
    FORWARD(add(job, name, "scales", ELEMENT_F16, dims, blocks));
    return zeros ? add(job, name, "zeros", ELEMENT_F16, dims, blocks) : EXIT_OK;
}

int job_rope_add_codes(struct job *job, struct settings *settings, const char *name, const struct job_format *format,
                       const int64_t dims[4]) {
    const enum element element = format->dtype == CLATTN_I8 ? ELEMENT_I8 : ELEMENT_U8;
    *quantization_of(job, name) = format->quantization;
    FORWARD(add(job, name, "cache", element, dims, job_format_bytes(format, dims[COLUMN])));
    job_format_view(find(job, name, "cache"), format, dims[COLUMN]);
    FORWARD(add_numbers(job, settings, name, format, dims));
    job->sequence_first = false;
    FORWARD(add(job, name, "values", ELEMENT_F32, dims, dims[COLUMN]));
    find(job, name, "values")->derived = true;
    return EXIT_OK;
}

static void bind(const struct job *job, const char *name) {
    clattn_quantization *quantization = quantization_of(job, name);
    if (!find(job, name, "values"))
        return;
    quantization->scales = find(job, name, "scales")->view;
    if (find(job, name, "zeros"))
        quantization->zeros = find(job, name, "zeros")->view;
}

void job_rope_bind_codes(struct job *job) {
    bind(job, "k");
    bind(job, "v");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A cache with its numbers, as the device left them. */
struct cache {
    const struct job_tensor *codes, *scales, *zeros;
    const clattn_quantization *quantization;
    clattn_dtype dtype;
    int64_t columns, blocks;
};

static struct cache cache_of(const struct job *job, const char *name) {
    struct cache cache = {.codes = find(job, name, "cache"),
                          .scales = find(job, name, "scales"),
                          .zeros = find(job, name, "zeros"),
                          .quantization = quantization_of(job, name)};
    const int64_t block = cache.quantization->block;
    cache.dtype = cache.codes->view.dtype;
    cache.columns = cache.codes->view.dims[COLUMN];
    cache.blocks = block ? (cache.columns + block - 1) / block : 0;
    return cache;
}

static double scale_at(const struct cache *cache, int64_t row, int64_t column) {
    const clattn_tensor *view = &cache->codes->view;
    if (cache->blocks == 0)
        return array_get(&cache->scales->host, (size_t)(row / view->dims[ROW] % view->dims[HEAD]));
    return job_value(cache->scales, &cache->scales->result, row * cache->blocks + column / cache->quantization->block);
}

static double zero_at(const struct cache *cache, int64_t row, int64_t column) {
    if (!cache->zeros)
        return cache->dtype == CLATTN_I4 ? 8 : 0;
    return job_value(cache->zeros, &cache->zeros->result, row * cache->blocks + column / cache->quantization->block);
}

static int code_at(const struct cache *cache, int64_t row, int64_t column) {
    const clattn_tensor *view = &cache->codes->view;
    const int64_t in_byte = cache->dtype == CLATTN_I4 ? 2 : 1;
    const int64_t first = row / view->dims[ROW] / view->dims[HEAD] * view->strides[0] +
                          row / view->dims[ROW] % view->dims[HEAD] * view->strides[HEAD] +
                          row % view->dims[ROW] * view->strides[ROW];
    const struct reference_place place = reference_code_place(cache->dtype, cache->quantization, column);
    const int byte = (int)array_get(&cache->codes->result, (size_t)(first / in_byte + place.byte));
    return cache->dtype == CLATTN_I4 ? byte >> place.shift & 15 : byte;
}

static void derive(const struct job *job, const char *name) {
    struct job_tensor *values = find(job, name, "values");
    if (!values || values->host.count == 0)
        return;
    const struct cache cache = cache_of(job, name);
    for (int64_t i = 0; i < (int64_t)values->host.count; i++) {
        const int64_t row = i / cache.columns, column = i % cache.columns;
        array_set(&values->result, (size_t)i,
                  reference_dequantize(cache.dtype, code_at(&cache, row, column), scale_at(&cache, row, column),
                                       zero_at(&cache, row, column), CLATTN_F32));
    }
}

void job_rope_derive(struct job *job) {
    derive(job, "k");
    derive(job, "v");
}

/* ---- the plain quantiser ----------------------------------------------------------------------------------------- */

static void round_block(const struct cache *cache, int64_t count, double *values) {
    double scale, zero;
    int codes[64];
    reference_quantize(cache->dtype, cache->zeros != NULL, count, values, &scale, &zero, codes);
    for (int64_t i = 0; i < count; i++)
        values[i] = reference_dequantize(cache->dtype, codes[i], scale, zero, CLATTN_F32);
}

static void round_row(const struct cache *cache, int64_t row, double *values) {
    const int64_t block = cache->quantization->block;
    for (int64_t first = 0; block && first < cache->columns; first += block)
        round_block(cache, cache->columns - first < block ? cache->columns - first : block, values + first);
    for (int64_t c = 0; !block && c < cache->columns; c++) {
        const double scale = scale_at(cache, row, c);
        int code;
        reference_quantize_e4m3(1, values + c, scale, &code);
        values[c] = reference_dequantize(cache->dtype, code, scale, 0, CLATTN_F32);
    }
}

void job_rope_round(const struct job *job, const char *name, double *values) {
    const struct cache cache = cache_of(job, name);
    const int64_t rows = cache.columns ? (int64_t)find(job, name, "values")->host.count / cache.columns : 0;
    for (int64_t row = 0; row < rows; row++)
        if (!isnan(values[row * cache.columns])) /* else it is not written */
            round_row(&cache, row, values + row * cache.columns);
}
