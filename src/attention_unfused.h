/* The inside of unfused attention: what a problem needs beside two products and a softmax, where that lies in the
 * workspace (attention_areas.c), and the kernels that walk rows (attention_rows.c). */
#ifndef CLATTN_ATTENTION_UNFUSED_H
#define CLATTN_ATTENTION_UNFUSED_H

#include "choice.h"
#include "launch.h"

struct unfused_needs {
    bool packs_q, packs_k; /* products want sequences at even distances, and elements */
    bool finite_v;         /* a key may be hidden, and what it holds with it, or v is quantised; packs v as well */
    bool scores;           /* products become scores by a kernel of their own; a causal limit alone is the softmax's */
    bool unpacks;          /* results do not lie as the products give them */
    bool sinks;
};

/* Bytes from the workspace's start; tensors [batch, heads, rows, ..] with rows at even distances. */
struct unfused_areas {
    int64_t scores, probabilities, q, k, v, o, lse;
    int64_t met; /* an int: becomes 1 where v holds NaN or an infinity */
    int64_t total;
};

/* Everything that can be refused or fail to build is made before the first command: a call that fails there has written
 * nothing. */
struct unfused_call {
    const clattn_attention_op *op;
    const struct problem *problem;
    const struct device_facts *facts;
    clattn_workspace workspace;
    struct unfused_needs needs;
    struct unfused_areas areas;
    clattn_tensor q, k, v, s, p, o, lse; /* of products and softmax: the caller's, or areas */
};

/* Refuses where a size exceeds 64 bits. workspace may be empty where nothing will be enqueued. */
clattn_status unfused_call_make(const clattn_attention_op *op, const struct problem *problem,
                                const struct device_facts *facts, const clattn_workspace *workspace,
                                struct unfused_call *call);

/* ---- kernels that walk rows -------------------------------------------------------------------------------------- */

struct unfused_programs {
    struct program *pack, *scores, *special, *unpack; /* NULL where there is no need */
};

/* Builds what unfused_rows_before() and the others use. */
clattn_status unfused_rows_prepare(clattn_context *context, const struct unfused_call *call,
                                   struct unfused_programs *programs);
/* Commands of all three. */
int unfused_rows_commands(const struct unfused_call *call);
/* Packs what the products take. */
clattn_status unfused_rows_before(const struct unfused_call *call, const struct unfused_programs *programs,
                                  struct sequence *sequence);
/* From the first product to what the softmax takes. */
clattn_status unfused_rows_between(const struct unfused_call *call, const struct unfused_programs *programs,
                                   struct sequence *sequence);
/* From the second product to o and lse. */
clattn_status unfused_rows_after(const struct unfused_call *call, const struct unfused_programs *programs,
                                 struct sequence *sequence);

#endif
