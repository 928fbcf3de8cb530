/* One search: the library's own parameters first, then candidates, then the best of them against the library's own,
 * timed in turn and run as the row that would be stored. */
#include "command.h"
#include "timer.h"
#include "tune.h"
#include "tune_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COARSE 16
#define RETIMED 6
#define COMPARISONS 3 /* of the same two, as long as they are too noisy */
#define FINALISTS 4
#define LEAST_SECONDS 12  /* of a search: a small budget goes to few of them */
#define COMPARE_SECONDS 3 /* of which the comparison takes about this */
#define ATTEMPTS 3        /* of a candidate in which the tune itself was killed */

struct hunt {
    struct tune *tune;
    const struct tune_task *task;
    struct space space;
    struct search search;
    struct tune_plan usual; /* what the library runs without rows of the user */
    struct store_row row;
    char kernels[24], key[160];
    double until;                   /* when the comparison has to begin */
    bool lost;                      /* the device */
    bool large_alone;               /* what was faster was slower for a small problem */
    double measured[SEARCH_TRIALS]; /* at first, in the order of the search's trials */
    double seconds;                 /* of the first candidate, as a process: building, checking, timing */
};

/* ---- one candidate ----------------------------------------------------------------------------------------------- */

enum outcome { OUTCOME_TIMED, OUTCOME_REFUSED, OUTCOME_FAILED, OUTCOME_WRONG };

static enum outcome count_outcome(struct tune_counts *counts, enum outcome outcome) {
    int *const count[] = {&counts->tried, &counts->refused, &counts->failed, &counts->wrong};
    (*count[outcome])++;
    return outcome;
}

/* What was tried before is a try no more, but may fail now. */
static void count_again(struct tune_counts *counts, enum outcome outcome) {
    counts->failed += outcome == OUTCOME_FAILED || outcome == OUTCOME_REFUSED;
    counts->wrong += outcome == OUTCOME_WRONG;
}

/* "time 0.001", "wrong why" and so on, as the journal has it. */
static enum outcome read_outcome(const char *text, double *seconds) {
    *seconds = strncmp(text, "time ", 5) == 0 ? strtod(text + 5, NULL) : 0;
    if (*seconds > 0 && isfinite(*seconds))
        return OUTCOME_TIMED;
    *seconds = 0;
    return strncmp(text, "wrong", 5) == 0     ? OUTCOME_WRONG
           : strncmp(text, "refused", 7) == 0 ? OUTCOME_REFUSED
                                              : OUTCOME_FAILED;
}

static void ask_time(struct hunt *hunt, const char *parameters, char outcome[512]) {
    struct tune *tune = hunt->tune;
    char question[WORKER_LINE];
    struct tune_answer answer;
    const struct search_trial *best = search_best(&hunt->search);
    snprintf(question, sizeof question, "time\t%s\t%s\t%.9g", hunt->task->variant, parameters,
             best ? best->seconds : 0);
    tune_ask(tune, question, tune->limit, &answer);
    if (answer.count >= 2)
        snprintf(outcome, 512, "%.16s %.480s", answer.words[0], answer.words[1]);
    else
        snprintf(outcome, 512, "failed: %.480s", answer.text);
    if (!tune_is(&answer, "time", 3) && !tune_is(&answer, "refused", 2))
        tune_dismiss(tune);
}

/* Runs it, unless the journal knows what became of it. `runs` is what the parameters come to: several points of the
 * space may be the same to the library. */
static enum outcome run(struct hunt *hunt, const char *parameters, const char *runs, double *seconds) {
    struct tune *tune = hunt->tune;
    char key[512], text[512] = "";
    snprintf(key, sizeof key, "%s|%s", hunt->key, runs);
    if (journal_find(&tune->journal, key, text, sizeof text))
        return read_outcome(text, seconds);
    if (journal_begun(&tune->journal, key) >= ATTEMPTS) {
        snprintf(text, sizeof text, "failed: the tune ended in it %d times", ATTEMPTS);
    } else {
        journal_write(&tune->journal, key, JOURNAL_BEGUN);
        ask_time(hunt, parameters, text);
    }
    journal_write(&tune->journal, key, text);
    return count_outcome(&tune->counts, read_outcome(text, seconds));
}

static void try_point(struct hunt *hunt, const struct point *point) {
    struct tune *tune = hunt->tune;
    char text[SPACE_TEXT];
    struct tune_plan plan;
    double seconds = 0;
    space_print(&hunt->space, point, text);
    if (tune_hire(tune, hunt->task, NULL) != EXIT_OK) {
        hunt->until = 0; /* this search ends, with what it found */
        hunt->lost = true;
        search_report(&hunt->search, 0, false);
        return;
    }
    if (!tune_ask_plan(tune, hunt->task->variant, text, &plan)) {
        count_outcome(&tune->counts, tune->task ? OUTCOME_REFUSED : OUTCOME_FAILED);
        search_report(&hunt->search, 0, false);
        return;
    }
    const enum outcome outcome = run(hunt, text, plan.parameters, &seconds);
    search_report(&hunt->search, seconds, outcome != OUTCOME_REFUSED);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static double usual_seconds(const struct hunt *hunt) {
    return hunt->search.count > 0 ? hunt->search.trials[0].seconds : 0;
}

static void show(const struct hunt *hunt) {
    char what[160];
    const struct search_trial *best = search_best(&hunt->search);
    snprintf(what, sizeof what, "%s %s %s", hunt->task->variant, element_name(hunt->task->element), hunt->task->shape);
    tune_progress(hunt->tune, what, best && usual_seconds(hunt) > 0 ? best->seconds / usual_seconds(hunt) : 1);
}

/* A compiler may take longer over one candidate than over another. */
static double suitable_limit(double first) {
    enum { TIMES = 20, LEAST = 20, MOST_SECONDS = 120 };
    const double limit = TIMES * first;
    return limit < LEAST ? LEAST : limit > MOST_SECONDS ? MOST_SECONDS : limit;
}

static void search_all(struct hunt *hunt) {
    struct tune *tune = hunt->tune;
    struct point point;
    while ((hunt->search.count == 0 || wall_seconds() < hunt->until) && search_next(&hunt->search, &point)) {
        const double begun = wall_seconds();
        show(hunt);
        try_point(hunt, &point);
        if (hunt->search.count > 1)
            continue;
        /* What others may take is measured by the first. */
        hunt->seconds = wall_seconds() - begun;
        if (!tune->arguments.limit)
            tune->limit = suitable_limit(hunt->seconds);
        hunt->until -= 2 * hunt->seconds;
        if (usual_seconds(hunt) <= 0)
            return; /* nothing to compare with */
    }
}

/* What the library spells out of a variant may have one value alone, and be none that callers may give. */
static void drop_fixed(struct hunt *hunt, struct point *point) {
    struct space *space = &hunt->space;
    int kept = 0;
    for (int i = 0; i < space->axes; i++) {
        char text[64];
        struct tune_plan plan;
        snprintf(text, sizeof text, "%s=%d", space->axis[i].name, space->axis[i].values[(int)point->at[i]]);
        if (!tune_ask_plan(hunt->tune, hunt->task->variant, text, &plan))
            continue;
        space->axis[kept] = space->axis[i];
        point->at[kept++] = point->at[i];
    }
    for (int i = kept; i < space->axes; i++)
        point->at[i] = 0;
    space->axes = kept;
}

static int begin(struct hunt *hunt) {
    struct tune *tune = hunt->tune;
    struct point given[2];
    char stored[256];
    int givens = 1;
    if (!tune_ask_plan(tune, hunt->task->variant, "", &hunt->usual) ||
        !space_make(&hunt->space, hunt->usual.parameters, &given[0]))
        return EXIT_CHECK_FAILED;
    drop_fixed(hunt, &given[0]);
    if (hunt->space.axes == 0)
        return EXIT_CHECK_FAILED;
    hunt->row.size = tune_class(hunt->tune, &hunt->row, hunt->usual.size);
    given[1] = given[0];
    if (store_find(tune->database, &hunt->row, stored, sizeof stored) && space_find(&hunt->space, stored, &given[1]))
        givens = 2;
    search_begin(&hunt->search, &hunt->space, given, givens, tune->selection.seed,
                 COARSE < tune->most / 2 ? COARSE : tune->most / 2, tune->most);
    return EXIT_OK;
}

/* ---- the best against the library's own -------------------------------------------------------------------------- */

/* A file that has no name, and goes with this process however that ends. */
static int write_nameless(const char *text, char path[64]) {
    const int file = memfd_create("clattn-tune", 0);
    if (file < 0)
        return -1;
    if (write(file, text, strlen(text)) != (ssize_t)strlen(text)) {
        close(file);
        return -1;
    }
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), file);
    return file;
}

static struct comparison compare_on(struct hunt *hunt, const struct tune_task *task, const char *database) {
    struct comparison comparison = {.verdict = VERDICT_UNKNOWN};
    const char *const variants[] = {hunt->task->variant, hunt->task->variant};
    const char *const databases[] = {NULL, database};
    char runs[256];
    for (int i = 0; i < COMPARISONS && (i == 0 || comparison.verdict == VERDICT_NOISY); i++)
        if (tune_hire(hunt->tune, task, NULL) == EXIT_OK)
            comparison = tune_compare(hunt->tune, databases, variants, runs);
    return comparison;
}

/* Large tiles may pay for long sequences and be a loss for short ones, which find the same row. */
static bool holds_for_less(struct hunt *hunt, const char *database) {
    struct tune_task guard;
    if (!tune_guard(hunt->task, &guard))
        return true;
    const struct comparison comparison = compare_on(hunt, &guard, database);
    tune_dismiss(hunt->tune); /* its task ends here */
    return comparison.verdict == VERDICT_FASTER ||
           (comparison.verdict == VERDICT_NO_FASTER && comparison.ratio <= 1 + VERDICT_GAIN);
}

static struct comparison compare(struct hunt *hunt, const char *parameters) {
    struct comparison comparison = {.verdict = VERDICT_UNKNOWN};
    char path[64];
    hunt->row.parameters = parameters;
    char *text = store_print(&hunt->row);
    const int file = text ? write_nameless(text, path) : -1;
    free(text);
    if (file < 0)
        return comparison;
    comparison = compare_on(hunt, hunt->task, path);
    if (comparison.verdict == VERDICT_FASTER && !holds_for_less(hunt, path)) {
        comparison.verdict = VERDICT_NO_FASTER;
        hunt->large_alone = true;
    }
    close(file);
    return comparison;
}

/* Points that come to the same parameters were measured once. */
static bool is_same(const struct hunt *hunt, int a, int b) {
    return hunt->measured[a] == hunt->measured[b];
}

/* The fastest but those already taken; -1 where none is faster than the library's own. */
static int next_finalist(const struct hunt *hunt, const int *taken, int count) {
    int best = -1;
    for (int i = 1; i < hunt->search.count; i++) {
        const double seconds = hunt->search.trials[i].seconds;
        bool is_taken = is_same(hunt, i, 0);
        for (int t = 0; t < count; t++)
            is_taken = is_taken || is_same(hunt, i, taken[t]);
        if (!is_taken && seconds > 0 && seconds < usual_seconds(hunt) &&
            (best < 0 || seconds < hunt->search.trials[best].seconds))
            best = i;
    }
    return best;
}

/* The slower of two measurements counts. A candidate that now fails does no more. */
static void retime_one(struct hunt *hunt, int index) {
    char parameters[SPACE_TEXT], outcome[512];
    double seconds = 0;
    space_print(&hunt->space, &hunt->search.trials[index].point, parameters);
    ask_time(hunt, parameters, outcome);
    count_again(&hunt->tune->counts, read_outcome(outcome, &seconds));
    if (seconds > 0 && seconds < hunt->search.trials[index].seconds)
        seconds = hunt->search.trials[index].seconds;
    for (int i = 0; i < hunt->search.count; i++)
        if (is_same(hunt, i, index))
            hunt->search.trials[i].seconds = seconds;
}

/* The library's own and the best once more: of many short measurements the best is also the luckiest. */
static void retime(struct hunt *hunt) {
    int taken[RETIMED] = {0};
    for (int i = 0; i < hunt->search.count; i++)
        hunt->measured[i] = hunt->search.trials[i].seconds;
    for (int i = 0; i < RETIMED; i++) {
        taken[i] = i == 0 ? 0 : next_finalist(hunt, taken, i);
        if (taken[i] < 0 || usual_seconds(hunt) <= 0 || tune_hire(hunt->tune, hunt->task, NULL) != EXIT_OK)
            return;
        retime_one(hunt, taken[i]);
    }
}

static int store(struct hunt *hunt, const struct comparison *comparison, bool keep) {
    hunt->row.seconds = comparison->rival;
    hunt->row.usual_seconds = comparison->usual;
    if (keep)
        hunt->tune->counts.stored++;
    else
        hunt->tune->counts.usual++;
    return store_update(hunt->tune->database, &hunt->row, keep);
}

static int decide(struct hunt *hunt, char parameters[SPACE_TEXT], struct comparison *comparison, const char **outcome) {
    int taken[FINALISTS];
    bool noisy = false;
    *outcome = "the library's own parameters are no slower";
    for (int i = 0; i < FINALISTS; i++) {
        taken[i] = next_finalist(hunt, taken, i);
        if (taken[i] < 0)
            break;
        space_print(&hunt->space, &hunt->search.trials[taken[i]].point, parameters);
        *comparison = compare(hunt, parameters);
        if (comparison->verdict == VERDICT_FASTER) {
            *outcome = "stored";
            return store(hunt, comparison, true);
        }
        noisy = noisy || comparison->verdict != VERDICT_NO_FASTER;
    }
    if (hunt->large_alone)
        *outcome = "what is faster here is slower for a small problem; nothing is stored";
    hunt->row.parameters = parameters[0] ? parameters : hunt->usual.parameters;
    if (!noisy)
        return store(hunt, comparison, false);
    hunt->tune->counts.noisy++;
    *outcome = TUNE_NOISY;
    return EXIT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int hunt_down(struct hunt *hunt) {
    struct comparison comparison = {.verdict = VERDICT_UNKNOWN};
    char parameters[SPACE_TEXT] = "";
    const char *outcome = NULL;
    const int code = begin(hunt);
    if (code == EXIT_CHECK_FAILED)
        return EXIT_OK; /* it has no parameters to tune */
    search_all(hunt);
    if (hunt->lost)
        return EXIT_OK;
    if (usual_seconds(hunt) <= 0) {
        hunt->row.parameters = hunt->usual.parameters;
        tune_conclude(hunt->tune, hunt->key, &hunt->row, "the library's own parameters cannot be timed", &comparison);
        return EXIT_OK;
    }
    if (hunt->search.ran < 2 && wall_seconds() >= hunt->until)
        return EXIT_OK; /* the budget ended before there was anything to compare with */
    retime(hunt);
    if (usual_seconds(hunt) <= 0)
        return EXIT_OK; /* not this time */
    FORWARD(decide(hunt, parameters, &comparison, &outcome));
    tune_conclude(hunt->tune, hunt->key, &hunt->row, outcome, &comparison);
    return EXIT_OK;
}

int tune_parameters(struct tune *tune, const struct tune_task *task, double share) {
    static struct hunt hunt; /* large */
    const double left = tune_seconds_left(tune), least = left < LEAST_SECONDS ? left : LEAST_SECONDS;
    hunt = (struct hunt){
        .tune = tune, .task = task, .until = wall_seconds() + (share > least ? share : least) - COMPARE_SECONDS};
    hunt.row = tune_row(tune, task->variant, task->element);
    const clattn_status status =
        clattn_tuning_kernels(tune->machine.clattn, task->kind->op, task->variant, hunt.kernels, sizeof hunt.kernels);
    if (status != CLATTN_SUCCESS)
        return EXIT_OK; /* nothing of it is tuned */
    hunt.row.op = tune_op_name(task->kind->op);
    hunt.row.variant = task->variant;
    hunt.row.kernels = hunt.kernels;
    hunt.row.shape = task->shape;
    snprintf(hunt.key, sizeof hunt.key, "%s %s %s %s %s", hunt.row.op, task->variant, element_name(task->element),
             task->shape, hunt.kernels);
    if (tune_is_concluded(tune, hunt.key))
        return EXIT_OK;
    /* What cannot be run at all, such as for want of memory, is no reason to end the tune. */
    if (tune_hire(tune, task, NULL) != EXIT_OK)
        return EXIT_OK;
    return hunt_down(&hunt);
}
