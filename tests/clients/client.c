/* Devices, buffers, kernels and calls, as a small program would write them for itself. */
#include "client.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Noreturn void client_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

void client_check(cl_int code, const char *what) {
    if (code != CL_SUCCESS)
        client_fail("%s: OpenCL error %d", what, (int)code);
}

void *client_allocate(size_t bytes) {
    void *memory = calloc(bytes > 0 ? bytes : 1, 1);
    if (memory == NULL)
        client_fail("out of memory: %zu bytes", bytes);
    return memory;
}

char *client_read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        client_fail("%s: cannot be read", path);
    const long bytes = ftell(file);
    rewind(file);
    char *text = client_allocate((size_t)(bytes > 0 ? bytes : 0) + 1);
    *size = fread(text, 1, (size_t)bytes, file);
    if (bytes < 0 || *size != (size_t)bytes)
        client_fail("%s: cannot be read", path);
    fclose(file);
    return text;
}

double client_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

enum { MOST_PLATFORMS = 16, MOST_DEVICES = 64 };

static cl_uint all_devices(cl_device_id *devices) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint platform_count = 0, count = 0;
    if (clGetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint i = 0; i < platform_count && i < MOST_PLATFORMS && count < MOST_DEVICES; i++) {
        cl_uint found = 0;
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST_DEVICES - count, devices + count, &found) ==
            CL_SUCCESS)
            count += found < MOST_DEVICES - count ? found : MOST_DEVICES - count;
    }
    return count;
}

static bool is_wanted(const char *wanted, cl_uint index, const char *name) {
    char *end;
    if (wanted == NULL || *wanted == 0)
        return true;
    const unsigned long number = strtoul(wanted, &end, 10);
    return *end == 0 ? number == index : strstr(name, wanted) != NULL;
}

static void find_device(struct client *client) {
    cl_device_id devices[MOST_DEVICES];
    const cl_uint count = all_devices(devices);
    for (cl_uint i = 0; i < count && client->device == NULL; i++) {
        client_check(clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof client->device_name, client->device_name, NULL),
                     "CL_DEVICE_NAME");
        if (is_wanted(getenv("CLATTN_TEST_DEVICE"), i, client->device_name))
            client->device = devices[i];
    }
    if (client->device == NULL) {
        puts("there is no such OpenCL device");
        exit(CLIENT_SKIPPED);
    }
    printf("device: %s\n", client->device_name);
}

static void client_check_call(clattn_status status, const char *what) {
    if (status != CLATTN_SUCCESS)
        client_fail("%s: %s: %s", what, clattn_status_name(status), clattn_last_error());
}

void client_open(struct client *client) {
    cl_int code;
    memset(client, 0, sizeof *client);
    find_device(client);
    client->context = clCreateContext(NULL, 1, &client->device, NULL, NULL, &code);
    client_check(code, "clCreateContext");
    client->queue = clCreateCommandQueue(client->context, client->device, 0, &code);
    client_check(code, "clCreateCommandQueue");
    client_check_call(clattn_context_create(client->context, client->device, NULL, &client->clattn),
                      "clattn_context_create");
}

void client_close(struct client *client) {
    clattn_context_release(&client->clattn);
    if (client->workspace.buffer != NULL)
        clReleaseMemObject(client->workspace.buffer);
    clReleaseCommandQueue(client->queue);
    clReleaseContext(client->context);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

cl_mem client_buffer(const struct client *client, size_t bytes, const void *values) {
    cl_int code;
    cl_mem buffer = clCreateBuffer(client->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    client_check(code, "clCreateBuffer");
    if (values != NULL)
        client_write(client, buffer, bytes, values);
    return buffer;
}

void client_write(const struct client *client, cl_mem buffer, size_t bytes, const void *values) {
    client_check(clEnqueueWriteBuffer(client->queue, buffer, CL_TRUE, 0, bytes, values, 0, NULL, NULL),
                 "clEnqueueWriteBuffer");
}

void client_read(const struct client *client, cl_mem buffer, size_t bytes, void *values) {
    client_check(clEnqueueReadBuffer(client->queue, buffer, CL_TRUE, 0, bytes, values, 0, NULL, NULL),
                 "clEnqueueReadBuffer");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static char *read_kernels(const char *file) {
    char path[4096];
    size_t size;
    snprintf(path, sizeof path, "%s/%s", CLIENT_FOLDER, file);
    return client_read_file(path, &size);
}

cl_program client_program(const struct client *client, const char *file, clattn_dtype dtype) {
    char *sources[] = {read_kernels("element.clh"), read_kernels(file)};
    cl_int code;
    cl_program program = clCreateProgramWithSource(client->context, 2, (const char **)sources, NULL, &code);
    client_check(code, "clCreateProgramWithSource");
    code = clBuildProgram(program, 1, &client->device, dtype == CLATTN_F16 ? "-DHALF=1" : "-DHALF=0", NULL, NULL);
    if (code != CL_SUCCESS) {
        static char log[1 << 16];
        clGetProgramBuildInfo(program, client->device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        client_fail("%s does not compile (%d): %s", file, (int)code, log);
    }
    free(sources[0]);
    free(sources[1]);
    return program;
}

cl_kernel client_kernel(cl_program program, const char *name) {
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, name, &code);
    client_check(code, name);
    return kernel;
}

void client_argument(cl_kernel kernel, cl_uint *index, size_t size, const void *value) {
    client_check(clSetKernelArg(kernel, (*index)++, size, value), "clSetKernelArg");
}

void client_launch(const struct client *client, cl_kernel kernel, size_t columns, size_t rows, size_t group) {
    const size_t size[] = {columns, rows}, group_size[] = {group, 1};
    client_check(
        clEnqueueNDRangeKernel(client->queue, kernel, 2, NULL, size, group > 0 ? group_size : NULL, 0, NULL, NULL),
        "clEnqueueNDRangeKernel");
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* The old buffer lives on until the calls that use it are done. */
static void grow_workspace(struct client *client, size_t bytes) {
    if (bytes <= client->workspace.size)
        return;
    if (client->workspace.buffer != NULL)
        clReleaseMemObject(client->workspace.buffer);
    client->workspace.buffer = client_buffer(client, bytes, NULL);
    client->workspace.size = bytes;
}

void client_call(struct client *client, const clattn_op *op) {
    clattn_launch launch;
    size_t bytes;
    clattn_launch_init(&launch, client->queue);
    client_check_call(clattn_workspace_size(client->clattn, op, &launch, &bytes), "clattn_workspace_size");
    grow_workspace(client, bytes);
    launch.workspace = client->workspace;
    client_check_call(clattn_enqueue(client->clattn, op, &launch), "clattn_enqueue");
}

clattn_tensor client_tensor(cl_mem buffer, clattn_dtype dtype, int64_t offset, int64_t rows, int64_t columns) {
    clattn_tensor tensor = clattn_tensor_dense(buffer, dtype, 2, (const int64_t[]){rows, columns});
    tensor.offset = offset;
    return tensor;
}

void client_product(struct client *client, clattn_tensor a, clattn_tensor b, clattn_tensor c, int accumulate) {
    clattn_gemm_op op;
    clattn_gemm_init(&op);
    op.a = a;
    op.b = b;
    op.c = c;
    op.transpose_b = 1;
    op.beta = accumulate ? 1 : 0;
    client_call(client, &op.head);
}
