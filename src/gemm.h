/* The matrix product's inside: the front-end (gemm.c), the library's own tiles (gemm_tiled.c), CLBlast
 * (gemm_clblast.c), and the way in which another operation makes a product one of its steps. */
#ifndef CLATTN_GEMM_H
#define CLATTN_GEMM_H

#include "choice.h"
#include "launch.h"

/* The views of a, b and c as both implementations see them: two batch dims, which a tensor of lower rank has with
 * size 1, and rows. Laid out as view_t of cl/view.clh. */
struct gemm_view {
    int64_t offset, outer, inner, row; /* elements */
};
struct gemm_view gemm_view_of(const clattn_tensor *tensor);
/* Sizes of the batch dims. */
void gemm_batches(const clattn_gemm_op *op, int64_t *outer, int64_t *inner);

/* Makes the choice's parameters those that run; refuses what cannot run. Comes before all of these. */
clattn_status gemm_tiled_plan(const struct problem *problem, struct choice *choice);
/* Afterwards gemm_tiled_enqueue() refuses nothing and builds nothing. */
clattn_status gemm_tiled_prepare(clattn_context *context, const struct problem *problem, const struct choice *choice);
/* One command. */
clattn_status gemm_tiled_enqueue(const clattn_gemm_op *op, const struct problem *problem, const struct choice *choice,
                                 struct sequence *sequence);
/* Rows and columns of a block of C, for names: "128x64". */
void gemm_tiled_blocks(const struct problem *problem, const struct choice *choice, int *rows, int *columns);

/* Fences before and after are commands of the sequence, the library's own calls are not. */
enum { GEMM_CLBLAST_COMMANDS = 2 };
clattn_status gemm_clblast_enqueue(const clattn_gemm_op *op, const struct problem *problem, struct sequence *sequence);

/* ---- as a step ---- */

/* The matrices' rows must start there for `aligned`. */
enum { GEMM_ROW_ALIGN = 16 }; /* bytes */

struct gemm_step {
    struct problem problem;
    struct choice choice;
};

/* Chooses and plans: refuses what could not run. The op's tensors are taken to be valid. aligned: all rows of a and b
 * start at multiples of GEMM_ROW_ALIGN, in every op that the step will be enqueued for. run_selftest: see
 * choice_make(). */
clattn_status gemm_step_plan(clattn_context *context, const clattn_gemm_op *op, bool aligned, bool run_selftest,
                             struct gemm_step *step);
/* Builds: what is left is to enqueue. */
clattn_status gemm_step_prepare(clattn_context *context, const struct gemm_step *step);
/* Commands that gemm_step_enqueue() adds to a sequence. */
int gemm_step_commands(const struct gemm_step *step);
/* op: that of gemm_step_plan(), or one that differs in offsets alone. */
clattn_status gemm_step_enqueue(const struct gemm_step *step, const clattn_gemm_op *op, struct sequence *sequence);

#endif
