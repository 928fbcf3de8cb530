/* A clattn_context put together by hand on the fake driver, with kernels in a scratch folder: programs and launches are
 * tested without device queries, tuning or choice. */
#ifndef FAKE_CONTEXT_H
#define FAKE_CONTEXT_H

#include "context.h"
#include "fake_cl.h"

struct fake_fixture {
    clattn_context context;
    cl_command_queue queue, unordered; /* in order, and out of order */
    char *kernels;                     /* the folder; holds a.cl, which has the kernels a and b and includes part.clh */
    char *cache;
    int warnings; /* logged so far */
};

/* Resets the fake driver. devices: how many the OpenCL context has; clattn uses the last. */
struct fake_fixture *fake_fixture_new(int devices);
void fake_fixture_write(struct fake_fixture *fixture, const char *name, const char *text);
/* Forgets the programs and opens the disk cache (again), as a new process does. */
void fake_fixture_restart(struct fake_fixture *fixture, bool with_cache);
/* Releases everything; the caller then expects fake_live() to be 0. */
void fake_fixture_free(struct fake_fixture *fixture);

#endif
