/* Passes messages to the caller's log callback and drops what it did not ask for before formatting. */
#include "log.h"
#include <stdarg.h>
#include <stdio.h>

void log_write(const struct log *log, clattn_log_level level, const char *format, ...) {
    if (log == NULL || log->function == NULL || level > log->level)
        return;
    char message[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    log->function(log->user, level, message);
}
