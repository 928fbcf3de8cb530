/* Shapes are chosen to be awkward: odd lengths and head dims, one query, more queries than keys, rows that no key
 * reaches, grouped heads; then a few large ones. */
#include "cases.h"

static const struct test_case cases[] = {
    {"attention", "1,2,2,64,64,64", "", CASE_QUICK},
    {"attention", "1,2,2,37,11,64", "", CASE_QUICK},
    {"attention", "2,4,2,113,239,64", "causal=bottom_right", CASE_QUICK},
    {"attention", "1,2,2,37,11,64", "causal=bottom_right", CASE_QUICK},
    {"attention", "1,2,2,48,48,64", "causal=top_left layout=bshd", CASE_QUICK},
    {"attention", "1,4,1,65,127,40,33", "scale=0.3", CASE_QUICK},
    {"attention", "1,1,1,1,1,1", "", CASE_FULL},
    {"attention", "1,4,1,113,239,40", "causal=top_left", CASE_FULL},
    {"attention", "1,2,2,3,239,128", "", CASE_FULL},
    {"attention", "1,2,1,65,127,96,48", "causal=bottom_right diagonal=20", CASE_FULL},
    {"attention", "1,2,2,33,70,256", "", CASE_FULL},
    {"attention", "1,4,4,1023,1023,64", "causal=bottom_right", CASE_FULL},
    {"attention", "2,8,2,512,1024,128", "causal=bottom_right", CASE_FULL},
    {"attention", "1,2,2,128,4096,80", "", CASE_FULL},
    {"attention", "1,2,1,239,1023,192,128", "causal=top_left", CASE_FULL},
    {"attention", "1,8,8,1024,1024,64", "", CASE_BENCH},
    {"attention", "1,8,8,1024,1024,128", "causal=bottom_right", CASE_BENCH},
    {"attention", "4,32,32,4096,4096,64", "", CASE_BENCH_GPU},
    {"attention", "4,32,32,4096,4096,128", "", CASE_BENCH_GPU},
    {"attention", "4,32,32,4096,4096,128", "causal=bottom_right", CASE_BENCH_GPU},

    {"attention_merge", "1,1,2,5,16", "", CASE_QUICK},
    {"attention_merge", "2,2,4,113,64", "", CASE_QUICK},
    {"attention_merge", "3,1,2,33,37", "layout=bshd", CASE_QUICK},
    {"attention_merge", "11,1,2,33,40", "", CASE_QUICK},
    {"attention_merge", "4,2,8,1023,128", "", CASE_FULL | CASE_BENCH},
    {"attention_merge", "4,4,32,4096,128", "", CASE_BENCH_GPU},

    {"softmax", "1", "", CASE_QUICK},
    {"softmax", "7,1", "", CASE_QUICK},
    {"softmax", "5,31", "", CASE_QUICK},
    {"softmax", "33,1023", "", CASE_QUICK},
    {"softmax", "2,3,70000", "", CASE_QUICK},
    {"softmax", "3,113,5", "axis=1", CASE_QUICK},
    {"softmax", "64,64", "axis=0", CASE_QUICK},
    {"softmax", "1024,4096", "", CASE_FULL | CASE_BENCH},
    {"softmax", "3,1048579", "", CASE_FULL},
    {"softmax", "16384,4096", "", CASE_BENCH_GPU},

    {"log_softmax", "33,1023", "", CASE_QUICK},
    {"log_softmax", "2,113,6", "axis=1", CASE_QUICK},
    {"log_softmax", "1024,4096", "", CASE_FULL | CASE_BENCH},
    {"logsumexp", "33,1023", "", CASE_QUICK},
    {"logsumexp", "2,113,6", "axis=-2", CASE_QUICK},
    {"logsumexp", "1024,4096", "", CASE_FULL | CASE_BENCH},
    {"softmax_state", "33,1023", "", CASE_QUICK},
    {"softmax_state", "2,70000", "", CASE_QUICK},
    {"softmax_state", "1024,4096", "", CASE_FULL | CASE_BENCH},
    {"softmax_merge", "1,7", "", CASE_QUICK},
    {"softmax_merge", "3,2,113", "", CASE_QUICK},
    {"softmax_merge", "19,1000", "", CASE_QUICK},
    {"softmax_merge", "4,65536", "", CASE_FULL | CASE_BENCH},

    {"gemm", "1,1,1", "", CASE_QUICK},
    {"gemm", "33,65,17", "", CASE_QUICK},
    {"gemm", "64,64,128", "transpose_a=1", CASE_QUICK},
    {"gemm", "113,70,40", "transpose_b=1 alpha=0.5", CASE_QUICK},
    {"gemm", "3,31,33,65", "transpose_a=1 transpose_b=1", CASE_QUICK},
    {"gemm", "511,513,255", "", CASE_FULL},
    {"gemm", "4,256,256,256", "transpose_b=1", CASE_FULL},
    {"gemm", "1024,1024,1024", "", CASE_BENCH},
    {"gemm", "4096,4096,4096", "", CASE_BENCH_GPU},
};

const struct test_case *case_at(size_t index) {
    return index < sizeof cases / sizeof *cases ? &cases[index] : (const struct test_case *)0;
}
