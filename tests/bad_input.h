/* The table of calls that must be refused (bad_input.c) and the words it is written in. */
#ifndef CLATTN_BAD_INPUT_H
#define CLATTN_BAD_INPUT_H

#include "support.h"

#include <stddef.h>

/* One valid call of each operation, and what it points at. */
struct call_set {
    clattn_attention_op attention;
    clattn_attention_op modified;  /* with all modifiers that go together */
    clattn_attention_op ragged;    /* with both offsets and a mask */
    clattn_attention_op paged;     /* its k_offsets are complete but for their memory's kind */
    clattn_attention_op quantized; /* int4 keys, int8 values with zeros */
    clattn_attention_op fp8;
    clattn_attention_merge_op merge;
    clattn_tensor o_in[2], lse_in[2];
    clattn_softmax_op softmax, state;
    clattn_softmax_merge_op softmax_merge;
    clattn_tensor m_in[2], l_in[2];
    clattn_gemm_op gemm;
    clattn_launch launch;
};

enum base { ATTENTION, MODIFIED, RAGGED, PAGED, QUANTIZED, FP8, MERGE, SOFTMAX, STATE, SOFTMAX_MERGE, GEMM };

enum buffer_name {
    IN_Q,
    IN_K,
    IN_V,
    IN_O0,
    IN_O1,
    IN_LSE0,
    IN_LSE1,
    IN_X,
    IN_A,
    IN_B,
    IN_MASK,
    IN_BIAS,
    IN_ALIBI,
    IN_SINKS,
    IN_LENGTHS,
    IN_OFFSETS,
    IN_TABLE,
    IN_NIBBLES,
    IN_CODES,
    IN_SCALES,
    IN_ZEROS,
    IN_HEAD_SCALES,
    OUT_O,
    OUT_LSE,
    OUT_Y,
    OUT_M,
    OUT_L,
    OUT_C,
    OUT_HALF,
    BUFFERS,
    FIRST_OUTPUT = OUT_O
};

enum patch_kind { PATCH_NONE, PATCH_INT, PATCH_FLOAT, PATCH_POINTER, PATCH_ABSENT };

/* Handles that exist only at run time. */
enum special {
    NO_SPECIAL,
    FOREIGN_BUFFER,
    FOREIGN_QUEUE,
    BUFFER_OF_Q,
    BUFFER_OF_X,
    BUFFER_OF_A,
    BUFFER_OF_O0,
    BUFFER_OF_O,
    BUFFER_OF_M,
    BUFFER_OF_SINKS,
    BUFFER_OF_SCALES,
    BUFFER_OF_NIBBLES
};

/* A member of a call_set and what it becomes. */
struct patch {
    enum patch_kind kind;
    size_t offset, size;
    int64_t integer;
    double real;
    const void *pointer;
    enum special special;
};

struct bad_call {
    const char *what;
    enum base base;
    struct patch patch[2];
    clattn_status status;
    const char *argument; /* a word of the text */
    const char *value;    /* in the text; NULL where there is none to give */
    bool launch_only;     /* what clattn_supported() cannot see: most of the launch, and which function was called */
};

extern const struct bad_call bad_calls[], bad_attention_calls[], bad_quantized_calls[];
extern const size_t bad_call_count, bad_attention_call_count, bad_quantized_call_count;

/* ---- words of the tables ----------------------------------------------------------------------------------------- */

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

#endif
