/* The suite modifiers of clattn bench: what each modifier of attention costs, as a share of the time that the same
 * attention takes without it, measured right after one another. */
#include "bench.h"
#include "command.h"

#include <stdio.h>

struct sizes {
    int64_t heads, d, n, far_n; /* far_n: where a window pays */
    const char *window;
    int64_t parts[4]; /* of n */
};

static const struct sizes gpu_sizes = {
    16, 128, 8192, 16384, "window=511,0 causal=bottom_right", {4096, 2048, 1536, 512}};
static const struct sizes cpu_sizes = {2, 64, 1024, 2048, "window=63,0 causal=bottom_right", {512, 256, 192, 64}};

static const struct {
    const char *settings;
    double most; /* of the time of full attention */
} modifiers[] = {{"causal=bottom_right", 0.6},
                 {"alibi=standard", 1.1},
                 {"sinks=random", 1.1},
                 {"bias=random", 1.3},
                 {"softcap=30", 1.3}};

struct row {
    struct bench *bench;
    const struct sizes *sizes;
    enum element element;
    int64_t heads;
};

/* *seconds: the time of a call. base 0: there is nothing to compare with. */
static int measure(const struct row *row, int64_t n, const char *settings, const char *base_name, double base,
                   double most, double *seconds) {
    struct bench *bench = row->bench;
    const char *variant = bench->arguments.variant;
    char shape[96];
    if (!variant && row->element == ELEMENT_F32 && !bench->cpu)
        variant = "fused_fma";
    snprintf(shape, sizeof shape, "1,%lld,%lld,%lld,%lld,%lld", (long long)row->heads, (long long)row->heads,
             (long long)n, (long long)n, (long long)row->sizes->d);
    const struct test_case item = {"attention", shape, settings, 0};
    FORWARD(bench_case(bench, &item, row->element, variant, NULL));
    struct result *result = &bench->report.results[bench->report.count - 1];
    *seconds = result->median_s;
    if (base <= 0 || *seconds <= 0)
        return EXIT_OK;
    result->ratio = base / *seconds;
    snprintf(result->note, sizeof result->note, "%.3f of the time of %s, wanted: at most %.2f", *seconds / base,
             base_name, most);
    return EXIT_OK;
}

/* Sequences one behind the other in one call, against a call for each. */
static int measure_ragged(const struct row *row) {
    const int64_t *parts = row->sizes->parts;
    double sum = 0, seconds = 0;
    char settings[64];
    for (int i = 0; i < 4; i++) {
        FORWARD(measure(row, parts[i], "", NULL, 0, 0, &seconds));
        sum += seconds;
    }
    snprintf(settings, sizeof settings, "ragged=%lld,%lld,%lld,%lld", (long long)parts[0], (long long)parts[1],
             (long long)parts[2], (long long)parts[3]);
    return measure(row, row->sizes->n, settings, "its parts together", sum, 1.1, &seconds);
}

static int measure_all(const struct row *row) {
    double full = 0, causal = 0, seconds = 0;
    FORWARD(measure(row, row->sizes->n, "", NULL, 0, 0, &full));
    for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++)
        FORWARD(
            measure(row, row->sizes->n, modifiers[i].settings, "full attention", full, modifiers[i].most, &seconds));
    FORWARD(measure(row, row->sizes->far_n, "causal=bottom_right", NULL, 0, 0, &causal));
    FORWARD(measure(row, row->sizes->far_n, row->sizes->window, "causal attention", causal, 0.15, &seconds));
    return measure_ragged(row);
}

/* A bias of every head must fit into a buffer. */
static int64_t fitting_heads(const struct bench *bench, const struct sizes *sizes, enum element element) {
    int64_t heads = sizes->heads;
    while (heads > 1 && (uint64_t)(heads * sizes->n * sizes->n) * element_size(element) > bench->machine.largest_buffer)
        heads /= 2;
    return heads;
}

/* Without --dtype: fp32, and where the device is no CPU fp16, which may have a matrix unit. */
int bench_suite_modifiers(struct bench *bench) {
    const bool both = !bench->arguments.dtype && !bench->cpu;
    const enum element usual[] = {ELEMENT_F32, ELEMENT_F16};
    const size_t count = both ? 2 : bench->selection.element_count;
    const struct sizes *sizes = bench->cpu ? &cpu_sizes : &gpu_sizes;
    for (size_t e = 0; e < count; e++) {
        const enum element element = both ? usual[e] : bench->selection.elements[e];
        const struct row row = {bench, sizes, element, fitting_heads(bench, sizes, element)};
        FORWARD(measure_all(&row));
    }
    return EXIT_OK;
}
