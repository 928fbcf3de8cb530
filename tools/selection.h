/* Which operations, dtypes and shapes a check or bench goes through. */
#ifndef TOOLS_SELECTION_H
#define TOOLS_SELECTION_H

#include "arguments.h"
#include "cases.h"
#include "job.h"

struct selection {
    const struct job_kind *kinds[ARGUMENTS_MAX_WORDS]; /* those named; none: all */
    size_t kind_count;
    enum element elements[3];
    size_t element_count;
    uint64_t seed;
};

/* From the operation names, --dtype (default: default_dtype, or "all") and --seed (default 1). */
int selection_take(const struct arguments *arguments, const char *default_dtype, struct selection *out);
bool selection_holds(const struct selection *selection, const char *op);

/* The job of a case; `settings` words are added to the case's own. */
int selection_make(const struct test_case *item, enum element element, uint64_t seed, const struct settings *settings,
                   struct job *job);

/* Operations whose data is always fp32: other dtypes would repeat it. */
bool selection_is_redundant(const char *op, enum element element);

#endif
