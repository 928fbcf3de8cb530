/* clattn tune-worker: what the worker does. It has one job, and is asked, a word a tab:
 *
 *   ready                                    -> ready, or why the job cannot be
 *   plan      variant  parameters            -> plan, what would run, the size that rows are found by, the
 *                                               variant; or refused, why
 *   time      variant  parameters  best      -> time, seconds, runs; or refused, wrong or failed, and why
 *   compare   rows  variant  rows  variant   -> times, what runs second, pairs of seconds; or wrong or failed, and why
 *
 * parameters "" are the library's own. Rows are a tuning database, "": none. A candidate is checked before it is timed,
 * and much slower ones than `best` are timed briefly; of two that are
 * compared every element of the results is, and the second runs
 * several times. */
#include "arguments.h"
#include "command.h"
#include "measure.h"
#include "selection.h"
#include "tune_verdict.h"
#include "tune_worker.h"

#include <clattn/variants.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORK_MULTIPLICATIONS 2e7

struct work {
    struct machine machine; /* without rows of the user */
    struct job job;
    struct oracle oracle;
    struct job_sets sets;
    bool cpu;
};

/* One of the two that are compared, or the one that is tried. */
struct side {
    struct work *work;
    struct machine machine; /* its context may have other rows */
    const char *variant, *parameters;
};

static const char *or_null(const char *text) {
    return *text ? text : NULL;
}

static clattn_launch launch_of(const struct side *side) {
    return job_launch_of(&side->work->job, &side->machine, side->variant, side->parameters);
}

static int call(void *user, unsigned index, cl_event *event) {
    const struct side *side = user;
    struct work *work = side->work;
    if (work->sets.count > 1)
        job_use_set(&work->job, &work->sets, index % work->sets.count);
    return job_launch(&work->job, &side->machine, side->variant, side->parameters, event);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Its parameters and size; false, and the answer given, where it is refused, which builds nothing. */
static bool choose(const struct side *side, clattn_choice *choice) {
    const clattn_launch launch = launch_of(side);
    *choice = (clattn_choice){.size = sizeof *choice};
    if (clattn_variant_choose(side->machine.clattn, &side->work->job.op.head, &launch, choice) == CLATTN_SUCCESS)
        return true;
    worker_answer("refused\t%s", clattn_last_error());
    return false;
}

/* Runs it once and holds the result against the oracle; false, and the answer given, where that goes wrong. */
static bool is_right(const struct side *side) {
    struct work *work = side->work;
    struct errors errors;
    if (work->sets.count > 1)
        job_use_set(&work->job, &work->sets, 0);
    if (job_prepare(&work->job, &side->machine, side->variant, side->parameters) != EXIT_OK ||
        job_reset(&work->job, &side->machine) != EXIT_OK ||
        job_launch(&work->job, &side->machine, side->variant, side->parameters, NULL) != EXIT_OK ||
        job_read(&work->job, &side->machine) != EXIT_OK) {
        worker_answer("failed\t%s", clattn_last_error());
        return false;
    }
    oracle_compare(&work->oracle, &work->job, &errors);
    if (!errors.ok)
        worker_answer("wrong\t%s", errors.why);
    return errors.ok;
}

static void answer_plan(struct side *side) {
    clattn_choice choice;
    if (choose(side, &choice))
        worker_answer("plan\t%s\t%" PRId64 "\t%s", choice.parameters, choice.tuning_size, choice.variant);
}

static struct timer timer_of(struct side *side, struct timer_plan plan) {
    return (struct timer){.queue = side->work->machine.queue, .call = call, .user = side, .plan = plan};
}

static void answer_time(struct side *side, double best) {
    const struct timer_plan plan = {.runs = 7, .calls = 20, .run_seconds = 0.02, .seconds = 0.3};
    clattn_choice choice;
    if (!choose(side, &choice) || !is_right(side))
        return;
    struct timer timer = timer_of(side, plan);
    int code = timer_start(&timer);
    for (int run = 0; run < timer.planned_runs && code == EXIT_OK; run++) {
        code = timer_run(&timer);
        if (best > 0 && code == EXIT_OK && timer.samples[0] > 2 * best)
            break;
    }
    if (code == EXIT_OK)
        worker_answer("time\t%.9g\t%d", timer_median(&timer), timer.runs);
    else
        worker_answer("failed\tit could not be timed");
}

/* ---- two in turn ------------------------------------------------------------------------------------------------- */

static void free_results(struct array results[JOB_MAX_OUTPUTS]) {
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++)
        array_free(&results[k]);
}

/* The oracle knows some rows of a large result: here every element is seen, beside the other side's. */
static bool is_like(struct work *work, const struct array other[JOB_MAX_OUTPUTS]) {
    struct errors errors = {.ok = true};
    oracle_compare_other(&work->oracle, &work->job, other, &errors);
    if (!errors.ok)
        worker_answer("wrong\t%s", errors.why);
    return errors.ok;
}

static bool has_same_bits(const struct job *job, const struct array first[JOB_MAX_OUTPUTS]) {
    size_t k = 0;
    for (size_t i = 0; i < job->count; i++)
        if (job->tensors[i].output) {
            const struct array *result = &job->tensors[i].result;
            if (memcmp(result->data, first[k].data, array_bytes(result)) != 0)
                return false;
            k++;
        }
    return true;
}

/* What goes wrong now and then is seen where the same call gives other bits. */
static bool is_steady(const struct side *side) {
    enum { RUNS = 6 };
    struct work *work = side->work;
    struct array first[JOB_MAX_OUTPUTS] = {{.data = NULL}};
    int code = EXIT_OK;
    bool same = true;
    oracle_take_results(&work->job, first);
    for (int run = 0; run < RUNS && same && code == EXIT_OK; run++) {
        code = job_reset(&work->job, &side->machine);
        if (code == EXIT_OK)
            code = job_launch(&work->job, &side->machine, side->variant, side->parameters, NULL);
        if (code == EXIT_OK)
            code = job_read(&work->job, &side->machine);
        same = code == EXIT_OK && has_same_bits(&work->job, first);
    }
    free_results(first);
    if (code != EXIT_OK)
        worker_answer("failed\t%s", clattn_last_error());
    else if (!same)
        worker_answer("wrong\ttwo calls gave different bits");
    return same;
}

/* Both by themselves and beside each other; then the workspace is one that serves both. */
static bool are_right(struct side sides[2]) {
    struct job *job = &sides[0].work->job;
    struct array other[JOB_MAX_OUTPUTS] = {{.data = NULL}};
    if (!is_right(&sides[0]))
        return false;
    const size_t first = job->workspace_bytes;
    oracle_take_results(job, other);
    const bool right = is_right(&sides[1]) && is_like(sides[0].work, other) && is_steady(&sides[1]);
    free_results(other);
    if (!right || first <= job->workspace_bytes)
        return right;
    if (job_prepare(job, &sides[0].machine, sides[0].variant, sides[0].parameters) == EXIT_OK)
        return true;
    worker_answer("failed\t%s", clattn_last_error());
    return false;
}

static int time_in_turn(struct timer timers[2]) {
    FORWARD(timer_start(&timers[0]));
    FORWARD(timer_start(&timers[1]));
    for (int run = 0; run < timers[0].planned_runs || run < timers[1].planned_runs; run++)
        for (int i = 0; i < 2; i++)
            FORWARD(timer_run(&timers[(run + i) % 2])); /* neither is always the first */
    return EXIT_OK;
}

static void answer_times(struct side sides[2]) {
    const struct timer_plan plan = {
        .runs = 24, .calls = 20, .run_seconds = sides[0].work->cpu ? 0.02 : 0.05, .seconds = 1.2};
    char text[WORKER_LINE];
    struct timer timers[2] = {timer_of(&sides[0], plan), timer_of(&sides[1], plan)};
    clattn_choice choice;
    if (!choose(&sides[1], &choice) || !are_right(sides))
        return;
    if (time_in_turn(timers) != EXIT_OK) {
        worker_answer("failed\tthe two could not be timed");
        return;
    }
    const int pairs = timers[0].runs < timers[1].runs ? timers[0].runs : timers[1].runs;
    int used = snprintf(text, sizeof text, "times\t%s", choice.parameters);
    for (int i = 0; i < pairs && i < VERDICT_MAX_PAIRS; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "\t%.9g\t%.9g", timers[0].samples[i],
                         timers[1].samples[i]);
    worker_answer("%s", text);
}

static void answer_compare(struct work *work, char *const words[5]) {
    struct side sides[2];
    bool opened = true;
    for (int i = 0; i < 2; i++) {
        sides[i] = (struct side){work, work->machine, or_null(words[2 + 2 * i]), NULL};
        sides[i].machine.clattn = NULL;
        opened = opened && machine_new_context(&work->machine, words[1 + 2 * i], &sides[i].machine.clattn) == EXIT_OK;
    }
    if (opened)
        answer_times(sides);
    else
        worker_answer("failed\t%s", clattn_last_error());
    for (int i = 0; i < 2; i++)
        clattn_context_release(&sides[i].machine.clattn);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

enum { MOST_WORDS = 5 };

static int split(char *question, char *words[MOST_WORDS]) {
    int count = 0;
    for (char *at = question; at && count < MOST_WORDS; count++) {
        words[count] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return count;
}

static void answer(struct work *work, char *question) {
    char *words[MOST_WORDS];
    const int count = split(question, words);
    struct side side = {work, work->machine, count > 1 ? or_null(words[1]) : NULL,
                        count > 2 ? or_null(words[2]) : NULL};
    if (count == 1 && strcmp(words[0], "ready") == 0)
        worker_answer("ready");
    else if (count == 3 && strcmp(words[0], "plan") == 0)
        answer_plan(&side);
    else if (count == 4 && strcmp(words[0], "time") == 0)
        answer_time(&side, strtod(words[3], NULL));
    else if (count == 5 && strcmp(words[0], "compare") == 0)
        answer_compare(work, words);
    else
        worker_answer("failed\tno such question");
}

static int open_job(struct work *work, const struct arguments *arguments, const struct selection *selection) {
    const struct test_case item = {selection->kinds[0]->name, arguments->shape, "", 0};
    FORWARD(selection_make(&item, selection->elements[0], selection->seed, &arguments->settings, &work->job));
    FORWARD(job_upload(&work->job, &work->machine));
    FORWARD(oracle_make(&work->oracle, &work->job, WORK_MULTIPLICATIONS));
    return job_sets_make(&work->sets, &work->job, &work->machine, measure_sets(&work->job, &work->machine));
}

static int open_work(struct work *work, const struct arguments *arguments, const struct selection *selection) {
    struct device_entry entry;
    FORWARD(machine_find(arguments->device, &entry));
    FORWARD(machine_open_tuned(&entry, "", &work->machine));
    work->cpu = entry.type & CL_DEVICE_TYPE_CPU;
    return open_job(work, arguments, selection);
}

/* Ends without tidying up: buffers and programs go with the process. */
int command_tune_worker(int argc, char **argv) {
    static struct work work;
    struct arguments arguments;
    struct selection selection;
    char question[WORKER_LINE];
    FORWARD(arguments_parse(argc, argv, "device dtype shape seed", &arguments));
    FORWARD(selection_take(&arguments, "f32", &selection));
    if (selection.kind_count != 1 || selection.element_count != 1 || !arguments.shape)
        return complain(EXIT_USAGE, "wants one operation, one dtype and one shape: it is a process of 'clattn tune'");
    const int code = open_work(&work, &arguments, &selection);
    while (worker_listen(question))
        if (code == EXIT_OK)
            answer(&work, question);
        else
            worker_answer("failed\t%s", clattn_last_error());
    return code;
}
