/* Timing by events. A call may consist of several commands, of which only the last is visible in its event; a run
 * therefore starts at the end of what precedes it in the queue, which is never too late: of one more call, or of a
 * marker where calls are so long that the gap after it does not count. */
#include "timer.h"
#include "command.h"

#include <stdlib.h>
#include <time.h>

#define WARM_UP_SECONDS 0.05
#define WARM_UP_CALLS 10
#define LONG_CALL 1e-3

struct timer_plan timer_plan_for(cl_device_type type) {
    const bool cpu = type & CL_DEVICE_TYPE_CPU;
    return (struct timer_plan){.runs = 20, .calls = 20, .run_seconds = cpu ? 0.02 : 0.5, .seconds = cpu ? 5 : 20};
}

double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int complain_opencl(cl_int error) {
    return complain(EXIT_UNSUPPORTED, "timing: OpenCL error %d", error);
}

static int lead_in(struct timer *timer, bool marker, cl_event *event) {
    if (!marker)
        return timer->call(timer->user, timer->next++, event);
    const cl_int error = clEnqueueMarkerWithWaitList(timer->queue, 0, NULL, event);
    return error == CL_SUCCESS ? EXIT_OK : complain_opencl(error);
}

static cl_int end_of(cl_event event, cl_ulong *end) {
    return clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof *end, end, NULL);
}

/* The lead-in and `calls` calls; the time of one of the latter. Drivers need not give times for markers: where one does
 * not, a call takes its place from then on. */
static int stretch(struct timer *timer, int calls, bool marker, double *seconds) {
    cl_event first = NULL, last = NULL;
    marker = marker && !timer->markers_fail;
    int code = lead_in(timer, marker, &first);
    for (int i = 0; i < calls && code == EXIT_OK; i++)
        code = timer->call(timer->user, timer->next++, i + 1 == calls ? &last : NULL);
    cl_ulong start = 0, end = 0;
    const cl_int error = clFinish(timer->queue);
    if (code == EXIT_OK && (error != CL_SUCCESS || end_of(last, &end) != CL_SUCCESS))
        code = complain_opencl(error);
    const bool timed = code == EXIT_OK && end_of(first, &start) == CL_SUCCESS && start > 0 && start <= end;
    if (first)
        clReleaseEvent(first);
    if (last)
        clReleaseEvent(last);
    *seconds = timed ? 1e-9 * (double)(end - start) / calls : 0;
    if (code != EXIT_OK || timed)
        return code;
    if (!marker)
        return complain(EXIT_UNSUPPORTED, "timing: the driver gives no event times");
    timer->markers_fail = true;
    return stretch(timer, calls, false, seconds);
}

int timer_start(struct timer *timer) {
    const double begun = wall_seconds();
    double seconds = 0;
    timer->runs = 0;
    FORWARD(stretch(timer, 1, true, &seconds)); /* may compile */
    for (int i = 0; i < WARM_UP_CALLS && (i == 0 || wall_seconds() - begun < WARM_UP_SECONDS); i++)
        FORWARD(stretch(timer, 1, true, &seconds));
    timer->marker = seconds > LONG_CALL;
    timer->calls = timer->plan.calls;
    if (seconds * timer->calls > timer->plan.run_seconds)
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
    FORWARD(stretch(timer, timer->calls, timer->marker, &seconds));
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
