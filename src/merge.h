/* What the merges of attention results and of softmax states share. Operands are pairs of tensors; up to eight take one
 * launch, and more are folded: the result so far is the first operand of the next launch. */
#ifndef CLATTN_MERGE_H
#define CLATTN_MERGE_H

#include "launch.h"

enum { MERGE_OPERANDS = 8 };

/* An operand or a result: o and lse, or m and l. Only a result's second may be absent. */
struct merge_pair {
    const clattn_tensor *first, *second;
};

/* One of the launches, as far as a program depends on it. */
struct merge_step {
    int operands;
    bool begins, ends; /* reads caller's operands alone; writes the caller's result */
};

struct merge {
    int count;                                 /* operands, from 0 */
    const clattn_tensor *first_in, *second_in; /* count of each */
    int own;                                   /* the operand that has to be in the first launch, or -1 */
    struct merge_pair partial, result;         /* where the launches before the last write, and the last one */
    int rank;                                  /* dims that rows are numbered over: the leading ones of result.first */
    int64_t rows, columns;                     /* columns: elements of a row of `first` */
    size_t group, rows_per_group;              /* work-items, rows of a work-group */
    /* Finds or builds the program of a step. */
    clattn_status (*program)(clattn_context *context, const void *user, const struct merge_step *step,
                             struct program **program);
    const void *user;
};

/* The operand whose own memory the result is, at most one; -1 where there is none. An absent second counts as alike. */
int merge_own_operand(const struct merge_pair *result, int count, const clattn_tensor *first_in,
                      const clattn_tensor *second_in);

/* Builds all programs. */
clattn_status merge_prepare(clattn_context *context, const struct merge *merge);

/* Enqueues all launches, none before all programs are there. */
clattn_status merge_enqueue(clattn_context *context, const struct merge *merge, const clattn_launch *launch);

#endif
