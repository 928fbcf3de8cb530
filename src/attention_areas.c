/* Unfused attention's workspace: which tensors lie there, and where. The score matrix is fp32; probabilities take its
 * place, or stand beside it where the storage type is narrower. Inputs and results have an area only where the caller's
 * tensors cannot serve. */
#include "attention.h"
#include "attention_modifiers.h"
#include "attention_unfused.h"
#include "status.h"
#include "tensor.h"

#define AREA_ALIGN 256 /* bytes */
#define ROW_ELEMENTS 8 /* rows start at multiples of 16 bytes in every dtype */

enum { ROW = 2 };

static struct unfused_needs needs_of(const clattn_attention_op *op, const struct problem *problem) {
    const unsigned hiding = MODIFIER_BAND | MODIFIER_MASK | MODIFIER_BIAS | MODIFIER_SEQUENCES | MODIFIER_PAGED;
    /* The products do not read what they would multiply by 0, but NaN there must come out. */
    const bool zero_scale = attention_scale(op) == 0;
    return (struct unfused_needs){
        .packs_q = tensor_is_present(&op->q_offsets),
        .packs_k =
            tensor_is_present(&op->k_offsets) || tensor_is_present(&op->page_table) || problem->k_stored.dtype != 0,
        .finite_v = (problem->modifiers & hiding) != 0 || problem->v_stored.dtype != 0,
        .scores = (problem->modifiers & ~(unsigned)MODIFIER_BAND) != 0 || problem->windowed || zero_scale,
        .unpacks = tensor_is_present(&op->q_offsets) || problem->nq != problem->q_rows,
        .sinks = (problem->modifiers & MODIFIER_SINKS) != 0,
    };
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

struct extent {
    int64_t heads, rows, columns; /* heads: of all batches */
    int64_t row;                  /* elements between rows */
    clattn_dtype dtype;
};

struct extents {
    struct extent s, p, q, k, v, o, lse, met;
};

static int64_t round_up(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

static struct extent matrices(int64_t heads, int64_t rows, int64_t columns, clattn_dtype dtype) {
    return (struct extent){heads, rows, columns, round_up(columns, ROW_ELEMENTS), dtype};
}

static struct extents extents_of(const struct problem *problem, const struct unfused_needs *needs) {
    const int64_t heads = problem->batch * problem->heads, kv_heads = problem->batch * problem->kv_heads;
    const int64_t nq = problem->nq, nk = problem->nk;
    struct extents extents = {
        .s = matrices(heads, nq, nk, CLATTN_F32),
        .p = matrices(heads, nq, nk, problem->dtype),
        .q = matrices(heads, nq, problem->head_dim, problem->dtype),
        .k = matrices(kv_heads, nk, problem->head_dim, problem->dtype),
        .v = matrices(kv_heads, nk, problem->value_dim, problem->dtype),
        .o = matrices(heads, nq, problem->value_dim, problem->out_dtype),
        .lse = {heads, nq, 1, 1, CLATTN_F32},
        .met = {1, 1, 1, 1, CLATTN_I32},
    };
    if (needs->sinks)
        extents.s.row = extents.p.row = round_up(nk + 1, ROW_ELEMENTS);
    return extents;
}

/* Room for a tensor behind *end; false where it exceeds 64 bits. */
static bool add_area(int64_t *end, const struct extent *extent, int64_t *offset) {
    int64_t bytes = (int64_t)clattn_dtype_size(extent->dtype);
    *offset = *end;
    return !__builtin_mul_overflow(bytes, extent->heads, &bytes) &&
           !__builtin_mul_overflow(bytes, extent->rows, &bytes) &&
           !__builtin_mul_overflow(bytes, extent->row, &bytes) &&
           !__builtin_add_overflow(bytes, AREA_ALIGN - 1, &bytes) &&
           !__builtin_add_overflow(*end, bytes / AREA_ALIGN * AREA_ALIGN, end);
}

static bool areas_of(const struct problem *problem, const struct unfused_needs *needs, struct unfused_areas *areas) {
    const struct extents extents = extents_of(problem, needs);
    const struct {
        bool needed;
        const struct extent *extent;
        int64_t *offset;
    } wanted[] = {
        {true, &extents.s, &areas->scores},       {problem->dtype != CLATTN_F32, &extents.p, &areas->probabilities},
        {needs->packs_q, &extents.q, &areas->q},  {needs->packs_k, &extents.k, &areas->k},
        {needs->finite_v, &extents.v, &areas->v}, {needs->finite_v, &extents.met, &areas->met},
        {needs->unpacks, &extents.o, &areas->o},  {needs->unpacks && problem->writes_lse, &extents.lse, &areas->lse},
    };
    int64_t end = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (wanted[i].needed && !add_area(&end, wanted[i].extent, wanted[i].offset))
            return false;
    areas->total = end;
    return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static clattn_tensor tensor_in(const struct unfused_call *call, int64_t area, const struct extent *extent) {
    const int64_t batch = call->problem->batch, heads = extent->heads / batch;
    return (clattn_tensor){
        .memory = {.kind = CLATTN_MEMORY_BUFFER, .as.buffer = call->workspace.buffer},
        .offset = ((int64_t)call->workspace.offset + area) / (int64_t)clattn_dtype_size(extent->dtype),
        .dtype = extent->dtype,
        .rank = 4,
        .dims = {batch, heads, extent->rows, extent->columns},
        .strides = {heads * extent->rows * extent->row, extent->rows * extent->row, extent->row, 1},
    };
}

/* The caller's tensor, with no more rows than a sequence has. */
static clattn_tensor tensor_of(const clattn_tensor *tensor, int64_t rows) {
    clattn_tensor cut = *tensor;
    cut.dims[ROW] = rows;
    return cut;
}

static void set_tensors(struct unfused_call *call) {
    const struct problem *problem = call->problem;
    const struct unfused_needs *needs = &call->needs;
    const struct unfused_areas *areas = &call->areas;
    const struct extents extents = extents_of(problem, needs);
    const clattn_attention_op *op = call->op;
    call->s = tensor_in(call, areas->scores, &extents.s);
    call->p = problem->dtype == CLATTN_F32 ? call->s : tensor_in(call, areas->probabilities, &extents.p);
    call->q = needs->packs_q ? tensor_in(call, areas->q, &extents.q) : tensor_of(&op->q, problem->nq);
    call->k = needs->packs_k ? tensor_in(call, areas->k, &extents.k) : tensor_of(&op->k, problem->nk);
    call->v = needs->finite_v ? tensor_in(call, areas->v, &extents.v) : tensor_of(&op->v, problem->nk);
    call->o = needs->unpacks ? tensor_in(call, areas->o, &extents.o) : op->o;
    call->lse = needs->unpacks ? tensor_in(call, areas->lse, &extents.lse) : op->lse;
}

clattn_status unfused_call_make(const clattn_attention_op *op, const struct problem *problem,
                                const struct device_facts *facts, const clattn_workspace *workspace,
                                struct unfused_call *call) {
    *call = (struct unfused_call){
        .op = op, .problem = problem, .facts = facts, .workspace = *workspace, .needs = needs_of(op, problem)};
    RETURN_IF(!areas_of(problem, &call->needs, &call->areas), CLATTN_UNSUPPORTED,
              "the score matrix exceeds 64-bit sizes");
    set_tensors(call);
    return CLATTN_SUCCESS;
}
