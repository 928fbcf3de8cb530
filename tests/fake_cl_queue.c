/* The fake driver's queues: commands are recorded and count as complete at once. Reads, writes, fills and copies of
 * whole buffers move real bytes. */
#include "fake_cl_core.h"
#include <stdlib.h>
#include <string.h>

static struct fake_command *commands;
static int count, capacity;

void fake_clear_commands(void) {
    free(commands);
    commands = NULL;
    count = capacity = 0;
}

int fake_command_count(void) {
    return count;
}

const struct fake_command *fake_command(int index) {
    return &commands[index];
}

static void check_waits(cl_uint waits, const cl_event *list, const cl_event *event) {
    if ((waits == 0) != (list == NULL) || waits > FAKE_WAITS_MAX)
        fake_report("wait list and its length contradict each other");
    for (cl_uint i = 0; list != NULL && i < waits; i++) {
        if (!fake_is(list[i], OBJECT_EVENT))
            fake_report("a dead event in a wait list");
        if (event == &list[i])
            fake_report("a command's event lies in its wait list");
    }
}

static cl_int record(struct fake_command *command, cl_command_queue queue, cl_uint waits, const cl_event *list,
                     cl_event *event) {
    if (!fake_is(queue, OBJECT_QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    check_waits(waits, list, event);
    command->queue = queue;
    command->waits = waits;
    if (list != NULL && waits <= FAKE_WAITS_MAX)
        memcpy(command->wait, list, waits * sizeof *list);
    if (event != NULL)
        *event = command->event = (cl_event)fake_create(OBJECT_EVENT);
    fake_lock();
    if (count == capacity) {
        capacity = 2 * capacity + 64;
        commands = realloc(commands, (size_t)capacity * sizeof *commands);
    }
    commands[count++] = *command;
    fake_unlock();
    return CL_SUCCESS;
}

/* A failed command may leave anything where its event was to be. */
static cl_int enter(const char *function, cl_event *event) {
    const cl_int code = fake_enter(function);
    if (code != CL_SUCCESS && event != NULL)
        *event = (cl_event)(uintptr_t)0xdead;
    return code;
}

static cl_int enqueue(const char *function, enum fake_kind kind, cl_command_queue queue, cl_uint waits,
                      const cl_event *list, cl_event *event) {
    const cl_int code = enter(function, event);
    struct fake_command command = {.kind = kind};
    return code != CL_SUCCESS ? code : record(&command, queue, waits, list, event);
}

/* The rules of OpenCL 1.2, which has no partial work-groups. */
static cl_int check_range(cl_command_queue queue, cl_uint dims, const size_t *global, const size_t *local) {
    const struct fake_device *device = (const struct fake_device *)((const struct object *)queue)->devices[0];
    size_t items = 1;
    for (cl_uint i = 0; i < dims; i++) {
        if (global[i] == 0 || global[i] % local[i] != 0)
            return CL_INVALID_WORK_GROUP_SIZE;
        items *= local[i];
    }
    return items > device->kernel_max_group ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel handle, cl_uint dims, const size_t *offset,
                              const size_t *global, const size_t *local, cl_uint waits, const cl_event *list,
                              cl_event *event) {
    (void)offset;
    cl_int code = enter("clEnqueueNDRangeKernel", event);
    if (code != CL_SUCCESS)
        return code;
    if (!fake_is(handle, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    if (!fake_is(queue, OBJECT_QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    struct object *kernel = (struct object *)handle;
    code = check_range(queue, dims, global, local);
    if (code != CL_SUCCESS)
        return code;
    struct fake_command command = {.kind = FAKE_KERNEL, .dims = dims};
    memcpy(command.kernel, kernel->name, sizeof command.kernel);
    memcpy(command.options, kernel->options, sizeof command.options);
    memcpy(command.global, global, dims * sizeof *global);
    memcpy(command.local, local, dims * sizeof *local);
    memcpy(command.argument, kernel->argument, sizeof command.argument);
    fake_lock();
    kernel->claimed = false;
    fake_unlock();
    if (fake_settings.execute != NULL)
        fake_settings.execute(&command);
    return record(&command, queue, waits, list, event);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint waits, const cl_event *list, cl_event *event) {
    return enqueue("clEnqueueMarkerWithWaitList", FAKE_MARKER, queue, waits, list, event);
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint waits, const cl_event *list, cl_event *event) {
    return enqueue("clEnqueueBarrierWithWaitList", FAKE_BARRIER, queue, waits, list, event);
}

/* ---- memory -------------------------------------------------------------------------------------------------------
 */

/* Where a buffer's byte lies; NULL where the range leaves it. */
static unsigned char *bytes_of(cl_mem handle, size_t offset, size_t size) {
    if (!fake_is(handle, OBJECT_BUFFER))
        return NULL;
    const struct object *buffer = (const struct object *)handle;
    if (offset > buffer->size || size > buffer->size - offset)
        return NULL;
    if (buffer->parent != NULL)
        return ((const struct object *)buffer->parent)->bytes + buffer->origin + offset;
    return buffer->bytes + offset;
}

void *fake_argument_bytes(const struct fake_command *command, int n) {
    cl_mem buffer = NULL;
    memcpy(&buffer, command->argument[n].bytes, sizeof buffer);
    return bytes_of(buffer, 0, 0);
}

size_t fake_argument_size(const struct fake_command *command, int n) {
    const struct object *buffer = NULL;
    if (command->argument[n].size != sizeof buffer)
        return 0;
    memcpy(&buffer, command->argument[n].bytes, sizeof buffer);
    return fake_is(buffer, OBJECT_BUFFER) ? buffer->size : 0;
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                           void *data, cl_uint waits, const cl_event *list, cl_event *event) {
    (void)blocking;
    const unsigned char *bytes = bytes_of(buffer, offset, size);
    if (bytes == NULL)
        return CL_INVALID_VALUE;
    const cl_int code = enqueue("clEnqueueReadBuffer", FAKE_READ, queue, waits, list, event);
    if (code == CL_SUCCESS)
        memcpy(data, bytes, size);
    return code;
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                            const void *data, cl_uint waits, const cl_event *list, cl_event *event) {
    (void)blocking;
    unsigned char *bytes = bytes_of(buffer, offset, size);
    if (bytes == NULL)
        return CL_INVALID_VALUE;
    const cl_int code = enqueue("clEnqueueWriteBuffer", FAKE_WRITE, queue, waits, list, event);
    if (code == CL_SUCCESS)
        memcpy(bytes, data, size);
    return code;
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size,
                           size_t offset, size_t size, cl_uint waits, const cl_event *list, cl_event *event) {
    unsigned char *bytes = bytes_of(buffer, offset, size);
    if (bytes == NULL || pattern_size == 0 || offset % pattern_size != 0 || size % pattern_size != 0)
        return CL_INVALID_VALUE;
    const cl_int code = enqueue("clEnqueueFillBuffer", FAKE_FILL, queue, waits, list, event);
    for (size_t at = 0; code == CL_SUCCESS && at < size; at += pattern_size)
        memcpy(bytes + at, pattern, pattern_size);
    return code;
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
                           size_t size, cl_uint waits, const cl_event *list, cl_event *event) {
    const unsigned char *source = bytes_of(from, from_offset, size);
    unsigned char *target = bytes_of(to, to_offset, size);
    if (source == NULL || target == NULL)
        return CL_INVALID_VALUE;
    const cl_int code = enqueue("clEnqueueCopyBuffer", FAKE_COPY, queue, waits, list, event);
    if (code == CL_SUCCESS)
        memmove(target, source, size);
    return code;
}

cl_int clFinish(cl_command_queue queue) {
    ENTER(clFinish);
    return fake_is(queue, OBJECT_QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int clFlush(cl_command_queue queue) {
    ENTER(clFlush);
    return fake_is(queue, OBJECT_QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int clWaitForEvents(cl_uint waits, const cl_event *list) {
    ENTER(clWaitForEvents);
    for (cl_uint i = 0; i < waits; i++)
        if (!fake_is(list[i], OBJECT_EVENT))
            return CL_INVALID_EVENT;
    return CL_SUCCESS;
}
