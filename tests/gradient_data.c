/* The inputs of attention's gradients: from the table of known answers, or random. */
#include "gradient_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char gradient_letters[] = "qkvbs";

static double *array_of(int64_t count) {
    double *array = calloc((size_t)count + 1, sizeof *array);
    if (!array)
        abort();
    return array;
}

/* o and lse by the oracle, rounded as a kernel stores them. Rows of no sequence hold NaN. */
static void add_results(struct gradient_data *data) {
    const struct attention_data *forward = &data->forward;
    const int64_t rows = attention_row_count(forward), dv = forward->problem.value_dim;
    data->o = array_of(rows * dv);
    data->lse = array_of(rows);
    for (int64_t row = 0; row < rows; row++) {
        double *o = data->o + row * dv;
        reference_attention_row(&forward->problem, forward->q, forward->k, forward->v, row, o, &data->lse[row], NULL);
        data->lse[row] = reference_round(CLATTN_F32, data->lse[row]);
        for (int64_t c = 0; c < dv; c++)
            o[c] = reference_round(forward->out_dtype, o[c]);
    }
}

struct gradient_data gradient_data_from(const struct attention_data *forward, uint64_t seed, bool with_dlse) {
    struct gradient_data data = {.forward = *forward, .out_dtype = forward->dtype};
    const int64_t rows = attention_row_count(forward), count = rows * forward->problem.value_dim;
    data.dout = array_of(count);
    for (int64_t i = 0; i < count; i++)
        data.dout[i] = reference_round(forward->dtype, reference_normal((uint64_t)i, seed * 3 + 5));
    data.dlse = with_dlse ? array_of(rows) : NULL;
    for (int64_t i = 0; with_dlse && i < rows; i++)
        data.dlse[i] = reference_round(CLATTN_F32, reference_normal((uint64_t)i, seed * 3 + 6));
    add_results(&data);
    return data;
}

struct gradient_data gradient_data_random(const struct attention_case *shape, clattn_dtype dtype, uint64_t seed) {
    const struct attention_data forward = attention_data_random(shape, dtype, seed);
    return gradient_data_from(&forward, seed, false);
}

struct gradient_data gradient_data_of(const struct gradient_case *c, clattn_dtype dtype) {
    const struct attention_data forward = attention_data_of(&c->forward, dtype);
    const struct reference_attention *p = &forward.problem;
    struct gradient_data data = gradient_data_from(&forward, 1, false);
    case_values(c->dout, c->forward.batch, p->heads, p->nq, p->value_dim, data.dout);
    for (int64_t i = 0; i < attention_o_count(&forward); i++)
        data.dout[i] = reference_round(dtype, data.dout[i]);
    return data;
}

void gradient_data_free(struct gradient_data *data) {
    attention_data_free(&data->forward);
    free(data->o);
    free(data->lse);
    free(data->dout);
    free(data->dlse);
    memset(data, 0, sizeof *data);
}

int64_t gradient_count(const struct gradient_data *data, char of) {
    const clattn_attention_op *op = &data->forward.settings;
    switch (of) {
    case 'q':
        return reference_count(&op->q);
    case 'k':
        return reference_count(&op->k);
    case 'v':
        return reference_count(&op->v);
    case 'b':
        return data->forward.bias ? reference_count(&op->bias) : 0;
    default:
        return data->forward.sinks ? reference_count(&op->sinks) : 0;
    }
}

double **gradient_of(struct reference_gradients *gradients, char of) {
    switch (of) {
    case 'q':
        return &gradients->dq;
    case 'k':
        return &gradients->dk;
    case 'v':
        return &gradients->dv;
    case 'b':
        return &gradients->dbias;
    default:
        return &gradients->dsinks;
    }
}

struct reference_gradients gradients_make(const struct gradient_data *data) {
    struct reference_gradients gradients = {.key_slabs = data->forward.settings.k.dims[0]};
    for (const char *of = gradient_letters; *of; of++)
        *gradient_of(&gradients, *of) = array_of(gradient_count(data, *of));
    if (!data->forward.bias) {
        free(gradients.dbias);
        gradients.dbias = NULL;
    }
    if (!data->forward.sinks) {
        free(gradients.dsinks);
        gradients.dsinks = NULL;
    }
    return gradients;
}

void gradients_free(struct reference_gradients *gradients) {
    for (const char *of = gradient_letters; *of; of++) {
        free(*gradient_of(gradients, *of));
        *gradient_of(gradients, *of) = NULL;
    }
}

struct reference_gradients gradients_right(const struct gradient_data *data) {
    const struct attention_data *forward = &data->forward;
    const struct reference_gradients gradients = gradients_make(data);
    reference_attention_backward(&forward->problem, forward->q, forward->k, forward->v, data->dout, data->dlse,
                                 &gradients);
    return gradients;
}

struct reference_gradients gradients_plain(const struct gradient_data *data, const struct reference_gradients *right) {
    const struct attention_data *forward = &data->forward;
    const struct reference_gradients gradients = gradients_make(data);
    plain_attention_backward(&forward->problem, forward->dtype, data->out_dtype, forward->settings.bias.dtype,
                             forward->q, forward->k, forward->v, data->o, data->lse, data->dout, data->dlse, right,
                             &gradients);
    return gradients;
}
