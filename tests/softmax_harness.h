/* Runs softmax problems on the current device, by every variant and by parameters that force its group-wide reductions,
 * and holds them against the oracle or given numbers. */
#ifndef CLATTN_SOFTMAX_HARNESS_H
#define CLATTN_SOFTMAX_HARNESS_H

#include "reference.h"
#include "support.h"

struct softmax_problem {
    clattn_softmax_function function;
    clattn_empty_rows empty_rows;
    int rank, axis;
    int64_t dims[CLATTN_MAX_RANK];
    clattn_dtype dtype, out_dtype;
    double *x;                                     /* dense, in logical order, values that dtype holds */
    const struct test_layout *x_layout, *y_layout; /* NULL: dense */
    double scale;                                  /* 0: left at its default of 1 */
    const double *mask, *bias;                     /* NULL: absent; dense, of these dims: x's, or 1 */
    int64_t mask_dims[CLATTN_MAX_RANK], bias_dims[CLATTN_MAX_RANK];
    clattn_dtype bias_dtype;
    bool in_place;
};

/* rows x columns along the last axis, softmax in fp32; x is zero. */
struct softmax_problem softmax_rows(int64_t rows, int64_t columns);
/* Any dims, at most rank 4. */
struct softmax_problem softmax_of(int rank, const int64_t *dims, int axis);
void softmax_free(struct softmax_problem *problem);

/* Sets both dtypes and rounds x to the input's. */
void softmax_set_dtypes(struct softmax_problem *problem, clattn_dtype dtype, clattn_dtype out_dtype);
/* x becomes normally distributed, times spread. */
void softmax_fill_normal(struct softmax_problem *problem, uint64_t seed, double spread);

int64_t softmax_count(const struct softmax_problem *problem);        /* elements of x */
int64_t softmax_result_count(const struct softmax_problem *problem); /* ... of y or m, and of l */

/* One way of running it. Where both are NULL the library chooses. */
struct softmax_way {
    const char *variant, *parameters;
};
/* Which of the ways. EVERY_WAY adds parameters that make groups and sub-groups share rows, whatever the device's own
 * choice is. */
enum softmax_ways { CHOSEN_WAY, EVERY_VARIANT, EVERY_WAY };
/* The ways that this problem can go on this device, in turn; false past the last. *index starts at 0. */
bool softmax_next_way(const struct softmax_problem *problem, enum softmax_ways ways, size_t *index,
                      struct softmax_way *way);

/* Runs it (twice, unless in place; the bits must agree), checks guards and inputs. l is used by states alone. */
void softmax_run(const struct softmax_problem *problem, struct softmax_way way, double *result, double *l);

/* The ways against the oracle, within the bound that the plain version gives. */
void softmax_check(const struct softmax_problem *problem, enum softmax_ways ways);
/* One way against the oracle. */
void softmax_check_way(const struct softmax_problem *problem, struct softmax_way way);
/* The ways against given numbers. */
void softmax_expect(const struct softmax_problem *problem, enum softmax_ways ways, const double *want, double absolute,
                    double relative);

#endif
