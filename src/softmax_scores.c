/* Softmax over attention scores: rows in registers where they fit, else read twice. Never split: scores have many rows.
 */
#include "softmax.h"
#include "softmax_launch.h"
#include "variant.h"

/* As variant.c accepts them. */
static enum schedule schedule_of(const struct device_facts *facts, int64_t columns) {
    if (columns <= SOFTMAX_SUBGROUP_COLUMNS)
        return SCHEDULE_SUBGROUP;
    return columns <= SOFTMAX_GROUP_COLUMNS && variant_keeps_rows(facts) ? SCHEDULE_GROUP : SCHEDULE_ONLINE;
}

/* As a dense [batch, heads, nq, nk] view with the rows' stride. */
static clattn_tensor view_of(const struct softmax_scores *scores, int64_t offset, int64_t stride, clattn_dtype dtype) {
    return (clattn_tensor){.offset = offset,
                           .dtype = dtype,
                           .rank = 4,
                           .dims = {scores->batch, scores->heads, scores->nq, scores->nk},
                           .strides = {scores->heads * scores->nq * stride, scores->nq * stride, stride, 1}};
}

static void set_lse(const struct softmax_scores *scores, struct softmax_job *job) {
    struct softmax_layout *layout = &job->rows.layout;
    job->l = scores->lse->memory.as.buffer;
    layout->l_offset = scores->lse->offset;
    for (int i = 0; i < 3; i++)
        layout->l_stride[i] = scores->lse->strides[i];
}

/* Rows are numbered over all three dims, unmerged: the last one's index is the query, which the diagonal needs. */
static clattn_status make_job(const struct device_facts *facts, const struct softmax_scores *scores,
                              struct softmax_job *job) {
    const clattn_tensor s = view_of(scores, scores->s_offset, scores->s_stride, CLATTN_F32);
    const clattn_tensor p = view_of(scores, scores->p_offset, scores->p_stride, scores->p_dtype);
    *job = (struct softmax_job){.facts = facts,
                                .schedule = schedule_of(facts, scores->nk),
                                .function = CLATTN_SOFTMAX,
                                .empty_zero = true,
                                .scores = true,
                                .x = scores->s,
                                .y = scores->p};
    softmax_rows_unmerged(&s, &p, &job->rows);
    job->rows.layout.diagonal = scores->causal ? scores->diagonal : scores->nk;
    if (scores->lse != NULL)
        set_lse(scores, job);
    const struct parameters none = {0};
    return softmax_plan_make(facts, job->schedule, &job->rows, &none, &job->plan);
}

clattn_status softmax_scores_prepare(clattn_context *context, const struct device_facts *facts,
                                     const struct softmax_scores *scores) {
    struct softmax_job job;
    struct program *program;
    const clattn_status status = make_job(facts, scores, &job);
    return status == CLATTN_SUCCESS ? softmax_job_program(context, &job, 0, &program) : status;
}

clattn_status softmax_scores_enqueue(const struct device_facts *facts, const struct softmax_scores *scores,
                                     struct sequence *sequence) {
    struct softmax_job job;
    const clattn_status status = make_job(facts, scores, &job);
    return status == CLATTN_SUCCESS ? softmax_job_enqueue(&job, NULL, sequence) : status;
}
