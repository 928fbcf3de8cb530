/* Calls of attention that must be refused for the sake of a modifier: what is spoilt, and what the text must say. */
#include "bad_input.h"

#include <math.h>

#define DTYPE(name, base, member, wrong, says) \
    ROW(name " in " says, base, INVALID, name, says, INT(member.dtype, wrong))
#define DIM(name, base, member, dim, size, says) \
    ROW(name " of another size", base, INVALID, name, says, INT(member.dims[dim], size), INT(member.strides[dim], 0))

const struct bad_call bad_attention_calls[] = {
    TENSOR(MODIFIED, "mask", modified.mask),
    TENSOR(MODIFIED, "bias", modified.bias),
    TENSOR(MODIFIED, "alibi", modified.alibi),
    TENSOR(MODIFIED, "sinks", modified.sinks),
    TENSOR(MODIFIED, "q_lengths", modified.q_lengths),
    TENSOR(MODIFIED, "k_lengths", modified.k_lengths),
    TENSOR(RAGGED, "q_offsets", ragged.q_offsets),
    TENSOR(RAGGED, "k_offsets", ragged.k_offsets),
    TENSOR(PAGED, "page_table", paged.page_table),

    ROW("window_left -2", ATTENTION, INVALID, "window_left", "-2", INT(attention.window_left, -2)),
    ROW("window_right -5", ATTENTION, INVALID, "window_right", "-5", INT(attention.window_right, -5)),
    ROW("window_left far below 0", MODIFIED, INVALID, "window_left", NULL, INT(modified.window_left, INT64_MIN)),
    ROW("softcap -1", ATTENTION, INVALID, "softcap", "-1", FLOAT(attention.softcap, -1)),
    ROW("softcap too small to divide by", ATTENTION, INVALID, "softcap", "1e-39", FLOAT(attention.softcap, 1e-39F)),
    ROW("softcap NaN", ATTENTION, INVALID, "softcap", "nan", FLOAT(attention.softcap, NAN)),
    ROW("softcap inf", MODIFIED, INVALID, "softcap", "inf", FLOAT(modified.softcap, INFINITY)),
    ROW("max_q -1", ATTENTION, INVALID, "max_q", "-1", INT(attention.max_q, -1)),
    ROW("max_k -3", RAGGED, INVALID, "max_k", "-3", INT(ragged.max_k, -3)),

    ROW("mask in f32", MODIFIED, INVALID, "mask", "f32", INT(modified.mask.dtype, CLATTN_F32),
        INT(modified.mask.dims[0], 0)),
    ROW("mask of rank 3", MODIFIED, INVALID, "mask", "3", INT(modified.mask.rank, 3)),
    DIM("mask", MODIFIED, modified.mask, 0, 3, "3"),
    DIM("mask", MODIFIED, modified.mask, 1, 2, "2"),
    DIM("mask", MODIFIED, modified.mask, 2, 4, "4"),
    DIM("mask", MODIFIED, modified.mask, 3, 8, "8"),
    DIM("mask", MODIFIED, modified.mask, 3, 0, "0"),
    ROW("a mask with fewer rows than max_q", RAGGED, INVALID, "mask", "4", INT(ragged.mask.dims[2], 4)),
    ROW("a mask with fewer columns than max_k", RAGGED, INVALID, "mask", "6", INT(ragged.mask.dims[3], 6)),
    DTYPE("bias", MODIFIED, modified.bias, CLATTN_F16, "f16"),
    DTYPE("bias", MODIFIED, modified.bias, CLATTN_BF16, "bf16"),
    DTYPE("bias", MODIFIED, modified.bias, CLATTN_I32, "i32"),
    ROW("bias of rank 2", MODIFIED, INVALID, "bias", "2", INT(modified.bias.rank, 2)),
    DIM("bias", MODIFIED, modified.bias, 0, 3, "3"),
    DIM("bias", MODIFIED, modified.bias, 1, 3, "3"),
    DIM("bias", MODIFIED, modified.bias, 2, 6, "6"),
    DIM("bias", MODIFIED, modified.bias, 3, 2, "2"),

    DTYPE("alibi", MODIFIED, modified.alibi, CLATTN_F16, "f16"),
    ROW("alibi and a diagonal beyond 2^40", MODIFIED, INVALID, "diagonal", "1099511627777",
        INT(modified.has_diagonal, 1), INT(modified.diagonal, (INT64_C(1) << 40) + 1)),
    ROW("alibi of rank 3", MODIFIED, INVALID, "alibi", "3", INT(modified.alibi.rank, 3)),
    ROW("alibi of other heads than q", MODIFIED, INVALID, "alibi", "3", INT(modified.alibi.dims[1], 3)),
    DIM("alibi", MODIFIED, modified.alibi, 0, 3, "3"),
    ROW("alibi's innermost stride", MODIFIED, INVALID, "alibi", "2", INT(modified.alibi.strides[1], 2)),
    DTYPE("sinks", MODIFIED, modified.sinks, CLATTN_BF16, "bf16"),
    ROW("sinks of rank 2", MODIFIED, INVALID, "sinks", "2", INT(modified.sinks.rank, 2)),
    ROW("sinks of other heads than q", MODIFIED, INVALID, "sinks", "2", INT(modified.sinks.dims[0], 2)),
    ROW("sinks' stride", MODIFIED, INVALID, "sinks", "3", INT(modified.sinks.strides[0], 3)),

    DTYPE("q_lengths", MODIFIED, modified.q_lengths, CLATTN_F32, "f32"),
    ROW("q_lengths of rank 2", MODIFIED, INVALID, "q_lengths", "2", INT(modified.q_lengths.rank, 2)),
    ROW("q_lengths of another batch", MODIFIED, INVALID, "q_lengths", "1", INT(modified.q_lengths.dims[0], 1)),
    ROW("q_lengths' stride", MODIFIED, INVALID, "q_lengths", "2", INT(modified.q_lengths.strides[0], 2)),
    DTYPE("k_lengths", MODIFIED, modified.k_lengths, CLATTN_U8, "u8"),
    ROW("k_lengths of rank 3", MODIFIED, INVALID, "k_lengths", "3", INT(modified.k_lengths.rank, 3)),
    ROW("k_lengths of another batch", MODIFIED, INVALID, "k_lengths", "1", INT(modified.k_lengths.dims[0], 1)),

    DTYPE("q_offsets", RAGGED, ragged.q_offsets, CLATTN_F32, "f32"),
    ROW("q_offsets of rank 2", RAGGED, INVALID, "q_offsets", "2", INT(ragged.q_offsets.rank, 2)),
    ROW("q_offsets of nothing", RAGGED, INVALID, "q_offsets", "0", INT(ragged.q_offsets.dims[0], 0)),
    ROW("q_offsets over two batches", RAGGED, INVALID, "q", "2", INT(ragged.q.dims[0], 2), INT(ragged.o.dims[0], 2)),
    DTYPE("k_offsets", RAGGED, ragged.k_offsets, CLATTN_F16, "f16"),
    ROW("k_offsets of rank 2", RAGGED, INVALID, "k_offsets", "2", INT(ragged.k_offsets.rank, 2)),
    ROW("k_offsets of nothing", RAGGED, INVALID, "k_offsets", "0", INT(ragged.k_offsets.dims[0], 0)),
    ROW("k_offsets over two batches", RAGGED, INVALID, "k", "2", INT(ragged.k.dims[0], 2), INT(ragged.v.dims[0], 2)),
    ROW("offsets of unlike batches", RAGGED, INVALID, "k_offsets", "1", INT(ragged.k_offsets.dims[0], 2)),
    ROW("k_offsets against q's batch", RAGGED, INVALID, "k_offsets", "2", ABSENT(ragged.q_offsets)),

    DTYPE("page_table", PAGED, paged.page_table, CLATTN_F32, "f32"),
    ROW("page_table of rank 1", PAGED, INVALID, "page_table", "1", INT(paged.page_table.rank, 1)),
    ROW("page_table of another batch", PAGED, INVALID, "page_table", "1", INT(paged.page_table.dims[0], 1)),
    ROW("page_table's innermost stride", PAGED, INVALID, "page_table", "0", INT(paged.page_table.strides[1], 0)),
    ROW("page_table with k_offsets", PAGED, INVALID, "k_offsets", NULL,
        INT(paged.k_offsets.memory.kind, CLATTN_MEMORY_BUFFER)),
    ROW("pages of no rows", PAGED, INVALID, "k", "0", INT(paged.k.dims[2], 0), INT(paged.v.dims[2], 0)),
    ROW("pages of unlike sizes", PAGED, INVALID, "v", "6", INT(paged.v.dims[2], 6)),
    ROW("unlike numbers of pages", PAGED, INVALID, "v", "1", INT(paged.v.dims[0], 1)),

    ROW("lse in the sinks' buffer", MODIFIED, INVALID, "sinks", NULL,
        HANDLE(modified.lse.memory.as.buffer, BUFFER_OF_SINKS)),
};

const size_t bad_attention_call_count = sizeof bad_attention_calls / sizeof bad_attention_calls[0];
