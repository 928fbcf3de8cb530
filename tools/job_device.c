/* A job on a device: its buffers, workspace and launches. */
#include "command.h"
#include "job.h"

#include <clattn/variants.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain_memory(const char *name) {
    return complain(EXIT_UNSUPPORTED, "%s: out of host memory", name);
}

static void attach(struct job_tensor *tensor, cl_mem buffer) {
    tensor->buffer = buffer;
    tensor->view.memory.kind = CLATTN_MEMORY_BUFFER;
    tensor->view.memory.as.buffer = buffer;
}

static int write_tensor(const struct job_tensor *tensor, const struct machine *machine, cl_mem buffer) {
    const size_t bytes = array_bytes(&tensor->host);
    if (bytes == 0 || tensor->derived)
        return EXIT_OK;
    const cl_int error =
        clEnqueueWriteBuffer(machine->queue, buffer, CL_TRUE, 0, bytes, tensor->host.data, 0, NULL, NULL);
    return error == CL_SUCCESS
               ? EXIT_OK
               : complain(EXIT_UNSUPPORTED, "%s: writing failed (OpenCL error %d)", tensor->name, error);
}

/* others: the buffers of the tensors before it. */
static int make_buffer(const struct job_tensor *tensor, const struct machine *machine, const cl_mem *others,
                       cl_mem *out) {
    *out = NULL;
    if (tensor->derived)
        return EXIT_OK;
    if (tensor->within) {
        *out = others[tensor->within - 1];
        clRetainMemObject(*out);
        return EXIT_OK;
    }
    *out = machine_buffer(machine, array_bytes(&tensor->host));
    if (!*out)
        return complain(EXIT_UNSUPPORTED, "%s: no device memory for %zu bytes", tensor->name,
                        array_bytes(&tensor->host));
    return EXIT_OK;
}

/* With what the tensor's own buffer holds: the device copies sooner than the host writes. */
static int copy_buffer(const struct job_tensor *tensor, const struct machine *machine, const cl_mem *others,
                       cl_mem *out) {
    const size_t bytes = array_bytes(&tensor->host);
    FORWARD(make_buffer(tensor, machine, others, out));
    if (tensor->derived)
        return EXIT_OK;
    const cl_int error =
        bytes ? clEnqueueCopyBuffer(machine->queue, tensor->buffer, *out, 0, 0, bytes, 0, NULL, NULL) : CL_SUCCESS;
    return error == CL_SUCCESS
               ? EXIT_OK
               : complain(EXIT_UNSUPPORTED, "%s: copying failed (OpenCL error %d)", tensor->name, error);
}

bool job_takes(const struct job *job, const char *variant) {
    static const char *const own[] = {"decode"}; /* of kinds of their own */
    const char *start = job->kind->variants;
    for (size_t i = 0; !start && i < sizeof own / sizeof *own; i++)
        if (strncmp(variant, own[i], strlen(own[i])) == 0)
            return false;
    return !start || strncmp(variant, start, strlen(start)) == 0;
}

/* The first that accepts, where the kind is about some variants of its operation alone. */
static void choose_variant(struct job *job, const struct machine *machine) {
    char reason[160];
    for (size_t i = 0; job->kind->variants && !job->variant[0] && i < clattn_variant_count(job->kind->op); i++) {
        const char *name = clattn_variant_name(job->kind->op, i);
        if (job_takes(job, name) &&
            clattn_variant_question(machine->clattn, &job->op.head, name, reason, sizeof reason) == CLATTN_SUCCESS &&
            !reason[0])
            snprintf(job->variant, sizeof job->variant, "%s", name);
    }
}

int job_upload(struct job *job, const struct machine *machine) {
    cl_mem buffers[JOB_MAX_TENSORS];
    for (size_t i = 0; i < job->count; i++) {
        const int code = make_buffer(&job->tensors[i], machine, buffers, &buffers[i]);
        attach(&job->tensors[i], buffers[i]);
        FORWARD(code);
        FORWARD(write_tensor(&job->tensors[i], machine, buffers[i]));
    }
    job->kind->bind(job);
    if (job->incomplete)
        FORWARD(job->kind->complete(job, machine));
    choose_variant(job, machine);
    return EXIT_OK;
}

int job_reset(struct job *job, const struct machine *machine) {
    for (size_t i = 0; i < job->count; i++)
        if (job->tensors[i].output || job->tensors[i].updated)
            FORWARD(write_tensor(&job->tensors[i], machine, job->tensors[i].buffer));
    return EXIT_OK;
}

clattn_launch job_launch_of(const struct job *job, const struct machine *machine, const char *variant,
                            const char *parameters) {
    clattn_launch launch;
    clattn_launch_init(&launch, machine->queue);
    launch.variant = variant || !job->variant[0] ? variant : job->variant;
    launch.parameters = parameters || !job->parameters[0] ? parameters : job->parameters;
    return launch;
}

int job_prepare(struct job *job, const struct machine *machine, const char *variant, const char *parameters) {
    const clattn_launch launch = job_launch_of(job, machine, variant, parameters);
    size_t bytes = 0;
    clattn_status status = clattn_workspace_size(machine->clattn, &job->op.head, &launch, &bytes);
    if (status == CLATTN_SUCCESS)
        status = clattn_prepare(machine->clattn, &job->op.head, &launch);
    if (status != CLATTN_SUCCESS)
        return complain_status(status, job->kind->name);
    if (job->workspace)
        clReleaseMemObject(job->workspace);
    job->workspace = bytes ? machine_buffer(machine, bytes) : NULL;
    job->workspace_bytes = bytes;
    if (bytes && !job->workspace)
        return complain(EXIT_UNSUPPORTED, "%s: no device memory for a workspace of %zu bytes", job->kind->name, bytes);
    return EXIT_OK;
}

int job_launch(struct job *job, const struct machine *machine, const char *variant, const char *parameters,
               cl_event *event) {
    clattn_launch launch = job_launch_of(job, machine, variant, parameters);
    launch.event = event;
    launch.workspace = (clattn_workspace){.buffer = job->workspace, .size = job->workspace_bytes};
    const clattn_status status = job->kind->call(machine->clattn, &job->op.head, &launch);
    return status == CLATTN_SUCCESS ? EXIT_OK : complain_status(status, job->kind->name);
}

int job_read(struct job *job, const struct machine *machine) {
    cl_int error = clFinish(machine->queue);
    for (size_t i = 0; i < job->count && error == CL_SUCCESS; i++) {
        struct job_tensor *tensor = &job->tensors[i];
        const size_t bytes = array_bytes(&tensor->host);
        if (!tensor->output)
            continue;
        if (!tensor->result.data &&
            !array_make(&tensor->result, tensor->host.element, tensor->host.rank, tensor->host.dims))
            return complain_memory(tensor->name);
        if (bytes && !tensor->derived)
            error = clEnqueueReadBuffer(machine->queue, tensor->buffer, CL_TRUE, 0, bytes, tensor->result.data, 0, NULL,
                                        NULL);
    }
    if (error == CL_SUCCESS && job->kind->derive)
        job->kind->derive(job);
    return error == CL_SUCCESS
               ? EXIT_OK
               : complain(EXIT_UNSUPPORTED, "%s: the device failed (OpenCL error %d)", job->kind->name, error);
}

/* ---- sets of buffers --------------------------------------------------------------------------------------------- */

int job_sets_make(struct job_sets *sets, struct job *job, const struct machine *machine, size_t count) {
    *sets = (struct job_sets){.count = 1};
    for (size_t i = 0; i < job->count; i++)
        sets->own[i] = job->tensors[i].buffer;
    sets->buffers = calloc(count, sizeof *sets->buffers);
    if (!sets->buffers)
        return complain_memory(job->kind->name);
    for (; sets->count < count; sets->count++) {
        cl_mem *set = sets->buffers[sets->count - 1];
        for (size_t i = 0; i < job->count; i++)
            FORWARD(copy_buffer(&job->tensors[i], machine, set, &set[i]));
    }
    return EXIT_OK;
}

void job_use_set(struct job *job, const struct job_sets *sets, size_t index) {
    for (size_t i = 0; i < job->count; i++)
        attach(&job->tensors[i], index ? sets->buffers[index - 1][i] : sets->own[i]);
    job->kind->bind(job);
}

void job_sets_release(struct job_sets *sets, struct job *job) {
    if (!sets->buffers)
        return;
    job_use_set(job, sets, 0);
    for (size_t s = 0; s < sets->count; s++)
        for (size_t i = 0; i < job->count; i++)
            if (sets->buffers[s][i])
                clReleaseMemObject(sets->buffers[s][i]);
    free(sets->buffers);
    sets->buffers = NULL;
}
