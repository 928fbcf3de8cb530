/* Attention in the standard three steps: scores by a matrix product, their softmax, and a second product with the
 * values. The score matrix lies in the workspace, in fp32; probabilities take its place, or stand beside it where the
 * storage type is narrower. It is the baseline, and the right choice where it is measured to be faster. */
#include "attention.h"
#include "check.h"
#include "context.h"
#include "gemm.h"
#include "softmax.h"
#include "status.h"

#include <inttypes.h>
#include <stdio.h>

#define AREA_ALIGN 256 /* bytes */
#define MOST_PRODUCTS (1 << 20)
#define ROW_ELEMENTS 8 /* rows start at multiples of 16 bytes in every dtype */

enum { BATCH, HEAD, ROW, COLUMN };

/* ---- the workspace ----------------------------------------------------------------------------------------------- */

/* Byte offsets from the workspace's start, and elements between rows. */
struct areas {
    int64_t scores, probabilities, values, met, total;
    int64_t score_row, value_row;
};

static int64_t round_up(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

/* Room for a dense tensor behind *end; false where it exceeds 64 bits. */
static bool add_area(int64_t *end, int64_t heads, int64_t rows, int64_t row, int64_t element, int64_t *offset) {
    int64_t bytes = element;
    *offset = *end;
    return !__builtin_mul_overflow(bytes, heads, &bytes) && !__builtin_mul_overflow(bytes, rows, &bytes) &&
           !__builtin_mul_overflow(bytes, row, &bytes) && !__builtin_add_overflow(bytes, AREA_ALIGN, &bytes) &&
           !__builtin_add_overflow(*end, bytes / AREA_ALIGN * AREA_ALIGN, end);
}

static bool areas_of(const struct problem *problem, struct areas *areas) {
    const int64_t narrow = (int64_t)clattn_dtype_size(problem->dtype);
    const int64_t heads = problem->batch * problem->heads, kv_heads = problem->batch * problem->kv_heads;
    *areas = (struct areas){.score_row = round_up(problem->nk, ROW_ELEMENTS),
                            .value_row = round_up(problem->value_dim, ROW_ELEMENTS)};
    int64_t end = 0;
    if (!add_area(&end, heads, problem->nq, areas->score_row, (int64_t)sizeof(float), &areas->scores))
        return false;
    areas->probabilities = areas->scores;
    if (problem->dtype != CLATTN_F32 &&
        !add_area(&end, heads, problem->nq, areas->score_row, narrow, &areas->probabilities))
        return false;
    if (problem->causal && (!add_area(&end, kv_heads, problem->nk, areas->value_row, narrow, &areas->values) ||
                            !add_area(&end, 1, 1, 1, (int64_t)sizeof(cl_int), &areas->met)))
        return false;
    areas->total = end;
    return true;
}

clattn_status attention_unfused_workspace(const struct problem *problem, const struct choice *choice, size_t *bytes) {
    struct areas areas;
    RETURN_IF(!areas_of(problem, &areas), CLATTN_UNSUPPORTED, "the score matrix exceeds 64-bit sizes");
    RETURN_IF((uint64_t)areas.total > choice->facts.max_allocation, CLATTN_UNSUPPORTED,
              "the workspace of %" PRId64 " bytes exceeds the largest buffer of the device (%" PRIu64
              " bytes); fused attention stores no scores",
              areas.total, choice->facts.max_allocation);
    *bytes = (size_t)areas.total;
    return CLATTN_SUCCESS;
}

/* A dense [batch, heads, rows, columns] tensor in the workspace. */
static clattn_tensor area_tensor(const clattn_workspace *workspace, int64_t bytes, clattn_dtype dtype,
                                 const int64_t *dims, int64_t row) {
    const int64_t element = (int64_t)clattn_dtype_size(dtype);
    return (clattn_tensor){
        .memory = {.kind = CLATTN_MEMORY_BUFFER, .as.buffer = workspace->buffer},
        .offset = ((int64_t)workspace->offset + bytes) / element,
        .dtype = dtype,
        .rank = 4,
        .dims = {dims[BATCH], dims[HEAD], dims[ROW], dims[COLUMN]},
        .strides = {dims[HEAD] * dims[ROW] * row, dims[ROW] * row, row, 1},
    };
}

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

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Everything that can be refused or fail to build is made before the first command: a call that fails there has written
 * nothing. */
struct call {
    const clattn_attention_op *op;
    const struct problem *problem;
    const struct choice *choice;
    struct grouping grouping;
    struct areas areas;
    cl_mem workspace;
    int64_t met; /* index of the flag, an int */
    clattn_tensor finite_v;
    struct product scores, values;
    struct softmax_scores softmax;
    struct program *finite_values, *add_special; /* causal only */
};

static void make_softmax(struct call *call, const clattn_tensor *s, const clattn_tensor *p) {
    const struct problem *problem = call->problem;
    call->softmax = (struct softmax_scores){
        .s = s->memory.as.buffer,
        .p = p->memory.as.buffer,
        .s_offset = s->offset,
        .s_stride = s->strides[ROW],
        .p_offset = p->offset,
        .p_stride = p->strides[ROW],
        .p_dtype = p->dtype,
        .batch = problem->batch,
        .heads = problem->heads,
        .nq = problem->nq,
        .nk = problem->nk,
        .causal = problem->causal,
        .diagonal = attention_diagonal(call->op),
        .lse = problem->writes_lse ? &call->op->lse : NULL,
    };
}

static clattn_status make_call(const clattn_attention_op *op, const struct problem *problem,
                               const struct choice *choice, const clattn_workspace *workspace, struct call *call) {
    *call = (struct call){.op = op,
                          .problem = problem,
                          .choice = choice,
                          .grouping = grouping_of(problem),
                          .workspace = workspace->buffer};
    struct areas *areas = &call->areas;
    RETURN_IF(!areas_of(problem, areas), CLATTN_UNSUPPORTED, "the score matrix exceeds 64-bit sizes");
    const int64_t dims[4] = {problem->batch, problem->heads, problem->nq, problem->nk};
    const clattn_tensor s = area_tensor(workspace, areas->scores, CLATTN_F32, dims, areas->score_row);
    const clattn_tensor p = area_tensor(workspace, areas->probabilities, problem->dtype, dims, areas->score_row);
    call->finite_v = area_tensor(workspace, areas->values, problem->dtype, op->v.dims, areas->value_row);
    call->met = ((int64_t)workspace->offset + areas->met) / (int64_t)sizeof(cl_int);
    call->scores = (struct product){.a = op->q, .b = op->k, .c = s, .transpose_b = true, .alpha = attention_scale(op)};
    call->values = (struct product){.a = p, .b = problem->causal ? call->finite_v : op->v, .c = op->o, .alpha = 1};
    make_softmax(call, &s, &p);
    return CLATTN_SUCCESS;
}

/* ---- special values ---------------------------------------------------------------------------------------------- */

enum { SPECIAL_ITEMS = 64, GROUPS_PER_UNIT = 64 };

static size_t special_items(const struct call *call) {
    return call->choice->facts.max_group < SPECIAL_ITEMS ? call->choice->facts.max_group : SPECIAL_ITEMS;
}

/* Enough to fill the device, not more than there is work for: work-items take elements in turn. */
static size_t special_groups(const struct call *call, int64_t elements) {
    const int64_t items = (int64_t)special_items(call);
    const int64_t most = (int64_t)call->choice->facts.compute_units * GROUPS_PER_UNIT;
    const int64_t groups = (elements + items - 1) / items;
    return (size_t)(groups > most && most > 0 ? most : groups);
}

static clattn_status special_program(clattn_context *context, const struct call *call, const char *kernel,
                                     struct program **program) {
    char options[96];
    snprintf(options, sizeof options, "-DELEMENT=%d -DOUT_ELEMENT=%d -DITEMS=%zu", (int)call->problem->dtype,
             (int)call->problem->out_dtype, special_items(call));
    const struct program_key key = {.file = "attention_special.cl", .kernel = kernel, .options = options};
    return program_get(context, &key, program);
}

static void launch_view(struct launch *launch, const clattn_tensor *tensor) {
    const struct gemm_view view = gemm_view_of(tensor);
    launch_struct(launch, &view, sizeof view);
}

static clattn_status enqueue_finite_values(const struct call *call, struct sequence *sequence) {
    const struct problem *problem = call->problem;
    struct launch launch;
    const size_t items = special_items(call);
    const size_t groups = special_groups(call, problem->batch * problem->kv_heads * problem->nk * problem->value_dim);
    launch_begin(&launch, call->finite_values);
    launch_buffer(&launch, call->op->v.memory.as.buffer);
    launch_buffer(&launch, call->workspace);
    launch_buffer(&launch, call->workspace);
    launch_view(&launch, &call->op->v);
    launch_long(&launch, call->finite_v.offset);
    launch_long(&launch, call->met);
    launch_int(&launch, (int32_t)problem->batch);
    launch_int(&launch, (int32_t)problem->kv_heads);
    launch_int(&launch, (int32_t)problem->nk);
    launch_int(&launch, (int32_t)problem->value_dim);
    launch_int(&launch, (int32_t)call->areas.value_row);
    return launch_enqueue(&launch, sequence, 1, &groups, &items);
}

static clattn_status enqueue_add_special(const struct call *call, struct sequence *sequence) {
    const struct problem *problem = call->problem;
    struct launch launch;
    const size_t items = special_items(call);
    const size_t groups = special_groups(call, problem->batch * problem->heads * problem->nq * problem->value_dim);
    launch_begin(&launch, call->add_special);
    launch_buffer(&launch, call->op->v.memory.as.buffer);
    launch_buffer(&launch, call->op->o.memory.as.buffer);
    launch_buffer(&launch, call->workspace);
    launch_view(&launch, &call->op->v);
    launch_view(&launch, &call->op->o);
    launch_long(&launch, call->met);
    launch_long(&launch, call->softmax.diagonal);
    launch_int(&launch, (int32_t)problem->batch);
    launch_int(&launch, (int32_t)problem->heads);
    launch_int(&launch, (int32_t)call->grouping.heads_per_kv);
    launch_int(&launch, (int32_t)problem->nq);
    launch_int(&launch, (int32_t)problem->nk);
    launch_int(&launch, (int32_t)problem->value_dim);
    return launch_enqueue(&launch, sequence, 1, &groups, &items);
}

static clattn_status enqueue_clear_met(const struct call *call, struct sequence *sequence) {
    const cl_int zero = 0;
    cl_uint count;
    const cl_event *list;
    cl_event *event;
    sequence_next(sequence, &count, &list, &event);
    const cl_int code = clEnqueueFillBuffer(sequence->launch->queue, call->workspace, &zero, sizeof zero,
                                            (size_t)call->met * sizeof zero, sizeof zero, count, list, event);
    return sequence_done(sequence, code, "clEnqueueFillBuffer");
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* One choice and one program serve the products of all batches, which differ in offsets alone. */
static clattn_status plan_product(clattn_context *context, const struct call *call, bool run_selftest,
                                  struct product *product) {
    const clattn_gemm_op op = product_op(product, &call->grouping, 0);
    const bool aligned = check_aligned(&product->a, GEMM_ROW_ALIGN) && check_aligned(&product->b, GEMM_ROW_ALIGN);
    return gemm_step_plan(context, &op, aligned, run_selftest, &product->step);
}

static clattn_status plan_products(clattn_context *context, bool run_selftest, struct call *call) {
    RETURN_IF(call->grouping.products > MOST_PRODUCTS, CLATTN_UNSUPPORTED,
              "q: %" PRId64 " batches of grouped heads are more than %d products", call->grouping.products,
              MOST_PRODUCTS);
    FORWARD(plan_product(context, call, run_selftest, &call->scores));
    return plan_product(context, call, run_selftest, &call->values);
}

clattn_status attention_unfused_plan(clattn_context *context, const clattn_attention_op *op,
                                     const struct problem *problem, bool run_selftest, const struct choice *choice) {
    const clattn_workspace none = {0};
    struct call call;
    size_t bytes = 0;
    FORWARD(attention_unfused_workspace(problem, choice, &bytes));
    FORWARD(make_call(op, problem, choice, &none, &call));
    return plan_products(context, run_selftest, &call);
}

static clattn_status make_steps(clattn_context *context, struct call *call) {
    FORWARD(plan_products(context, true, call));
    FORWARD(gemm_step_prepare(context, &call->scores.step));
    FORWARD(softmax_scores_prepare(context, &call->choice->facts, &call->softmax));
    FORWARD(gemm_step_prepare(context, &call->values.step));
    if (!call->problem->causal)
        return CLATTN_SUCCESS;
    FORWARD(special_program(context, call, "attention_finite_values", &call->finite_values));
    return special_program(context, call, "attention_add_special", &call->add_special);
}

static int count_commands(const struct call *call) {
    enum { SOFTMAX = 1, SPECIAL = 3 };
    const int of_a_batch = gemm_step_commands(&call->scores.step) + gemm_step_commands(&call->values.step);
    return (int)call->grouping.products * of_a_batch + (call->problem->causal ? SOFTMAX + SPECIAL : SOFTMAX);
}

static clattn_status enqueue_product(const struct call *call, const struct product *product,
                                     struct sequence *sequence) {
    for (int64_t i = 0; i < call->grouping.products; i++) {
        const clattn_gemm_op op = product_op(product, &call->grouping, i);
        FORWARD(gemm_step_enqueue(&product->step, &op, sequence));
    }
    return CLATTN_SUCCESS;
}

static clattn_status enqueue_steps(const struct call *call, struct sequence *sequence) {
    const bool causal = call->problem->causal;
    if (causal) {
        FORWARD(enqueue_clear_met(call, sequence));
        FORWARD(enqueue_finite_values(call, sequence));
    }
    FORWARD(enqueue_product(call, &call->scores, sequence));
    FORWARD(softmax_scores_enqueue(&call->choice->facts, &call->softmax, sequence));
    FORWARD(enqueue_product(call, &call->values, sequence));
    return causal ? enqueue_add_special(call, sequence) : CLATTN_SUCCESS;
}

clattn_status attention_unfused_enqueue(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice,
                                        const clattn_launch *launch) {
    struct call call;
    struct sequence sequence;
    FORWARD(make_call(op, problem, choice, &launch->workspace, &call));
    FORWARD(make_steps(context, &call));
    sequence_begin(&sequence, context, launch, count_commands(&call));
    const clattn_status status = enqueue_steps(&call, &sequence);
    sequence_end(&sequence);
    return status;
}

clattn_status attention_unfused_prepare(clattn_context *context, const clattn_attention_op *op,
                                        const struct problem *problem, const struct choice *choice) {
    const clattn_workspace none = {0};
    struct call call;
    FORWARD(make_call(op, problem, choice, &none, &call));
    return make_steps(context, &call);
}
