/* The library's only voice: the caller's log callback. */
#ifndef CLATTN_LOG_H
#define CLATTN_LOG_H

#include <clattn/clattn.h>

struct log {
    clattn_log_function function; /* NULL: silent */
    void *user;
    clattn_log_level level;
};

void log_write(const struct log *log, clattn_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
