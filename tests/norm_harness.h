/* Runs norms on the current device, by every variant and by parameters that make groups share rows, and holds them
 * against the oracle or given numbers. */
#ifndef CLATTN_NORM_HARNESS_H
#define CLATTN_NORM_HARNESS_H

#include "reference.h"
#include "row_ways.h"

struct norm_problem {
    clattn_norm_function function;
    bool one_plus_weight, with_residual, with_sum, with_weight, with_bias;
    enum { NORM_APART, NORM_IN_X, NORM_IN_RESIDUAL } place; /* y is x or residual itself */
    double eps;
    int rank;
    int64_t dims[CLATTN_MAX_RANK];
    clattn_dtype x_dtype, residual_dtype, weight_dtype, out_dtype; /* of bias and weight; of y and sum */
    const struct test_layout *x_layout, *y_layout;                 /* NULL: dense */
    double *x, *residual, *weight, *bias;
};

/* All in fp32; x is normally distributed, weight and bias are present. */
struct norm_problem norm_of(clattn_norm_function function, int64_t rows, int64_t columns);
void norm_free(struct norm_problem *problem);
/* Sets the dtypes and rounds all values to them. */
void norm_set_dtypes(struct norm_problem *problem, clattn_dtype x, clattn_dtype residual, clattn_dtype weight,
                     clattn_dtype out);

/* The ways against the oracle, within the bound that the plain version gives. */
void norm_check(const struct norm_problem *problem, enum row_ways ways);
/* Against given numbers for y. */
void norm_expect(const struct norm_problem *problem, enum row_ways ways, const double *want, double absolute,
                 double relative);

#endif
