/* What both clients need of OpenCL and the library: a device, buffers, kernels, calls. Failures end the program with
 * their reason. */
#ifndef CLIENTS_CLIENT_H
#define CLIENTS_CLIENT_H

#include <clattn/clattn.h>

enum { CLIENT_SKIPPED = 77 }; /* the exit status of a test that could not run */

struct client {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue; /* in order */
    clattn_context *clattn;
    clattn_workspace workspace; /* grows with the calls */
    char device_name[128];
};

/* The first device, or that which CLATTN_TEST_DEVICE names by number or by a part of its name; exits with
 * CLIENT_SKIPPED where there is none. */
void client_open(struct client *client);
void client_close(struct client *client);

_Noreturn void client_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void client_check(cl_int code, const char *what);
void *client_allocate(size_t bytes); /* zeroed */
char *client_read_file(const char *path, size_t *size);
double client_seconds(void);

/* values NULL: undefined */
cl_mem client_buffer(const struct client *client, size_t bytes, const void *values);
void client_write(const struct client *client, cl_mem buffer, size_t bytes, const void *values);
void client_read(const struct client *client, cl_mem buffer, size_t bytes, void *values);

/* A program of this folder's element.clh and the named file, for values of the dtype. */
cl_program client_program(const struct client *client, const char *file, clattn_dtype dtype);
cl_kernel client_kernel(cl_program program, const char *name);
/* The next argument of a kernel, from *index on. */
void client_argument(cl_kernel kernel, cl_uint *index, size_t size, const void *value);
/* Enqueues columns x rows work-items; group 0: of any size, else of that many columns. */
void client_launch(const struct client *client, cl_kernel kernel, size_t columns, size_t rows, size_t group);

/* One call of the library, with as much workspace as it wants. */
void client_call(struct client *client, const clattn_op *op);
clattn_tensor client_tensor(cl_mem buffer, clattn_dtype dtype, int64_t offset, int64_t rows, int64_t columns);
/* c = a b^T, where b is [N,K], as weights are stored; accumulate: added to what c holds. */
void client_product(struct client *client, clattn_tensor a, clattn_tensor b, clattn_tensor c, int accumulate);

#endif
