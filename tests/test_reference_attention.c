/* The oracle of attention against published numbers and closed forms, with NaN in everything that must not be looked
 * at; its account of which row sees what; and the plain version against the oracle. */
#include "attention_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *name, const char *what, int64_t index, double got, double want, double tolerance) {
    if (isinf(want) ? got != want : !(fabs(got - want) <= tolerance))
        fail_msg("%s: %s[%lld] is %.9g, not %.9g", name, what, (long long)index, got, want);
}

/* With NaN in everything that must not be looked at. */
static void check_case(const struct attention_case *c) {
    struct attention_data data = attention_data_of(c, CLATTN_F32);
    const int64_t dv = c->value_dim, columns = reference_attention_columns(&data.problem);
    double *o = calloc((size_t)dv, sizeof *o), *p = calloc((size_t)columns + 1, sizeof *p);
    attention_data_poison(&data, (double)NAN);
    for (int64_t row = 0; row < attention_row_count(&data); row++) {
        double lse, sum = 0;
        reference_attention_row(&data.problem, data.q, data.k, data.v, row, o, &lse, p);
        for (int64_t column = 0; column < dv; column++)
            if (row * dv + column < (int64_t)c->o_count)
                expect(c->name, "o", row * dv + column, o[column], c->o[row * dv + column],
                       c->tolerance > 4e-3 ? c->tolerance / 10 : 1e-6);
        if (row < (int64_t)c->lse_count)
            expect(c->name, "lse", row, lse, c->lse[row], 1e-6 + 1e-7 * fabs(lse));
        for (int64_t j = 0; j < columns; j++)
            sum += p[j];
        if (!data.sinks)
            expect(c->name, "sum of p", row, sum, isinf(lse) ? 0 : 1, 1e-12);
    }
    free(o);
    free(p);
    attention_data_free(&data);
}

static void attention_gives_the_published_values(void **state) {
    const struct attention_table tables[] = {{attention_cases, attention_case_count},
                                             mask_cases,
                                             window_cases,
                                             length_cases,
                                             paged_cases,
                                             bias_cases,
                                             sink_cases};
    (void)state;
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            check_case(&tables[t].cases[i]);
}

/* A15: the mean of the keys from i - left to i, also where the window is wider than the context. */
static void windows_give_means(void **state) {
    const int64_t lefts[] = {0, 1, 31, 32, 33, 63, 64, 127, 128, 298, 299, 300, 1000};
    (void)state;
    for (size_t n = 0; n < sizeof lefts / sizeof lefts[0]; n++) {
        const struct attention_case c = {.name = "A15",
                                         .batch = 1,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .nq = 300,
                                         .nk = 300,
                                         .head_dim = 1,
                                         .value_dim = 1,
                                         .q = fill_zero,
                                         .k = fill_u2,
                                         .v = fill_row,
                                         .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
                                         .with = {.has_window = true, .window_left = lefts[n], .window_right = -1}};
        struct attention_data data = attention_data_of(&c, CLATTN_F32);
        double pairs = 0;
        for (int64_t i = 0; i < 300; i++) {
            const double first = fmax(0, (double)(i - lefts[n]));
            double o, lse;
            reference_attention_row(&data.problem, data.q, data.k, data.v, i, &o, &lse, NULL);
            expect(c.name, "o", i, o, (first + (double)i) / 2, 1e-9);
            expect(c.name, "lse", i, lse, log((double)i - first + 1), 1e-12);
            pairs += (double)i - first + 1;
        }
        assert_true(reference_attention_pairs(&data.problem) == pairs);
        attention_data_free(&data);
    }
}

static struct attention_data random_data(const struct case_modifiers *with, clattn_causal causal) {
    struct attention_case c = {.name = "random",
                               .batch = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .nq = 5,
                               .nk = 37,
                               .head_dim = 40,
                               .value_dim = 8,
                               .causal = causal};
    if (with)
        c.with = *with;
    return attention_data_random(&c, CLATTN_F32, 3);
}

/* A33: through pages that lie in any order and are shared, as from keys in a row. */
static void pages_give_what_contiguous_keys_give(void **state) {
    enum { PAGE = 4, COLUMNS = 12, D = 40, DV = 8 };
    const double table[] = {5, 4, 2, 5, 0, 2};
    struct attention_case c = {.name = "A33",
                               .batch = 2,
                               .heads = 2,
                               .kv_heads = 2,
                               .nq = 3,
                               .nk = PAGE,
                               .head_dim = D,
                               .value_dim = DV,
                               .causal = CLATTN_CAUSAL_BOTTOM_RIGHT};
    (void)state;
    c.with = (struct case_modifiers){
        .page_table = table, .max_pages = 3, .pages = 6, .k_lengths = (const double[]){COLUMNS, 9}};
    struct attention_data paged = attention_data_random(&c, CLATTN_F32, 4);
    c.with.page_table = NULL;
    c.nk = COLUMNS;
    struct attention_data dense = attention_data_random(&c, CLATTN_F32, 4);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t j = 0; j < COLUMNS; j++) {
                const int64_t page = (int64_t)table[b * 3 + j / PAGE];
                const int64_t from = (page * 2 + h) * PAGE + j % PAGE, to = (b * 2 + h) * COLUMNS + j;
                memcpy(dense.k + to * D, paged.k + from * D, D * sizeof(double));
                memcpy(dense.v + to * DV, paged.v + from * DV, DV * sizeof(double));
            }
    for (int64_t row = 0; row < 12; row++) {
        double a[DV], b[DV], lse_a, lse_b;
        reference_attention_row(&paged.problem, paged.q, paged.k, paged.v, row, a, &lse_a, NULL);
        reference_attention_row(&dense.problem, dense.q, dense.k, dense.v, row, b, &lse_b, NULL);
        assert_memory_equal(a, b, sizeof a);
        assert_true(lse_a == lse_b);
    }
    assert_true(reference_attention_pairs(&paged.problem) == reference_attention_pairs(&dense.problem));
    attention_data_free(&paged);
    attention_data_free(&dense);
}

/* A value that is NaN reaches the rows that see it, and no others. */
static void bad_values_reach_those_who_see_them(void **state) {
    (void)state;
    const struct case_modifiers with = {.mask = {.dims = {1, 1, 5, 37}, .fill = fill_one}};
    struct attention_data data = random_data(&with, CLATTN_CAUSAL_TOP_LEFT);
    data.v[2 * 8] = (double)NAN;
    data.mask[3 * 37 + 2] = 0;
    for (int64_t row = 0; row < 5; row++) {
        double o[8], lse;
        reference_attention_row(&data.problem, data.q, data.k, data.v, row, o, &lse, NULL);
        assert_true(isnan(o[0]) == (row == 2 || row == 4));
        assert_true(isfinite(o[1]) && isfinite(lse));
    }
    attention_data_free(&data);
}

static void rows_of_no_sequence_are_told(void **state) {
    (void)state;
    const struct case_modifiers with = {.q_offsets = (const double[]){1, 2, 4}, .max_q = 1};
    struct attention_data data = random_data(&with, CLATTN_CAUSAL_NONE);
    const int64_t sequences[] = {-1, 0, 1, 1, -1};
    assert_int_equal(attention_row_count(&data), 10);
    for (int64_t row = 0; row < 10; row++) {
        const struct reference_row at = reference_attention_locate(&data.problem, row);
        assert_int_equal(at.sequence, sequences[row % 5]);
        assert_int_equal(at.head, row / 5);
        assert_int_equal(at.query, row % 5 == 3 ? 1 : row % 5 == 0 || row % 5 == 4 ? row % 5 : 0);
        assert_int_equal(at.queries, at.sequence < 0 ? 0 : 1);
        assert_int_equal(at.end_key, row % 5 == 1 || row % 5 == 2 ? 37 : 0);
    }
    attention_data_free(&data);
}

static const struct case_modifiers all_modifiers = {.has_window = true,
                                                    .window_left = 30,
                                                    .window_right = 2,
                                                    .softcap = 3,
                                                    .mask = {.dims = {1, 2, 1, 1}, .fill = fill_one},
                                                    .bias = {.dims = {1, 1, 5, 37}, .fill = fill_u3},
                                                    .alibi = (const double[]){0.25, 0.0625},
                                                    .sinks = (const double[]){0.5, -1},
                                                    .k_lengths = (const double[]){37, 20}};

static void plain_attention_is_near_the_oracle(void **state) {
    (void)state;
    const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    const double limits[] = {1e-6, 3e-3, 3e-2};
    for (int with = 0; with < 2; with++) {
        struct attention_data data = random_data(with ? &all_modifiers : NULL, CLATTN_CAUSAL_BOTTOM_RIGHT);
        for (int t = 0; t < 3; t++) {
            double largest = 0;
            for (int64_t row = 0; row < attention_row_count(&data); row++) {
                double o[8], plain[8], lse, plain_lse;
                reference_attention_row(&data.problem, data.q, data.k, data.v, row, o, &lse, NULL);
                plain_attention_row(&data.problem, dtypes[t], dtypes[t], data.q, data.k, data.v, row, plain, &plain_lse,
                                    NULL);
                largest = fmax(largest, reference_plain_error(8, o, plain));
                assert_true(fabs(lse - plain_lse) < 1e-5);
            }
            assert_true(largest > 0 && largest < limits[t]);
        }
        attention_data_free(&data);
    }
}

/* What a device without a fault makes of a row: sums upward, each step rounded once. */
static void faultless_row(const struct attention_data *data, float *o, float *lse) {
    enum { MOST = 4 };
    const struct reference_attention *p = &data->problem;
    float s[MOST], top = -INFINITY, sum = 0;
    assert_true(p->nk <= MOST);
    for (int64_t j = 0; j < p->nk; j++) {
        s[j] = 0;
        for (int64_t c = 0; c < p->head_dim; c++)
            s[j] = fmaf((float)data->q[c], (float)data->k[j * p->head_dim + c], s[j]);
        s[j] *= (float)p->scale;
        top = fmaxf(top, s[j]);
    }
    for (int64_t j = 0; j < p->nk; j++)
        sum += s[j] = expf(s[j] - top);
    for (int64_t c = 0; c < p->value_dim; c++) {
        o[c] = 0;
        for (int64_t j = 0; j < p->nk; j++)
            o[c] = fmaf(s[j], (float)data->v[j * p->value_dim + c], o[c]);
        o[c] /= sum;
    }
    *lse = top + logf(sum);
}

/* One row of few keys: three orders of sums would give bounds that 1 or 2 % of these problems exceed. */
static void a_faultless_row_stays_within_the_bound(void **state) {
    enum { D = 64, DV = 24, PROBLEMS = 2000 };
    (void)state;
    for (uint64_t number = 0; number < PROBLEMS; number++) {
        const struct attention_case shape = {.name = "one row",
                                             .batch = 1,
                                             .heads = 1,
                                             .kv_heads = 1,
                                             .nq = 1,
                                             .nk = 1 + (int64_t)(number % 4),
                                             .head_dim = D,
                                             .value_dim = DV};
        struct attention_data data = attention_data_random(&shape, CLATTN_F32, number);
        struct reference_error o_error = {0}, lse_error = {0};
        double want[DV + 1], plain[DV + 1], got[DV + 1];
        float o[DV], lse;
        reference_attention_row(&data.problem, data.q, data.k, data.v, 0, want, &want[DV], NULL);
        plain_attention_row(&data.problem, CLATTN_F32, CLATTN_F32, data.q, data.k, data.v, 0, plain, &plain[DV], NULL);
        faultless_row(&data, o, &lse);
        for (int c = 0; c < DV; c++)
            got[c] = (double)o[c];
        got[DV] = (double)lse;
        reference_compare(&o_error, DV, got, want, reference_plain_error(DV, want, plain), CLATTN_F32);
        reference_compare(&lse_error, 1, got + DV, want + DV, fabs(plain[DV] - want[DV]), CLATTN_F32);
        if (o_error.bad > 0 || lse_error.bad > 0)
            fail_msg("problem %d of %d keys: %g and %g beside bounds of %g and %g", (int)number, (int)shape.nk,
                     o_error.largest, lse_error.largest, o_error.bound, lse_error.bound);
        attention_data_free(&data);
    }
}

/* Listed one by one, for the mask's sake, as by the closed form. */
static void pairs_are_counted(void **state) {
    (void)state;
    struct attention_data data = random_data(&all_modifiers, CLATTN_CAUSAL_BOTTOM_RIGHT);
    const double listed = reference_attention_pairs(&data.problem);
    data.problem.mask.values = data.problem.bias.values = NULL;
    assert_true(listed == reference_attention_pairs(&data.problem) && listed > 0);
    data.mask[1] = 0;
    data.problem.mask.values = data.mask;
    assert_true(reference_attention_pairs(&data.problem) == listed / 2);
    attention_data_free(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_gives_the_published_values),   cmocka_unit_test(windows_give_means),
        cmocka_unit_test(pages_give_what_contiguous_keys_give),   cmocka_unit_test(bad_values_reach_those_who_see_them),
        cmocka_unit_test(rows_of_no_sequence_are_told),           cmocka_unit_test(plain_attention_is_near_the_oracle),
        cmocka_unit_test(a_faultless_row_stays_within_the_bound), cmocka_unit_test(pairs_are_counted),
    };
    return cmocka_run_group_tests_name("reference of attention", tests, NULL, NULL);
}
