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

/* ---- V as slices of the identity --------------------------------------------------------------------------------- */

/* All but the rows of keys that the chosen rows see stays zero, and only these are carried over. */
struct slice {
    const struct oracle *oracle;
    const struct job *job;
    const struct machine *machine;
    struct job_tensor identity; /* a V of zeros, with the marks of a slice while it is written */
    struct job_cache cache;
    int64_t first, end; /* keys */
};

static int complain_memory(void) {
    return complain(EXIT_UNSUPPORTED, "v: out of host memory");
}

/* Sets column c of the slice's c-th key, for a chosen row's sequence, and writes these rows where `write` says so. */
static cl_int mark_keys(struct slice *slice, int64_t row, double value, bool write) {
    struct reference_attention problem;
    struct reference_row at;
    struct job_tensor *identity = &slice->identity;
    const int64_t dv = identity->view.dims[3];
    cl_int error = CL_SUCCESS;
    if (!job_attention_locate(slice->job, &slice->cache, row, &problem, &at))
        return CL_OUT_OF_HOST_MEMORY;
    for (int64_t key = slice->first; key < slice->end && key < at.keys && error == CL_SUCCESS; key++) {
        const int64_t index = reference_attention_key(&problem, &at, key) * dv;
        const struct job_extent extent = job_extent(identity, index, dv);
        job_set_value(identity, index + key - slice->first, value);
        if (write)
            error = clEnqueueWriteBuffer(slice->machine->queue, identity->buffer, CL_FALSE, extent.first, extent.bytes,
                                         (const char *)identity->host.data + extent.first, 0, NULL, NULL);
    }
    return error;
}

static cl_int write_identity(struct slice *slice) {
    const size_t bytes = array_bytes(&slice->identity.host);
    const cl_uchar zero = 0;
    cl_int error =
        clEnqueueFillBuffer(slice->machine->queue, slice->identity.buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL);
    for (size_t r = 0; r < slice->oracle->p.count && error == CL_SUCCESS; r++)
        error = mark_keys(slice, slice->oracle->p.rows[r], 1, true);
    if (error == CL_SUCCESS)
        error = clFinish(slice->machine->queue);
    for (size_t r = 0; r < slice->oracle->p.count && error == CL_SUCCESS; r++)
        error = mark_keys(slice, slice->oracle->p.rows[r], 0, false);
    return error;
}

static cl_int compare_slice(const struct slice *slice, struct reference_error *found) {
    const struct oracle *oracle = slice->oracle;
    struct job_tensor *o = job_find(slice->job, "o");
    const int64_t keys = job_attention_columns(slice->job), dv = slice->identity.view.dims[3];
    cl_int error = CL_SUCCESS;
    for (size_t r = 0; r < oracle->p.count && error == CL_SUCCESS; r++) {
        const struct job_extent extent = job_extent(o, oracle->p.rows[r] * dv, dv);
        error = clEnqueueReadBuffer(slice->machine->queue, o->buffer, CL_TRUE, extent.first, extent.bytes,
                                    (char *)o->result.data + extent.first, 0, NULL, NULL);
        for (int64_t c = 0; error == CL_SUCCESS && slice->first + c < slice->end; c++) {
            const double got = job_value(o, &o->result, oracle->p.rows[r] * dv + c);
            reference_compare(found, 1, &got, &oracle->p.want[(int64_t)r * keys + slice->first + c],
                              oracle->p.plain_error, o->view.dtype);
        }
    }
    return error;
}

static int try_slice(struct slice *slice, struct job *job, const char *variant, const char *parameters,
                     struct reference_error *found) {
    cl_int error = write_identity(slice);
    if (error == CL_SUCCESS)
        FORWARD(job_launch(job, slice->machine, variant, parameters, NULL));
    if (error == CL_SUCCESS)
        error = compare_slice(slice, found);
    return error == CL_SUCCESS ? EXIT_OK : complain(EXIT_UNSUPPORTED, "P: OpenCL error %d", error);
}

static int try_slices(struct slice *slice, struct job *job, const char *variant, const char *parameters,
                      struct reference_error *found) {
    const int64_t keys = job_attention_columns(job), dv = job->op.attention.v.dims[3];
    const int64_t slices = dv ? (keys + dv - 1) / dv : 0;
    const int64_t stride = slices > P_SLICES ? (slices + P_SLICES - 1) / P_SLICES : 1;
    int code = EXIT_OK;
    for (int64_t s = 0; s < slices && code == EXIT_OK; s += stride) {
        slice->first = s * dv;
        slice->end = slice->first + dv < keys ? slice->first + dv : keys;
        code = try_slice(slice, job, variant, parameters, found);
    }
    return code;
}

static void note_p(const struct reference_error *found, struct errors *errors) {
    const double max_abs = errors->max_abs, max_rel = errors->max_rel;
    oracle_note(errors, found, "P");
    errors->max_abs = max_abs;
    errors->max_rel = max_rel;
    errors->p_error = found->largest;
}

int oracle_compare_p(const struct oracle *oracle, struct job *job, const struct machine *machine, const char *variant,
                     const char *parameters, struct errors *errors) {
    if (job->kind->op != CLATTN_OP_ATTENTION || oracle->p.count == 0 || job_attention_holds_codes(job_find(job, "v")) ||
        job_find(job, "v")->within > 0)
        return EXIT_OK;
    const struct job_tensor *v = job_find(job, "v");
    struct job_tensor *o = job_find(job, "o");
    struct slice slice = {oracle, job, machine, .identity = *v, .cache = {.slots = {{.values = NULL}}}};
    struct reference_error found = {.count = 0};
    if (!array_bytes(&v->host))
        return EXIT_OK;
    if (!array_make(&slice.identity.host, v->host.element, v->host.rank, v->host.dims))
        return complain_memory();
    int code = o->result.data || array_make(&o->result, o->host.element, o->host.rank, o->host.dims)
                   ? try_slices(&slice, job, variant, parameters, &found)
                   : complain_memory();
    array_free(&slice.identity.host);
    job_cache_free(&slice.cache);
    note_p(&found, errors);
    if (code == EXIT_OK && clEnqueueWriteBuffer(machine->queue, v->buffer, CL_TRUE, 0, array_bytes(&v->host),
                                                v->host.data, 0, NULL, NULL) != CL_SUCCESS)
        code = complain(EXIT_UNSUPPORTED, "v: writing failed");
    return code;
}
