/* The command line of a sub-command: GNU-style options, and words that are operation names or KEY=VALUE settings. */
#ifndef TOOLS_ARGUMENTS_H
#define TOOLS_ARGUMENTS_H

#include "settings.h"

#include <stdbool.h>
#include <stddef.h>

#define ARGUMENTS_MAX_FILES 64
#define ARGUMENTS_MAX_WORDS 32

/* NAME=FILE.npy, as given to --in and --out. */
struct file_argument {
    char name[32];
    const char *path;
};

struct arguments {
    const char *device, *variant, *parameters, *suite, *dtype, *shape, *versus, *csv, *plot, *seed;
    const char *budget, *candidates, *limit, *database;
    bool json, check, help, resume, crossovers;
    struct file_argument in[ARGUMENTS_MAX_FILES], out[ARGUMENTS_MAX_FILES];
    size_t in_count, out_count;
    const char *words[ARGUMENTS_MAX_WORDS]; /* operation names */
    size_t word_count;
    struct settings settings; /* KEY=VALUE */
};

/* permitted: option names separated by spaces, such as "device json"; help is always permitted. Complains and returns
 * an exit code on any mistake. Pointers lead into argv. */
int arguments_parse(int argc, char **argv, const char *permitted, struct arguments *out);

#endif
