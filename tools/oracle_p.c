/* Single probabilities of attention, read from the very variant: with V = slices of the identity, O is P. */
#include "command.h"
#include "job_attention.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define P_ROWS 16
#define P_SLICES 16

/* Rows spread over the chosen ones, without those that are not written. */
static bool choose_rows(struct oracle *oracle, const struct job *job, struct job_cache *cache) {
    const size_t count = oracle->count < P_ROWS ? oracle->count : P_ROWS;
    struct reference_attention problem;
    struct reference_row at;
    for (size_t r = 0; r < count; r++) {
        const int64_t row = oracle->rows[oracle->count - 1 - r * (oracle->count - 1) / P_ROWS];
        if (!job_attention_locate(job, cache, row, &problem, &at))
            return false;
        if (at.sequence >= 0)
            oracle->p.rows[oracle->p.count++] = row;
    }
    return true;
}

/* A page that a sequence has twice would show the sum of two probabilities. */
static bool note_pages(int64_t *index_of, const struct reference_attention *problem, const struct reference_row *at) {
    bool apart = true;
    for (int64_t p = 0; p * problem->nk < at->keys; p++) {
        const int64_t page = (int64_t)problem->page_table[at->sequence * problem->max_pages + p];
        apart = apart && (index_of[page] < 0 || index_of[page] == p);
        index_of[page] = p;
    }
    return apart;
}

static bool keys_are_apart(struct oracle *oracle, const struct job *job, struct job_cache *cache, bool *apart) {
    const int64_t slabs = job->op.attention.k.dims[0];
    struct reference_attention problem;
    struct reference_row at;
    *apart = true;
    if (job->op.attention.page_table.rank == 0)
        return true;
    int64_t *index_of = malloc((size_t)(slabs + 1) * sizeof *index_of);
    bool known = index_of != NULL;
    for (int64_t i = 0; known && i < slabs; i++)
        index_of[i] = -1;
    for (size_t r = 0; r < oracle->p.count && known; r++) {
        known = job_attention_locate(job, cache, oracle->p.rows[r], &problem, &at);
        *apart = known && note_pages(index_of, &problem, &at) && *apart;
    }
    free(index_of);
    return known;
}

static bool ask_rows(struct oracle *oracle, const struct job *job, struct job_cache *cache) {
    const size_t keys = (size_t)job_attention_columns(job), dv = (size_t)job->op.attention.v.dims[3];
    oracle->p.want = malloc((oracle->p.count * keys + 1) * sizeof(double));
    oracle->p.plain = malloc((oracle->p.count * keys + 1) * sizeof(double));
    double *values = malloc(2 * (dv + 1) * sizeof *values);
    bool done = oracle->p.want && oracle->p.plain && values;
    for (size_t r = 0; r < oracle->p.count && done; r++)
        done = job_attention_row(job, cache, oracle->p.rows[r], values, values + dv + 1, oracle->p.want + r * keys,
                                 oracle->p.plain + r * keys);
    if (done)
        oracle->p.plain_error =
            reference_plain_error((int64_t)(oracle->p.count * keys), oracle->p.want, oracle->p.plain);
    free(values);
    return done;
}

bool oracle_ask_p(struct oracle *oracle, const struct job *job) {
    struct job_cache cache = {.slots = {{.values = NULL}}};
    bool apart = true;
    oracle->p.rows = malloc((P_ROWS + 1) * sizeof *oracle->p.rows);
    bool done = oracle->p.rows && choose_rows(oracle, job, &cache) && keys_are_apart(oracle, job, &cache, &apart);
    if (!apart)
        oracle->p.count = 0;
    done = done && ask_rows(oracle, job, &cache);
    job_cache_free(&cache);
    return done;
}

/* A one where key `first` + c of a row's sequence meets column c of V. */
static bool mark_keys(const struct oracle *oracle, const struct job *job, int64_t first, struct job_tensor *identity) {
    struct job_cache cache = {.slots = {{.values = NULL}}};
    struct reference_attention problem;
    struct reference_row at;
    const int64_t dv = identity->view.dims[3];
    bool known = true;
    for (size_t r = 0; r < oracle->p.count && known; r++) {
        known = job_attention_locate(job, &cache, oracle->p.rows[r], &problem, &at);
        for (int64_t c = 0; known && c < dv && first + c < at.keys; c++)
            job_set_value(identity, reference_attention_key(&problem, &at, first + c) * dv + c, 1);
    }
    job_cache_free(&cache);
    return known;
}

static int write_identity(const struct oracle *oracle, const struct job *job, const struct machine *machine,
                          int64_t first) {
    struct job_tensor identity = *job_find(job, "v");
    const struct array *v = &job_find(job, "v")->host;
    if (!array_make(&identity.host, v->element, v->rank, v->dims))
        return complain(EXIT_UNSUPPORTED, "v: out of host memory");
    if (!mark_keys(oracle, job, first, &identity)) {
        array_free(&identity.host);
        return complain(EXIT_UNSUPPORTED, "v: out of host memory");
    }
    const cl_int error = clEnqueueWriteBuffer(machine->queue, identity.buffer, CL_TRUE, 0, array_bytes(&identity.host),
                                              identity.host.data, 0, NULL, NULL);
    array_free(&identity.host);
    return error == CL_SUCCESS ? EXIT_OK : complain(EXIT_UNSUPPORTED, "v: OpenCL error %d", error);
}

static void compare_slice(const struct oracle *oracle, const struct job *job, int64_t first,
                          struct reference_error *found) {
    const struct job_tensor *o = job_find(job, "o");
    const int64_t keys = job_attention_columns(job), dv = job->op.attention.v.dims[3];
    for (size_t r = 0; r < oracle->p.count; r++)
        for (int64_t c = 0; c < dv && first + c < keys; c++) {
            const double got = job_value(o, &o->result, oracle->p.rows[r] * dv + c);
            reference_compare(found, 1, &got, &oracle->p.want[(int64_t)r * keys + first + c], oracle->p.plain_error,
                              o->view.dtype);
        }
}

int oracle_compare_p(const struct oracle *oracle, struct job *job, const struct machine *machine, const char *variant,
                     const char *parameters, struct errors *errors) {
    if (job->kind->op != CLATTN_OP_ATTENTION || oracle->p.count == 0 || job_attention_holds_codes(job_find(job, "v")))
        return EXIT_OK;
    const int64_t keys = job_attention_columns(job), dv = job->op.attention.v.dims[3];
    const int64_t slices = dv ? (keys + dv - 1) / dv : 0;
    const int64_t stride = slices > P_SLICES ? (slices + P_SLICES - 1) / P_SLICES : 1;
    struct reference_error found = {.count = 0};
    int code = EXIT_OK;
    for (int64_t s = 0; s < slices && code == EXIT_OK; s += stride) {
        code = write_identity(oracle, job, machine, s * dv);
        if (code == EXIT_OK)
            code = job_launch(job, machine, variant, parameters, NULL);
        if (code == EXIT_OK)
            code = job_read(job, machine);
        if (code == EXIT_OK)
            compare_slice(oracle, job, s * dv, &found);
    }
    const double max_abs = errors->max_abs, max_rel = errors->max_rel;
    oracle_note(errors, &found, "P");
    errors->max_abs = max_abs;
    errors->max_rel = max_rel;
    errors->p_error = found.largest;
    const struct job_tensor *v = job_find(job, "v");
    if (array_bytes(&v->host))
        clEnqueueWriteBuffer(machine->queue, v->buffer, CL_TRUE, 0, array_bytes(&v->host), v->host.data, 0, NULL, NULL);
    return code;
}
