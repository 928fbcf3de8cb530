/* The steps of a measurement. Memory is counted over the first call alone, before buffers are added to rotate over. */
#include "measure.h"
#include "command.h"
#include "memory_counter.h"

#include <clattn/variants.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIN_ROTATED_BYTES ((uint64_t)256 << 20)
#define MAX_SETS 64

struct timed_call {
    const struct measure *measure;
    const char *variant;
    struct job_sets *sets;
};

static int enqueue(void *user, unsigned index, cl_event *event) {
    const struct timed_call *timed = user;
    const struct measure *m = timed->measure;
    if (timed->sets->count > 1)
        job_use_set(m->job, timed->sets, index % timed->sets->count);
    return job_launch(m->job, m->machine, timed->variant, m->parameters, event);
}

/* Twice the cache, so that a buffer has left it when its turn comes again. */
size_t measure_sets(const struct job *job, const struct machine *machine) {
    const double bytes = job_bytes(job);
    if (!job->kind->memory_bound || bytes <= 0)
        return 1;
    uint64_t wanted = 2 * machine->cache_bytes;
    if (!(machine->entry.type & CL_DEVICE_TYPE_CPU) && wanted < MIN_ROTATED_BYTES)
        wanted = MIN_ROTATED_BYTES;
    if (wanted > machine->memory / 4)
        wanted = machine->memory / 4;
    const double sets = ceil((double)wanted / bytes) + 1;
    return sets > MAX_SETS ? MAX_SETS : (size_t)sets;
}

static size_t wanted_sets(const struct measure *measure) {
    return measure->rotate ? measure_sets(measure->job, measure->machine) : 1;
}

void measure_describe(const struct job *job, struct result *result) {
    *result = (struct result){.errors = {.p_error = NAN, .difference = NAN}};
    snprintf(result->op, sizeof result->op, "%s", job->kind->name);
    snprintf(result->dtype, sizeof result->dtype, "%s", element_name(job->tensors[0].host.element));
    job->kind->describe(job, result->shape, sizeof result->shape);
    result->size = job->kind->rows(job).size;
    result->bytes = job_bytes(job);
    result->flops = job->kind->flops(job);
    result->memory_bound = job->kind->memory_bound;
}

static void name_variant(const struct measure *m, const char *variant, struct result *result) {
    clattn_choice choice = {.size = sizeof choice};
    const clattn_launch launch = job_launch_of(m->job, m->machine, variant, m->parameters);
    if (clattn_variant_choose(m->machine->clattn, &m->job->op.head, &launch, &choice) != CLATTN_SUCCESS)
        return;
    memcpy(result->variant, choice.variant, sizeof result->variant);
    memcpy(result->name, choice.name, sizeof result->name);
    memcpy(result->parameters, choice.parameters, sizeof result->parameters);
}

/* The first call: its result, and the memory that it takes. */
static int try_variant(const struct measure *m, const char *variant, struct result *result) {
    measure_describe(m->job, result);
    memory_restart_peak();
    FORWARD(job_prepare(m->job, m->machine, variant, m->parameters));
    name_variant(m, variant, result);
    FORWARD(job_reset(m->job, m->machine));
    FORWARD(job_launch(m->job, m->machine, variant, m->parameters, NULL));
    FORWARD(job_read(m->job, m->machine));
    result->peak_device_bytes = memory_peak();
    result->workspace_bytes = m->job->workspace_bytes;
    if (!m->oracle)
        return EXIT_OK;
    result->checked = true;
    oracle_compare(m->oracle, m->job, &result->errors);
    if (!isnan(m->oracle->moved))
        snprintf(result->note, sizeof result->note, "codes move o by up to %.2g from a cache of %s", m->oracle->moved,
                 result->dtype);
    return EXIT_OK;
}

/* Last, because it leaves other results in the job. */
static int try_p(const struct measure *m, const char *variant, struct result *result) {
    struct array results[JOB_MAX_OUTPUTS];
    if (!m->oracle || !m->with_p)
        return EXIT_OK;
    oracle_take_results(m->job, results);
    const int code = oracle_compare_p(m->oracle, m->job, m->machine, variant, m->parameters, &result->errors);
    oracle_put_results(m->job, results);
    return code;
}

static struct timer timer_for(const struct measure *m, struct timed_call *timed) {
    return (struct timer){.queue = m->machine->queue, .call = enqueue, .user = timed, .plan = m->plan};
}

static void take_time(const struct timer *timer, struct result *result) {
    result->median_s = timer_median(timer);
    result->runs = timer->runs;
    result->calls = timer->calls;
}

int measure_variant(const struct measure *measure, struct result *result) {
    FORWARD(try_variant(measure, measure->variant, result));
    FORWARD(try_p(measure, measure->variant, result));
    if (measure->plan.runs == 0)
        return EXIT_OK;
    struct job_sets sets;
    int code = job_sets_make(&sets, measure->job, measure->machine, wanted_sets(measure));
    struct timed_call timed = {measure, measure->variant, &sets};
    struct timer timer = timer_for(measure, &timed);
    if (code == EXIT_OK)
        code = timer_measure(&timer);
    job_sets_release(&sets, measure->job);
    if (code == EXIT_OK)
        take_time(&timer, result);
    return code;
}

static int time_in_turn(struct timer timers[2]) {
    FORWARD(timer_start(&timers[0]));
    FORWARD(timer_start(&timers[1]));
    for (int run = 0; run < timers[0].planned_runs || run < timers[1].planned_runs; run++)
        for (int i = 0; i < 2; i++)
            if (run < timers[i].planned_runs)
                FORWARD(timer_run(&timers[i]));
    return EXIT_OK;
}

int measure_pair(const struct measure *measure, const char *rival, struct result results[2]) {
    const char *const variants[2] = {measure->variant, rival};
    struct job_sets sets;
    struct timed_call timed[2];
    struct timer timers[2];
    size_t workspace = 0;
    const char *hungry = NULL;
    for (int i = 0; i < 2; i++) {
        FORWARD(try_variant(measure, variants[i], &results[i]));
        FORWARD(try_p(measure, variants[i], &results[i]));
        if (measure->job->workspace_bytes >= workspace)
            hungry = variants[i];
        workspace = measure->job->workspace_bytes > workspace ? measure->job->workspace_bytes : workspace;
    }
    FORWARD(job_prepare(measure->job, measure->machine, hungry, measure->parameters)); /* serves both */
    int code = job_sets_make(&sets, measure->job, measure->machine, wanted_sets(measure));
    for (int i = 0; i < 2; i++) {
        timed[i] = (struct timed_call){measure, variants[i], &sets};
        timers[i] = timer_for(measure, &timed[i]);
    }
    if (code == EXIT_OK)
        code = time_in_turn(timers);
    job_sets_release(&sets, measure->job);
    for (int i = 0; i < 2 && code == EXIT_OK; i++)
        take_time(&timers[i], &results[i]);
    for (int i = 0; i < 2 && code == EXIT_OK; i++)
        results[i].ratio = results[1 - i].median_s / results[i].median_s;
    return code;
}
