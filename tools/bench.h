/* What the parts of clattn bench share. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "arguments.h"
#include "measure.h"
#include "selection.h"

struct bench {
    struct machine machine;
    struct report report;
    struct selection selection;
    struct arguments arguments;
    struct timer_plan plan;
    bool cpu;
};

/* Measures an uploaded job's variant (NULL: the library's choice) and its rival's (NULL: none); adds the results. */
int bench_job(struct bench *bench, struct job *job, const char *variant, const char *rival);

/* The same for a case in one dtype. */
int bench_case(struct bench *bench, const struct test_case *item, enum element element, const char *variant,
               const char *rival);

/* Rates the result and adds it. */
int bench_add(struct bench *bench, struct result *result);

/* The first variant that accepts the job and whose name begins so; NULL where there is none. */
const char *bench_variant_like(const struct bench *bench, const struct job *job, const char *start);

/* Multiplications that the oracle of a bench may cost. */
#define BENCH_MULTIPLICATIONS 1e8

int bench_suite_seeds(struct bench *bench);
int bench_suite_softmax(struct bench *bench);
int bench_suite_norms(struct bench *bench);
int bench_suite_attention(struct bench *bench);
int bench_suite_nvidia_forward(struct bench *bench);
int bench_suite_modifiers(struct bench *bench);
int bench_suite_decode(struct bench *bench);
int bench_suite_training(struct bench *bench);
int bench_suite_host(struct bench *bench);

#endif
