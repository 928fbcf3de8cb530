/* The suites softmax, norms, attention and nvidia-forward of clattn bench: fixed lists of shapes, made smaller where
 * the device is small. */
#include "bench.h"
#include "command.h"

#include <stdio.h>

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static const int64_t softmax_shapes[][2] = {{65536, 1024}, {16384, 4096}, {4096, 32768}, {512, 131072}, {64, 1048576}};

/* x and y, and room for the sets that are rotated over. */
static int64_t fitting_rows(const struct bench *bench, const int64_t shape[2], size_t size) {
    int64_t rows = shape[0];
    const double most = bench->cpu ? 64e6 : (double)bench->machine.memory / 8;
    while (rows > 1 && (2.0 * (double)(rows * shape[1]) * (double)size > most ||
                        (uint64_t)(rows * shape[1]) * size > bench->machine.largest_buffer))
        rows /= 2;
    return rows;
}

static void note_last(struct bench *bench, size_t first, const char *text) {
    for (size_t i = first; i < bench->report.count; i++)
        snprintf(bench->report.results[i].note, sizeof bench->report.results[i].note, "%s", text);
}

int bench_suite_softmax(struct bench *bench) {
    for (size_t e = 0; e < bench->selection.element_count; e++)
        for (size_t i = 0; i < sizeof softmax_shapes / sizeof *softmax_shapes; i++) {
            const enum element element = bench->selection.elements[e];
            const int64_t rows = fitting_rows(bench, softmax_shapes[i], element_size(element));
            char shape[64], note[96];
            snprintf(shape, sizeof shape, "%lld,%lld", (long long)rows, (long long)softmax_shapes[i][1]);
            const struct test_case item = {"softmax", shape, "", 0};
            const size_t first = bench->report.count;
            FORWARD(bench_case(bench, &item, element, bench->arguments.variant, bench->arguments.versus));
            snprintf(note, sizeof note, "fewer rows than %lld, to suit the device", (long long)softmax_shapes[i][0]);
            if (rows != softmax_shapes[i][0])
                note_last(bench, first, note);
        }
    return EXIT_OK;
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static int bench_norm(struct bench *bench, const char *op, enum element element, int64_t columns,
                      const char *settings) {
    const int64_t wanted[] = {16384, columns};
    const int64_t rows = fitting_rows(bench, wanted, element_size(element));
    char shape[64];
    snprintf(shape, sizeof shape, "%lld,%lld", (long long)rows, (long long)columns);
    const struct test_case item = {op, shape, settings, 0};
    return bench_case(bench, &item, element, bench->arguments.variant, bench->arguments.versus);
}

int bench_suite_norms(struct bench *bench) {
    static const char *const ops[] = {"rms_norm", "layer_norm", "rms_norm_backward", "layer_norm_backward"};
    static const char *const settings[] = {"", "residual=1"};
    static const int64_t columns[] = {1024, 4096, 8192, 16384};
    for (size_t e = 0; e < bench->selection.element_count; e++)
        for (int s = 0; s < 2; s++)
            for (int o = 0; o < (s == 0 ? 4 : 2); o++)
                for (int c = 0; c < 4; c++)
                    FORWARD(bench_norm(bench, ops[o], bench->selection.elements[e], columns[c], settings[s]));
    return EXIT_OK;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Fused portable attention against the unfused baseline. Batch and heads shrink on a CPU, and with the square of N: the
 * baseline's score matrix must stay below the 2^31 elements that CLBlast can count. */
static int bench_length(struct bench *bench, enum element element, int64_t n, int64_t d) {
    const int64_t batch = bench->cpu || n > 4096 ? 1 : n > 2048 ? 2 : 4, heads = bench->cpu ? 2 : n > 4096 ? 16 : 32;
    char shape[96];
    snprintf(shape, sizeof shape, "%lld,%lld,%lld,%lld,%lld,%lld", (long long)batch, (long long)heads, (long long)heads,
             (long long)n, (long long)n, (long long)d);
    const struct test_case item = {"attention", shape, "", 0};
    const char *variant = bench->arguments.variant ? bench->arguments.variant : "fused_fma";
    const char *rival = bench->arguments.versus ? bench->arguments.versus : "unfused";
    return bench_case(bench, &item, element, variant, rival);
}

int bench_suite_attention(struct bench *bench) {
    const int64_t longest = bench->cpu ? 2048 : 8192;
    for (size_t e = 0; e < bench->selection.element_count; e++)
        for (int64_t d = 64; d <= 128; d *= 2)
            for (int64_t n = 1024; n <= longest; n *= 2)
                FORWARD(bench_length(bench, bench->selection.elements[e], n, d));
    return EXIT_OK;
}

/* ---- nvidia-forward ---------------------------------------------------------------------------------------------- */

/* Also in tools/bench_pytorch.py, which times the rivals. */
static const char *const forward_shapes[] = {
    "4,32,32,4096,4096,128", "1,32,32,16384,16384,128", "8,32,32,2048,2048,64",  "16,32,32,512,512,128",
    "16,32,32,512,512,64",   "32,32,32,128,128,64",     "2,16,16,4096,4096,256", "2,16,16,4096,4096,192",
    "2,16,16,4096,4096,96",  "2,16,16,4096,4096,80",    "4,32,8,8192,8192,128",
};

static int bench_both_masks(struct bench *bench, const char *shape, enum element element) {
    static const char *const masks[] = {"", "causal=bottom_right"};
    for (int i = 0; i < 2; i++) {
        const struct test_case item = {"attention", shape, masks[i], 0};
        FORWARD(bench_case(bench, &item, element, bench->arguments.variant, bench->arguments.versus));
    }
    return EXIT_OK;
}

int bench_suite_nvidia_forward(struct bench *bench) {
    if (bench->cpu)
        return complain(EXIT_UNSUPPORTED, "--suite nvidia-forward is too large for a CPU");
    for (size_t e = 0; e < bench->selection.element_count; e++)
        for (size_t i = 0; i < sizeof forward_shapes / sizeof *forward_shapes; i++)
            FORWARD(bench_both_masks(bench, forward_shapes[i], bench->selection.elements[e]));
    return bench->arguments.dtype ? EXIT_OK : bench_both_masks(bench, forward_shapes[0], ELEMENT_F32);
}
