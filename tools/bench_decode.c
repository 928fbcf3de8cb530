/* The suite decode of clattn bench: what an inference runtime does all day, few queries against a long cache. Inputs
 * are rotated over buffers, so that no call finds a cache filled by the one before. */
#include "bench.h"
#include "command.h"

/* The first are also timed by others: see the tables of the README. */
static const struct test_case gpu_cases[] = {
    {"attention_decode", "1,32,32,1,8192,128", "", 0},
    {"attention_decode", "16,32,32,1,8192,128", "", 0},
    {"attention_decode", "64,32,32,1,4096,128", "", 0},
    {"attention_decode", "1,32,8,1,8192,128", "", 0},
    {"attention_decode", "16,32,8,1,8192,128", "", 0},
    {"attention_decode", "64,32,8,1,8192,128", "", 0},
    {"attention_decode", "64,32,8,1,1024,128", "", 0},
    {"attention_decode", "8,32,8,16,8192,128", "", 0},
    {"attention_decode", "16,32,8,1,8192,128", "paged=16", 0},
    {"attention_decode", "64,32,8,1,8192,128", "k_lengths=random", 0},
    {"attention_decode", "64,32,32,1,4096,128", "k_dtype=i8 v_dtype=i8", 0},
    {"attention_decode", "64,128,1,1,8192,576", "v_in_k=512", 0},
    {"attention_decode", "64,128,1,1,8192,576", "v_in_k=512 paged=64", 0},
};

static const struct test_case cpu_cases[] = {
    {"attention_decode", "1,8,8,1,8192,128", "", 0},
    {"attention_decode", "1,32,8,1,8192,128", "", 0},
    {"attention_decode", "4,32,8,1,2048,128", "", 0},
    {"attention_decode", "1,32,8,16,2048,128", "", 0},
    {"attention_decode", "1,32,8,1,8192,128", "paged=16", 0},
    {"attention_decode", "4,32,8,1,2048,128", "k_lengths=random", 0},
    {"attention_decode", "1,32,8,1,8192,128", "k_dtype=i8 v_dtype=i8", 0},
    {"attention_decode", "1,16,1,1,2048,576", "v_in_k=512", 0},
};

int bench_suite_decode(struct bench *bench) {
    const struct test_case *cases = bench->cpu ? cpu_cases : gpu_cases;
    const size_t count = bench->cpu ? sizeof cpu_cases / sizeof *cpu_cases : sizeof gpu_cases / sizeof *gpu_cases;
    for (size_t e = 0; e < bench->selection.element_count; e++)
        for (size_t i = 0; i < count; i++)
            FORWARD(bench_case(bench, &cases[i], bench->selection.elements[e], bench->arguments.variant,
                               bench->arguments.versus));
    return EXIT_OK;
}
