/* What each operation's file gives to the calls that are generic over operations (operation.c). */
#ifndef CLATTN_OPERATION_H
#define CLATTN_OPERATION_H

#include "choice.h"

/* What a front-end does, as data: clattn_<op>(), clattn_supported(), clattn_workspace_size(), clattn_prepare() and
 * clattn_variant_*() all run these. */
struct operation {
    clattn_op_kind kind;
    size_t minimum_size; /* of the struct's first published version */
    /* Checks op wholly (not the launch) and fills in the problem. *empty: nothing to do, nothing to build. */
    clattn_status (*check)(clattn_context *context, const clattn_op *op, struct problem *problem, bool *empty);
    /* What tuning rows are looked up by. */
    int64_t (*tuning_size)(const struct problem *problem);
    /* Refuses whatever enqueue could not run, but for a missing workspace, and makes choice->parameters those that run.
     * Enqueues nothing, builds nothing but self-tests (run_selftest: see choice_make()). NULL: what was checked and
     * chosen runs. */
    clattn_status (*plan)(clattn_context *context, const clattn_op *op, const struct problem *problem,
                          bool run_selftest, struct choice *choice);
    /* Bytes of workspace. This and what follows get a choice that was planned. */
    clattn_status (*workspace)(clattn_context *context, const clattn_op *op, const struct problem *problem,
                               const struct choice *choice, size_t *bytes);
    /* Builds all programs that enqueue would use. */
    clattn_status (*prepare)(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice);
    /* Enqueues; everything has been checked. */
    clattn_status (*enqueue)(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch);
    /* "attention_forward_f16_d128__fma_64x64" */
    void (*describe)(const struct problem *problem, const struct choice *choice, char *name, size_t size);
};

extern const struct operation operation_attention, operation_attention_backward, operation_attention_merge,
    operation_softmax, operation_softmax_merge, operation_gemm, operation_norm, operation_norm_backward,
    operation_softmax_backward, operation_softmax_topk, operation_rope_append, operation_cast, operation_unscale,
    operation_loss_scale, operation_adamw, operation_sgd, operation_attention_cascade;

const struct operation *operation_of(clattn_op_kind kind); /* NULL where unknown */

/* choice_make() and the operation's plan. A variant that a row prefers makes way for the usual one where its plan is
 * refused: a tuning row makes no call fail. */
clattn_status operation_choose(clattn_context *context, const struct operation *operation, const clattn_op *op,
                               const struct problem *problem, const clattn_launch *launch, bool run_selftest,
                               struct choice *choice);

/* The whole of a public call: check, choose, plan, launch. An operation that is a step of another (the products of
 * unfused attention) is run through this too, with a launch of its own whose events chain the steps. */
clattn_status operation_run(clattn_context *context, const clattn_op *op, clattn_op_kind kind,
                            const clattn_launch *launch);

#endif
