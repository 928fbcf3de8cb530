/* clattn tune: the command line, the list of searches, and what is told of them. */
#include "tune.h"
#include "command.h"
#include "progress.h"
#include "report.h"
#include "timer.h"
#include "tune_search.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: clattn tune [OP]... [OPTION]...\n\n"
    "Searches for faster tile sizes on one device, and for the problems at which another variant of attention is the\n"
    "fastest, and puts what it finds into the user's tuning database, which the library reads from then on. "
    "Candidates\n"
    "are built, checked against the double-precision oracle and timed in a process of their own, so that one that\n"
    "crashes or hangs the driver costs itself. Stored is what is right and, run as the library would run it and timed\n"
    "in turn with the library's own choice, faster beyond noise, at the problem that was measured; a row holds for\n"
    "those of its class. A tune that was killed has lost nothing: --resume goes on where it was.\n\n"
    "  --budget SECONDS   end after this time, with the most used variants and types first; default: when done\n"
    "  --candidates N     that are run in one search, at most; default 160\n"
    "  --limit SECONDS    that a candidate may take to be built, checked and timed; default: 20 times the first, 20 to "
    "120\n"
    "  --resume           go on with the last tune of this database\n"
    "  --db FILE          default: the database that 'clattn info' shows\n"
    "  --dtype D          f32, f16, bf16 or all; default all\n"
    "  --shape SIZES      one shape (as of 'clattn bench') for its class of sizes: those above half of the next power\n"
    "                     of two; default: a list for each operation, and the variants of attention\n"
    "  --variant NAME     this one alone\n"
    "  --crossovers       only where one variant of attention overtakes another\n"
    "  --seed N           of the search and of the data; default 1\n"
    "  --device D         a device's number, or a part of its name\n"
    "  --json             one JSON document\n\n"
    "Example: clattn tune softmax --budget 60\n";

#define RACES_SHARE 0.25 /* of a budget, for the variants of attention */
#define FIRST_SHARE 0.8  /* of what is left, for what the library picks by itself */

/* ---- for the searches -------------------------------------------------------------------------------------------- */

const char *tune_op_name(clattn_op_kind kind) {
    switch (kind) {
    case CLATTN_OP_ATTENTION:
        return "attention";
    case CLATTN_OP_ATTENTION_BACKWARD:
        return "attention_backward";
    case CLATTN_OP_NORM:
        return "norm";
    case CLATTN_OP_NORM_BACKWARD:
        return "norm_backward";
    default: /* where the command and the library have the same name */
        for (size_t i = 0; job_kind_at(i); i++)
            if (job_kind_at(i)->op == kind)
                return job_kind_at(i)->name;
        return "unknown";
    }
}

struct store_range tune_class(const struct tune *tune, const struct store_row *row, int64_t size) {
    struct store_range class = store_octave(size);
    clattn_tuning_row shipped = {.size = sizeof shipped};
    for (size_t i = 0; clattn_tuning_row_at(tune->machine.clattn, i, &shipped) == CLATTN_SUCCESS && shipped.op[0]; i++)
        if (!shipped.user && !shipped.prefers && strcmp(shipped.op, row->op) == 0 &&
            strcmp(shipped.variant, row->variant) == 0)
            store_narrow(&class, size, &(struct store_range){shipped.min_size, shipped.max_size});
    return class;
}

struct store_row tune_row(const struct tune *tune, const char *op, enum element element) {
    return (struct store_row){
        .device = tune->info.name, .driver = tune->info.driver, .op = op, .dtype = element_name(element)};
}

double tune_seconds_left(const struct tune *tune) {
    return tune->ends - wall_seconds();
}

void tune_progress(const struct tune *tune, const char *what, double best) {
    char label[128], left[32] = "";
    const double seconds = tune_seconds_left(tune);
    if (isfinite(seconds))
        snprintf(left, sizeof left, "%.0f s left, ", seconds > 0 ? seconds : 0);
    snprintf(label, sizeof label, "%sx%.2f, %s, %d tried %d refused %d failed", left, best, what, tune->counts.tried,
             tune->counts.refused, tune->counts.failed + tune->counts.wrong);
    progress_show(tune->done, tune->tasks, label);
}

static cJSON *describe(const struct store_row *row, const char *outcome, const struct comparison *comparison) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", row->op);
    cJSON_AddStringToObject(object, "variant", row->variant);
    cJSON_AddStringToObject(object, "dtype", row->dtype);
    cJSON_AddStringToObject(object, "shape", row->shape);
    cJSON_AddBoolToObject(object, "prefers", row->prefers);
    if (row->prefers)
        cJSON_AddBoolToObject(object, "causal", row->causal);
    else
        cJSON_AddStringToObject(object, "parameters", row->parameters);
    cJSON_AddStringToObject(object, "outcome", outcome);
    if (comparison->usual > 0) {
        cJSON_AddNumberToObject(object, "usual_seconds", comparison->usual);
        cJSON_AddNumberToObject(object, "seconds", comparison->rival);
        cJSON_AddNumberToObject(object, "ratio", comparison->ratio);
    }
    return object;
}

static void print_result(const struct store_row *row, const char *outcome, const struct comparison *comparison) {
    char usual[16], rival[16];
    printf("%-9s %-22s %-4s %-20s", row->prefers ? "prefer" : row->op, row->variant, row->dtype, row->shape);
    if (comparison->usual > 0)
        printf(" %s -> %s (x%.2f)", format_seconds(comparison->usual, usual), format_seconds(comparison->rival, rival),
               comparison->ratio);
    printf(" %s%s%s%s\n", row->prefers && row->causal ? "causal: " : "", outcome,
           row->prefers || strcmp(outcome, "stored") != 0 ? "" : ": ",
           row->prefers || strcmp(outcome, "stored") != 0 ? "" : row->parameters);
    fflush(stdout);
}

void tune_conclude(struct tune *tune, const char *key, const struct store_row *row, const char *outcome,
                   const struct comparison *comparison) {
    progress_clear();
    journal_write(&tune->journal, key, outcome);
    cJSON_AddItemToArray(tune->results, describe(row, outcome, comparison));
    if (!tune->arguments.json)
        print_result(row, outcome, comparison);
}

bool tune_is_concluded(struct tune *tune, const char *key) {
    char outcome[256];
    return journal_find(&tune->journal, key, outcome, sizeof outcome) && strcmp(outcome, TUNE_NOISY) != 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void print_summary(const struct tune *tune) {
    const struct tune_counts *counts = &tune->counts;
    printf(
        "%d tried, %d refused, %d failed, %d wrong, %d known from before; %d rows stored, %d times the library's own "
        "choice held, %d were too noisy\n%s\n",
        counts->tried, counts->refused, counts->failed, counts->wrong, counts->resumed, counts->stored, counts->usual,
        counts->noisy, tune->database);
}

static int print_json(const struct tune *tune, bool complete) {
    const struct tune_counts *counts = &tune->counts;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "device", tune->info.name);
    cJSON_AddStringToObject(root, "driver", tune->info.driver);
    cJSON_AddStringToObject(root, "version", clattn_version());
    cJSON_AddStringToObject(root, "db", tune->database);
    cJSON_AddNumberToObject(root, "seed", (double)tune->selection.seed);
    cJSON_AddNumberToObject(root, "seconds", wall_seconds() - tune->begun);
    cJSON_AddBoolToObject(root, "complete", complete);
    const struct {
        const char *name;
        int count;
    } numbers[] = {{"tried", counts->tried},   {"refused", counts->refused}, {"failed", counts->failed},
                   {"wrong", counts->wrong},   {"noisy", counts->noisy},     {"resumed", counts->resumed},
                   {"stored", counts->stored}, {"usual", counts->usual}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].count);
    cJSON_AddItemReferenceToObject(root, "results", tune->results);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(root);
    return text ? EXIT_OK : complain(EXIT_UNSUPPORTED, "out of host memory");
}

static bool has_crossovers(const struct tune *tune) {
    return !tune->arguments.shape && !tune->arguments.variant && selection_holds(&tune->selection, job_attention.name);
}

/* Most of a budget is for what the library picks; of that, and of the rest, all have the same share. */
static double share_of(const struct tune *tune, const struct tune_tasks *tasks) {
    const bool first = tasks->items[tune->done].first;
    size_t alike = 0;
    for (size_t i = tune->done; i < tasks->count && tasks->items[i].first == first; i++)
        alike++;
    return (first && alike < tasks->count - tune->done ? FIRST_SHARE : 1) * tune_seconds_left(tune) / (double)alike;
}

static int run_tasks(struct tune *tune, const struct tune_tasks *tasks, bool *complete) {
    const double ends = tune->ends;
    tune->tasks = tasks->count ? tasks->count : 1;
    if (has_crossovers(tune) && !tune->arguments.crossovers && isfinite(ends))
        tune->ends -= RACES_SHARE * (ends - wall_seconds());
    for (tune->done = 0; !tune->arguments.crossovers && tune->done < tasks->count && tune_seconds_left(tune) > 0;
         tune->done++)
        FORWARD(tune_parameters(tune, &tasks->items[tune->done], share_of(tune, tasks)));
    *complete = tune->arguments.crossovers || tune->done == tasks->count;
    tune->ends = ends;
    for (size_t e = 0; e < tune->selection.element_count && has_crossovers(tune); e++)
        FORWARD(tune_crossovers(tune, tune->selection.elements[e]));
    *complete = *complete && tune_seconds_left(tune) > 0;
    return EXIT_OK;
}

static int tune_all(struct tune *tune) {
    struct tune_tasks tasks;
    bool complete = false;
    char path[4200], title[512];
    FORWARD(store_update(tune->database, NULL, false)); /* before time is spent on what could not be stored */
    snprintf(path, sizeof path, "%s.journal", tune->database);
    snprintf(title, sizeof title, "clattn tune %s, seed %llu: %s, %s", clattn_version(),
             (unsigned long long)tune->selection.seed, tune->info.name, tune->info.driver);
    if (!journal_open(&tune->journal, path, title, tune->arguments.resume))
        remark("%s: cannot be written, or another tune has it: this tune cannot be resumed", path);
    tune->counts.resumed = tune->journal.known;
    if (tune->arguments.resume && tune->journal.known == 0)
        remark("%s: there is no tune of this device to go on with; this is a new one", path);
    int code = tune_tasks_list(tune, &tasks);
    if (code == EXIT_OK)
        code = run_tasks(tune, &tasks, &complete);
    tune_dismiss(tune);
    progress_clear();
    free(tasks.items);
    if (code == EXIT_OK && complete && tune->counts.noisy == 0 && tune->journal.file >= 0)
        unlink(path); /* nothing is left to go on with */
    if (code == EXIT_OK && tune->arguments.json)
        code = print_json(tune, complete);
    else if (code == EXIT_OK)
        print_summary(tune);
    journal_close(&tune->journal);
    return code;
}

/* *seconds stays where there is no text. */
static int take_seconds(const char *option, const char *text, double *seconds) {
    char *end = NULL;
    if (!text)
        return EXIT_OK;
    *seconds = strtod(text, &end);
    if (*end || end == text || !(*seconds > 0) || !isfinite(*seconds))
        return complain(EXIT_USAGE, "--%s %s is no number of seconds", option, text);
    return EXIT_OK;
}

static int take_limits(struct tune *tune) {
    double budget = INFINITY;
    int64_t most = 160;
    const char *candidates = tune->arguments.candidates;
    if (candidates && (!parse_integer(candidates, &most) || most < 1 || most > SEARCH_TRIALS))
        return complain(EXIT_USAGE, "--candidates %s is no number from 1 to %d", candidates, SEARCH_TRIALS);
    tune->most = (int)most;
    tune->limit = 120;
    FORWARD(take_seconds("budget", tune->arguments.budget, &budget));
    FORWARD(take_seconds("limit", tune->arguments.limit, &tune->limit));
    tune->begun = wall_seconds();
    tune->ends = tune->begun + budget;
    return EXIT_OK;
}

static int take_database(struct tune *tune) {
    const char *given = tune->arguments.database;
    if (!given && !tune->info.tuning_db[0])
        return complain(EXIT_USAGE, "no tuning database is set: name one with --db");
    if ((size_t)snprintf(tune->database, sizeof tune->database, "%s", given ? given : tune->info.tuning_db) >=
            sizeof tune->database - 64 ||
        !tune->database[0] || strpbrk(tune->database, "\t\n"))
        return complain(EXIT_USAGE, "--db %s: no name for a file", given);
    return EXIT_OK;
}

static int open_device(struct tune *tune) {
    struct device_entry entry;
    FORWARD(machine_find(tune->arguments.device, &entry));
    FORWARD(machine_open_entry(&entry, &tune->machine));
    tune->info.size = sizeof tune->info;
    const clattn_status status = clattn_context_info(tune->machine.clattn, &tune->info);
    return status == CLATTN_SUCCESS ? take_database(tune) : complain_status(status, entry.name);
}

/* Does one of the selected operations have it? */
static bool is_variant(const struct tune *tune, const char *name) {
    const struct job_kind *kind;
    for (size_t k = 0; (kind = job_kind_at(k)) != NULL; k++)
        for (size_t i = 0; selection_holds(&tune->selection, kind->name) && i < clattn_variant_count(kind->op); i++)
            if (strcmp(clattn_variant_name(kind->op, i), name) == 0)
                return true;
    return false;
}

static int check_usage(const struct tune *tune) {
    if (tune->arguments.variant && !is_variant(tune, tune->arguments.variant))
        return complain(EXIT_USAGE, "--variant %s: no such variant of these operations ('clattn info' lists them)",
                        tune->arguments.variant);
    if (tune->arguments.settings.count)
        return complain(EXIT_USAGE, "takes no settings ('%s=')", tune->arguments.settings.items[0].key);
    if (tune->arguments.shape && tune->selection.kind_count != 1)
        return complain(EXIT_USAGE, "--shape wants one operation");
    if (tune->arguments.crossovers && !has_crossovers(tune))
        return complain(EXIT_USAGE, "--crossovers are those of attention, without --shape and --variant");
    return EXIT_OK;
}

int command_tune(int argc, char **argv) {
    static struct tune tune; /* large */
    FORWARD(arguments_parse(argc, argv,
                            "budget candidates crossovers db device dtype json limit resume seed shape variant",
                            &tune.arguments));
    if (tune.arguments.help)
        return fputs(help, stdout), EXIT_OK;
    FORWARD(selection_take(&tune.arguments, "all", &tune.selection));
    FORWARD(check_usage(&tune));
    FORWARD(take_limits(&tune));
    int code = open_device(&tune);
    tune.results = cJSON_CreateArray();
    if (code == EXIT_OK)
        code = tune_all(&tune);
    cJSON_Delete(tune.results);
    machine_close(&tune.machine);
    return code;
}
