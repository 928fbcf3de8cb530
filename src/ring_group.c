/* The transport between threads of a process. A sender leaves the address of its bytes in a box of the receiver,
 * which copies them from there; the sender waits until they have been taken. One lock for all: it is never held
 * while bytes are copied. */
#include "os.h"
#include "ring.h"
#include "status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 256, MOST_VALUES = 4 };

/* From one rank to another under one tag. */
struct box {
    const void *bytes;
    size_t size;
    uint64_t put, taken; /* messages so far */
    bool copying;        /* the receiver is reading the bytes, without the lock */
};

/* A rank's message in flight. */
struct request {
    clattn_ring_message message;
    uint64_t sent; /* its number in its box */
    bool received;
};

struct member {
    clattn_ring_group *group;
    int32_t rank;
    struct request requests[RING_TAGS];
    bool meets; /* a thread waits in meet() */
    bool reads; /* memory of other ranks, since share() */
    const char *text;
};

struct clattn_ring_group {
    os_mutex lock;
    os_condition changed;
    int32_t ranks;
    uint64_t timeout_ns; /* 0: none */
    bool broken;
    struct member *members;
    struct box *boxes; /* [to][from][tag] */
    /* The values that ranks have brought, and what the last round came to. */
    uint64_t values[MOST_VALUES], result[MOST_VALUES], round;
    int32_t arrived;
    const void **shared; /* [ranks] */
    int32_t readers;     /* members that read */
};

/* ---- making ------------------------------------------------------------------------------------------------------ */

clattn_status clattn_ring_group_create(int32_t ranks, uint32_t timeout_ms, clattn_ring_group **out) {
    RETURN_IF(out == NULL, CLATTN_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    RETURN_IF(ranks < 1 || ranks > MOST_RANKS, CLATTN_INVALID_ARGUMENT, "ranks = %" PRId32 " is not within 1 .. %d",
              ranks, MOST_RANKS);
    clattn_ring_group *group = calloc(1, sizeof *group);
    RETURN_IF(group == NULL, CLATTN_OUT_OF_HOST_MEMORY, "ring group: out of host memory");
    os_mutex_init(&group->lock);
    os_condition_init(&group->changed);
    group->ranks = ranks;
    group->timeout_ns = (uint64_t)timeout_ms * UINT64_C(1000000);
    group->members = calloc((size_t)ranks, sizeof *group->members);
    group->boxes = calloc((size_t)ranks * (size_t)ranks * RING_TAGS, sizeof *group->boxes);
    group->shared = calloc((size_t)ranks, sizeof *group->shared);
    if (group->members == NULL || group->boxes == NULL || group->shared == NULL) {
        clattn_ring_group_release(&group);
        return status_set(CLATTN_OUT_OF_HOST_MEMORY, "ring group: out of host memory for %" PRId32 " ranks", ranks);
    }
    for (int32_t i = 0; i < ranks; i++) {
        group->members[i].group = group;
        group->members[i].rank = i;
    }
    *out = group;
    return CLATTN_SUCCESS;
}

void clattn_ring_group_release(clattn_ring_group **group) {
    if (group == NULL || *group == NULL)
        return;
    free((*group)->members);
    free((*group)->boxes);
    free((*group)->shared);
    os_condition_destroy(&(*group)->changed);
    os_mutex_destroy(&(*group)->lock);
    free(*group);
    *group = NULL;
}

void clattn_ring_group_abort(clattn_ring_group *group) {
    if (group == NULL)
        return;
    os_lock(&group->lock);
    group->broken = true;
    os_wake_all(&group->changed);
    os_unlock(&group->lock);
}

/* ---- under the lock ---------------------------------------------------------------------------------------------- */

static uint64_t deadline_of(const clattn_ring_group *group) {
    return group->timeout_ns > 0 ? os_time_ns() + group->timeout_ns : 0;
}

static clattn_status fail(struct member *member, const char *text) {
    clattn_ring_group *group = member->group;
    member->text = text;
    group->broken = true;
    os_wake_all(&group->changed);
    return CLATTN_PEER_FAILED;
}

/* Until another rank has done something. */
static clattn_status wait_for_change(struct member *member, uint64_t deadline) {
    clattn_ring_group *group = member->group;
    if (group->broken)
        return fail(member, "the group was aborted, or has failed before");
    if (deadline > 0 && os_time_ns() >= deadline)
        return fail(member, "another rank did not come in time");
    (void)os_wait(&group->changed, &group->lock, deadline);
    return CLATTN_SUCCESS;
}

static struct box *box_of(clattn_ring_group *group, int32_t to, int32_t from, int32_t tag) {
    return &group->boxes[((size_t)to * (size_t)group->ranks + (size_t)from) * RING_TAGS + (size_t)tag];
}

/* Nobody reads what this rank has sent or shared any more: those in the midst of it come to its end. */
static clattn_status leave(struct member *member, clattn_status status) {
    clattn_ring_group *group = member->group;
    for (int32_t to = 0; to < group->ranks && status != CLATTN_SUCCESS; to++)
        for (int32_t tag = 0; tag < RING_TAGS; tag++)
            while (box_of(group, to, member->rank, tag)->copying)
                (void)os_wait(&group->changed, &group->lock, 0);
    const uint64_t deadline = deadline_of(group);
    while (status != CLATTN_SUCCESS && group->readers > 0 && (deadline == 0 || os_time_ns() < deadline))
        (void)os_wait(&group->changed, &group->lock, deadline);
    return status;
}

/* Takes what lies in the box, which stays in place meanwhile: its sender is waiting. */
static clattn_status take(struct member *member, struct request *request) {
    clattn_ring_group *group = member->group;
    struct box *box = box_of(group, member->rank, request->message.from, request->message.tag);
    if (box->put == box->taken || group->broken)
        return CLATTN_SUCCESS;
    if (box->size != request->message.receive_bytes)
        return fail(member, "a rank has sent more or less than was to be received");
    box->copying = true;
    os_unlock(&group->lock);
    memcpy(request->message.receive, box->bytes, box->size);
    os_lock(&group->lock);
    box->copying = false;
    box->taken++;
    request->received = true;
    os_wake_all(&group->changed);
    return CLATTN_SUCCESS;
}

static bool is_sent(struct member *member, const struct request *request) {
    const clattn_ring_message *message = &request->message;
    return message->send_bytes == 0 ||
           box_of(member->group, message->to, member->rank, message->tag)->taken >= request->sent;
}

static clattn_status finish(struct member *member, struct request *request) {
    const uint64_t deadline = deadline_of(member->group);
    for (;;) {
        if (!request->received)
            FORWARD(take(member, request));
        if (request->received && is_sent(member, request))
            return CLATTN_SUCCESS;
        FORWARD(wait_for_change(member, deadline));
    }
}

static void bring(clattn_ring_group *group, const uint64_t *values, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (group->arrived == 0 || values[i] > group->values[i])
            group->values[i] = values[i];
    if (++group->arrived < group->ranks)
        return;
    memcpy(group->result, group->values, sizeof group->result);
    group->arrived = 0;
    group->round++;
    os_wake_all(&group->changed);
}

/* The result of this round stands until all ranks have come to the next. */
static clattn_status meet(struct member *member, uint64_t *values, int32_t count) {
    clattn_ring_group *group = member->group;
    const uint64_t round = group->round, deadline = deadline_of(group);
    if (group->broken)
        return fail(member, "the group was aborted, or has failed before");
    if (member->meets)
        return fail(member, "two threads are the same rank");
    member->meets = true;
    bring(group, values, count);
    while (group->round == round)
        FORWARD(wait_for_change(member, deadline));
    member->meets = false;
    memcpy(values, group->result, (size_t)count * sizeof *values);
    return CLATTN_SUCCESS;
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

static clattn_status group_begin(void *user, const clattn_ring_message *message, void **request) {
    struct member *member = user;
    struct request *own = &member->requests[message->tag];
    os_lock(&member->group->lock);
    *own = (struct request){.message = *message, .received = message->receive_bytes == 0};
    if (message->send_bytes > 0) {
        struct box *box = box_of(member->group, message->to, member->rank, message->tag);
        box->bytes = message->send;
        box->size = message->send_bytes;
        own->sent = ++box->put;
        os_wake_all(&member->group->changed);
    }
    os_unlock(&member->group->lock);
    *request = own;
    return CLATTN_SUCCESS;
}

static clattn_status group_wait(void *user, void *request) {
    struct member *member = user;
    os_lock(&member->group->lock);
    const clattn_status status = leave(member, finish(member, request));
    os_unlock(&member->group->lock);
    return status;
}

static void stop_reading(struct member *member) {
    if (!member->reads)
        return;
    member->reads = false;
    member->group->readers--;
    os_wake_all(&member->group->changed);
}

/* A rank that is told of the others' memory counts as reading, from before any can leave. */
static clattn_status group_share(void *user, const void *mine, const void **all) {
    struct member *member = user;
    clattn_ring_group *group = member->group;
    uint64_t nothing = 0;
    os_lock(&group->lock);
    group->shared[member->rank] = mine;
    member->reads = true;
    group->readers++;
    const clattn_status met = meet(member, &nothing, 1);
    if (met == CLATTN_SUCCESS)
        memcpy(all, group->shared, (size_t)group->ranks * sizeof *all);
    else
        stop_reading(member);
    const clattn_status status = leave(member, met);
    os_unlock(&group->lock);
    return status;
}

static clattn_status group_max(void *user, uint64_t *values, int32_t count) {
    struct member *member = user;
    os_lock(&member->group->lock);
    stop_reading(member);
    const clattn_status status = leave(member, meet(member, values, count));
    os_unlock(&member->group->lock);
    return status;
}

static const char *group_error_text(void *user) {
    const struct member *member = user;
    os_lock(&member->group->lock);
    const char *text = member->text;
    os_unlock(&member->group->lock);
    return text;
}

clattn_status clattn_ring_group_transport(clattn_ring_group *group, int32_t rank, clattn_ring_transport *transport) {
    RETURN_IF(group == NULL, CLATTN_INVALID_ARGUMENT, "group is NULL");
    RETURN_IF(transport == NULL, CLATTN_INVALID_ARGUMENT, "transport is NULL");
    RETURN_IF(rank < 0 || rank >= group->ranks, CLATTN_INVALID_ARGUMENT,
              "rank = %" PRId32 " is not within 0 .. %" PRId32, rank, group->ranks - 1);
    *transport = (clattn_ring_transport){.size = sizeof *transport,
                                         .rank = rank,
                                         .ranks = group->ranks,
                                         .user = &group->members[rank],
                                         .begin = group_begin,
                                         .wait = group_wait,
                                         .max = group_max,
                                         .error_text = group_error_text,
                                         .share = group_share};
    return CLATTN_SUCCESS;
}
