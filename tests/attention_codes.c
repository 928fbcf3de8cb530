/* Codes lie in a buffer of bytes, which is filled bit by bit as the format says. */
#include "attention_codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 1, ROW, COLUMN };

static bool is_k(const struct attention_data *data, const struct attention_codes *codes) {
    return codes == &data->codes_k;
}

static const clattn_tensor *shape_of(const struct attention_data *data, const struct attention_codes *codes) {
    return is_k(data, codes) ? &data->settings.k : &data->settings.v;
}

static double *values_of(const struct attention_data *data, const struct attention_codes *codes) {
    return is_k(data, codes) ? data->k : data->v;
}

static int64_t blocks_of(const struct code_format *format, const int64_t *dims) {
    return format->block ? (dims[COLUMN] + format->block - 1) / format->block : 0;
}

static int64_t rows_of(const int64_t *dims) {
    return dims[0] * dims[HEAD] * dims[ROW];
}

/* ---- on the host ---- */

static void quantise_row(struct attention_codes *codes, const int64_t *dims, int64_t row, const double *values) {
    const struct code_format *format = codes->format;
    const int64_t width = dims[COLUMN], blocks = blocks_of(format, dims);
    int *to = codes->codes + row * width;
    if (blocks == 0)
        reference_quantize_e4m3(width, values, codes->scales[row / dims[ROW] % dims[HEAD]], to);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * format->block, rest = width - first;
        reference_quantize(format->dtype, format->zeros, rest < format->block ? rest : format->block, values + first,
                           &codes->scales[row * blocks + b], &codes->zeros[row * blocks + b], to + first);
    }
}

static void restore_row(const struct attention_codes *codes, const int64_t *dims, int64_t row, clattn_dtype to,
                        double *values) {
    const struct code_format *format = codes->format;
    const int64_t width = dims[COLUMN], blocks = blocks_of(format, dims);
    for (int64_t c = 0; c < width; c++) {
        const int64_t number = blocks ? row * blocks + c / format->block : row / dims[ROW] % dims[HEAD];
        values[c] = reference_dequantize(format->dtype, codes->codes[row * width + c], codes->scales[number],
                                         codes->zeros[number], to);
    }
}

void attention_codes_make(struct attention_data *data, struct attention_codes *codes,
                          const struct code_format *format) {
    const int64_t *dims = shape_of(data, codes)->dims, rows = rows_of(dims), blocks = blocks_of(format, dims);
    const int64_t numbers = blocks ? rows * blocks : dims[HEAD];
    double *values = values_of(data, codes);
    codes->format = format;
    codes->codes = calloc((size_t)(rows * dims[COLUMN] + 1), sizeof *codes->codes);
    codes->scales = test_array(numbers);
    codes->zeros = test_array(numbers);
    assert_non_null(codes->codes);
    for (int64_t head = 0; blocks == 0 && head < numbers; head++)
        codes->scales[head] = (double)(0.0123F * (float)(head + 1));
    for (int64_t row = 0; row < rows; row++) {
        quantise_row(codes, dims, row, values + row * dims[COLUMN]);
        restore_row(codes, dims, row, data->dtype, values + row * dims[COLUMN]);
    }
}

/* ---- on the device ---- */

static clattn_quantization quantization_of(const struct code_format *format) {
    return (clattn_quantization){
        .block = format->block, .nibbles = format->nibbles, .code_stride = format->code_stride};
}

/* Bytes of a row, from its first code to its last. */
static int64_t row_bytes(const struct code_format *format, int64_t width) {
    const clattn_quantization quantization = quantization_of(format);
    int64_t bytes = 0;
    for (int64_t c = 0; c < width; c++) {
        const int64_t byte = reference_code_place(format->dtype, &quantization, c).byte;
        bytes = byte >= bytes ? byte + 1 : bytes;
    }
    return bytes;
}

static clattn_tensor lay_out(const struct code_format *format, const int64_t *dims, clattn_dtype dtype, int64_t width,
                             int64_t pitch, int64_t offset) {
    clattn_tensor view = {.offset = offset, .dtype = dtype, .rank = 4, .dims = {dims[0], dims[1], dims[2], width}};
    view.strides[COLUMN] = 1;
    view.strides[format->tokens_first ? HEAD : ROW] = pitch;
    view.strides[format->tokens_first ? ROW : HEAD] = pitch * dims[format->tokens_first ? HEAD : ROW];
    view.strides[0] = pitch * dims[HEAD] * dims[ROW];
    return view;
}

/* A row holds other values than the data's: nothing may look at it. */
static bool is_spoilt(const double *original, const double *values, int64_t row, int64_t width) {
    return memcmp(original + row * width, values + row * width, (size_t)width * sizeof *values) != 0;
}

static int64_t place_of_row(const clattn_tensor *view, int64_t row) {
    const int64_t *dims = view->dims;
    return view->offset + row / dims[ROW] / dims[HEAD] * view->strides[0] +
           row / dims[ROW] % dims[HEAD] * view->strides[HEAD] + row % dims[ROW] * view->strides[ROW];
}

static struct test_tensor upload_codes(const struct attention_data *data, const struct attention_codes *codes,
                                       const double *values, clattn_tensor *view) {
    const struct code_format *format = codes->format;
    const clattn_quantization quantization = quantization_of(format);
    const int64_t *dims = shape_of(data, codes)->dims, width = dims[COLUMN], rows = rows_of(dims);
    const int64_t in_byte = format->dtype == CLATTN_I4 ? 2 : 1, bytes = row_bytes(format, width);
    *view = lay_out(format, dims, format->dtype, width, bytes * in_byte + format->gap, format->offset);
    const int64_t size = rows ? place_of_row(view, rows - 1) / in_byte + bytes : 0;
    double *image = test_array(size);
    for (int64_t i = 0; i < size; i++)
        image[i] = 0x7f; /* NaN in fp8 */
    for (int64_t row = 0; row < rows; row++) {
        const int64_t start = place_of_row(view, row) / in_byte;
        for (int64_t c = 0; c < width && !is_spoilt(values_of(data, codes), values, row, width); c++) {
            const struct reference_place place = reference_code_place(format->dtype, &quantization, c);
            const int code = codes->codes[row * width + c], mask = (format->dtype == CLATTN_I4 ? 15 : 255);
            const int others = (int)image[start + place.byte] & ~(mask << place.shift);
            image[start + place.byte] = others | (code & mask) << place.shift;
        }
    }
    struct test_tensor tensor = test_input(CLATTN_U8, 1, &size, image, NULL, 255);
    view->memory = tensor.view.memory;
    view->offset += tensor.view.offset * in_byte;
    free(image);
    return tensor;
}

/* Scales or zeros of blocks. */
static struct test_tensor upload_numbers(const struct attention_data *data, const struct attention_codes *codes,
                                         const double *numbers, const double *values, double gap) {
    const struct code_format *format = codes->format;
    const int64_t *dims = shape_of(data, codes)->dims, width = dims[COLUMN], rows = rows_of(dims);
    const int64_t blocks = blocks_of(format, dims);
    const clattn_tensor shape = lay_out(format, dims, CLATTN_F16, blocks, blocks + format->gap, format->offset);
    struct test_layout layout = {.offset = shape.offset};
    memcpy(layout.strides, shape.strides, sizeof layout.strides);
    double *image = test_array(rows * blocks);
    for (int64_t i = 0; i < rows * blocks; i++)
        image[i] = is_spoilt(values_of(data, codes), values, i / blocks, width) ? gap : numbers[i];
    struct test_tensor tensor = test_input(CLATTN_F16, 4, shape.dims, image, &layout, gap);
    free(image);
    return tensor;
}

struct code_tensors attention_codes_upload(const struct attention_data *data, const struct attention_codes *codes,
                                           const double *values, double gap) {
    struct code_tensors tensors = {.quantization = quantization_of(codes->format)};
    const int64_t heads = shape_of(data, codes)->dims[HEAD];
    tensors.codes = upload_codes(data, codes, values, &tensors.view);
    tensors.scales = codes->format->block ? upload_numbers(data, codes, codes->scales, values, gap)
                                          : test_input(CLATTN_F32, 1, &heads, codes->scales, NULL, gap);
    tensors.quantization.scales = tensors.scales.view;
    if (codes->format->zeros) {
        tensors.zeros = upload_numbers(data, codes, codes->zeros, values, gap);
        tensors.quantization.zeros = tensors.zeros.view;
    }
    return tensors;
}

void attention_codes_untouched(const struct code_tensors *tensors) {
    test_untouched(&tensors->codes, "codes");
    test_untouched(&tensors->scales, "scales");
    if (tensors->zeros.buffer)
        test_untouched(&tensors->zeros, "zeros");
}

void attention_codes_release(struct code_tensors *tensors) {
    test_release(&tensors->codes);
    test_release(&tensors->scales);
    test_release(&tensors->zeros);
}
