/* See rope_harness.h. */
#include "rope_harness.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct rope_problem rope_usual(void) {
    static const double lengths[] = {3, 0};
    return (struct rope_problem){.parts = ROPE_QKV,
                                 .batch = 2,
                                 .rows = 5,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .value_dim = 48,
                                 .q = CLATTN_F32,
                                 .q_out = CLATTN_F32,
                                 .k = CLATTN_F32,
                                 .v = CLATTN_F32,
                                 .k_cache = CLATTN_F32,
                                 .v_cache = CLATTN_F32,
                                 .rotary_dim = -1,
                                 .base = 10000,
                                 .scale = 1,
                                 .cache_rows = 11,
                                 .k_lengths = lengths,
                                 .cos = CLATTN_F32,
                                 .sin = CLATTN_F32};
}

void rope_set_dtypes(struct rope_problem *problem, clattn_dtype in, clattn_dtype out) {
    problem->q = problem->k = problem->v = in;
    problem->q_out = problem->k_cache = problem->v_cache = out;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* An input of random values, and these as its dtype holds them. */
struct values {
    struct test_tensor tensor;
    double *is;
    int64_t dims[4], count;
};

static struct values random_values(clattn_dtype dtype, int rank, const int64_t *dims, const struct test_layout *layout,
                                   uint64_t seed) {
    struct values values = {.count = 1};
    for (int d = 0; d < rank; d++) {
        values.dims[d] = dims[d];
        values.count *= dims[d];
    }
    values.is = test_array(values.count);
    for (int64_t i = 0; i < values.count; i++)
        values.is[i] = reference_round(dtype, reference_normal((uint64_t)i, seed));
    values.tensor = test_input(dtype, rank, dims, values.is, layout, (double)NAN);
    return values;
}

static void release_values(struct values *values) {
    test_release(&values->tensor);
    free(values->is);
}

/* An output and what it should hold: NaN where nothing is written. */
struct result {
    struct test_tensor tensor;
    double *want, *plain, *got;
    int64_t dims[4], count;
};

static struct result result_of(clattn_dtype dtype, const int64_t *dims, const struct test_layout *layout) {
    struct result result = {.count = dims[0] * dims[1] * dims[2] * dims[3]};
    memcpy(result.dims, dims, sizeof result.dims);
    result.tensor = test_output(dtype, 4, dims, layout);
    result.want = test_array(result.count);
    result.plain = test_array(result.count);
    result.got = test_array(result.count);
    for (int64_t i = 0; i < result.count; i++)
        result.want[i] = result.plain[i] = (double)NAN;
    return result;
}

static void release_result(struct result *result) {
    test_release(&result->tensor);
    free(result->want);
    free(result->plain);
    free(result->got);
}

struct tensors {
    struct values q, k, v, cos, sin;
    struct result q_out, k_cache, v_cache;
    struct test_tensor ints[6];
    int int_count;
    clattn_rope_append_op op;
};

static clattn_tensor ints(struct tensors *tensors, int rank, int64_t first, int64_t second, const double *values) {
    const int64_t dims[] = {first, second};
    if (values == NULL)
        return (clattn_tensor){.rank = 0};
    struct test_tensor *tensor = &tensors->ints[tensors->int_count++];
    *tensor = test_input(CLATTN_I32, rank, dims, values, NULL, 1e9);
    return tensor->view;
}

static int64_t sequences_of(const struct rope_problem *problem) {
    return problem->q_offsets ? problem->sequences : problem->batch;
}

static int64_t rotary_dim_of(const struct rope_problem *problem) {
    return problem->rotary_dim < 0 ? problem->head_dim : problem->rotary_dim;
}

static void make_parts(const struct rope_problem *problem, struct tensors *tensors) {
    const int64_t first = problem->pages ? problem->pages : sequences_of(problem);
    const int64_t q[] = {problem->batch, problem->heads, problem->rows, problem->head_dim};
    const int64_t k[] = {problem->batch, problem->kv_heads, problem->rows, problem->head_dim};
    const int64_t v[] = {problem->batch, problem->kv_heads, problem->rows, problem->value_dim};
    const int64_t kc[] = {first, problem->kv_heads, problem->cache_rows, problem->head_dim};
    const int64_t vc[] = {first, problem->kv_heads, problem->cache_rows, problem->value_dim};
    tensors->q = random_values(problem->q, 4, q, problem->q_layout, 1);
    tensors->k = random_values(problem->k, 4, k, problem->k_layout, 2);
    tensors->v = random_values(problem->v, 4, v, problem->v_layout, 3);
    tensors->q_out = result_of(problem->q_out, q, problem->in_place ? problem->q_layout : NULL);
    tensors->k_cache = result_of(problem->k_cache, kc, problem->k_cache_layout);
    tensors->v_cache = result_of(problem->v_cache, vc, problem->v_cache_layout);
}

static void bind_parts(const struct rope_problem *problem, struct tensors *tensors) {
    clattn_rope_append_op *op = &tensors->op;
    if (problem->parts & ROPE_Q) {
        op->q = problem->in_place ? tensors->q_out.tensor.view : tensors->q.tensor.view;
        op->q_out = tensors->q_out.tensor.view;
    }
    if (problem->parts & ROPE_K) {
        op->k = tensors->k.tensor.view;
        op->k_cache = tensors->k_cache.tensor.view;
    }
    if (problem->parts & ROPE_V) {
        op->v = tensors->v.tensor.view;
        op->v_cache = tensors->v_cache.tensor.view;
    }
}

static void make_tables(const struct rope_problem *problem, struct tensors *tensors) {
    const int64_t dims[] = {problem->table_rows, rotary_dim_of(problem) / 2};
    if (problem->table_rows == 0)
        return;
    tensors->cos = random_values(problem->cos, 2, dims, NULL, 4);
    tensors->sin = random_values(problem->sin, 2, dims, NULL, 5);
    tensors->op.cos = tensors->cos.tensor.view;
    tensors->op.sin = tensors->sin.tensor.view;
}

static void make(const struct rope_problem *problem, struct tensors *tensors) {
    const int64_t sequences = sequences_of(problem);
    memset(tensors, 0, sizeof *tensors);
    clattn_rope_append_op *op = &tensors->op;
    clattn_rope_append_init(op);
    op->style = problem->style;
    op->rotary_dim = problem->rotary_dim;
    op->rope_base = problem->base;
    op->frequency_scale = problem->scale;
    make_parts(problem, tensors);
    bind_parts(problem, tensors);
    make_tables(problem, tensors);
    op->page_table = ints(tensors, 2, sequences, problem->max_pages, problem->page_table);
    op->k_lengths = ints(tensors, 1, sequences, 0, problem->k_lengths);
    op->q_lengths = ints(tensors, 1, sequences, 0, problem->q_lengths);
    op->q_offsets = ints(tensors, 1, sequences + 1, 0, problem->q_offsets);
    op->positions = ints(tensors, 2, problem->batch, problem->rows, problem->positions);
    op->position_offsets = ints(tensors, 1, sequences, 0, problem->position_offsets);
}

static void release(struct tensors *tensors) {
    release_values(&tensors->q);
    release_values(&tensors->k);
    release_values(&tensors->v);
    release_values(&tensors->cos);
    release_values(&tensors->sin);
    release_result(&tensors->q_out);
    release_result(&tensors->k_cache);
    release_result(&tensors->v_cache);
    for (int i = 0; i < tensors->int_count; i++)
        test_release(&tensors->ints[i]);
}

/* ---- what should come out ---------------------------------------------------------------------------------------- */

static struct reference_append append_of(const struct rope_problem *problem) {
    return (struct reference_append){.rows = problem->rows,
                                     .sequences = problem->sequences,
                                     .cache_rows = problem->cache_rows,
                                     .pages = problem->pages,
                                     .max_pages = problem->max_pages,
                                     .table_rows = problem->table_rows,
                                     .page_table = problem->page_table,
                                     .k_lengths = problem->k_lengths,
                                     .q_lengths = problem->q_lengths,
                                     .q_offsets = problem->q_offsets,
                                     .positions = problem->positions,
                                     .position_offsets = problem->position_offsets};
}

static void expect_row(const struct reference_rope *rope, const struct values *in, int64_t from, struct result *result,
                       int64_t to, int64_t position) {
    const int64_t columns = result->dims[3];
    reference_rope_row(rope, columns, position, in->is + from * columns, result->want + to * columns);
    plain_rope_row(rope, result->tensor.view.dtype, columns, position, in->is + from * columns,
                   result->plain + to * columns);
}

/* All heads of a token into a result at [first, head, row]. */
static void expect_heads(const struct reference_rope *rope, const struct values *in, int64_t batch, int64_t from,
                         struct result *result, int64_t first, int64_t row, int64_t position) {
    for (int64_t head = 0; first >= 0 && head < result->dims[1]; head++)
        expect_row(rope, in, (batch * in->dims[1] + head) * in->dims[2] + from, result,
                   (first * result->dims[1] + head) * result->dims[2] + row, position);
}

static void expect(const struct rope_problem *problem, struct tensors *tensors) {
    const struct reference_rope rope = {problem->style, rotary_dim_of(problem), problem->base,
                                        problem->scale, tensors->cos.is,        tensors->sin.is};
    const struct reference_rope still = {.rotary_dim = 0};
    const struct reference_append append = append_of(problem);
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t row = 0; row < problem->rows; row++) {
            const struct reference_new_row place = reference_append_locate(&append, batch, row);
            if (!place.exists)
                continue;
            expect_heads(&rope, &tensors->q, batch, row, &tensors->q_out, batch, row, place.position);
            expect_heads(&rope, &tensors->k, batch, row, &tensors->k_cache, place.page, place.row, place.position);
            expect_heads(&still, &tensors->v, batch, row, &tensors->v_cache, place.page, place.row, 0);
        }
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void compare(const char *name, const char *which, const struct result *result) {
    struct reference_error error = {0};
    reference_compare(&error, result->count, result->got, result->want,
                      reference_plain_error(result->count, result->want, result->plain), result->tensor.view.dtype);
    if (error.bad)
        fail_msg("%s: %s[%lld] is %.9g, not %.9g (bound %.3g; %lld are wrong)", name, which, (long long)error.index,
                 error.got, error.want, error.bound, (long long)error.bad);
}

static void check_result(const char *name, const char *which, bool present, struct result *result) {
    if (!present) {
        test_untouched(&result->tensor, which);
        return;
    }
    test_read(&result->tensor, result->got);
    compare(name, which, result);
}

/* In place, rows that are dropped keep their values. */
static void put_in_place(const struct rope_problem *problem, struct tensors *tensors) {
    struct result *out = &tensors->q_out;
    if (!problem->in_place)
        return;
    reference_scatter(&out->tensor.view, out->tensor.image, tensors->q.is);
    for (int64_t i = 0; i < out->count; i++)
        if (isnan(out->want[i]))
            out->want[i] = out->plain[i] = tensors->q.is[i];
}

static void run(struct tensors *tensors, const char *variant) {
    test_reset(&tensors->q_out.tensor);
    test_reset(&tensors->k_cache.tensor);
    test_reset(&tensors->v_cache.tensor);
    test_run(&tensors->op.head, variant);
}

static void expect_same(const struct result *result, const unsigned char *before) {
    unsigned char *bytes = test_bytes(&result->tensor);
    assert_memory_equal(bytes, before, result->tensor.bytes);
    free(bytes);
}

static void run_twice(struct tensors *tensors, const char *variant) {
    struct result *const results[] = {&tensors->q_out, &tensors->k_cache, &tensors->v_cache};
    unsigned char *before[3];
    run(tensors, variant);
    for (int i = 0; i < 3; i++)
        before[i] = test_bytes(&results[i]->tensor);
    run(tensors, variant);
    for (int i = 0; i < 3; i++) {
        expect_same(results[i], before[i]);
        free(before[i]);
    }
}

void rope_check(const struct rope_problem *problem, const char *name) {
    struct tensors tensors;
    size_t index = 0;
    make(problem, &tensors);
    expect(problem, &tensors);
    put_in_place(problem, &tensors);
    for (const char *variant; (variant = test_next_variant(&tensors.op.head, &index));) {
        run_twice(&tensors, variant);
        check_result(name, "q_out", problem->parts & ROPE_Q, &tensors.q_out);
        check_result(name, "k_cache", problem->parts & ROPE_K, &tensors.k_cache);
        check_result(name, "v_cache", problem->parts & ROPE_V, &tensors.v_cache);
    }
    release(&tensors);
}

void rope_survive(const struct rope_problem *problem) {
    struct tensors tensors;
    make(problem, &tensors);
    run(&tensors, NULL);
    test_read(&tensors.q_out.tensor, tensors.q_out.got);
    test_read(&tensors.k_cache.tensor, tensors.k_cache.got);
    test_read(&tensors.v_cache.tensor, tensors.v_cache.got);
    release(&tensors);
}
