/* Is a job's result right? The oracle's rows are computed once per job and then hold for every variant. */
#ifndef TOOLS_ORACLE_H
#define TOOLS_ORACLE_H

#include "job.h"

#include <reference.h>

struct oracle {
    int64_t *rows; /* ascending */
    size_t count;
    bool all;                                               /* every row of the result is covered */
    double *want[JOB_MAX_OUTPUTS], *plain[JOB_MAX_OUTPUTS]; /* rows x width */
    double plain_error[JOB_MAX_OUTPUTS];
    double moved; /* the largest change of the first output by quantised inputs; NaN where there are none */
    struct {
        int64_t *rows;
        size_t count;
        double *want, *plain; /* rows x keys */
        double plain_error;
    } p; /* attention: probabilities of a few of the rows */
};

struct errors {
    double max_abs, max_rel; /* the worst of all outputs */
    double p_error;          /* largest absolute error of a probability; NaN: none taken */
    double difference;       /* from the other variant, over all elements; NaN: none taken */
    bool ok;
    char why[160]; /* the first element over its bound */
};

/* As many rows as `multiplications` pay for, but at least 64: the first and last, those at the edges of tiles, and
 * random ones. */
int oracle_make(struct oracle *oracle, const struct job *job, double multiplications);
void oracle_free(struct oracle *oracle);

/* Compares the results that job_read found. */
void oracle_compare(const struct oracle *oracle, const struct job *job, struct errors *errors);

/* Moves the job's results out of it, and back in. */
void oracle_take_results(struct job *job, struct array results[JOB_MAX_OUTPUTS]);
void oracle_put_results(struct job *job, struct array results[JOB_MAX_OUTPUTS]);

/* Compares every element with the results of another variant: both within their bound of the truth lie within twice it
 * of each other. Adds to errors. */
void oracle_compare_other(const struct oracle *oracle, const struct job *job, const struct array other[JOB_MAX_OUTPUTS],
                          struct errors *errors);

/* Attention: reads P from the very variant by running it with V = slices of the identity. Adds to errors; leaves the
 * job's V as it was, its outputs undefined. Does nothing for other operations. */
int oracle_compare_p(const struct oracle *oracle, struct job *job, const struct machine *machine, const char *variant,
                     const char *parameters, struct errors *errors);

/* ---- for oracle_p.c ---------------------------------------------------------------------------------------------- */

/* Fills oracle->p from the chosen rows. False where memory is short. */
bool oracle_ask_p(struct oracle *oracle, const struct job *job);
/* Adds what was found in the output `what`. */
void oracle_note(struct errors *errors, const struct reference_error *found, const char *what);

#endif
