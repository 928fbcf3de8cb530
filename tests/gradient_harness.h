/* Runs problems of attention's gradients on the current device and holds them against the oracle. */
#ifndef CLATTN_GRADIENT_HARNESS_H
#define CLATTN_GRADIENT_HARNESS_H

#include "attention_harness.h"
#include "gradient_data.h"

/* Which outputs are asked for, as letters of gradient_letters, and how they and the incoming gradients lie. */
struct gradient_request {
    const char *outputs;                                                   /* NULL: all that there can be */
    const struct test_layout *dq, *dk, *dv, *dbias, *dsinks, *dout, *dlse; /* NULL: dense */
    const char *parameters;
};

/* One variant (NULL: the library's choice): runs twice, demands equal bits, untouched guards and inputs. Whatever has
 * no influence holds the data's gap. request may be NULL. What was not asked for is NULL in the result. */
struct reference_gradients gradients_run(const struct gradient_data *data, const struct gradient_request *request,
                                         const char *variant);
/* Fails unless each element is within twice the plain version's error and one ulp. */
void gradients_compare(const struct gradient_data *data, const struct reference_gradients *got, const char *variant);
/* All variants that accept the problem; returns how many. */
size_t gradient_variants(const struct gradient_data *data, const struct gradient_request *request, const char **names,
                         size_t limit);
/* Runs and compares every variant that accepts. Fails where none does. */
void gradients_check(const struct gradient_data *data, const struct gradient_request *request);

#endif
