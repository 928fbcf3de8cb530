/* The library's POSIX calls. */
#include "os.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void os_mutex_init(os_mutex *mutex) {
    pthread_mutex_init(mutex, NULL);
}

void os_mutex_destroy(os_mutex *mutex) {
    pthread_mutex_destroy(mutex);
}

void os_lock(os_mutex *mutex) {
    pthread_mutex_lock(mutex);
}

void os_unlock(os_mutex *mutex) {
    pthread_mutex_unlock(mutex);
}

void os_condition_init(os_condition *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void os_condition_destroy(os_condition *condition) {
    pthread_cond_destroy(condition);
}

void os_wake_all(os_condition *condition) {
    pthread_cond_broadcast(condition);
}

bool os_wait(os_condition *condition, os_mutex *mutex, uint64_t deadline_ns) {
    if (deadline_ns == 0)
        return pthread_cond_wait(condition, mutex) == 0;
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                                   .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))};
    return pthread_cond_timedwait(condition, mutex, &until) == 0;
}

const char *os_environment(const char *name) {
    return getenv(name);
}

/* Until the end of the file or size bytes; the count, or -1. */
static ssize_t read_fully(int fd, char *data, size_t size) {
    size_t done = 0;
    while (done < size) {
        const ssize_t got = read(fd, data + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static char *read_open_file(int fd, size_t limit, size_t *size) {
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size > limit)
        return NULL;
    const size_t expected = (size_t)info.st_size;
    char *text = malloc(expected + 1);
    if (text == NULL)
        return NULL;
    const ssize_t got = read_fully(fd, text, expected);
    if (got < 0) {
        free(text);
        return NULL;
    }
    text[got] = '\0';
    *size = (size_t)got;
    return text;
}

char *os_read_file(const char *path, size_t limit, size_t *size) {
    /* Non-blocking, so that a FIFO under a configured path cannot hang the caller. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    char *text = read_open_file(fd, limit, size);
    close(fd);
    return text;
}

static bool write_fully(int fd, const char *data, size_t size) {
    while (size > 0) {
        const ssize_t put = write(fd, data, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        data += put;
        size -= (size_t)put;
    }
    return true;
}

bool os_write_file_atomic(const char *path, const void *data, size_t size) {
    static atomic_uint counter; /* with the process id: one name per write */
    const size_t length = strlen(path) + 48;
    char *temporary = malloc(length);
    if (temporary == NULL)
        return false;
    snprintf(temporary, length, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&counter, 1));
    bool done = false;
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        done = write_fully(fd, data, size);
        done = close(fd) == 0 && done && rename(temporary, path) == 0;
        if (!done)
            unlink(temporary);
    }
    free(temporary);
    return done;
}

static void make_parents(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700); /* what fails here and matters fails again at the last part */
        *slash = '/';
    }
}

bool os_private_directory(const char *path) {
    if (path[0] == '\0')
        return false;
    char *copy = strdup(path);
    if (copy == NULL)
        return false;
    make_parents(copy);
    mkdir(copy, 0700);
    struct stat info;
    const bool found = stat(copy, &info) == 0;
    free(copy);
    return found && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool os_is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *os_absolute_path(const char *path) {
    return realpath(path, NULL);
}

char *os_copy_text(const char *text) {
    return strdup(text);
}

char *os_join_path(const char *folder, const char *name) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path != NULL)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static void visit_file(const char *folder, const char *name, os_visit visit, void *user) {
    char *path = os_join_path(folder, name);
    if (path == NULL)
        return;
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISREG(info.st_mode))
        visit(user, path, name, (uint64_t)info.st_size,
              (int64_t)info.st_mtim.tv_sec * 1000000000 + (int64_t)info.st_mtim.tv_nsec);
    free(path);
}

void os_list_files(const char *path, os_visit visit, void *user) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        visit_file(path, entry->d_name, visit, user);
    closedir(folder);
}

bool os_remove_file(const char *path) {
    return unlink(path) == 0;
}

void os_touch_file(const char *path) {
    utimensat(AT_FDCWD, path, NULL, 0);
}

uint64_t os_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
