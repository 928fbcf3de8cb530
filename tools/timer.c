/* Timing by events. A call may consist of several commands, some of which drivers give no times for (markers,
 * barriers), so that a run is timed from outside: between the end of one small fill and the start of another. The gaps
 * on both sides count, which is never in our favour. */
#include "timer.h"
#include "command.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define WARM_UP_SECONDS 0.05
#define WARM_UP_CALLS 10

struct timer_plan timer_plan_for(cl_device_type type) {
    const bool cpu = type & CL_DEVICE_TYPE_CPU;
    return (struct timer_plan){.runs = 20, .calls = 20, .run_seconds = cpu ? 0.02 : 0.1, .seconds = cpu ? 5 : 4};
}

double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int complain_opencl(cl_int error) {
    return complain(EXIT_UNSUPPORTED, "timing: OpenCL error %d", error);
}

static int fill(const struct timer *timer, cl_mem buffer, cl_event *event) {
    const cl_int zero = 0;
    const cl_int error = clEnqueueFillBuffer(timer->queue, buffer, &zero, sizeof zero, 0, sizeof zero, 0, NULL, event);
    return error == CL_SUCCESS ? EXIT_OK : complain_opencl(error);
}

static cl_int time_of(cl_event event, cl_profiling_info which, cl_ulong *time) {
    return clGetEventProfilingInfo(event, which, sizeof *time, time, NULL);
}

/* Enqueues fill, calls, fill and waits. */
static int enqueue_stretch(struct timer *timer, cl_mem buffer, int calls, cl_event *before, cl_event *after) {
    FORWARD(fill(timer, buffer, before));
    for (int i = 0; i < calls; i++)
        FORWARD(timer->call(timer->user, timer->next++, NULL));
    FORWARD(fill(timer, buffer, after));
    const cl_int error = clFinish(timer->queue);
    return error == CL_SUCCESS ? EXIT_OK : complain_opencl(error);
}

/* The time of one of `calls` calls back to back. */
static int stretch(struct timer *timer, int calls, double *seconds) {
    cl_context context = NULL;
    cl_event before = NULL, after = NULL;
    cl_ulong start = 0, end = 0;
    cl_int error = clGetCommandQueueInfo(timer->queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
    cl_mem buffer =
        error == CL_SUCCESS ? clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(cl_int), NULL, &error) : NULL;
    int code = buffer ? enqueue_stretch(timer, buffer, calls, &before, &after) : complain_opencl(error);
    if (code == EXIT_OK)
        error = time_of(before, CL_PROFILING_COMMAND_END, &start);
    if (code == EXIT_OK && error == CL_SUCCESS)
        error = time_of(after, CL_PROFILING_COMMAND_START, &end);
    if (code == EXIT_OK && error != CL_SUCCESS)
        code = complain_opencl(error);
    if (code == EXIT_OK && end < start)
        code = complain(EXIT_UNSUPPORTED, "timing: the driver's event times run backwards");
    if (before)
        clReleaseEvent(before);
    if (after)
        clReleaseEvent(after);
    if (buffer)
        clReleaseMemObject(buffer);
    *seconds = 1e-9 * (double)(end - start) / calls;
    return code;
}

int timer_start(struct timer *timer) {
    const double begun = wall_seconds();
    double seconds = 0;
    timer->runs = 0;
    FORWARD(stretch(timer, 1, &seconds)); /* may compile */
    for (int i = 0; i < WARM_UP_CALLS && (i == 0 || wall_seconds() - begun < WARM_UP_SECONDS); i++)
        FORWARD(stretch(timer, 1, &seconds));
    timer->calls = timer->plan.calls;
    if (seconds > 0 && seconds * timer->calls > timer->plan.run_seconds)
        timer->calls = seconds < timer->plan.run_seconds ? (int)(timer->plan.run_seconds / seconds) : 1;
    timer->planned_runs = timer->plan.runs;
    if (seconds * timer->calls * timer->plan.runs > timer->plan.seconds)
        timer->planned_runs = (int)(timer->plan.seconds / (seconds * timer->calls));
    if (timer->planned_runs < TIMER_MIN_RUNS && timer->plan.runs > TIMER_MIN_RUNS)
        timer->planned_runs = TIMER_MIN_RUNS;
    if (timer->planned_runs < 1)
        timer->planned_runs = 1;
    return EXIT_OK;
}

int timer_run(struct timer *timer) {
    double seconds = 0;
    FORWARD(stretch(timer, timer->calls, &seconds));
    if (timer->runs < TIMER_MAX_RUNS)
        timer->samples[timer->runs++] = seconds;
    return EXIT_OK;
}

int timer_measure(struct timer *timer) {
    FORWARD(timer_start(timer));
    for (int i = 0; i < timer->planned_runs; i++)
        FORWARD(timer_run(timer));
    return EXIT_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double timer_median(const struct timer *timer) {
    double sorted[TIMER_MAX_RUNS];
    for (int i = 0; i < timer->runs; i++)
        sorted[i] = timer->samples[i];
    qsort(sorted, (size_t)timer->runs, sizeof *sorted, by_value);
    const int half = timer->runs / 2;
    if (timer->runs == 0)
        return 0;
    return timer->runs % 2 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}
