/* Quantised keys and values of attention problems: codes, scales and zeros on the host, and on the device. */
#ifndef CLATTN_ATTENTION_CODES_H
#define CLATTN_ATTENTION_CODES_H

#include "attention_data.h"
#include "support.h"

/* How a tensor is stored; see clattn_quantization. */
struct code_format {
    clattn_dtype dtype;
    int32_t block;
    clattn_nibbles nibbles;
    bool zeros;
    int64_t code_stride;
    int64_t gap;       /* codes between rows that nobody may read */
    int64_t offset;    /* codes before the first */
    bool tokens_first; /* rows of all heads beside each other; scales too */
};

/* Quantises data->k (or data->v, as `codes` is one of the two members of data) and puts what the codes stand for in its
 * place. The format must outlive the data. */
void attention_codes_make(struct attention_data *data, struct attention_codes *codes, const struct code_format *format);

/* On the device. Rows whose `values` are not those of data become codes, scales and zeros that would spoil any result;
 * the buffers end with the last code and the last number. */
struct code_tensors {
    struct test_tensor codes, scales, zeros;
    clattn_tensor view;
    clattn_quantization quantization;
};
struct code_tensors attention_codes_upload(const struct attention_data *data, const struct attention_codes *codes,
                                           const double *values, double gap);
void attention_codes_untouched(const struct code_tensors *tensors);
void attention_codes_release(struct code_tensors *tensors);

#endif
