/* Rotation of queries and keys and the append to a cache: styles, dtypes, layouts, lengths, pages, far positions, and
 * values on the device that are out of range. */
#include "reference.h"
#include "rope_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const clattn_rope_style styles[] = {CLATTN_ROPE_HALF_SPLIT, CLATTN_ROPE_INTERLEAVED};

/* ---- styles, dtypes, dims ---------------------------------------------------------------------------------------- */

static void both_styles_in_every_dtype(void **state) {
    static const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int s = 0; s < (t < 2 ? 2 : 1); s++) {
            struct rope_problem problem = rope_usual();
            problem.style = styles[s];
            rope_set_dtypes(&problem, dtypes[t], dtypes[t]);
            rope_check(&problem, s ? "interleaved" : "half-split");
            problem.in_place = true;
            rope_check(&problem, s ? "interleaved, in place" : "half-split, in place");
        }
}

static void every_tensor_in_a_dtype_of_its_own(void **state) {
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.q = CLATTN_BF16, problem.q_out = CLATTN_F32;
    problem.k = CLATTN_F16, problem.k_cache = CLATTN_BF16;
    problem.v = CLATTN_F32, problem.v_cache = CLATTN_F16;
    rope_check(&problem, "mixed dtypes");
}

/* Less than whole rows turn, rows are odd, and packets have one element. */
static void partial_and_odd_dims(void **state) {
    static const int64_t dims[][3] = {{64, 32, 48}, {64, 16, 7}, {13, 6, 5},    {13, 6, 1},
                                      {2, 2, 3},    {5, 0, 9},   {576, 64, 512}};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int s = 0; s < (i == 5 ? 1 : 2); s++) {
            char name[64];
            struct rope_problem problem = rope_usual();
            problem.head_dim = dims[i][0];
            problem.rotary_dim = (int32_t)dims[i][1];
            problem.value_dim = dims[i][2];
            problem.style = styles[s];
            snprintf(name, sizeof name, "dims %d, style %d", (int)dims[i][0], s);
            rope_check(&problem, name);
        }
}

static void each_part_alone(void **state) {
    static const int parts[] = {ROPE_Q, ROPE_V, ROPE_K | ROPE_V};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[32];
        struct rope_problem problem = rope_usual();
        problem.parts = parts[i];
        snprintf(name, sizeof name, "parts %d", parts[i]);
        rope_check(&problem, name);
    }
}

static void one_row_and_many(void **state) {
    static const double lengths[] = {700, 3};
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.rows = 1;
    rope_check(&problem, "one row");
    problem.rows = 300;
    problem.heads = 9; /* work-items take several */
    problem.cache_rows = 1000;
    problem.k_lengths = lengths;
    rope_check(&problem, "300 rows");
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

/* [B,N,H,D] of all, and rows that start anywhere. */
static void strided(void **state) {
    const struct test_layout q = {0, {5 * 256, 64, 256, 1}}, k = {0, {5 * 128, 64, 128, 1}};
    const struct test_layout v = {0, {5 * 96, 48, 96, 1}}, k_cache = {0, {11 * 128, 64, 128, 1}};
    const struct test_layout odd = {3, {2 * 11 * 70, 11 * 70, 70, 1}};
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.q_layout = &q, problem.k_layout = &k, problem.v_layout = &v, problem.k_cache_layout = &k_cache;
    problem.in_place = true;
    rope_check(&problem, "sequence first");
    problem.k_cache_layout = &odd;
    rope_check(&problem, "rows that are not aligned");
    rope_set_dtypes(&problem, CLATTN_F16, CLATTN_F16);
    rope_check(&problem, "rows that are not aligned, fp16");
}

/* q, k and v as one tensor of 3 x 2 heads, q turned where it lies, and k and v of the cache row by row in one
 * buffer. */
static void packed(void **state) {
    enum { ROWS = 4, HEADS = 2, D = 8, PITCH = 3 * HEADS * D, CACHE = 9 };
    const int64_t in_dims[] = {ROWS, PITCH}, cache_dims[] = {HEADS, CACHE, 2, D};
    const struct reference_rope rope = {CLATTN_ROPE_HALF_SPLIT, D, 10000, 1, NULL, NULL};
    double in[ROWS * PITCH], got[ROWS * PITCH], cached[HEADS * CACHE * 2 * D], want[D];
    (void)state;
    for (int i = 0; i < ROWS * PITCH; i++)
        in[i] = reference_u((uint32_t)i, 7);
    struct test_tensor qkv = test_input(CLATTN_F32, 2, in_dims, in, NULL, (double)NAN);
    struct test_tensor cache = test_output(CLATTN_F32, 4, cache_dims, NULL);
    clattn_rope_append_op op;
    clattn_rope_append_init(&op);
    op.q = qkv.view;
    op.q.rank = 4;
    memcpy(op.q.dims, (const int64_t[]){1, HEADS, ROWS, D}, sizeof op.q.dims);
    memcpy(op.q.strides, (const int64_t[]){ROWS * PITCH, D, PITCH, 1}, sizeof op.q.strides);
    op.q_out = op.k = op.v = op.q;
    op.k.offset += HEADS * D;
    op.v.offset += 2 * HEADS * D;
    op.k_cache = cache.view;
    memcpy(op.k_cache.dims, (const int64_t[]){1, HEADS, CACHE, D}, sizeof op.k_cache.dims);
    memcpy(op.k_cache.strides, (const int64_t[]){HEADS * CACHE * 2 * D, CACHE * 2 * D, 2 * D, 1},
           sizeof op.k_cache.strides);
    op.v_cache = op.k_cache;
    op.v_cache.offset += D;
    test_run(&op.head, NULL);
    test_read(&qkv, got);
    test_read(&cache, cached);
    for (int row = 0; row < ROWS; row++)
        for (int head = 0; head < HEADS; head++) {
            const int at = row * PITCH + head * D, to = (head * CACHE + row) * 2 * D;
            reference_rope_row(&rope, D, row, in + at, want);
            for (int i = 0; i < D; i++)
                assert_true(fabs(got[at + i] - want[i]) < 1e-6 &&
                            got[at + 2 * HEADS * D + i] == in[at + 2 * HEADS * D + i]);
            reference_rope_row(&rope, D, row, in + at + HEADS * D, want);
            for (int i = 0; i < D; i++)
                assert_true(fabs(cached[to + i] - want[i]) < 1e-6 && cached[to + D + i] == in[at + 2 * HEADS * D + i]);
        }
    test_release(&qkv);
    test_release(&cache);
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

static void positions_of_all_kinds(void **state) {
    static const double positions[] = {7, 7, 1, 0, 123456, -3, 4, 4, 4, 1048576}, offsets[] = {2, -1};
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.position_offsets = offsets;
    rope_check(&problem, "position offsets");
    problem.positions = positions;
    rope_check(&problem, "positions and offsets");
    problem.position_offsets = NULL;
    problem.scale = 0.25;
    rope_check(&problem, "positions, scaled");
    problem.scale = -1;
    rope_check(&problem, "positions, turned back");
    problem.scale = 0;
    rope_check(&problem, "no turn at all");
    problem.k_lengths = problem.positions = NULL;
    problem.scale = 1;
    problem.base = 1;
    rope_check(&problem, "an empty cache, one frequency");
    problem.base = 5e6;
    rope_check(&problem, "another base");
}

/* Sine and cosine themselves, as the elements of turned unit vectors, against long double. */
static void far_positions(void **state) {
    enum { PAIRS = 64, COUNT = 16 };
    static const double positions[COUNT] = {
        0,       1,       2,        3,         1000,      4095,       65535,      1048575,
        1048576, 1048577, 16777217, 123456789, 987654321, 2147483646, 2147483647, -2147483648.0};
    static const double bases[] = {10000, 500000, 1e7, 1.0};
    static double ones[COUNT * 2 * PAIRS], got[COUNT * 2 * PAIRS];
    const int64_t dims[] = {1, 1, COUNT, 2 * PAIRS}, position_dims[] = {1, COUNT};
    double worst = 0;
    (void)state;
    for (int i = 0; i < COUNT * 2 * PAIRS; i++)
        ones[i] = i % (2 * PAIRS) < PAIRS;
    struct test_tensor q = test_input(CLATTN_F32, 4, dims, ones, NULL, 0), out = test_output(CLATTN_F32, 4, dims, NULL);
    struct test_tensor at = test_input(CLATTN_I32, 2, position_dims, positions, NULL, 0);
    clattn_rope_append_op op;
    clattn_rope_append_init(&op);
    op.q = q.view;
    op.q_out = out.view;
    op.positions = at.view;
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        op.rope_base = bases[b];
        test_run(&op.head, NULL);
        test_read(&out, got);
        for (int row = 0; row < COUNT; row++)
            for (int pair = 0; pair < PAIRS; pair++) {
                const long double angle =
                    (long double)positions[row] * powl((long double)bases[b], -(long double)pair / PAIRS);
                worst = fmax(worst, fabs((double)((long double)got[row * 2 * PAIRS + pair] - cosl(angle))));
                worst = fmax(worst, fabs((double)((long double)got[row * 2 * PAIRS + PAIRS + pair] - sinl(angle))));
            }
    }
    printf("sine and cosine are off by at most %.3g\n", worst);
    assert_true(worst < 2e-7);
    test_release(&q);
    test_release(&out);
    test_release(&at);
}

static void given_tables(void **state) {
    static const double positions[] = {7, 7, 1, 0, 8, 3, 4, 4, 9, 2},
                        outside[] = {7, 10, 1, -1, 8, 3, 2147483647, 4, 9, -2147483648.0};
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.table_rows = 10;
    rope_check(&problem, "tables");
    problem.positions = positions;
    rope_check(&problem, "tables and positions");
    problem.positions = outside;
    rope_check(&problem, "positions that tables do not have");
    problem.style = CLATTN_ROPE_INTERLEAVED;
    problem.positions = positions;
    problem.cos = CLATTN_F16, problem.sin = CLATTN_BF16;
    problem.rotary_dim = 32;
    rope_check(&problem, "tables of 16 bits");
}

/* ---- where rows go ----------------------------------------------------------------------------------------------- */

static void new_rows_one_behind_the_other(void **state) {
    static const double offsets[] = {1, 4, 4, 9, 10}, lengths[] = {2, 5, 0, 10}, new_lengths[] = {2, 1, 4, 1};
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.batch = 1;
    problem.rows = 12;
    problem.sequences = 4;
    problem.q_offsets = offsets;
    problem.k_lengths = lengths;
    rope_check(&problem, "ragged");
    problem.q_lengths = new_lengths;
    rope_check(&problem, "ragged with lengths");
    problem.k_lengths = NULL;
    rope_check(&problem, "ragged into an empty cache");
}

static void pages(void **state) {
    static const double table[] = {5, 2, 7, 0, 3, 6, 1, 4}, lengths[] = {6, 0}, offsets[] = {0, 2, 10};
    const struct test_layout tokens_first = {0, {4 * 128, 64, 128, 1}};
    (void)state;
    struct rope_problem problem = rope_usual();
    problem.cache_rows = 4, problem.pages = 8, problem.max_pages = 4;
    problem.page_table = table;
    problem.k_lengths = lengths;
    rope_check(&problem, "pages");
    problem.k_cache_layout = &tokens_first;
    rope_check(&problem, "pages, tokens first");
    problem.batch = 1, problem.rows = 10, problem.sequences = 2;
    problem.q_offsets = offsets;
    rope_check(&problem, "pages, ragged");
    problem.k_cache_layout = NULL;
    problem.cache_rows = 1;
    problem.max_pages = 4;
    rope_check(&problem, "pages of one row, too few");
}

static void out_of_range_is_dropped(void **state) {
    static const double lengths[][2] = {{8, -1}, {11, 2147483647}, {-2147483648.0, 10}};
    static const double table[] = {8, -1, 7, 0, 2147483647, 6, 1, -2147483648.0};
    static const double paged_lengths[][2] = {{0, 2}, {15, 13}, {16, -3}, {2147483647, 2147483640}};
    static const double wild_offsets[] = {-5, 3, 100}, back[] = {4, 2, 0}, new_lengths[] = {-7, 2147483647};
    (void)state;
    struct rope_problem problem = rope_usual();
    for (int i = 0; i < 3; i++) {
        problem.k_lengths = lengths[i];
        rope_check(&problem, "lengths out of range");
    }
    problem.q_lengths = new_lengths;
    rope_check(&problem, "new lengths out of range");
    problem.q_lengths = NULL;
    problem.cache_rows = 4, problem.pages = 8, problem.max_pages = 4;
    problem.page_table = table;
    for (int i = 0; i < 4; i++) {
        problem.k_lengths = paged_lengths[i];
        rope_check(&problem, "pages out of range");
    }
    problem.batch = 1, problem.rows = 10, problem.sequences = 2;
    problem.k_lengths = lengths[0];
    problem.q_offsets = wild_offsets;
    rope_survive(&problem);
    problem.q_offsets = back;
    rope_survive(&problem);
}

/* ---- zero sizes, refusals ---------------------------------------------------------------------------------------- */

static void nothing_to_do(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct rope_problem problem = rope_usual();
        int64_t *const sizes[] = {&problem.batch, &problem.rows, &problem.heads, &problem.kv_heads,
                                  &problem.cache_rows};
        *sizes[i] = 0;
        problem.k_lengths = NULL;
        rope_check(&problem, "a size of 0");
    }
    struct rope_problem problem = rope_usual();
    problem.head_dim = 0;
    rope_check(&problem, "no head dim");
    problem.value_dim = 0;
    rope_check(&problem, "no dims at all");
    static const double no_offsets[] = {0};
    problem = rope_usual();
    problem.batch = 1, problem.sequences = 0;
    problem.q_offsets = no_offsets;
    problem.k_lengths = NULL;
    rope_check(&problem, "tokens of no sequence"); /* whatever lies behind the offsets is not read */
}

static void refuse(const clattn_rope_append_op *op, const char *word) {
    assert_int_equal(clattn_supported(device.clattn, &op->head, NULL), CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

struct good {
    struct test_tensor q, q_out, k, v, k_cache, v_cache, table, lengths, positions, offsets;
    clattn_rope_append_op op;
};

static struct test_tensor zeros(clattn_dtype dtype, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t dims[] = {a, b, c, d};
    static const double none[4096];
    return test_input(dtype, rank, dims, none, NULL, 0);
}

static void make_good(struct good *good) {
    good->q = zeros(CLATTN_F32, 4, 2, 4, 3, 8);
    good->q_out = zeros(CLATTN_F32, 4, 2, 4, 3, 8);
    good->k = zeros(CLATTN_F32, 4, 2, 2, 3, 8);
    good->v = zeros(CLATTN_F32, 4, 2, 2, 3, 6);
    good->k_cache = zeros(CLATTN_F32, 4, 2, 2, 9, 8);
    good->v_cache = zeros(CLATTN_F32, 4, 2, 2, 9, 6);
    good->table = zeros(CLATTN_F32, 2, 20, 4, 0, 0);
    good->lengths = zeros(CLATTN_I32, 1, 2, 0, 0, 0);
    good->positions = zeros(CLATTN_I32, 2, 2, 3, 0, 0);
    good->offsets = zeros(CLATTN_I32, 1, 3, 0, 0, 0);
    clattn_rope_append_init(&good->op);
    good->op.q = good->q.view;
    good->op.q_out = good->q_out.view;
    good->op.k = good->k.view;
    good->op.v = good->v.view;
    good->op.k_cache = good->k_cache.view;
    good->op.v_cache = good->v_cache.view;
    good->op.cos = good->op.sin = good->table.view;
    good->op.k_lengths = good->op.q_lengths = good->op.position_offsets = good->lengths.view;
    good->op.page_table = good->op.positions = good->positions.view;
}

static void release_good(struct good *good) {
    struct test_tensor *const tensors[] = {&good->q,         &good->q_out,   &good->k,     &good->v,
                                           &good->k_cache,   &good->v_cache, &good->table, &good->lengths,
                                           &good->positions, &good->offsets};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        test_release(tensors[i]);
}

#define BAD(change, word) op = good.op, change, refuse(&op, word)
#define ABSENT(member) op.member.memory.kind = CLATTN_MEMORY_NONE

static void bad_tensors(void **state) {
    (void)state;
    struct good good;
    clattn_rope_append_op op;
    make_good(&good);
    CHECK(clattn_supported(device.clattn, &good.op.head, NULL));
    BAD(ABSENT(q), "q is absent, but q_out is given");
    BAD(ABSENT(q_out), "q_out is absent, but q is given");
    BAD(ABSENT(k), "k is absent, but k_cache is given");
    BAD(ABSENT(v_cache), "v_cache is absent, but v is given");
    BAD(ABSENT(sin), "sin is absent, but cos is given");
    op = good.op, ABSENT(q), ABSENT(q_out), ABSENT(k), ABSENT(k_cache), ABSENT(v), ABSENT(v_cache);
    refuse(&op, "q, k and v are absent");
    BAD(op.q.dtype = CLATTN_U8, "q: dtype is u8");
    BAD(op.k.dtype = CLATTN_I8, "k: dtype is i8");
    BAD(op.q.rank = 3, "q: rank is 3");
    BAD(op.k.dims[0] = 1, "k: dims[0] = 1");
    BAD(op.v.dims[2] = 2, "v: dims[2] = 2");
    BAD(op.v.dims[1] = 1, "v: dims[1] = 1");
    BAD(op.k.dims[3] = 7, "k: dims[3] = 7");
    BAD(op.q_out.dims[1] = 3, "q_out: dims[1] = 3");
    BAD(op.q.strides[3] = 2, "q");
    BAD((op.v.dims[3] = op.v_cache.dims[3] = 3, op.v_cache.strides[3] = 2), "v_cache: strides[3] = 2");
    BAD(op.k_cache.dims[1] = 1, "k_cache: dims[1] = 1");
    BAD(op.k_cache.dims[3] = 6, "k_cache: dims[3] = 6");
    BAD(op.v_cache.dims[0] = 1, "v_cache: dims[0] = 1");
    BAD(op.v_cache.dims[2] = 8, "v_cache: dims[2] = 8");
    BAD((op.k_cache.dims[2] = 0, op.v_cache.dims[2] = 0), "k_cache: dims[2] = 0");
    BAD((ABSENT(page_table), op.k_cache.dims[0] = 1), "k_cache: dims[0] = 1");
    BAD(op.k_cache.strides[2] = 4, "k_cache is written");
    BAD(op.k_cache.offset = 100000, "k_cache");
    BAD(op.cos.dtype = CLATTN_I32, "cos: dtype is i32");
    BAD(op.sin.rank = 1, "sin: rank is 1");
    BAD(op.sin.dims[0] = 19, "sin: dims[0] = 19");
    BAD(op.cos.dims[1] = 3, "cos: dims[1] = 3");
    BAD(op.q_out = op.k_cache, "q_out: dims[1]");
    BAD((op.v_cache.memory = op.k_cache.memory), "k_cache overlaps v_cache");
    BAD((op.q_out = op.q, op.q_out.offset += 8, op.q_out.dims[0] = op.q.dims[0]), "q_out");
    BAD((op.q_out.memory = op.k.memory, op.q_out.offset = 0, op.q.dims[1] = op.q_out.dims[1] = 1), "q_out overlaps k");
    release_good(&good);
}

static void bad_settings(void **state) {
    (void)state;
    struct good good;
    clattn_rope_append_op op;
    make_good(&good);
    BAD(op.k_lengths.dtype = CLATTN_F32, "k_lengths: dtype is f32");
    BAD(op.k_lengths.rank = 2, "k_lengths: rank is 2");
    BAD(op.q_lengths.dims[0] = 1, "q_lengths: dims[0] = 1");
    BAD(op.position_offsets.strides[0] = 0, "position_offsets: strides[0] = 0");
    BAD(op.positions.dims[1] = 2, "positions: dims[1] = 2");
    BAD(op.positions.rank = 1, "positions: rank is 1");
    BAD(op.page_table.dims[0] = 1, "page_table: dims[0] = 1");
    BAD(op.page_table.strides[1] = 0, "page_table: strides[1] = 0");
    BAD(op.q_offsets = good.offsets.view, "q: dims[0] = 2");
    BAD((op.q_offsets = good.offsets.view, op.q_offsets.dims[0] = 0), "q_offsets: dims[0] = 0");
    BAD((op.q_offsets = good.offsets.view, op.q_offsets.rank = 2), "q_offsets: rank is 2");
    BAD(op.style = (clattn_rope_style)2, "style = 2");
    BAD(op.rotary_dim = 3, "rotary_dim = 3");
    BAD(op.rotary_dim = -2, "rotary_dim = -2");
    BAD(op.rotary_dim = 10, "rotary_dim = 10");
    BAD(op.rotary_dim = 1026, "rotary_dim = 1026");
    ABSENT(cos), ABSENT(sin);
    good.op.cos.memory.kind = good.op.sin.memory.kind = CLATTN_MEMORY_NONE;
    BAD(op.rope_base = 0.5, "rope_base = 0.5");
    BAD(op.rope_base = (double)NAN, "rope_base = ");
    BAD(op.rope_base = (double)INFINITY, "rope_base = inf");
    BAD(op.frequency_scale = 4.5, "frequency_scale = 4.5");
    BAD(op.frequency_scale = (double)NAN, "frequency_scale = ");
    BAD(op.head.size = 8, "size is 8");
    release_good(&good);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_styles_in_every_dtype),
        cmocka_unit_test(every_tensor_in_a_dtype_of_its_own),
        cmocka_unit_test(partial_and_odd_dims),
        cmocka_unit_test(each_part_alone),
        cmocka_unit_test(one_row_and_many),
        cmocka_unit_test(strided),
        cmocka_unit_test(packed),
        cmocka_unit_test(positions_of_all_kinds),
        cmocka_unit_test(far_positions),
        cmocka_unit_test(given_tables),
        cmocka_unit_test(new_rows_one_behind_the_other),
        cmocka_unit_test(pages),
        cmocka_unit_test(out_of_range_is_dropped),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(bad_settings),
    };
    return support_main("rotate and append", tests, sizeof tests / sizeof tests[0]);
}
