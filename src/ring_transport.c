/* The transport's callbacks as the ring's calls use them: a failure is kept, and all ranks learn of it at the next
 * point where they agree to go on. */
#include "os.h"
#include "ring.h"
#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_RANKS 4096

clattn_status ring_check_transport(const clattn_ring_transport *transport) {
    RETURN_IF(transport == NULL, CLATTN_INVALID_ARGUMENT, "transport is NULL");
    RETURN_IF(transport->size < sizeof *transport, CLATTN_INVALID_ARGUMENT, "transport: size is %zu, at least %zu",
              transport->size, sizeof *transport);
    RETURN_IF(transport->ranks < 1 || transport->ranks > MOST_RANKS, CLATTN_INVALID_ARGUMENT,
              "transport: ranks = %" PRId32 " is not within 1 .. %d", transport->ranks, MOST_RANKS);
    RETURN_IF(transport->rank < 0 || transport->rank >= transport->ranks, CLATTN_INVALID_ARGUMENT,
              "transport: rank = %" PRId32 " is not within 0 .. %" PRId32, transport->rank, transport->ranks - 1);
    RETURN_IF(transport->begin == NULL, CLATTN_INVALID_ARGUMENT, "transport: begin is NULL");
    RETURN_IF(transport->wait == NULL, CLATTN_INVALID_ARGUMENT, "transport: wait is NULL");
    RETURN_IF(transport->max == NULL, CLATTN_INVALID_ARGUMENT, "transport: max is NULL");
    return CLATTN_SUCCESS;
}

int32_t ring_owner(const clattn_ring_transport *transport, int32_t step) {
    return (transport->rank - step % transport->ranks + transport->ranks) % transport->ranks;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

void ring_talk_begin(struct ring_talk *talk, const clattn_ring_transport *transport) {
    memset(talk, 0, sizeof *talk);
    talk->transport = transport;
}

void ring_note(struct ring_talk *talk, clattn_status status) {
    if (status == CLATTN_SUCCESS || talk->status != CLATTN_SUCCESS)
        return;
    talk->status = status;
    snprintf(talk->text, sizeof talk->text, "%s", clattn_last_error());
}

clattn_status ring_talk_end(struct ring_talk *talk) {
    return talk->status == CLATTN_SUCCESS ? CLATTN_SUCCESS : status_set(talk->status, "%s", talk->text);
}

static void note_broken(struct ring_talk *talk, const char *callback, clattn_status status) {
    const clattn_ring_transport *transport = talk->transport;
    const char *text = transport->error_text != NULL ? transport->error_text(transport->user) : NULL;
    talk->broken = true;
    ring_note(talk, status_set(CLATTN_PEER_FAILED, "transport: %s failed: %s%s%s", callback, clattn_status_name(status),
                               text != NULL ? ": " : "", text != NULL ? text : ""));
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

/* A status and whose it is, as one number that is largest for some rank in trouble. */
static uint64_t trouble_of(const struct ring_talk *talk) {
    return talk->status == CLATTN_SUCCESS ? 0 : (uint64_t)talk->status << 32 | (uint32_t)talk->transport->rank;
}

static void note_trouble(struct ring_talk *talk, uint64_t trouble, bool alike) {
    if (trouble != 0) {
        const clattn_status status = (clattn_status)(trouble >> 32);
        ring_note(talk, status_set(CLATTN_PEER_FAILED, "rank %" PRIu32 " failed: %s", (uint32_t)trouble,
                                   clattn_status_name(status)));
    } else if (!alike) {
        ring_note(talk, status_set(CLATTN_INVALID_ARGUMENT, "ranks disagree: operation, k_shards, dtype, batch, heads, "
                                                            "dims and whether they share memory must be alike"));
    }
}

bool ring_agree(struct ring_talk *talk, uint64_t digest) {
    uint64_t values[3] = {trouble_of(talk), digest, ~digest};
    if (talk->broken || talk->told)
        return false;
    const uint64_t start = os_time_ns();
    const clattn_status status = talk->transport->max(talk->transport->user, values, 3);
    talk->waited_ns += os_time_ns() - start;
    if (status != CLATTN_SUCCESS)
        note_broken(talk, "max", status);
    else
        note_trouble(talk, values[0], values[1] == ~values[2]);
    talk->told = talk->status != CLATTN_SUCCESS;
    return talk->status == CLATTN_SUCCESS;
}

void ring_share(struct ring_talk *talk, const void *mine, const void **all) {
    const uint64_t start = os_time_ns();
    const clattn_status status = talk->transport->share(talk->transport->user, mine, all);
    talk->waited_ns += os_time_ns() - start;
    if (status != CLATTN_SUCCESS)
        note_broken(talk, "share", status);
}

void ring_begin(struct ring_talk *talk, int32_t tag, const void *send, size_t send_bytes, void *receive,
                size_t receive_bytes) {
    const clattn_ring_transport *transport = talk->transport;
    const clattn_ring_message message = {.tag = tag,
                                         .to = ring_owner(transport, transport->ranks - 1),
                                         .from = ring_owner(transport, 1),
                                         .send = send,
                                         .receive = receive,
                                         .send_bytes = send_bytes,
                                         .receive_bytes = receive_bytes};
    if (talk->broken || (send_bytes == 0 && receive_bytes == 0))
        return;
    const clattn_status status = transport->begin(transport->user, &message, &talk->request[tag]);
    if (status != CLATTN_SUCCESS)
        note_broken(talk, "begin", status);
    talk->pending[tag] = status == CLATTN_SUCCESS;
}

void ring_wait(struct ring_talk *talk, int32_t tag) {
    if (talk->broken || !talk->pending[tag])
        return;
    const uint64_t start = os_time_ns();
    const clattn_status status = talk->transport->wait(talk->transport->user, talk->request[tag]);
    talk->waited_ns += os_time_ns() - start;
    talk->pending[tag] = false;
    if (status != CLATTN_SUCCESS)
        note_broken(talk, "wait", status);
}
