/* Runs norms and compares. */
#include "norm_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t columns_of(const struct norm_problem *problem) {
    return problem->dims[problem->rank - 1];
}

static int64_t count_of(const struct norm_problem *problem) {
    int64_t count = 1;
    for (int i = 0; i < problem->rank; i++)
        count *= problem->dims[i];
    return count;
}

static void fill(double *values, int64_t count, uint64_t seed, double spread, double middle) {
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(float)(middle + spread * reference_normal((uint64_t)i, seed));
}

struct norm_problem norm_of(clattn_norm_function function, int64_t rows, int64_t columns) {
    struct norm_problem problem = {.function = function,
                                   .with_weight = true,
                                   .with_bias = true,
                                   .eps = 1e-5,
                                   .rank = 2,
                                   .dims = {rows, columns},
                                   .x_dtype = CLATTN_F32,
                                   .residual_dtype = CLATTN_F32,
                                   .weight_dtype = CLATTN_F32,
                                   .out_dtype = CLATTN_F32,
                                   .x = test_array(rows * columns),
                                   .residual = test_array(rows * columns),
                                   .weight = test_array(columns),
                                   .bias = test_array(columns)};
    fill(problem.x, rows * columns, 1, 2, 0.5);
    fill(problem.residual, rows * columns, 2, 1, 0);
    fill(problem.weight, columns, 3, 0.5, 1);
    fill(problem.bias, columns, 4, 1, 0);
    return problem;
}

void norm_free(struct norm_problem *problem) {
    free(problem->x);
    free(problem->residual);
    free(problem->weight);
    free(problem->bias);
}

static void round_all(double *values, int64_t count, clattn_dtype dtype) {
    for (int64_t i = 0; i < count; i++)
        values[i] = reference_round(dtype, values[i]);
}

void norm_set_dtypes(struct norm_problem *problem, clattn_dtype x, clattn_dtype residual, clattn_dtype weight,
                     clattn_dtype out) {
    problem->x_dtype = x;
    problem->residual_dtype = residual;
    problem->weight_dtype = weight;
    problem->out_dtype = out;
    round_all(problem->x, count_of(problem), x);
    round_all(problem->residual, count_of(problem), residual);
    round_all(problem->weight, columns_of(problem), weight);
    round_all(problem->bias, columns_of(problem), weight);
}

/* ---- what is right ----------------------------------------------------------------------------------------------- */

struct yardstick {
    double *y, *sum, error;
};

static struct yardstick yardstick_of(const struct norm_problem *problem) {
    const int64_t columns = columns_of(problem), count = count_of(problem);
    const struct reference_norm norm = {.function = problem->function,
                                        .one_plus_weight = problem->one_plus_weight,
                                        .eps = problem->eps,
                                        .columns = columns,
                                        .weight = problem->with_weight ? problem->weight : NULL,
                                        .bias = problem->with_bias ? problem->bias : NULL};
    struct yardstick right = {.y = test_array(count), .sum = test_array(count)};
    double *plain = test_array(count);
    for (int64_t i = 0; i < count; i++)
        right.sum[i] = problem->x[i] + (problem->with_residual ? problem->residual[i] : 0);
    for (int64_t at = 0; at < count; at += columns) {
        reference_norm_row(&norm, right.sum + at, right.y + at);
        plain_norm_row(&norm, problem->out_dtype, right.sum + at, plain + at);
    }
    right.error = reference_plain_error(count, right.y, plain);
    free(plain);
    return right;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct run {
    clattn_norm_op op;
    struct test_tensor x, residual, weight, bias, y, sum;
};

static struct run begin(const struct norm_problem *problem) {
    struct run run;
    const int64_t columns = columns_of(problem);
    run.x = test_input(problem->x_dtype, problem->rank, problem->dims, problem->x, problem->x_layout, (double)NAN);
    run.residual =
        test_input(problem->residual_dtype, problem->rank, problem->dims, problem->residual, NULL, (double)NAN);
    run.weight = test_input(problem->weight_dtype, 1, &columns, problem->weight, NULL, (double)NAN);
    run.bias = test_input(problem->weight_dtype, 1, &columns, problem->bias, NULL, (double)NAN);
    run.y = test_output(problem->out_dtype, problem->rank, problem->dims, problem->y_layout);
    run.sum = test_output(problem->out_dtype, problem->rank, problem->dims, NULL);
    clattn_norm_init(&run.op);
    run.op.function = problem->function;
    run.op.one_plus_weight = problem->one_plus_weight;
    run.op.eps = (float)problem->eps;
    run.op.x = run.x.view;
    run.op.y = problem->place == NORM_IN_X          ? run.x.view
               : problem->place == NORM_IN_RESIDUAL ? run.residual.view
                                                    : run.y.view;
    if (problem->with_residual)
        run.op.residual = run.residual.view;
    if (problem->with_sum) /* beside a y in place, in the other input */
        run.op.sum = problem->place == NORM_IN_X          ? run.residual.view
                     : problem->place == NORM_IN_RESIDUAL ? run.x.view
                                                          : run.sum.view;
    if (problem->with_weight)
        run.op.weight = run.weight.view;
    if (problem->with_bias)
        run.op.bias = run.bias.view;
    return run;
}

static void end(struct run *run) {
    test_release(&run->x);
    test_release(&run->residual);
    test_release(&run->weight);
    test_release(&run->bias);
    test_release(&run->y);
    test_release(&run->sum);
}

static void compare(const struct norm_problem *problem, struct row_way way, const char *what,
                    const struct reference_error *error) {
    if (error->bad)
        fail_msg("norm %d, dtypes %d %d %d %d, %lld columns, variant %s (%s): %s[%lld] is %.9g, not %.9g (bound %.3g)",
                 (int)problem->function, (int)problem->x_dtype, (int)problem->residual_dtype,
                 (int)problem->weight_dtype, (int)problem->out_dtype, (long long)columns_of(problem),
                 way.variant ? way.variant : "chosen", way.parameters ? way.parameters : "", what,
                 (long long)error->index, error->got, error->want, error->bound);
}

/* Where the results of a run lie. */
static const struct test_tensor *result_of(const struct norm_problem *problem, const struct run *run, bool sum) {
    if (problem->place == NORM_APART)
        return sum ? &run->sum : &run->y;
    return (problem->place == NORM_IN_X) == sum ? &run->residual : &run->x;
}

/* Runs it, twice unless in place; the bits must agree. */
static void run_way(const struct norm_problem *problem, struct row_way way, double *y, double *sum) {
    struct run run = begin(problem);
    const int64_t count = count_of(problem);
    row_call(&run.op.head, way);
    test_read(result_of(problem, &run, false), y);
    if (problem->with_sum)
        test_read(result_of(problem, &run, true), sum);
    if (problem->place == NORM_APART) {
        double *again = test_array(count);
        row_call(&run.op.head, way);
        test_read(&run.y, again);
        assert_memory_equal(y, again, (size_t)count * sizeof *y);
        test_untouched(&run.x, "x");
        test_untouched(&run.residual, "residual");
        free(again);
    }
    test_untouched(&run.weight, "weight");
    test_untouched(&run.bias, "bias");
    end(&run);
}

static bool next_way(const struct norm_problem *problem, enum row_ways ways, size_t *index, struct row_way *way) {
    struct run run = begin(problem);
    const bool found = row_next_way(&run.op.head, ways, index, way);
    end(&run);
    return found;
}

void norm_check(const struct norm_problem *problem, enum row_ways ways) {
    const int64_t count = count_of(problem);
    struct yardstick right = yardstick_of(problem);
    double *y = test_array(count), *sum = test_array(count);
    struct row_way way;
    for (size_t index = 0; next_way(problem, ways, &index, &way);) {
        struct reference_error error = {0}, sum_error = {0};
        run_way(problem, way, y, sum);
        reference_compare(&error, count, y, right.y, right.error, problem->out_dtype);
        compare(problem, way, "y", &error);
        if (problem->with_sum)
            reference_compare(&sum_error, count, sum, right.sum, 0, problem->out_dtype);
        compare(problem, way, "sum", &sum_error);
    }
    free(right.y);
    free(right.sum);
    free(y);
    free(sum);
}

void norm_expect(const struct norm_problem *problem, enum row_ways ways, const double *want, double absolute,
                 double relative) {
    const int64_t count = count_of(problem);
    double *y = test_array(count), *sum = test_array(count);
    struct row_way way;
    for (size_t index = 0; next_way(problem, ways, &index, &way);) {
        struct reference_error error = {0};
        run_way(problem, way, y, sum);
        reference_compare_within(&error, count, y, want, absolute, relative);
        compare(problem, way, "y", &error);
    }
    free(y);
    free(sum);
}
