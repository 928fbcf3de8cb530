/* clattn: attention over several machines. The transport of clattn/ring.h over MPI, in a library of its own,
 * libclattn_mpi (pkg-config clattn_mpi); the other headers of clattn do not know of MPI. MIT licence.
 *
 * MPI's header is included here, and a communicator is MPI's own type: the library belongs to the MPI that it was built
 * with, whose communicators are other types in other MPIs, so that the compiler finds a mixture. (Its bindings for C++,
 * which the standard has dropped, are left out: they would want a further library.)
 *
 *     int level;
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
 *     clattn_ring_mpi *ring = NULL;
 *     clattn_ring_transport transport;
 *     if (clattn_ring_mpi_create(MPI_COMM_WORLD, 120000, &ring) || clattn_ring_mpi_transport(ring, &transport))
 *         puts(clattn_ring_mpi_last_error());
 *     clattn_ring_launch launch;
 *     clattn_ring_launch_init(&launch, queue, copy_queue, &transport);
 *     ... clattn_ring_staging(), clattn_ring_attention() as often as needed, on all ranks
 *     clattn_ring_mpi_release(&ring);
 *     MPI_Finalize();
 *
 * Failures. A rank whose call fails, be it for an argument or an error of OpenCL, tells the others at the next point
 * where all of them agree to go on, and they return CLATTN_PEER_FAILED; the ring can be used on. Where MPI itself
 * fails, or a rank has not come within the timeout, or has called clattn_ring_mpi_abort(), all ranks' calls in progress
 * fail soon and so do all that follow: such a ring can only be released. A rank whose process dies is MPI's affair:
 * mpirun ends the others. What no other rank can learn of is a call without a valid launch or transport: there, abort.
 *
 * Threads. MPI must have been initialised with MPI_THREAD_FUNNELED at least, since OpenCL has threads of its own. With
 * that level all calls here, and all of clattn/ring.h on this transport, are for the thread that has initialised MPI;
 * with MPI_THREAD_SERIALIZED they are for any thread, but for one at a time within the process, other use of MPI
 * included; with MPI_THREAD_MULTIPLE for any thread, one at a time for each ring. Calls from a wrong thread are
 * refused. */
#ifndef CLATTN_RING_MPI_H
#define CLATTN_RING_MPI_H

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <clattn/ring.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rank's part of a ring over MPI; opaque. */
typedef struct clattn_ring_mpi clattn_ring_mpi;

/* A ring of the ranks of a communicator, which is duplicated: the library's messages meet no others, and errors of MPI
 * come back as statuses. Collective: all ranks get a ring, or none does, the others CLATTN_PEER_FAILED; a rank without
 * MPI or without an intracommunicator cannot tell them and is waited for until the timeout, after which the
 * communicator is of no more use.
 *
 *   timeout_ms   how long a rank waits for another before the ring fails; 0: for ever. Other ranks may be compiling or
 *                computing meanwhile, so that it should be minutes rather than seconds. */
CLATTN_API clattn_status clattn_ring_mpi_create(MPI_Comm communicator, uint32_t timeout_ms, clattn_ring_mpi **out);

/* Collective, before MPI_Finalize() (after it, only memory is freed), while no call is in progress. Sets *ring to NULL;
 * NULL is accepted. Of a ring that has failed, MPI keeps the communicator. */
CLATTN_API void clattn_ring_mpi_release(clattn_ring_mpi **ring);

/* Fills in this rank's transport, which is valid as long as the ring.
 *
 * Messages go as MPI_BYTE in pieces of at most 1 GiB. MPI may move them only while it is called: wait() does so all the
 * time, and gives way to other threads. After a failure up to three seconds are spent until no message is in flight;
 * where a rank does not get that far because another has stopped in the midst of a transfer, the error's text says that
 * the host memory is still MPI's: then it must stay in place until the process ends. */
CLATTN_API clattn_status clattn_ring_mpi_transport(clattn_ring_mpi *ring, clattn_ring_transport *transport);

/* For a rank that will not make its call: those of the other ranks fail, those in progress and all that follow. NULL is
 * accepted. */
CLATTN_API void clattn_ring_mpi_abort(clattn_ring_mpi *ring);

/* Why the calling thread's last call of this header (not of clattn/ring.h, whose text is clattn_last_error()) failed;
 * never NULL, valid until its next one. */
CLATTN_API const char *clattn_ring_mpi_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
