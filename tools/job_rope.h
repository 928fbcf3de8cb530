/* Caches of codes that rope_append writes: between job_rope.c and job_rope_codes.c. `name` is "k" or "v". */
#ifndef TOOLS_JOB_ROPE_H
#define TOOLS_JOB_ROPE_H

#include "job_attention.h"

/* Of random problems, whose settings ask for fp8: the scales of heads, which the caller gives. */
int job_rope_generate_scales(struct job *job, struct settings *settings);
/* The outputs k_cache, k_scales and k_zeros, and k_values: what the codes stand for. dims: of the cache's elements. */
int job_rope_add_codes(struct job *job, struct settings *settings, const char *name, const struct job_format *format,
                       const int64_t dims[4]);
void job_rope_bind_codes(struct job *job);
/* As job_kind has it: k_values and v_values. */
void job_rope_derive(struct job *job);
/* Rows of values become what appending should make of them. */
void job_rope_round(const struct job *job, const char *name, double *values);

#endif
