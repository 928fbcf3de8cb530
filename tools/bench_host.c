/* The suite host of clattn bench: what a warm call costs on the host beside a bare kernel launch, and how long it takes
 * from clattn_context_create to the first result. */
#include "bench.h"
#include "command.h"

#include <clattn/variants.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 100
#define BATCHES 30

static const char tiny_kernel[] = "__kernel void tiny(__global float *out, float a, int b, int c) {\n"
                                  "    if (get_global_id(0) == (size_t)b)\n        out[c] = a;\n}\n";

static const struct test_case tiny_attention = {"attention", "1,1,1,16,16,16", "", 0};

struct bare {
    cl_program program;
    cl_kernel kernel;
    cl_mem out;
};

struct host {
    struct bench *bench;
    struct job job;
    struct oracle oracle;
    struct bare bare;
    cl_command_queue queue; /* without profiling */
};

/* Beside a time of an attention stand the errors of its result. */
static int add_line(struct host *host, const char *variant, double seconds, const char *note, bool attention) {
    struct result result;
    measure_describe(&host->job, &result);
    if (attention)
        oracle_compare(&host->oracle, &host->job, &result.errors);
    result.checked = attention;
    strcpy(result.op, "host");
    result.bytes = result.flops = 0;
    result.memory_bound = true;
    result.median_s = seconds;
    snprintf(result.variant, sizeof result.variant, "%s", variant);
    snprintf(result.note, sizeof result.note, "%s", note);
    return report_add(&host->bench->report, &result) ? EXIT_OK : complain(EXIT_UNSUPPORTED, "out of host memory");
}

/* ---- the first result -------------------------------------------------------------------------------------------- */

/* A context of its own, one attention, waited for. cache_dir NULL: the usual one. */
static int first_result(struct host *host, const char *cache_dir, double *seconds, clattn_statistics *statistics) {
    struct machine fresh = host->bench->machine;
    clattn_context_options options;
    clattn_context_options_init(&options);
    options.cache_dir = cache_dir;
    fresh.clattn = NULL;
    const double start = wall_seconds();
    const clattn_status status = clattn_context_create(fresh.context, fresh.entry.device, &options, &fresh.clattn);
    if (status != CLATTN_SUCCESS)
        return complain_status(status, "clattn_context_create");
    int code = job_prepare(&host->job, &fresh, NULL, NULL);
    if (code == EXIT_OK)
        code = job_launch(&host->job, &fresh, NULL, NULL, NULL);
    if (code == EXIT_OK)
        code = job_read(&host->job, &fresh);
    *seconds = wall_seconds() - start;
    clattn_context_statistics(fresh.clattn, statistics);
    clattn_context_release(&fresh.clattn);
    return code;
}

static int add_first_result(struct host *host, const char *name, const char *cache_dir) {
    clattn_statistics statistics = {.size = sizeof statistics};
    double seconds = 0;
    char note[96];
    FORWARD(first_result(host, cache_dir, &seconds, &statistics));
    snprintf(note, sizeof note, "clattn_context_create to result; %llu programs built, %llu loaded",
             (unsigned long long)statistics.programs_built, (unsigned long long)statistics.programs_loaded);
    return add_line(host, name, seconds, note, true);
}

/* ---- a warm call ------------------------------------------------------------------------------------------------- */

static int bare_make(struct host *host) {
    const struct machine *machine = &host->bench->machine;
    const char *text = tiny_kernel;
    cl_int error;
    host->bare.out = machine_buffer(machine, 64);
    host->bare.program = clCreateProgramWithSource(machine->context, 1, &text, NULL, &error);
    if (error == CL_SUCCESS)
        error = clBuildProgram(host->bare.program, 1, &machine->entry.device, "", NULL, NULL);
    if (error == CL_SUCCESS)
        host->bare.kernel = clCreateKernel(host->bare.program, "tiny", &error);
    return error == CL_SUCCESS && host->bare.out
               ? EXIT_OK
               : complain(EXIT_UNSUPPORTED, "no bare kernel (OpenCL error %d)", error);
}

static int bare_launch(struct host *host) {
    const cl_float a = 1;
    const cl_int b = 0, c = 0;
    const size_t items = 64, group = 64;
    const cl_kernel kernel = host->bare.kernel;
    cl_int error = clSetKernelArg(kernel, 0, sizeof host->bare.out, &host->bare.out);
    error |= clSetKernelArg(kernel, 1, sizeof a, &a);
    error |= clSetKernelArg(kernel, 2, sizeof b, &b);
    error |= clSetKernelArg(kernel, 3, sizeof c, &c);
    error |= clEnqueueNDRangeKernel(host->queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL);
    return error == CL_SUCCESS ? EXIT_OK : complain(EXIT_UNSUPPORTED, "bare launch: OpenCL error %d", error);
}

static int attention_call(struct host *host) {
    struct machine plain = host->bench->machine;
    plain.queue = host->queue;
    return job_launch(&host->job, &plain, NULL, NULL, NULL);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Host time per call: only the enqueues are timed, the queue is drained between batches. */
static int time_calls(struct host *host, int (*call)(struct host *host), double *seconds) {
    double samples[BATCHES];
    for (int batch = -2; batch < BATCHES; batch++) {
        const double start = wall_seconds();
        for (int i = 0; i < BATCH; i++)
            FORWARD(call(host));
        const double spent = wall_seconds() - start;
        if (clFinish(host->queue) != CL_SUCCESS)
            return complain(EXIT_UNSUPPORTED, "the device failed");
        if (batch >= 0)
            samples[batch] = spent / BATCH;
    }
    qsort(samples, BATCHES, sizeof *samples, by_value);
    *seconds = samples[BATCHES / 2];
    return EXIT_OK;
}

static int measure_calls(struct host *host) {
    double bare = 0, ours = 0;
    char note[96];
    cl_int error;
    const struct machine *machine = &host->bench->machine;
    host->queue = clCreateCommandQueue(machine->context, machine->entry.device, 0, &error);
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "no queue (OpenCL error %d)", error);
    FORWARD(bare_make(host));
    FORWARD(job_prepare(&host->job, machine, NULL, NULL));
    FORWARD(time_calls(host, bare_launch, &bare));
    FORWARD(time_calls(host, attention_call, &ours));
    FORWARD(add_line(host, "bare launch", bare, "host time; clSetKernelArg four times, clEnqueueNDRangeKernel", false));
    snprintf(note, sizeof note, "host time; %.2f us above the bare launch", (ours - bare) * 1e6);
    FORWARD(job_read(&host->job, machine));
    return add_line(host, "attention call", ours, note, true);
}

static int measure(struct host *host) {
    FORWARD(selection_make(&tiny_attention, host->bench->selection.elements[0], host->bench->selection.seed,
                           &host->bench->arguments.settings, &host->job));
    FORWARD(job_upload(&host->job, &host->bench->machine));
    FORWARD(oracle_make(&host->oracle, &host->job, BENCH_MULTIPLICATIONS));
    /* first of all: nothing has been built or loaded in this process yet */
    FORWARD(add_first_result(host, "first result, new process", NULL));
    FORWARD(add_first_result(host, "first result, new context", NULL));
    FORWARD(add_first_result(host, "first result, program cache off", ""));
    return measure_calls(host);
}

int bench_suite_host(struct bench *bench) {
    struct host host = {.bench = bench};
    const int code = measure(&host);
    oracle_free(&host.oracle);
    job_release(&host.job);
    if (host.bare.kernel)
        clReleaseKernel(host.bare.kernel);
    if (host.bare.program)
        clReleaseProgram(host.bare.program);
    if (host.bare.out)
        clReleaseMemObject(host.bare.out);
    if (host.queue)
        clReleaseCommandQueue(host.queue);
    return code;
}
