/* The counter behind memory_counter.h. A buffer counts from its creation until its destructor callback, which OpenCL
 * calls when the memory is really given back, whoever released it. */
#include "memory_counter.h"

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic uint64_t held, peak, releases;

static void count_release(cl_mem buffer, void *user) {
    (void)buffer;
    atomic_fetch_sub(&held, (uint64_t)(uintptr_t)user);
    atomic_fetch_add(&releases, 1);
}

static void count_allocation(cl_mem buffer, size_t size) {
    if (clSetMemObjectDestructorCallback(buffer, count_release, (void *)(uintptr_t)size) != CL_SUCCESS)
        return;
    const uint64_t now = atomic_fetch_add(&held, size) + size;
    uint64_t before = atomic_load(&peak);
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        continue;
}

typedef cl_mem(CL_API_CALL *create_buffer)(cl_context, cl_mem_flags, size_t, void *, cl_int *);

__attribute__((visibility("default"))) cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags,
                                                                         size_t size, void *host, cl_int *error) {
    static _Atomic(create_buffer) real;
    create_buffer call = atomic_load(&real);
    if (!call) {
        *(void **)&call = dlsym(RTLD_NEXT, "clCreateBuffer");
        atomic_store(&real, call);
    }
    if (!call) {
        if (error)
            *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    const cl_mem buffer = call(context, flags, size, host, error);
    if (buffer)
        count_allocation(buffer, size);
    return buffer;
}

uint64_t memory_now(void) {
    return atomic_load(&held);
}

uint64_t memory_peak(void) {
    return atomic_load(&peak);
}

void memory_restart_peak(void) {
    uint64_t before;
    int quiet = 0;
    for (int i = 0; i < 20 && quiet < 2; i++) {
        before = atomic_load(&releases);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        quiet = atomic_load(&releases) == before ? quiet + 1 : 0;
    }
    atomic_store(&peak, atomic_load(&held));
}
