/* Rings over MPI: made, handed out, released. */
#include "ring_mpi.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_error[256];

const char *clattn_ring_mpi_last_error(void) {
    return last_error;
}

__attribute__((format(printf, 2, 3))) static clattn_status refuse(clattn_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

clattn_status clattn_ring_mpi_transport(clattn_ring_mpi *ring, clattn_ring_transport *transport) {
    if (ring == NULL)
        return refuse(CLATTN_INVALID_ARGUMENT, "ring is NULL");
    if (transport == NULL)
        return refuse(CLATTN_INVALID_ARGUMENT, "transport is NULL");
    *transport = (clattn_ring_transport){.size = sizeof *transport,
                                         .rank = ring->rank,
                                         .ranks = ring->ranks,
                                         .user = ring,
                                         .begin = ring_mpi_begin,
                                         .wait = ring_mpi_wait,
                                         .max = ring_mpi_max,
                                         .error_text = ring_mpi_error_text};
    return CLATTN_SUCCESS;
}

void clattn_ring_mpi_abort(clattn_ring_mpi *ring) {
    if (ring != NULL)
        ring_mpi_leave(ring);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static clattn_status check_communicator(MPI_Comm communicator) {
    int between = 0;
    if (!ring_mpi_runs())
        return refuse(CLATTN_INVALID_ARGUMENT, "MPI is not initialised, or has been finalised");
    if (communicator == MPI_COMM_NULL)
        return refuse(CLATTN_INVALID_ARGUMENT, "communicator is MPI_COMM_NULL");
    if (MPI_Comm_test_inter(communicator, &between) != MPI_SUCCESS || between)
        return refuse(CLATTN_INVALID_ARGUMENT, "communicator is an intercommunicator");
    return CLATTN_SUCCESS;
}

static clattn_ring_mpi *make(MPI_Comm communicator, uint32_t timeout_ms) {
    int rank = 0, ranks = 0;
    if (MPI_Comm_rank(communicator, &rank) != MPI_SUCCESS || MPI_Comm_size(communicator, &ranks) != MPI_SUCCESS)
        return NULL;
    clattn_ring_mpi *ring = calloc(1, sizeof *ring + (size_t)ranks * sizeof ring->telling[0]);
    if (ring == NULL)
        return NULL;
    ring->communicator = MPI_COMM_NULL;
    ring->rank = rank;
    ring->ranks = ranks;
    ring->timeout = (double)timeout_ms * 1e-3;
    ring->listening = ring->reduction = MPI_REQUEST_NULL;
    for (int i = 0; i < ranks; i++)
        ring->telling[i] = MPI_REQUEST_NULL;
    return ring;
}

/* Until the others have come, or not: then MPI may still write to the ring, which is left to it. */
static clattn_status duplicate(MPI_Comm communicator, clattn_ring_mpi *ring) {
    const double begin = MPI_Wtime();
    int done = 0, code = MPI_Comm_idup(communicator, &ring->communicator, &ring->reduction);
    while (code == MPI_SUCCESS && !done) {
        const double waited = MPI_Wtime() - begin;
        if (ring->timeout > 0 && waited >= ring->timeout)
            return refuse(CLATTN_PEER_FAILED, "another rank did not come within %g s", ring->timeout);
        code = MPI_Test(&ring->reduction, &done, MPI_STATUS_IGNORE);
        ring_mpi_rest(waited, 0);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(ring->communicator, MPI_ERRORS_RETURN);
    return code == MPI_SUCCESS ? CLATTN_SUCCESS : refuse(CLATTN_PEER_FAILED, "MPI failed with code %d", code);
}

static const char needed_level[] =
    "MPI was initialised with MPI_THREAD_SINGLE; MPI_THREAD_FUNNELED is needed: MPI_Init_thread()";

/* All ranks: does anyone refuse? Who leaves is heard of only afterwards: a rank that does so at once has a ring, and so
 * have all. */
static clattn_status agree(clattn_ring_mpi *ring, const char *trouble) {
    uint64_t refusing = trouble != NULL ? (uint64_t)ring->rank + 1 : 0;
    clattn_status status = ring_mpi_max(ring, &refusing, 1);
    if (status == CLATTN_SUCCESS)
        status = ring_mpi_listen(ring);
    if (trouble != NULL)
        return refuse(CLATTN_INVALID_ARGUMENT, "%s", trouble);
    if (status != CLATTN_SUCCESS)
        return refuse(status, "%s", ring->text);
    return refusing == 0 ? CLATTN_SUCCESS
                         : refuse(CLATTN_PEER_FAILED, "rank %" PRIu64 " cannot have the ring", refusing - 1);
}

clattn_status clattn_ring_mpi_create(MPI_Comm communicator, uint32_t timeout_ms, clattn_ring_mpi **out) {
    int level = MPI_THREAD_SINGLE;
    if (out != NULL)
        *out = NULL;
    clattn_status status = check_communicator(communicator);
    if (status != CLATTN_SUCCESS)
        return status;
    (void)MPI_Query_thread(&level);
    if (ring_mpi_is_foreign_thread(level))
        return refuse(CLATTN_INVALID_ARGUMENT, "MPI was initialised by another thread than this one, and without "
                                               "MPI_THREAD_SERIALIZED");
    clattn_ring_mpi *ring = make(communicator, timeout_ms);
    if (ring == NULL)
        return refuse(CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    ring->thread_level = level;
    status = duplicate(communicator, ring);
    if (status != CLATTN_SUCCESS)
        return status;
    status = agree(ring, out == NULL ? "out is NULL" : level < MPI_THREAD_FUNNELED ? needed_level : NULL);
    if (status == CLATTN_SUCCESS)
        *out = ring;
    else
        clattn_ring_mpi_release(&ring);
    return status;
}

static void free_ring(clattn_ring_mpi *ring) {
    for (int tag = 0; tag < RING_MPI_TAGS; tag++) {
        free(ring->messages[tag].in.pieces);
        free(ring->messages[tag].out.pieces);
    }
    free(ring);
}

/* What MPI may still write to or read from stays. */
static bool stop(clattn_ring_mpi *ring) {
    if (!ring_mpi_is_done(&ring->reduction))
        return false;
    for (int i = 0; i < ring->ranks; i++)
        if (!ring_mpi_is_done(&ring->telling[i]))
            return false;
    if (ring->listening != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&ring->listening);
        (void)MPI_Wait(&ring->listening, MPI_STATUS_IGNORE);
    }
    if (!ring->broken)
        (void)MPI_Comm_free(&ring->communicator);
    return true;
}

void clattn_ring_mpi_release(clattn_ring_mpi **ring) {
    if (ring == NULL || *ring == NULL || (ring_mpi_runs() && ring_mpi_is_foreign_thread((*ring)->thread_level)))
        return;
    if (!ring_mpi_runs() || stop(*ring))
        free_ring(*ring);
    *ring = NULL;
}
