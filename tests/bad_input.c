/* Calls that must be refused: what is spoilt, and what the text must say. */
#include "bad_input.h"

#include <math.h>

#define AT(member) offsetof(struct call_set, member), sizeof(((struct call_set *)0)->member)
#define INT(member, value) \
    { .kind = PATCH_INT, AT(member), .integer = (value) }
#define FLOAT(member, value) \
    { .kind = PATCH_FLOAT, AT(member), .real = (double)(value) }
#define TEXT(member, value) \
    { .kind = PATCH_POINTER, AT(member), .pointer = (value) }
#define HANDLE(member, value) \
    { .kind = PATCH_POINTER, AT(member), .special = (value) }
#define ABSENT(member) \
    { .kind = PATCH_ABSENT, AT(member) }
#define NOTHING \
    { .kind = PATCH_NONE }
#define INVALID CLATTN_INVALID_ARGUMENT

/* A patch holds commas: rows are written with the patches last. */
#define ROW(what, base, status, argument, value, ...) \
    { what, base, {__VA_ARGS__}, status, argument, value, false }
#define LAUNCH(what, base, status, argument, value, ...) \
    { what, base, {__VA_ARGS__}, status, argument, value, true }

/* What any tensor can have wrong with it; the op's own rules follow below. */
#define TENSOR(base, name, member)                                                                                   \
    ROW(name " of no dtype", base, INVALID, name, "0", INT(member.dtype, 0)),                                        \
        ROW(name " of unknown dtype", base, INVALID, name, "77", INT(member.dtype, 77)),                             \
        ROW(name " of unknown memory kind", base, INVALID, name, "3", INT(member.memory.kind, 3)),                   \
        ROW(name " with rank 0", base, INVALID, name, "0", INT(member.rank, 0)),                                     \
        ROW(name " with rank 5", base, INVALID, name, "5", INT(member.rank, 5)),                                     \
        ROW(name " with a negative dim", base, INVALID, name, "-3", INT(member.dims[0], -3)),                        \
        ROW(name " with a negative stride", base, INVALID, name, "-8", INT(member.strides[0], -8)),                  \
        ROW(name " at a negative offset", base, INVALID, name, "-1", INT(member.offset, -1)),                        \
        ROW(name " beyond its buffer", base, INVALID, name, "100000", INT(member.offset, 100000)),                   \
        ROW(name " beyond 64 bits", base, INVALID, name, NULL, INT(member.offset, INT64_MAX - 1)),                   \
        ROW(name " with a stride beyond 64 bits", base, INVALID, name, NULL, INT(member.strides[0], INT64_MAX / 2)), \
        ROW(name " in a NULL buffer", base, INVALID, name, "NULL", TEXT(member.memory.as.buffer, NULL)),             \
        ROW(name " of another context", base, INVALID, name, NULL, HANDLE(member.memory.as.buffer, FOREIGN_BUFFER))

const struct bad_call bad_calls[] = {
    TENSOR(ATTENTION, "q", attention.q),
    TENSOR(ATTENTION, "v", attention.v),
    TENSOR(ATTENTION, "o", attention.o),
    TENSOR(ATTENTION, "lse", attention.lse),
    TENSOR(MERGE, "o_in[1]", o_in[1]),
    TENSOR(SOFTMAX, "x", softmax.x),
    TENSOR(SOFTMAX, "y", softmax.y),
    TENSOR(SOFTMAX_MERGE, "l_in[1]", l_in[1]),
    TENSOR(GEMM, "b", gemm.b),
    TENSOR(GEMM, "c", gemm.c),

    ROW("q is absent", ATTENTION, INVALID, "q", NULL, ABSENT(attention.q)),
    ROW("k is absent", ATTENTION, INVALID, "k", NULL, ABSENT(attention.k)),
    ROW("v is absent", ATTENTION, INVALID, "v", NULL, ABSENT(attention.v)),
    ROW("o is absent", ATTENTION, INVALID, "o", NULL, ABSENT(attention.o)),
    ROW("q of rank 3", ATTENTION, INVALID, "q", "3", INT(attention.q.rank, 3)),
    ROW("lse of rank 2", ATTENTION, INVALID, "lse", "2", INT(attention.lse.rank, 2)),
    ROW("k of another dtype", ATTENTION, INVALID, "k", "f16", INT(attention.k.dtype, CLATTN_F16)),
    ROW("v of another dtype", ATTENTION, INVALID, "v", "bf16", INT(attention.v.dtype, CLATTN_BF16)),
    ROW("o of a narrower dtype", ATTENTION, INVALID, "o", "f16", INT(attention.o.dtype, CLATTN_F16)),
    ROW("lse in fp16", ATTENTION, INVALID, "lse", "f16", INT(attention.lse.dtype, CLATTN_F16)),
    ROW("k of another batch", ATTENTION, INVALID, "k", "1", INT(attention.k.dims[0], 1)),
    ROW("v of another batch", ATTENTION, INVALID, "v", "1", INT(attention.v.dims[0], 1)),
    ROW("o of another batch", ATTENTION, INVALID, "o", "1", INT(attention.o.dims[0], 1)),
    ROW("lse of another batch", ATTENTION, INVALID, "lse", "1", INT(attention.lse.dims[0], 1)),
    ROW("v of other heads than k", ATTENTION, INVALID, "v", "1", INT(attention.v.dims[1], 1)),
    ROW("o of other heads than q", ATTENTION, INVALID, "o", "3", INT(attention.o.dims[1], 3)),
    ROW("lse of other heads than q", ATTENTION, INVALID, "lse", "3", INT(attention.lse.dims[1], 3)),
    ROW("A37: 3 heads over 2", ATTENTION, INVALID, "q", "3", INT(attention.q.dims[1], 3)),
    ROW("no kv heads", ATTENTION, INVALID, "k", "0", INT(attention.k.dims[1], 0), INT(attention.v.dims[1], 0)),
    ROW("k of another length than v", ATTENTION, INVALID, "v", "6", INT(attention.v.dims[2], 6)),
    ROW("o of another length than q", ATTENTION, INVALID, "o", "4", INT(attention.o.dims[2], 4)),
    ROW("lse of another length than q", ATTENTION, INVALID, "lse", "4", INT(attention.lse.dims[2], 4)),
    ROW("k of another head dim", ATTENTION, INVALID, "k", "7", INT(attention.k.dims[3], 7)),
    ROW("o of another value dim", ATTENTION, INVALID, "o", "5", INT(attention.o.dims[3], 5)),
    ROW("head dim 0", ATTENTION, INVALID, "q", "0", INT(attention.q.dims[3], 0), INT(attention.k.dims[3], 0)),
    ROW("q's innermost stride", ATTENTION, INVALID, "q", "2", INT(attention.q.strides[3], 2)),
    ROW("k's innermost stride", ATTENTION, INVALID, "k", "0", INT(attention.k.strides[3], 0)),
    ROW("v's innermost stride", ATTENTION, INVALID, "v", "0", INT(attention.v.strides[3], 0)),
    ROW("o overlaps itself", ATTENTION, INVALID, "o", NULL, INT(attention.o.strides[2], 3)),
    ROW("o with a stride of 0", ATTENTION, INVALID, "o", NULL, INT(attention.o.strides[0], 0)),
    ROW("lse with a stride of 0", ATTENTION, INVALID, "lse", NULL, INT(attention.lse.strides[1], 0)),
    ROW("o in q's buffer", ATTENTION, INVALID, "q", NULL, HANDLE(attention.o.memory.as.buffer, BUFFER_OF_Q)),
    ROW("lse in q's buffer", ATTENTION, INVALID, "lse", NULL, HANDLE(attention.lse.memory.as.buffer, BUFFER_OF_Q)),
    ROW("lse in o's buffer", ATTENTION, INVALID, "lse", NULL, HANDLE(attention.lse.memory.as.buffer, BUFFER_OF_O)),
    ROW("scale NaN", ATTENTION, INVALID, "scale", "nan", FLOAT(attention.scale, NAN), INT(attention.has_scale, 1)),
    ROW("scale inf", ATTENTION, INVALID, "scale", "inf", FLOAT(attention.scale, INFINITY), INT(attention.has_scale, 1)),
    ROW("unknown causal", ATTENTION, INVALID, "causal", "3", INT(attention.causal, 3)),
    ROW("negative causal", ATTENTION, INVALID, "causal", "-1", INT(attention.causal, -1)),
    LAUNCH("attention of another kind", ATTENTION, INVALID, "kind", "5", INT(attention.head.kind, CLATTN_OP_GEMM)),
    ROW("attention, not initialised", ATTENTION, INVALID, "size", "0", INT(attention.head.size, 0)),
    ROW("attention, too small", ATTENTION, INVALID, "size", "16", INT(attention.head.size, 16)),

    ROW("count -1", MERGE, INVALID, "count", "-1", INT(merge.count, -1)),
    ROW("o_in is NULL", MERGE, INVALID, "o_in", "NULL", TEXT(merge.o_in, NULL)),
    ROW("lse_in is NULL", MERGE, INVALID, "lse_in", "NULL", TEXT(merge.lse_in, NULL)),
    ROW("merge without o", MERGE, INVALID, "o", NULL, ABSENT(merge.o)),
    ROW("lse_in[0] in fp16", MERGE, INVALID, "lse_in[0]: dtype is f16", "f32", INT(lse_in[0].dtype, CLATTN_F16)),
    ROW("o_in of two dtypes", MERGE, INVALID, "o_in[1]", "2", INT(o_in[1].dtype, CLATTN_F16)),
    ROW("o_in[1] of another shape", MERGE, INVALID, "o_in[1]", "4", INT(o_in[1].dims[2], 4)),
    ROW("lse_in[1] of another shape", MERGE, INVALID, "lse_in[1]", "4", INT(lse_in[1].dims[2], 4)),
    ROW("o_in[0]'s innermost stride", MERGE, INVALID, "o_in[0]", "0", INT(o_in[0].strides[3], 0)),
    ROW("merge: o overlaps itself", MERGE, INVALID, "o", NULL, INT(merge.o.strides[2], 1)),
    ROW("merge: o shifted in an operand", MERGE, INVALID, "o", NULL, HANDLE(merge.o.memory.as.buffer, BUFFER_OF_O0),
        INT(merge.o.offset, GUARD + 1)),
    ROW("merge, not initialised", MERGE, INVALID, "size", "0", INT(merge.head.size, 0)),

    ROW("axis 2 of rank 2", SOFTMAX, INVALID, "axis", "2", INT(softmax.axis, 2)),
    ROW("axis -3 of rank 2", SOFTMAX, INVALID, "axis", "-3", INT(softmax.axis, -3)),
    ROW("unknown function", SOFTMAX, INVALID, "function", "9", INT(softmax.function, 9)),
    ROW("unknown empty_rows", SOFTMAX, INVALID, "empty_rows", "7", INT(softmax.empty_rows, 7)),
    ROW("x is absent", SOFTMAX, INVALID, "x", NULL, ABSENT(softmax.x)),
    ROW("y is absent", SOFTMAX, INVALID, "y", NULL, ABSENT(softmax.y)),
    ROW("y of another shape", SOFTMAX, INVALID, "y", "9", INT(softmax.y.dims[1], 9)),
    ROW("log-sum-exp with a whole row", SOFTMAX, INVALID, "y", "10", INT(softmax.function, CLATTN_LOG_SUM_EXP)),
    ROW("y overlaps itself", SOFTMAX, INVALID, "y", NULL, INT(softmax.y.strides[0], 4)),
    ROW("y shifted in x", SOFTMAX, INVALID, "y", NULL, HANDLE(softmax.y.memory.as.buffer, BUFFER_OF_X),
        INT(softmax.y.offset, GUARD + 1)),
    ROW("softmax, not initialised", SOFTMAX, INVALID, "size", "0", INT(softmax.head.size, 0)),
    ROW("state without m", STATE, INVALID, "m", NULL, ABSENT(state.m)),
    ROW("state without l", STATE, INVALID, "l", NULL, ABSENT(state.l)),
    ROW("m in fp16", STATE, INVALID, "m", "f16", INT(state.m.dtype, CLATTN_F16)),
    ROW("l of another shape", STATE, INVALID, "l", "2", INT(state.l.dims[0], 2)),
    ROW("m and l in one place", STATE, INVALID, "l", NULL, HANDLE(state.l.memory.as.buffer, BUFFER_OF_M)),
    ROW("m in x", STATE, INVALID, "m", NULL, HANDLE(state.m.memory.as.buffer, BUFFER_OF_X)),

    ROW("count -2", SOFTMAX_MERGE, INVALID, "count", "-2", INT(softmax_merge.count, -2)),
    ROW("m_in is NULL", SOFTMAX_MERGE, INVALID, "m_in", "NULL", TEXT(softmax_merge.m_in, NULL)),
    ROW("m_in[1] in bf16", SOFTMAX_MERGE, INVALID, "m_in[1]", "bf16", INT(m_in[1].dtype, CLATTN_BF16)),
    ROW("m_in[0] of another shape", SOFTMAX_MERGE, INVALID, "m_in[0]", "1", INT(m_in[0].dims[1], 1)),
    ROW("softmax merge without l", SOFTMAX_MERGE, INVALID, "l", NULL, ABSENT(softmax_merge.l)),

    ROW("a is absent", GEMM, INVALID, "a", NULL, ABSENT(gemm.a)),
    ROW("b of another dtype", GEMM, INVALID, "b", "f16", INT(gemm.b.dtype, CLATTN_F16)),
    ROW("c of a narrower dtype", GEMM, INVALID, "c", "bf16", INT(gemm.c.dtype, CLATTN_BF16)),
    ROW("a of rank 1", GEMM, INVALID, "a", "1", INT(gemm.a.rank, 1)),
    ROW("b of rank 3", GEMM, INVALID, "b", "3", INT(gemm.b.rank, 3)),
    ROW("inner dims apart", GEMM, INVALID, "b", "5", INT(gemm.b.dims[0], 5)),
    ROW("rows apart", GEMM, INVALID, "c", "3", INT(gemm.c.dims[0], 3)),
    ROW("columns apart", GEMM, INVALID, "c", "4", INT(gemm.c.dims[1], 4)),
    ROW("a's innermost stride", GEMM, INVALID, "a", "0", INT(gemm.a.strides[1], 0)),
    ROW("c in a", GEMM, INVALID, "c", NULL, HANDLE(gemm.c.memory.as.buffer, BUFFER_OF_A)),
    ROW("c with a stride of 0", GEMM, INVALID, "c", NULL, INT(gemm.c.strides[0], 0)),
    ROW("transposed, inner dims apart", GEMM, INVALID, "b", "6", INT(gemm.transpose_a, 1)),

    LAUNCH("no queue", ATTENTION, INVALID, "queue", "NULL", TEXT(launch.queue, NULL)),
    LAUNCH("a queue of another context", SOFTMAX, INVALID, "queue", NULL, HANDLE(launch.queue, FOREIGN_QUEUE)),
    LAUNCH("events without a list", GEMM, INVALID, "event_wait_list", "2", INT(launch.num_events_in_wait_list, 2)),
    LAUNCH("a list without events", MERGE, INVALID, "event_wait_list", "0", TEXT(launch.event_wait_list, &bad_calls)),
    ROW("launch, not initialised", SOFTMAX_MERGE, INVALID, "size", "0", INT(launch.size, 0)),
    ROW("unknown variant", ATTENTION, INVALID, "warp_drive", "fused_fma", TEXT(launch.variant, "warp_drive")),
    ROW("a variant of another operation", GEMM, INVALID, "variant", "two_pass_fma",
        TEXT(launch.variant, "two_pass_fma")),
    ROW("parameters without a value", ATTENTION, INVALID, "parameters", "block_m", TEXT(launch.parameters, "block_m")),
    ROW("parameters that are no number", ATTENTION, INVALID, "parameters", "block_m=x",
        TEXT(launch.parameters, "block_m=x")),
    ROW("more score tiles than kernels take", ATTENTION, INVALID, "score_tiles", "64",
        TEXT(launch.parameters, "score_tiles=65")),
    ROW("a slice beyond 32 bits when rounded", ATTENTION, INVALID, "k_slice", "65536",
        TEXT(launch.parameters, "k_slice=2147483647")),
    ROW("a slice of values beyond 32 bits", ATTENTION, INVALID, "v_slice", "65536",
        TEXT(launch.parameters, "v_slice=2147483647")),
    ROW("a parameter of no meaning", ATTENTION, INVALID, "parameters", "block_q", TEXT(launch.parameters, "block_q=3")),
    LAUNCH("no workspace", SOFTMAX, CLATTN_WORKSPACE_TOO_SMALL, "workspace", NULL, TEXT(launch.variant, "split")),
};

const size_t bad_call_count = sizeof bad_calls / sizeof bad_calls[0];
