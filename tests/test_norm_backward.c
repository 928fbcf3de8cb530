/* Gradients of RMSNorm and LayerNorm: known numbers, dtypes, optional operands, in place, few and many rows. */
#include "reference.h"
#include "row_ways.h"

#include <clattn/training.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    struct reference_norm norm;
    int rank;
    int64_t dims[CLATTN_MAX_RANK];
    clattn_dtype x_dtype, dy_dtype, weight_dtype, out_dtype;
    bool with_weight, with_dsum, with_dweight, with_dbias;
    enum { APART, IN_X, IN_DY, IN_DSUM } place;
    double *x, *dy, *dsum, *weight;
};

static int64_t rows_of(const struct problem *problem) {
    int64_t rows = 1;
    for (int i = 0; i < problem->rank - 1; i++)
        rows *= problem->dims[i];
    return rows;
}

static int64_t count_of(const struct problem *problem) {
    return rows_of(problem) * problem->norm.columns;
}

static double *normals(int64_t count, uint64_t seed, double middle, double spread) {
    double *values = test_array(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(float)(middle + spread * reference_normal((uint64_t)i, seed));
    return values;
}

static struct problem problem_of(clattn_norm_function function, int64_t rows, int64_t columns) {
    return (struct problem){.norm = {.function = function, .eps = 1e-5, .columns = columns},
                            .rank = 2,
                            .dims = {rows, columns},
                            .x_dtype = CLATTN_F32,
                            .dy_dtype = CLATTN_F32,
                            .weight_dtype = CLATTN_F32,
                            .out_dtype = CLATTN_F32,
                            .with_weight = true,
                            .with_dweight = true,
                            .with_dbias = function == CLATTN_LAYER_NORM,
                            .x = normals(rows * columns, 1, 0.5, 2),
                            .dy = normals(rows * columns, 2, 0, 1),
                            .dsum = normals(rows * columns, 3, 0, 1),
                            .weight = normals(columns, 4, 1, 0.5)};
}

static void release(struct problem *problem) {
    free(problem->x);
    free(problem->dy);
    free(problem->dsum);
    free(problem->weight);
}

static void round_all(double *values, int64_t count, clattn_dtype dtype) {
    for (int64_t i = 0; i < count; i++)
        values[i] = reference_round(dtype, values[i]);
}

static void set_dtypes(struct problem *problem, clattn_dtype x, clattn_dtype dy, clattn_dtype weight,
                       clattn_dtype out) {
    problem->x_dtype = x;
    problem->dy_dtype = dy;
    problem->weight_dtype = weight;
    problem->out_dtype = out;
    round_all(problem->x, count_of(problem), x);
    round_all(problem->dy, count_of(problem), dy);
    round_all(problem->dsum, count_of(problem), dy);
    round_all(problem->weight, problem->norm.columns, weight);
}

/* ---- what is right ----------------------------------------------------------------------------------------------- */

struct results {
    double *dx, *dweight, *dbias;
};

static struct results results_of(const struct problem *problem) {
    return (struct results){test_array(count_of(problem)), test_array(problem->norm.columns),
                            test_array(problem->norm.columns)};
}

static void free_results(struct results *results) {
    free(results->dx);
    free(results->dweight);
    free(results->dbias);
}

static void answer(const struct problem *problem, struct results *want, struct results *plain) {
    struct reference_norm norm = problem->norm;
    const int64_t columns = norm.columns;
    norm.weight = problem->with_weight ? problem->weight : NULL;
    for (int64_t at = 0; at < count_of(problem); at += columns) {
        reference_norm_backward_row(&norm, problem->x + at, problem->dy + at, want->dx + at, want->dweight,
                                    want->dbias);
        plain_norm_backward_row(&norm, problem->out_dtype, problem->x + at, problem->dy + at, plain->dx + at,
                                plain->dweight, plain->dbias);
        for (int64_t i = at; problem->with_dsum && i < at + columns; i++) {
            want->dx[i] += problem->dsum[i];
            plain->dx[i] = reference_round(problem->out_dtype, plain->dx[i] + problem->dsum[i]);
        }
    }
    round_all(plain->dweight, columns, problem->out_dtype);
    round_all(plain->dbias, columns, problem->out_dtype);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct run {
    clattn_norm_backward_op op;
    struct test_tensor x, dy, dsum, weight, dx, dweight, dbias;
};

static struct run begin(const struct problem *problem) {
    struct run run;
    const int64_t columns = problem->norm.columns;
    run.x = test_input(problem->x_dtype, problem->rank, problem->dims, problem->x, NULL, (double)NAN);
    run.dy = test_input(problem->dy_dtype, problem->rank, problem->dims, problem->dy, NULL, (double)NAN);
    run.dsum = test_input(problem->dy_dtype, problem->rank, problem->dims, problem->dsum, NULL, (double)NAN);
    run.weight = test_input(problem->weight_dtype, 1, &columns, problem->weight, NULL, (double)NAN);
    run.dx = test_output(problem->out_dtype, problem->rank, problem->dims, NULL);
    run.dweight = test_output(problem->out_dtype, 1, &columns, NULL);
    run.dbias = test_output(problem->out_dtype, 1, &columns, NULL);
    clattn_norm_backward_init(&run.op);
    run.op.function = problem->norm.function;
    run.op.one_plus_weight = problem->norm.one_plus_weight;
    run.op.eps = (float)problem->norm.eps;
    run.op.x = run.x.view;
    run.op.dy = run.dy.view;
    const clattn_tensor places[] = {run.dx.view, run.x.view, run.dy.view, run.dsum.view};
    run.op.dx = places[problem->place];
    if (problem->with_weight)
        run.op.weight = run.weight.view;
    if (problem->with_dsum)
        run.op.dsum = run.dsum.view;
    if (problem->with_dweight)
        run.op.dweight = run.dweight.view;
    if (problem->with_dbias)
        run.op.dbias = run.dbias.view;
    return run;
}

static void end(struct run *run) {
    test_release(&run->x);
    test_release(&run->dy);
    test_release(&run->dsum);
    test_release(&run->weight);
    test_release(&run->dx);
    test_release(&run->dweight);
    test_release(&run->dbias);
}

static void read_results(const struct problem *problem, const struct run *run, struct results *got) {
    const struct test_tensor *places[] = {&run->dx, &run->x, &run->dy, &run->dsum};
    test_read(places[problem->place], got->dx);
    if (problem->with_dweight)
        test_read(&run->dweight, got->dweight);
    if (problem->with_dbias)
        test_read(&run->dbias, got->dbias);
}

static void run_way(const struct problem *problem, struct row_way way, struct results *got) {
    struct run run = begin(problem);
    row_call(&run.op.head, way);
    read_results(problem, &run, got);
    if (problem->place == APART) {
        struct results again = results_of(problem);
        row_call(&run.op.head, way);
        read_results(problem, &run, &again);
        assert_memory_equal(got->dx, again.dx, (size_t)count_of(problem) * sizeof(double));
        assert_memory_equal(got->dweight, again.dweight, (size_t)problem->norm.columns * sizeof(double));
        assert_memory_equal(got->dbias, again.dbias, (size_t)problem->norm.columns * sizeof(double));
        test_untouched(&run.x, "x");
        test_untouched(&run.dy, "dy");
        test_untouched(&run.dsum, "dsum");
        free_results(&again);
    }
    test_untouched(&run.weight, "weight");
    end(&run);
}

static bool next_way(const struct problem *problem, enum row_ways ways, size_t *index, struct row_way *way) {
    struct run run = begin(problem);
    const bool found = row_next_way(&run.op.head, ways, index, way);
    end(&run);
    return found;
}

static bool accepts(const struct problem *problem, struct row_way way) {
    clattn_launch launch;
    struct run run = begin(problem);
    clattn_launch_init(&launch, device.queue);
    launch.variant = way.variant;
    launch.parameters = way.parameters;
    const clattn_status status = clattn_supported(device.clattn, &run.op.head, &launch);
    end(&run);
    if (status != CLATTN_UNSUPPORTED)
        CHECK(status);
    return status == CLATTN_SUCCESS;
}

static void compare(const struct problem *problem, struct row_way way, const char *what, int64_t count,
                    const double *got, const double *want, const double *plain) {
    struct reference_error error = {0};
    reference_compare(&error, count, got, want, reference_plain_error(count, want, plain), problem->out_dtype);
    if (error.bad)
        fail_msg("function %d, %lld x %lld, %s (%s): %s[%lld] is %.9g, not %.9g (bound %.3g)",
                 (int)problem->norm.function, (long long)rows_of(problem), (long long)problem->norm.columns,
                 way.variant ? way.variant : "chosen", way.parameters ? way.parameters : "", what,
                 (long long)error.index, error.got, error.want, error.bound);
}

static void compare_all(const struct problem *problem, struct row_way way, const struct results *want,
                        const struct results *plain) {
    struct results got = results_of(problem);
    run_way(problem, way, &got);
    compare(problem, way, "dx", count_of(problem), got.dx, want->dx, plain->dx);
    if (problem->with_dweight)
        compare(problem, way, "dweight", problem->norm.columns, got.dweight, want->dweight, plain->dweight);
    if (problem->with_dbias)
        compare(problem, way, "dbias", problem->norm.columns, got.dbias, want->dbias, plain->dbias);
    free_results(&got);
}

/* The ways that `ways` names, and those of the list that the device takes. */
static void check_with(const struct problem *problem, enum row_ways ways, const struct row_way *list, size_t count) {
    struct results want = results_of(problem), plain = results_of(problem);
    struct row_way way;
    answer(problem, &want, &plain);
    for (size_t index = 0; next_way(problem, ways, &index, &way);)
        compare_all(problem, way, &want, &plain);
    for (size_t i = 0; i < count; i++)
        if (accepts(problem, list[i]))
            compare_all(problem, list[i], &want, &plain);
    free_results(&want);
    free_results(&plain);
}

static void check(const struct problem *problem, enum row_ways ways) {
    check_with(problem, ways, NULL, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A57: three dims, known numbers. */
static void more_than_two_axes(void **state) {
    static const double weight[] = {1, 2, .5, -1}, dweight[] = {2.297877, -0.817577, 2.299680, -0.954739},
                        dbias[] = {-0.578125, -2.281250, 1.781250, -0.203125},
                        first[] = {0.374079, -0.023172, -0.008230, -0.342677},
                        last[] = {0.292971, -1.767696, -0.264076, 1.738801};
    (void)state;
    struct problem problem = problem_of(CLATTN_LAYER_NORM, 6, 4);
    struct results got = results_of(&problem);
    struct row_way way;
    problem.rank = 3;
    memcpy(problem.dims, (const int64_t[]){2, 3, 4}, 3 * sizeof(int64_t));
    memcpy(problem.weight, weight, sizeof weight);
    for (uint32_t i = 0; i < 24; i++) {
        problem.x[i] = reference_u(i, 1);
        problem.dy[i] = reference_u(i, 2);
    }
    for (size_t index = 0; next_way(&problem, ROWS_VARIANTS, &index, &way);) {
        struct reference_error error = {0};
        run_way(&problem, way, &got);
        reference_compare_within(&error, 4, got.dweight, dweight, 2e-5, 2e-5);
        reference_compare_within(&error, 4, got.dbias, dbias, 2e-5, 2e-5);
        reference_compare_within(&error, 4, got.dx, first, 2e-5, 2e-5);
        reference_compare_within(&error, 4, got.dx + 20, last, 2e-5, 2e-5);
        assert_int_equal(error.bad, 0);
    }
    free_results(&got);
    release(&problem);
}

static void shapes_by_every_way(void **state) {
    static const int64_t shapes[][2] = {{1, 1}, {300, 33}, {70, 256}, {41, 1000}, {3, 5001}, {2, 20000}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int f = CLATTN_RMS_NORM; f <= CLATTN_LAYER_NORM; f++) {
            struct problem problem = problem_of((clattn_norm_function)f, shapes[i][0], shapes[i][1]);
            check(&problem, i == 2 || i == 3 ? ROWS_EVERY_WAY : ROWS_CHOSEN);
            release(&problem);
        }
}

/* A team's part of dweight and dbias in registers, and in local memory. */
static void places_of_sums(void **state) {
    static const struct row_way ways[] = {{"group", "group=64,vector=4,sums=1"}, {"group", "group=64,vector=4,sums=2"}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct problem problem = problem_of(CLATTN_LAYER_NORM, 41, 1000);
        problem.with_dweight = i != 1;
        problem.with_dbias = i != 2;
        check_with(&problem, ROWS_CHOSEN, ways, 2);
        release(&problem);
    }
}

static void mixed_dtypes(void **state) {
    static const clattn_dtype mixes[][4] = {{CLATTN_F16, CLATTN_F16, CLATTN_F16, CLATTN_F16},
                                            {CLATTN_BF16, CLATTN_BF16, CLATTN_F32, CLATTN_F32},
                                            {CLATTN_F32, CLATTN_F16, CLATTN_BF16, CLATTN_BF16}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct problem problem = problem_of(CLATTN_LAYER_NORM, 9, 200);
        problem.with_dsum = i > 0;
        set_dtypes(&problem, mixes[i][0], mixes[i][1], mixes[i][2], mixes[i][3]);
        check(&problem, i == 0 ? ROWS_VARIANTS : ROWS_CHOSEN);
        release(&problem);
    }
}

static void optional_operands_and_places(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct problem problem = problem_of(i & 1 ? CLATTN_LAYER_NORM : CLATTN_RMS_NORM, 5, 70);
        problem.place = i == 0 ? IN_X : i == 1 ? IN_DY : i == 2 ? IN_DSUM : APART;
        problem.with_weight = i != 3;
        problem.norm.one_plus_weight = i == 1;
        problem.with_dsum = i >= 2;
        problem.with_dweight = i != 0;
        problem.with_dbias = i == 3;
        check(&problem, ROWS_VARIANTS);
        release(&problem);
    }
}

static void no_rows_no_columns(void **state) {
    static const int64_t shapes[][2] = {{0, 5}, {3, 0}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct problem problem = problem_of(CLATTN_LAYER_NORM, shapes[i][0], shapes[i][1]);
        struct run run = begin(&problem);
        double got[5];
        row_call(&run.op.head, (struct row_way){NULL, NULL});
        test_read(&run.dweight, got);
        for (int64_t c = 0; c < shapes[i][1]; c++)
            assert_true(isnan(got[c])); /* as it was */
        end(&run);
        release(&problem);
    }
}

static void refuse(const clattn_norm_backward_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    (void)state;
    struct problem problem = problem_of(CLATTN_LAYER_NORM, 3, 10);
    struct run run = begin(&problem);
    clattn_norm_backward_op op;
    CHECK(clattn_supported(device.clattn, &run.op.head, NULL));
    op = run.op, op.function = (clattn_norm_function)5, refuse(&op, "function = 5");
    op = run.op, op.dy.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "dy is absent");
    op = run.op, op.dx.dims[0] = 2, refuse(&op, "dx: dims[0] = 2");
    op = run.op, op.dweight.dims[0] = 3, refuse(&op, "dweight: dims[0] = 3");
    op = run.op, op.dweight = run.weight.view, refuse(&op, "dweight overlaps weight");
    op = run.op, op.dbias = run.dweight.view, refuse(&op, "dweight overlaps dbias");
    op = run.op, op.dx = run.x.view, op.dx.offset++, refuse(&op, "dx overlaps x");
    op = run.op, op.dx.strides[1] = 2, op.dx.dims[1] = 5, refuse(&op, "dx: dims[1] = 5");
    end(&run);
    release(&problem);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_two_axes),
        cmocka_unit_test(shapes_by_every_way),
        cmocka_unit_test(places_of_sums),
        cmocka_unit_test(mixed_dtypes),
        cmocka_unit_test(optional_operands_and_places),
        cmocka_unit_test(no_rows_no_columns),
        cmocka_unit_test(bad_arguments),
    };
    return support_main("norm backward", tests, sizeof tests / sizeof tests[0]);
}
