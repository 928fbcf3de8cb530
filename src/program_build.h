/* One build: expand the source, take the binary from the disk cache or compile, keep the result there. */
#ifndef CLATTN_PROGRAM_BUILD_H
#define CLATTN_PROGRAM_BUILD_H

#include "program.h"
#include <stdbool.h>

struct built_program {
    cl_program program;
    cl_kernel kernel; /* the first one; its creation proves that the program holds it */
    size_t max_group;
    bool loaded; /* from the disk cache */
};

/* On failure nothing is left over. CLATTN_BUILD_FAILED's text holds file, options and the compiler's log. */
clattn_status program_build(clattn_context *context, const struct program_key *key, struct built_program *built);

#endif
