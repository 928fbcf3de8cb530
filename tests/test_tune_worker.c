/* The line between the tuner and its worker, whatever becomes of the worker: this program is both. */
#include "../tools/tune_worker.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The command's. */
int complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
double wall_seconds(void);

int complain(int code, const char *format, ...) {
    (void)format;
    return code;
}

double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static int work(int argc, char **argv) {
    char question[WORKER_LINE];
    while (worker_listen(question)) {
        puts("what a driver says on stdout is no answer");
        if (strcmp(question, "crash") == 0)
            raise(SIGABRT);
        else if (strcmp(question, "leave") == 0)
            exit(3);
        else if (strcmp(question, "close") == 0)
            close(3);
        while (strcmp(question, "hang") == 0 || strcmp(question, "close") == 0)
            pause();
        if (strcmp(question, "half") == 0) {
            (void)!write(3, "half an ans", 11);
            raise(SIGKILL);
        }
        worker_answer("%d words, the last %s, to %s\nall in one line", argc, argv[argc - 1], question);
    }
    return 0;
}

/* ---- the tuner --------------------------------------------------------------------------------------------------- */

static const char *const arguments[] = {"softmax", "--shape", "1,2", NULL};

static double ask(struct worker *worker, const char *question, enum worker_outcome expected, const char *text) {
    char answer[WORKER_LINE];
    const double begun = wall_seconds();
    const int strict = expected == WORKER_SILENT;
    assert_int_equal(worker_ask(worker, question, strict ? 0.3 : 60, answer), expected);
    if (!strstr(answer, text))
        fail_msg("%s: %s", question, answer);
    return wall_seconds() - begun;
}

static void a_worker_answers_line_by_line(void **state) {
    struct worker worker;
    (void)state;
    assert_int_equal(worker_start(&worker, arguments), 0);
    for (int i = 0; i < 100; i++)
        ask(&worker, "a question\twith tabs", WORKER_ANSWERED,
            "5 words, the last 1,2, to a question\twith tabs all in one line");
    const pid_t process = worker.process;
    worker_stop(&worker);
    assert_int_equal(worker.process, 0);
    assert_int_equal(kill(process, 0), -1);
    worker_stop(&worker);
}

static void a_lost_worker_is_told_and_another_takes_its_place(void **state) {
    static const struct {
        const char *question;
        enum worker_outcome outcome;
        const char *text;
    } ends[] = {{"crash", WORKER_DIED, "signal 6"},
                {"leave", WORKER_DIED, "exit status 3"},
                {"half", WORKER_DIED, "signal 9"},
                {"close", WORKER_DIED, "signal 9"},
                {"hang", WORKER_SILENT, "no answer"}};
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct worker worker;
        assert_int_equal(worker_start(&worker, arguments), 0);
        ask(&worker, "first", WORKER_ANSWERED, "to first");
        const pid_t process = worker.process;
        assert_true(ask(&worker, ends[i].question, ends[i].outcome, ends[i].text) < 30);
        assert_int_equal(worker.process, 0);
        assert_int_equal(kill(process, 0), -1);
        ask(&worker, "first", WORKER_DIED, "gone");
    }
}

/* Also one that hangs. */
static void a_worker_ends_with_its_tuner(void **state) {
    int ends[2];
    pid_t process = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    const pid_t tuner = fork();
    if (tuner == 0) {
        struct worker worker;
        char answer[WORKER_LINE];
        if (worker_start(&worker, arguments) != 0 || worker_ask(&worker, "first", 60, answer) != WORKER_ANSWERED ||
            write(ends[1], &worker.process, sizeof worker.process) != sizeof worker.process)
            _exit(1);
        worker_ask(&worker, "hang", 600, answer);
        _exit(1);
    }
    assert_int_equal(read(ends[0], &process, sizeof process), sizeof process);
    kill(tuner, SIGKILL);
    for (int i = 0; i < 3000 && kill(process, 0) == 0; i++) {
        char name[64], status;
        snprintf(name, sizeof name, "/proc/%ld/stat", (long)process);
        FILE *file = fopen(name, "r"); /* a zombie, where nobody takes orphans, has ended too */
        const int read = file ? fscanf(file, "%*d %*s %c", &status) : 0;
        if (file)
            fclose(file);
        if (read == 1 && status == 'Z')
            return;
        usleep(10000);
    }
    assert_int_equal(kill(process, 0), -1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_answers_line_by_line),
        cmocka_unit_test(a_lost_worker_is_told_and_another_takes_its_place),
        cmocka_unit_test(a_worker_ends_with_its_tuner),
    };
    if (argc > 1 && strcmp(argv[1], "tune-worker") == 0)
        return work(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
