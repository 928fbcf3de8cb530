/* A process that builds, checks and times candidates for the tuner, which outlives whatever they do to it: the worker
 * is this very program again, and answers one line to each line that it is asked. */
#ifndef TOOLS_TUNE_WORKER_H
#define TOOLS_TUNE_WORKER_H

#include <stddef.h>
#include <sys/types.h>

#define WORKER_LINE 4096 /* bytes of a question or an answer */
#define WORKER_WORDS 64

enum worker_outcome {
    WORKER_ANSWERED,
    WORKER_DIED,  /* answer: how */
    WORKER_SILENT /* it took too long, and was killed */
};

struct worker {
    pid_t process; /* 0: none runs */
    int line;      /* the socket that both speak through */
};

/* Starts the sub-command tune-worker with further arguments (NULL-terminated). Its output on stdout and stderr is
 * dropped. False where there can be no process. */
int worker_start(struct worker *worker, const char *const *arguments);

/* Asks, and waits for the answer. A worker that did not answer is gone afterwards. */
enum worker_outcome worker_ask(struct worker *worker, const char *question, double seconds, char answer[WORKER_LINE]);

void worker_stop(struct worker *worker);

/* ---- for the process itself -------------------------------------------------------------------------------------- */

/* Reads the next question; 0 where the tuner is gone. */
int worker_listen(char question[WORKER_LINE]);
void worker_answer(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
