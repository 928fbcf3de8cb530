/* Random problems: shapes, head maps, layouts, dtypes, any subset of modifiers, NaN and infinity in all that must not
 * be read; against the oracle. The seed is printed. Programs are few, because each takes seconds to compile, and every
 * program gets many problems. */
#include "random_problem.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROGRAMS = 64, PROBLEMS = 30, ROWS = 48, MAX_VARIANTS = 32 };

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *wish = getenv(name);
    return wish && *wish ? strtoull(wish, NULL, 0) : otherwise;
}

/* Which part of the programs this process runs: number `part` of `parts`. */
static uint64_t part = 0, parts = 1;

static void run_problem(const struct random_program *program, uint64_t seed, const char *where) {
    struct random_layouts layouts;
    const char *names[MAX_VARIANTS];
    char text[512], name[640];
    struct attention_data data = random_problem(program, seed, &layouts, text, sizeof text);
    snprintf(name, sizeof name, "%s: %s", where, text);
    data.name = name;
    const size_t count = attention_variants(&data, names, MAX_VARIANTS);
    if (count == 0)
        fail_msg("%s: no variant accepts", name);
    const char *variant = names[program->variant % count];
    struct attention_result result = attention_run(&data, variant);
    attention_compare(&data, &result, variant, ROWS);
    attention_result_free(&result);
    attention_data_free(&data);
}

static void random_problems(void **state) {
    (void)state;
    const uint64_t seed = support_seed("attention"), problems = setting("CLATTN_TEST_PROBLEMS", PROBLEMS);
    const uint64_t first = setting("CLATTN_TEST_FIRST_PROGRAM", 0);
    const uint64_t end = first + setting("CLATTN_TEST_PROGRAMS", PROGRAMS);
    for (uint64_t number = first + part; number < end; number += parts) {
        const struct random_program program = random_program(seed, number);
        for (uint64_t i = 0; i < problems; i++) {
            char where[64];
            snprintf(where, sizeof where, "program %llu, problem %llu", (unsigned long long)number,
                     (unsigned long long)i);
            run_problem(&program, (seed * 1000003 + number) * 65537 + i, where);
        }
    }
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_problems)};
    if (count == 3) {
        part = strtoull(arguments[1], NULL, 0);
        parts = strtoull(arguments[2], NULL, 0);
    }
    return support_main("attention, random problems", tests, sizeof tests / sizeof tests[0]);
}
