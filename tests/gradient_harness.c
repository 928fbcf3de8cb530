/* Problems of attention's gradients on the device: NaN in all that has no influence, each call made twice, each result
 * held against the oracle with the plain version's error as yardstick. */
#include "gradient_harness.h"

#include <clattn/training.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUTS = 5, MAX_VARIANTS = 16 };

struct tensors {
    struct attention_inputs in;
    struct test_tensor o, lse, dout, dlse, out[OUTPUTS];
    clattn_attention_backward_op op;
};

static const struct gradient_request everything;

/* Rows of o, lse, dout and dlse that no gradient may look at. */
static void poison(const struct gradient_data *data, double *values, int64_t width) {
    const double gap = data->forward.gap != 0 ? data->forward.gap : (double)NAN;
    for (int64_t row = 0; values && row < attention_row_count(&data->forward); row++) {
        const struct reference_row at = reference_attention_locate(&data->forward.problem, row);
        for (int64_t c = 0; (at.sequence < 0 || at.query >= at.queries) && c < width; c++)
            values[row * width + c] = gap;
    }
}

static bool repeats(const struct test_layout *layout, const int64_t *dims, int rank) {
    for (int d = 0; layout && d < rank; d++)
        if (dims[d] > 1 && layout->strides[d] == 0)
            return true;
    return false;
}

static struct test_tensor rows(const struct gradient_data *data, clattn_dtype dtype, const double *values, bool wide,
                               const struct test_layout *layout) {
    const int64_t *q = data->forward.settings.q.dims, dv = data->forward.problem.value_dim;
    const int64_t dims[] = {q[0], q[1], q[2], dv}, width = wide ? dv : 1;
    const int64_t count = attention_row_count(&data->forward) * width;
    double *copy = memcpy(test_array(count), values, (size_t)count * sizeof *copy);
    if (!repeats(layout, dims, wide ? 4 : 3))
        poison(data, copy, width);
    const struct test_tensor tensor =
        test_input(dtype, wide ? 4 : 3, dims, copy, layout, data->forward.gap != 0 ? data->forward.gap : (double)NAN);
    free(copy);
    return tensor;
}

static const struct test_layout *layout_of(const struct gradient_request *request, char of) {
    return of == 'q'   ? request->dq
           : of == 'k' ? request->dk
           : of == 'v' ? request->dv
           : of == 'b' ? request->dbias
                       : request->dsinks;
}

static clattn_tensor *output_of(clattn_attention_backward_op *op, char of, clattn_tensor *like,
                                clattn_dtype out_dtype) {
    const clattn_attention_op *forward = &op->attention;
    *like = of == 'q'   ? forward->q
            : of == 'k' ? forward->k
            : of == 'v' ? forward->v
            : of == 'b' ? forward->bias
                        : forward->sinks;
    if (strchr("qkv", of))
        like->dtype = out_dtype;
    return of == 'q' ? &op->dq : of == 'k' ? &op->dk : of == 'v' ? &op->dv : of == 'b' ? &op->dbias : &op->dsinks;
}

static bool asked_for(const struct gradient_data *data, const struct gradient_request *request, char of) {
    if ((of == 'b' && !data->forward.bias) || (of == 's' && !data->forward.sinks))
        return false;
    return !request->outputs || strchr(request->outputs, of) != NULL;
}

static struct tensors upload(const struct gradient_data *data, const struct gradient_request *request) {
    struct tensors t = {.in = attention_upload(&data->forward)};
    clattn_attention_backward_init(&t.op);
    const clattn_op head = t.op.attention.head;
    t.op.attention = t.in.op;
    t.op.attention.head = head;
    t.o = rows(data, data->forward.out_dtype, data->o, true, data->forward.layout_o);
    t.lse = rows(data, CLATTN_F32, data->lse, false, data->forward.layout_lse);
    t.dout = rows(data, data->forward.dtype, data->dout, true, request->dout);
    t.op.attention.o = t.o.view, t.op.attention.lse = t.lse.view, t.op.dout = t.dout.view;
    if (data->dlse) {
        t.dlse = rows(data, CLATTN_F32, data->dlse, false, request->dlse);
        t.op.dlse = t.dlse.view;
    }
    for (int i = 0; i < OUTPUTS; i++) {
        clattn_tensor like, *view = output_of(&t.op, gradient_letters[i], &like, data->out_dtype);
        if (!asked_for(data, request, gradient_letters[i]))
            continue;
        t.out[i] = test_output(like.dtype, like.rank, like.dims, layout_of(request, gradient_letters[i]));
        *view = t.out[i].view;
    }
    return t;
}

static void release(struct tensors *t) {
    attention_inputs_release(&t->in);
    test_release(&t->o);
    test_release(&t->lse);
    test_release(&t->dout);
    test_release(&t->dlse);
    for (int i = 0; i < OUTPUTS; i++)
        test_release(&t->out[i]);
}

static void run(const struct tensors *t, const char *variant, const char *parameters) {
    struct test_call call;
    test_call_begin(&call, &t->op.head, variant);
    call.launch.parameters = parameters;
    CHECK(clattn_attention_backward(device.clattn, &t->op, &call.launch));
    test_call_end(&call);
}

/* Into NaN-filled outputs each time. */
static void run_twice(struct tensors *t, const struct gradient_data *data, const char *variant,
                      const char *parameters) {
    unsigned char *first[OUTPUTS] = {0};
    run(t, variant, parameters);
    for (int i = 0; i < OUTPUTS; i++)
        if (t->out[i].buffer) {
            first[i] = test_bytes(&t->out[i]);
            test_reset(&t->out[i]);
        }
    run(t, variant, parameters);
    for (int i = 0; i < OUTPUTS; i++) {
        unsigned char *again = first[i] ? test_bytes(&t->out[i]) : NULL;
        if (again && memcmp(first[i], again, t->out[i].bytes) != 0)
            fail_msg("%s, %s: d%c differs between two runs", data->forward.name, variant ? variant : "chosen",
                     gradient_letters[i]);
        free(first[i]);
        free(again);
    }
}

struct reference_gradients gradients_run(const struct gradient_data *data, const struct gradient_request *request,
                                         const char *variant) {
    const struct gradient_request *wanted = request ? request : &everything;
    struct tensors t = upload(data, wanted);
    struct reference_gradients got = {.key_slabs = data->forward.settings.k.dims[0]};
    run_twice(&t, data, variant, wanted->parameters);
    for (int i = 0; i < OUTPUTS; i++)
        if (t.out[i].buffer) {
            double **array = gradient_of(&got, gradient_letters[i]);
            *array = test_array(gradient_count(data, gradient_letters[i]));
            test_read(&t.out[i], *array);
        }
    attention_inputs_untouched(&t.in);
    test_untouched(&t.o, "o");
    test_untouched(&t.lse, "lse");
    test_untouched(&t.dout, "dout");
    release(&t);
    return got;
}

/* Rows of q, or of k and v, that are no sequence's stay what outputs start as: NaN. */
static void leave_rows(const struct gradient_data *data, struct reference_gradients *right) {
    const struct attention_data *forward = &data->forward;
    const struct reference_attention *p = &forward->problem;
    for (int64_t row = 0; p->q_offsets && right->dq && row < attention_row_count(forward); row++)
        for (int64_t c = 0; reference_attention_locate(p, row).sequence < 0 && c < p->head_dim; c++)
            right->dq[row * p->head_dim + c] = (double)NAN;
    for (int64_t row = 0; p->k_offsets && row < p->kv_heads * p->nk; row++) {
        const double at = (double)(row % p->nk);
        if (at >= p->k_offsets[0] && at < p->k_offsets[p->batch])
            continue;
        for (int64_t c = 0; c < p->head_dim; c++)
            right->dk[row * p->head_dim + c] = (double)NAN;
        for (int64_t c = 0; c < p->value_dim; c++)
            right->dv[row * p->value_dim + c] = (double)NAN;
    }
}

/* What the magnitudes of a sink's terms add up to, at most over the heads. */
static double sink_magnitude(const struct gradient_data *data) {
    const struct reference_attention *p = &data->forward.problem;
    double most = 0;
    for (int64_t head = 0; head < p->heads; head++) {
        double sum = 0;
        for (int64_t row = 0; row < attention_row_count(&data->forward); row++) {
            const struct reference_row at = reference_attention_locate(p, row);
            double terms = data->dlse ? fabs(data->dlse[row]) : 0;
            if (at.head != head || at.sequence < 0 || at.query >= at.queries)
                continue;
            for (int64_t c = 0; c < p->value_dim; c++)
                terms += fabs(data->dout[row * p->value_dim + c] * data->o[row * p->value_dim + c]);
            sum += exp(p->sinks[head] - data->lse[row]) * (isfinite(terms) ? terms : 0);
        }
        most = isfinite(sum) ? fmax(most, sum) : most;
    }
    return most;
}

/* The plain version's error. Sinks are so few that it may happen to be far below what rounding the terms costs: half a
 * unit in the last place of each. */
static double plain_error(const struct gradient_data *data, char of, const double *want, const double *plain) {
    const double error = reference_plain_error(gradient_count(data, of), want, plain);
    return of == 's' ? fmax(error, ldexp(sink_magnitude(data), -24)) : error;
}

void gradients_compare(const struct gradient_data *data, const struct reference_gradients *got, const char *variant) {
    struct reference_gradients right = gradients_right(data), plain = gradients_plain(data, &right), from = *got;
    leave_rows(data, &right);
    leave_rows(data, &plain);
    for (const char *of = gradient_letters; *of; of++) {
        const double *values = *gradient_of(&from, *of), *want = *gradient_of(&right, *of);
        const int64_t count = gradient_count(data, *of);
        struct reference_error error = {0};
        if (!values)
            continue;
        const clattn_dtype dtype = *of == 's'   ? CLATTN_F32
                                   : *of == 'b' ? data->forward.settings.bias.dtype
                                                : data->out_dtype;
        reference_compare(&error, count, values, want, plain_error(data, *of, want, *gradient_of(&plain, *of)), dtype);
        if (error.bad)
            fail_msg("%s, %s, %s: %lld of %lld elements of d%c are wrong, first [%lld]: %.9g, not %.9g (bound %.3g; "
                     "largest error %.3g, plain version %.3g)",
                     data->forward.name, dtype_name(data->forward.dtype), variant ? variant : "chosen",
                     (long long)error.bad, (long long)error.count, *of, (long long)error.index, error.got, error.want,
                     error.bound, error.largest, error.plain_largest);
    }
    gradients_free(&right);
    gradients_free(&plain);
}

size_t gradient_variants(const struct gradient_data *data, const struct gradient_request *request, const char **names,
                         size_t limit) {
    size_t count = 0, at = 0;
    struct tensors t = upload(data, request ? request : &everything);
    while (count < limit && (names[count] = test_next_variant(&t.op.head, &at)))
        count++;
    release(&t);
    return count;
}

void gradients_check(const struct gradient_data *data, const struct gradient_request *request) {
    const char *names[MAX_VARIANTS];
    const size_t count = gradient_variants(data, request, names, MAX_VARIANTS);
    if (count == 0)
        fail_msg("%s, %s: no variant accepts", data->forward.name, dtype_name(data->forward.dtype));
    for (size_t i = 0; i < count; i++) {
        struct reference_gradients got = gradients_run(data, request, names[i]);
        gradients_compare(data, &got, names[i]);
        gradients_free(&got);
    }
}
