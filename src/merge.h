/* What the merges of attention results and of softmax states share. Operands are pairs of tensors; up to eight take one
 * launch, and more are folded: the result so far is the first operand of the next launch. */
#ifndef CLATTN_MERGE_H
#define CLATTN_MERGE_H

#include "check.h"
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

/* Everything but the step that a program's text depends on; no padding, since it is compared byte by byte. */
struct merge_kind {
    int32_t in_dtype, out_dtype;  /* of the operands' first, of the result's first */
    int32_t vector, lanes, group; /* elements at a time; work-items of a row, of a work-group */
    int32_t half_type;            /* the device has the type half */
    int32_t keeps;                /* rows may be left as they are (ATTENTION_UNWRITTEN) */
};

struct merge {
    int count;                                 /* operands, from 0 */
    const clattn_tensor *first_in, *second_in; /* count of each */
    int own;                                   /* the operand that has to be in the first launch, or -1 */
    struct merge_pair partial, result;         /* where the launches before the last write, and the last one */
    int rank;                                  /* dims that rows are numbered over: the leading ones of result.first */
    int64_t rows, columns;                     /* columns: elements of a row of `first` */
    const char *kernel;                        /* a literal; its file has the same name */
    struct merge_kind kind;
    void (*options)(const struct merge_kind *kind, const struct merge_step *step, char *text, size_t size);
};

/* The operand whose own memory the result is, at most one; -1 where there is none. An absent second counts as alike. */
int merge_own_operand(const struct merge_pair *result, int count, const clattn_tensor *first_in,
                      const clattn_tensor *second_in);

/* The tensors of either merge, and what a call names them: o and lse, o_in[0] and lse_in[0]. */
struct merge_arguments {
    const char *first, *second;
    struct merge_pair result;
    int count;
    const clattn_tensor *first_in, *second_in;
    /* Checks the result's pair (CHECK_OUTPUT) or an operand's, each by itself and against the result's shape. */
    clattn_status (*check_pair)(clattn_context *context, const struct merge_arguments *arguments,
                                const struct merge_pair *pair, const char *first, const char *second,
                                enum check_access access);
};

/* Also that no output overlaps another tensor, but for an operand that is the result in place. */
clattn_status merge_check(clattn_context *context, const struct merge_arguments *arguments);

/* The largest power of two of work-items, up to `most`, that the device launches. */
int merge_group(const struct device_facts *facts, int most);

/* Builds all programs. */
clattn_status merge_prepare(clattn_context *context, const struct merge *merge);

/* Enqueues all launches, none before all programs are there. */
clattn_status merge_enqueue(clattn_context *context, const struct merge *merge, const clattn_launch *launch);

#endif
