/* Programs: one kernel of one file under one set of options, built once per context and kept. */
#ifndef CLATTN_PROGRAM_H
#define CLATTN_PROGRAM_H

#include "binary_cache.h"
#include "os.h"
#include <clattn/clattn.h>

struct program; /* lives as long as the context; address stable */

struct program_key {
    const char *file;    /* "softmax.cl" */
    const char *kernel;  /* the kernel function in it */
    const char *options; /* "-DELEMENT=2 -DTILE_BACKEND=fma", without device-wide options */
};

struct program_table {
    os_mutex lock;
    struct program **bucket; /* open hash by key text */
    size_t buckets, count;
    uint64_t built, loaded;
};

void program_table_init(struct program_table *table);
void program_table_free(struct program_table *table);

/* Finds or builds. A miss builds outside the table's lock, so that other programs stay reachable; threads that want the
 * same program wait for one build. A failed build is reported with its log, and tried again next time. */
clattn_status program_get(clattn_context *context, const struct program_key *key, struct program **out);

/* A kernel object that no other thread uses until it is given back. */
clattn_status program_acquire_kernel(struct program *program, cl_kernel *kernel);
void program_release_kernel(struct program *program, cl_kernel kernel);

/* "softmax_rows of softmax.cl", for messages. */
const char *program_name(const struct program *program);

/* The device's limit of work-items for this kernel. */
size_t program_max_group(const struct program *program);

#endif
