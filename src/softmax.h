/* Softmax over attention scores, as a step of unfused attention. */
#ifndef CLATTN_SOFTMAX_H
#define CLATTN_SOFTMAX_H

#include "device.h"
#include "launch.h"

/* Scores s [batch, heads, nq, nk] in fp32 become probabilities p of any dtype: row i sees columns j <= i + diagonal,
 * the others become exactly 0, as does a row that sees none or only -inf. Rows lie one behind the other, s_stride and
 * p_stride elements apart. p may be s itself where it is F32 with equal offset and stride; otherwise they must not
 * overlap. */
struct softmax_scores {
    cl_mem s, p;
    int64_t s_offset, s_stride, p_offset, p_stride; /* in elements of F32 and of p_dtype */
    clattn_dtype p_dtype;
    int64_t batch, heads, nq, nk; /* all at least 1 */
    bool causal;                  /* false: every row sees all columns */
    int64_t diagonal;
    const clattn_tensor *lse; /* NULL, or F32 [batch, heads, nq] with any strides: log-sum-exp, -inf for empty rows */
};

/* Builds what softmax_scores_enqueue() uses. */
clattn_status softmax_scores_prepare(clattn_context *context, const struct device_facts *facts,
                                     const struct softmax_scores *scores);
/* Enqueues one command of the sequence. */
clattn_status softmax_scores_enqueue(const struct device_facts *facts, const struct softmax_scores *scores,
                                     struct sequence *sequence);

#endif
