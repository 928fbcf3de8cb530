/* Both ends of the line. A worker never outlives its tuner: it ends with the line, and where it hangs in a driver, by a
 * signal of the system where there is one. */
#include "tune_worker.h"
#include "command.h"
#include "timer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { LINE_FILE = 3 };

/* ---- the tuner's end --------------------------------------------------------------------------------------------- */

static void become(const char *const *arguments, int line, pid_t tuner) {
    char *words[WORKER_WORDS] = {"clattn", "tune-worker"};
    int count = 2;
    for (; *arguments && count < WORKER_WORDS - 1; arguments++)
        words[count++] = (char *)*arguments;
    words[count] = NULL;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    const int nowhere = open("/dev/null", O_RDWR);
    if (getppid() != tuner || nowhere < 0)
        _exit(126);
    dup2(nowhere, STDIN_FILENO);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    if (line == LINE_FILE)
        fcntl(line, F_SETFD, 0);
    else
        dup2(line, LINE_FILE);
    execv("/proc/self/exe", words);
    _exit(127);
}

int worker_start(struct worker *worker, const char *const *arguments) {
    int ends[2];
    const pid_t tuner = getpid();
    *worker = (struct worker){.line = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return complain(EXIT_UNSUPPORTED, "no worker process: %s", strerror(errno));
    fflush(NULL);
    worker->process = fork();
    if (worker->process == 0)
        become(arguments, ends[1], tuner);
    close(ends[1]);
    worker->line = ends[0];
    if (worker->process > 0)
        return EXIT_OK;
    worker->process = 0;
    close(ends[0]);
    return complain(EXIT_UNSUPPORTED, "no worker process: %s", strerror(errno));
}

/* Reaps the process, which is ending or was killed. */
static void reap(struct worker *worker, char *how, size_t size) {
    int status = 0;
    close(worker->line);
    while (waitpid(worker->process, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status))
        snprintf(how, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, size, "exit status %d", WEXITSTATUS(status));
    *worker = (struct worker){.line = -1};
}

void worker_stop(struct worker *worker) {
    char how[64];
    if (worker->process <= 0)
        return;
    kill(worker->process, SIGKILL);
    reap(worker, how, sizeof how);
}

static int say(int line, const char *text, size_t size) {
    while (size > 0) {
        const ssize_t sent = send(line, text, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return 0;
        text += sent;
        size -= (size_t)sent;
    }
    return 1;
}

/* Waits until the line can be read; 0 where the time is over. */
static int wait_for(int line, double until) {
    for (;;) {
        const double left = until - wall_seconds();
        struct pollfd wanted = {.fd = line, .events = POLLIN};
        const int ready = poll(&wanted, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (ready > 0)
            return 1;
        if (ready == 0 && left <= 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return 0;
    }
}

enum worker_outcome worker_ask(struct worker *worker, const char *question, double seconds, char answer[WORKER_LINE]) {
    const double until = wall_seconds() + seconds;
    size_t used = 0;
    if (worker->process <= 0) {
        snprintf(answer, WORKER_LINE, "the worker is gone");
        return WORKER_DIED;
    }
    int speaks = say(worker->line, question, strlen(question)) && say(worker->line, "\n", 1);
    while (speaks && used < WORKER_LINE - 1) {
        if (!wait_for(worker->line, until)) {
            worker_stop(worker);
            snprintf(answer, WORKER_LINE, "no answer within %.0f s", seconds);
            return WORKER_SILENT;
        }
        const ssize_t got = recv(worker->line, answer + used, 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        speaks = got == 1;
        if (speaks && answer[used] == '\n') {
            answer[used] = '\0';
            return WORKER_ANSWERED;
        }
        used += speaks != 0;
    }
    kill(worker->process, SIGKILL); /* it may have closed the line and live on */
    reap(worker, answer, WORKER_LINE);
    return WORKER_DIED;
}

/* ---- the worker's end -------------------------------------------------------------------------------------------- */

int worker_listen(char question[WORKER_LINE]) {
    size_t used = 0;
    while (used < WORKER_LINE - 1) {
        const ssize_t got = read(LINE_FILE, question + used, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != 1)
            return 0;
        if (question[used] == '\n') {
            question[used] = '\0';
            return 1;
        }
        used++;
    }
    return 0;
}

void worker_answer(const char *format, ...) {
    char text[WORKER_LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    strcat(text, "\n");
    say(LINE_FILE, text, strlen(text));
}
