/* A rank of a team: its device, its shard of the problem's tensors, operations, staging memory. */
#ifndef TOOLS_RING_MEMBER_H
#define TOOLS_RING_MEMBER_H

#include "ring_team.h"

#include <clattn/training.h>

enum { Q, K, V, O, LSE, DOUT, DQ, DK, DV, TENSORS };

struct member {
    struct machine machine;
    cl_command_queue copy_queue;
    clattn_ring_shard q_shard;
    clattn_tensor tensors[TENSORS];
    cl_mem workspace, pinned;
    void *host;
    clattn_attention_op plain;
    clattn_attention_backward_op plain_backward;
    clattn_ring_attention_op ring;
    clattn_ring_attention_backward_op ring_backward;
    clattn_ring_transport transport, silent;
    clattn_launch launch;
    clattn_ring_launch ring_launch;
    uint64_t bytes, block_bytes;
};

struct team {
    const struct ring_setup *setup;
    int ranks; /* 0: one device */
    int count;
    struct member members[RING_TEAM_MOST];
    clattn_ring_shard shards[RING_TEAM_MOST];
    clattn_ring_group *group;
};

/* Does its sequence go over keys? */
bool ring_of_keys(int which);
/* Elements of a tensor's whole. */
size_t ring_whole_count(const struct ring_setup *setup, int which);

typedef int (*piece_action)(struct team *team, struct member *member, int which, uint64_t whole, uint64_t local,
                            int64_t count, void *user);

/* Calls action for each run of elements that lie together both in a tensor's whole and in a member's part. */
int ring_for_pieces(struct team *team, struct member *member, int which, piece_action action, void *user);

/* With random inputs. The team has its shards and group. */
int ring_member_open(struct team *team, int rank);
/* Staging memory, pinned on the host. */
int ring_member_memory(struct member *member, size_t device_bytes, size_t host_bytes);
void ring_member_close(struct member *member);

#endif
