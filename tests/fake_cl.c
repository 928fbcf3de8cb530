/* The fake driver's core: objects, counting, failure injection; contexts, queues, buffers. */
#include "fake_cl_core.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_MAX 96

struct fake_device fake_device[FAKE_DEVICES];
struct fake_settings fake_settings;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct object *living;
static int misuse;
static int countdown;
static cl_int countdown_code, function_code;
static bool failed;
static const char *failing_function;
static struct {
    const char *name;
    int calls;
} functions[FUNCTIONS_MAX];

void fake_lock(void) {
    pthread_mutex_lock(&mutex);
}

void fake_unlock(void) {
    pthread_mutex_unlock(&mutex);
}

void fake_reset(void) {
    for (int i = 0; i < FAKE_DEVICES; i++)
        fake_device[i] = (struct fake_device){
            .name = i == 0 ? "Fake Device" : "Other Device",
            .vendor = "Fake Vendor",
            .version = "OpenCL 1.2 fake",
            .driver = "1.0",
            .extensions = "cl_khr_byte_addressable_store",
            .type = CL_DEVICE_TYPE_GPU,
            .compute_units = 4,
            .max_group = 256,
            .max_item = {256, 256, 64},
            .local_memory = 32768,
            .global_memory = UINT64_C(1) << 30,
            .max_allocation = UINT64_C(1) << 28,
            .kernel_max_group = 256,
        };
    fake_settings = (struct fake_settings){.platform_name = "Fake Platform", .platform_version = "OpenCL 1.2 fake 1"};
    memset(functions, 0, sizeof functions);
    misuse = countdown = 0;
    failed = false;
    failing_function = NULL;
    fake_clear_commands();
}

cl_device_id fake_device_id(int index) {
    return (cl_device_id)&fake_device[index];
}

/* ---- failures -----------------------------------------------------------------------------------------------------
 */

void fake_fail_nth(int nth, cl_int code) {
    fake_lock();
    countdown = nth;
    countdown_code = code;
    failed = false;
    fake_unlock();
}

bool fake_has_failed(void) {
    return failed;
}

void fake_fail_function(const char *function, cl_int code) {
    fake_lock();
    failing_function = function;
    function_code = code;
    fake_unlock();
}

static int *calls_of(const char *function) {
    int i = 0;
    while (i < FUNCTIONS_MAX - 1 && functions[i].name != NULL && strcmp(functions[i].name, function) != 0)
        i++;
    functions[i].name = function;
    return &functions[i].calls;
}

int fake_calls(const char *function) {
    fake_lock();
    const int calls = *calls_of(function);
    fake_unlock();
    return calls;
}

cl_int fake_enter(const char *function) {
    cl_int code = CL_SUCCESS;
    fake_lock();
    ++*calls_of(function);
    if (countdown > 0 && --countdown == 0) {
        code = countdown_code;
        failed = true;
    } else if (failing_function != NULL && strcmp(failing_function, function) == 0) {
        code = function_code;
    }
    fake_unlock();
    return code;
}

/* ---- objects ------------------------------------------------------------------------------------------------------
 */

void fake_report(const char *what) {
    fprintf(stderr, "fake driver: %s\n", what);
    fake_lock();
    misuse++;
    fake_unlock();
}

int fake_misuse(void) {
    return misuse;
}

long fake_live(void) {
    long references = 0;
    fake_lock();
    for (const struct object *object = living; object != NULL; object = object->next)
        references += object->references;
    fake_unlock();
    return references;
}

struct object *fake_create(enum object_type type) {
    struct object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return NULL;
    object->type = type;
    object->references = 1;
    fake_lock();
    object->next = living;
    if (living != NULL)
        living->previous = object;
    living = object;
    fake_unlock();
    return object;
}

/* The lock is held. */
static struct object *find(const void *handle, enum object_type type) {
    for (struct object *object = living; object != NULL; object = object->next)
        if (object == handle)
            return object->type == type ? object : NULL;
    return NULL;
}

bool fake_is(const void *handle, enum object_type type) {
    fake_lock();
    const bool found = find(handle, type) != NULL;
    fake_unlock();
    return found;
}

cl_int fake_retain(const char *function, void *handle, enum object_type type, cl_int invalid) {
    fake_lock();
    struct object *object = find(handle, type);
    if (object != NULL)
        object->references++;
    fake_unlock();
    if (object == NULL)
        fake_report(function);
    return object != NULL ? CL_SUCCESS : invalid;
}

static void unlink_object(struct object *object) {
    if (object->previous != NULL)
        object->previous->next = object->next;
    else
        living = object->next;
    if (object->next != NULL)
        object->next->previous = object->previous;
}

cl_int fake_release(const char *function, void *handle, enum object_type type, cl_int invalid) {
    fake_lock();
    struct object *object = find(handle, type);
    const bool dead = object != NULL && --object->references == 0;
    if (dead)
        unlink_object(object);
    fake_unlock();
    if (object == NULL) {
        fake_report(function);
        return invalid;
    }
    if (dead) {
        free(object->bytes);
        free(object->source);
        free(object->built);
        free(object);
    }
    return CL_SUCCESS;
}

#define LIFETIME(noun, handle_type, type, invalid)                     \
    cl_int clRetain##noun(handle_type handle) {                        \
        return fake_retain("clRetain" #noun, handle, type, invalid);   \
    }                                                                  \
    cl_int clRelease##noun(handle_type handle) {                       \
        return fake_release("clRelease" #noun, handle, type, invalid); \
    }
LIFETIME(Context, cl_context, OBJECT_CONTEXT, CL_INVALID_CONTEXT)
LIFETIME(CommandQueue, cl_command_queue, OBJECT_QUEUE, CL_INVALID_COMMAND_QUEUE)
LIFETIME(MemObject, cl_mem, OBJECT_BUFFER, CL_INVALID_MEM_OBJECT)
LIFETIME(Program, cl_program, OBJECT_PROGRAM, CL_INVALID_PROGRAM)
LIFETIME(Kernel, cl_kernel, OBJECT_KERNEL, CL_INVALID_KERNEL)
LIFETIME(Event, cl_event, OBJECT_EVENT, CL_INVALID_EVENT)

/* Root devices are not counted by OpenCL. */
cl_int clRetainDevice(cl_device_id device) {
    return device != NULL ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int clReleaseDevice(cl_device_id device) {
    return device != NULL ? CL_SUCCESS : CL_INVALID_DEVICE;
}

/* ---- contexts, queues, buffers ------------------------------------------------------------------------------------
 */

static void *fail(cl_int *code_ret, cl_int code) {
    if (code_ret != NULL)
        *code_ret = code;
    return NULL;
}

static void succeed(cl_int *code_ret) {
    if (code_ret != NULL)
        *code_ret = CL_SUCCESS;
}

cl_context clCreateContext(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
                           cl_int *code_ret) {
    (void)properties, (void)notify, (void)user;
    const cl_int code = fake_enter("clCreateContext");
    if (code != CL_SUCCESS || count < 1 || count > FAKE_DEVICES)
        return fail(code_ret, code != CL_SUCCESS ? code : CL_INVALID_VALUE);
    struct object *context = fake_create(OBJECT_CONTEXT);
    context->device_count = count;
    memcpy(context->devices, devices, count * sizeof *devices);
    succeed(code_ret);
    return (cl_context)context;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
                                      cl_int *code_ret) {
    const cl_int code = fake_enter("clCreateCommandQueue");
    if (code != CL_SUCCESS || !fake_is(context, OBJECT_CONTEXT))
        return fail(code_ret, code != CL_SUCCESS ? code : CL_INVALID_CONTEXT);
    struct object *queue = fake_create(OBJECT_QUEUE);
    queue->context = context;
    queue->devices[0] = device;
    queue->properties = properties;
    succeed(code_ret);
    return (cl_command_queue)queue;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code_ret) {
    cl_int code = fake_enter("clCreateBuffer");
    if (code == CL_SUCCESS && !fake_is(context, OBJECT_CONTEXT))
        code = CL_INVALID_CONTEXT;
    if (code == CL_SUCCESS && size == 0)
        code = CL_INVALID_BUFFER_SIZE;
    if (code != CL_SUCCESS)
        return fail(code_ret, code);
    struct object *buffer = fake_create(OBJECT_BUFFER);
    buffer->context = context;
    buffer->size = size;
    buffer->bytes = calloc(size, 1);
    buffer->host = (flags & CL_MEM_USE_HOST_PTR) != 0 ? host : NULL;
    if (host != NULL && (flags & (CL_MEM_COPY_HOST_PTR | CL_MEM_USE_HOST_PTR)) != 0)
        memcpy(buffer->bytes, host, size);
    succeed(code_ret);
    return (cl_mem)buffer;
}

/* Children have no bytes of their own. */
cl_mem clCreateSubBuffer(cl_mem parent, cl_mem_flags flags, cl_buffer_create_type type, const void *info,
                         cl_int *code_ret) {
    (void)flags, (void)type;
    const cl_int code = fake_enter("clCreateSubBuffer");
    if (code != CL_SUCCESS || !fake_is(parent, OBJECT_BUFFER))
        return fail(code_ret, code != CL_SUCCESS ? code : CL_INVALID_MEM_OBJECT);
    const cl_buffer_region *region = info;
    struct object *child = fake_create(OBJECT_BUFFER);
    child->context = ((const struct object *)parent)->context;
    child->parent = parent;
    child->origin = region->origin;
    child->size = region->size;
    succeed(code_ret);
    return (cl_mem)child;
}
