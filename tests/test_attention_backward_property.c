/* Random problems of attention's gradients: shapes, head maps, layouts, dtypes, any subset of modifiers, NaN and
 * infinity in all that has no influence and NaN in some of what has; against the oracle. The seed is printed. Programs
 * are few, because each is several kernels that take seconds to compile, and every program gets many problems. */
#include "gradient_harness.h"
#include "random_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRAMS = 6, PROBLEMS = 84, MAX_VARIANTS = 16 };

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *wish = getenv(name);
    return wish && *wish ? strtoull(wish, NULL, 0) : otherwise;
}

/* The n-th draw of a problem, in 0 .. below - 1. */
static int64_t draw(uint64_t seed, uint64_t n, int64_t below) {
    uint64_t x = (seed * 31 + n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return (int64_t)((x ^ x >> 29) % (uint64_t)below);
}

/* Rows or heads first, with room to spare; the innermost dense. */
static struct test_layout layout_of(const clattn_tensor *shape, uint64_t seed, uint64_t n, bool aligned) {
    const int64_t unit = aligned ? 8 : 1, *dims = shape->dims;
    struct test_layout layout = {.offset = unit * draw(seed, n, 5)};
    int64_t extent = dims[shape->rank - 1] + unit * draw(seed, n + 1, 4);
    const bool rows_first = shape->rank == 4 && draw(seed, n + 2, 2) == 1;
    layout.strides[shape->rank - 1] = 1;
    for (int i = shape->rank - 2; i >= 0; i--) {
        const int d = rows_first && i == 2 ? 1 : rows_first && i == 1 ? 2 : i;
        layout.strides[d] = extent;
        extent *= dims[d] > 0 ? dims[d] : 1;
    }
    return layout;
}

/* Infinities among what has influence become NaN: what comes of them depends on the order of sums. */
static void make_nan(double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (isinf(values[i]))
            values[i] = (double)NAN;
}

struct layouts {
    struct random_layouts inputs;
    struct test_layout dq, dk, dv, dout, dlse;
};

/* The forward problem of the seed with gradients that come in; *request: how all of it lies. */
static struct gradient_data problem_of(const struct random_program *program, uint64_t seed, struct layouts *layouts,
                                       struct gradient_request *request, char *text, size_t size) {
    struct attention_data forward = random_problem(program, seed, &layouts->inputs, text, size);
    const clattn_attention_op *op = &forward.settings;
    make_nan(forward.v, reference_count(&op->v));
    make_nan(forward.k, reference_count(&op->k));
    struct gradient_data data = gradient_data_from(&forward, seed, draw(seed, 1, 2) == 0);
    const int64_t count = attention_o_count(&forward);
    if (draw(seed, 2, 8) == 0 && count > 0)
        data.dout[draw(seed, 3, count)] = (double)NAN;
    data.out_dtype = program->without_lse ? CLATTN_F32 : program->dtype; /* a fact of the program like any other */
    clattn_tensor dout = op->q, dlse = op->q;
    dout.dims[3] = program->value_dim;
    dlse.rank = 3;
    layouts->dq = layout_of(&op->q, seed, 10, program->aligned);
    layouts->dk = layout_of(&op->k, seed, 20, program->aligned);
    layouts->dv = layout_of(&op->v, seed, 30, program->aligned);
    layouts->dout = layout_of(&dout, seed, 40, program->aligned);
    layouts->dlse = layout_of(&dlse, seed, 50, false);
    *request = (struct gradient_request){
        .dq = &layouts->dq, .dk = &layouts->dk, .dv = &layouts->dv, .dout = &layouts->dout, .dlse = &layouts->dlse};
    return data;
}

static void run_problem(const struct random_program *program, uint64_t seed, const char *where) {
    struct layouts layouts;
    struct gradient_request request;
    const char *names[MAX_VARIANTS];
    char text[512], name[640];
    struct gradient_data data = problem_of(program, seed, &layouts, &request, text, sizeof text);
    snprintf(name, sizeof name, "%s: %s%s", where, text, data.dlse ? " dlse" : "");
    data.forward.name = name;
    const size_t count = gradient_variants(&data, &request, names, MAX_VARIANTS);
    if (count == 0)
        fail_msg("%s: no variant accepts", name);
    const char *variant = names[program->variant % count];
    struct reference_gradients got = gradients_run(&data, &request, variant);
    gradients_compare(&data, &got, variant);
    gradients_free(&got);
    gradient_data_free(&data);
}

static void random_problems(void **state) {
    (void)state;
    const uint64_t seed = support_seed("attention's gradients"), problems = setting("CLATTN_TEST_PROBLEMS", PROBLEMS);
    const uint64_t first = setting("CLATTN_TEST_FIRST_PROGRAM", 0);
    const uint64_t end = first + setting("CLATTN_TEST_PROGRAMS", PROGRAMS);
    for (uint64_t number = first; number < end; number++) {
        struct random_program program = random_program(seed, number);
        program.paged = false;
        program.k_format = program.v_format = NULL;
        program.variant = number / 3 + number; /* each dtype meets each variant */
        for (uint64_t i = 0; i < problems; i++) {
            char where[64];
            snprintf(where, sizeof where, "program %llu, problem %llu", (unsigned long long)number,
                     (unsigned long long)i);
            run_problem(&program, (seed * 1000003 + number) * 65537 + i, where);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_problems)};
    return support_main("attention's gradients, random problems", tests, sizeof tests / sizeof tests[0]);
}
