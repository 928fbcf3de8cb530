/* A call's commands, in order: the first waits for the caller's events, each waits for the one before (the queue may be
 * out of order), the last gives the caller's event. */
#ifndef CLATTN_LAUNCH_H
#define CLATTN_LAUNCH_H

#include "program.h"
#include <clattn/clattn.h>
#include <stdbool.h>

struct sequence {
    clattn_context *context;
    const clattn_launch *launch;
    cl_event previous; /* of the last command; NULL before the first and where the queue itself keeps the order */
    cl_event next;     /* of the command being enqueued */
    int remaining;     /* commands still to come; the last one's event is the caller's */
    bool started;      /* the caller's wait list has been waited for */
    bool chained;      /* commands need events to stay in order */
};

/* commands: how many the call will enqueue, at least 1. */
void sequence_begin(struct sequence *sequence, clattn_context *context, const clattn_launch *launch, int commands);
/* Events for a command made elsewhere (a fill, a copy, another library's call). Use between begin and end:
 *
 *   sequence_next(&s, &count, &list, &event);
 *   code = clEnqueue...(..., count, list, event);
 *   FORWARD(sequence_done(&s, code, "clEnqueue..."));
 */
void sequence_next(struct sequence *sequence, cl_uint *count, const cl_event **list, cl_event **event);
clattn_status sequence_done(struct sequence *sequence, cl_int code, const char *what);
/* For calls with no work: a marker, where the caller asks for an event. */
clattn_status sequence_empty(clattn_context *context, const clattn_launch *launch);
/* Drops what a failed sequence holds; harmless after success. */
void sequence_end(struct sequence *sequence);

/* One kernel launch: begin, arguments in order, enqueue. Errors are kept and returned by enqueue, which also gives the
 * kernel back. */
struct launch {
    struct program *program;
    cl_kernel kernel;
    cl_uint argument;
    cl_int code;
    clattn_status status;
};

void launch_begin(struct launch *launch, struct program *program);
void launch_buffer(struct launch *launch, cl_mem buffer); /* NULL is allowed: the kernel sees a NULL pointer */
void launch_int(struct launch *launch, int32_t value);
void launch_float(struct launch *launch, float value);
void launch_long(struct launch *launch, int64_t value);
void launch_struct(struct launch *launch, const void *value, size_t size);
/* global is in work-groups, local in work-items; dims 1..3. Refuses (INTERNAL) a local size above the kernel's limit.
 */
clattn_status launch_enqueue(struct launch *launch, struct sequence *sequence, int dims, const size_t *groups,
                             const size_t *local);

#endif
