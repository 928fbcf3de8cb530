/* Chooses rows, asks the oracle and the plain version for them, and holds results against both. */
#include "oracle.h"
#include "command.h"

#include <math.h>
#include <reference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_ROWS 64
#define RANDOM_ROWS 32

static int by_row(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static size_t sort_unique(int64_t *rows, size_t count) {
    size_t kept = 0;
    qsort(rows, count, sizeof *rows, by_row);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || rows[kept - 1] != rows[i])
            rows[kept++] = rows[i];
    return kept;
}

static void add_row(int64_t *rows, size_t *count, int64_t row, int64_t total) {
    if (row >= 0 && row < total)
        rows[(*count)++] = row;
}

/* The first, the last, those round multiples of the usual tile sizes from both ends, then evenly spread ones whose
 * remainders differ. */
static size_t choose_rows(int64_t *rows, size_t limit, int64_t total) {
    static const int64_t edges[] = {0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256};
    size_t count = 0;
    if (total <= (int64_t)limit) {
        for (int64_t row = 0; row < total; row++)
            rows[count++] = row;
        return count;
    }
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        add_row(rows, &count, edges[i], total);
        add_row(rows, &count, total - 1 - edges[i], total);
    }
    for (uint64_t i = 0; count < limit; i++) {
        /* uniform in (0,1): the normal's own generator is enough of a source of chance */
        const double u = 0.5 * (1 + erf(reference_normal(i, 7) * 0.7071067811865476));
        add_row(rows, &count, (int64_t)(u * (double)total), total);
    }
    return sort_unique(rows, count);
}

static bool allocate(struct oracle *oracle, const struct job_rows *shape) {
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++) {
        const size_t values = oracle->count * (size_t)shape->widths[k] + 1;
        oracle->want[k] = malloc(values * sizeof(double));
        oracle->plain[k] = malloc(values * sizeof(double));
        if (!oracle->want[k] || !oracle->plain[k])
            return false;
    }
    return true;
}

static bool ask(struct oracle *oracle, const struct job *job, const struct job_rows *shape) {
    size_t width = 0;
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++)
        width += (size_t)shape->widths[k];
    double *values = malloc((2 * width + 1) * sizeof *values);
    struct job_cache cache = {.slots = {{.values = NULL}}};
    bool done = values != NULL;
    for (size_t r = 0; r < oracle->count && done; r++) {
        done = job->kind->reference(job, &cache, oracle->rows[r], values, values + width);
        for (size_t k = 0, at = 0; k < JOB_MAX_OUTPUTS; at += (size_t)shape->widths[k++]) {
            const size_t w = (size_t)shape->widths[k];
            memcpy(oracle->want[k] + r * w, values + at, w * sizeof *values);
            memcpy(oracle->plain[k] + r * w, values + width + at, w * sizeof *values);
        }
    }
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++)
        oracle->plain_error[k] =
            reference_plain_error((int64_t)oracle->count * shape->widths[k], oracle->want[k], oracle->plain[k]);
    job_cache_free(&cache);
    free(values);
    return done;
}

/* How far the rows' first output lies from that of the inputs before they were quantised. */
static bool ask_original(struct oracle *oracle, const struct job *job, const struct job_rows *shape) {
    struct job original;
    oracle->moved = NAN;
    if (!job->kind->original || !job->kind->original(job, &original))
        return true;
    const int64_t width = shape->widths[0];
    int64_t all = 0;
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++)
        all += shape->widths[k];
    double *values = malloc((size_t)(2 * all + 1) * sizeof *values);
    struct job_cache cache = {.slots = {{.values = NULL}}};
    bool done = values != NULL;
    oracle->moved = 0;
    for (size_t r = 0; r < oracle->count && done; r++) {
        done = job->kind->reference(&original, &cache, oracle->rows[r], values, values + all);
        for (int64_t c = 0; c < width && done; c++)
            oracle->moved = fmax(oracle->moved, fabs(values[c] - oracle->want[0][(int64_t)r * width + c]));
    }
    job_cache_free(&cache);
    free(values);
    return done;
}

int oracle_make(struct oracle *oracle, const struct job *job, double multiplications) {
    const struct job_rows shape = job->kind->rows(job);
    *oracle = (struct oracle){.count = 0};
    const double affordable = multiplications / (shape.cost + 1);
    size_t limit = affordable > MIN_ROWS + RANDOM_ROWS ? (size_t)affordable : MIN_ROWS + RANDOM_ROWS;
    if ((int64_t)limit > shape.count)
        limit = (size_t)shape.count;
    oracle->rows = malloc((limit + MIN_ROWS) * sizeof *oracle->rows);
    if (oracle->rows)
        oracle->count = choose_rows(oracle->rows, limit, shape.count);
    oracle->all = (int64_t)oracle->count == shape.count;
    if (!oracle->rows || !allocate(oracle, &shape) || !ask(oracle, job, &shape) || !ask_original(oracle, job, &shape) ||
        (job->kind->op == CLATTN_OP_ATTENTION && oracle->count && !oracle_ask_p(oracle, job))) {
        oracle_free(oracle);
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory for the oracle", job->kind->name);
    }
    return EXIT_OK;
}

void oracle_free(struct oracle *oracle) {
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++) {
        free(oracle->want[k]);
        free(oracle->plain[k]);
    }
    free(oracle->rows);
    free(oracle->p.rows);
    free(oracle->p.want);
    free(oracle->p.plain);
    *oracle = (struct oracle){.count = 0};
}

static struct job_tensor *output_at(const struct job *job, size_t index) {
    for (size_t i = 0; i < job->count; i++)
        if (job->tensors[i].output && index-- == 0)
            return (struct job_tensor *)&job->tensors[i];
    return NULL;
}

void oracle_note(struct errors *errors, const struct reference_error *found, const char *what) {
    errors->max_abs = fmax(errors->max_abs, found->largest);
    errors->max_rel = fmax(errors->max_rel, found->relative);
    if (!found->bad)
        return;
    if (errors->ok)
        snprintf(errors->why, sizeof errors->why,
                 "%s: %lld of %lld over the bound, the first is %g instead of %g (bound %.3g)", what,
                 (long long)found->bad, (long long)found->count, found->got, found->want, found->bound);
    errors->ok = false;
}

void oracle_compare(const struct oracle *oracle, const struct job *job, struct errors *errors) {
    const struct job_rows shape = job->kind->rows(job);
    *errors = (struct errors){.p_error = NAN, .difference = NAN, .ok = true};
    for (size_t k = 0; k < JOB_MAX_OUTPUTS && output_at(job, k); k++) {
        const struct job_tensor *tensor = output_at(job, k);
        struct reference_error found = {.count = 0};
        for (size_t r = 0; r < oracle->count; r++)
            for (int64_t c = 0; c < shape.widths[k]; c++) {
                const int64_t row = oracle->rows[r], inner = shape.inner;
                const double got =
                    job_value(tensor, &tensor->result, (row / inner * shape.widths[k] + c) * inner + row % inner);
                reference_compare(&found, 1, &got, &oracle->want[k][(int64_t)r * shape.widths[k] + c],
                                  oracle->plain_error[k], tensor->view.dtype);
            }
        oracle_note(errors, &found, tensor->name);
    }
}

void oracle_take_results(struct job *job, struct array results[JOB_MAX_OUTPUTS]) {
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++) {
        struct job_tensor *tensor = output_at(job, k);
        results[k] = tensor ? tensor->result : (struct array){.data = NULL};
        if (tensor)
            tensor->result = (struct array){.data = NULL};
    }
}

void oracle_put_results(struct job *job, struct array results[JOB_MAX_OUTPUTS]) {
    for (size_t k = 0; k < JOB_MAX_OUTPUTS && output_at(job, k); k++) {
        array_free(&output_at(job, k)->result);
        output_at(job, k)->result = results[k];
    }
}

void oracle_compare_other(const struct oracle *oracle, const struct job *job, const struct array other[JOB_MAX_OUTPUTS],
                          struct errors *errors) {
    const struct errors before = *errors;
    errors->difference = 0;
    for (size_t k = 0; k < JOB_MAX_OUTPUTS && output_at(job, k); k++) {
        if (job->kind->rows(job).widths[k] == 0)
            continue; /* the oracle has no bound for it */
        const struct job_tensor *tensor = output_at(job, k);
        struct reference_error found = {.count = 0};
        for (size_t i = 0; i < tensor->result.count; i++) {
            const double got = array_get(&tensor->result, i), want = array_get(&other[k], i);
            /* twice the allowed error of each: reference_compare doubles, and adds one of the two ulps */
            const double allowed = 2 * oracle->plain_error[k] + reference_ulp(tensor->view.dtype, want) / 2;
            reference_compare(&found, 1, &got, &want, allowed, tensor->view.dtype);
        }
        oracle_note(errors, &found, "against the fma variant");
        errors->difference = fmax(errors->difference, found.largest);
    }
    errors->max_abs = before.max_abs;
    errors->max_rel = before.max_rel;
}
