/* Attention in the standard three steps: scores by a matrix product, their softmax, and a second product with the
 * values. What else modifiers ask for is done by kernels before, between and after (attention_rows.c). It is the
 * baseline, and the right choice where it is measured to be faster. */
#include "attention_unfused.h"
#include "attention.h"
#include "check.h"
#include "context.h"
#include "gemm.h"
#include "softmax.h"
#include "status.h"

#include <inttypes.h>

#define MOST_PRODUCTS (1 << 20)

enum { BATCH, HEAD, ROW, COLUMN };

/* ---- the products ------------------------------------------------------------------------------------------------ */

/* A product has two batch dims; with several batches and grouped heads three would be needed, and each batch is a
 * product of its own. */
struct grouping {
    int64_t products, outer, inner;
    bool by_batch; /* outer: kv heads, inner: the query heads of one; else batches and query heads */
    int64_t heads_per_kv;
};

static struct grouping grouping_of(const struct problem *problem) {
    const int64_t group = problem->heads / problem->kv_heads;
    if (group == 1 || problem->kv_heads == 1)
        return (struct grouping){1, problem->batch, problem->heads, false, group};
    return (struct grouping){problem->batch, problem->kv_heads, group, true, group};
}

/* The part of a tensor that one product reads or writes. */
static clattn_tensor part_of(const struct grouping *grouping, const clattn_tensor *tensor, int64_t index, bool is_kv) {
    clattn_tensor part = *tensor;
    const int64_t batch = tensor->strides[BATCH], head = tensor->strides[HEAD];
    part.dims[0] = grouping->outer;
    part.dims[1] = grouping->inner;
    if (grouping->by_batch) {
        part.offset += index * batch;
        part.strides[0] = is_kv ? head : head * grouping->heads_per_kv;
        part.strides[1] = is_kv ? 0 : head;
    } else {
        part.strides[1] = is_kv && grouping->heads_per_kv > 1 ? 0 : head;
    }
    return part;
}

struct product {
    clattn_tensor a, b, c; /* [batch, heads or kv heads, rows, columns] */
    bool transpose_b;
    float alpha;
    struct gemm_step step;
};

static clattn_gemm_op product_op(const struct product *product, const struct grouping *grouping, int64_t index) {
    clattn_gemm_op op;
    clattn_gemm_init(&op);
    op.a = part_of(grouping, &product->a, index, false);
    op.b = part_of(grouping, &product->b, index, true);
    op.c = part_of(grouping, &product->c, index, false);
    op.transpose_b = product->transpose_b;
    op.alpha = product->alpha;
    return op;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

struct steps {
    struct unfused_call call;
    struct grouping grouping;
    struct product scores, values;
    struct softmax_scores softmax;
    struct unfused_programs programs;
};

/* With a kernel for scores, hidden keys are -inf already; else the softmax keeps to the causal limit by itself. A sink
 * is the column behind the keys. */
static struct softmax_scores softmax_of(const struct unfused_call *call) {
    const struct problem *problem = call->problem;
    return (struct softmax_scores){
        .s = call->s.memory.as.buffer,
        .p = call->p.memory.as.buffer,
        .s_offset = call->s.offset,
        .s_stride = call->s.strides[ROW],
        .p_offset = call->p.offset,
        .p_stride = call->p.strides[ROW],
        .p_dtype = call->p.dtype,
        .batch = problem->batch,
        .heads = problem->heads,
        .nq = problem->nq,
        .nk = problem->nk + (call->needs.sinks ? 1 : 0),
        .causal = problem->causal && !call->needs.scores,
        .diagonal = attention_diagonal(call->op),
        .lse = problem->writes_lse ? &call->lse : NULL,
    };
}

static clattn_status make_steps(const clattn_attention_op *op, const struct problem *problem,
                                const struct choice *choice, const clattn_workspace *workspace, struct steps *steps) {
    struct unfused_call *call = &steps->call;
    *steps = (struct steps){.grouping = grouping_of(problem)};
    FORWARD(unfused_call_make(op, problem, &choice->facts, workspace, call));
    const float scale = call->needs.scores ? 1 : attention_scale(op);
    steps->scores = (struct product){.a = call->q, .b = call->k, .c = call->s, .transpose_b = true, .alpha = scale};
    steps->values = (struct product){.a = call->p, .b = call->v, .c = call->o, .alpha = 1};
    steps->softmax = softmax_of(call);
    return CLATTN_SUCCESS;
}

/* One choice and one program serve the products of all batches, which differ in offsets alone. */
static clattn_status plan_product(clattn_context *context, const struct steps *steps, bool run_selftest,
                                  struct product *product) {
    const clattn_gemm_op op = product_op(product, &steps->grouping, steps->grouping.products - 1);
    const bool aligned = check_aligned(&product->a, GEMM_ROW_ALIGN) && check_aligned(&product->b, GEMM_ROW_ALIGN);
    return gemm_step_plan(context, &op, aligned, run_selftest, &product->step);
}

static clattn_status plan_products(clattn_context *context, bool run_selftest, struct steps *steps) {
    RETURN_IF(steps->grouping.products > MOST_PRODUCTS, CLATTN_UNSUPPORTED,
              "q: %" PRId64 " batches of grouped heads are more than %d products", steps->grouping.products,
              MOST_PRODUCTS);
    FORWARD(plan_product(context, steps, run_selftest, &steps->scores));
    return plan_product(context, steps, run_selftest, &steps->values);
}

static clattn_status build_steps(clattn_context *context, struct steps *steps) {
    FORWARD(plan_products(context, true, steps));
    FORWARD(gemm_step_prepare(context, &steps->scores.step));
    FORWARD(softmax_scores_prepare(context, steps->call.facts, &steps->softmax));
    FORWARD(gemm_step_prepare(context, &steps->values.step));
    return unfused_rows_prepare(context, &steps->call, &steps->programs);
}

static int count_commands(const struct steps *steps) {
    const int of_a_batch = gemm_step_commands(&steps->scores.step) + gemm_step_commands(&steps->values.step);
    return (int)steps->grouping.products * of_a_batch + 1 + unfused_rows_commands(&steps->call);
}

static clattn_status enqueue_product(const struct steps *steps, const struct product *product,
                                     struct sequence *sequence) {
    for (int64_t i = 0; i < steps->grouping.products; i++) {
        const clattn_gemm_op op = product_op(product, &steps->grouping, i);
        FORWARD(gemm_step_enqueue(&product->step, &op, sequence));
    }
    return CLATTN_SUCCESS;
}

static clattn_status enqueue_steps(const struct steps *steps, struct sequence *sequence) {
    FORWARD(unfused_rows_before(&steps->call, &steps->programs, sequence));
    FORWARD(enqueue_product(steps, &steps->scores, sequence));
    FORWARD(unfused_rows_between(&steps->call, &steps->programs, sequence));
    FORWARD(softmax_scores_enqueue(steps->call.facts, &steps->softmax, sequence));
    FORWARD(enqueue_product(steps, &steps->values, sequence));
    return unfused_rows_after(&steps->call, &steps->programs, sequence);
}

/* ---- what the front-end calls ------------------------------------------------------------------------------------ */

static const clattn_workspace no_workspace = {0};

clattn_status attention_unfused_workspace(const clattn_attention_op *op, const struct problem *problem,
                                          const struct choice *choice, size_t *bytes) {
    struct unfused_call call;
    FORWARD(unfused_call_make(op, problem, &choice->facts, &no_workspace, &call));
    RETURN_IF((uint64_t)call.areas.total > choice->facts.max_allocation, CLATTN_UNSUPPORTED,
              "the workspace of %" PRId64 " bytes exceeds the largest buffer of the device (%" PRIu64
              " bytes); fused attention stores no scores",
              call.areas.total, choice->facts.max_allocation);
    *bytes = (size_t)call.areas.total;
    return CLATTN_SUCCESS;
}

clattn_status attention_unfused_plan(clattn_context *context, const clattn_attention_op *op,
                                     const struct problem *problem, bool run_selftest, struct choice *choice) {
    struct steps steps;
    size_t bytes = 0;
    FORWARD(attention_unfused_workspace(op, problem, choice, &bytes));
    FORWARD(make_steps(op, problem, choice, &no_workspace, &steps));
    FORWARD(plan_products(context, run_selftest, &steps));
    choice->untested |= steps.scores.step.choice.untested || steps.values.step.choice.untested;
    return CLATTN_SUCCESS;
}

clattn_status attention_unfused_prepare(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice) {
    struct steps steps;
    FORWARD(make_steps(op, problem, choice, &no_workspace, &steps));
    return build_steps(context, &steps);
}

clattn_status attention_unfused_enqueue(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice,
                                        const clattn_launch *launch) {
    struct steps steps;
    struct sequence sequence;
    FORWARD(make_steps(op, problem, choice, &launch->workspace, &steps));
    FORWARD(build_steps(context, &steps));
    sequence_begin(&sequence, context, launch, count_commands(&steps));
    const clattn_status status = enqueue_steps(&steps, &sequence);
    sequence_end(&sequence);
    return status;
}
