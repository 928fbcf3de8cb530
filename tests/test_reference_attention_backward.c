/* The oracle of attention's gradients: against published numbers, and against differences of the forward oracle for
 * every modifier alone and all together; the plain version against the oracle. */
#include "gradient_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void gives_the_published_values(void **state) {
    (void)state;
    for (size_t i = 0; i < gradient_case_count; i++) {
        const struct gradient_case *c = &gradient_cases[i];
        struct gradient_data data = gradient_data_of(c, CLATTN_F32);
        attention_data_poison(&data.forward, (double)NAN);
        struct reference_gradients right = gradients_right(&data);
        for (const struct gradient_list *list = c->lists; list->of; list++)
            for (size_t e = 0; e < list->count; e++) {
                const double got = (*gradient_of(&right, list->of))[list->first + (int64_t)e];
                if (!(fabs(got - list->values[e]) <= 2e-6))
                    fail_msg("%s: d%c[%lld] is %.9g, not %.9g", c->forward.name, list->of,
                             (long long)list->first + (long long)e, got, list->values[e]);
            }
        gradients_free(&right);
        gradient_data_free(&data);
    }
}

/* ---- differences ---- */

/* What the gradients are of: the sum of o times dout and lse times dlse. */
static double loss(const struct gradient_data *data) {
    const struct attention_data *forward = &data->forward;
    const int64_t dv = forward->problem.value_dim;
    double *o = calloc((size_t)dv + 1, sizeof *o), sum = 0;
    for (int64_t row = 0; row < attention_row_count(forward); row++) {
        const struct reference_row at = reference_attention_locate(&forward->problem, row);
        double lse;
        if (at.sequence < 0 || at.query >= at.queries)
            continue;
        reference_attention_row(&forward->problem, forward->q, forward->k, forward->v, row, o, &lse, NULL);
        for (int64_t c = 0; c < dv; c++)
            sum += o[c] * data->dout[row * dv + c];
        if (data->dlse && lse != -INFINITY)
            sum += lse * data->dlse[row];
    }
    free(o);
    return sum;
}

static double difference(const struct gradient_data *data, double *element) {
    const double middle = *element, step = 1e-5;
    *element = middle + step;
    const double above = loss(data);
    *element = middle - step;
    const double below = loss(data);
    *element = middle;
    return (above - below) / (2 * step);
}

static double *input_of(const struct gradient_data *data, char of) {
    const struct attention_data *forward = &data->forward;
    return of == 'q'   ? forward->q
           : of == 'k' ? forward->k
           : of == 'v' ? forward->v
           : of == 'b' ? forward->bias
                       : forward->sinks;
}

static void check_differences(const struct attention_case *shape) {
    const struct attention_data forward = attention_data_random(shape, CLATTN_F32, 17);
    struct gradient_data data = gradient_data_from(&forward, 23, true);
    struct reference_gradients right = gradients_right(&data);
    for (const char *of = gradient_letters; *of; of++)
        for (int64_t i = 0; i < gradient_count(&data, *of); i++) {
            double *element = &input_of(&data, *of)[i];
            if (*element == -INFINITY)
                continue;
            const double want = difference(&data, element), got = (*gradient_of(&right, *of))[i];
            if (!(fabs(got - want) <= 1e-6 + 1e-6 * fabs(want)))
                fail_msg("%s: d%c[%lld] is %.9g, differences say %.9g", shape->name, *of, (long long)i, got, want);
        }
    gradients_free(&right);
    gradient_data_free(&data);
}

static double fill_bias(const int64_t at[4], int64_t flat) {
    (void)at;
    return flat % 7 == 3 ? EMPTY : reference_u((uint32_t)flat, 5);
}

static double fill_mask(const int64_t at[4], int64_t flat) {
    (void)at;
    return at[2] != 1 && reference_u((uint32_t)flat, 6) > -0.3;
}

#define SMALL .batch = 2, .heads = 4, .kv_heads = 2, .nq = 4, .nk = 5, .head_dim = 3, .value_dim = 2

static void agrees_with_differences(void **state) {
    (void)state;
    static const double slopes[] = {0.5, 0.25, 0.125, 0.0625}, sinks[] = {0.5, -1, EMPTY, 2};
    static const double q_lengths[] = {3, 4}, k_lengths[] = {5, 2}, q_offsets[] = {0, 1, 4}, k_offsets[] = {1, 4, 5};
    static const double table[] = {2, 0, 1, 2};
    const struct attention_case cases[] = {
        {.name = "plain", SMALL},
        {.name = "causal", SMALL, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
        {.name = "top left", SMALL, .causal = CLATTN_CAUSAL_TOP_LEFT},
        {.name = "diagonal", SMALL, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT, .has_diagonal = 1, .diagonal = -2},
        {.name = "window", SMALL, .with = {.has_window = true, .window_left = 1, .window_right = 0}},
        {.name = "scale", SMALL, .has_scale = 1, .scale = -0.7F},
        {.name = "softcap", SMALL, .with.softcap = 1.5F},
        {.name = "mask", SMALL, .with.mask = {.dims = {2, 1, 4, 5}, .fill = fill_mask}},
        {.name = "bias", SMALL, .with.bias = {.dims = {2, 4, 4, 5}, .fill = fill_bias}},
        {.name = "bias of keys", SMALL, .with.bias = {.dims = {1, 4, 1, 5}, .fill = fill_bias}},
        {.name = "bias of queries", SMALL, .with.bias = {.dims = {2, 1, 4, 1}, .fill = fill_bias}},
        {.name = "alibi", SMALL, .with.alibi = slopes},
        {.name = "sinks", SMALL, .with.sinks = sinks},
        {.name = "lengths", SMALL, .with = {.q_lengths = q_lengths, .k_lengths = k_lengths}},
        {.name = "offsets", SMALL, .with = {.q_offsets = q_offsets, .k_offsets = k_offsets}},
        {.name = "pages", SMALL, .with = {.page_table = table, .max_pages = 2, .pages = 3, .k_lengths = k_lengths}},
        {.name = "most", SMALL, .with = {.max_q = 3, .max_k = 4}},
        {.name = "all",
         SMALL,
         .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
         .with = {.has_window = true,
                  .window_left = 3,
                  .window_right = -1,
                  .softcap = 2,
                  .mask = {.dims = {1, 4, 4, 5}, .fill = fill_mask},
                  .bias = {.dims = {1, 1, 4, 5}, .fill = fill_bias},
                  .alibi = slopes,
                  .sinks = sinks,
                  .q_lengths = q_lengths,
                  .k_offsets = k_offsets}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_differences(&cases[i]);
}

/* ---- the plain version ---- */

static void the_plain_version_is_near(void **state) {
    (void)state;
    static const double sinks[] = {0.5, -1, EMPTY, 2};
    const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    const double most[] = {2e-6, 2e-2, 2e-1};
    const struct attention_case shape = {
        .name = "plain version",
        SMALL,
        .with = {.sinks = sinks, .softcap = 4, .bias = {.dims = {1, 1, 4, 5}, .fill = fill_bias}}};
    for (int t = 0; t < 3; t++) {
        struct gradient_data data = gradient_data_random(&shape, dtypes[t], 3);
        struct reference_gradients right = gradients_right(&data), plain = gradients_plain(&data, &right);
        for (const char *of = gradient_letters; *of; of++) {
            const int64_t count = gradient_count(&data, *of);
            const double *want = *gradient_of(&right, *of), *got = *gradient_of(&plain, *of);
            const double error = reference_plain_error(count, want, got);
            if (!(error < most[t]) || (*of != 's' && error == 0))
                fail_msg("dtype %d: the plain version is %.3g off in d%c", (int)dtypes[t], error, *of);
        }
        gradients_free(&right);
        gradients_free(&plain);
        gradient_data_free(&data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_values),
        cmocka_unit_test(agrees_with_differences),
        cmocka_unit_test(the_plain_version_is_near),
    };
    return cmocka_run_group_tests_name("oracle of attention's gradients", tests, NULL, NULL);
}
