/* The matrix product's front-end: checks of the public struct, and the way to the implementation that was chosen. */
#include "gemm.h"
#include "check.h"
#include "operation.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Kernels count rows, columns and terms in 32 bits, with room for one block beyond the last. */
#define MAX_EXTENT (INT64_C(2147483647) - 65536)

void clattn_gemm_init(clattn_gemm_op *op) {
    *op = (clattn_gemm_op){.head = {sizeof *op, CLATTN_OP_GEMM}, .alpha = 1};
}

/* The dims of the matrices that lie in memory. */
static int64_t rows_of(const clattn_tensor *tensor) {
    return tensor->dims[tensor->rank - 2];
}

static int64_t columns_of(const clattn_tensor *tensor) {
    return tensor->dims[tensor->rank - 1];
}

void gemm_batches(const clattn_gemm_op *op, int64_t *outer, int64_t *inner) {
    *outer = op->c.rank > 3 ? op->c.dims[0] : 1;
    *inner = op->c.rank > 2 ? op->c.dims[op->c.rank - 3] : 1;
}

struct gemm_view gemm_view_of(const clattn_tensor *tensor) {
    const int rank = tensor->rank;
    return (struct gemm_view){.offset = tensor->offset,
                              .outer = rank > 3 ? tensor->strides[0] : 0,
                              .inner = rank > 2 ? tensor->strides[rank - 3] : 0,
                              .row = tensor->strides[rank - 2]};
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_one(clattn_context *context, const char *name, const clattn_tensor *tensor,
                               enum check_access access, int rank, unsigned dtypes) {
    FORWARD(check_tensor(context, name, tensor, access));
    RETURN_IF(tensor->rank < 2, CLATTN_INVALID_ARGUMENT, "%s: rank is %d, must be 2..4", name, (int)tensor->rank);
    FORWARD(check_rank(name, tensor, rank));
    FORWARD(check_dtype(name, tensor, dtypes));
    return check_innermost_dense(name, tensor);
}

static clattn_status check_tensors(clattn_context *context, const clattn_gemm_op *op) {
    const unsigned any = 1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16;
    FORWARD(check_one(context, "a", &op->a, CHECK_INPUT, op->a.rank, any));
    const unsigned same = 1u << op->a.dtype;
    FORWARD(check_one(context, "b", &op->b, CHECK_INPUT, op->a.rank, same));
    return check_one(context, "c", &op->c, CHECK_OUTPUT, op->a.rank, same | 1u << CLATTN_F32);
}

static clattn_status check_extent(const char *name, int64_t extent, const char *meaning) {
    RETURN_IF(extent > MAX_EXTENT, CLATTN_UNSUPPORTED, "%s: %" PRId64 " %s are more than %" PRId64, name, extent,
              meaning, MAX_EXTENT);
    return CLATTN_SUCCESS;
}

static clattn_status check_shapes(const clattn_gemm_op *op) {
    const int last = op->a.rank - 1, row = op->a.rank - 2;
    const int64_t m = op->a.dims[op->transpose_a ? last : row], k = op->a.dims[op->transpose_a ? row : last];
    const int64_t n = op->b.dims[op->transpose_b ? row : last];
    for (int i = 0; i < row; i++) {
        FORWARD(check_dim("b", &op->b, i, op->a.dims[i], "a's batch"));
        FORWARD(check_dim("c", &op->c, i, op->a.dims[i], "a's batch"));
    }
    FORWARD(check_dim("b", &op->b, op->transpose_b ? last : row, k, "op(a)'s columns"));
    FORWARD(check_dim("c", &op->c, row, m, "op(a)'s rows"));
    FORWARD(check_dim("c", &op->c, last, n, "op(b)'s columns"));
    FORWARD(check_extent("a", m, "rows of op(a)"));
    FORWARD(check_extent("a", k, "columns of op(a)"));
    return check_extent("b", n, "columns of op(b)");
}

/* BLAS libraries take a matrix only where a row ends before the next begins. */
static bool rows_apart(const clattn_tensor *tensor) {
    const int64_t stride = tensor->strides[tensor->rank - 2];
    return rows_of(tensor) < 2 || (stride >= columns_of(tensor) && stride > 0);
}

/* Of checked tensors, whose sums fit unless they have no element. */
static int64_t last_element(const clattn_tensor *tensor) {
    int64_t last = tensor->offset;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] == 0)
            return 0;
    for (int i = 0; i < tensor->rank; i++)
        last += tensor->dims[i] > 1 ? (tensor->dims[i] - 1) * tensor->strides[i] : 0;
    return last;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void describe_problem(const clattn_gemm_op *op, struct problem *problem) {
    int64_t outer = 0, inner = 0;
    gemm_batches(op, &outer, &inner);
    problem->op = CLATTN_OP_GEMM;
    problem->dtype = op->a.dtype;
    problem->out_dtype = op->c.dtype;
    problem->batch = outer * inner;
    problem->m = rows_of(&op->c);
    problem->n = columns_of(&op->c);
    /* Nothing is read of a and b where it would be multiplied by 0. */
    problem->k = op->alpha == 0 ? 0 : op->transpose_a ? rows_of(&op->a) : columns_of(&op->a);
    problem->transpose_a = op->transpose_a != 0;
    problem->transpose_b = op->transpose_b != 0;
    problem->aligned = check_aligned(&op->a, GEMM_ROW_ALIGN) && check_aligned(&op->b, GEMM_ROW_ALIGN);
    problem->reach = larger(last_element(&op->a), larger(last_element(&op->b), last_element(&op->c)));
    problem->rows_apart = rows_apart(&op->a) && rows_apart(&op->b) && rows_apart(&op->c);
}

static clattn_status check(clattn_context *context, const clattn_op *head, struct problem *problem, bool *empty) {
    const clattn_gemm_op *op = (const clattn_gemm_op *)head;
    int64_t outer = 0, inner = 0, batch = 0;
    FORWARD(check_tensors(context, op));
    FORWARD(check_shapes(op));
    FORWARD(check_disjoint("c", &op->c, "a", &op->a));
    FORWARD(check_disjoint("c", &op->c, "b", &op->b));
    gemm_batches(op, &outer, &inner);
    RETURN_IF(inner > INT32_MAX || __builtin_mul_overflow(outer, inner, &batch), CLATTN_UNSUPPORTED,
              "c: %" PRId64 " times %" PRId64 " matrices are too many", outer, inner);
    describe_problem(op, problem);
    *empty = problem->batch == 0 || problem->m == 0 || problem->n == 0;
    return CLATTN_SUCCESS;
}

/* ---- as a step --------------------------------------------------------------------------------------------------- */

static int64_t tuning_size(const struct problem *problem) {
    return problem->m > problem->n ? problem->m : problem->n;
}

static clattn_status prepare_chosen(clattn_context *context, const struct problem *problem,
                                    const struct choice *choice) {
    /* CLBlast builds at its first call and offers no narrower way; a failure there comes when commands are under way.
     */
    return choice->variant->schedule == SCHEDULE_LIBRARY ? CLATTN_SUCCESS
                                                         : gemm_tiled_prepare(context, problem, choice);
}

static int commands_of(const struct choice *choice) {
    return choice->variant->schedule == SCHEDULE_LIBRARY ? GEMM_CLBLAST_COMMANDS : 1;
}

static clattn_status enqueue_chosen(const clattn_gemm_op *op, const struct problem *problem,
                                    const struct choice *choice, struct sequence *sequence) {
    return choice->variant->schedule == SCHEDULE_LIBRARY ? gemm_clblast_enqueue(op, problem, sequence)
                                                         : gemm_tiled_enqueue(op, problem, choice, sequence);
}

static clattn_status plan_chosen(const struct problem *problem, struct choice *choice) {
    return choice->variant->schedule == SCHEDULE_LIBRARY ? CLATTN_SUCCESS : gemm_tiled_plan(problem, choice);
}

clattn_status gemm_step_plan(clattn_context *context, const clattn_gemm_op *op, bool aligned, bool run_selftest,
                             struct gemm_step *step) {
    memset(&step->problem, 0, sizeof step->problem);
    describe_problem(op, &step->problem);
    step->problem.aligned = aligned;
    FORWARD(choice_make(context, &step->problem, NULL, tuning_size(&step->problem), run_selftest, &step->choice));
    return plan_chosen(&step->problem, &step->choice);
}

clattn_status gemm_step_prepare(clattn_context *context, const struct gemm_step *step) {
    return prepare_chosen(context, &step->problem, &step->choice);
}

int gemm_step_commands(const struct gemm_step *step) {
    return commands_of(&step->choice);
}

clattn_status gemm_step_enqueue(const struct gemm_step *step, const clattn_gemm_op *op, struct sequence *sequence) {
    return enqueue_chosen(op, &step->problem, &step->choice, sequence);
}

/* ---- as an operation --------------------------------------------------------------------------------------------- */

static clattn_status plan(clattn_context *context, const clattn_op *op, const struct problem *problem,
                          bool run_selftest, struct choice *choice) {
    (void)context, (void)op, (void)run_selftest;
    return plan_chosen(problem, choice);
}

static clattn_status workspace(clattn_context *context, const clattn_op *op, const struct problem *problem,
                               const struct choice *choice, size_t *bytes) {
    (void)context, (void)op, (void)problem, (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static clattn_status prepare(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice) {
    (void)op;
    return prepare_chosen(context, problem, choice);
}

static clattn_status enqueue(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice, const clattn_launch *launch) {
    struct sequence sequence;
    sequence_begin(&sequence, context, launch, commands_of(choice));
    const clattn_status status = enqueue_chosen((const clattn_gemm_op *)op, problem, choice, &sequence);
    sequence_end(&sequence);
    return status;
}

static void describe(const struct problem *problem, const struct choice *choice, char *name, size_t size) {
    char tile[32] = "";
    int rows = 0, columns = 0;
    if (choice->variant->schedule != SCHEDULE_LIBRARY) {
        gemm_tiled_blocks(problem, choice, &rows, &columns);
        snprintf(tile, sizeof tile, "_%dx%d", rows, columns);
    }
    snprintf(name, size, "gemm_%s_%c%c__%s%s", tensor_dtype_name(problem->dtype), problem->transpose_a ? 't' : 'n',
             problem->transpose_b ? 't' : 'n', variant_backend_name(choice->variant->backend), tile);
}

const struct operation operation_gemm = {
    .kind = CLATTN_OP_GEMM,
    .minimum_size = sizeof(clattn_gemm_op),
    .check = check,
    .tuning_size = tuning_size,
    .plan = plan,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue,
    .describe = describe,
};

clattn_status clattn_gemm(clattn_context *context, const clattn_gemm_op *op, const clattn_launch *launch) {
    return operation_run(context, op == NULL ? NULL : &op->head, CLATTN_OP_GEMM, launch);
}
