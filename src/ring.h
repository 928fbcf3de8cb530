/* What the files of attention over several devices share: shards and what of them sees what (ring_shards.c), the
 * transport's callbacks with their failures (ring_transport.c), and a rank's events and staging memory
 * (ring_stage.c). */
#ifndef CLATTN_SRC_RING_H
#define CLATTN_SRC_RING_H

#include "check.h"

#include <clattn/ring.h>
#include <stdbool.h>

enum { RING_PIECES = 2, RING_MOST_TASKS = RING_PIECES * RING_PIECES, RING_TAGS = 2 };

/* ---- shards ---- */

/* Positions of queries and keys decide what is seen; all 0 but for the unlimited sides where they do not. */
struct ring_limits {
    bool limited;          /* false: every query sees every key, wherever they are */
    bool causal;           /* keys up to query + diagonal */
    int64_t diagonal;      /* for windows and alibi too */
    int64_t left, right;   /* of the window; -1: no limit */
    bool positions_matter; /* alibi: even where all is seen, distances must be right */
};
struct ring_limits ring_limits_of(const clattn_attention_op *op);

/* An attention of some adjoining local rows of a rank's queries over adjoining local keys of a shard. */
struct ring_task {
    int64_t q_first, q_rows, k_first, k_rows;
    bool limited; /* has the limits, with this diagonal */
    int64_t diagonal;
    int pieces, key_pieces; /* bits of those of either shard that have these rows, after ring_shard_joined() */
};

/* Pieces that follow each other in the sequence as one, empty ones last. */
clattn_ring_shard ring_shard_joined(const clattn_ring_shard *shard);

/* What the queries see of the keys, in as few tasks as that takes; returns how many, 0 where they see none. */
int ring_tasks(const clattn_ring_shard *queries, const clattn_ring_shard *keys, const struct ring_limits *limits,
               struct ring_task tasks[RING_MOST_TASKS]);

/* Rows within bounds and no row with two owners. */
clattn_status ring_check_shard(const char *name, const clattn_ring_shard *shard);
clattn_status ring_check_shards(const clattn_ring_shard *shards, int32_t ranks);

/* ---- transport ---- */

clattn_status ring_check_transport(const clattn_ring_transport *transport);

/* The rank whose shard this rank has in a step: its own in step 0, then that of the rank before, and so on. */
int32_t ring_owner(const clattn_ring_transport *transport, int32_t step);

/* A rank's side of a call. Its first failure is kept; the rank goes on taking part, so that no other waits for it in
 * vain, until ring_agree() tells all of them to leave. */
struct ring_talk {
    const clattn_ring_transport *transport;
    clattn_status status; /* of this rank, or what ring_agree() found */
    bool broken;          /* the transport has failed: no callback any more */
    bool told;            /* all ranks know that one has failed, and leave */
    char text[512];       /* why status is no success */
    uint64_t waited_ns;   /* in callbacks that wait */
    bool pending[RING_TAGS];
    void *request[RING_TAGS]; /* of the messages in flight */
};

void ring_talk_begin(struct ring_talk *talk, const clattn_ring_transport *transport);
/* Keeps the first failure, with the thread's error text. */
void ring_note(struct ring_talk *talk, clattn_status status);
/* All ranks: is anyone in trouble? True where all may go on; once it is false it stays so. `digest` must be the same
 * everywhere. */
bool ring_agree(struct ring_talk *talk, uint64_t digest);
/* Where the memory of all ranks lies, [ranks]. */
void ring_share(struct ring_talk *talk, const void *mine, const void **all);
/* A transfer to the next rank and from the one before. Bytes of 0 are passed over. */
void ring_begin(struct ring_talk *talk, int32_t tag, const void *send, size_t send_bytes, void *receive,
                size_t receive_bytes);
/* Until the tag's message, if one is in flight, has been sent and received. */
void ring_wait(struct ring_talk *talk, int32_t tag);
/* The call's status, its text made the thread's. */
clattn_status ring_talk_end(struct ring_talk *talk);

#endif
