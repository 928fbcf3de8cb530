/* A worker serves one job. One that crashed, hung, failed or gave a wrong result is dismissed: whatever it left in the
 * driver must not fall on the next candidate. */
#include "command.h"
#include "machine.h"
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_SECONDS 120 /* to open the device, and to make the data and the oracle's rows */
#define COMPARE_SECONDS 60

void tune_dismiss(struct tune *tune) {
    worker_stop(&tune->worker);
    tune->task = NULL;
}

static void split(struct tune_answer *answer) {
    answer->count = 0;
    for (char *at = answer->text; at && answer->count < TUNE_WORDS;) {
        answer->words[answer->count++] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
}

void tune_ask(struct tune *tune, const char *question, double seconds, struct tune_answer *answer) {
    answer->count = 0;
    if (worker_ask(&tune->worker, question, seconds, answer->text) == WORKER_ANSWERED)
        split(answer);
    else
        tune->task = NULL;
}

bool tune_is(const struct tune_answer *answer, const char *verb, int words) {
    return answer->count >= words && strcmp(answer->words[0], verb) == 0;
}

static int start(struct tune *tune, const struct tune_task *task, const char *setting) {
    char device[32], seed[32];
    struct device_entry entries[MACHINE_MAX_DEVICES];
    const size_t count = machine_list(entries);
    size_t index = 0;
    while (index + 1 < count && entries[index].device != tune->machine.entry.device)
        index++;
    snprintf(device, sizeof device, "%zu", index);
    snprintf(seed, sizeof seed, "%" PRIu64, tune->selection.seed);
    const char *arguments[] = {
        task->kind->name, "--shape", task->shape, "--dtype", element_name(task->element), "--device", device,
        "--seed",         seed,      setting,     NULL};
    return worker_start(&tune->worker, arguments);
}

/* A device that was reset may take a moment to come back. */
int tune_hire(struct tune *tune, const struct tune_task *task, const char *setting) {
    enum { TRIES = 3 };
    struct tune_answer answer;
    if (tune->worker.process > 0 && tune->task == task && tune->setting == setting)
        return EXIT_OK;
    tune_dismiss(tune);
    for (int i = 0; i < TRIES; i++) {
        FORWARD(start(tune, task, setting));
        tune_ask(tune, "ready", START_SECONDS, &answer);
        if (tune_is(&answer, "ready", 1)) {
            tune->task = task;
            tune->setting = setting;
            return EXIT_OK;
        }
        tune_dismiss(tune);
        if (answer.count > 0)
            break; /* a refusal, which is the same next time */
        sleep(1u << i);
    }
    return complain(EXIT_UNSUPPORTED, "%s %s %s: no worker: %s", task->kind->name, element_name(task->element),
                    task->shape, answer.count > 1 ? answer.words[1] : answer.text);
}

bool tune_ask_plan(struct tune *tune, const char *variant, const char *parameters, struct tune_plan *plan) {
    char question[WORKER_LINE];
    struct tune_answer answer;
    snprintf(question, sizeof question, "plan\t%s\t%s", variant, parameters);
    tune_ask(tune, question, START_SECONDS, &answer);
    if (!tune_is(&answer, "plan", 4))
        return false;
    snprintf(plan->variant, sizeof plan->variant, "%s", answer.words[3]);
    snprintf(plan->parameters, sizeof plan->parameters, "%s", answer.words[1]);
    plan->size = strtoll(answer.words[2], NULL, 10);
    return true;
}

static struct comparison judge(const struct tune_answer *answer, char runs[256]) {
    double usual[VERDICT_MAX_PAIRS], rival[VERDICT_MAX_PAIRS];
    const int pairs = (answer->count - 2) / 2;
    snprintf(runs, 256, "%s", answer->words[1]);
    for (int i = 0; i < pairs; i++) {
        usual[i] = strtod(answer->words[2 + 2 * i], NULL);
        rival[i] = strtod(answer->words[3 + 2 * i], NULL);
    }
    return verdict_of(usual, rival, pairs);
}

struct comparison tune_compare(struct tune *tune, const char *const databases[2], const char *const variants[2],
                               char runs[256]) {
    char question[WORKER_LINE];
    struct tune_answer answer;
    runs[0] = '\0';
    if (snprintf(question, sizeof question, "compare\t%s\t%s\t%s\t%s", databases[0] ? databases[0] : "", variants[0],
                 databases[1] ? databases[1] : "", variants[1]) >= (int)sizeof question)
        return (struct comparison){.verdict = VERDICT_UNKNOWN};
    tune_ask(tune, question, COMPARE_SECONDS + 4 * tune->limit, &answer);
    if (tune_is(&answer, "times", 4))
        return judge(&answer, runs);
    if (tune_is(&answer, "wrong", 1))
        tune->counts.wrong++;
    else
        tune->counts.failed++;
    tune_dismiss(tune);
    return (struct comparison){.verdict = VERDICT_UNKNOWN};
}
