/* How long programs of attention take to build: every variant, at the head dims that models have, without modifiers and
 * with all of them. In seconds of the processor, which other work on the machine does not lengthen; PoCL compiles in
 * one thread. Prints the longest; none may take more than three. */
#include "attention_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_VARIANTS = 32, SHOWN = 5 };
static const double most_seconds = 3;

struct build {
    char name[96];
    double seconds;
};
static struct build longest[SHOWN];

static void note(const char *name, double seconds) {
    int at = SHOWN;
    while (at > 0 && seconds > longest[at - 1].seconds)
        at--;
    for (int i = SHOWN - 1; i > at; i--)
        longest[i] = longest[i - 1];
    if (at < SHOWN) {
        snprintf(longest[at].name, sizeof longest[at].name, "%s", name);
        longest[at].seconds = seconds;
    }
}

static double seconds_of_a_run(const struct attention_data *data, const char *variant) {
    const clock_t start = clock();
    struct attention_result result = attention_run(data, variant);
    attention_result_free(&result);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static int64_t programs_built(void) {
    clattn_statistics statistics = {.size = sizeof statistics};
    CHECK(clattn_context_statistics(device.clattn, &statistics));
    return (int64_t)statistics.programs_built;
}

/* The first run builds, the second one does not; a variant of several programs takes as many times the limit. */
static void build(const struct attention_data *data, const char *variant) {
    const int64_t before = programs_built();
    const double first = seconds_of_a_run(data, variant);
    const int64_t programs = programs_built() - before;
    const double seconds = first - seconds_of_a_run(data, variant);
    char name[96];
    if (programs == 0)
        return;
    snprintf(name, sizeof name, "%s %s %lld/%lld %s, %lld programs", variant, dtype_name(data->dtype),
             (long long)data->problem.head_dim, (long long)data->problem.value_dim, data->name, (long long)programs);
    assert_int_equal(programs_built() - before, programs);
    note(name, seconds / (double)programs);
}

static double all_but_every_fifth(const int64_t at[4], int64_t flat) {
    (void)at;
    return flat % 5 != 2;
}

static struct attention_case shape_of(const int64_t *dims, bool modified) {
    static const double slopes[] = {0.5, 0.25, 0.125, 0.0625}, lengths[] = {70, 50};
    struct attention_case c = attention_shape(modified ? "modified" : "plain", 2, 9, 70, CLATTN_CAUSAL_BOTTOM_RIGHT);
    c.head_dim = dims[0], c.value_dim = dims[1];
    if (modified)
        c.with = (struct case_modifiers){.has_window = true,
                                         .window_left = 40,
                                         .window_right = -1,
                                         .softcap = 3,
                                         .mask = {.dims = {1, 1, 9, 70}, .fill = all_but_every_fifth},
                                         .bias = {.dims = {1, 1, 9, 70}, .fill = fill_u3},
                                         .alibi = slopes,
                                         .sinks = slopes,
                                         .k_lengths = lengths};
    return c;
}

static void no_program_takes_long(void **state) {
    static const int64_t dims[][2] = {{576, 512}, {512, 512}, {256, 256}, {192, 128}, {128, 128},
                                      {160, 160}, {96, 96},   {80, 80},   {64, 64},   {40, 40}};
    const char *names[MOST_VARIANTS];
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int t = 0; t < 3; t++)
            for (int modified = 0; modified < 2; modified++) {
                const struct attention_case c = shape_of(dims[i], modified);
                struct attention_data data = attention_data_random(&c, all_dtypes[t], 1);
                const size_t count = attention_variants(&data, names, MOST_VARIANTS);
                for (size_t v = 0; v < count; v++)
                    build(&data, names[v]);
                attention_data_free(&data);
            }
    for (int i = 0; i < SHOWN; i++)
        printf("%5.2f s a program: %s\n", longest[i].seconds, longest[i].name);
    if (longest[0].seconds > most_seconds)
        fail_msg("%s: %.2f s", longest[0].name, longest[0].seconds);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_program_takes_long)};
    return support_main("building attention", tests, sizeof tests / sizeof tests[0]);
}
