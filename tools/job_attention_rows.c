/* Rows of attention for the oracle, which is asked for one at a time: only what a row needs is turned into doubles, so
 * that large problems can be checked on a selection of rows. */
#include "command.h"
#include "job_attention.h"

#include <math.h>
#include <stdlib.h>

/* ---- one row ----------------------------------------------------------------------------------------------------- */

bool job_attention_problem(const struct job *job, struct job_cache *cache, struct reference_attention *problem) {
    const struct {
        const char *name;
        const double **values;
    } small[] = {{"alibi", &problem->alibi.values},   {"sinks", &problem->sinks},
                 {"q_lengths", &problem->q_lengths},  {"k_lengths", &problem->k_lengths},
                 {"q_offsets", &problem->q_offsets},  {"k_offsets", &problem->k_offsets},
                 {"page_table", &problem->page_table}};
    *problem = reference_attention_of(job_attention_op(job));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        const struct job_tensor *tensor = job_find(job, small[i].name);
        if (!tensor)
            continue;
        *small[i].values = job_slice(cache, SLOT_SMALL + i, tensor, 0, (int64_t)tensor->host.count);
        if (!*small[i].values)
            return false;
    }
    return true;
}

/* The first element of a row of mask or bias. */
static int64_t plane_row(const int64_t dims[4], const struct reference_row *at) {
    const int64_t index[3] = {at->sequence, at->head, at->query};
    int64_t flat = 0;
    for (int d = 0; d < 3; d++)
        flat = flat * dims[d] + (dims[d] == 1 ? 0 : index[d]);
    return flat * dims[3];
}

static bool take_plane(const struct job *job, struct job_cache *cache, const char *name, size_t slot,
                       const struct reference_row *at, struct reference_grid *grid) {
    const struct job_tensor *tensor = job_find(job, name);
    if (!tensor)
        return true;
    const int64_t width = grid->dims[3];
    *grid = (struct reference_grid){.values = job_slice(cache, slot, tensor, plane_row(grid->dims, at), width),
                                    .dims = {1, 1, 1, width}};
    return grid->values != NULL;
}

bool job_attention_locate(const struct job *job, struct job_cache *cache, int64_t row,
                          struct reference_attention *problem, struct reference_row *at) {
    if (!job_attention_problem(job, cache, problem))
        return false;
    *at = reference_attention_locate(problem, row);
    if (at->sequence < 0 || at->query >= at->queries)
        return true;
    return take_plane(job, cache, "mask", SLOT_MASK, at, &problem->mask) &&
           take_plane(job, cache, "bias", SLOT_BIAS, at, &problem->bias);
}

/* Kept until another sequence or head is asked for. */
const double *job_attention_gather(const struct job *job, struct job_cache *cache, const char *name,
                                   const struct reference_attention *problem, const struct reference_row *at) {
    const size_t slot = name[0] == 'k' ? SLOT_K : SLOT_V;
    const struct job_tensor *tensor = job_find(job, name);
    const int64_t width = tensor->view.dims[3], group = problem->heads / problem->kv_heads;
    bool fresh;
    double *values =
        job_cache_slot(cache, slot, at->sequence * problem->kv_heads + at->head / group, at->keys * width, &fresh);
    for (int64_t j = 0; values && fresh && j < at->keys; j++) {
        const int64_t key = reference_attention_key(problem, at, j);
        if (key >= 0 && job_attention_holds_codes(tensor)) {
            job_attention_row_values(job, tensor, key, values + j * width);
            continue;
        }
        if (key >= 0)
            job_values(tensor, &tensor->host, key * width, width, values + j * width);
        for (int64_t c = 0; key < 0 && c < width; c++)
            values[j * width + c] = 0;
    }
    return values;
}

/* Rows of no sequence are not written: they hold what job_reset put there. */
static void expect_untouched(int64_t count, double *want, double *plain) {
    for (int64_t i = 0; i < count; i++)
        want[i] = plain[i] = NAN;
}

bool job_attention_row(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain,
                       double *want_p, double *plain_p) {
    const clattn_attention_op *op = job_attention_op(job);
    const int64_t d = op->q.dims[3], dv = op->v.dims[3];
    struct reference_attention p;
    struct reference_row at;
    if (!job_attention_locate(job, cache, row, &p, &at))
        return false;
    if (at.sequence < 0) {
        expect_untouched(dv + 1, want, plain);
        return true;
    }
    const double *query = job_slice(cache, SLOT_Q, job_find(job, "q"), row * d, d);
    const double *keys = job_attention_gather(job, cache, "k", &p, &at),
                 *values = job_attention_gather(job, cache, "v", &p, &at);
    if (!query || !keys || !values)
        return false;
    reference_attention_row_at(&p, &at, query, keys, values, want, want + dv, want_p);
    plain_attention_row_at(&p, &at, op->q.dtype, op->o.dtype, query, keys, values, plain, plain + dv, plain_p);
    return true;
}

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

static const unsigned char *mask_row(const struct job *job, const struct reference_row *at) {
    const struct job_tensor *mask = job_find(job, "mask");
    return mask ? (const unsigned char *)mask->host.data + plane_row(mask->view.dims, at) : NULL;
}

/* Is the key shown, other than by the bias? */
static bool shown(const unsigned char *mask, int64_t width, int64_t j) {
    return !mask || mask[width == 1 ? 0 : j];
}

double job_attention_pairs(const struct job *job) {
    struct reference_attention p;
    struct job_cache cache = {.slots = {{.values = NULL}}};
    double pairs = 0;
    const bool known = job_attention_problem(job, &cache, &p);
    const clattn_tensor mask = job_view(job, "mask");
    const bool alike = mask.rank == 0 || mask.dims[1] == 1;
    for (int64_t row = 0, rows = known ? reference_attention_rows(&p) : 0; row < rows; row++) {
        if (alike && row / p.nq % p.heads > 0)
            continue;
        const struct reference_row at = reference_attention_locate(&p, row);
        int64_t seen = at.end_key - at.first_key;
        if (mask.rank && seen > 0) {
            const unsigned char *line = mask_row(job, &at);
            seen = 0;
            for (int64_t j = at.first_key; j < at.end_key; j++)
                seen += shown(line, mask.dims[3], j);
        }
        pairs += (double)seen * (alike ? (double)p.heads : 1);
    }
    job_cache_free(&cache);
    return pairs;
}

/* ---- what no result depends on ----------------------------------------------------------------------------------- */

#define MOST_HIDDEN_PAIRS ((int64_t)1 << 25)

struct seen {
    bool *queries, *keys, *biases;
};

static bool note_row(const struct job *job, struct job_cache *cache, int64_t row, struct seen *seen) {
    struct reference_attention p;
    struct reference_row at;
    const clattn_tensor mask = job_view(job, "mask"), bias = job_view(job, "bias");
    if (!job_attention_locate(job, cache, row, &p, &at))
        return false;
    seen->queries[row] = at.sequence >= 0 && at.query < at.queries;
    if (at.first_key >= at.end_key)
        return true;
    const unsigned char *line = mask_row(job, &at);
    for (int64_t j = at.first_key; j < at.end_key; j++) {
        if (!shown(line, mask.dims[3], j))
            continue;
        if (bias.rank)
            seen->biases[plane_row(bias.dims, &at) + (bias.dims[3] == 1 ? 0 : j)] = true;
        if (reference_attention_sees(&p, &at, j))
            seen->keys[reference_attention_key(&p, &at, j)] = true;
    }
    return true;
}

static void spoil_codes(const struct job *job, struct job_tensor *tensor, const bool *seen) {
    const int64_t *dims = tensor->view.dims;
    for (int64_t row = 0; row < dims[0] * dims[1] * dims[2]; row++)
        if (!seen[row])
            job_attention_spoil_codes(job, tensor, row, row % 2 ? (double)INFINITY : (double)NAN);
}

static void spoil(struct job_tensor *tensor, const bool *seen, int64_t width) {
    for (int64_t i = 0; tensor && i < (int64_t)tensor->host.count; i++)
        if (!seen[i / width])
            job_set_value(tensor, i, i / width % 2 ? (double)INFINITY : (double)NAN);
}

static void spoil_keys(const struct job *job, struct job_tensor *tensor, const bool *seen) {
    if (job_attention_holds_codes(tensor))
        spoil_codes(job, tensor, seen);
    else
        spoil(tensor, seen, tensor->view.dims[3]);
}

static bool note_all(const struct job *job, int64_t rows, struct seen *seen) {
    struct job_cache cache = {.slots = {{.values = NULL}}};
    bool known = seen->queries && seen->keys && seen->biases;
    for (int64_t row = 0; row < rows && known; row++)
        known = note_row(job, &cache, row, seen);
    job_cache_free(&cache);
    return known;
}

int job_attention_hide(struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    const struct job_tensor *bias = job_find(job, "bias");
    const int64_t rows = op->q.dims[0] * op->q.dims[1] * op->q.dims[2];
    const int64_t keys = op->k.dims[0] * op->k.dims[1] * op->k.dims[2];
    if (rows == 0 || job_attention_columns(job) > MOST_HIDDEN_PAIRS / rows)
        return EXIT_OK;
    struct seen seen = {calloc((size_t)rows, 1), calloc((size_t)keys + 1, 1),
                        calloc(bias ? bias->host.count + 1 : 1, 1)};
    const bool known = note_all(job, rows, &seen);
    if (known) {
        spoil(job_find(job, "q"), seen.queries, op->q.dims[3]);
        spoil_keys(job, job_find(job, "k"), seen.keys);
        spoil_keys(job, job_find(job, "v"), seen.keys);
        spoil(job_find(job, "bias"), seen.biases, 1);
        spoil(job_find(job, "dout"), seen.queries, op->v.dims[3]);
        spoil(job_find(job, "dlse"), seen.queries, 1);
    }
    free(seen.queries);
    free(seen.keys);
    free(seen.biases);
    return known ? EXIT_OK : complain(EXIT_UNSUPPORTED, "attention: out of host memory");
}
