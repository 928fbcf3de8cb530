/* The user's tuning database (src/tuning.h has its form): rows that a tune found are merged into it, in one step that
 * other processes see wholly or not at all. */
#ifndef TOOLS_TUNE_STORE_H
#define TOOLS_TUNE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* Both ends are held; both 0: any. */
struct store_range {
    int64_t least, most;
};

/* What a row is for is its key: device, driver, operation, dtype, sizes, and the variant or the problems for which one
 * is preferred. Of two rows with the same key only one stays. */
struct store_row {
    const char *device, *driver, *kernels, *op, *dtype;
    const char *variant;
    struct store_range size;
    bool prefers;           /* the variant is to be picked; else it has parameters */
    const char *parameters; /* NULL: none */
    struct store_range queries, keys, heads, sharing;
    bool causal;
    /* what was measured, for people who read the file */
    const char *shape;
    double seconds, usual_seconds;
};

/* Sizes of which one is measured and stands for all: those above half of its next power of two. */
struct store_range store_octave(int64_t size);

/* Leaves those sizes of the class on the measured size's side of a row's bounds. */
void store_narrow(struct store_range *class, int64_t size, const struct store_range *row);

/* The row as text, in a document of its own; malloc'd. NULL where memory is short. */
char *store_print(const struct store_row *row);

/* Takes rows of the same key out of the array, and adds the row where `keep`. False where memory is short. Pure. */
bool store_merge(struct cJSON *rows, const struct store_row *row, bool keep);

/* Merges into the file, which is made where there is none, and so are its folders. row NULL: nothing but that. An exit
 * code; a file that is no database is left alone, and complained about. */
int store_update(const char *path, const struct store_row *row, bool keep);

/* The parameters that the file has for the row's key, "a=1,b=2"; false where it has none. */
bool store_find(const char *path, const struct store_row *row, char *parameters, size_t size);

#endif
