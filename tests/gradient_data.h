/* Problems of attention's gradients with their inputs on the host, and what is right; nothing here touches a device. */
#ifndef CLATTN_GRADIENT_DATA_H
#define CLATTN_GRADIENT_DATA_H

#include "attention_data.h"

/* The forward call's data, its result as the storage types hold it, and the gradients that come in. */
struct gradient_data {
    struct attention_data forward;
    clattn_dtype out_dtype;        /* of dq, dk and dv */
    double *o, *lse, *dout, *dlse; /* dlse: NULL where there is none */
};

/* Values that some gradient is known to have, flat from the first on. */
struct gradient_list {
    char of; /* 'q', 'k', 'v', 'b'ias or 's'inks; 0: the end */
    int64_t first;
    const double *values;
    size_t count;
};

struct gradient_case {
    struct attention_case forward;
    case_fill dout;
    struct gradient_list lists[5];
};

extern const struct gradient_case gradient_cases[];
extern const size_t gradient_case_count;

struct gradient_data gradient_data_of(const struct gradient_case *c, clattn_dtype dtype);
struct gradient_data gradient_data_random(const struct attention_case *shape, clattn_dtype dtype, uint64_t seed);
/* Takes the forward data over and makes the rest, a gradient of lse too where asked for. */
struct gradient_data gradient_data_from(const struct attention_data *forward, uint64_t seed, bool with_dlse);
void gradient_data_free(struct gradient_data *data);

/* Elements of the gradient that a letter of struct gradient_list stands for. */
int64_t gradient_count(const struct gradient_data *data, char of);
/* The array of that letter. */
double **gradient_of(struct reference_gradients *gradients, char of);
extern const char gradient_letters[]; /* "qkvbs" */

/* By the oracle and by the plain version; dbias and dsinks where the problem has bias and sinks. */
struct reference_gradients gradients_right(const struct gradient_data *data);
struct reference_gradients gradients_plain(const struct gradient_data *data, const struct reference_gradients *right);
struct reference_gradients gradients_make(const struct gradient_data *data); /* zeroed */
void gradients_free(struct reference_gradients *gradients);

#endif
