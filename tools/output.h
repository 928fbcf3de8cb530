/* Files that a command is to write. They are tried before anything runs, so that a wrong path costs no measurement. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdbool.h>

/* Can the file be written? Leaves one that is there as it is, and none behind that was not. Complains, with the path
 * behind `what` ("--csv "). */
int output_try(const char *what, const char *path);

/* Do two paths name one ordinary file, there or not? */
bool output_same(const char *path, const char *other);

/* Complains that writing failed in its course, as on a full disk, which is no wrong usage. */
int output_failed(const char *what, const char *path, const char *reason);

/* What was printed must have arrived: code, or where it did not the code of a complaint. */
int output_finish(int code);

#endif
