/* The suite training of clattn bench: what is bound by memory alone, over as many elements as a large model has in a
 * tensor, or fewer where the device is small. */
#include "bench.h"
#include "command.h"

#include <stdio.h>

#define ELEMENTS (INT64_C(1) << 27)
#define CPU_ELEMENTS (INT64_C(1) << 22)
#define MOST_BYTES 32.0 /* of an element, in all tensors of an operation together */

static const struct {
    const char *op;
    enum element element;
    const char *settings;
} rows[] = {
    {"cast", ELEMENT_F32, "out_dtype=f16"},
    {"cast", ELEMENT_F16, "out_dtype=f32"},
    {"cast", ELEMENT_F32, "out_dtype=bf16"},
    {"cast", ELEMENT_BF16, "out_dtype=f16"},
    {"unscale", ELEMENT_F32, "in_place=1"},
    {"unscale", ELEMENT_F16, ""},
    {"unscale", ELEMENT_F16, "tensors=16"},
    {"adamw", ELEMENT_F32, ""},
    {"adamw", ELEMENT_F16, "copy=f16"},
    {"adamw", ELEMENT_F16, "copy=f16 scale=1024 tensors=16"},
    {"adamw", ELEMENT_BF16, "copy=bf16"},
    {"sgd", ELEMENT_F32, ""},
    {"sgd", ELEMENT_F16, "copy=f16 momentum=0.9"},
    {"sgd", ELEMENT_F16, "copy=f16 momentum=0.9 tensors=16"},
};

static bool is_wanted(const struct bench *bench, enum element element) {
    for (size_t e = 0; e < bench->selection.element_count; e++)
        if (bench->selection.elements[e] == element)
            return true;
    return false;
}

/* Room for two sets of all tensors, of which none exceeds a buffer. */
static int64_t fitting_elements(const struct bench *bench) {
    int64_t elements = bench->cpu ? CPU_ELEMENTS : ELEMENTS;
    while (elements > 1 && (2 * MOST_BYTES * (double)elements > (double)bench->machine.memory ||
                            4 * (uint64_t)elements > bench->machine.largest_buffer))
        elements /= 2;
    return elements;
}

int bench_suite_training(struct bench *bench) {
    char shape[32];
    snprintf(shape, sizeof shape, "%lld", (long long)fitting_elements(bench));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct test_case item = {rows[i].op, shape, rows[i].settings, 0};
        if (is_wanted(bench, rows[i].element) && selection_holds(&bench->selection, rows[i].op))
            FORWARD(bench_case(bench, &item, rows[i].element, bench->arguments.variant, bench->arguments.versus));
    }
    return EXIT_OK;
}
