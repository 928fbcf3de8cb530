/* Random attention problems: a program's compile-time facts are drawn first, then any number of problems that share
 * them and differ in shapes, lengths, windows, layouts and contents. */
#ifndef CLATTN_RANDOM_PROBLEM_H
#define CLATTN_RANDOM_PROBLEM_H

#include "attention_harness.h"

/* What makes a program of its own. */
struct random_program {
    clattn_dtype dtype, out_dtype, bias_dtype;
    int64_t head_dim, value_dim;
    bool band, mask, bias, sequences, paged, alibi, softcap, sinks;
    bool aligned; /* every row starts at a multiple of 16 bytes */
    bool without_lse;
    const struct code_format *k_format, *v_format; /* NULL: not quantised */
    int64_t page_size;                             /* 0: any */
    int64_t heads_per_kv;                          /* 0: any; decode variants are compiled for one */
    uint64_t variant;                              /* which of those that accept */
};

struct random_layouts {
    struct test_layout q, k, v, o, lse, mask, bias, alibi, sinks, q_lengths, k_lengths, q_offsets, k_offsets,
        page_table;
};

struct random_program random_program(uint64_t seed, uint64_t number);

/* The problem's data, in the layouts given, which must live as long; a description of both into text. */
struct attention_data random_problem(const struct random_program *program, uint64_t seed,
                                     struct random_layouts *layouts, char *text, size_t size);

#endif
