/* Attention's gradients as a job. What the forward call leaves, o and lse, comes from files, or the forward operation
 * makes it of a random problem. Small problems are one row for the oracle, which covers every gradient; of large ones
 * it covers rows of dq. */
#include "command.h"
#include "job_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_O = SLOT_GRADIENTS, SLOT_LSE, SLOT_DOUT, SLOT_DLSE };

/* What all gradients together may cost the oracle: about a second. */
#define WHOLE_MULTIPLICATIONS 1e9

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* o and lse hold NaN until the forward call writes them. */
static int add_results(struct job *job, enum element element, const int64_t dims[4]) {
    FORWARD(job_add_output(job, "o", element, 4, dims));
    FORWARD(job_add_output(job, "lse", ELEMENT_F32, 3, dims));
    job_find(job, "o")->output = false;
    job_find(job, "lse")->output = false;
    return EXIT_OK;
}

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    struct job_shape fp32 = *shape;
    int random = 0;
    fp32.element = ELEMENT_F32;
    FORWARD(job_attention_generate(job, shape, settings));
    const clattn_tensor q = job_view(job, "q"), v = job_view(job, "v");
    const int64_t dims[4] = {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
    FORWARD(job_take_layout(job, settings));
    FORWARD(add_results(job, shape->element, dims));
    FORWARD(job_add_random(job, "dout", shape, 4, dims));
    job->incomplete = !shape->blank;
    if (!settings_text(settings, "dlse"))
        return EXIT_OK;
    FORWARD(settings_choice(settings, "dlse", "random", &random));
    return job_add_random(job, "dlse", &fp32, 3, dims);
}

static int add_gradient(struct job *job, const char *name, const char *of, enum element element) {
    const struct job_tensor *like = job_find(job, of);
    const clattn_tensor view = like->view;
    const bool order = job->sequence_first;
    job->sequence_first = like->sequence_first;
    const int code = job_add_output(job, name, element, view.rank, view.dims);
    job->sequence_first = order;
    return code;
}

static int arrange(struct job *job, struct settings *settings) {
    enum element out = ELEMENT_F32;
    clattn_attention_backward_init(&job->op.attention_backward);
    FORWARD(job_attention_arrange(job, settings));
    FORWARD(job_require(job, "o", 4));
    FORWARD(job_require(job, "lse", 3));
    FORWARD(job_require(job, "dout", 4));
    FORWARD(job_take_out_element(job, settings, "q", &out));
    FORWARD(add_gradient(job, "dq", "q", out));
    FORWARD(add_gradient(job, "dk", "k", out));
    FORWARD(add_gradient(job, "dv", "v", out));
    if (job_find(job, "bias"))
        FORWARD(add_gradient(job, "dbias", "bias", job_find(job, "bias")->host.element));
    return job_find(job, "sinks") ? add_gradient(job, "dsinks", "sinks", ELEMENT_F32) : EXIT_OK;
}

static void bind(struct job *job) {
    clattn_attention_backward_op *op = &job->op.attention_backward;
    job_attention_bind(job);
    op->dout = job_view(job, "dout");
    op->dlse = job_view(job, "dlse");
    op->dq = job_view(job, "dq");
    op->dk = job_view(job, "dk");
    op->dv = job_view(job, "dv");
    op->dbias = job_view(job, "dbias");
    op->dsinks = job_view(job, "dsinks");
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    return clattn_attention_backward(context, (const clattn_attention_backward_op *)op, launch);
}

/* ---- the forward call -------------------------------------------------------------------------------------------- */

static int read_input(struct job_tensor *tensor, const struct machine *machine) {
    const size_t bytes = array_bytes(&tensor->host);
    if (bytes == 0)
        return EXIT_OK;
    const cl_int error =
        clEnqueueReadBuffer(machine->queue, tensor->buffer, CL_TRUE, 0, bytes, tensor->host.data, 0, NULL, NULL);
    return error == CL_SUCCESS
               ? EXIT_OK
               : complain(EXIT_UNSUPPORTED, "%s: reading failed (OpenCL error %d)", tensor->name, error);
}

static int complete(struct job *job, const struct machine *machine) {
    const clattn_attention_op *forward = job_attention_op(job);
    clattn_launch launch;
    size_t bytes = 0;
    clattn_launch_init(&launch, machine->queue);
    clattn_status status = clattn_workspace_size(machine->clattn, &forward->head, &launch, &bytes);
    cl_mem workspace = status == CLATTN_SUCCESS && bytes ? machine_buffer(machine, bytes) : NULL;
    launch.workspace = (clattn_workspace){.buffer = workspace, .size = workspace ? bytes : 0};
    if (status == CLATTN_SUCCESS)
        status = clattn_attention(machine->clattn, forward, &launch);
    int code = status == CLATTN_SUCCESS ? EXIT_OK : complain_status(status, "attention");
    if (code == EXIT_OK)
        code = read_input(job_find(job, "o"), machine);
    if (code == EXIT_OK)
        code = read_input(job_find(job, "lse"), machine);
    if (workspace)
        clReleaseMemObject(workspace);
    return code;
}

/* ---- the oracle: all of a problem -------------------------------------------------------------------------------- */

static double cost_of_row(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    return (double)job_attention_columns(job) * (double)(8 * op->q.dims[3] + 4 * op->v.dims[3]);
}

static int64_t row_count(const struct job *job) {
    const int64_t *dims = job_attention_op(job)->q.dims;
    return dims[0] * dims[1] * dims[2];
}

static bool is_whole(const struct job *job) {
    return cost_of_row(job) * (double)row_count(job) <= WHOLE_MULTIPLICATIONS;
}

static struct job_rows rows(const struct job *job) {
    const double size = (double)job_attention_columns(job);
    if (!is_whole(job))
        return (struct job_rows){.count = row_count(job),
                                 .inner = 1,
                                 .widths = {job_attention_op(job)->q.dims[3]},
                                 .size = size,
                                 .cost = cost_of_row(job)};
    struct job_rows whole = {.count = 1, .inner = 1, .size = size};
    for (size_t i = 0, k = 0; i < job->count && k < JOB_MAX_OUTPUTS; i++)
        if (job->tensors[i].output)
            whole.widths[k++] = (int64_t)job->tensors[i].host.count;
    return whole;
}

static const double *whole_of(const struct job *job, struct job_cache *cache, const char *name, size_t slot) {
    const struct job_tensor *tensor = job_find(job, name);
    return tensor ? job_slice(cache, slot, tensor, 0, (int64_t)tensor->host.count) : NULL;
}

/* Where the gradients of one after the other lie. */
static struct reference_gradients place(const struct job *job, double *values) {
    const clattn_attention_backward_op *op = &job->op.attention_backward;
    struct reference_gradients to = {.key_slabs = op->attention.k.dims[0]};
    to.dq = values;
    to.dk = to.dq + reference_count(&op->dq);
    to.dv = to.dk + reference_count(&op->dk);
    double *next = to.dv + reference_count(&op->dv);
    if (op->dbias.rank) {
        to.dbias = next;
        next += reference_count(&op->dbias);
    }
    to.dsinks = op->dsinks.rank ? next : NULL;
    return to;
}

static void expect_untouched(double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)NAN;
}

/* Rows of no sequence are not written. */
static void leave_rows(const struct reference_attention *p, const struct reference_gradients *to) {
    for (int64_t row = 0; p->q_offsets && row < reference_attention_rows(p); row++)
        if (reference_attention_locate(p, row).sequence < 0)
            expect_untouched(to->dq + row * p->head_dim, p->head_dim);
    for (int64_t row = 0; p->k_offsets && row < p->kv_heads * p->nk; row++) {
        const double at = (double)(row % p->nk);
        if (at >= p->k_offsets[0] && at < p->k_offsets[p->batch])
            continue;
        expect_untouched(to->dk + row * p->head_dim, p->head_dim);
        expect_untouched(to->dv + row * p->value_dim, p->value_dim);
    }
}

/* A sink's gradient is one sum of many terms, in which the plain version may be right by chance: half a unit in the
 * last place of each term is allowed in every case. */
static void widen_sinks(const struct reference_attention *p, const double *o, const double *lse, const double *dout,
                        const double *dlse, const double *want, double *plain) {
    for (int64_t head = 0; head < p->heads; head++) {
        double sum = 0;
        for (int64_t row = 0; row < reference_attention_rows(p); row++) {
            const struct reference_row at = reference_attention_locate(p, row);
            double terms = dlse ? fabs(dlse[row]) : 0;
            if (at.head != head || at.sequence < 0 || at.query >= at.queries)
                continue;
            for (int64_t c = 0; c < p->value_dim; c++)
                terms += fabs(dout[row * p->value_dim + c] * o[row * p->value_dim + c]);
            sum += exp(p->sinks[head] - lse[row]) * terms;
        }
        if (isfinite(sum))
            plain[head] = want[head] + fmax(fabs(plain[head] - want[head]), ldexp(sum, -24));
    }
}

/* o and lse as the plain version has them: what the job was given may be wrong, which must not widen the bound. */
static bool ask_results(const struct job *job, struct job_cache *cache, const struct reference_attention *p,
                        const double *q, const double *k, const double *v, const double **o, const double **lse) {
    const clattn_attention_op *op = job_attention_op(job);
    const int64_t rows = reference_attention_rows(p);
    bool fresh;
    double *to = job_cache_slot(cache, SLOT_O, 0, rows * p->value_dim, &fresh);
    double *to_lse = job_cache_slot(cache, SLOT_LSE, 0, rows, &fresh);
    for (int64_t row = 0; to && to_lse && row < rows; row++)
        plain_attention_row(p, op->q.dtype, op->o.dtype, q, k, v, row, to + row * p->value_dim, to_lse + row, NULL);
    *o = to;
    *lse = to_lse;
    return to && to_lse;
}

static bool ask_whole(const struct job *job, struct job_cache *cache, double *want, double *plain) {
    const clattn_attention_backward_op *op = &job->op.attention_backward;
    const struct reference_gradients right = place(job, want), rounded = place(job, plain);
    struct reference_attention p;
    if (!job_attention_problem(job, cache, &p))
        return false;
    p.mask.values = whole_of(job, cache, "mask", SLOT_MASK);
    p.bias.values = whole_of(job, cache, "bias", SLOT_BIAS);
    const double *q = whole_of(job, cache, "q", SLOT_Q), *k = whole_of(job, cache, "k", SLOT_K),
                 *v = whole_of(job, cache, "v", SLOT_V), *dout = whole_of(job, cache, "dout", SLOT_DOUT),
                 *dlse = whole_of(job, cache, "dlse", SLOT_DLSE), *o, *lse;
    const bool known = q && k && v && dout && (dlse || !job_find(job, "dlse")) &&
                       (p.mask.values || !job_find(job, "mask")) && (p.bias.values || !job_find(job, "bias"));
    if (!known || !ask_results(job, cache, &p, q, k, v, &o, &lse))
        return false;
    reference_attention_backward(&p, q, k, v, dout, dlse, &right);
    plain_attention_backward(&p, op->attention.q.dtype, op->dq.dtype, op->attention.bias.dtype, q, k, v, o, lse, dout,
                             dlse, &right, &rounded);
    leave_rows(&p, &right);
    leave_rows(&p, &rounded);
    if (p.sinks)
        widen_sinks(&p, o, lse, dout, dlse, right.dsinks, rounded.dsinks);
    return true;
}

/* ---- the oracle: a row of dq ------------------------------------------------------------------------------------- */

/* A problem of the row and its keys alone; mask and bias are of the row already. */
static struct reference_attention alone(const struct reference_attention *problem, const struct reference_row *at) {
    struct reference_attention one = *problem;
    one.batch = one.heads = one.kv_heads = one.nq = 1;
    one.nk = at->keys;
    one.top_left = false;
    one.has_diagonal = true;
    one.diagonal = (int64_t)at->position;
    one.max_q = one.max_k = 0;
    one.q_lengths = one.k_lengths = one.q_offsets = one.k_offsets = NULL;
    if (one.alibi.values)
        one.alibi.values += (one.alibi.dims[0] > 1 ? at->sequence * one.alibi.dims[1] : 0) + at->head;
    one.alibi.dims[0] = one.alibi.dims[1] = 1;
    if (one.sinks)
        one.sinks += at->head;
    return one;
}

static bool ask_row(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const clattn_attention_backward_op *op = &job->op.attention_backward;
    const int64_t d = op->attention.q.dims[3], dv = op->attention.v.dims[3];
    const struct job_tensor *tensor_dlse = job_find(job, "dlse");
    struct reference_attention p;
    struct reference_row at;
    if (!job_attention_locate(job, cache, row, &p, &at))
        return false;
    if (at.sequence < 0) {
        expect_untouched(want, d);
        expect_untouched(plain, d);
        return true;
    }
    if (at.query >= at.queries)
        return true;
    const double *q = job_slice(cache, SLOT_Q, job_find(job, "q"), row * d, d),
                 *dout = job_slice(cache, SLOT_DOUT, job_find(job, "dout"), row * dv, dv),
                 *dlse = tensor_dlse ? job_slice(cache, SLOT_DLSE, tensor_dlse, row, 1) : NULL,
                 *k = job_attention_gather(job, cache, "k", &p, &at),
                 *v = job_attention_gather(job, cache, "v", &p, &at), *o, *lse;
    if (!q || !dout || !k || !v || (tensor_dlse && !dlse))
        return false;
    const struct reference_attention one = alone(&p, &at);
    if (!ask_results(job, cache, &one, q, k, v, &o, &lse))
        return false;
    const struct reference_gradients right = {.dq = want, .key_slabs = 1}, rounded = {.dq = plain, .key_slabs = 1};
    reference_attention_backward(&one, q, k, v, dout, dlse, &right);
    plain_attention_backward(&one, op->attention.q.dtype, op->dq.dtype, CLATTN_F32, q, k, v, o, lse, dout, dlse, &right,
                             &rounded);
    return true;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const struct job_rows shape = rows(job);
    for (size_t k = 0, at = 0; k < JOB_MAX_OUTPUTS; at += (size_t)shape.widths[k++]) {
        memset(want + at, 0, (size_t)shape.widths[k] * sizeof *want);
        memset(plain + at, 0, (size_t)shape.widths[k] * sizeof *plain);
    }
    return is_whole(job) ? ask_whole(job, cache, want, plain) : ask_row(job, cache, row, want, plain);
}

/* Scores, their gradients, and the products that become dv, dk and dq. */
static double flops(const struct job *job) {
    const clattn_attention_op *op = job_attention_op(job);
    return 2.0 * (double)(3 * op->q.dims[3] + 2 * op->v.dims[3]) * job_attention_pairs(job);
}

const struct job_kind job_attention_backward = {.name = "attention_backward",
                                                .shape = "B,HQ,HKV,NQ,NK,D[,DV]",
                                                .op = CLATTN_OP_ATTENTION_BACKWARD,
                                                .generate = generate,
                                                .arrange = arrange,
                                                .hide = job_attention_hide,
                                                .complete = complete,
                                                .bind = bind,
                                                .call = call,
                                                .rows = rows,
                                                .reference = reference,
                                                .flops = flops,
                                                .describe = job_attention_describe};
