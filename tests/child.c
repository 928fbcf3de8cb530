/* Child processes of tests. */
#include "child.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_environment(const char *const *environment) {
    for (; environment && *environment; environment++) {
        char name[256];
        const char *equals = strchr(*environment, '=');
        snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - *environment) : 255, *environment);
        if (equals)
            setenv(name, equals + 1, 1);
        else
            unsetenv(name);
    }
}

static void become(const char *argument, const char *const *environment, int out) {
    set_environment(environment);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    close(out);
    execl("/proc/self/exe", "child", argument, (char *)NULL);
    _exit(127);
}

static void collect(int in, char *output, size_t size) {
    char rest[512];
    size_t used = 0;
    ssize_t got;
    do {
        const bool full = used + 1 >= size;
        got = read(in, full ? rest : output + used, full ? sizeof rest : size - 1 - used);
        if (got > 0 && !full)
            used += (size_t)got;
    } while (got > 0);
    output[used] = '\0';
}

int child_run(const char *argument, const char *const *environment, char *output, size_t size) {
    int ends[2], status = 0;
    fflush(NULL);
    if (pipe(ends) != 0)
        return -1;
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become(argument, environment, ends[1]);
    }
    close(ends[1]);
    if (child > 0)
        collect(ends[0], output, size);
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
