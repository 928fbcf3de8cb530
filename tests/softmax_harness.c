/* Runs softmax problems and compares. */
#include "softmax_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct softmax_problem softmax_of(int rank, const int64_t *dims, int axis) {
    struct softmax_problem problem = {
        .rank = rank, .axis = axis, .dtype = CLATTN_F32, .out_dtype = CLATTN_F32, .dims = {0}};
    memcpy(problem.dims, dims, (size_t)rank * sizeof dims[0]);
    problem.x = test_array(softmax_count(&problem));
    return problem;
}

struct softmax_problem softmax_rows(int64_t rows, int64_t columns) {
    const int64_t dims[] = {rows, columns};
    return softmax_of(2, dims, 1);
}

void softmax_free(struct softmax_problem *problem) {
    free(problem->x);
    problem->x = NULL;
}

void softmax_set_dtypes(struct softmax_problem *problem, clattn_dtype dtype, clattn_dtype out_dtype) {
    problem->dtype = dtype;
    problem->out_dtype = out_dtype;
    for (int64_t i = 0; i < softmax_count(problem); i++)
        problem->x[i] = reference_round(dtype, problem->x[i]);
}

void softmax_fill_normal(struct softmax_problem *problem, uint64_t seed, double spread) {
    for (int64_t i = 0; i < softmax_count(problem); i++)
        problem->x[i] = reference_round(problem->dtype, spread * reference_normal((uint64_t)i, seed));
}

static int64_t product(const int64_t *dims, int first, int end) {
    int64_t count = 1;
    for (int i = first; i < end; i++)
        count *= dims[i];
    return count;
}

static bool writes_row(const struct softmax_problem *problem) {
    return problem->function == CLATTN_SOFTMAX || problem->function == CLATTN_LOG_SOFTMAX;
}

int64_t softmax_count(const struct softmax_problem *problem) {
    return product(problem->dims, 0, problem->rank);
}

int64_t softmax_result_count(const struct softmax_problem *problem) {
    if (writes_row(problem))
        return softmax_count(problem);
    return product(problem->dims, 0, problem->axis) * product(problem->dims, problem->axis + 1, problem->rank);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The operation with its tensors on the device. */
struct run {
    clattn_softmax_op op;
    struct test_tensor x, y, l, mask, bias;
};

static void add_modifiers(const struct softmax_problem *problem, struct run *run) {
    run->mask = run->bias = (struct test_tensor){.buffer = NULL};
    if (problem->scale != 0)
        run->op.scale = (float)problem->scale;
    if (problem->mask != NULL) {
        run->mask = test_input(CLATTN_U8, problem->rank, problem->mask_dims, problem->mask, NULL, 7);
        run->op.mask = run->mask.view;
    }
    if (problem->bias != NULL) {
        run->bias =
            test_input(problem->bias_dtype, problem->rank, problem->bias_dims, problem->bias, NULL, (double)NAN);
        run->op.bias = run->bias.view;
    }
}

static struct run begin(const struct softmax_problem *problem) {
    struct run run;
    int64_t dims[CLATTN_MAX_RANK];
    memcpy(dims, problem->dims, sizeof dims);
    if (!writes_row(problem))
        dims[problem->axis] = 1;
    const bool state = problem->function == CLATTN_SOFTMAX_STATE;
    run.x = test_input(problem->dtype, problem->rank, problem->dims, problem->x, problem->x_layout, NAN);
    run.y = test_output(state ? CLATTN_F32 : problem->out_dtype, problem->rank, dims, problem->y_layout);
    run.l = test_output(CLATTN_F32, problem->rank, dims, NULL);
    clattn_softmax_init(&run.op);
    run.op.function = problem->function;
    run.op.empty_rows = problem->empty_rows;
    run.op.axis = problem->axis;
    run.op.x = run.x.view;
    add_modifiers(problem, &run);
    if (state) {
        run.op.m = run.y.view;
        run.op.l = run.l.view;
    } else {
        run.op.y = problem->in_place ? run.x.view : run.y.view;
    }
    return run;
}

static void end(struct run *run) {
    test_release(&run->x);
    test_release(&run->y);
    test_release(&run->l);
    if (run->mask.buffer != NULL)
        test_release(&run->mask);
    if (run->bias.buffer != NULL)
        test_release(&run->bias);
}

/* One call, with the exact workspace. */
static void call(const struct run *run, struct softmax_way way) {
    clattn_launch launch;
    size_t bytes = 0;
    cl_int code = CL_SUCCESS;
    clattn_launch_init(&launch, device.queue);
    launch.variant = way.variant;
    launch.parameters = way.parameters;
    CHECK(clattn_workspace_size(device.clattn, &run->op.head, &launch, &bytes));
    if (bytes > 0) {
        launch.workspace.buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
        support_expect_cl(code, "clCreateBuffer of the workspace");
        launch.workspace.size = bytes;
    }
    CHECK(clattn_softmax(device.clattn, &run->op, &launch));
    CHECK_CL(clFinish(device.queue));
    if (launch.workspace.buffer != NULL)
        clReleaseMemObject(launch.workspace.buffer);
}

static void read_results(const struct softmax_problem *problem, const struct run *run, double *result, double *l) {
    test_read(problem->in_place ? &run->x : &run->y, result);
    if (problem->function == CLATTN_SOFTMAX_STATE)
        test_read(&run->l, l);
}

/* The second run gives the same bits. */
static void same_bits(const struct softmax_problem *problem, struct softmax_way way, const double *a, const double *b) {
    const int64_t count = softmax_result_count(problem);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s (%s), function %d, dtypes %d and %d: rows of %lld: element %lld of %lld is %g, then %g",
                     way.variant, way.parameters != NULL ? way.parameters : "tuned", (int)problem->function,
                     (int)problem->dtype, (int)problem->out_dtype,
                     (long long)problem->dims[problem->axis < 0 ? problem->rank + problem->axis : problem->axis],
                     (long long)i, (long long)count, a[i], b[i]);
}

void softmax_run(const struct softmax_problem *problem, struct softmax_way way, double *result, double *l) {
    struct run run = begin(problem);
    call(&run, way);
    read_results(problem, &run, result, l);
    if (!problem->in_place) {
        double *again = test_array(softmax_result_count(problem)), *l_again = test_array(softmax_result_count(problem));
        call(&run, way);
        read_results(problem, &run, again, l_again);
        same_bits(problem, way, result, again);
        if (problem->function == CLATTN_SOFTMAX_STATE)
            same_bits(problem, way, l, l_again);
        test_untouched(&run.x, "x");
        free(again);
        free(l_again);
    }
    end(&run);
}

/* Small groups, so that devices of every kind can run them; scalars, so that alignment does not matter. */
static const struct softmax_way all_ways[] = {
    {NULL, NULL},
    {"subgroup", NULL},
    {"subgroup", "team=8,group=32,vector=1"},
    {"group", NULL},
    {"group", "group=64,vector=4"},
    {"split_tickets", NULL},
    {"split_tickets", "blocks=1,lag=1"},
    {"split_held", NULL},
    {"split_held", "packets=16"},
    {"split_held", "packets=16,local_packets=8"},
    {"split_held", "packets=2,local_packets=8"}, /* no more than there are */
    {"split_held", "group=64,packets=2,patience=1"},
    {"split_held", "group=64,packets=8,local_packets=4"},
    {"split", NULL},
    {"split", "group=64,vector=1"},
    {"online", NULL},
    {"online", "team=64,group=64"},
    {"three_pass", NULL},
    {"three_pass", "team=64,group=64"},
};

static bool accepts(const struct softmax_problem *problem, struct softmax_way way) {
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

static bool group_of_64(void) {
    size_t most = 0;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    return most >= 64;
}

bool softmax_next_way(const struct softmax_problem *problem, enum softmax_ways ways, size_t *index,
                      struct softmax_way *way) {
    while (*index < (ways == CHOSEN_WAY ? 1 : sizeof all_ways / sizeof all_ways[0])) {
        *way = all_ways[(*index)++];
        if (way->parameters != NULL && (ways != EVERY_WAY || !group_of_64()))
            continue;
        if (way->variant == NULL || accepts(problem, *way))
            return true;
    }
    return false;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef void row_function(const struct softmax_problem *problem, const double *x, double *result, double *l);

static void oracle_row(const struct softmax_problem *problem, const double *x, double *result, double *l) {
    reference_softmax_row(problem->function, problem->empty_rows, problem->dims[problem->axis], x, result, l);
}

static void plain_row(const struct softmax_problem *problem, const double *x, double *result, double *l) {
    plain_softmax_row(problem->function, problem->out_dtype, problem->dims[problem->axis], x, result, l);
}

/* Element `index` of x's dims in an array of those dims or 1. */
static double repeated(const struct softmax_problem *problem, const double *values, const int64_t *dims,
                       int64_t index) {
    int64_t at = 0, stride = 1;
    for (int d = problem->rank - 1; d >= 0; d--) {
        at += dims[d] == 1 ? 0 : index % problem->dims[d] * stride;
        index /= problem->dims[d];
        stride *= dims[d];
    }
    return values[at];
}

/* What is normalised. */
static double modified(const struct softmax_problem *problem, int64_t index) {
    double value = problem->x[index] * (problem->scale != 0 ? problem->scale : 1);
    if (problem->bias != NULL)
        value += repeated(problem, problem->bias, problem->bias_dims, index);
    const bool counts = problem->mask == NULL || repeated(problem, problem->mask, problem->mask_dims, index) != 0;
    return counts ? value : -(double)INFINITY;
}

/* Along the axis, row by row. */
static void for_rows(const struct softmax_problem *problem, row_function *function, double *result, double *l) {
    const int64_t columns = problem->dims[problem->axis];
    const int64_t inner = product(problem->dims, problem->axis + 1, problem->rank);
    const int64_t width = writes_row(problem) ? columns : 1;
    double *x = test_array(columns), *y = test_array(columns);
    for (int64_t r = 0; r < product(problem->dims, 0, problem->axis) * inner; r++) {
        const int64_t first = r / inner * inner, lane = r % inner;
        for (int64_t c = 0; c < columns; c++)
            x[c] = modified(problem, first * columns + c * inner + lane);
        function(problem, x, y, l + r);
        for (int64_t c = 0; c < width; c++)
            result[first * width + c * inner + lane] = y[c];
    }
    free(x);
    free(y);
}

static void fail_where_bad(const struct softmax_problem *problem, struct softmax_way way, const char *what,
                           const struct reference_error *error) {
    if (error->bad)
        fail_msg("function %d, dtype %d to %d, %lld columns, variant %s (%s): %s[%lld] is %.9g, not %.9g (bound %.3g)",
                 (int)problem->function, (int)problem->dtype, (int)problem->out_dtype,
                 (long long)problem->dims[problem->axis], way.variant ? way.variant : "chosen",
                 way.parameters ? way.parameters : "", what, (long long)error->index, error->got, error->want,
                 error->bound);
}

/* What is right, and how far off the plain version is. */
struct yardstick {
    double *result, *l, error, l_error;
};

static struct yardstick yardstick_of(const struct softmax_problem *problem) {
    const int64_t count = softmax_result_count(problem), columns = problem->dims[problem->axis];
    const int64_t rows = columns > 0 ? softmax_count(problem) / columns : count;
    double *plain = test_array(count), *plain_l = test_array(rows);
    struct yardstick yardstick = {.result = test_array(count), .l = test_array(rows)};
    for_rows(problem, oracle_row, yardstick.result, yardstick.l);
    for_rows(problem, plain_row, plain, plain_l);
    yardstick.error = reference_plain_error(count, yardstick.result, plain);
    yardstick.l_error = reference_plain_error(rows, yardstick.l, plain_l);
    free(plain);
    free(plain_l);
    return yardstick;
}

static void check_way(const struct softmax_problem *problem, struct softmax_way way, const struct yardstick *right) {
    const int64_t count = softmax_result_count(problem);
    const bool state = problem->function == CLATTN_SOFTMAX_STATE;
    double *result = test_array(count), *l = test_array(count);
    struct reference_error error = {0}, l_error = {0};
    softmax_run(problem, way, result, l);
    reference_compare(&error, count, result, right->result, right->error, state ? CLATTN_F32 : problem->out_dtype);
    fail_where_bad(problem, way, state ? "m" : "y", &error);
    if (state) {
        reference_compare(&l_error, count, l, right->l, right->l_error, CLATTN_F32);
        fail_where_bad(problem, way, "l", &l_error);
    }
    free(result);
    free(l);
}

void softmax_check_way(const struct softmax_problem *problem, struct softmax_way way) {
    struct yardstick right = yardstick_of(problem);
    check_way(problem, way, &right);
    free(right.result);
    free(right.l);
}

void softmax_check(const struct softmax_problem *problem, enum softmax_ways ways) {
    struct yardstick right = yardstick_of(problem);
    struct softmax_way way;
    for (size_t index = 0; softmax_next_way(problem, ways, &index, &way);)
        check_way(problem, way, &right);
    free(right.result);
    free(right.l);
}

void softmax_expect(const struct softmax_problem *problem, enum softmax_ways ways, const double *want, double absolute,
                    double relative) {
    const int64_t count = softmax_result_count(problem);
    double *result = test_array(count), *l = test_array(count);
    struct softmax_way way;
    for (size_t index = 0; softmax_next_way(problem, ways, &index, &way);) {
        struct reference_error error = {0};
        softmax_run(problem, way, result, l);
        reference_compare_within(&error, count, result, want, absolute, relative);
        fail_where_bad(problem, way, "y", &error);
    }
    free(result);
    free(l);
}
