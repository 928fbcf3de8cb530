/* What the parts of clattn tune share. */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include "arguments.h"
#include "selection.h"
#include "tune_journal.h"
#include "tune_store.h"
#include "tune_verdict.h"
#include "tune_worker.h"

#include <clattn/variants.h>

struct cJSON;

struct tune_counts {
    int tried;   /* candidates that were built, checked and timed */
    int refused; /* by the library, before anything was built */
    int failed;  /* errors, crashes, hangs */
    int wrong;   /* results beyond their bound */
    int noisy;   /* comparisons that told nothing */
    int resumed; /* candidates whose outcome was known from before */
    int stored, usual;
};

/* One search: the parameters of a variant for a class of sizes; without a variant, which of attention's is picked. */
struct tune_task {
    const struct job_kind *kind;
    enum element element;
    char shape[64], variant[32];
    bool first; /* the variant that the library picks: before all others */
};

struct tune {
    struct arguments arguments;
    struct selection selection;
    struct machine machine; /* with the database's rows; runs nothing */
    clattn_device_info info;
    char database[4096];
    struct journal journal;
    double begun, ends; /* wall clock */
    double limit;       /* seconds that a candidate may take */
    int most;           /* candidates that are run in a search */
    struct worker worker;
    const struct tune_task *task; /* the worker's */
    const char *setting;          /* a KEY=VALUE of its job, or NULL */
    struct tune_counts counts;
    size_t done, tasks;
    struct cJSON *results;
};

/* ---- tune_tasks.c ------------------------------------------------------------------------------------------------ */

struct tune_tasks {
    struct tune_task *items;
    size_t count, capacity;
};

/* Every variant that the device takes of the selected operations, at the shapes that stand for a class each. */
int tune_tasks_list(const struct tune *tune, struct tune_tasks *tasks);

/* A smaller problem that rows look up the same parameters for: short sequences, few rows. False where there is none. */
bool tune_guard(const struct tune_task *task, struct tune_task *guard);

/* ---- tune_ask.c: the worker, and what becomes of it -------------------------------------------------------------- */

#define TUNE_WORDS (2 + 2 * VERDICT_MAX_PAIRS)

struct tune_answer {
    char text[WORKER_LINE];
    char *words[TUNE_WORDS];
    int count; /* 0: the worker is gone, text says how */
};

/* Makes sure that a worker with the task's job runs. An exit code; complains where it cannot have the job. */
int tune_hire(struct tune *tune, const struct tune_task *task, const char *setting);
void tune_dismiss(struct tune *tune);

/* Is the answer this verb, with that many words at least? */
bool tune_is(const struct tune_answer *answer, const char *verb, int words);
void tune_ask(struct tune *tune, const char *question, double seconds, struct tune_answer *answer);

/* The library's parameters for the variant, or what becomes of given ones; false where they are refused. */
struct tune_plan {
    char parameters[256], variant[32];
    int64_t size;
};
bool tune_ask_plan(struct tune *tune, const char *variant, const char *parameters, struct tune_plan *plan);

/* Times two variants in turn, each with a database of its own (NULL or "": none). *runs: what the second ran with. */
struct comparison tune_compare(struct tune *tune, const char *const databases[2], const char *const variants[2],
                               char runs[256]);

/* ---- the searches; an exit code only where the tune cannot go on ------------------------------------------------- */

int tune_parameters(struct tune *tune, const struct tune_task *task, double share); /* seconds; may be infinite */
int tune_crossovers(struct tune *tune, enum element element);

/* ---- tune.c ------------------------------------------------------------------------------------------------------ */

double tune_seconds_left(const struct tune *tune);
/* On a terminal: what is at work, how it goes, and the time that is left. best: of the usual time. */
void tune_progress(const struct tune *tune, const char *what, double best);
#define TUNE_NOISY "too noisy to tell; nothing is stored"
/* Writes the outcome of a search for people or for --json, and into the journal under `key`. */
void tune_conclude(struct tune *tune, const char *key, const struct store_row *row, const char *outcome,
                   const struct comparison *comparison);
/* "softmax": the operation as rows name it. */
const char *tune_op_name(clattn_op_kind kind);
/* Is the search concluded in the journal? One that was too noisy is not: its candidates are known, the best is compared
 * again. */
bool tune_is_concluded(struct tune *tune, const char *key);
/* The members of a row that are the same for all: device, driver, dtype. */
struct store_row tune_row(const struct tune *tune, const char *op, enum element element);
/* The octave of the size, but those sizes alone for which the library's own rows of the variant are the same: what is
 * faster than one of them may be slower than another. */
struct store_range tune_class(const struct tune *tune, const struct store_row *row, int64_t size);

#endif
