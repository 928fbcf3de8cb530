/* A library that allocates device memory behind the back of the program it is loaded into, as libraries do: the
 * command's figure for peak memory must show it. Preloaded by tools_test.py. */
#include <CL/cl.h>
#include <dlfcn.h>

#define HIDDEN_BYTES ((size_t)48 << 20)

typedef cl_command_queue(CL_API_CALL *create_queue)(cl_context, cl_device_id, cl_command_queue_properties, cl_int *);

__attribute__((visibility("default"))) cl_command_queue CL_API_CALL
clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *error) {
    static cl_mem hidden;
    create_queue real;
    *(void **)&real = dlsym(RTLD_NEXT, "clCreateCommandQueue");
    if (!hidden)
        hidden = clCreateBuffer(context, CL_MEM_READ_WRITE, HIDDEN_BYTES, NULL, NULL);
    return real(context, device, properties, error);
}
