/* Softmax over attention scores, the inner step of unfused attention: diagonals, empty rows, log-sum-exp through
 * strides, in place and into other types, with NaN in every score that no row may see. */
#include "context.h"
#include "reference.h"
#include "softmax.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH = 2, HEADS = 3, QUERIES = 5, ROWS = BATCH * HEADS * QUERIES };

struct scores_case {
    int64_t nk, diagonal;
    bool causal, in_place;
    clattn_dtype dtype;
    int64_t pad; /* elements between rows of p */
};

static int64_t visible(const struct scores_case *c, int64_t row) {
    const int64_t end = c->causal ? row % QUERIES + c->diagonal + 1 : c->nk;
    return end < 0 ? 0 : end > c->nk ? c->nk : end;
}

/* Row 3 is -inf alone. */
static double *fill(const struct scores_case *c) {
    double *s = test_array(ROWS * c->nk);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t j = 0; j < c->nk; j++) {
            const double value = (double)(float)(3 * reference_normal((uint64_t)(r * c->nk + j), 9));
            s[r * c->nk + j] = j >= visible(c, r) ? NAN : r == 3 ? -INFINITY : value;
        }
    return s;
}

/* The plain version's largest errors over all rows. */
struct plain_errors {
    double p, lse;
};

static struct plain_errors plain_errors_of(const struct scores_case *c, const double *s) {
    struct plain_errors largest = {0, 0};
    double *want = test_array(c->nk), *plain = test_array(c->nk);
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t end = visible(c, r);
        reference_softmax_row(CLATTN_SOFTMAX, CLATTN_EMPTY_ROWS_ZERO, end, s + r * c->nk, want, NULL);
        plain_softmax_row(CLATTN_SOFTMAX, c->dtype, end, s + r * c->nk, plain, NULL);
        largest.p = fmax(largest.p, reference_plain_error(end, want, plain));
        reference_softmax_row(CLATTN_LOG_SUM_EXP, CLATTN_EMPTY_ROWS_ZERO, end, s + r * c->nk, want, NULL);
        plain_softmax_row(CLATTN_LOG_SUM_EXP, CLATTN_F32, end, s + r * c->nk, plain, NULL);
        largest.lse = fmax(largest.lse, reference_plain_error(1, want, plain));
    }
    free(want);
    free(plain);
    return largest;
}

static void check_rows(const struct scores_case *c, const double *s, const double *p, const double *lse) {
    const struct plain_errors plain = plain_errors_of(c, s);
    double *want = test_array(c->nk);
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t end = visible(c, r);
        double want_lse;
        struct reference_error error = {0}, lse_error = {0};
        reference_softmax_row(CLATTN_SOFTMAX, CLATTN_EMPTY_ROWS_ZERO, end, s + r * c->nk, want, NULL);
        reference_softmax_row(CLATTN_LOG_SUM_EXP, CLATTN_EMPTY_ROWS_ZERO, end, s + r * c->nk, &want_lse, NULL);
        reference_compare(&error, end, p + r * c->nk, want, plain.p, c->dtype);
        reference_compare(&lse_error, 1, lse + r, &want_lse, plain.lse, CLATTN_F32);
        if (error.bad || lse_error.bad)
            fail_msg("%lld keys, row %lld: p[%lld] is %.9g, not %.9g; lse is %.9g, not %.9g", (long long)c->nk,
                     (long long)r, (long long)error.index, error.got, error.want, lse[r], want_lse);
        for (int64_t j = end; j < c->nk; j++)
            assert_true(p[r * c->nk + j] == 0);
    }
    free(want);
}

static void enqueue(const struct softmax_scores *scores) {
    clattn_launch launch;
    struct sequence sequence;
    clattn_launch_init(&launch, device.queue);
    CHECK(softmax_scores_prepare(device.clattn, &device.clattn->facts, scores));
    sequence_begin(&sequence, device.clattn, &launch, 1);
    CHECK(softmax_scores_enqueue(&device.clattn->facts, scores, &sequence));
    sequence_end(&sequence);
    CHECK_CL(clFinish(device.queue));
}

static void check_case(const struct scores_case *c) {
    const int64_t dims[] = {BATCH, HEADS, QUERIES, c->nk}, stride = c->nk + c->pad;
    const struct test_layout rows = {0, {HEADS * QUERIES * stride, QUERIES * stride, stride, 1}},
                             lse_layout = {4, {2, 40, 5}};
    double *s = fill(c), *p = test_array(ROWS * c->nk), lse[ROWS];
    struct test_tensor s_at = test_input(CLATTN_F32, 4, dims, s, NULL, NAN);
    struct test_tensor p_at = test_output(c->dtype, 4, dims, &rows);
    struct test_tensor lse_at = test_output(CLATTN_F32, 3, dims, &lse_layout);
    const struct test_tensor *out = c->in_place ? &s_at : &p_at;
    const struct softmax_scores scores = {.s = s_at.buffer,
                                          .p = out->buffer,
                                          .s_offset = s_at.view.offset,
                                          .s_stride = c->nk,
                                          .p_offset = out->view.offset,
                                          .p_stride = c->in_place ? c->nk : stride,
                                          .p_dtype = c->dtype,
                                          .batch = BATCH,
                                          .heads = HEADS,
                                          .nq = QUERIES,
                                          .nk = c->nk,
                                          .causal = c->causal,
                                          .diagonal = c->diagonal,
                                          .lse = &lse_at.view};
    enqueue(&scores);
    test_read(out, p);
    test_read(&lse_at, lse);
    check_rows(c, s, p, lse);
    free(s);
    free(p);
    test_release(&s_at);
    test_release(&p_at);
    test_release(&lse_at);
}

static void diagonals(void **state) {
    static const int64_t all[] = {-5, -2, 0, 4, 100, INT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct scores_case c = {
            .nk = 9, .diagonal = all[i], .causal = true, .dtype = CLATTN_F32, .in_place = i % 2 == 0};
        check_case(&c);
    }
}

static void lengths_and_dtypes(void **state) {
    static const int64_t lengths[] = {3, 64, 300, 1500, 33000};
    (void)state;
    for (int i = 0; i < 5; i++) {
        const struct scores_case full = {.nk = lengths[i], .dtype = CLATTN_F32, .in_place = true};
        const struct scores_case causal = {.nk = lengths[i],
                                           .diagonal = lengths[i] - QUERIES,
                                           .causal = true,
                                           .dtype = i % 2 ? CLATTN_F16 : CLATTN_BF16,
                                           .pad = i};
        check_case(&full);
        check_case(&causal);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(diagonals), cmocka_unit_test(lengths_and_dtypes)};
    return support_main("softmax scores", tests, sizeof tests / sizeof tests[0]);
}
