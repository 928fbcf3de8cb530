/* Softmax's largest elements: order and ties, dtypes, axes, lengths, rows without an order. */
#include "reference.h"
#include "row_ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    int rank, axis, k;
    int64_t dims[CLATTN_MAX_RANK];
    clattn_dtype dtype, out_dtype;
    clattn_empty_rows empty_rows;
    bool without_lse;
    double *x;
};

static int64_t product(const int64_t *dims, int first, int end) {
    int64_t count = 1;
    for (int i = first; i < end; i++)
        count *= dims[i];
    return count;
}

static struct problem rows_of(int64_t rows, int64_t columns, int k) {
    struct problem problem = {.rank = 2,
                              .axis = 1,
                              .k = k,
                              .dims = {rows, columns},
                              .dtype = CLATTN_F32,
                              .out_dtype = CLATTN_F32,
                              .x = test_array(rows * columns)};
    for (int64_t i = 0; i < rows * columns; i++)
        problem.x[i] = (double)(float)(3 * reference_normal((uint64_t)i, 11));
    return problem;
}

/* ---- what is right ----------------------------------------------------------------------------------------------- */

struct results {
    double *values, *indices, *lse;
};

static struct results results_of(const struct problem *problem) {
    const int64_t rows = product(problem->dims, 0, problem->rank) / problem->dims[problem->axis];
    return (struct results){test_array(rows * problem->k), test_array(rows * problem->k), test_array(rows)};
}

static void free_results(struct results *results) {
    free(results->values);
    free(results->indices);
    free(results->lse);
}

/* Results of row r lie at [r / inner][i][r % inner]. */
static void answer(const struct problem *problem, struct results *want, struct results *plain) {
    const int64_t columns = problem->dims[problem->axis], k = problem->k;
    const int64_t inner = product(problem->dims, problem->axis + 1, problem->rank);
    double *x = test_array(columns), *values = test_array(2 * k), *indices = test_array(k);
    for (int64_t r = 0; r < product(problem->dims, 0, problem->rank) / columns; r++) {
        const int64_t block = r / inner * inner, lane = r % inner;
        for (int64_t c = 0; c < columns; c++)
            x[c] = problem->x[block * columns + c * inner + lane];
        reference_softmax_topk_row(problem->empty_rows, columns, problem->k, x, values, indices, &want->lse[r]);
        plain_softmax_topk_row(problem->out_dtype, columns, problem->k, x, indices, values + k, &plain->lse[r]);
        for (int64_t i = 0; i < k; i++) {
            want->values[block * k + i * inner + lane] = values[i];
            plain->values[block * k + i * inner + lane] = values[k + i];
            want->indices[block * k + i * inner + lane] = indices[i];
        }
    }
    free(x);
    free(values);
    free(indices);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct run {
    clattn_softmax_topk_op op;
    struct test_tensor x, values, indices, lse;
};

static struct run begin(const struct problem *problem) {
    struct run run;
    int64_t dims[CLATTN_MAX_RANK], single[CLATTN_MAX_RANK];
    memcpy(dims, problem->dims, sizeof dims);
    memcpy(single, problem->dims, sizeof single);
    dims[problem->axis] = problem->k;
    single[problem->axis] = 1;
    run.x = test_input(problem->dtype, problem->rank, problem->dims, problem->x, NULL, (double)NAN);
    run.values = test_output(problem->out_dtype, problem->rank, dims, NULL);
    run.indices = test_output(CLATTN_I32, problem->rank, dims, NULL);
    run.lse = test_output(CLATTN_F32, problem->rank, single, NULL);
    clattn_softmax_topk_init(&run.op);
    run.op.axis = problem->axis;
    run.op.k = problem->k;
    run.op.empty_rows = problem->empty_rows;
    run.op.x = run.x.view;
    run.op.values = run.values.view;
    run.op.indices = run.indices.view;
    if (!problem->without_lse)
        run.op.lse = run.lse.view;
    return run;
}

static void end(struct run *run) {
    test_release(&run->x);
    test_release(&run->values);
    test_release(&run->indices);
    test_release(&run->lse);
}

static void read_results(const struct problem *problem, const struct run *run, struct results *got) {
    test_read(&run->values, got->values);
    test_read(&run->indices, got->indices);
    if (!problem->without_lse)
        test_read(&run->lse, got->lse);
}

static const struct row_way ways[] = {{NULL, NULL}, {NULL, "group=64"}, {NULL, "group=128,vector=1"}};

/* Does the device take the way? */
static bool takes(const struct problem *problem, struct row_way way) {
    struct run run = begin(problem);
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    launch.parameters = way.parameters;
    const clattn_status status = clattn_supported(device.clattn, &run.op.head, &launch);
    end(&run);
    if (way.parameters == NULL)
        CHECK(status);
    return status == CLATTN_SUCCESS;
}

static void check_way(const struct problem *problem, struct row_way way, const struct results *want,
                      const struct results *plain) {
    const int64_t rows = product(problem->dims, 0, problem->rank) / problem->dims[problem->axis];
    const int64_t count = rows * problem->k;
    struct results got = results_of(problem), again = results_of(problem);
    struct reference_error values = {0}, indices = {0}, lse = {0};
    struct run run = begin(problem);
    row_call(&run.op.head, way);
    read_results(problem, &run, &got);
    row_call(&run.op.head, way);
    read_results(problem, &run, &again);
    assert_memory_equal(got.values, again.values, (size_t)count * sizeof(double));
    assert_memory_equal(got.indices, again.indices, (size_t)count * sizeof(double));
    test_untouched(&run.x, "x");
    end(&run);
    reference_compare_within(&indices, count, got.indices, want->indices, 0, 0);
    reference_compare(&values, count, got.values, want->values,
                      reference_plain_error(count, want->values, plain->values), problem->out_dtype);
    if (!problem->without_lse)
        reference_compare(&lse, rows, got.lse, want->lse, reference_plain_error(rows, want->lse, plain->lse),
                          CLATTN_F32);
    const struct reference_error *bad = indices.bad ? &indices : values.bad ? &values : &lse;
    if (bad->bad)
        fail_msg("k %d of %lld columns (%s): %s[%lld] is %.9g, not %.9g", problem->k,
                 (long long)problem->dims[problem->axis], way.parameters ? way.parameters : "chosen",
                 indices.bad  ? "indices"
                 : values.bad ? "values"
                              : "lse",
                 (long long)bad->index, bad->got, bad->want);
    free_results(&got);
    free_results(&again);
}

static void check(const struct problem *problem) {
    struct results want = results_of(problem), plain = results_of(problem);
    answer(problem, &want, &plain);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (takes(problem, ways[i]))
            check_way(problem, ways[i], &want, &plain);
    free_results(&want);
    free_results(&plain);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void lengths_and_counts(void **state) {
    static const struct {
        int64_t columns;
        int k;
    } cases[] = {{1, 1}, {5, 5}, {64, 8}, {128, 64}, {1000, 1}, {1025, 5}, {4097, 64}, {50257, 5}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct problem problem = rows_of(3, cases[i].columns, cases[i].k);
        check(&problem);
        free(problem.x);
    }
}

/* Equal elements, few distinct ones, and rows in order either way: the first index wins, and no tile has room for all
 * its candidates. */
static void ties_and_sorted_rows(void **state) {
    (void)state;
    struct problem problem = rows_of(4, 3000, 5);
    for (int64_t c = 0; c < 3000; c++) {
        problem.x[c] = 0.5;
        problem.x[3000 + c] = (double)(c * 7 % 3);
        problem.x[6000 + c] = (double)c / 64;
        problem.x[9000 + c] = -(double)c / 64;
    }
    check(&problem);
    problem.x[0] = -0.0;
    problem.x[1] = 0.0;
    for (int64_t c = 2; c < 3000; c++)
        problem.x[c] = -1;
    check(&problem); /* -0 and +0 are equal */
    free(problem.x);
}

static void rows_without_an_order(void **state) {
    (void)state;
    for (int empty = CLATTN_EMPTY_ROWS_NAN; empty <= CLATTN_EMPTY_ROWS_ZERO; empty++) {
        struct problem problem = rows_of(4, 300, 5);
        problem.empty_rows = (clattn_empty_rows)empty;
        for (int64_t c = 0; c < 300; c++)
            problem.x[c] = -INFINITY;
        problem.x[300 + 299] = (double)NAN;
        problem.x[600 + 7] = (double)INFINITY;
        for (int64_t c = 3; c < 300; c++)
            problem.x[900 + c] = -INFINITY; /* fewer finite elements than k */
        check(&problem);
        free(problem.x);
    }
}

static void dtypes_and_axes(void **state) {
    (void)state;
    for (int axis = 0; axis < 3; axis++) {
        struct problem problem = rows_of(6 * 7, 9, 4);
        problem.rank = 3;
        problem.axis = axis;
        problem.without_lse = axis == 1;
        memcpy(problem.dims, (const int64_t[]){6, 7, 9}, 3 * sizeof(int64_t));
        problem.dtype = axis == 0 ? CLATTN_F32 : axis == 1 ? CLATTN_F16 : CLATTN_BF16;
        problem.out_dtype = axis == 0 ? CLATTN_F16 : axis == 1 ? CLATTN_F32 : CLATTN_BF16;
        for (int64_t i = 0; i < 6 * 7 * 9; i++)
            problem.x[i] = reference_round(problem.dtype, problem.x[i]);
        check(&problem);
        free(problem.x);
    }
}

static void refuse(const clattn_softmax_topk_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    (void)state;
    struct problem problem = rows_of(3, 10, 2);
    struct run run = begin(&problem);
    clattn_softmax_topk_op op;
    op = run.op, op.k = 0, refuse(&op, "k = 0");
    op = run.op, op.k = 11, refuse(&op, "k = 11");
    op = run.op, op.k = 129, refuse(&op, "k = 129");
    op = run.op, op.k = 3, refuse(&op, "values: dims[1] = 2");
    op = run.op, op.axis = 2, refuse(&op, "axis = 2");
    op = run.op, op.empty_rows = (clattn_empty_rows)4, refuse(&op, "empty_rows = 4");
    op = run.op, op.indices.dtype = CLATTN_F32, refuse(&op, "indices: dtype is f32");
    op = run.op, op.lse.dims[0] = 2, refuse(&op, "lse: dims[0] = 2");
    op = run.op, op.values.memory.kind = CLATTN_MEMORY_NONE, refuse(&op, "values is absent");
    op = run.op, op.lse.memory.as.buffer = run.values.buffer, refuse(&op, "values overlaps lse");
    end(&run);
    free(problem.x);
}

static void no_rows(void **state) {
    (void)state;
    struct problem problem = rows_of(0, 10, 2);
    struct run run = begin(&problem);
    row_call(&run.op.head, (struct row_way){NULL, NULL});
    end(&run);
    free(problem.x);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_and_counts),    cmocka_unit_test(ties_and_sorted_rows),
        cmocka_unit_test(rows_without_an_order), cmocka_unit_test(dtypes_and_axes),
        cmocka_unit_test(bad_arguments),         cmocka_unit_test(no_rows),
    };
    return support_main("softmax top-k", tests, sizeof tests / sizeof tests[0]);
}
