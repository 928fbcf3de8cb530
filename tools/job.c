/* What all operations share: tensors, views, buffers, launches. */
#include "job.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct job_kind *const kinds[] = {&job_attention,
                                               &job_attention_decode,
                                               &job_attention_cascade,
                                               &job_attention_merge,
                                               &job_attention_backward,
                                               &job_softmax,
                                               &job_log_softmax,
                                               &job_logsumexp,
                                               &job_softmax_state,
                                               &job_softmax_merge,
                                               &job_gemm,
                                               &job_rms_norm,
                                               &job_layer_norm,
                                               &job_rms_norm_backward,
                                               &job_layer_norm_backward,
                                               &job_softmax_backward,
                                               &job_log_softmax_backward,
                                               &job_softmax_topk,
                                               &job_rope_append,
                                               &job_cast,
                                               &job_unscale,
                                               &job_adamw,
                                               &job_sgd};

const struct job_kind *job_kind_at(size_t index) {
    return index < sizeof kinds / sizeof *kinds ? kinds[index] : NULL;
}

const struct job_kind *job_kind_named(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

int job_complain_unknown(const char *name) {
    char names[512] = "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s", kinds[i]->name);
    return complain(EXIT_USAGE, "no operation '%s'; there are:%s", name, names);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

void job_start(struct job *job, const struct job_kind *kind) {
    memset(job, 0, sizeof *job);
    job->kind = kind;
}

static void set_view(struct job_tensor *tensor) {
    const struct array *host = &tensor->host;
    if (host->rank < 1 || host->rank > CLATTN_MAX_RANK || element_dtype(host->element) == 0)
        return;
    tensor->view = clattn_tensor_dense(NULL, element_dtype(host->element), host->rank, host->dims);
    if (tensor->sequence_first && host->rank == 4) {
        clattn_tensor *view = &tensor->view;
        const int64_t n = view->dims[1], n_stride = view->strides[1];
        view->dims[1] = view->dims[2];
        view->strides[1] = view->strides[2];
        view->dims[2] = n;
        view->strides[2] = n_stride;
    }
    if (tensor->within)
        tensor->view.dims[host->rank - 1] = tensor->columns;
}

int job_add(struct job *job, const char *name, bool output, struct array *array) {
    if (job->count == JOB_MAX_TENSORS || strlen(name) >= sizeof job->tensors->name || job_find(job, name)) {
        array_free(array);
        return complain(EXIT_USAGE, "%s: too many tensors, or a name too long or repeated", name);
    }
    struct job_tensor *tensor = &job->tensors[job->count++];
    *tensor = (struct job_tensor){.output = output, .sequence_first = job->sequence_first, .host = *array};
    strcpy(tensor->name, name);
    *array = (struct array){.data = NULL};
    set_view(tensor);
    return EXIT_OK;
}

static int complain_memory(const char *name) {
    return complain(EXIT_UNSUPPORTED, "%s: out of host memory, or impossible dimensions", name);
}

/* As they lie in the host array. */
static void order_dims(const struct job *job, int rank, const int64_t *dims, int64_t *stored) {
    memcpy(stored, dims, (size_t)rank * sizeof *dims);
    if (job->sequence_first && rank == 4) {
        stored[1] = dims[2];
        stored[2] = dims[1];
    }
}

int job_add_random(struct job *job, const char *name, const struct job_shape *shape, int rank, const int64_t *dims) {
    int64_t stored[ARRAY_MAX_RANK];
    struct array array;
    order_dims(job, rank, dims, stored);
    if (!array_make(&array, shape->element, rank, stored))
        return complain_memory(name);
    /* the tensors of a job, and equal tensors of jobs with other seeds, differ */
    if (!shape->blank)
        array_fill_normal(&array, shape->seed * JOB_MAX_TENSORS + job->count);
    return job_add(job, name, false, &array);
}

int job_add_output(struct job *job, const char *name, enum element element, int rank, const int64_t *dims) {
    int64_t stored[ARRAY_MAX_RANK];
    struct array array;
    order_dims(job, rank, dims, stored);
    if (!array_make(&array, element, rank, stored))
        return complain_memory(name);
    array_poison(&array);
    return job_add(job, name, true, &array);
}

int job_add_within(struct job *job, const char *name, const char *whole, int64_t columns) {
    const struct job_tensor *of = job_find(job, whole);
    struct array empty = of->host;
    if (columns < 0 || columns > of->view.dims[of->view.rank - 1])
        return complain(EXIT_USAGE, "%s: the first %lld columns of %s, which has %lld", name, (long long)columns, whole,
                        (long long)of->view.dims[of->view.rank - 1]);
    const size_t within = (size_t)(of - job->tensors) + 1;
    const bool order = of->sequence_first;
    empty.count = 0;
    empty.data = NULL;
    FORWARD(job_add(job, name, false, &empty));
    struct job_tensor *part = job_find(job, name);
    part->within = within;
    part->columns = columns;
    part->host.data = job->tensors[within - 1].host.data;
    job_set_order(job, name, order);
    return EXIT_OK;
}

struct job_tensor *job_find(const struct job *job, const char *name) {
    for (size_t i = 0; i < job->count; i++)
        if (strcmp(job->tensors[i].name, name) == 0) {
            struct job_tensor *tensor = (struct job_tensor *)&job->tensors[i];
            tensor->asked_for = true;
            return tensor;
        }
    return NULL;
}

clattn_tensor job_view(const struct job *job, const char *name) {
    const struct job_tensor *tensor = job_find(job, name);
    return tensor ? tensor->view : (clattn_tensor){.memory = {.kind = CLATTN_MEMORY_NONE}};
}

int job_take_layout(struct job *job, struct settings *settings) {
    int choice = 0;
    FORWARD(settings_choice(settings, "layout", "bhsd bshd", &choice));
    job->sequence_first = choice == 1;
    for (size_t i = 0; i < job->count; i++) {
        job->tensors[i].sequence_first = job->sequence_first;
        set_view(&job->tensors[i]);
    }
    return EXIT_OK;
}

void job_set_order(struct job *job, const char *name, bool sequence_first) {
    struct job_tensor *tensor = job_find(job, name);
    if (!tensor)
        return;
    tensor->sequence_first = sequence_first;
    set_view(tensor);
}

int job_take_out_element(struct job *job, struct settings *settings, const char *like, enum element *out) {
    int choice = (int)job_find(job, like)->host.element;
    FORWARD(settings_choice(settings, "out_dtype", "f32 f16 bf16", &choice));
    *out = (enum element)choice;
    return EXIT_OK;
}

int job_require(const struct job *job, const char *name, int rank) {
    const struct job_tensor *tensor = job_find(job, name);
    if (!tensor)
        return complain(EXIT_USAGE, "%s wants a tensor '%s'", job->kind->name, name);
    if (!element_is_float(tensor->host.element))
        return complain(EXIT_USAGE, "%s: element type %s, want f32, f16 or bf16", name,
                        element_name(tensor->host.element));
    if (rank ? tensor->host.rank != rank : tensor->host.rank < 1 || tensor->host.rank > CLATTN_MAX_RANK)
        return complain(EXIT_USAGE, "%s: %d dimensions, want %s%d", name, tensor->host.rank, rank ? "" : "1 to ",
                        rank ? rank : CLATTN_MAX_RANK);
    return EXIT_OK;
}

int job_generate(struct job *job, const struct job_kind *kind, const struct job_shape *shape,
                 struct settings *settings) {
    job_start(job, kind);
    for (size_t i = 0; i < shape->count; i++)
        if (shape->dims[i] < 0)
            return complain(EXIT_USAGE, "%s: a size of %lld", kind->name, (long long)shape->dims[i]);
    FORWARD(kind->generate(job, shape, settings));
    FORWARD(job_arrange(job, settings));
    return kind->hide && !shape->blank ? kind->hide(job) : EXIT_OK;
}

int job_arrange(struct job *job, struct settings *settings) {
    FORWARD(job->kind->arrange(job, settings));
    FORWARD(settings_refuse_unknown(settings, job->kind->name));
    job->kind->bind(job);
    return EXIT_OK;
}

void job_release(struct job *job) {
    for (size_t i = 0; i < job->count; i++) {
        if (!job->tensors[i].within)
            array_free(&job->tensors[i].host);
        array_free(&job->tensors[i].result);
        if (job->tensors[i].buffer)
            clReleaseMemObject(job->tensors[i].buffer);
    }
    for (size_t i = 0; i < sizeof job->unquantised / sizeof *job->unquantised; i++)
        array_free(&job->unquantised[i]);
    if (job->workspace)
        clReleaseMemObject(job->workspace);
    job->workspace = NULL;
    job->count = 0;
}

double job_bytes(const struct job *job) {
    double bytes = 0;
    if (job->kind->bytes)
        return job->kind->bytes(job);
    for (size_t i = 0; i < job->count; i++)
        if (!job->tensors[i].derived)
            bytes += (double)array_bytes(&job->tensors[i].host) * (job->tensors[i].updated ? 2 : 1);
    return bytes;
}

/* ---- for the kinds ----------------------------------------------------------------------------------------------- */

static size_t element_at(const clattn_tensor *view, int64_t index) {
    int64_t at = view->offset;
    for (int d = view->rank - 1; d >= 0; d--) {
        at += index % view->dims[d] * view->strides[d];
        index /= view->dims[d];
    }
    return (size_t)at;
}

double job_value(const struct job_tensor *tensor, const struct array *array, int64_t index) {
    return array_get(array, element_at(&tensor->view, index));
}

void job_values(const struct job_tensor *tensor, const struct array *array, int64_t first, int64_t count,
                double *values) {
    const clattn_tensor *view = &tensor->view;
    const int64_t width = view->rank ? view->dims[view->rank - 1] : 1;
    for (int64_t done = 0; done < count;) {
        const int64_t left = width - (first + done) % width, run = left < count - done ? left : count - done;
        const size_t at = element_at(view, first + done);
        const size_t stride = view->rank ? (size_t)view->strides[view->rank - 1] : 0;
        for (int64_t i = 0; i < run; i++)
            values[done + i] = array_get(array, at + (size_t)i * stride);
        done += run;
    }
}

struct job_extent job_extent(const struct job_tensor *tensor, int64_t first, int64_t count) {
    const size_t size = element_size(tensor->host.element);
    const size_t from = element_at(&tensor->view, first), to = element_at(&tensor->view, first + count - 1);
    return (struct job_extent){from * size, (to - from + 1) * size};
}

void job_set_value(struct job_tensor *tensor, int64_t index, double value) {
    array_set(&tensor->host, element_at(&tensor->view, index), value);
}

double *job_cache_slot(struct job_cache *cache, size_t slot, int64_t first, int64_t count, bool *fresh) {
    double **values = &cache->slots[slot].values;
    *fresh = !*values || cache->slots[slot].first != first || cache->slots[slot].count != count;
    if (!*fresh)
        return *values;
    free(*values);
    *values = malloc((size_t)(count ? count : 1) * sizeof **values);
    cache->slots[slot].first = first;
    cache->slots[slot].count = count;
    return *values;
}

const double *job_slice(struct job_cache *cache, size_t slot, const struct job_tensor *tensor, int64_t first,
                        int64_t count) {
    bool fresh;
    double *values = job_cache_slot(cache, slot, first, count, &fresh);
    if (values && fresh)
        job_values(tensor, &tensor->host, first, count, values);
    return values;
}

void job_cache_free(struct job_cache *cache) {
    for (size_t i = 0; i < JOB_CACHE_SLOTS; i++)
        free(cache->slots[i].values);
    *cache = (struct job_cache){.slots = {{.values = NULL}}};
}
