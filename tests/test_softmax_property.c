/* The state of a row does not depend on how it is cut: rows cut into random chunks, the chunks' states merged in random
 * order and grouping, against the oracle's state of the whole row; and softmax from merged states against softmax. */
#include "softmax_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRIALS = 12, MAX_CHUNKS = 24, MAX_COLUMNS = 3000 };

/* Draws from the tests' own generator. */
struct draw {
    uint64_t seed, index;
};

static int64_t draw_below(struct draw *draw, int64_t limit) {
    const double uniform = 0.5 * erfc(-reference_normal(draw->index++, draw->seed) / sqrt(2.0));
    const int64_t value = (int64_t)(uniform * (double)limit);
    return value < limit ? value : limit - 1;
}

static int compare_cuts(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Random cuts, sorted; empty chunks happen. */
static int cut(struct draw *draw, int64_t columns, int64_t *cuts) {
    const int chunks = 1 + (int)draw_below(draw, MAX_CHUNKS);
    cuts[0] = 0;
    for (int i = 1; i < chunks; i++)
        cuts[i] = draw_below(draw, columns + 1);
    cuts[chunks] = columns;
    qsort(cuts, (size_t)chunks + 1, sizeof cuts[0], compare_cuts);
    return chunks;
}

static clattn_tensor element_of(const struct test_tensor *tensor, int64_t index) {
    clattn_tensor view = tensor->view;
    view.rank = 1;
    view.dims[0] = view.strides[0] = 1;
    view.offset += index;
    return view;
}

static void states_of_chunks(const struct test_tensor *x, const int64_t *cuts, int chunks, const struct test_tensor *m,
                             const struct test_tensor *l) {
    for (int i = 0; i < chunks; i++) {
        clattn_softmax_op op;
        clattn_softmax_init(&op);
        op.function = CLATTN_SOFTMAX_STATE;
        op.x = element_of(x, cuts[i]);
        op.x.dims[0] = cuts[i + 1] - cuts[i];
        op.m = element_of(m, i);
        op.l = element_of(l, i);
        test_run(&op.head, NULL);
    }
}

/* Merges random groups of what is left, each into one of its own members, until one state is left. */
static int merge_all(struct draw *draw, int count, const struct test_tensor *m, const struct test_tensor *l) {
    int left[MAX_CHUNKS];
    for (int i = 0; i < count; i++)
        left[i] = i;
    while (count > 1) {
        clattn_tensor m_in[MAX_CHUNKS], l_in[MAX_CHUNKS];
        clattn_softmax_merge_op op;
        clattn_softmax_merge_init(&op);
        op.count = 2 + (int)draw_below(draw, count - 1);
        for (int i = 0; i < op.count; i++) {
            const int pick = i + (int)draw_below(draw, count - i), taken = left[pick];
            left[pick] = left[i];
            left[i] = taken;
            m_in[i] = element_of(m, taken);
            l_in[i] = element_of(l, taken);
        }
        const int own = (int)draw_below(draw, op.count);
        op.m_in = m_in;
        op.l_in = l_in;
        op.m = m_in[own];
        op.l = l_in[own];
        test_run(&op.head, NULL);
        left[0] = left[own];
        for (int i = op.count; i < count; i++)
            left[i - op.count + 1] = left[i];
        count -= op.count - 1;
    }
    return left[0];
}

/* -inf, and now and then nothing else, among the values. */
static void fill(struct draw *draw, int64_t columns, double *x) {
    const int64_t kind = draw_below(draw, 6);
    for (int64_t c = 0; c < columns; c++) {
        const double value = (double)(float)(6 * reference_normal(draw->index++, draw->seed));
        const bool hole = kind == 0 || (kind < 3 && draw_below(draw, 3) > 0);
        x[c] = hole ? -INFINITY : value;
    }
}

static void chunk_states_merge_to_the_rows(void **state) {
    struct draw draw = {support_seed("softmax_property"), 0};
    double x[MAX_COLUMNS], m[MAX_CHUNKS], l[MAX_CHUNKS];
    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        int64_t cuts[MAX_CHUNKS + 1];
        const int64_t columns = 1 + draw_below(&draw, MAX_COLUMNS);
        const int chunks = cut(&draw, columns, cuts);
        const int64_t dims[] = {columns}, states[] = {MAX_CHUNKS};
        fill(&draw, columns, x);
        struct test_tensor x_at = test_input(CLATTN_F32, 1, dims, x, NULL, NAN);
        struct test_tensor m_at = test_output(CLATTN_F32, 1, states, NULL);
        struct test_tensor l_at = test_output(CLATTN_F32, 1, states, NULL);
        states_of_chunks(&x_at, cuts, chunks, &m_at, &l_at);
        const int last = merge_all(&draw, chunks, &m_at, &l_at);
        test_read(&m_at, m);
        test_read(&l_at, l);
        double want_m, want_l;
        reference_softmax_row(CLATTN_SOFTMAX_STATE, CLATTN_EMPTY_ROWS_NAN, columns, x, &want_m, &want_l);
        if (m[last] != want_m || fabs(l[last] - want_l) > 4e-6 * want_l)
            fail_msg("trial %d: %lld columns in %d chunks: (%.9g, %.9g), not (%.9g, %.9g)", trial, (long long)columns,
                     chunks, m[last], l[last], want_m, want_l);
        test_release(&x_at);
        test_release(&m_at);
        test_release(&l_at);
    }
}

/* Tensors of states, of any rank and strides, more than one launch takes. */
static void many_strided_states(void **state) {
    enum { COUNT = 19, STATES = 2 * 3 * 5 };
    static const int64_t dims[] = {2, 3, 5};
    static const struct test_layout sparse = {2, {90, 30, 3}}, transposed = {0, {1, 2, 6}};
    struct test_tensor m_at[COUNT], l_at[COUNT];
    clattn_tensor m_in[COUNT], l_in[COUNT];
    double m[COUNT][STATES], l[COUNT][STATES], got_m[STATES], got_l[STATES];
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        for (int s = 0; s < STATES; s++) {
            const bool empty = (i + s) % 4 == 0 || s == 7;
            m[i][s] = empty ? -INFINITY : (double)(float)(5 * reference_normal((uint64_t)(s * COUNT + i), 3));
            l[i][s] = empty ? NAN : 1 + reference_u((uint32_t)(s * COUNT + i), 4) / 2;
        }
        m_at[i] = test_input(CLATTN_F32, 3, dims, m[i], i % 2 ? &sparse : NULL, NAN);
        l_at[i] = test_input(CLATTN_F32, 3, dims, l[i], i % 3 ? NULL : &transposed, NAN);
        m_in[i] = m_at[i].view;
        l_in[i] = l_at[i].view;
    }
    struct test_tensor out_m = test_output(CLATTN_F32, 3, dims, &transposed);
    struct test_tensor out_l = test_output(CLATTN_F32, 3, dims, &sparse);
    clattn_softmax_merge_op op;
    clattn_softmax_merge_init(&op);
    op.m_in = m_in;
    op.l_in = l_in;
    op.m = out_m.view;
    op.l = out_l.view;
    for (op.count = 0; op.count <= COUNT; op.count += op.count == 8 ? 1 : 4) {
        test_run(&op.head, NULL);
        test_read(&out_m, got_m);
        test_read(&out_l, got_l);
        for (int s = 0; s < STATES; s++) {
            double row_m[COUNT], row_l[COUNT], want_m, want_l;
            for (int i = 0; i < op.count; i++) {
                row_m[i] = m[i][s];
                row_l[i] = l[i][s];
            }
            reference_softmax_merge(op.count, row_m, row_l, &want_m, &want_l);
            if (got_m[s] != want_m || !(fabs(got_l[s] - want_l) <= 4e-6 * want_l))
                fail_msg("%d states, element %d: (%.9g, %.9g), not (%.9g, %.9g)", (int)op.count, s, got_m[s], got_l[s],
                         want_m, want_l);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        test_release(&m_at[i]);
        test_release(&l_at[i]);
    }
    test_release(&out_m);
    test_release(&out_l);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_states_merge_to_the_rows),
        cmocka_unit_test(many_strided_states),
    };
    return support_main("softmax property", tests, sizeof tests / sizeof tests[0]);
}
