/* clattn: attention over several devices. Every rank holds a shard of the sequence; keys and values go round the
 * ranks in a ring, and each rank merges what its queries make of them (Ring Attention, arXiv:2310.01889). MIT
 * licence.
 *
 * Calls here are collective: all ranks of a ring make the same calls in the same order, each from a thread (or
 * process) of its own, with a context, queues and memory of its own; devices may be of different vendors. They
 * follow the rules of clattn.h but for one: they block. What goes from rank to rank passes through host memory, so
 * that a call returns only when the last transfer has taken place; the last computations may still be running, as
 * its event tells.
 *
 * Where a call fails on one rank it fails on all of them: on the others with CLATTN_PEER_FAILED and a text that
 * names the rank. What was computed until then is undefined, nothing is running any more, and the next call may be
 * made. A call without a valid launch or transport is what no other rank can learn of: there, abort. */
#ifndef CLATTN_RING_H
#define CLATTN_RING_H

#include <clattn/clattn.h>
#include <clattn/training.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Rows first .. first + rows - 1 of the whole sequence. */
typedef struct clattn_ring_piece {
    int64_t first, rows; /* rows = 0: none; first + rows up to 2^40 */
} clattn_ring_piece;

/* The rows that a rank holds: those of piece 0, followed in its tensors by those of piece 1. */
typedef struct clattn_ring_shard {
    clattn_ring_piece pieces[2];
} clattn_ring_shard;

/* Which rows of a sequence a rank holds. */
typedef enum clattn_ring_split {
    CLATTN_RING_CONTIGUOUS = 0, /* rank r holds part r of `ranks` parts */
    CLATTN_RING_ZIGZAG = 1      /* parts r and 2 ranks - 1 - r of 2 ranks parts: equal work under a causal limit */
} clattn_ring_split;

/* The shard of a rank of a sequence of any length; parts differ by at most one row. Shards made otherwise are as good:
 * sizes may differ, as long as no row has two owners. */
CLATTN_API clattn_status clattn_ring_shard_of(clattn_ring_split split, int64_t length, int32_t rank, int32_t ranks,
                                              clattn_ring_shard *shard);
CLATTN_API int64_t clattn_ring_shard_rows(const clattn_ring_shard *shard);

/* ---- transport --------------------------------------------------------------------------------------------------- */

/* One transfer to another rank and one from another rank, at once. Both sides know the size; 0 bytes: there is no such
 * transfer, on either side. The memory belongs to the transport until wait() returns. */
typedef struct clattn_ring_message {
    int32_t tag; /* 0 or 1: of each, one message of a rank at a time is in flight */
    int32_t to, from;
    const void *send;
    void *receive;
    size_t send_bytes, receive_bytes; /* may exceed 2^31 */
} clattn_ring_message;

/* How bytes get from rank to rank: filled in by whoever implements it (clattn_ring_group_transport() for the threads
 * of one process, clattn/ring_mpi.h over MPI). All callbacks of a rank are called from the thread that makes the
 * rank's call. One that fails returns anything but CLATTN_SUCCESS; the call then ends without a further callback, so
 * that it is for the transport to make callbacks of all other ranks fail soon, those that are blocked too, and not to
 * touch the messages' memory any more. */
typedef struct clattn_ring_transport {
    size_t size; /* sizeof(clattn_ring_transport) */
    int32_t rank, ranks;
    void *user; /* handed to the callbacks */
    /* Begins a message and returns without waiting for other ranks; *request is whatever wait() needs. All ranks have
     * agreed by then that they will begin theirs. */
    clattn_status (*begin)(void *user, const clattn_ring_message *message, void **request);
    /* Returns once both transfers of the message have taken place. */
    clattn_status (*wait)(void *user, void *request);
    /* Replaces each of up to 4 values by its largest over all ranks, waiting until all have called. */
    clattn_status (*max)(void *user, uint64_t *values, int32_t count);
    /* Why this thread's last callback failed, for the text of the error; may be NULL, or return NULL. */
    const char *(*error_text)(void *user);
    /* For ranks of one address space, NULL where there are others, on all ranks alike: tells them where `mine` lies,
     * and this one where those of all ranks lie, [ranks], waiting until all have called. What is there is read by
     * all of them until each has called max() again: keys and values of the forward call need not be passed round
     * then. */
    clattn_status (*share)(void *user, const void *mine, const void **all);
} clattn_ring_transport;

/* The transport between threads of one process, one thread a rank, each with a device of its own or not: through
 * host memory, which a rank's device reads where another's has written it, or by a copy. A group may serve any
 * number of calls, but one at a time. */
typedef struct clattn_ring_group clattn_ring_group;

/* Of up to 256 ranks. timeout_ms: how long a rank waits for another before the group fails; 0: for ever. Other ranks
 * may be compiling or computing meanwhile, so that it should be minutes rather than seconds. */
CLATTN_API clattn_status clattn_ring_group_create(int32_t ranks, uint32_t timeout_ms, clattn_ring_group **out);
/* Sets *group to NULL; NULL is accepted. No rank's call may be in progress. */
CLATTN_API void clattn_ring_group_release(clattn_ring_group **group);
/* Fills in the transport of a rank, which is valid as long as the group. */
CLATTN_API clattn_status clattn_ring_group_transport(clattn_ring_group *group, int32_t rank,
                                                     clattn_ring_transport *transport);
/* For a rank that will not make its call, from any thread: calls of other ranks fail now, those in progress and all
 * that follow. A group does not recover from this, nor from a timeout. */
CLATTN_API void clattn_ring_group_abort(clattn_ring_group *group);

/* ---- launching --------------------------------------------------------------------------------------------------- */

/* Where a rank's call runs. workspace and host are its staging memory, of the sizes that clattn_ring_staging() names;
 * they belong to the call until its event completes, or until it returns an error. */
typedef struct clattn_ring_launch {
    size_t size;
    cl_command_queue queue;      /* for computing; on the context's device, in order or out of order, as the next */
    cl_command_queue copy_queue; /* for transfers to and from the device; the same queue: these do not overlap */
    cl_uint num_events_in_wait_list;
    const cl_event *event_wait_list;
    cl_event *event;            /* where not NULL: receives an event that completes with the whole call */
    clattn_workspace workspace; /* on the device */
    void *host;                 /* aligned to 64 bytes; best pinned: a mapped buffer of CL_MEM_ALLOC_HOST_PTR */
    size_t host_size;           /* bytes */
    const clattn_ring_transport *transport;
    const char *variant, *parameters; /* of each attention, as in clattn_launch */
    double *waited;                   /* where not NULL: receives the seconds that the call waited for other ranks */
} clattn_ring_launch;

CLATTN_API void clattn_ring_launch_init(clattn_ring_launch *launch, cl_command_queue queue, cl_command_queue copy_queue,
                                        const clattn_ring_transport *transport);

/* Bytes of workspace on the device and of host memory that the call of this op needs. Checks all that the call checks
 * of op and transport; asks no other rank. Both fall as 1 / ranks, but for clattn_ring_decode(). */
CLATTN_API clattn_status clattn_ring_staging(clattn_context *context, const clattn_op *op,
                                             const clattn_ring_launch *launch, size_t *device_bytes,
                                             size_t *host_bytes);

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* clattn_attention() of this rank's queries and the keys of all ranks.
 *
 *   attention   q, o, lse: this rank's rows, those of q_shard; k, v: this rank's keys, those of k_shards[rank]
 *   k_shards    [ranks], the same on all ranks; read during the call only
 *
 * Batch, heads, dims and dtype are the same on all ranks; lengths need not be, and may be 0. Rows count in the whole
 * sequence: with causal the query at row i sees keys up to i + off, off being 0 or `diagonal` where given
 * (CLATTN_CAUSAL_BOTTOM_RIGHT needs it); window and alibi count alike. Of the modifiers there are causal, window,
 * scale, softcap, alibi and sinks. Blocks of keys that no query of the rank sees are not computed. Partial results
 * are fp32; the result is the same on every run. */
typedef struct clattn_ring_attention_op {
    clattn_op head;
    clattn_attention_op attention;
    clattn_ring_shard q_shard;
    const clattn_ring_shard *k_shards;
} clattn_ring_attention_op;

CLATTN_API void clattn_ring_attention_init(clattn_ring_attention_op *op);
CLATTN_API clattn_status clattn_ring_attention(clattn_context *context, const clattn_ring_attention_op *op,
                                               const clattn_ring_launch *launch);

/* Its gradients, by recomputation.
 *
 *   backward.attention   the forward call's, with its results o and lse of this rank's rows, which are read here
 *   backward.dout, dlse  like o and lse; dlse is optional
 *   backward.dq, dk, dv  like q, k and v: this rank's; all three are required
 *
 * While keys and values go round, the gradients of the blocks follow them one step behind, in fp32, and every rank adds
 * its part, in the order of the ring: the result is the same on every run. dbias and dsinks there are not; sinks may be
 * given, since lse has them. Besides blocks of keys, staging is four fp32 blocks of gradients and two fp32 dq on the
 * device, and two such blocks on the host. */
typedef struct clattn_ring_attention_backward_op {
    clattn_op head;
    clattn_attention_backward_op backward;
    clattn_ring_shard q_shard;
    const clattn_ring_shard *k_shards;
} clattn_ring_attention_backward_op;

CLATTN_API void clattn_ring_attention_backward_init(clattn_ring_attention_backward_op *op);
CLATTN_API clattn_status clattn_ring_attention_backward(clattn_context *context,
                                                        const clattn_ring_attention_backward_op *op,
                                                        const clattn_ring_launch *launch);

/* ---- decode ------------------------------------------------------------------------------------------------------ */

/* clattn_attention() of the same few queries on every rank over the keys of all ranks, for caches that are spread
 * over devices: each rank attends to its own keys, and the partial results are gathered and merged everywhere, in
 * the same order.
 *
 *   attention   q, o, lse: alike on all ranks, where every rank gets the whole result; k, v: this rank's keys
 *
 * All that clattn_attention() takes besides belongs to this rank's keys, lengths, pages and codes too, but for
 * q_offsets, which there are not, and sinks, which are given on all ranks and counted once. With causal, window or
 * alibi a diagonal says where this rank's keys begin: first query's position - first key's position. Partial results
 * are fp32; staging memory is ranks times one of them. */
typedef struct clattn_ring_decode_op {
    clattn_op head;
    clattn_attention_op attention;
} clattn_ring_decode_op;

CLATTN_API void clattn_ring_decode_init(clattn_ring_decode_op *op);
CLATTN_API clattn_status clattn_ring_decode(clattn_context *context, const clattn_ring_decode_op *op,
                                            const clattn_ring_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
