/* Appending to caches of codes: codes, scales and zeros bit by bit against a host quantiser, what lies round them
 * untouched, and the error of what a reader gets against stated bounds. */
#include "reference.h"
#include "support.h"

#include <clattn/kv_cache.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/half.h"

enum { BATCH = 2, HEADS = 2, NEW = 7, CACHE = 10, ROWS = BATCH * HEADS * CACHE, FILL = 0xa5 };

static const double lengths[BATCH] = {2, 0};

/* ---- a cache of codes in host memory ----------------------------------------------------------------------------- */

struct format {
    clattn_dtype dtype;
    int block;
    clattn_nibbles nibbles;
    bool zeros, ggml; /* ggml: scales lie before each block's codes */
    int dim;
    int padding; /* bytes behind each row */
};

struct cache {
    struct format format;
    int blocks, step, first; /* bytes from block to block; of the row before its first codes */
    int row_bytes;
    unsigned char *codes;     /* all of it */
    uint16_t *scales, *zeros; /* [ROWS, blocks]; scales are unused where ggml */
    float *head_scales;       /* of fp8 */
    size_t codes_size, planes_size;
    cl_mem codes_buffer, scales_buffer, zeros_buffer;
};

static bool in_blocks(const struct format *format) {
    return format->dtype != CLATTN_F8_E4M3;
}

static int codes_in_byte(const struct format *format) {
    return format->dtype == CLATTN_I4 ? 2 : 1;
}

static int block_bytes(const struct format *format, int count) {
    const int half = format->block / 2;
    if (format->dtype != CLATTN_I4)
        return count;
    return format->nibbles == CLATTN_NIBBLES_PAIRS ? (count + 1) / 2 : count < half ? count : half;
}

static struct cache cache_of(const struct format *format) {
    struct cache cache = {.format = *format, .blocks = 1, .step = format->dim};
    int last = format->dim;
    if (in_blocks(format)) {
        cache.blocks = (format->dim + format->block - 1) / format->block;
        cache.step = format->block / codes_in_byte(format) + (format->ggml ? 2 : 0);
        last = block_bytes(format, format->dim - (cache.blocks - 1) * format->block);
    }
    cache.first = format->ggml ? 2 : 0;
    cache.row_bytes = cache.first + (cache.blocks - 1) * cache.step + last + format->padding;
    cache.codes_size = (size_t)(ROWS * cache.row_bytes);
    cache.planes_size = (size_t)(ROWS * cache.blocks) * sizeof(uint16_t);
    cache.codes = malloc(cache.codes_size);
    cache.scales = malloc(cache.planes_size);
    cache.zeros = malloc(cache.planes_size);
    cache.head_scales = malloc(HEADS * sizeof(float));
    assert_true(cache.codes && cache.scales && cache.zeros && cache.head_scales);
    memset(cache.codes, FILL, cache.codes_size);
    memset(cache.scales, FILL, cache.planes_size);
    memset(cache.zeros, FILL, cache.planes_size);
    for (int h = 0; h < HEADS; h++)
        cache.head_scales[h] = 0.01F + 0.007F * (float)h;
    return cache;
}

static cl_mem upload(const void *data, size_t size) {
    cl_int code = CL_SUCCESS;
    void *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, data, size);
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, copy, &code);
    support_expect_cl(code, "clCreateBuffer");
    free(copy);
    return buffer;
}

static void upload_cache(struct cache *cache) {
    cache->codes_buffer = upload(cache->codes, cache->codes_size);
    cache->scales_buffer = in_blocks(&cache->format) ? upload(cache->scales, cache->planes_size)
                                                     : upload(cache->head_scales, HEADS * sizeof(float));
    cache->zeros_buffer = upload(cache->zeros, cache->planes_size);
}

static void download(cl_mem buffer, void *to, size_t size) {
    CHECK_CL(clEnqueueReadBuffer(device.queue, buffer, CL_TRUE, 0, size, to, 0, NULL, NULL));
}

static void release_cache(struct cache *cache) {
    clReleaseMemObject(cache->codes_buffer);
    clReleaseMemObject(cache->scales_buffer);
    clReleaseMemObject(cache->zeros_buffer);
    free(cache->codes);
    free(cache->scales);
    free(cache->zeros);
    free(cache->head_scales);
}

static clattn_tensor rows_view(cl_mem buffer, clattn_dtype dtype, int64_t row, int64_t columns) {
    const int64_t dims[] = {BATCH, HEADS, CACHE, columns};
    clattn_tensor view = clattn_tensor_dense(buffer, dtype, 4, dims);
    view.strides[0] = HEADS * CACHE * row;
    view.strides[1] = CACHE * row;
    view.strides[2] = row;
    return view;
}

static void bind_cache(const struct cache *cache, clattn_tensor *codes, clattn_quantization *quantization) {
    const struct format *format = &cache->format;
    const int in_byte = codes_in_byte(format);
    const int64_t heads = HEADS;
    *codes = rows_view(cache->codes_buffer, format->dtype, cache->row_bytes * in_byte, format->dim);
    codes->offset = cache->first * in_byte;
    if (!in_blocks(format)) {
        quantization->scales = clattn_tensor_dense(cache->scales_buffer, CLATTN_F32, 1, &heads);
        return;
    }
    quantization->block = format->block;
    quantization->nibbles = format->nibbles;
    quantization->code_stride = format->ggml ? cache->step * in_byte : 0;
    quantization->scales = rows_view(cache->scales_buffer, CLATTN_F16, cache->blocks, cache->blocks);
    if (format->ggml) {
        quantization->scales = rows_view(cache->codes_buffer, CLATTN_F16, cache->row_bytes / 2, cache->blocks);
        quantization->scales.strides[3] = cache->step / 2;
    }
    if (format->zeros)
        quantization->zeros = rows_view(cache->zeros_buffer, CLATTN_F16, cache->blocks, cache->blocks);
}

/* ---- the host's writing and reading ------------------------------------------------------------------------------ */

static unsigned char *codes_at(const struct cache *cache, int row, int block) {
    return cache->codes + row * cache->row_bytes + cache->first + block * cache->step;
}

static void put_code(const struct format *format, unsigned char *at, int index, int code) {
    const int half = format->block / 2;
    const bool halves = format->nibbles == CLATTN_NIBBLES_HALVES;
    unsigned char *byte = at + (format->dtype == CLATTN_I8 ? index : halves ? index % half : index / 2);
    const bool high = format->dtype == CLATTN_I4 && (halves ? index >= half : index % 2 == 1);
    *byte = (unsigned char)(high ? (*byte & 15) | code << 4 : code & (format->dtype == CLATTN_I4 ? 15 : 255));
}

static int get_code(const struct format *format, const unsigned char *at, int index) {
    const int half = format->block / 2;
    const bool halves = format->nibbles == CLATTN_NIBBLES_HALVES;
    const unsigned char byte = at[format->dtype == CLATTN_I8 ? index : halves ? index % half : index / 2];
    if (format->dtype == CLATTN_I8)
        return (int8_t)byte;
    return (halves ? index >= half : index % 2 == 1) ? byte >> 4 : byte & 15;
}

static void put_scale(struct cache *cache, int row, int block, uint16_t scale) {
    if (cache->format.ggml)
        memcpy(codes_at(cache, row, block) - 2, &scale, sizeof scale);
    else
        cache->scales[row * cache->blocks + block] = scale;
}

static uint16_t get_scale(const struct cache *cache, int row, int block) {
    uint16_t scale = cache->scales[row * cache->blocks + block];
    if (cache->format.ggml)
        memcpy(&scale, codes_at(cache, row, block) - 2, sizeof scale);
    return scale;
}

static void write_block(struct cache *cache, int row, int block, const float *x, int count) {
    int codes[64];
    uint16_t scale, zero;
    reference_quantize_block(cache->format.dtype, cache->format.zeros, count, x, &scale, &zero, codes);
    for (int i = 0; i < count; i++)
        put_code(&cache->format, codes_at(cache, row, block), i, codes[i]);
    put_scale(cache, row, block, scale);
    if (cache->format.zeros)
        cache->zeros[row * cache->blocks + block] = zero;
}

static void write_row(struct cache *cache, int row, const float *x) {
    const struct format *format = &cache->format;
    const float scale = cache->head_scales[row / CACHE % HEADS];
    for (int i = 0; !in_blocks(format) && i < format->dim; i++)
        codes_at(cache, row, 0)[i] = reference_f8_code((double)(x[i] / scale));
    for (int block = 0; in_blocks(format) && block < cache->blocks; block++) {
        const int first = block * format->block, left = format->dim - first;
        write_block(cache, row, block, x + first, left < format->block ? left : format->block);
    }
}

/* What a reader gets for element i of a row, and how far it may be off. */
static double value_at(const struct cache *cache, int row, int i, double *allowed) {
    const struct format *format = &cache->format;
    if (!in_blocks(format)) {
        const double scale = (double)cache->head_scales[row / CACHE % HEADS];
        const double value = reference_e4m3(codes_at(cache, row, 0)[i]) * scale;
        *allowed = fmax(fabs(value) / 16, scale * 0x1p-10) * 1.0001;
        return value;
    }
    const int block = i / format->block;
    const uint16_t scale = get_scale(cache, row, block);
    const double zero = format->zeros                ? half_to_double(cache->zeros[row * cache->blocks + block])
                        : format->dtype == CLATTN_I4 ? 8
                                                     : 0;
    *allowed = half_to_double(scale) * (format->zeros ? 1.0 : 0.5) * 1.0001;
    const int code = get_code(format, codes_at(cache, row, block), i % format->block);
    return reference_dequantize(format->dtype, code, half_to_double(scale), zero, CLATTN_F32);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

struct problem {
    struct format k, v;
    clattn_dtype dtype; /* of k and v */
    int32_t rotary_dim;
    clattn_rope_style style;
};

/* New rows [BATCH, HEADS, NEW, dim] as their dtype holds them. */
static double *new_rows(clattn_dtype dtype, int dim, uint64_t seed) {
    double *x = test_array(BATCH * HEADS * NEW * dim);
    for (int i = 0; i < BATCH * HEADS * NEW * dim; i++)
        x[i] = reference_round(dtype, reference_normal((uint64_t)i, seed) * (i / dim % 3 + 1));
    return x;
}

/* Rows of kinds that are hard to scale: a row each of the first head. */
static void put_awkward_rows(double *x, int dim, clattn_dtype dtype) {
    const double huge = dtype == CLATTN_F32 ? 3e38 : 60000;
    for (int i = 0; i < dim; i++) {
        x[0 * dim + i] = 0;
        x[1 * dim + i] = i == 1 ? (double)NAN : 1;
        x[2 * dim + i] = i == dim - 1 ? -(double)INFINITY : 1;
        x[3 * dim + i] = i % 2 ? 6e-8 : -6e-8; /* too small for a scale */
        x[4 * dim + i] = i % 2 ? huge : -huge;
        x[5 * dim + i] = 100 + (i % 2 ? 0.25 : 0); /* far from 0, close together */
        x[6 * dim + i] = (i % 7 - 3) * 3.6e-6;     /* a scale that is a few of fp16's smallest steps */
    }
    for (int i = 0; i < 7 * dim; i++)
        x[i] = reference_round(dtype, x[i]);
}

static int cache_row(int batch, int head, int row) {
    return (batch * HEADS + head) * CACHE + (int)lengths[batch] + row;
}

/* Fills the host's cache from the new rows; `turned` becomes what a row is after its rotation. */
static void expect(struct cache *cache, const struct reference_rope *rope, const double *x, double *turned) {
    const int dim = cache->format.dim;
    float *row_of = malloc((size_t)dim * sizeof *row_of);
    assert_non_null(row_of);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int r = 0; r < NEW; r++) {
                const int64_t at = (int64_t)((b * HEADS + h) * NEW + r) * dim;
                plain_rope_row(rope, CLATTN_F32, dim, (int64_t)lengths[b] + r, x + at, turned + at);
                for (int i = 0; i < dim; i++)
                    row_of[i] = (float)turned[at + i];
                write_row(cache, cache_row(b, h, r), row_of);
            }
    free(row_of);
}

static bool on_cpu(void) {
    cl_device_type type = 0;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_TYPE, sizeof type, &type, NULL));
    return (type & CL_DEVICE_TYPE_CPU) != 0;
}

/* Bytes that differ, which only another rounding of a division explains. */
static size_t differing(const void *a, const void *b, size_t size) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((const unsigned char *)a)[i] != ((const unsigned char *)b)[i];
    return count;
}

static void compare_bits(const char *name, const struct cache *got, const struct cache *want, bool exact) {
    const size_t allowed = exact ? 0 : 1 + got->codes_size / 100;
    const size_t codes = differing(got->codes, want->codes, got->codes_size);
    const size_t scales = differing(got->scales, want->scales, got->planes_size);
    const size_t zeros = differing(got->zeros, want->zeros, got->planes_size);
    if (codes > allowed || scales > allowed || zeros > allowed)
        fail_msg("%s: %zu bytes of codes, %zu of scales, %zu of zeros differ", name, codes, scales, zeros);
}

/* fp8 ends at 448. */
static double within_reach(const struct cache *cache, int row, double value) {
    const double most =
        in_blocks(&cache->format) ? (double)INFINITY : 448 * (double)cache->head_scales[row / CACHE % HEADS];
    return isfinite(value) ? fmin(fmax(value, -most), most) : value;
}

static void compare_values(const char *name, const struct cache *got, const double *turned) {
    const int dim = got->format.dim;
    for (int at = 0; at < BATCH * HEADS * NEW * dim; at++) {
        const int row = cache_row(at / dim / NEW / HEADS, at / dim / NEW % HEADS, at / dim % NEW);
        double allowed;
        const double value = value_at(got, row, at % dim, &allowed), want = within_reach(got, row, turned[at]);
        if (isfinite(value) && fabs(value - want) > allowed + 1e-5 * fabs(want) + 1e-7)
            fail_msg("%s: [%d] is %.9g, not %.9g (bound %.3g)", name, at, value, want, allowed);
        if (!isfinite(turned[at]) && isfinite(value))
            fail_msg("%s: [%d] is %.9g, but should not be finite", name, at, value);
    }
}

static void read_back(struct cache *cache) {
    download(cache->codes_buffer, cache->codes, cache->codes_size);
    if (in_blocks(&cache->format))
        download(cache->scales_buffer, cache->scales, cache->planes_size);
    download(cache->zeros_buffer, cache->zeros, cache->planes_size);
}

static struct test_tensor input_of(clattn_dtype dtype, int dim, const double *x) {
    const int64_t dims[] = {BATCH, HEADS, NEW, dim};
    return test_input(dtype, 4, dims, x, NULL, (double)NAN);
}

/* Keys turn, so that their codes may differ by a rounding; values are compared bit by bit. */
static void check(const struct problem *problem, const char *name) {
    const struct reference_rope rope = {problem->style, problem->rotary_dim, 10000, 1, NULL, NULL};
    const struct reference_rope still = {.rotary_dim = 0};
    double *k_rows = new_rows(problem->dtype, problem->k.dim, 1), *v_rows = new_rows(problem->dtype, problem->v.dim, 2);
    double *k_turned = test_array(BATCH * HEADS * NEW * problem->k.dim);
    double *v_turned = test_array(BATCH * HEADS * NEW * problem->v.dim);
    struct cache k = cache_of(&problem->k), v = cache_of(&problem->v);
    struct cache k_want = cache_of(&problem->k), v_want = cache_of(&problem->v);
    put_awkward_rows(v_rows, problem->v.dim, problem->dtype);
    struct test_tensor k_in = input_of(problem->dtype, problem->k.dim, k_rows);
    struct test_tensor v_in = input_of(problem->dtype, problem->v.dim, v_rows);
    const int64_t dims[] = {BATCH};
    struct test_tensor k_lengths = test_input(CLATTN_I32, 1, dims, lengths, NULL, 0);
    upload_cache(&k);
    upload_cache(&v);
    upload_cache(&k_want);
    upload_cache(&v_want);
    clattn_rope_append_op op;
    clattn_rope_append_init(&op);
    op.k = k_in.view;
    op.v = v_in.view;
    op.k_lengths = k_lengths.view;
    op.rotary_dim = problem->rotary_dim;
    op.style = problem->style;
    bind_cache(&k, &op.k_cache, &op.k_quantization);
    bind_cache(&v, &op.v_cache, &op.v_quantization);
    test_run(&op.head, NULL);
    read_back(&k);
    read_back(&v);
    expect(&k_want, &rope, k_rows, k_turned);
    expect(&v_want, &still, v_rows, v_turned);
    compare_bits(name, &v, &v_want, on_cpu());
    compare_bits(name, &k, &k_want, false);
    compare_values(name, &k, k_turned);
    compare_values(name, &v, v_turned);
    release_cache(&k), release_cache(&v), release_cache(&k_want), release_cache(&v_want);
    test_release(&k_in), test_release(&v_in), test_release(&k_lengths);
    free(k_rows), free(v_rows), free(k_turned), free(v_turned);
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static void bytes_and_pairs_of_nibbles(void **state) {
    (void)state;
    struct problem problem = {.dtype = CLATTN_F32,
                              .rotary_dim = 64,
                              .k = {.dtype = CLATTN_I8, .block = 32, .dim = 64},
                              .v = {.dtype = CLATTN_I4, .block = 32, .dim = 80, .padding = 8}};
    check(&problem, "i8 and i4");
    problem.v.padding = 0;
    problem.k.padding = 4;
    problem.rotary_dim = 48;
    check(&problem, "i8 and i4, other rows");
}

static void zeros_and_halves(void **state) {
    (void)state;
    const struct problem problem = {
        .dtype = CLATTN_F32,
        .rotary_dim = 64,
        .style = CLATTN_ROPE_INTERLEAVED,
        .k =
            {.dtype = CLATTN_I4, .block = 64, .nibbles = CLATTN_NIBBLES_HALVES, .zeros = true, .dim = 96, .padding = 3},
        .v = {.dtype = CLATTN_I8, .block = 64, .zeros = true, .dim = 33, .padding = 1}};
    check(&problem, "i4 by halves and i8, with zeros");
}

static void odd_dims(void **state) {
    (void)state;
    const struct problem problem = {
        .dtype = CLATTN_F32,
        .rotary_dim = 6,
        .style = CLATTN_ROPE_INTERLEAVED,
        .k = {.dtype = CLATTN_I4, .block = 32, .zeros = true, .dim = 13},
        .v = {.dtype = CLATTN_I4, .block = 32, .nibbles = CLATTN_NIBBLES_HALVES, .dim = 45, .padding = 1}};
    check(&problem, "odd dims");
}

static void blocks_of_ggml(void **state) {
    (void)state;
    const struct problem problem = {
        .dtype = CLATTN_F16,
        .rotary_dim = 64,
        .k = {.dtype = CLATTN_I8, .block = 32, .ggml = true, .dim = 64},
        .v = {.dtype = CLATTN_I4, .block = 32, .nibbles = CLATTN_NIBBLES_HALVES, .ggml = true, .dim = 96}};
    check(&problem, "q8_0 and q4_0");
}

static void eight_bit_floats(void **state) {
    (void)state;
    const struct problem problem = {.dtype = CLATTN_F32,
                                    .rotary_dim = 64,
                                    .k = {.dtype = CLATTN_F8_E4M3, .dim = 64},
                                    .v = {.dtype = CLATTN_F8_E4M3, .dim = 70, .padding = 3}};
    check(&problem, "f8");
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refuse(const clattn_rope_append_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

#define BAD(change, word) op = good, change, refuse(&op, word)

static void bad_arguments(void **state) {
    const struct format formats[] = {
        {.dtype = CLATTN_I8, .block = 32, .ggml = true, .dim = 64},
        {.dtype = CLATTN_I4, .block = 32, .zeros = true, .dim = 96, .padding = 16},
    };
    (void)state;
    struct cache k = cache_of(&formats[0]), v = cache_of(&formats[1]);
    double *rows = new_rows(CLATTN_F32, 96, 1);
    struct test_tensor k_in = input_of(CLATTN_F32, 64, rows), v_in = input_of(CLATTN_F32, 96, rows);
    clattn_rope_append_op good, op;
    upload_cache(&k);
    upload_cache(&v);
    clattn_rope_append_init(&good);
    good.k = k_in.view;
    good.v = v_in.view;
    bind_cache(&k, &good.k_cache, &good.k_quantization);
    bind_cache(&v, &good.v_cache, &good.v_quantization);
    CHECK(clattn_supported(device.clattn, &good.head, NULL));
    BAD(op.k_quantization.block = 16, "k_quantization.block: 16");
    BAD(op.k_quantization.nibbles = CLATTN_NIBBLES_HALVES, "k_quantization.nibbles: 1");
    BAD(op.k_quantization.code_stride = 31, "k_quantization.code_stride: 31");
    BAD(op.k_quantization.scales.memory.kind = CLATTN_MEMORY_NONE, "k_quantization.scales is absent");
    BAD(op.v_quantization.zeros.dims[3] = 2, "v_quantization.zeros: dims[3] = 2");
    BAD(op.v_quantization.zeros = op.v_quantization.scales, "v_quantization.scales overlaps v_quantization.zeros");
    BAD(op.k_cache.offset = 0, "k_quantization.scales overlaps k_cache");
    BAD(op.k_quantization.scales.offset = 1, "k_quantization.scales overlaps k_cache");
    BAD(op.v_cache.strides[2]++, "v_cache: strides[2]");
    BAD(op.v_quantization.scales.memory = op.k_cache.memory, "v_quantization.scales overlaps k_cache");
    BAD((op.v_quantization.zeros.memory = op.k.memory, op.v_quantization.zeros.offset = 128),
        "v_quantization.zeros overlaps k");
    BAD(op.k_cache.dtype = CLATTN_U8, "k_cache: dtype is u8");
    BAD((op.k.memory.kind = op.k_cache.memory.kind = CLATTN_MEMORY_NONE),
        "k_quantization is given, but k_cache is absent");
    release_cache(&k), release_cache(&v);
    test_release(&k_in), test_release(&v_in);
    free(rows);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_pairs_of_nibbles),
        cmocka_unit_test(zeros_and_halves),
        cmocka_unit_test(odd_dims),
        cmocka_unit_test(blocks_of_ggml),
        cmocka_unit_test(eight_bit_floats),
        cmocka_unit_test(bad_arguments),
    };
    return support_main("append to caches of codes", tests, sizeof tests / sizeof tests[0]);
}
