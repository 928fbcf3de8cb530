/* One variant on one job: is it right, how fast is it, how much memory does it take? Shared by check and bench. */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include "oracle.h"
#include "report.h"
#include "timer.h"

struct measure {
    const struct machine *machine;
    struct job *job;             /* uploaded */
    const struct oracle *oracle; /* NULL: unchecked */
    const char *variant, *parameters;
    bool rotate;            /* over buffers larger than the last-level cache, where the operation is bound by memory */
    bool with_p;            /* P error too */
    struct timer_plan plan; /* runs = 0: not timed */
};

/* What is common to all variants of a job: operation, dtype, shape, bytes, flops. */
void measure_describe(const struct job *job, struct result *result);

/* How many sets of buffers a job is timed over, so that no cache holds what a call reads. */
size_t measure_sets(const struct job *job, const struct machine *machine);

/* Fills the result; the job then holds the outputs. */
int measure_variant(const struct measure *measure, struct result *result);

/* Two variants in turn: results[0] is measure->variant's, results[1] is rival's; both get ratios. */
int measure_pair(const struct measure *measure, const char *rival, struct result results[2]);

#endif
