/* The sub-commands of clattn, their exit codes and the one way they complain. Results go to stdout, everything else to
 * stderr. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

enum exit_code {
    EXIT_OK = 0,
    EXIT_CHECK_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_UNSUPPORTED = 3 /* no device, the device or library cannot do it, or results cannot be written */
};

int command_info(int argc, char **argv);
int command_run(int argc, char **argv);
int command_check(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_ring(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_tune_worker(int argc, char **argv); /* for command_tune alone */

/* "clattn run: <text>" on stderr; returns code, so that `return complain(EXIT_USAGE, ...)` reads well. */
int complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A remark on stderr that is no failure. */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns from the calling function with the exit code of a step that did not succeed. */
#define FORWARD(call)                     \
    do {                                  \
        const int forward_code_ = (call); \
        if (forward_code_ != EXIT_OK)     \
            return forward_code_;         \
    } while (0)

#endif
