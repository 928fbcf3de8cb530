/* Measures device time by event profiling: a run is several calls back to back, its time that between two small
 * commands around them, divided by the calls. */
#ifndef TOOLS_TIMER_H
#define TOOLS_TIMER_H

#include <CL/cl.h>

#define TIMER_MAX_RUNS 64
#define TIMER_MIN_RUNS 5

/* Enqueues one call, number `index` counted over the timer's life; an exit code. */
typedef int (*timer_call)(void *user, unsigned index, cl_event *event);

struct timer_plan {
    int runs;           /* measured; the result is their median */
    int calls;          /* in a run */
    double run_seconds; /* fewer calls where a run would take longer, never less than one */
    double seconds;     /* fewer runs where all would take longer, never less than TIMER_MIN_RUNS */
    size_t load_bytes;  /* of a buffer that the device fills while the host enqueues a run; 0: it waits for the host */
};

/* 20 runs of 20 calls; CPU devices get shorter ones. */
struct timer_plan timer_plan_for(cl_device_type type);

struct timer {
    cl_command_queue queue; /* in order, profiling */
    timer_call call;
    void *user;
    struct timer_plan plan;
    unsigned next;
    int calls, runs, planned_runs;
    double host_seconds; /* that the host takes to enqueue a call */
    int loads;           /* fills before a run */
    double samples[TIMER_MAX_RUNS];
};

/* Warms up, and settles how many calls a run has and how many runs there are. */
int timer_start(struct timer *timer);
/* One run, one more sample. */
int timer_run(struct timer *timer);
/* All runs of the plan. */
int timer_measure(struct timer *timer);
double timer_median(const struct timer *timer);

/* Wall clock, seconds. */
double wall_seconds(void);

#endif
