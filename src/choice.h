/* From a checked problem to a variant with parameters: forced by the caller or picked, self-tested, tuned. */
#ifndef CLATTN_CHOICE_H
#define CLATTN_CHOICE_H

#include "tuning.h"
#include "variant.h"

struct choice {
    const struct variant *variant;
    struct device_facts facts;    /* as used for the choice */
    struct parameters parameters; /* tuning row, then the caller's overrides */
    enum tuning_source source;
    bool overridden; /* the caller gave parameters */
    bool untested;   /* believed: a self-test of what it relies on, or of what a step of its plan does, has not run */
    bool preferred;  /* the variant is one that a tuning row prefers */
};

/* Takes launch->variant; else, unless there are launch->parameters, the variant that a tuning row prefers; else the
 * first that accepts, in order of preference. A row that refuses is logged with its reason; one whose capabilities fail
 * their self-test falls to the next. launch may be NULL. run_selftest false: facts are believed; the choice is the same
 * as with it unless it says `untested`. UNSUPPORTED with all reasons where nothing is left. */
clattn_status choice_make(clattn_context *context, const struct problem *problem, const clattn_launch *launch,
                          int64_t tuning_size, bool run_selftest, struct choice *out);

/* The same without rows that prefer a variant: what is left where the preferred one cannot be planned. */
clattn_status choice_make_unpreferred(clattn_context *context, const struct problem *problem,
                                      const clattn_launch *launch, int64_t tuning_size, bool run_selftest,
                                      struct choice *out);

/* The operation's row of that name; an argument error that lists the names there are. */
clattn_status choice_find(clattn_op_kind op, const char *name, const struct variant **out);

#endif
