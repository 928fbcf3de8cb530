/* Timing by events. A call may consist of several commands, some of which drivers give no times for (markers,
 * barriers), so that a run is timed from outside: between the end of one small fill and the start of another. The gaps
 * on both sides count, which is never in our favour. What the host takes to enqueue is no device time (the suite host
 * of bench has it): a GPU is given large fills to do first, so that the host is ahead of it by a whole run. */
#include "timer.h"
#include "command.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define WARM_UP_SECONDS 0.05
#define WARM_UP_CALLS 10
#define LOAD_BYTES ((size_t)128 << 20)
#define MAX_LOADS 64

struct timer_plan timer_plan_for(cl_device_type type) {
    const bool cpu = type & CL_DEVICE_TYPE_CPU;
    return (struct timer_plan){.runs = 20,
                               .calls = 20,
                               .run_seconds = cpu ? 0.02 : 0.1,
                               .seconds = cpu ? 5 : 4,
                               .load_bytes = cpu ? 0 : LOAD_BYTES};
}

double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int complain_opencl(cl_int error) {
    return complain(EXIT_UNSUPPORTED, "timing: OpenCL error %d", error);
}

static int fill(const struct timer *timer, cl_mem buffer, size_t bytes, cl_event *event) {
    const cl_int zero = 0;
    const cl_int error = clEnqueueFillBuffer(timer->queue, buffer, &zero, sizeof zero, 0, bytes, 0, NULL, event);
    return error == CL_SUCCESS ? EXIT_OK : complain_opencl(error);
}

static cl_int time_of(cl_event event, cl_profiling_info which, cl_ulong *time) {
    return clGetEventProfilingInfo(event, which, sizeof *time, time, NULL);
}

static int finish(const struct timer *timer) {
    const cl_int error = clFinish(timer->queue);
    return error == CL_SUCCESS ? EXIT_OK : complain_opencl(error);
}

/* Enqueues the load, fill, calls, fill and waits. */
static int enqueue_stretch(struct timer *timer, cl_mem buffer, int calls, cl_event *before, cl_event *after) {
    for (int i = 0; i < timer->loads; i++)
        FORWARD(fill(timer, buffer, timer->plan.load_bytes, NULL));
    FORWARD(fill(timer, buffer, sizeof(cl_int), before));
    const double begun = wall_seconds();
    for (int i = 0; i < calls; i++)
        FORWARD(timer->call(timer->user, timer->next++, NULL));
    timer->host_seconds = (wall_seconds() - begun) / calls;
    FORWARD(fill(timer, buffer, sizeof(cl_int), after));
    return finish(timer);
}

static cl_mem make_buffer(const struct timer *timer, size_t bytes, cl_int *error) {
    cl_context context = NULL;
    *error = clGetCommandQueueInfo(timer->queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
    return *error == CL_SUCCESS ? clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, error) : NULL;
}

/* The time of one of `calls` calls back to back. */
static int stretch(struct timer *timer, int calls, double *seconds) {
    cl_event before = NULL, after = NULL;
    cl_ulong start = 0, end = 0;
    cl_int error;
    cl_mem buffer = make_buffer(timer, timer->loads > 0 ? timer->plan.load_bytes : sizeof(cl_int), &error);
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

/* So many fills that they take the device longer than a run takes the host. */
static int choose_loads(struct timer *timer) {
    cl_int error;
    cl_event event = NULL;
    cl_ulong start = 0, end = 0;
    timer->loads = 0;
    if (timer->plan.load_bytes == 0)
        return EXIT_OK;
    cl_mem buffer = make_buffer(timer, timer->plan.load_bytes, &error);
    if (buffer == NULL) /* a small device: it waits for the host */
        return timer->plan.load_bytes = 0, EXIT_OK;
    int code = fill(timer, buffer, timer->plan.load_bytes, NULL); /* the first may allocate */
    if (code == EXIT_OK)
        code = fill(timer, buffer, timer->plan.load_bytes, &event);
    if (code == EXIT_OK)
        code = finish(timer);
    if (code == EXIT_OK && time_of(event, CL_PROFILING_COMMAND_START, &start) == CL_SUCCESS &&
        time_of(event, CL_PROFILING_COMMAND_END, &end) == CL_SUCCESS && end > start) {
        const double loads = 1 + 1.5 * timer->host_seconds * timer->calls / (1e-9 * (double)(end - start));
        timer->loads = loads < MAX_LOADS ? (int)loads : MAX_LOADS;
    }
    if (event)
        clReleaseEvent(event);
    clReleaseMemObject(buffer);
    return code;
}

int timer_start(struct timer *timer) {
    const double begun = wall_seconds();
    double seconds = 0;
    timer->runs = timer->loads = 0;
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
    return choose_loads(timer);
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
