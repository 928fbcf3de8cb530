/* What the files of attention share: the front-end (attention.c), the fused and two-pass schedules
 * (attention_forward.c), that for few queries (attention_decode.c), the pipelined one (attention_pipelined.c) and the
 * standard three steps (attention_unfused.c). */
#ifndef CLATTN_ATTENTION_H
#define CLATTN_ATTENTION_H

#include "check.h"
#include "choice.h"

/* Kernels count queries and keys in 32 bits, with room for one block beyond the last. */
#define ATTENTION_MAX_LENGTH (INT64_C(2147483647) - 65536)

/* The causal limit as one number: query i sees keys up to i + diagonal. Clamped, so that sums with it cannot overflow.
 */
int64_t attention_diagonal(const clattn_attention_op *op);
float attention_scale(const clattn_attention_op *op);

/* The checks of the public struct but for what overlaps; results: o and lse are written, or read. */
clattn_status attention_check(clattn_context *context, const clattn_attention_op *op, enum check_access results);
/* What the choice depends on, of a checked struct. */
void attention_describe(const clattn_attention_op *op, struct problem *problem);
/* The same of a checked merge. Where another operation has added MODIFIER_SEQUENCES to the problem, rows whose lse in
 * the last operand has the bits of ATTENTION_UNWRITTEN are not written: a signalling NaN, which no arithmetic gives. */
#define ATTENTION_UNWRITTEN 0x7fa00000
void attention_merge_describe(const clattn_attention_merge_op *op, struct problem *problem);
/* "<start>_f16_d128_causal__fma_64x64" */
void attention_name(const char *start, const struct problem *problem, enum backend backend, int rows, int columns,
                    char *name, size_t size);

/* Makes the choice's parameters those that run; refuses what cannot run. Comes before all of these. */
clattn_status attention_forward_plan(clattn_context *context, const clattn_attention_op *op,
                                     const struct problem *problem, struct choice *choice);
clattn_status attention_forward_workspace(const clattn_attention_op *op, const struct problem *problem,
                                          const struct choice *choice, size_t *bytes);
clattn_status attention_forward_prepare(clattn_context *context, const struct problem *problem,
                                        const struct choice *choice);
clattn_status attention_forward_enqueue(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice,
                                        const clattn_launch *launch);

/* Queries and keys of a block, for names: "64x32". */
void attention_forward_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys);

/* The same for few queries and many keys. plan() adds the parameters `chunk` and `splits`; with more than one split the
 * workspace takes B * Hq * Nq * splits * (Dv + 2) floats, Dv rounded up to a multiple of 4. */
clattn_status attention_decode_plan(clattn_context *context, const clattn_attention_op *op,
                                    const struct problem *problem, struct choice *choice);
clattn_status attention_decode_workspace(const clattn_attention_op *op, const struct problem *problem,
                                         const struct choice *choice, size_t *bytes);
clattn_status attention_decode_prepare(clattn_context *context, const struct problem *problem,
                                       const struct choice *choice);
clattn_status attention_decode_enqueue(clattn_context *context, const clattn_attention_op *op,
                                       const struct problem *problem, const struct choice *choice,
                                       const clattn_launch *launch);
void attention_decode_blocks(const struct problem *problem, const struct choice *choice, int *queries, int *keys);

/* A pipeline inside persistent work-groups. survey() fills in what only this schedule asks of a
 * problem. */
void attention_pipelined_survey(const clattn_attention_op *op, struct problem *problem);
clattn_status attention_pipelined_plan(const clattn_attention_op *op, const struct problem *problem,
                                       struct choice *choice);
clattn_status attention_pipelined_workspace(const clattn_attention_op *op, const struct problem *problem,
                                            const struct choice *choice, size_t *bytes);
clattn_status attention_pipelined_prepare(clattn_context *context, const struct problem *problem,
                                          const struct choice *choice);
clattn_status attention_pipelined_enqueue(clattn_context *context, const clattn_attention_op *op,
                                          const struct problem *problem, const struct choice *choice,
                                          const clattn_launch *launch);
void attention_pipelined_blocks(const struct choice *choice, int *queries, int *keys);

/* Scores, softmax and values as three steps; scores lie in the workspace. Refuses what one of the steps could not run.
 */
clattn_status attention_unfused_plan(clattn_context *context, const clattn_attention_op *op,
                                     const struct problem *problem, bool run_selftest, struct choice *choice);
clattn_status attention_unfused_workspace(const clattn_attention_op *op, const struct problem *problem,
                                          const struct choice *choice, size_t *bytes);
clattn_status attention_unfused_prepare(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice);
clattn_status attention_unfused_enqueue(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice,
                                        const clattn_launch *launch);

#endif
