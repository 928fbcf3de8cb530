/* Gradients of softmax and log-softmax: known numbers, dtypes, axes, in place, lengths. */
#include "reference.h"
#include "row_ways.h"

#include <clattn/training.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    clattn_softmax_function function;
    double scale;
    int rank, axis;
    int64_t dims[CLATTN_MAX_RANK];
    clattn_dtype y_dtype, dy_dtype, dx_dtype;
    enum { APART, IN_Y, IN_DY } place;
    double *y, *dy;
};

static int64_t product(const int64_t *dims, int first, int end) {
    int64_t count = 1;
    for (int i = first; i < end; i++)
        count *= dims[i];
    return count;
}

static int64_t count_of(const struct problem *problem) {
    return product(problem->dims, 0, problem->rank);
}

/* Results of softmax over normal numbers, rounded to y's dtype, and normal gradients. */
static void fill(struct problem *problem) {
    const int64_t columns = problem->dims[problem->axis],
                  inner = product(problem->dims, problem->axis + 1, problem->rank);
    const int64_t rows = columns > 0 ? count_of(problem) / columns : 0;
    double *x = test_array(columns), *y = test_array(columns);
    problem->y = test_array(count_of(problem));
    problem->dy = test_array(count_of(problem));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            x[c] = 2 * reference_normal((uint64_t)(r * columns + c), 1);
        reference_softmax_row(problem->function, CLATTN_EMPTY_ROWS_NAN, columns, x, y, NULL);
        for (int64_t c = 0; c < columns; c++)
            problem->y[r / inner * inner * columns + c * inner + r % inner] = reference_round(problem->y_dtype, y[c]);
    }
    for (int64_t i = 0; i < count_of(problem); i++)
        problem->dy[i] = reference_round(problem->dy_dtype, reference_normal((uint64_t)i, 2));
    free(x);
    free(y);
}

static struct problem rows_of(clattn_softmax_function function, int64_t rows, int64_t columns) {
    struct problem problem = {.function = function,
                              .scale = 1,
                              .rank = 2,
                              .axis = 1,
                              .dims = {rows, columns},
                              .y_dtype = CLATTN_F32,
                              .dy_dtype = CLATTN_F32,
                              .dx_dtype = CLATTN_F32};
    fill(&problem);
    return problem;
}

static void release(struct problem *problem) {
    free(problem->y);
    free(problem->dy);
}

static double answer(const struct problem *problem, double *want) {
    const int64_t columns = problem->dims[problem->axis],
                  inner = product(problem->dims, problem->axis + 1, problem->rank);
    double *lines = test_array(4 * columns), *plain = test_array(count_of(problem));
    for (int64_t r = 0; columns > 0 && r < count_of(problem) / columns; r++) {
        const int64_t first = r / inner * inner * columns + r % inner;
        for (int64_t c = 0; c < columns; c++) {
            lines[c] = problem->y[first + c * inner];
            lines[columns + c] = problem->dy[first + c * inner];
        }
        reference_softmax_backward_row(problem->function, problem->scale, columns, lines, lines + columns,
                                       lines + 2 * columns);
        plain_softmax_backward_row(problem->function, problem->dx_dtype, problem->scale, columns, lines,
                                   lines + columns, lines + 3 * columns);
        for (int64_t c = 0; c < columns; c++) {
            want[first + c * inner] = lines[2 * columns + c];
            plain[first + c * inner] = lines[3 * columns + c];
        }
    }
    const double error = reference_plain_error(count_of(problem), want, plain);
    free(lines);
    free(plain);
    return error;
}

struct run {
    clattn_softmax_backward_op op;
    struct test_tensor y, dy, dx;
};

static struct run begin(const struct problem *problem) {
    struct run run;
    run.y = test_input(problem->y_dtype, problem->rank, problem->dims, problem->y, NULL, (double)NAN);
    run.dy = test_input(problem->dy_dtype, problem->rank, problem->dims, problem->dy, NULL, (double)NAN);
    run.dx = test_output(problem->dx_dtype, problem->rank, problem->dims, NULL);
    clattn_softmax_backward_init(&run.op);
    run.op.function = problem->function;
    run.op.axis = problem->axis;
    run.op.scale = (float)problem->scale;
    run.op.y = run.y.view;
    run.op.dy = run.dy.view;
    run.op.dx = problem->place == IN_Y ? run.y.view : problem->place == IN_DY ? run.dy.view : run.dx.view;
    return run;
}

static void end(struct run *run) {
    test_release(&run->y);
    test_release(&run->dy);
    test_release(&run->dx);
}

static void run_way(const struct problem *problem, struct row_way way, double *dx) {
    struct run run = begin(problem);
    row_call(&run.op.head, way);
    test_read(problem->place == IN_Y ? &run.y : problem->place == IN_DY ? &run.dy : &run.dx, dx);
    if (problem->place == APART) {
        double *again = test_array(count_of(problem));
        row_call(&run.op.head, way);
        test_read(&run.dx, again);
        assert_memory_equal(dx, again, (size_t)count_of(problem) * sizeof *dx);
        test_untouched(&run.y, "y");
        test_untouched(&run.dy, "dy");
        free(again);
    }
    end(&run);
}

static bool next_way(const struct problem *problem, enum row_ways ways, size_t *index, struct row_way *way) {
    struct run run = begin(problem);
    const bool found = row_next_way(&run.op.head, ways, index, way);
    end(&run);
    return found;
}

static void check(const struct problem *problem, enum row_ways ways) {
    const int64_t count = count_of(problem);
    double *want = test_array(count), *dx = test_array(count);
    const double plain = answer(problem, want);
    struct row_way way;
    for (size_t index = 0; next_way(problem, ways, &index, &way);) {
        struct reference_error error = {0};
        run_way(problem, way, dx);
        reference_compare(&error, count, dx, want, plain, problem->dx_dtype);
        if (error.bad)
            fail_msg("function %d, %lld columns, %s (%s): dx[%lld] is %.9g, not %.9g (bound %.3g)",
                     (int)problem->function, (long long)problem->dims[problem->axis],
                     way.variant ? way.variant : "chosen", way.parameters ? way.parameters : "", (long long)error.index,
                     error.got, error.want, error.bound);
    }
    free(want);
    free(dx);
}

/* ---- A53 --------------------------------------------------------------------------------------------------------- */

static void expect(clattn_softmax_function function, int64_t columns, const double *y, const double *dy,
                   const double *want) {
    for (int place = APART; place <= IN_DY; place++) {
        struct problem problem = rows_of(function, 1, columns);
        double dx[8];
        struct row_way way;
        memcpy(problem.y, y, (size_t)columns * sizeof *y);
        memcpy(problem.dy, dy, (size_t)columns * sizeof *dy);
        problem.place = place;
        for (size_t index = 0; next_way(&problem, ROWS_VARIANTS, &index, &way);) {
            struct reference_error error = {0};
            run_way(&problem, way, dx);
            reference_compare_within(&error, columns, dx, want, 2e-5, 2e-5);
            assert_int_equal(error.bad, 0);
        }
        release(&problem);
    }
}

static void known_numbers_in_every_place(void **state) {
    const double y[] = {.090031, .244728, .665241}, dy[] = {1, 2, 4}, even[] = {.25, .25, .25, .25},
                 one[] = {1, 0, 0, 0};
    const double soft[] = {-0.201709, -0.303574, 0.505283}, logarithm[] = {0.369786, 0.286901, -0.656687},
                 quarter[] = {.1875, -.0625, -.0625, -.0625};
    double log_y[3];
    (void)state;
    for (int i = 0; i < 3; i++)
        log_y[i] = (double)(float)log(y[i]);
    expect(CLATTN_SOFTMAX, 3, y, dy, soft);
    expect(CLATTN_LOG_SOFTMAX, 3, log_y, dy, logarithm);
    expect(CLATTN_SOFTMAX, 4, even, one, quarter);
}

/* ---- against the oracle ------------------------------------------------------------------------------------------ */

static void lengths_by_every_way(void **state) {
    static const int64_t lengths[] = {1, 33, 200, 1000, 4097, 20000};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int f = CLATTN_SOFTMAX; f <= CLATTN_LOG_SOFTMAX; f++) {
            struct problem problem = rows_of((clattn_softmax_function)f, 3, lengths[i]);
            problem.scale = i == 1 ? 0.125 : 1;
            check(&problem, lengths[i] == 200 || lengths[i] == 4097 ? ROWS_EVERY_WAY : ROWS_CHOSEN);
            release(&problem);
        }
}

static void mixed_dtypes(void **state) {
    static const clattn_dtype mixes[][3] = {{CLATTN_F16, CLATTN_F16, CLATTN_F16},
                                            {CLATTN_BF16, CLATTN_BF16, CLATTN_BF16},
                                            {CLATTN_F16, CLATTN_F32, CLATTN_BF16}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct problem problem = {.function = CLATTN_SOFTMAX,
                                  .scale = 1,
                                  .rank = 2,
                                  .axis = 1,
                                  .dims = {3, 200},
                                  .y_dtype = mixes[i][0],
                                  .dy_dtype = mixes[i][1],
                                  .dx_dtype = mixes[i][2]};
        fill(&problem);
        check(&problem, i == 0 ? ROWS_VARIANTS : ROWS_CHOSEN);
        release(&problem);
    }
}

static void every_axis(void **state) {
    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        struct problem problem = {.function = CLATTN_LOG_SOFTMAX,
                                  .scale = 1,
                                  .rank = 4,
                                  .axis = axis,
                                  .dims = {3, 4, 5, 7},
                                  .y_dtype = CLATTN_F32,
                                  .dy_dtype = CLATTN_F32,
                                  .dx_dtype = CLATTN_F32};
        fill(&problem);
        check(&problem, ROWS_CHOSEN);
        release(&problem);
    }
}

static void no_rows_no_columns(void **state) {
    (void)state;
    struct problem no_rows = rows_of(CLATTN_SOFTMAX, 0, 5), no_columns = rows_of(CLATTN_SOFTMAX, 3, 0);
    check(&no_rows, ROWS_CHOSEN);
    check(&no_columns, ROWS_CHOSEN);
    release(&no_rows);
    release(&no_columns);
}

static void refuse(const clattn_softmax_backward_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    (void)state;
    struct problem problem = rows_of(CLATTN_SOFTMAX, 3, 10);
    struct run run = begin(&problem);
    clattn_softmax_backward_op op;
    CHECK(clattn_supported(device.clattn, &run.op.head, NULL));
    op = run.op, op.function = CLATTN_LOG_SUM_EXP, refuse(&op, "function = 2");
    op = run.op, op.scale = NAN, refuse(&op, "scale = ");
    op = run.op, op.axis = 2, refuse(&op, "axis = 2");
    op = run.op, op.y.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "y is absent");
    op = run.op, op.dy.dims[1] = 9, refuse(&op, "dy: dims[1] = 9");
    op = run.op, op.dx.strides[0] = 0, refuse(&op, "dx is written");
    op = run.op, op.dx = run.y.view, op.dx.offset++, refuse(&op, "dx overlaps y");
    op = run.op, op.head.size = 16, refuse(&op, "size is 16");
    end(&run);
    release(&problem);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_numbers_in_every_place),
        cmocka_unit_test(lengths_by_every_way),
        cmocka_unit_test(mixed_dtypes),
        cmocka_unit_test(every_axis),
        cmocka_unit_test(no_rows_no_columns),
        cmocka_unit_test(bad_arguments),
    };
    return support_main("softmax backward", tests, sizeof tests / sizeof tests[0]);
}
