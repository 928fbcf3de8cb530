/* Quantised keys and values: every format gives what the values give that its codes stand for, alone and with the other
 * modifiers; buffers of ggml's blocks are read as they are; what is not to be looked at does no harm. */
#include "attention_codes.h"
#include "attention_harness.h"

#include "../src/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, PAGE = 16, ENTRIES = 4, POOL = 10 };

static const struct code_format i8 = {.dtype = CLATTN_I8, .block = 32};
static const struct code_format i8_zeros = {
    .dtype = CLATTN_I8, .block = 64, .zeros = true, .gap = 3, .offset = 1, .tokens_first = true};
static const struct code_format i8_apart = {.dtype = CLATTN_I8, .block = 32, .code_stride = 37, .zeros = true};
static const struct code_format i4 = {.dtype = CLATTN_I4, .block = 32};
static const struct code_format i4_zeros = {
    .dtype = CLATTN_I4, .block = 64, .zeros = true, .gap = 6, .offset = 2, .tokens_first = true};
static const struct code_format i4_halves = {
    .dtype = CLATTN_I4, .block = 32, .nibbles = CLATTN_NIBBLES_HALVES, .code_stride = 36};
static const struct code_format i4_halves_zeros = {
    .dtype = CLATTN_I4, .block = 64, .nibbles = CLATTN_NIBBLES_HALVES, .zeros = true, .gap = 2};
static const struct code_format f8 = {.dtype = CLATTN_F8_E4M3};
static const struct code_format f8_apart = {.dtype = CLATTN_F8_E4M3, .gap = 5, .offset = 3};

static struct attention_case shape_of(const char *name, int64_t head_dim, int64_t value_dim) {
    return (struct attention_case){.name = name,
                                   .batch = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .nq = 9,
                                   .nk = 75,
                                   .head_dim = head_dim,
                                   .value_dim = value_dim};
}

/* NULL: not quantised. */
static struct attention_data quantised(const struct attention_case *shape, clattn_dtype dtype,
                                       const struct code_format *k, const struct code_format *v) {
    struct attention_data data = attention_data_random(shape, dtype, 11);
    if (k)
        attention_codes_make(&data, &data.codes_k, k);
    if (v)
        attention_codes_make(&data, &data.codes_v, v);
    return data;
}

/* Every format is a program of its own: they take the variants that stage tiles in turn, which share the code that
 * reads codes; CLATTN_TEST_FULL=1 gives all. */
static size_t due_variants(const struct attention_data *data, const char **names, size_t limit) {
    static size_t turn;
    const size_t all = attention_variants(data, names, limit);
    const char *full = getenv("CLATTN_TEST_FULL");
    size_t count = 0;
    for (size_t i = 0; i < all; i++)
        if ((full && *full) || strcmp(names[i], "unfused") != 0)
            names[count++] = names[i];
    assert_true(count > 0);
    if (full && *full)
        return count;
    names[0] = names[turn++ % count];
    return 1;
}

static void check(struct attention_data *data) {
    const char *names[16];
    const size_t count = due_variants(data, names, 16);
    const double gaps[] = {(double)NAN, INFINITY};
    for (size_t i = 0; i < 2 * count; i++) {
        data->gap = gaps[i % 2];
        struct attention_result result = attention_run(data, names[i / 2]);
        attention_compare(data, &result, names[i / 2], 64);
        attention_result_free(&result);
    }
    attention_data_free(data);
}

static void check_formats(const struct attention_case *shape, clattn_dtype dtype, const struct code_format *k,
                          const struct code_format *v) {
    struct attention_data data = quantised(shape, dtype, k, v);
    check(&data);
}

/* ---- formats ---- */

static void every_format(void **state) {
    const struct attention_case shape = shape_of("quantised", D, D);
    (void)state;
    check_formats(&shape, CLATTN_F16, &i8, &i8);
    check_formats(&shape, CLATTN_F32, &i8_zeros, &i8_zeros);
    check_formats(&shape, CLATTN_F16, &i4, &i4);
    check_formats(&shape, CLATTN_F32, &i4_halves, &i4_zeros);
    check_formats(&shape, CLATTN_F32, &f8, &f8);
    check_formats(&shape, CLATTN_BF16, &f8_apart, &i4_halves_zeros);
}

static void one_of_the_two(void **state) {
    const struct attention_case shape = shape_of("one of the two", D, D);
    (void)state;
    check_formats(&shape, CLATTN_F16, &i8, NULL);
    check_formats(&shape, CLATTN_F32, NULL, &i4);
}

/* The last block is short, the last chunk too; of four bits the last byte may be half in use. */
static void dims_that_fit_nothing(void **state) {
    const struct attention_case odd = shape_of("odd dims", 45, 33), small = shape_of("small dims", 3, 1);
    const struct attention_case halves = shape_of("short halves", 40, 69);
    (void)state;
    check_formats(&odd, CLATTN_F16, &i4, &i8_apart);
    check_formats(&odd, CLATTN_F32, &i8_zeros, &f8_apart);
    check_formats(&small, CLATTN_F32, &f8_apart, &i4_zeros);
    check_formats(&halves, CLATTN_F32, &i4_halves, &i4_halves_zeros);
}

/* The very bits that a cache of values in q's dtype gives, from each step-th variant and the unfused one. */
static void same_bits(clattn_dtype dtype, const struct code_format *k, const struct code_format *v, size_t step) {
    const struct attention_case shape = shape_of("bits", D, D);
    struct attention_data data = quantised(&shape, dtype, k, v), plain = data;
    plain.codes_k.format = plain.codes_v.format = NULL;
    const char *names[16];
    const size_t count = attention_variants(&data, names, 16);
    assert_true(count > 1);
    for (size_t i = 0; i < count; i++) {
        if (i % step != 0 && strcmp(names[i], "unfused") != 0)
            continue;
        struct attention_result a = attention_run(&data, names[i]), b = attention_run(&plain, names[i]);
        attention_same_rows(&data, names[i], &a, &b, 0, attention_row_count(&data));
        attention_result_free(&a);
        attention_result_free(&b);
    }
    attention_data_free(&data);
}

static void the_bits_of_values(void **state) {
    (void)state;
    same_bits(CLATTN_F16, &i8, &i8, 2);
    same_bits(CLATTN_F32, &f8_apart, &i4_halves_zeros, 16);
}

/* ---- together with modifiers ---- */

static const double table[2 * ENTRIES] = {5, 4, 3, 2, 5, 9, 3, 0}, lengths[2] = {64, 50};

static void in_pages(void **state) {
    struct attention_case shape = shape_of("quantised pages", D, D);
    (void)state;
    shape.nk = PAGE;
    shape.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    shape.with = (struct case_modifiers){.page_table = table,
                                         .max_pages = ENTRIES,
                                         .pages = POOL,
                                         .k_lengths = lengths,
                                         .has_window = true,
                                         .window_left = 20};
    check_formats(&shape, CLATTN_F16, &i8_zeros, &i4);
    shape.with.softcap = 3;
    check_formats(&shape, CLATTN_F32, &f8, &i8_apart);
}

static void one_behind_the_other(void **state) {
    const double q_offsets[3] = {0, 1, 8}, k_offsets[3] = {2, 40, 75}, slopes[4] = {0.5, 0.25, 0.125, 0.0625};
    const double sinks[4] = {-1, 0, 1, 2};
    struct attention_case shape = shape_of("quantised, ragged", D, D);
    (void)state;
    shape.with = (struct case_modifiers){.q_offsets = q_offsets, .k_offsets = k_offsets};
    check_formats(&shape, CLATTN_F16, &i4_zeros, &f8);
    shape.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    shape.with.alibi = slopes;
    shape.with.sinks = sinks;
    check_formats(&shape, CLATTN_F32, &i8, &i8);
}

/* Pages out of range lead nowhere, with scales as with codes. */
static void wild_pages_do_no_harm(void **state) {
    const double wild[2 * ENTRIES] = {10, -1, 3, 2, 5, 9, INT32_MAX, INT32_MIN};
    struct attention_case shape = shape_of("wild quantised pages", D, D);
    (void)state;
    shape.nk = PAGE;
    shape.with = (struct case_modifiers){.page_table = wild, .max_pages = ENTRIES, .pages = POOL, .k_lengths = lengths};
    struct attention_data data = quantised(&shape, CLATTN_F16, &i8_zeros, &i4);
    const char *names[16];
    data.wild = true;
    for (size_t i = due_variants(&data, names, 16); i > 0; i--) {
        struct attention_result result = attention_run(&data, names[i - 1]);
        attention_result_free(&result);
    }
    attention_data_free(&data);
}

/* ---- special values ---- */

/* All elements of a block, as the numbers of its scale say. */
static void spoil_block(struct attention_data *data, struct attention_codes *codes, double *values, int64_t width,
                        int64_t row, int64_t block, double scale) {
    const int64_t size = codes->format->block, blocks = (width + size - 1) / size;
    codes->scales[row * blocks + block] = scale;
    for (int64_t c = block * size; c < width && c < (block + 1) * size; c++)
        values[row * width + c] = reference_dequantize(codes->format->dtype, codes->codes[row * width + c], scale,
                                                       codes->zeros[row * blocks + block], data->dtype);
}

/* A scale of NaN or infinity in a key or a value, and a scale so large that values overflow, reach the rows that see
 * the key and no other. */
static void spoilt_scales_spoil_what_sees_them(void **state) {
    const double scales[] = {(double)NAN, INFINITY, 60000}; /* one goes to each variant, two of the first */
    struct attention_case shape = shape_of("spoilt scale", D, D);
    (void)state;
    shape.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    for (int i = 0; i < 3; i++)
        for (int of_k = 0; of_k < (i == 0 ? 2 : 1); of_k++) {
            struct attention_data data = quantised(&shape, CLATTN_F16, &i8, &i8);
            struct attention_codes *codes = of_k ? &data.codes_k : &data.codes_v;
            spoil_block(&data, codes, of_k ? data.k : data.v, D, 71, 1, scales[i]); /* the last rows see it */
            check(&data);
        }
}

/* ---- ggml's blocks ---- */

struct q8_0 {
    uint16_t d;
    int8_t qs[32];
};

struct q4_0 {
    uint16_t d;
    uint8_t qs[16];
};

enum { ROWS = 2 * 2 * 75, BLOCKS = D / 32 };

static cl_mem buffer_of(const void *bytes, size_t size) {
    cl_int code = CL_SUCCESS;
    const cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_ONLY, size, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    CHECK_CL(clEnqueueWriteBuffer(device.queue, buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
    return buffer;
}

static uint16_t scale_at(int64_t at) {
    return half_from_double(0.01 + (double)(at % 17) / 512);
}

/* Fills the blocks, and the values as ggml reads them. */
static void fill_q8_0(struct q8_0 *blocks, double *values) {
    for (int64_t b = 0; b < ROWS * BLOCKS; b++) {
        blocks[b].d = scale_at(b);
        for (int64_t i = 0; i < 32; i++) {
            blocks[b].qs[i] = (int8_t)((b * 37 + i * 101) % 255 - 127);
            values[b * 32 + i] = reference_round(CLATTN_F16, half_to_double(blocks[b].d) * blocks[b].qs[i]);
        }
    }
}

static void fill_q4_0(struct q4_0 *blocks, double *values) {
    for (int64_t b = 0; b < ROWS * BLOCKS; b++) {
        blocks[b].d = scale_at(b * 7);
        for (int64_t i = 0; i < 16; i++) {
            blocks[b].qs[i] = (uint8_t)((b * 53 + i * 91) % 256);
            const double scale = half_to_double(blocks[b].d);
            values[b * 32 + i] = reference_round(CLATTN_F16, scale * (blocks[b].qs[i] % 16 - 8));
            values[b * 32 + i + 16] = reference_round(CLATTN_F16, scale * (blocks[b].qs[i] / 16 - 8));
        }
    }
}

/* A tensor [2,2,75,D] of blocks of so many bytes, their codes behind the scale's two. */
static void view_blocks(cl_mem buffer, clattn_dtype dtype, int64_t bytes, clattn_tensor *codes,
                        clattn_quantization *quantization) {
    const int64_t in_byte = dtype == CLATTN_I4 ? 2 : 1, stride = bytes * in_byte, dims[4] = {2, 2, 75, D};
    *codes = clattn_tensor_dense(buffer, dtype, 4, dims);
    codes->offset = 2 * in_byte;
    codes->strides[2] = BLOCKS * stride;
    codes->strides[1] = 75 * codes->strides[2];
    codes->strides[0] = 2 * codes->strides[1];
    const int64_t scale_dims[4] = {2, 2, 75, BLOCKS};
    *quantization = (clattn_quantization){.block = 32, .code_stride = stride};
    quantization->nibbles = dtype == CLATTN_I4 ? CLATTN_NIBBLES_HALVES : CLATTN_NIBBLES_PAIRS;
    quantization->scales = clattn_tensor_dense(buffer, CLATTN_F16, 4, scale_dims);
    for (int d = 0; d < 4; d++)
        quantization->scales.strides[d] *= bytes / 2;
}

static void blocks_of_ggml_are_read_in_place(void **state) {
    static struct q8_0 keys[ROWS * BLOCKS];
    static struct q4_0 values[ROWS * BLOCKS];
    const struct attention_case shape = shape_of("ggml", D, D);
    (void)state;
    assert_int_equal(sizeof *keys, 34);
    assert_int_equal(sizeof *values, 18);
    struct attention_data data = attention_data_random(&shape, CLATTN_F16, 5);
    fill_q8_0(keys, data.k);
    fill_q4_0(values, data.v);
    const cl_mem k = buffer_of(keys, sizeof keys), v = buffer_of(values, sizeof values);
    struct test_tensor q = test_input(CLATTN_F16, 4, data.settings.q.dims, data.q, NULL, (double)NAN);
    struct test_tensor o = test_output(CLATTN_F16, 4, data.settings.q.dims, NULL);
    clattn_attention_op op = data.settings;
    op.q = q.view;
    op.o = o.view;
    view_blocks(k, CLATTN_I8, sizeof *keys, &op.k, &op.k_quantization);
    view_blocks(v, CLATTN_I4, sizeof *values, &op.v, &op.v_quantization);
    const char *names[16];
    size_t index = 0, count = 0;
    while (count < 16 && (names[count] = test_next_variant(&op.head, &index)))
        count++;
    for (size_t i = 0; i < count; i += 2) {
        struct attention_result result = {.o = test_array(attention_o_count(&data))};
        test_reset(&o);
        test_run(&op.head, names[i]);
        test_read(&o, result.o);
        attention_compare(&data, &result, names[i], 64);
        attention_result_free(&result);
    }
    test_release(&q);
    test_release(&o);
    clReleaseMemObject(k);
    clReleaseMemObject(v);
    attention_data_free(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(one_of_the_two),
        cmocka_unit_test(dims_that_fit_nothing),
        cmocka_unit_test(the_bits_of_values),
        cmocka_unit_test(in_pages),
        cmocka_unit_test(one_behind_the_other),
        cmocka_unit_test(wild_pages_do_no_harm),
        cmocka_unit_test(spoilt_scales_spoil_what_sees_them),
        cmocka_unit_test(blocks_of_ggml_are_read_in_place),
    };
    return support_main("attention, quantised", tests, sizeof tests / sizeof tests[0]);
}
