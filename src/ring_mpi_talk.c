/* The callbacks over MPI. Every wait also listens for a rank that leaves: a failure anywhere ends all of them. */
#include "ring_mpi.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

/* Bytes of one MPI message, whose count is an int; less where tests want many. */
#ifndef RING_MPI_PIECE
#define RING_MPI_PIECE ((size_t)1 << 30)
#endif

static const double settling_seconds = 3, telling_seconds = 1, slowest_bytes_a_second = 5e7;

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* The device's driver computes meanwhile, on this processor perhaps. But who sleeps moves no bytes: of 4 MiB through
 * shared memory, without a device at work, 37 ms were taken where 2 ms suffice. */
void ring_mpi_rest(double waited_seconds, size_t bytes) {
    if (waited_seconds < 1e-3 + (double)bytes / slowest_bytes_a_second)
        thrd_yield();
    else
        thrd_sleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

bool ring_mpi_is_done(MPI_Request *request) {
    int done = 1;
    if (*request != MPI_REQUEST_NULL && MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return true; /* of no further use */
    return done;
}

/* True where all are done in time. */
static bool await_all(MPI_Request *requests, size_t count, double seconds) {
    const double begin = MPI_Wtime();
    for (size_t i = 0; i < count; i++)
        while (!ring_mpi_is_done(&requests[i])) {
            if (MPI_Wtime() - begin >= seconds)
                return false;
            ring_mpi_rest(MPI_Wtime() - begin, 0);
        }
    return true;
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static void tell_others(clattn_ring_mpi *ring) {
    ring->own_news = ring->rank;
    for (int to = 0; to < ring->ranks; to++)
        if (to != ring->rank && ring->telling[to] == MPI_REQUEST_NULL)
            (void)MPI_Isend(&ring->own_news, 1, MPI_INT, to, RING_MPI_LEAVING, ring->communicator, &ring->telling[to]);
    (void)await_all(ring->telling, (size_t)ring->ranks, telling_seconds);
}

/* Receives that no sender has met are withdrawn; a transfer under way comes to its end, since the other side sees to
 * that too; and what is sent to a rank that receives no more is not read again. True where the caller's memory will not
 * be written any more. */
static bool settle(clattn_ring_mpi *ring) {
    bool settled = true;
    const double begin = MPI_Wtime();
    for (int tag = 0; tag < RING_MPI_TAGS; tag++) {
        struct ring_mpi_transfer *in = &ring->messages[tag].in;
        for (size_t i = in->done; i < in->count; i++)
            if (in->pieces[i] != MPI_REQUEST_NULL)
                (void)MPI_Cancel(&in->pieces[i]);
    }
    for (int tag = 0; tag < RING_MPI_TAGS; tag++) {
        struct ring_mpi_transfer *in = &ring->messages[tag].in, *out = &ring->messages[tag].out;
        settled &= await_all(in->pieces, in->count, settling_seconds - (MPI_Wtime() - begin));
        (void)await_all(out->pieces, out->count, settling_seconds - (MPI_Wtime() - begin));
    }
    return settled;
}

/* The first failure ends the ring. tell: the others do not know yet. */
static clattn_status leave(clattn_ring_mpi *ring, bool tell, clattn_status status) {
    if (ring->broken)
        return status;
    ring->broken = true;
    if (tell)
        tell_others(ring);
    if (!settle(ring)) {
        const size_t length = strlen(ring->text);
        snprintf(ring->text + length, sizeof ring->text - length, "; the host memory is still in MPI's use");
    }
    return status;
}

__attribute__((format(printf, 3, 4))) static clattn_status fail(clattn_ring_mpi *ring, clattn_status status,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ring->text, sizeof ring->text, format, arguments);
    va_end(arguments);
    return leave(ring, true, status);
}

static clattn_status fail_by_mpi(clattn_ring_mpi *ring, const char *call, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return fail(ring, CLATTN_PEER_FAILED, "%s: %.160s", call, text);
}

#define FORWARD_MPI(call, name)                      \
    do {                                             \
        const int code_ = (call);                    \
        if (code_ != MPI_SUCCESS)                    \
            return fail_by_mpi(ring, (name), code_); \
    } while (0)

clattn_status ring_mpi_listen(clattn_ring_mpi *ring) {
    FORWARD_MPI(
        MPI_Irecv(&ring->news, 1, MPI_INT, MPI_ANY_SOURCE, RING_MPI_LEAVING, ring->communicator, &ring->listening),
        "MPI_Irecv");
    return CLATTN_SUCCESS;
}

static clattn_status hear(clattn_ring_mpi *ring) {
    int left = 0;
    if (ring->listening == MPI_REQUEST_NULL)
        return CLATTN_SUCCESS;
    FORWARD_MPI(MPI_Test(&ring->listening, &left, MPI_STATUS_IGNORE), "MPI_Test");
    if (!left)
        return CLATTN_SUCCESS;
    snprintf(ring->text, sizeof ring->text, "rank %d has left the ring", ring->news);
    return leave(ring, false, CLATTN_PEER_FAILED);
}

/* Until the request is complete; bytes: of the transfer, 0 where only others are waited for. What is complete counts,
 * even where a rank has left since. */
static clattn_status await(clattn_ring_mpi *ring, MPI_Request *request, size_t bytes, MPI_Status *status) {
    const double begin = MPI_Wtime();
    for (;;) {
        int done = 0;
        FORWARD_MPI(MPI_Test(request, &done, status), "MPI_Test");
        if (done)
            return CLATTN_SUCCESS;
        const clattn_status heard = hear(ring);
        if (heard != CLATTN_SUCCESS)
            return heard;
        const double waited = MPI_Wtime() - begin;
        if (ring->timeout > 0 && waited >= ring->timeout)
            return fail(ring, CLATTN_PEER_FAILED, "another rank did not come within %g s", ring->timeout);
        ring_mpi_rest(waited, bytes);
    }
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

bool ring_mpi_is_foreign_thread(int thread_level) {
    int is_main = 0;
    return thread_level < MPI_THREAD_SERIALIZED && (MPI_Is_thread_main(&is_main) != MPI_SUCCESS || !is_main);
}

bool ring_mpi_runs(void) {
    int begun = 0, ended = 0;
    return MPI_Initialized(&begun) == MPI_SUCCESS && begun && MPI_Finalized(&ended) == MPI_SUCCESS && !ended;
}

/* Where this thread must not call MPI, the other ranks are not told. */
static clattn_status check_usable(clattn_ring_mpi *ring) {
    const char *trouble = !ring_mpi_runs() ? "MPI has been finalised"
                          : ring_mpi_is_foreign_thread(ring->thread_level)
                              ? "MPI was initialised with MPI_THREAD_FUNNELED, and by another thread than this one"
                          : ring->broken ? "the ring has failed before, or was aborted"
                                         : NULL;
    if (trouble == NULL)
        return CLATTN_SUCCESS;
    snprintf(ring->text, sizeof ring->text, "%s", trouble);
    return CLATTN_PEER_FAILED;
}

static bool make_room(struct ring_mpi_transfer *transfer, size_t bytes, bool receives) {
    const size_t count = bytes / RING_MPI_PIECE + (bytes % RING_MPI_PIECE > 0);
    transfer->count = transfer->done = 0;
    transfer->bytes = bytes;
    transfer->receives = receives;
    if (count <= transfer->capacity)
        return true;
    MPI_Request *pieces = realloc(transfer->pieces, count * sizeof(MPI_Request));
    if (pieces == NULL)
        return false;
    transfer->pieces = pieces;
    transfer->capacity = count;
    return true;
}

static size_t piece_bytes(const struct ring_mpi_transfer *transfer, size_t piece) {
    const size_t left = transfer->bytes - piece * RING_MPI_PIECE;
    return left < RING_MPI_PIECE ? left : RING_MPI_PIECE;
}

static clattn_status begin_receive(clattn_ring_mpi *ring, const clattn_ring_message *message,
                                   struct ring_mpi_transfer *in) {
    char *bytes = message->receive;
    for (size_t at = 0; at < in->bytes; at += RING_MPI_PIECE, in->count++)
        FORWARD_MPI(MPI_Irecv(bytes + at, (int)piece_bytes(in, in->count), MPI_BYTE, message->from, message->tag,
                              ring->communicator, &in->pieces[in->count]),
                    "MPI_Irecv");
    return CLATTN_SUCCESS;
}

static clattn_status begin_send(clattn_ring_mpi *ring, const clattn_ring_message *message,
                                struct ring_mpi_transfer *out) {
    const char *bytes = message->send;
    for (size_t at = 0; at < out->bytes; at += RING_MPI_PIECE, out->count++)
        FORWARD_MPI(MPI_Isend(bytes + at, (int)piece_bytes(out, out->count), MPI_BYTE, message->to, message->tag,
                              ring->communicator, &out->pieces[out->count]),
                    "MPI_Isend");
    return CLATTN_SUCCESS;
}

clattn_status ring_mpi_begin(void *user, const clattn_ring_message *message, void **request) {
    clattn_ring_mpi *ring = user;
    clattn_status status = check_usable(ring);
    if (status != CLATTN_SUCCESS)
        return status;
    if (message->tag < 0 || message->tag >= RING_MPI_TAGS)
        return fail(ring, CLATTN_INVALID_ARGUMENT, "tag = %" PRId32 " is neither 0 nor 1", message->tag);
    struct ring_mpi_message *own = &ring->messages[message->tag];
    if (!make_room(&own->in, message->receive_bytes, true) || !make_room(&own->out, message->send_bytes, false))
        return fail(ring, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    status = begin_receive(ring, message, &own->in);
    if (status == CLATTN_SUCCESS)
        status = begin_send(ring, message, &own->out);
    *request = own;
    return status;
}

static clattn_status finish(clattn_ring_mpi *ring, struct ring_mpi_transfer *transfer) {
    for (; transfer->done < transfer->count; transfer->done++) {
        MPI_Status done;
        int bytes = 0;
        const clattn_status status = await(ring, &transfer->pieces[transfer->done], transfer->bytes, &done);
        if (status != CLATTN_SUCCESS)
            return status;
        if (transfer->receives && (MPI_Get_count(&done, MPI_BYTE, &bytes) != MPI_SUCCESS ||
                                   (size_t)bytes != piece_bytes(transfer, transfer->done)))
            return fail(ring, CLATTN_PEER_FAILED, "rank %d has sent %d bytes of %zu", done.MPI_SOURCE, bytes,
                        piece_bytes(transfer, transfer->done));
    }
    transfer->count = transfer->done = 0;
    return CLATTN_SUCCESS;
}

clattn_status ring_mpi_wait(void *user, void *request) {
    clattn_ring_mpi *ring = user;
    struct ring_mpi_message *message = request;
    clattn_status status = check_usable(ring);
    if (status == CLATTN_SUCCESS)
        status = finish(ring, &message->in);
    return status == CLATTN_SUCCESS ? finish(ring, &message->out) : status;
}

/* Through memory of the ring, since a reduction cannot be withdrawn. */
static clattn_status reduce(clattn_ring_mpi *ring, uint64_t *values, int32_t count) {
    if (count < 0 || count > RING_MPI_VALUES)
        return fail(ring, CLATTN_INVALID_ARGUMENT, "%" PRId32 " values, at most %d", count, RING_MPI_VALUES);
    memcpy(ring->values, values, (size_t)count * sizeof *values);
    FORWARD_MPI(
        MPI_Iallreduce(ring->values, ring->largest, count, MPI_UINT64_T, MPI_MAX, ring->communicator, &ring->reduction),
        "MPI_Iallreduce");
    const clattn_status status = await(ring, &ring->reduction, 0, MPI_STATUS_IGNORE);
    if (status == CLATTN_SUCCESS)
        memcpy(values, ring->largest, (size_t)count * sizeof *values);
    return status;
}

clattn_status ring_mpi_max(void *user, uint64_t *values, int32_t count) {
    clattn_ring_mpi *ring = user;
    const clattn_status status = check_usable(ring);
    return status == CLATTN_SUCCESS ? reduce(ring, values, count) : status;
}

const char *ring_mpi_error_text(void *user) {
    return ((const clattn_ring_mpi *)user)->text;
}

void ring_mpi_leave(clattn_ring_mpi *ring) {
    if (check_usable(ring) == CLATTN_SUCCESS)
        (void)fail(ring, CLATTN_PEER_FAILED, "the ring was aborted");
}
