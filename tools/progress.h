/* A progress bar on stderr, only where that is a terminal. */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stddef.h>

void progress_show(size_t done, size_t total, const char *label);
void progress_clear(void);

#endif
