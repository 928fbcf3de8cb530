/* Ranks as threads of the command, each with a device, its shard of a random problem, and staging memory. */
#ifndef TOOLS_RING_TEAM_H
#define TOOLS_RING_TEAM_H

#include "machine.h"

#include <clattn/ring.h>
#include <stdbool.h>

#define RING_TEAM_MOST 64

struct ring_setup {
    int64_t batch, heads, kv_heads, length, dim;
    clattn_dtype dtype;
    clattn_ring_split split;
    int32_t causal, backward, one_queue;
    uint64_t seed;
    int64_t runs;
    struct device_entry devices[MACHINE_MAX_DEVICES]; /* of the ranks, in turn */
    size_t device_count;
};

/* Of a team's runs. */
struct ring_measured {
    double seconds;       /* median, of the slowest rank */
    double alone_s;       /* the same without transfers: nobody waits for another */
    uint64_t bytes;       /* of device memory, of the rank that takes most: tensors and staging */
    uint64_t block_bytes; /* of keys and values (and gradients) that a rank sends in a step */
    double largest;       /* value of the results */
    double difference;    /* largest, from those of the first team that was measured */
};

/* Results of the first team, which later ones are compared with; zero-initialise. */
struct ring_results {
    float *values;
    size_t count;
};

/* ranks = 0: one device and clattn_attention() itself. */
int ring_team_measure(const struct ring_setup *setup, int ranks, struct ring_results *results,
                      struct ring_measured *out);

/* Bytes a second from one device to another through host memory, of a block of so many. */
int ring_team_link(const struct ring_setup *setup, uint64_t bytes, double *bytes_s);

#endif
