/* Attention problems on the device: tensors with NaN in all gaps, each call made twice, each result held against the
 * oracle with the plain version's error as yardstick. */
#include "attention_harness.h"
#include "attention_codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const clattn_dtype all_dtypes[3] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};

const char *dtype_name(clattn_dtype dtype) {
    return dtype == CLATTN_F16 ? "fp16" : dtype == CLATTN_BF16 ? "bf16" : "fp32";
}

void attention_result_free(struct attention_result *result) {
    free(result->o);
    free(result->lse);
    memset(result, 0, sizeof *result);
}

/* ---- on the device ---- */

/* An input: its place in the operation, in the data, and its layout's. */
static const struct input {
    const char *name;
    size_t view, array, layout;
} inputs[] = {
#define INPUT(noun)                                                                        \
    {                                                                                      \
#noun, offsetof(clattn_attention_op, noun), offsetof(struct attention_data, noun), \
            offsetof(struct attention_data, layout_##noun)                                 \
    }
    INPUT(q),     INPUT(k),         INPUT(v),         INPUT(mask),      INPUT(bias),      INPUT(alibi),
    INPUT(sinks), INPUT(q_lengths), INPUT(k_lengths), INPUT(q_offsets), INPUT(k_offsets), INPUT(page_table),
#undef INPUT
};

enum { V_INPUT = 2, INPUTS = sizeof inputs / sizeof inputs[0] };

static clattn_tensor *view_in(clattn_attention_op *op, size_t i) {
    return (clattn_tensor *)((char *)op + inputs[i].view);
}

static double **array_in(const struct attention_data *data, size_t i) {
    return (double **)((uintptr_t)data + inputs[i].array);
}

static const struct test_layout *layout_in(const struct attention_data *data, size_t i) {
    return *(const struct test_layout *const *)((const char *)data + inputs[i].layout);
}

static bool repeats(const clattn_tensor *shape, const struct test_layout *layout) {
    for (int d = 0; layout && d < shape->rank; d++)
        if (shape->dims[d] > 1 && layout->strides[d] == 0)
            return true;
    return false;
}

static double gap_of(const struct attention_data *data) {
    return data->gap != 0 ? data->gap : (double)NAN;
}

/* What lies around an input's elements: never what it is that would do no harm. */
static double surroundings(const struct attention_data *data, clattn_dtype dtype) {
    return dtype == CLATTN_U8 ? 255 : dtype == CLATTN_I32 ? 2147483647 : gap_of(data);
}

/* A copy of the data with what no row may look at overwritten; where a stride of 0 lets several elements share one
 * place, the input is left as it is. */
static struct attention_data poisoned(const struct attention_data *data) {
    struct attention_data copy = *data;
    for (size_t i = 0; i < INPUTS; i++) {
        const clattn_tensor *shape = view_in(&copy.settings, i);
        double **array = array_in(&copy, i);
        if (!*array)
            continue;
        const int64_t count = reference_count(shape);
        const double *original = *array;
        *array = memcpy(test_array(count), original, (size_t)count * sizeof(double));
    }
    if (!data->wild)
        attention_data_poison(&copy, gap_of(data));
    for (size_t i = 0; i < INPUTS; i++) {
        const clattn_tensor *shape = view_in(&copy.settings, i);
        if (*array_in(&copy, i) && repeats(shape, layout_in(data, i)))
            memcpy(*array_in(&copy, i), *array_in(data, i), (size_t)reference_count(shape) * sizeof(double));
    }
    return copy;
}

struct attention_inputs attention_upload(const struct attention_data *data) {
    struct attention_inputs t = {.op = data->settings};
    struct attention_data copy = poisoned(data);
    assert_true(INPUTS == sizeof t.tensors / sizeof t.tensors[0]);
    for (size_t i = 0; i < INPUTS; i++) {
        clattn_tensor *view = view_in(&t.op, i);
        if (*array_in(&copy, i)) {
            t.tensors[i] = test_input(view->dtype, view->rank, view->dims, *array_in(&copy, i), layout_in(data, i),
                                      surroundings(data, view->dtype));
            *view = t.tensors[i].view;
        }
    }
    if (data->v_in_k) {
        test_release(&t.tensors[V_INPUT]);
        t.op.v = t.op.k;
        t.op.v.dims[3] = data->problem.value_dim;
    }
    if (data->codes_k.format) {
        t.codes_k = attention_codes_upload(data, &data->codes_k, copy.k, gap_of(data));
        t.op.k = t.codes_k.view;
        t.op.k_quantization = t.codes_k.quantization;
    }
    if (data->codes_v.format) {
        t.codes_v = attention_codes_upload(data, &data->codes_v, copy.v, gap_of(data));
        t.op.v = t.codes_v.view;
        t.op.v_quantization = t.codes_v.quantization;
    }
    copy.codes_k = copy.codes_v = (struct attention_codes){NULL};
    attention_data_free(&copy);
    return t;
}

void attention_inputs_untouched(const struct attention_inputs *t) {
    for (size_t i = 0; i < INPUTS; i++)
        if (t->tensors[i].buffer)
            test_untouched(&t->tensors[i], inputs[i].name);
    if (t->codes_k.codes.buffer)
        attention_codes_untouched(&t->codes_k);
    if (t->codes_v.codes.buffer)
        attention_codes_untouched(&t->codes_v);
}

void attention_inputs_release(struct attention_inputs *t) {
    for (size_t i = 0; i < INPUTS; i++)
        test_release(&t->tensors[i]);
    attention_codes_release(&t->codes_k);
    attention_codes_release(&t->codes_v);
}

struct tensors {
    struct attention_inputs in;
    struct test_tensor o, lse;
};

static struct tensors upload(const struct attention_data *data) {
    struct tensors t = {.in = attention_upload(data)};
    const int64_t *q = data->settings.q.dims, o_dims[] = {q[0], q[1], q[2], data->problem.value_dim};
    t.o = test_output(data->out_dtype, 4, o_dims, data->layout_o);
    t.in.op.o = t.o.view;
    if (!data->without_lse) {
        t.lse = test_output(CLATTN_F32, 3, o_dims, data->layout_lse);
        t.in.op.lse = t.lse.view;
    }
    return t;
}

static void release(struct tensors *t) {
    attention_inputs_release(&t->in);
    test_release(&t->o);
    test_release(&t->lse);
}

/* The second of two runs into NaN-filled outputs must give the first one's bits. */
static void run_twice(struct tensors *t, const struct attention_data *data, const char *variant) {
    test_run_with(&t->in.op.head, variant, data->parameters);
    unsigned char *o = test_bytes(&t->o), *lse = t->lse.buffer ? test_bytes(&t->lse) : NULL;
    test_reset(&t->o);
    if (lse)
        test_reset(&t->lse);
    test_run_with(&t->in.op.head, variant, data->parameters);
    unsigned char *o_again = test_bytes(&t->o), *lse_again = lse ? test_bytes(&t->lse) : NULL;
    if (memcmp(o, o_again, t->o.bytes) != 0)
        fail_msg("%s, %s: o differs between two runs", data->name, variant ? variant : "chosen");
    if (lse && memcmp(lse, lse_again, t->lse.bytes) != 0)
        fail_msg("%s, %s: lse differs between two runs", data->name, variant ? variant : "chosen");
    free(o);
    free(lse);
    free(o_again);
    free(lse_again);
}

struct attention_result attention_run(const struct attention_data *data, const char *variant) {
    struct tensors t = upload(data);
    struct attention_result result = {.o = test_array(attention_o_count(data))};
    run_twice(&t, data, variant);
    test_read(&t.o, result.o);
    if (t.lse.buffer) {
        result.lse = test_array(attention_row_count(data));
        test_read(&t.lse, result.lse);
    }
    attention_inputs_untouched(&t.in);
    release(&t);
    return result;
}

/* The sampled row number `sample` of `samples` out of `total`: both ends and an uneven spread between. */
static int64_t sampled_row(int64_t sample, int64_t samples, int64_t total) {
    if (samples >= total || sample == 0)
        return sample;
    if (sample == samples - 1)
        return total - 1;
    return (int64_t)(((uint64_t)sample * UINT64_C(0x9e3779b97f4a7c15) >> 16) % (uint64_t)total);
}

static void report(const struct attention_data *data, const char *variant, const char *what,
                   const struct reference_error *error) {
    if (error->bad == 0)
        return;
    fail_msg("%s, %s, %s: %lld of %lld elements of %s are wrong, first [%lld]: %.9g, not %.9g (bound %.3g; largest "
             "error %.3g, plain version %.3g)",
             data->name, dtype_name(data->dtype), variant ? variant : "chosen", (long long)error->bad,
             (long long)error->count, what, (long long)error->index, error->got, error->want, error->bound,
             error->largest, error->plain_largest);
}

/* One row by the oracle and by the plain version. Rows of no sequence stay what outputs start as. */
static void expected_row(const struct attention_data *data, int64_t row, double *want, double *plain, double *lse,
                         double *plain_lse) {
    reference_attention_row(&data->problem, data->q, data->k, data->v, row, want, lse, NULL);
    plain_attention_row(&data->problem, data->dtype, data->out_dtype, data->q, data->k, data->v, row, plain, plain_lse,
                        NULL);
    if (reference_attention_locate(&data->problem, row).sequence >= 0)
        return;
    for (int64_t c = 0; c < data->problem.value_dim; c++)
        want[c] = plain[c] = (double)NAN;
    *lse = *plain_lse = (double)NAN;
}

static double lse_tolerance(const struct attention_data *data) {
    return data->dtype == CLATTN_F32 ? 1e-5 : 1e-4;
}

/* tolerance: instead of the bound from the plain version's error; 0: none. */
static void compare_values(struct reference_error *error, double tolerance, int64_t count, const double *got,
                           const double *want, const double *plain, clattn_dtype dtype) {
    if (tolerance > 0)
        reference_compare_within(error, count, got, want, tolerance, tolerance);
    else
        reference_compare(error, count, got, want, reference_plain_error(count, want, plain), dtype);
}

void attention_compare(const struct attention_data *data, const struct attention_result *result, const char *variant,
                       int64_t rows) {
    const int64_t total = attention_row_count(data), dv = data->problem.value_dim;
    const int64_t samples = rows < total ? rows : total;
    double *want = test_array(samples * dv), *plain = test_array(samples * dv), *got = test_array(samples * dv);
    double *lse = test_array(samples), *plain_lse = test_array(samples), *got_lse = test_array(samples);
    struct reference_error o_error = {0}, lse_error = {0};
    for (int64_t s = 0; s < samples; s++) {
        const int64_t row = sampled_row(s, samples, total);
        expected_row(data, row, want + s * dv, plain + s * dv, &lse[s], &plain_lse[s]);
        memcpy(got + s * dv, result->o + row * dv, (size_t)dv * sizeof *got);
        got_lse[s] = result->lse ? result->lse[row] : 0;
    }
    compare_values(&o_error, data->tolerance, samples * dv, got, want, plain, data->out_dtype);
    if (result->lse)
        compare_values(&lse_error, data->tolerance > 0 ? lse_tolerance(data) : 0, samples, got_lse, lse, plain_lse,
                       CLATTN_F32);
    free(want);
    free(plain);
    free(got);
    free(lse);
    free(plain_lse);
    free(got_lse);
    report(data, variant, "o", &o_error);
    report(data, variant, "lse", &lse_error);
}

enum { MAX_VARIANTS = 32 };

/* Which optional tensors there are, as a number; 0: none. */
static size_t modifiers_of(const clattn_attention_op *op) {
    const clattn_tensor *const tensors[] = {&op->mask,      &op->bias,      &op->alibi,
                                            &op->sinks,     &op->q_lengths, &op->k_lengths,
                                            &op->q_offsets, &op->k_offsets, &op->page_table};
    size_t bits = op->softcap > 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        bits |= (size_t)(tensors[i]->rank > 0) << (i + 1);
    return bits;
}

/* All variants where head dim and value dim are 64, or where CLATTN_TEST_FULL is set; else one of them, another for
 * each kind of program. With modifiers the 16-bit types, whose code differs from that of fp32 in loads and stores
 * alone, take the preferred one and one more in turn. */
static size_t due_variants(const struct attention_data *data, const char **names, size_t count) {
    const struct reference_attention *p = &data->problem;
    const size_t modifiers = modifiers_of(&data->settings);
    const char *full = getenv("CLATTN_TEST_FULL");
    if ((full && *full) || count == 0)
        return count;
    if (p->head_dim != 64 || p->value_dim != 64) {
        names[0] = names[(size_t)(p->head_dim * 7 + p->value_dim + (int)data->dtype * 3 + p->causal) % count];
        return 1;
    }
    if (data->dtype == CLATTN_F32 || modifiers == 0 || count < 3)
        return count;
    names[1] = names[1 + (modifiers % 31 + (size_t)data->dtype) % (count - 1)];
    return 2;
}

size_t attention_variants(const struct attention_data *data, const char **names, size_t limit) {
    size_t count = 0, at = 0;
    struct tensors t = upload(data);
    while (count < limit && (names[count] = test_next_variant(&t.in.op.head, &at)))
        count++;
    release(&t);
    return count;
}

/* They share their nouns with the fused variants, and have test_attention_decode.c. */
static size_t without_decode(const char **names, size_t count) {
    const char *full = getenv("CLATTN_TEST_FULL");
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if ((full && *full) || !attention_is_decode(names[i]))
            names[kept++] = names[i];
    return kept;
}

bool attention_is_decode(const char *variant) {
    return strncmp(variant, "decode", strlen("decode")) == 0;
}

const char *attention_next_variant(const struct attention_data *data, size_t *index) {
    const char *names[MAX_VARIANTS];
    const size_t all = without_decode(names, attention_variants(data, names, MAX_VARIANTS));
    const size_t count = due_variants(data, names, all);
    return *index < count ? names[(*index)++] : NULL;
}

void attention_same_rows(const struct attention_data *data, const char *variant, const struct attention_result *a,
                         const struct attention_result *b, int64_t first, int64_t end) {
    const int64_t dv = data->problem.value_dim;
    for (int64_t i = first * dv; i < end * dv; i++)
        if (memcmp(&a->o[i], &b->o[i], sizeof(double)) != 0)
            fail_msg("%s, %s, %s: o[%lld] of row %lld is %.9g and %.9g", data->name, dtype_name(data->dtype), variant,
                     (long long)(i % dv), (long long)(i / dv), a->o[i], b->o[i]);
    for (int64_t row = first; a->lse && row < end; row++)
        if (memcmp(&a->lse[row], &b->lse[row], sizeof(double)) != 0)
            fail_msg("%s, %s, %s: lse[%lld] is %.9g and %.9g", data->name, dtype_name(data->dtype), variant,
                     (long long)row, a->lse[row], b->lse[row]);
}

void attention_check(const struct attention_data *data) {
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = attention_next_variant(data, &index)); ran++) {
        struct attention_result result = attention_run(data, variant);
        attention_compare(data, &result, variant, 64);
        attention_result_free(&result);
    }
    if (ran == 0)
        fail_msg("%s, %s: no variant accepts", data->name, dtype_name(data->dtype));
}

void attention_survive(const struct attention_data *data) {
    struct attention_data wild = *data;
    size_t index = 0, ran = 0;
    wild.wild = true;
    for (const char *variant; (variant = attention_next_variant(&wild, &index)); ran++) {
        struct attention_result result = attention_run(&wild, variant);
        attention_result_free(&result);
    }
    if (ran == 0)
        fail_msg("%s, %s: no variant accepts", data->name, dtype_name(data->dtype));
}

static void compare_published(const struct attention_case *c, const struct attention_data *data,
                              const struct attention_result *result, const char *variant) {
    struct reference_error o_error = {0}, lse_error = {0};
    reference_compare_within(&o_error, (int64_t)c->o_count, result->o, c->o, data->tolerance, data->tolerance);
    reference_compare_within(&lse_error, (int64_t)c->lse_count, result->lse, c->lse, lse_tolerance(data),
                             lse_tolerance(data));
    report(data, variant, "the published o", &o_error);
    report(data, variant, "the published lse", &lse_error);
}

/* Do the published numbers hold for this dtype? They do where rounding to it leaves the inputs as they are. */
static bool inputs_exact(const struct attention_case *c, const struct attention_data *rounded) {
    struct attention_data exact = attention_data_of(c, CLATTN_F32);
    const size_t q = (size_t)reference_count(&exact.settings.q) * sizeof(double);
    const size_t k = (size_t)reference_count(&exact.settings.k) * sizeof(double);
    const size_t v = (size_t)reference_count(&exact.settings.v) * sizeof(double);
    const size_t bias = exact.bias ? (size_t)reference_count(&exact.settings.bias) * sizeof(double) : 0;
    const bool equal = memcmp(rounded->q, exact.q, q) == 0 && memcmp(rounded->k, exact.k, k) == 0 &&
                       memcmp(rounded->v, exact.v, v) == 0 && (!bias || memcmp(rounded->bias, exact.bias, bias) == 0);
    attention_data_free(&exact);
    return equal;
}

void attention_check_case(const struct attention_case *c, clattn_dtype dtype) {
    struct attention_data data = attention_data_of(c, dtype);
    /* Of a few numbers the plain version may happen to make no error at all: the tolerance is fixed. */
    data.tolerance = fmax(c->tolerance, dtype == CLATTN_F32 ? 1e-5 : dtype == CLATTN_F16 ? 2e-3 : 1.6e-2);
    const bool exact = inputs_exact(c, &data);
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index)); ran++) {
        struct attention_result result = attention_run(&data, variant);
        attention_compare(&data, &result, variant, 64);
        if (exact)
            compare_published(c, &data, &result, variant);
        attention_result_free(&result);
    }
    attention_data_free(&data);
    if (ran == 0)
        fail_msg("%s, %s: no variant accepts", c->name, dtype_name(dtype));
}

void attention_check_table(const struct attention_table *table, clattn_dtype dtype) {
    for (size_t i = 0; i < table->count; i++)
        attention_check_case(&table->cases[i], dtype);
}

void attention_table_in_fp32(void **table) {
    attention_check_table(*table, CLATTN_F32);
}

void attention_table_in_fp16(void **table) {
    attention_check_table(*table, CLATTN_F16);
}

void attention_table_in_bf16(void **table) {
    attention_check_table(*table, CLATTN_BF16);
}

struct attention_case attention_shape(const char *name, int64_t batch, int64_t nq, int64_t nk, clattn_causal causal) {
    return (struct attention_case){.name = name,
                                   .batch = batch,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .nq = nq,
                                   .nk = nk,
                                   .head_dim = 64,
                                   .value_dim = 64,
                                   .causal = causal};
}
