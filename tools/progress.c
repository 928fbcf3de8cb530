/* The bar is drawn over itself and wiped before anything else is printed. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#define BAR_WIDTH 24

void progress_show(size_t done, size_t total, const char *label) {
    if (!isatty(STDERR_FILENO))
        return;
    const size_t filled = total ? done * BAR_WIDTH / total : 0;
    fputs("\r\033[K[", stderr);
    for (size_t i = 0; i < BAR_WIDTH; i++)
        fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %zu/%zu %.60s", done, total, label);
    fflush(stderr);
}

void progress_clear(void) {
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}
