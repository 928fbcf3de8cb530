/* The fake driver's answers about platforms, devices and objects. */
#include "fake_cl_core.h"
#include <string.h>

cl_int fake_give(const void *data, size_t data_size, size_t size, void *value, size_t *size_ret) {
    if (size_ret != NULL)
        *size_ret = data_size;
    if (value == NULL)
        return CL_SUCCESS;
    if (size < data_size)
        return CL_INVALID_VALUE;
    memcpy(value, data, data_size);
    return CL_SUCCESS;
}

cl_int fake_give_text(const char *text, size_t size, void *value, size_t *size_ret) {
    return fake_give(text, strlen(text) + 1, size, value, size_ret);
}

#define GIVE(expression) return fake_give(&(expression), sizeof(expression), size, value, size_ret)
#define GIVE_TEXT(text) return fake_give_text((text), size, value, size_ret)

/* ---- platforms and devices ----------------------------------------------------------------------------------------
 */

static const char platform_object;

cl_int clGetPlatformIDs(cl_uint entries, cl_platform_id *platforms, cl_uint *count) {
    ENTER(clGetPlatformIDs);
    if (fake_settings.no_platform)
        return -1001;
    if (entries > 0 && platforms != NULL)
        platforms[0] = (cl_platform_id)(uintptr_t)&platform_object;
    if (count != NULL)
        *count = 1;
    return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info name, size_t size, void *value, size_t *size_ret) {
    ENTER(clGetPlatformInfo);
    if ((const void *)platform != &platform_object)
        return CL_INVALID_PLATFORM;
    switch (name) {
    case CL_PLATFORM_NAME:
    case CL_PLATFORM_VENDOR:
        GIVE_TEXT(fake_settings.platform_name);
    case CL_PLATFORM_VERSION:
        GIVE_TEXT(fake_settings.platform_version);
    case CL_PLATFORM_EXTENSIONS:
        GIVE_TEXT("");
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint entries, cl_device_id *devices,
                      cl_uint *count) {
    (void)platform;
    ENTER(clGetDeviceIDs);
    cl_uint found = 0;
    for (int i = 0; i < FAKE_DEVICES; i++) {
        if ((fake_device[i].type & type) == 0)
            continue;
        if (found < entries && devices != NULL)
            devices[found] = fake_device_id(i);
        found++;
    }
    if (count != NULL)
        *count = found;
    return found > 0 ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

static cl_int device_answer(const struct fake_device *device, cl_device_info name, size_t size, void *value,
                            size_t *size_ret) {
    for (const struct fake_answer *answer = device->answers; answer != NULL && answer->size > 0; answer++)
        if (answer->name == name)
            return fake_give(answer->data, answer->size, size, value, size_ret);
    return CL_INVALID_VALUE;
}

static cl_int device_text(const struct fake_device *device, cl_device_info name, size_t size, void *value,
                          size_t *size_ret) {
    switch (name) {
    case CL_DEVICE_NAME:
        GIVE_TEXT(device->name);
    case CL_DEVICE_VENDOR:
        GIVE_TEXT(device->vendor);
    case CL_DEVICE_VERSION:
        GIVE_TEXT(device->version);
    case CL_DEVICE_OPENCL_C_VERSION:
        GIVE_TEXT("OpenCL C 1.2 fake");
    case CL_DRIVER_VERSION:
        GIVE_TEXT(device->driver);
    case CL_DEVICE_EXTENSIONS:
        GIVE_TEXT(device->extensions);
    default:
        return device_answer(device, name, size, value, size_ret);
    }
}

cl_int clGetDeviceInfo(cl_device_id id, cl_device_info name, size_t size, void *value, size_t *size_ret) {
    ENTER(clGetDeviceInfo);
    const struct fake_device *device = (const struct fake_device *)id;
    if (device != &fake_device[0] && device != &fake_device[1])
        return CL_INVALID_DEVICE;
    const cl_platform_id platform = (cl_platform_id)(uintptr_t)&platform_object;
    const cl_bool yes = CL_TRUE;
    const cl_uint dimensions = 3, bits = 64;
    switch (name) {
    case CL_DEVICE_PLATFORM:
        GIVE(platform);
    case CL_DEVICE_TYPE:
        GIVE(device->type);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        GIVE(device->compute_units);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        GIVE(device->max_group);
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
        GIVE(dimensions);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        GIVE(device->max_item);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        GIVE(device->local_memory);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        GIVE(device->global_memory);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        GIVE(device->max_allocation);
    case CL_DEVICE_ADDRESS_BITS:
        GIVE(bits);
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_ENDIAN_LITTLE:
        GIVE(yes);
    default:
        return device_text(device, name, size, value, size_ret);
    }
}

/* ---- objects ------------------------------------------------------------------------------------------------------
 */

cl_int clGetContextInfo(cl_context handle, cl_context_info name, size_t size, void *value, size_t *size_ret) {
    ENTER(clGetContextInfo);
    if (!fake_is(handle, OBJECT_CONTEXT))
        return CL_INVALID_CONTEXT;
    const struct object *context = (const struct object *)handle;
    if (name == CL_CONTEXT_DEVICES)
        return fake_give(context->devices, context->device_count * sizeof(cl_device_id), size, value, size_ret);
    if (name == CL_CONTEXT_NUM_DEVICES)
        GIVE(context->device_count);
    return CL_INVALID_VALUE;
}

cl_int clGetCommandQueueInfo(cl_command_queue handle, cl_command_queue_info name, size_t size, void *value,
                             size_t *size_ret) {
    ENTER(clGetCommandQueueInfo);
    if (!fake_is(handle, OBJECT_QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    const struct object *queue = (const struct object *)handle;
    switch (name) {
    case CL_QUEUE_CONTEXT:
        GIVE(queue->context);
    case CL_QUEUE_DEVICE:
        GIVE(queue->devices[0]);
    case CL_QUEUE_PROPERTIES:
        GIVE(queue->properties);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetMemObjectInfo(cl_mem handle, cl_mem_info name, size_t size, void *value, size_t *size_ret) {
    ENTER(clGetMemObjectInfo);
    if (!fake_is(handle, OBJECT_BUFFER))
        return CL_INVALID_MEM_OBJECT;
    const struct object *buffer = (const struct object *)handle;
    const cl_mem_object_type type = CL_MEM_OBJECT_BUFFER;
    switch (name) {
    case CL_MEM_TYPE:
        GIVE(type);
    case CL_MEM_SIZE:
        GIVE(buffer->size);
    case CL_MEM_CONTEXT:
        GIVE(buffer->context);
    case CL_MEM_ASSOCIATED_MEMOBJECT:
        GIVE(buffer->parent);
    case CL_MEM_OFFSET:
        GIVE(buffer->origin);
    case CL_MEM_HOST_PTR:
        GIVE(buffer->host);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetEventInfo(cl_event handle, cl_event_info name, size_t size, void *value, size_t *size_ret) {
    ENTER(clGetEventInfo);
    if (!fake_is(handle, OBJECT_EVENT))
        return CL_INVALID_EVENT;
    const cl_int complete = CL_COMPLETE;
    if (name == CL_EVENT_COMMAND_EXECUTION_STATUS)
        GIVE(complete);
    return CL_INVALID_VALUE;
}
