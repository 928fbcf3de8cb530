/* Runs this very executable again, in a process of its own. */
#ifndef CLATTN_CHILD_H
#define CLATTN_CHILD_H

#include <stddef.h>

/* Runs with one argument and further environment ("NAME=value", NULL-terminated; "NAME" removes it). What it prints, on
 * either stream, goes to output. Returns its exit status, 128 + signal where it was killed, -1 where it did not start.
 */
int child_run(const char *argument, const char *const *environment, char *output, size_t size);

#endif
