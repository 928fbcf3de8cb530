/* Quantised keys and values as the command knows them: codes in the arrays k and v, scales and zeros beside them, and
 * the settings that say how they are stored. Random problems are made of floats first, which are kept: how far the
 * codes move a result is shown beside its errors. */
#include "command.h"
#include "job_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEAD = 1, ROW, COLUMN };

enum { NAME = 32 };

static const char *named(char to[NAME], const char *name, const char *what) {
    snprintf(to, NAME, "%s_%s", name, what);
    return to;
}

int job_format_take(struct settings *settings, const char *name, struct job_format *format) {
    static const clattn_dtype dtypes[] = {CLATTN_I8, CLATTN_I4, CLATTN_F8_E4M3};
    char key[NAME];
    int dtype = 0, nibbles = 0;
    int64_t block = 32;
    *format = (struct job_format){.codes = settings_text(settings, named(key, name, "dtype")) != NULL};
    if (!format->codes)
        return EXIT_OK;
    FORWARD(settings_choice(settings, key, "i8 i4 f8", &dtype));
    format->dtype = dtypes[dtype];
    if (format->dtype == CLATTN_F8_E4M3)
        return EXIT_OK;
    FORWARD(settings_integer(settings, named(key, name, "block"), &block, NULL));
    if (block != 32 && block != 64)
        return complain(EXIT_USAGE, "%s=%lld is neither 32 nor 64", key, (long long)block);
    format->quantization.block = (int32_t)block;
    if (format->dtype == CLATTN_I4)
        FORWARD(settings_choice(settings, named(key, name, "nibbles"), "pairs halves", &nibbles));
    format->quantization.nibbles = (clattn_nibbles)nibbles;
    return EXIT_OK;
}

static bool halves(const struct job_format *format) {
    return format->dtype == CLATTN_I4 && format->quantization.nibbles == CLATTN_NIBBLES_HALVES;
}

int64_t job_format_blocks(const struct job_format *format, int64_t columns) {
    const int64_t block = format->quantization.block;
    return block ? (columns + block - 1) / block : 0;
}

int64_t job_format_bytes(const struct job_format *format, int64_t columns) {
    if (halves(format))
        return job_format_blocks(format, columns) * format->quantization.block / 2;
    return format->dtype == CLATTN_I4 ? (columns + 1) / 2 : columns;
}

/* ---- arranging --------------------------------------------------------------------------------------------------- */

/* Scales and zeros are what the library takes, and in the order of the tensor. */
static int take_numbers(struct job *job, const char *name, enum element element, int rank, bool sequence_first) {
    struct job_tensor *tensor = job_find(job, name);
    if (!tensor)
        return EXIT_OK;
    FORWARD(job_require(job, name, rank));
    if (!array_convert(&tensor->host, element))
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory", name);
    job_set_order(job, name, sequence_first);
    return EXIT_OK;
}

void job_format_view(struct job_tensor *tensor, const struct job_format *format, int64_t columns) {
    tensor->view.dtype = format->dtype;
    tensor->view.dims[COLUMN] = columns;
    for (int d = 0; d < COLUMN; d++)
        tensor->view.strides[d] *= format->dtype == CLATTN_I4 ? 2 : 1;
}

static int view_codes(const struct job *job, struct job_tensor *tensor, const struct job_format *format) {
    const bool is_k = tensor->name[0] == 'k';
    const int64_t bytes = tensor->view.dims[COLUMN], in_byte = format->dtype == CLATTN_I4 ? 2 : 1;
    const int64_t columns = is_k ? job_view(job, "q").dims[COLUMN] : bytes * in_byte;
    if (bytes != job_format_bytes(format, columns))
        return complain(EXIT_USAGE, "%s: rows of %lld bytes, want %lld for a head dim of %lld", tensor->name,
                        (long long)bytes, (long long)job_format_bytes(format, columns), (long long)columns);
    job_format_view(tensor, format, columns);
    return EXIT_OK;
}

static int take_codes(struct job *job, struct settings *settings, const char *name, clattn_quantization *quantization) {
    struct job_format format;
    char scales[NAME], zeros[NAME];
    struct job_tensor *tensor = job_find(job, name);
    FORWARD(job_format_take(settings, name, &format));
    *quantization = format.quantization;
    named(scales, name, "scales");
    named(zeros, name, "zeros");
    if (!format.codes) {
        if (job_find(job, scales) || job_find(job, zeros))
            return complain(EXIT_USAGE, "%s holds no codes without %s_dtype=, and takes no scales or zeros", name,
                            name);
        return job_require(job, name, 4);
    }
    if (!tensor)
        return complain(EXIT_USAGE, "%s wants a tensor '%s'", job->kind->name, name);
    const enum element wanted = format.dtype == CLATTN_I8 ? ELEMENT_I8 : ELEMENT_U8;
    if (tensor->host.element != wanted || tensor->host.rank != 4)
        return complain(EXIT_USAGE, "%s: %d dimensions of %s, want 4 of %s", name, tensor->host.rank,
                        element_name(tensor->host.element), element_name(wanted));
    if (!job_find(job, scales))
        return complain(EXIT_USAGE, "%s wants a tensor '%s'", job->kind->name, scales);
    const bool by_heads = format.dtype == CLATTN_F8_E4M3;
    FORWARD(take_numbers(job, scales, by_heads ? ELEMENT_F32 : ELEMENT_F16, by_heads ? 1 : 4, tensor->sequence_first));
    FORWARD(take_numbers(job, zeros, ELEMENT_F16, 4, tensor->sequence_first));
    return view_codes(job, tensor, &format);
}

int job_attention_take_codes(struct job *job, struct settings *settings) {
    clattn_attention_op *op = job_attention_op(job);
    FORWARD(take_codes(job, settings, "k", &op->k_quantization));
    return take_codes(job, settings, "v", &op->v_quantization);
}

void job_attention_bind_codes(struct job *job) {
    clattn_attention_op *op = job_attention_op(job);
    op->k_quantization.scales = job_view(job, "k_scales");
    op->k_quantization.zeros = job_view(job, "k_zeros");
    op->v_quantization.scales = job_view(job, "v_scales");
    op->v_quantization.zeros = job_view(job, "v_zeros");
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

bool job_attention_holds_codes(const struct job_tensor *tensor) {
    const clattn_dtype dtype = tensor->view.dtype;
    return dtype == CLATTN_I8 || dtype == CLATTN_I4 || dtype == CLATTN_F8_E4M3;
}

/* A row of keys or values with all that belongs to it. */
struct row {
    const struct job_tensor *tensor;
    struct job_tensor *scales, *zeros;
    const clattn_quantization *quantization;
    int64_t index, head, first_number, first_byte;
};

static struct row row_of(const struct job *job, const struct job_tensor *tensor, int64_t index) {
    const clattn_tensor *view = &tensor->view;
    const clattn_attention_op *op = job_attention_op(job);
    const bool is_k = tensor->name[0] == 'k';
    struct row row = {.tensor = tensor,
                      .scales = job_find(job, is_k ? "k_scales" : "v_scales"),
                      .zeros = job_find(job, is_k ? "k_zeros" : "v_zeros"),
                      .quantization = is_k ? &op->k_quantization : &op->v_quantization,
                      .index = index,
                      .head = index / view->dims[ROW] % view->dims[HEAD]};
    const int64_t block = row.quantization->block;
    row.first_number = block ? index * ((view->dims[COLUMN] + block - 1) / block) : row.head;
    row.first_byte = (index / view->dims[ROW] / view->dims[HEAD] * view->strides[0] + row.head * view->strides[HEAD] +
                      index % view->dims[ROW] * view->strides[ROW]) /
                     (view->dtype == CLATTN_I4 ? 2 : 1);
    return row;
}

void job_attention_row_values(const struct job *job, const struct job_tensor *tensor, int64_t index, double *values) {
    const struct row row = row_of(job, tensor, index);
    const clattn_dtype dtype = tensor->view.dtype;
    const int64_t block = row.quantization->block;
    for (int64_t c = 0; c < tensor->view.dims[COLUMN]; c++) {
        const struct reference_place place = reference_code_place(dtype, row.quantization, c);
        const int64_t number = row.first_number + (block ? c / block : 0);
        const int byte = (int)array_get(&tensor->host, (size_t)(row.first_byte + place.byte));
        const int code = dtype == CLATTN_I4 ? byte >> place.shift & 15 : byte;
        const double zero = row.zeros ? job_value(row.zeros, &row.zeros->host, number) : dtype == CLATTN_I4 ? 8 : 0;
        values[c] = reference_dequantize(dtype, code, job_value(row.scales, &row.scales->host, number), zero,
                                         job_attention_op(job)->q.dtype);
    }
}

void job_attention_spoil_codes(const struct job *job, struct job_tensor *tensor, int64_t index, double value) {
    const struct row row = row_of(job, tensor, index);
    const int64_t columns = tensor->view.dims[COLUMN], block = row.quantization->block;
    for (int64_t b = 0; block && b * block < columns; b++)
        job_set_value(row.scales, row.first_number + b, value);
    for (int64_t c = 0; !block && c < columns; c++)
        array_set(&tensor->host, (size_t)(row.first_byte + c), 0x7f); /* NaN */
}

/* ---- random problems --------------------------------------------------------------------------------------------- */

struct quantising {
    const struct array *from;
    struct array codes, scales, zeros;
    const struct job_format *format;
    bool with_zeros;
    int64_t columns;
};

static void put_code(struct quantising *to, int64_t row, int64_t column, int code) {
    const clattn_dtype dtype = to->format->dtype;
    const struct reference_place place = reference_code_place(dtype, &to->format->quantization, column);
    const size_t at = (size_t)(row * job_format_bytes(to->format, to->columns) + place.byte);
    const int before = dtype == CLATTN_I4 ? (int)array_get(&to->codes, at) : 0;
    array_set(&to->codes, at, before | code << place.shift);
}

static void quantise_row(struct quantising *to, int64_t row) {
    const int64_t block = to->format->quantization.block, blocks = job_format_blocks(to->format, to->columns);
    double values[64], scale, zero;
    int codes[64];
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t rest = to->columns - b * block, count = rest < block ? rest : block;
        for (int64_t i = 0; i < count; i++)
            values[i] = array_get(to->from, (size_t)(row * to->columns + b * block + i));
        reference_quantize(to->format->dtype, to->with_zeros, count, values, &scale, &zero, codes);
        array_set(&to->scales, (size_t)(row * blocks + b), scale);
        if (to->with_zeros)
            array_set(&to->zeros, (size_t)(row * blocks + b), zero);
        for (int64_t i = 0; i < count; i++)
            put_code(to, row, b * block + i, codes[i]);
    }
}

/* Scales of heads, here all alike, leave room for values of the normal distribution. */
static void quantise_row_e4m3(struct quantising *to, int64_t row) {
    for (int64_t c = 0; c < to->columns; c++) {
        const double value = array_get(to->from, (size_t)(row * to->columns + c));
        int code;
        reference_quantize_e4m3(1, &value, array_get(&to->scales, 0), &code);
        put_code(to, row, c, code);
    }
}

static bool make_arrays(struct quantising *to, int64_t heads) {
    const struct job_format *format = to->format;
    int64_t dims[4];
    memcpy(dims, to->from->dims, sizeof dims);
    dims[COLUMN] = job_format_bytes(format, to->columns);
    if (!array_make(&to->codes, format->dtype == CLATTN_I8 ? ELEMENT_I8 : ELEMENT_U8, 4, dims))
        return false;
    if (format->dtype == CLATTN_F8_E4M3)
        return array_make(&to->scales, ELEMENT_F32, 1, &heads);
    dims[COLUMN] = job_format_blocks(format, to->columns);
    return array_make(&to->scales, ELEMENT_F16, 4, dims) &&
           (!to->with_zeros || array_make(&to->zeros, ELEMENT_F16, 4, dims));
}

/* A prime: where rows of large tensors repeat, neighbours still differ. */
enum { FRESH_ROWS = 8191 };

static void repeat_rows(struct array *array, int64_t rows) {
    const size_t bytes = rows ? array_bytes(array) / (size_t)rows : 0;
    for (int64_t row = FRESH_ROWS; row < rows; row += FRESH_ROWS) {
        const int64_t rest = rows - row < FRESH_ROWS ? rows - row : FRESH_ROWS;
        memcpy((char *)array->data + (size_t)row * bytes, array->data, (size_t)rest * bytes);
    }
}

static int quantise(struct job *job, struct job_tensor *tensor, const struct job_format *format, bool with_zeros,
                    bool blank) {
    struct quantising to = {
        .from = &tensor->host, .format = format, .with_zeros = with_zeros, .columns = tensor->host.dims[COLUMN]};
    const int64_t heads = tensor->view.dims[HEAD], rows = to.columns ? (int64_t)to.from->count / to.columns : 0;
    char name[NAME];
    if (!make_arrays(&to, heads)) {
        array_free(&to.codes);
        array_free(&to.scales);
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory", tensor->name);
    }
    for (int64_t head = 0; format->dtype == CLATTN_F8_E4M3 && head < heads; head++)
        array_set(&to.scales, (size_t)head, 1.0 / 64);
    for (int64_t row = 0; row < rows && row < FRESH_ROWS && !blank; row++)
        (format->dtype == CLATTN_F8_E4M3 ? quantise_row_e4m3 : quantise_row)(&to, row);
    repeat_rows(&to.codes, rows);
    if (to.scales.rank == 4)
        repeat_rows(&to.scales, rows);
    if (with_zeros)
        repeat_rows(&to.zeros, rows);
    if (rows > FRESH_ROWS || blank)
        array_free(&tensor->host);
    job->unquantised[tensor->name[0] == 'v'] = tensor->host;
    tensor->host = to.codes;
    FORWARD(job_add(job, named(name, tensor->name, "scales"), false, &to.scales));
    return with_zeros ? job_add(job, named(name, tensor->name, "zeros"), false, &to.zeros) : EXIT_OK;
}

static int quantise_named(struct job *job, struct settings *settings, const char *name, bool blank) {
    struct job_format format;
    char key[NAME];
    int32_t zeros = 0;
    struct job_tensor *tensor = job_find(job, name);
    FORWARD(job_format_take(settings, name, &format));
    if (!format.codes)
        return EXIT_OK;
    if (!job_find(job, "v"))
        return complain(EXIT_USAGE, "%s_dtype: not with v_in_k", name);
    if (format.dtype != CLATTN_F8_E4M3)
        FORWARD(settings_flag(settings, named(key, name, "zeros"), &zeros));
    const int64_t columns = tensor->host.dims[COLUMN];
    if (format.dtype == CLATTN_I4 && (columns % 2 || (halves(&format) && columns % format.quantization.block)))
        return complain(EXIT_USAGE, "%s_dtype=i4: the head dim %lld does not fill bytes, or blocks of halves", name,
                        (long long)columns);
    return quantise(job, tensor, &format, zeros != 0, blank);
}

int job_attention_quantise(struct job *job, struct settings *settings, bool blank) {
    FORWARD(quantise_named(job, settings, "k", blank));
    return quantise_named(job, settings, "v", blank);
}

/* ---- what codes cost --------------------------------------------------------------------------------------------- */

bool job_attention_original(const struct job *job, struct job *original) {
    *original = *job;
    for (int i = 0; i < 2; i++) {
        struct job_tensor *tensor = job_find(original, i ? "v" : "k");
        if (!job_attention_holds_codes(tensor))
            continue;
        if (!job->unquantised[i].data)
            return false;
        tensor->host = job->unquantised[i];
        job_set_order(original, tensor->name, tensor->sequence_first);
    }
    return job->unquantised[0].data || job->unquantised[1].data;
}
