/* From planned rows to programs and launches; shared by the softmax operation and attention's scores. */
#ifndef CLATTN_SOFTMAX_LAUNCH_H
#define CLATTN_SOFTMAX_LAUNCH_H

#include "launch.h"
#include "softmax_plan.h"

/* One planned softmax. */
struct softmax_job {
    const struct device_facts *facts;
    enum schedule schedule;
    clattn_softmax_function function;
    bool empty_zero, scores, scaled;
    clattn_dtype bias_dtype; /* where bias is not NULL */
    struct softmax_rows rows;
    struct softmax_plan plan;
    cl_mem x, y, l, mask, bias;
};

/* How many programs, and commands, a schedule takes. */
int softmax_job_steps(const struct softmax_job *job);
clattn_status softmax_job_program(clattn_context *context, const struct softmax_job *job, int step,
                                  struct program **program);
/* Bytes of workspace. */
size_t softmax_job_workspace(const struct softmax_job *job);
/* Enqueues all steps. workspace may be NULL where no bytes are needed; it starts at workspace_offset bytes. */
clattn_status softmax_job_enqueue(const struct softmax_job *job, const clattn_workspace *workspace,
                                  struct sequence *sequence);

#endif
