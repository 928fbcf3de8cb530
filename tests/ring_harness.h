/* Attention over ranks that are threads of the test, in two OpenCL contexts, or processes: shards of a problem go to
 * the ranks, and their results are put together again. */
#ifndef CLATTN_RING_HARNESS_H
#define CLATTN_RING_HARNESS_H

#include "attention_harness.h"
#include "gradient_harness.h"

#include <clattn/ring.h>

enum { RING_MOST_RANKS = 4 };

/* A whole problem and how it is spread. */
struct ring_problem {
    struct attention_data whole;
    int32_t ranks;
    const struct gradient_data *gradients; /* NULL: forward */
    bool passes;                           /* blocks go from rank to rank, as they do between processes */
    bool decode;                           /* all ranks have all queries, and keys that follow each other */
    clattn_ring_shard q_shards[RING_MOST_RANKS], k_shards[RING_MOST_RANKS];
};

/* A rank's side of a call, on a device of its own. */
struct ring_rank {
    struct test_device device;
    cl_command_queue copy_queue;
    struct test_tensor q, k, v, o, lse, alibi, sinks, dout, dlse, dq, dk, dv;
    cl_mem workspace;
    void *host;
    cl_event event;
    clattn_ring_transport transport;
    clattn_ring_launch launch;
    clattn_ring_attention_op op;
    clattn_ring_decode_op decode;
    clattn_ring_attention_backward_op backward;
    const clattn_op *made; /* the operation that is called; NULL: none */
    size_t device_bytes, host_bytes;
    double waited;
    clattn_status status;
    char text[512];
};
extern struct ring_rank ring_ranks[RING_MOST_RANKS];

/* Where each rank is a process: which this one is, of whose rank alone the functions below take care. */
struct ring_process {
    int32_t rank;
    const clattn_ring_transport *transport;
    void (*sum)(double *values, int64_t count); /* over all processes */
};
extern const struct ring_process *ring_process; /* NULL: all ranks are here */

/* Opens the ranks' devices, the current one and the next of its platform in turn, each in a context of its own; ranks
 * beyond the second share these, with queues of their own. Setup of a test. */
int ring_open(void **state);

/* Random Q, K and V; both spread alike. */
struct ring_problem ring_problem_of(const struct attention_case *shape, clattn_dtype dtype, clattn_ring_split split,
                                    int32_t ranks);
/* The same for decode. */
struct ring_problem ring_decode_of(const struct attention_case *shape, clattn_dtype dtype, int32_t ranks);
void ring_problem_free(struct ring_problem *problem);

/* Gives every rank its tensors, its side of a new group (a process: its transport; NULL is returned), and the memory
 * that it asks for. */
clattn_ring_group *ring_upload(const struct ring_problem *problem, uint32_t timeout_ms);
/* All ranks' calls at once; waits for them and their events. */
void ring_run(int32_t ranks);
void ring_release(int32_t ranks, clattn_ring_group **group);
/* The results of all ranks, put together. */
struct attention_result ring_result(const struct ring_problem *problem);
/* The gradients of all ranks, put together. */
struct reference_gradients ring_gradients(const struct ring_problem *problem);
/* Uploads, runs, and holds the result against the oracle; of processes, the first does so for all. */
void ring_check(const struct ring_problem *problem);

#endif
