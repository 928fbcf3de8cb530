/* Which of fused, unfused and decode attention is the fastest: measured with the database's parameters over a grid of
 * problems, each of which stands for all that are smaller but larger than the next smaller. */
#include "command.h"
#include "tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_OF_A_CPU 1e9 /* multiplications of a product */

struct step {
    int64_t measured;
    struct store_range range;
};

static const struct step query_steps[] = {{1, {1, 1}},
                                          {16, {2, 16}},
                                          {128, {17, 128}},
                                          {512, {129, 512}},
                                          {2048, {513, 2048}}},
                         key_steps[] = {{256, {65, 256}}, {1024, {257, 1024}}, {4096, {1025, 4096}}},
                         head_steps[] = {{8, {1, 16}}, {64, {17, 128}}}, sharing_steps[] = {{1, {1, 1}}, {4, {2, 8}}};
static const int64_t dims[] = {64, 128};

#define COUNT(steps) (sizeof steps / sizeof *steps)

struct cell {
    const struct step *queries, *keys, *heads, *sharing;
    int64_t dim;
    bool causal;
};

/* The n-th cell of the grid; the order is that of use, as a budget may end before it. */
static struct cell cell_at(size_t n) {
    struct cell cell;
    cell.dim = dims[n % COUNT(dims)], n /= COUNT(dims);
    cell.keys = &key_steps[n % COUNT(key_steps)], n /= COUNT(key_steps);
    cell.queries = &query_steps[n % COUNT(query_steps)], n /= COUNT(query_steps);
    cell.sharing = &sharing_steps[n % COUNT(sharing_steps)], n /= COUNT(sharing_steps);
    cell.heads = &head_steps[n % COUNT(head_steps)], n /= COUNT(head_steps);
    cell.causal = n != 0;
    return cell;
}

static const size_t cells =
    COUNT(dims) * COUNT(key_steps) * COUNT(query_steps) * COUNT(sharing_steps) * COUNT(head_steps) * 2;

/* Causal or not is one for a single query; a CPU takes no minute for one cell. */
static bool is_of_use(const struct tune *tune, const struct cell *cell) {
    const bool cpu = tune->machine.entry.type & CL_DEVICE_TYPE_CPU;
    const double product = (double)cell->queries->measured * (double)cell->keys->measured *
                           (double)cell->heads->measured * (double)cell->dim;
    return cell->queries->measured <= cell->keys->measured && !(cell->causal && cell->queries->measured == 1) &&
           !(cpu && (product > MOST_OF_A_CPU || cell->heads != head_steps));
}

static const char *const groups[] = {"fused", "decode", "unfused"};

static bool begins(const char *variant, const char *group) {
    return strncmp(variant, group, strlen(group)) == 0;
}

/* The first of the group that accepts the worker's job. */
static const char *find_rival(struct tune *tune, const char *group) {
    struct tune_plan plan;
    for (size_t i = 0; i < clattn_variant_count(CLATTN_OP_ATTENTION); i++) {
        const char *name = clattn_variant_name(CLATTN_OP_ATTENTION, i);
        if (begins(name, group) && tune_ask_plan(tune, name, "", &plan))
            return name;
    }
    return NULL;
}

struct race {
    const char *winner; /* NULL: the usual one */
    struct comparison best;
    bool noisy;
};

static void run_races(struct tune *tune, const struct tune_task *task, const char *setting, const char *usual,
                      struct race *race) {
    char runs[256];
    const char *const databases[] = {tune->database, tune->database};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (begins(usual, groups[i]) || tune_hire(tune, task, setting) != EXIT_OK)
            continue;
        const char *rival = find_rival(tune, groups[i]);
        const char *const variants[] = {usual, rival};
        if (!rival)
            continue;
        const struct comparison found = tune_compare(tune, databases, variants, runs);
        tune->counts.tried++;
        race->noisy = race->noisy || found.verdict == VERDICT_NOISY || found.verdict == VERDICT_UNKNOWN;
        if (!race->winner && (race->best.usual <= 0 || found.ratio < race->best.ratio))
            race->best = found;
        if (found.verdict != VERDICT_FASTER || (race->winner && found.ratio >= race->best.ratio))
            continue;
        race->winner = rival;
        race->best = found;
    }
}

static int run_cell(struct tune *tune, const struct cell *cell, enum element element) {
    struct tune_task task = {.kind = &job_attention, .element = element};
    struct store_row row = tune_row(tune, "attention", element);
    struct race race = {.winner = NULL};
    struct tune_plan plan;
    char key[160], kernels[24];
    const char *setting = cell->causal ? "causal=bottom_right" : NULL;
    if (clattn_tuning_kernels(tune->machine.clattn, CLATTN_OP_ATTENTION, NULL, kernels, sizeof kernels) !=
        CLATTN_SUCCESS)
        return EXIT_OK;
    snprintf(task.shape, sizeof task.shape, "1,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
             cell->heads->measured, cell->heads->measured / cell->sharing->measured, cell->queries->measured,
             cell->keys->measured, cell->dim);
    snprintf(key, sizeof key, "prefer %s %s %s %s", element_name(element), task.shape, setting ? setting : "", kernels);
    if (tune_is_concluded(tune, key) || tune_hire(tune, &task, setting) != EXIT_OK)
        return EXIT_OK;
    if (!tune_ask_plan(tune, "", "", &plan)) {
        tune_dismiss(tune);
        return EXIT_OK;
    }
    tune_progress(tune, task.shape, 1);
    run_races(tune, &task, setting, plan.variant, &race);
    tune_dismiss(tune); /* its task ends here */
    row.prefers = true;
    row.op = "attention";
    row.kernels = kernels;
    row.size = store_octave(plan.size);
    row.queries = cell->queries->range;
    row.keys = cell->keys->range;
    row.heads = cell->heads->range;
    row.sharing = cell->sharing->range;
    row.causal = cell->causal;
    row.shape = task.shape;
    row.variant = race.winner ? race.winner : plan.variant;
    row.seconds = race.best.rival;
    row.usual_seconds = race.best.usual;
    tune->counts.stored += race.winner != NULL;
    tune->counts.noisy += !race.winner && race.noisy;
    tune->counts.usual += !race.winner && !race.noisy;
    if (race.winner || !race.noisy)
        FORWARD(store_update(tune->database, &row, race.winner != NULL));
    tune_conclude(tune, key, &row,
                  race.winner  ? "stored"
                  : race.noisy ? TUNE_NOISY
                               : "the usual variant is no slower",
                  &race.best);
    return EXIT_OK;
}

int tune_crossovers(struct tune *tune, enum element element) {
    int most = tune->most < (int)cells ? tune->most : (int)cells;
    for (size_t i = 0; i < cells && most > 0 && tune_seconds_left(tune) > 0; i++) {
        const struct cell cell = cell_at(i);
        if (!is_of_use(tune, &cell))
            continue;
        most--;
        FORWARD(run_cell(tune, &cell, element));
    }
    return EXIT_OK;
}
