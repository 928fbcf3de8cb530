/* The table of calls that must be refused (bad_input.c) and the words it is written in. */
#ifndef CLATTN_BAD_INPUT_H
#define CLATTN_BAD_INPUT_H

#include "support.h"

/* One valid call of each operation, and what it points at. */
struct call_set {
    clattn_attention_op attention;
    clattn_attention_merge_op merge;
    clattn_tensor o_in[2], lse_in[2];
    clattn_softmax_op softmax, state;
    clattn_softmax_merge_op softmax_merge;
    clattn_tensor m_in[2], l_in[2];
    clattn_gemm_op gemm;
    clattn_launch launch;
};

enum base { ATTENTION, MERGE, SOFTMAX, STATE, SOFTMAX_MERGE, GEMM };

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
    BUFFER_OF_M
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

extern const struct bad_call bad_calls[];
extern const size_t bad_call_count;

#endif
