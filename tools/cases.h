/* The shapes that check and bench run, as data: shared with the tests. */
#ifndef TOOLS_CASES_H
#define TOOLS_CASES_H

#include <stddef.h>

enum case_suite {
    CASE_QUICK = 1,     /* seconds on any device */
    CASE_FULL = 2,      /* beyond quick */
    CASE_BENCH = 4,     /* what bench measures by default */
    CASE_BENCH_GPU = 8, /* ... where the device is no CPU */
    CASE_MODIFIERS = 16 /* on CPUs, whose compilers are slow, the quick suite takes the variants in turn */
};

struct test_case {
    const char *op;
    const char *shape;    /* as for --shape */
    const char *settings; /* KEY=VALUE words separated by spaces, or "" */
    unsigned suites;
};

/* NULL past the last. */
const struct test_case *case_at(size_t index);

#endif
