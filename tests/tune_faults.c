/* Faults planted into the command for tests of its tuner: linked around the functions that launch and time a candidate,
 * which know nothing of it.
 *
 * CLATTN_TEST_FAULTS is a list like "none,crash,hang,wrong,zero,leave": what happens to the first candidate that is
 * launched with parameters, to the second, and so on, then none. CLATTN_TEST_FAULTS_FILE counts them over processes.
 * In the place of a list, "noise": times scatter, and each candidate seems faster than the last; "blind": the oracle
 * is content with anything, each candidate seems faster than the last, and the second of two that are compared computes
 * nothing; "flaky": the same, but it does so only when it is called for the third time; "large": each candidate seems
 * faster than the last, and the second of two takes half its time where a tensor has 64 rows or more, else three times.
 */
#include "../tools/oracle.h"
#include "../tools/timer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_job_launch(struct job *job, const struct machine *machine, const char *variant, const char *parameters,
                      cl_event *event);
int __wrap_job_launch(struct job *job, const struct machine *machine, const char *variant, const char *parameters,
                      cl_event *event);
double __real_timer_median(const struct timer *timer);
double __wrap_timer_median(const struct timer *timer);
int __real_timer_run(struct timer *timer);
int __wrap_timer_run(struct timer *timer);

void __real_oracle_compare(const struct oracle *oracle, const struct job *job, struct errors *errors);
void __wrap_oracle_compare(const struct oracle *oracle, const struct job *job, struct errors *errors);

static char current[256], fault[16];
static int64_t rows;
static bool has_parameters;

static bool has_mode(const char *mode) {
    const char *list = getenv("CLATTN_TEST_FAULTS");
    return list && strcmp(list, mode) == 0;
}

static bool seems_better(void) {
    return has_mode("blind") || has_mode("flaky") || has_mode("noise") || has_mode("large");
}

/* The number of candidates before this one. */
static size_t count_candidate(void) {
    const char *path = getenv("CLATTN_TEST_FAULTS_FILE");
    const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file < 0 || write(file, ".", 1) != 1)
        exit(99);
    const off_t size = lseek(file, 0, SEEK_END);
    close(file);
    return (size_t)size - 1;
}

static void find_fault(void) {
    const char *list = getenv("CLATTN_TEST_FAULTS");
    size_t index = list ? count_candidate() : 0;
    fault[0] = '\0';
    for (; list && *list; index--) {
        const size_t length = strcspn(list, ",");
        if (index == 0 && length < sizeof fault) {
            memcpy(fault, list, length);
            fault[length] = '\0';
            return;
        }
        list += length + (list[length] == ',');
    }
}

int __wrap_job_launch(struct job *job, const struct machine *machine, const char *variant, const char *parameters,
                      cl_event *event) {
    static int compared; /* launches of two in turn, which have no parameters of their own */
    rows = job->tensors[0].host.dims[0];
    has_parameters = parameters != NULL;
    if ((has_mode("blind") || has_mode("flaky")) && !parameters && ++compared == (has_mode("blind") ? 2 : 4))
        return 0;
    if (parameters && strcmp(parameters, current) != 0 && strlen(parameters) < sizeof current) {
        strcpy(current, parameters);
        find_fault();
    }
    if (strcmp(fault, "crash") == 0)
        raise(SIGSEGV);
    if (strcmp(fault, "leave") == 0)
        _exit(0);
    while (strcmp(fault, "hang") == 0)
        pause();
    if (strcmp(fault, "wrong") == 0)
        return 0;
    return __real_job_launch(job, machine, variant, parameters, event);
}

void __wrap_oracle_compare(const struct oracle *oracle, const struct job *job, struct errors *errors) {
    __real_oracle_compare(oracle, job, errors);
    errors->ok = errors->ok || has_mode("blind");
}

double __wrap_timer_median(const struct timer *timer) {
    static int timed;
    if (seems_better())
        return 1.0 / ++timed;
    return strcmp(fault, "zero") == 0 ? 0 : __real_timer_median(timer);
}

int __wrap_timer_run(struct timer *timer) {
    static const double factors[] = {0.2, 1, 5};
    static unsigned chance = 1;
    const int code = __real_timer_run(timer);
    static const void *first;
    first = has_parameters ? NULL : first ? first : timer->user; /* of two in turn */
    if (has_mode("large") && timer->runs > 0)
        timer->samples[timer->runs - 1] = timer->user == first ? 1 : rows >= 64 ? 0.5 : 3;
    if (has_mode("noise") && timer->runs > 0)
        timer->samples[timer->runs - 1] *= factors[rand_r(&chance) % 3];
    return code;
}
