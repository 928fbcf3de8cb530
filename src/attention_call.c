/* The arguments of attention kernels. The struct goes to the kernel as it is, so that a call sets few arguments. */
#include "attention_call.h"
#include "attention.h"
#include "quantization.h"

#include <stdio.h>

enum { BATCH, HEAD, ROW, COLUMN };

/* Farther than any two positions are apart, small enough for sums with a diagonal. */
#define FAR (INT64_C(1) << 41)

/* As stored_view_t of cl/stored.clh. */
struct stored_view {
    struct attention_view scales, zeros;
    int64_t scales_column, zeros_column, code_stride;
};

struct call {
    struct attention_view q, k, v, o, lse, mask, bias, mask_blocks;
    int64_t mask_column, bias_column, mask_blocks_column;
    int64_t alibi, alibi_batch, sinks;
    int64_t q_lengths, k_lengths, q_offsets, k_offsets;
    int64_t page_table, page_table_row;
    int64_t low, high, diagonal;
    int32_t own_diagonal, batches, heads, heads_per_kv, q_rows, k_rows, max_q, max_k, page_size, pages;
    float scale, softcap;
};

int64_t attention_stride(const clattn_tensor *tensor, int dim) {
    return tensor->dims[dim] == 1 ? 0 : tensor->strides[dim];
}

struct attention_view attention_view_of(const clattn_tensor *tensor) {
    return (struct attention_view){tensor->offset, attention_stride(tensor, BATCH), attention_stride(tensor, HEAD),
                                   attention_stride(tensor, ROW)};
}

/* Of codes, in bytes. */
static struct attention_view rows_of(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    const clattn_tensor extent = quantization_extent(tensor, quantization);
    return attention_view_of(&extent);
}

static struct stored_view stored_view_of(const clattn_tensor *tensor, const clattn_quantization *quantization) {
    const clattn_tensor *scales = &quantization->scales, *zeros = &quantization->zeros;
    struct stored_view view = {.code_stride = quantization_code_stride(tensor, quantization)};
    if (scales->rank == 1) { /* of heads */
        view.scales = (struct attention_view){.offset = scales->offset, .inner = attention_stride(scales, 0)};
        return view;
    }
    view.scales = attention_view_of(scales);
    view.scales_column = attention_stride(scales, COLUMN);
    if (zeros->memory.kind != CLATTN_MEMORY_NONE) {
        view.zeros = attention_view_of(zeros);
        view.zeros_column = attention_stride(zeros, COLUMN);
    }
    return view;
}

static int stored_options(const struct stored *stored, char name, char *options, size_t size) {
    if (stored->dtype == 0)
        return 0;
    return snprintf(options, size, " -D%c_STORED=%d -D%c_BLOCK=%d -D%c_NIBBLES=%d -D%c_ZEROS=%d -D%c_ALIGNMENT=%d",
                    name, (int)stored->dtype, name, (int)stored->block, name, (int)stored->nibbles, name,
                    (int)stored->zeros, name, (int)stored->alignment);
}

void attention_call_options(const struct problem *problem, char *options, size_t size) {
    static const struct {
        const char *name;
        unsigned modifier;
    } flags[] = {{"BAND", MODIFIER_BAND},           {"MASK", MODIFIER_MASK},   {"ALIBI", MODIFIER_ALIBI},
                 {"SEQUENCES", MODIFIER_SEQUENCES}, {"PAGED", MODIFIER_PAGED}, {"SOFTCAP", MODIFIER_SOFTCAP},
                 {"SINKS", MODIFIER_SINKS}};
    const bool bias = (problem->modifiers & MODIFIER_BIAS) != 0;
    int used = snprintf(options, size, "-DBIAS=%d", bias ? (int)problem->bias_dtype : 0);
    for (size_t i = 0; i < sizeof flags / sizeof *flags && used >= 0 && (size_t)used < size; i++)
        used += snprintf(options + used, size - (size_t)used, " -D%s=%d", flags[i].name,
                         (problem->modifiers & flags[i].modifier) != 0);
    if (used >= 0 && (size_t)used < size)
        used += stored_options(&problem->k_stored, 'K', options + used, size - (size_t)used);
    if (used >= 0 && (size_t)used < size)
        stored_options(&problem->v_stored, 'V', options + used, size - (size_t)used);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Where the band of visible keys lies, from off on. */
static void set_band(struct call *call, const clattn_attention_op *op) {
    call->low = op->window_left < 0 ? -FAR : -least(op->window_left, FAR);
    call->high = op->window_right < 0 ? FAR : least(op->window_right, FAR);
    if (op->causal != CLATTN_CAUSAL_NONE)
        call->high = least(call->high, 0);
    call->own_diagonal = op->has_diagonal || op->causal == CLATTN_CAUSAL_TOP_LEFT;
    call->diagonal = call->own_diagonal ? attention_diagonal(op) : 0;
}

static void set_mask_blocks(struct call *call, const clattn_tensor *mask, const struct attention_mask_blocks *blocks) {
    const int64_t down = mask->dims[ROW] == 1 ? 1 : (mask->dims[ROW] + blocks->queries - 1) / blocks->queries;
    const int64_t across = (mask->dims[COLUMN] + blocks->keys - 1) / blocks->keys;
    call->mask_blocks = (struct attention_view){
        .offset = blocks->offset,
        .outer = mask->dims[BATCH] == 1 ? 0 : mask->dims[HEAD] * down * across,
        .inner = mask->dims[HEAD] == 1 ? 0 : down * across,
        .row = mask->dims[ROW] == 1 ? 0 : across,
    };
    call->mask_blocks_column = mask->dims[COLUMN] != 1;
}

static void set_vectors(struct call *call, const clattn_attention_op *op) {
    call->alibi = op->alibi.offset;
    call->alibi_batch = op->alibi.rank == 2 ? attention_stride(&op->alibi, 0) : 0;
    call->sinks = op->sinks.offset;
    call->q_lengths = op->q_lengths.offset;
    call->k_lengths = op->k_lengths.offset;
    call->q_offsets = op->q_offsets.offset;
    call->k_offsets = op->k_offsets.offset;
    call->page_table = op->page_table.offset;
    call->page_table_row = op->page_table.strides[0];
}

static struct call call_of(const clattn_attention_op *op, const struct problem *problem,
                           const struct attention_mask_blocks *blocks) {
    struct call call = {
        .q = attention_view_of(&op->q),
        .k = rows_of(&op->k, &op->k_quantization),
        .v = rows_of(&op->v, &op->v_quantization),
        .o = attention_view_of(&op->o),
        .lse = attention_view_of(&op->lse),
        .batches = (int32_t)problem->batch,
        .heads = (int32_t)problem->heads,
        .heads_per_kv = (int32_t)(problem->kv_heads > 0 ? problem->heads / problem->kv_heads : 0),
        .q_rows = (int32_t)problem->q_rows,
        .k_rows = (int32_t)op->k.dims[ROW],
        .max_q = (int32_t)problem->nq,
        .max_k = (int32_t)problem->nk,
        .page_size = (int32_t)op->k.dims[ROW],
        .pages = (int32_t)least(op->k.dims[BATCH], INT32_MAX),
        .scale = attention_scale(op),
        .softcap = op->softcap,
    };
    set_band(&call, op);
    set_vectors(&call, op);
    if ((problem->modifiers & MODIFIER_MASK) != 0) {
        call.mask = attention_view_of(&op->mask);
        call.mask_column = attention_stride(&op->mask, COLUMN);
    }
    if (blocks != NULL)
        set_mask_blocks(&call, &op->mask, blocks);
    if ((problem->modifiers & MODIFIER_BIAS) != 0) {
        call.bias = attention_view_of(&op->bias);
        call.bias_column = attention_stride(&op->bias, COLUMN);
    }
    return call;
}

static void set_tensor(struct launch *launch, const clattn_tensor *tensor) {
    launch_buffer(launch, tensor->memory.kind == CLATTN_MEMORY_BUFFER ? tensor->memory.as.buffer : NULL);
}

static void set_stored(struct launch *launch, const struct stored *stored, const clattn_tensor *tensor,
                       const clattn_quantization *quantization) {
    if (stored->dtype == 0)
        return;
    const struct stored_view view = stored_view_of(tensor, quantization);
    set_tensor(launch, &quantization->scales);
    set_tensor(launch, &quantization->zeros);
    launch_struct(launch, &view, sizeof view);
}

void attention_call_arguments(struct launch *launch, const clattn_attention_op *op, const struct problem *problem,
                              const struct attention_mask_blocks *blocks) {
    const struct {
        unsigned modifier; /* 0: always */
        const clattn_tensor *tensor;
    } arguments[] = {{0, &op->q},
                     {0, &op->k},
                     {0, &op->v},
                     {0, &op->o},
                     {0, &op->lse},
                     {MODIFIER_MASK, &op->mask},
                     {MODIFIER_MASK, NULL},
                     {MODIFIER_BIAS, &op->bias},
                     {MODIFIER_ALIBI, &op->alibi},
                     {MODIFIER_SINKS, &op->sinks},
                     {MODIFIER_SEQUENCES, &op->q_lengths},
                     {MODIFIER_SEQUENCES, &op->k_lengths},
                     {MODIFIER_SEQUENCES, &op->q_offsets},
                     {MODIFIER_SEQUENCES, &op->k_offsets},
                     {MODIFIER_PAGED, &op->page_table}};
    const struct call call = call_of(op, problem, blocks);
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        if (arguments[i].modifier != 0 && (problem->modifiers & arguments[i].modifier) == 0)
            continue;
        if (arguments[i].tensor == NULL)
            launch_buffer(launch, blocks == NULL ? NULL : blocks->buffer);
        else
            set_tensor(launch, arguments[i].tensor);
    }
    set_stored(launch, &problem->k_stored, &op->k, &op->k_quantization);
    set_stored(launch, &problem->v_stored, &op->v, &op->v_quantization);
    launch_struct(launch, &call, sizeof call);
}

int64_t attention_call_blocks(const clattn_attention_op *op, const struct problem *problem, int queries,
                              int64_t *batches) {
    const bool packed = op->q_offsets.memory.kind != CLATTN_MEMORY_NONE;
    *batches = packed ? 1 : problem->batch;
    return packed ? problem->q_rows / queries + problem->batch : (problem->q_rows + queries - 1) / queries;
}
