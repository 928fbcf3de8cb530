/* The tuner's pure parts: the declared space, the search through it on invented devices, and the verdict on times. */
#include "../tools/tune_search.h"
#include "../tools/tune_verdict.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the space --------------------------------------------------------------------------------------------------- */

static void the_space_holds_what_the_library_names(void **state) {
    struct space space;
    struct point start, other;
    char text[SPACE_TEXT];
    (void)state;
    assert_true(space_make(&space, "cpu_rows=32,groups=1,score_tiles=4,k_slice=576,chunk=512,splits=4", &start));
    assert_int_equal(space.axes, 4); /* nothing is declared of chunk and splits */
    space_print(&space, &start, text);
    assert_string_equal(text, "cpu_rows=32,groups=1,score_tiles=4,k_slice=576");
    other = start;
    assert_true(space_find(&space, "k_slice=64,chunk=7", &other));
    space_print(&space, &other, text);
    assert_string_equal(text, "cpu_rows=32,groups=1,score_tiles=4,k_slice=64");
    assert_false(space_find(&space, "k_slice=65", &other));
    /* A value that is not declared joins its axis, in order. */
    assert_true(space_make(&space, "vector=2,group=48", &start));
    space_print(&space, &start, text);
    assert_string_equal(text, "vector=2,group=48");
    for (int i = 0; i < space.axes; i++)
        for (int v = 1; v < space.axis[i].count; v++)
            assert_true(space.axis[i].values[v - 1] < space.axis[i].values[v]);
}

/* The default rows, which name every parameter that there is. */
static cJSON *read_defaults(void) {
    static char text[1 << 16];
    FILE *file = fopen(DEFAULT_ROWS, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return cJSON_Parse(text);
}

/* A new parameter is declared, or it is said here why it is not. */
static void every_parameter_is_declared(void **state) {
    static const char *const untuned[] = {"chunk", "splits", /* made from each problem */
                                          "lag",             /* of a variant that is only run by name */
                                          "patience"};       /* matters only where groups do not run together */
    cJSON *defaults = read_defaults();
    const cJSON *row, *parameter;
    int seen = 0;
    (void)state;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(defaults, "rows")) {
        cJSON_ArrayForEach(parameter, cJSON_GetObjectItem(row, "parameters")) {
            char text[64];
            struct space space;
            struct point start;
            bool is_untuned = false;
            for (size_t i = 0; i < sizeof untuned / sizeof *untuned; i++)
                is_untuned = is_untuned || strcmp(untuned[i], parameter->string) == 0;
            snprintf(text, sizeof text, "%s=1", parameter->string);
            if (space_make(&space, text, &start) == is_untuned)
                fail_msg("%s", parameter->string);
            seen++;
        }
    }
    assert_in_range(seen, 100, 10000);
    cJSON_Delete(defaults);
}

static void other_texts_are_refused(void **state) {
    static const char *const bad[] = {"",         "chunk=4",   "vector",    "vector=",      "=4",
                                      "vector=x", "vector=-4", "vector=4x", "vector=4;x=1", "vector=99999999999"};
    struct space space;
    struct point start;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(space_make(&space, bad[i], &start));
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

#define PARAMETERS "fma_items=16,fma_rows=4,groups=16,score_tiles=1,k_slice=256,v_slice=256,q_resident=1,stage_slots=1"

static int value_of(const struct space *space, const struct point *point, const char *name) {
    for (int i = 0; i < space->axes; i++)
        if (strcmp(space->axis[i].name, name) == 0)
            return space->axis[i].values[(int)point->at[i]];
    return -1;
}

/* An invented device: work-groups of up to 256 work-items, and a valley whose floor is at 8, 8, 32, 2, 64. */
static double seconds_of(const struct space *space, const struct point *point) {
    static const struct {
        const char *name;
        double best;
    } floor[] = {{"fma_items", 8}, {"fma_rows", 8}, {"groups", 32}, {"score_tiles", 2}, {"k_slice", 64}};
    double seconds = 1;
    if (value_of(space, point, "fma_items") * value_of(space, point, "groups") > 256)
        return 0;
    for (size_t i = 0; i < sizeof floor / sizeof *floor; i++)
        seconds += fabs(log2(value_of(space, point, floor[i].name) / floor[i].best));
    return seconds * (1 + 0.5 * (value_of(space, point, "q_resident") == 0));
}

static struct search run(const struct space *space, const struct point *start, uint64_t seed, int most) {
    struct search search;
    struct point point;
    search_begin(&search, space, start, 1, seed, 16, most);
    while (search_next(&search, &point)) {
        const double seconds = seconds_of(space, &point);
        search_report(&search, seconds, seconds > 0);
    }
    return search;
}

static void the_search_finds_the_floor_of_a_valley(void **state) {
    struct space space;
    struct point start;
    (void)state;
    assert_true(space_make(&space, PARAMETERS, &start));
    int size = 1;
    for (int i = 0; i < space.axes; i++)
        size *= space.axis[i].count;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const struct search search = run(&space, &start, seed, 160);
        assert_true(search.ran <= 160 && size > 100 * search.ran);
        assert_true(search_best(&search)->seconds == 1);
        assert_memory_equal(&search.trials[0].point, &start, sizeof start);
    }
}

static void a_search_is_repeatable_and_proposes_nothing_twice(void **state) {
    struct space space;
    struct point start;
    (void)state;
    assert_true(space_make(&space, PARAMETERS, &start));
    const struct search a = run(&space, &start, 5, 100), b = run(&space, &start, 5, 100),
                        c = run(&space, &start, 6, 100);
    assert_int_equal(a.count, b.count);
    bool same = a.count == c.count;
    for (int i = 0; i < a.count; i++) {
        assert_memory_equal(&a.trials[i].point, &b.trials[i].point, sizeof(struct point));
        same = same && memcmp(&a.trials[i].point, &c.trials[i].point, sizeof(struct point)) == 0;
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(&a.trials[i].point, &a.trials[j].point, sizeof(struct point));
    }
    assert_false(same);
}

/* Two axes of two values: all is known after four, whatever was reported. */
static void a_small_space_is_searched_whole(void **state) {
    struct space space;
    struct point start, point;
    struct search search;
    (void)state;
    for (int failing = 0; failing < 2; failing++) {
        int count = 0;
        assert_true(space_make(&space, "q_resident=1,stage_slots=1", &start));
        search_begin(&search, &space, &start, 1, 1, 16, 160);
        for (; search_next(&search, &point); count++)
            search_report(&search, failing ? 0 : 1 + point.at[0], true);
        assert_int_equal(count, 4);
        assert_true(failing ? search_best(&search) == NULL : search_best(&search)->seconds == 1);
    }
}

static void given_points_come_first(void **state) {
    struct space space;
    struct point given[2], point;
    struct search search;
    (void)state;
    assert_true(space_make(&space, PARAMETERS, &given[0]));
    given[1] = given[0];
    given[1].at[0]--;
    search_begin(&search, &space, given, 2, 1, 0, 3);
    for (int i = 0; i < 2; i++) {
        assert_true(search_next(&search, &point));
        assert_memory_equal(&point, &given[i], sizeof point);
        search_report(&search, 1, true);
    }
    assert_true(search_next(&search, &point));
    search_report(&search, 0, false); /* refused: it does not count */
    assert_true(search_next(&search, &point));
    search_report(&search, 0, true);
    assert_false(search_next(&search, &point)); /* three ran */
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void fill(double *times, int count, double middle, double spread, unsigned seed) {
    for (int i = 0; i < count; i++)
        times[i] = middle * (1 + spread * ((double)(rand_r(&seed) % 2001) / 1000 - 1));
}

static enum verdict judge(double usual, double rival, double spread, int pairs) {
    double a[VERDICT_MAX_PAIRS], b[VERDICT_MAX_PAIRS];
    fill(a, pairs, usual, spread, 1);
    fill(b, pairs, rival, spread, 2);
    return verdict_of(a, b, pairs).verdict;
}

static void only_what_is_faster_beyond_noise_is(void **state) {
    (void)state;
    assert_int_equal(judge(1, 0.9, 0.01, 24), VERDICT_FASTER);
    assert_int_equal(judge(1e-6, 0.5e-6, 0.05, 8), VERDICT_FASTER);
    assert_int_equal(judge(1, 1, 0, 24), VERDICT_NO_FASTER);
    assert_int_equal(judge(1, 0.985, 0, 24), VERDICT_NO_FASTER);  /* less than a row is worth */
    assert_int_equal(judge(1, 0.97, 0.1, 24), VERDICT_NO_FASTER); /* which chance explains */
    assert_int_equal(judge(1, 1.3, 0.01, 24), VERDICT_NO_FASTER);
    assert_int_equal(judge(1, 0.8, 0.6, 24), VERDICT_NOISY);
    assert_int_equal(judge(1, 4, 0.6, 24), VERDICT_NO_FASTER); /* noise does not hide that */
    assert_int_equal(judge(1, 0.5, 0.01, VERDICT_MIN_PAIRS - 1), VERDICT_UNKNOWN);
}

static void a_few_disturbed_runs_change_nothing(void **state) {
    double usual[24], rival[24];
    (void)state;
    fill(usual, 24, 1, 0.01, 1);
    fill(rival, 24, 0.9, 0.01, 2);
    for (int i = 0; i < 5; i++)
        rival[4 * i] = 30;
    const struct comparison found = verdict_of(usual, rival, 24);
    assert_int_equal(found.verdict, VERDICT_FASTER);
    assert_true(fabs(found.ratio - 0.9) < 0.02 && fabs(found.usual - 1) < 0.02 && fabs(found.rival - 0.9) < 0.02);
}

static void times_that_are_none_are_no_verdict(void **state) {
    static const double bad[] = {0, -1, NAN, INFINITY};
    double usual[24], rival[24];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fill(usual, 24, 1, 0.01, 1);
        fill(rival, 24, 0.5, 0.01, 2);
        rival[i] = bad[i];
        assert_int_equal(verdict_of(usual, rival, 24).verdict, VERDICT_UNKNOWN);
        assert_int_equal(verdict_of(rival, usual, 24).verdict, VERDICT_UNKNOWN);
    }
    assert_string_equal(verdict_name(VERDICT_UNKNOWN), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_space_holds_what_the_library_names),
        cmocka_unit_test(every_parameter_is_declared),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(the_search_finds_the_floor_of_a_valley),
        cmocka_unit_test(a_search_is_repeatable_and_proposes_nothing_twice),
        cmocka_unit_test(a_small_space_is_searched_whole),
        cmocka_unit_test(given_points_come_first),
        cmocka_unit_test(only_what_is_faster_beyond_noise_is),
        cmocka_unit_test(a_few_disturbed_runs_change_nothing),
        cmocka_unit_test(times_that_are_none_are_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
