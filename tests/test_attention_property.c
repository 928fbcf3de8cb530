/* Random problems: shapes, head maps, diagonals, layouts, offsets, broadcast, dtypes; every variant that accepts,
 * against the oracle. The seed is printed. Head dims come from a short list, because each is a program of its own. */
#include "attention_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS = 24 }; /* per dtype */

static uint64_t random_state;

/* Uniform in [low, high]. */
static int64_t pick(int64_t low, int64_t high) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (int64_t)((random_state >> 11) % (uint64_t)(high - low + 1));
}

/* The outer axes in any order, each with room to spare; the innermost dense. */
static struct test_layout random_layout(int rank, const int64_t *dims) {
    struct test_layout layout = {.offset = pick(0, 1) * pick(0, 40)};
    int order[CLATTN_MAX_RANK] = {0, 1, 2, 3};
    const int outer = rank == 4 ? 3 : rank;
    int64_t extent = 1;
    for (int i = outer - 1; i > 0; i--) {
        const int j = (int)pick(0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    if (rank == 4) {
        layout.strides[3] = 1;
        extent = dims[3];
    }
    for (int i = outer - 1; i >= 0; i--) {
        extent += pick(0, 2) == 0 ? pick(0, 9) : 0;
        layout.strides[order[i]] = extent;
        extent *= dims[order[i]];
    }
    return layout;
}

/* Repeats the first of an axis' slices over the others and gives the axis a stride of 0. */
static void broadcast(struct test_layout *layout, const int64_t *dims, double *values, int axis) {
    const int64_t rows = dims[2] * dims[3];
    layout->strides[axis] = 0;
    for (int64_t b = 0; b < dims[0]; b++)
        for (int64_t h = 0; h < dims[1]; h++) {
            const int64_t from = (axis == 0 ? 0 : b) * dims[1] + (axis == 1 ? 0 : h);
            memmove(values + (b * dims[1] + h) * rows, values + from * rows, (size_t)rows * sizeof *values);
        }
}

static struct attention_case random_case(clattn_dtype dtype) {
    /* Every variant at 64; one in turn elsewhere, see attention_next_variant(). */
    const int64_t head_dims[] = {dtype == CLATTN_F32 ? 64 : 48, dtype == CLATTN_F32 ? 40 : 48};
    static const int64_t groups[] = {1, 1, 2, 3, 7};
    struct attention_case c = {.name = "random"};
    c.batch = pick(1, 3);
    c.kv_heads = pick(1, 3);
    c.heads = c.kv_heads * groups[pick(0, 4)];
    c.nq = pick(0, 3) ? pick(1, 40) : pick(1, 150);
    c.nk = pick(0, 3) ? pick(0, 70) : pick(1, 300);
    c.head_dim = c.value_dim = head_dims[pick(0, 3) == 0];
    c.causal = (clattn_causal)pick(0, 2);
    c.has_diagonal = pick(0, 3) == 0;
    c.diagonal = pick(-c.nq - 5, c.nk + 5);
    c.has_scale = pick(0, 2) == 0;
    c.scale = (float)pick(-64, 64) / 256;
    return c;
}

static void trial(clattn_dtype dtype, int number) {
    const struct attention_case c = random_case(dtype);
    struct attention_data data = attention_data_random(&c, dtype, random_state);
    const int64_t o_dims[] = {c.batch, c.heads, c.nq, c.value_dim};
    struct test_layout q = random_layout(4, data.settings.q.dims), k = random_layout(4, data.settings.k.dims);
    struct test_layout v = random_layout(4, data.settings.v.dims), o = random_layout(4, o_dims);
    const struct test_layout lse = random_layout(3, o_dims);
    char name[256];
    if (pick(0, 4) == 0)
        broadcast(&k, data.settings.k.dims, data.k, (int)pick(0, 1));
    if (pick(0, 4) == 0)
        broadcast(&v, data.settings.v.dims, data.v, (int)pick(0, 1));
    if (pick(0, 4) == 0)
        broadcast(&q, data.settings.q.dims, data.q, (int)pick(0, 1));
    data.layout_q = &q;
    data.layout_k = &k;
    data.layout_v = &v;
    data.layout_o = &o;
    data.layout_lse = &lse;
    data.gap = pick(0, 1) ? (double)INFINITY : 0;
    snprintf(name, sizeof name, "trial %d: B%lld H%lld/%lld N%lldx%lld D%lld causal %d diagonal %d:%lld scale %d:%g",
             number, (long long)c.batch, (long long)c.heads, (long long)c.kv_heads, (long long)c.nq, (long long)c.nk,
             (long long)c.head_dim, (int)c.causal, c.has_diagonal, (long long)c.diagonal, c.has_scale, (double)c.scale);
    data.name = name;
    attention_check(&data);
    attention_data_free(&data);
}

static void random_problems(const char *test, clattn_dtype dtype) {
    random_state = support_seed(test) * 2 + 1;
    for (int i = 0; i < TRIALS; i++)
        trial(dtype, i);
}

static void random_problems_in_fp32(void **state) {
    (void)state;
    random_problems("fp32", CLATTN_F32);
}

static void random_problems_in_fp16(void **state) {
    (void)state;
    random_problems("fp16", CLATTN_F16);
}

static void random_problems_in_bf16(void **state) {
    (void)state;
    random_problems("bf16", CLATTN_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems_in_fp32),
        cmocka_unit_test(random_problems_in_fp16),
        cmocka_unit_test(random_problems_in_bf16),
    };
    return support_main("attention, random problems", tests, sizeof tests / sizeof tests[0]);
}
