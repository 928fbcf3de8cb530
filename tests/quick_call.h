/* One small attention call on objects of its own: for tests of the host side, where what matters is that the result is
 * right whatever happens around the call. No globals and no test framework, so any thread may use it. */
#ifndef CLATTN_QUICK_CALL_H
#define CLATTN_QUICK_CALL_H

#include <clattn/clattn.h>
#include <stdbool.h>

enum { QUICK_QUERIES = 3, QUICK_KEYS = 7, QUICK_MAX_DIM = 128 };

/* What decides which program is needed. */
struct quick_call {
    int64_t head_dim;
    clattn_dtype dtype;
    clattn_causal causal;
};

/* The first device, or that which CLATTN_TEST_DEVICE names by index; false where there is none. */
bool quick_device(cl_device_id *id);

struct quick_result {
    clattn_status status;
    double o[QUICK_QUERIES * QUICK_MAX_DIM];
};

/* Makes buffers, calls, waits, reads, releases. The queue is of the context that clattn was made from. */
struct quick_result quick_run(cl_context context, cl_command_queue queue, clattn_context *clattn,
                              const struct quick_call *call);

/* Succeeded, and agrees with the oracle. */
bool quick_is_right(const struct quick_call *call, const struct quick_result *result);

#endif
