/* A ring over MPI: its state, and the transport's callbacks (ring_mpi_talk.c) for those who make rings (ring_mpi.c).
 * Both are a library of their own, which knows clattn's public headers alone. */
#ifndef CLATTN_SRC_RING_MPI_H
#define CLATTN_SRC_RING_MPI_H

#include <clattn/ring_mpi.h>

#include <stdbool.h>

enum { RING_MPI_TAGS = 2, RING_MPI_LEAVING = 2, RING_MPI_VALUES = 4 }; /* LEAVING: the tag of a rank that leaves */

/* One direction of a message: its pieces, in order. */
struct ring_mpi_transfer {
    MPI_Request *pieces;
    size_t count, capacity, done;
    size_t bytes; /* of the whole */
    bool receives;
};

struct ring_mpi_message {
    struct ring_mpi_transfer out, in;
};

struct clattn_ring_mpi {
    MPI_Comm communicator; /* a duplicate; MPI_COMM_NULL: none yet */
    int rank, ranks, thread_level;
    double timeout; /* seconds; 0: none */
    bool broken;
    struct ring_mpi_message messages[RING_MPI_TAGS];
    int news, own_news; /* the rank that leaves */
    MPI_Request listening;
    uint64_t values[RING_MPI_VALUES], largest[RING_MPI_VALUES];
    MPI_Request reduction;
    char text[256];
    MPI_Request telling[]; /* [ranks] */
};

clattn_status ring_mpi_begin(void *user, const clattn_ring_message *message, void **request);
clattn_status ring_mpi_wait(void *user, void *request);
clattn_status ring_mpi_max(void *user, uint64_t *values, int32_t count);
const char *ring_mpi_error_text(void *user);

bool ring_mpi_runs(void); /* MPI is initialised, and not finalised */
/* This is not the thread that may call MPI. */
bool ring_mpi_is_foreign_thread(int thread_level);
/* From now on every wait hears of a rank that leaves. */
clattn_status ring_mpi_listen(clattn_ring_mpi *ring);
/* Tells the others that this rank leaves the ring. */
void ring_mpi_leave(clattn_ring_mpi *ring);

/* Between two questions whether something is done; bytes: that are on their way. */
void ring_mpi_rest(double waited_seconds, size_t bytes);
bool ring_mpi_is_done(MPI_Request *request);

#endif
