/* Status codes, the calling thread's error text and the names of OpenCL's own codes. The text lives in thread-local
 * storage, so that no call needs a lock or memory to report its failure. */
#include "status.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Long enough for a kernel's options and the first screens of a build log. */
#define TEXT_SIZE 8192

static _Thread_local char last_error[TEXT_SIZE];

const char *clattn_status_name(clattn_status status) {
    switch (status) {
    case CLATTN_SUCCESS:
        return "CLATTN_SUCCESS";
    case CLATTN_INVALID_ARGUMENT:
        return "CLATTN_INVALID_ARGUMENT";
    case CLATTN_UNSUPPORTED:
        return "CLATTN_UNSUPPORTED";
    case CLATTN_WORKSPACE_TOO_SMALL:
        return "CLATTN_WORKSPACE_TOO_SMALL";
    case CLATTN_OUT_OF_HOST_MEMORY:
        return "CLATTN_OUT_OF_HOST_MEMORY";
    case CLATTN_OUT_OF_DEVICE_MEMORY:
        return "CLATTN_OUT_OF_DEVICE_MEMORY";
    case CLATTN_BUILD_FAILED:
        return "CLATTN_BUILD_FAILED";
    case CLATTN_DEVICE_LOST:
        return "CLATTN_DEVICE_LOST";
    case CLATTN_OPENCL_ERROR:
        return "CLATTN_OPENCL_ERROR";
    case CLATTN_INTERNAL_ERROR:
        return "CLATTN_INTERNAL_ERROR";
    case CLATTN_PEER_FAILED:
        return "CLATTN_PEER_FAILED";
    }
    return "unknown clattn status";
}

const char *clattn_last_error(void) {
    return last_error;
}

#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *clattn_version(void) {
    return VERSION_TEXT(CLATTN_VERSION_MAJOR, CLATTN_VERSION_MINOR, CLATTN_VERSION_PATCH);
}

clattn_status status_set(clattn_status code, const char *format, ...) {
    char text[TEXT_SIZE]; /* an argument may be the old text, which a caller wraps */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_error, text, strlen(text) + 1);
    return code;
}

static const struct {
    cl_int code;
    const char *name;
} cl_names[] = {
#define NAME(code) \
    { code, #code }
    NAME(CL_SUCCESS),
    NAME(CL_DEVICE_NOT_FOUND),
    NAME(CL_DEVICE_NOT_AVAILABLE),
    NAME(CL_COMPILER_NOT_AVAILABLE),
    NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    NAME(CL_OUT_OF_RESOURCES),
    NAME(CL_OUT_OF_HOST_MEMORY),
    NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
    NAME(CL_MEM_COPY_OVERLAP),
    NAME(CL_IMAGE_FORMAT_MISMATCH),
    NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED),
    NAME(CL_BUILD_PROGRAM_FAILURE),
    NAME(CL_MAP_FAILURE),
    NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    NAME(CL_COMPILE_PROGRAM_FAILURE),
    NAME(CL_LINKER_NOT_AVAILABLE),
    NAME(CL_LINK_PROGRAM_FAILURE),
    NAME(CL_DEVICE_PARTITION_FAILED),
    NAME(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    NAME(CL_INVALID_VALUE),
    NAME(CL_INVALID_DEVICE_TYPE),
    NAME(CL_INVALID_PLATFORM),
    NAME(CL_INVALID_DEVICE),
    NAME(CL_INVALID_CONTEXT),
    NAME(CL_INVALID_QUEUE_PROPERTIES),
    NAME(CL_INVALID_COMMAND_QUEUE),
    NAME(CL_INVALID_HOST_PTR),
    NAME(CL_INVALID_MEM_OBJECT),
    NAME(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
    NAME(CL_INVALID_IMAGE_SIZE),
    NAME(CL_INVALID_SAMPLER),
    NAME(CL_INVALID_BINARY),
    NAME(CL_INVALID_BUILD_OPTIONS),
    NAME(CL_INVALID_PROGRAM),
    NAME(CL_INVALID_PROGRAM_EXECUTABLE),
    NAME(CL_INVALID_KERNEL_NAME),
    NAME(CL_INVALID_KERNEL_DEFINITION),
    NAME(CL_INVALID_KERNEL),
    NAME(CL_INVALID_ARG_INDEX),
    NAME(CL_INVALID_ARG_VALUE),
    NAME(CL_INVALID_ARG_SIZE),
    NAME(CL_INVALID_KERNEL_ARGS),
    NAME(CL_INVALID_WORK_DIMENSION),
    NAME(CL_INVALID_WORK_GROUP_SIZE),
    NAME(CL_INVALID_WORK_ITEM_SIZE),
    NAME(CL_INVALID_GLOBAL_OFFSET),
    NAME(CL_INVALID_EVENT_WAIT_LIST),
    NAME(CL_INVALID_EVENT),
    NAME(CL_INVALID_OPERATION),
    NAME(CL_INVALID_GL_OBJECT),
    NAME(CL_INVALID_BUFFER_SIZE),
    NAME(CL_INVALID_MIP_LEVEL),
    NAME(CL_INVALID_GLOBAL_WORK_SIZE),
    NAME(CL_INVALID_PROPERTY),
    NAME(CL_INVALID_IMAGE_DESCRIPTOR),
    NAME(CL_INVALID_COMPILER_OPTIONS),
    NAME(CL_INVALID_LINKER_OPTIONS),
    NAME(CL_INVALID_DEVICE_PARTITION_COUNT),
#undef NAME
    /* Newer than the version of the API that the host code is written to. */
    {-69, "CL_INVALID_PIPE_SIZE"},
    {-70, "CL_INVALID_DEVICE_QUEUE"},
    {-71, "CL_INVALID_SPEC_ID"},
    {-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    /* Not in the specification: what a driver gives for an access fault or a dead context. */
    {-9999, "driver-internal error"},
};

const char *status_cl_name(cl_int code) {
    for (size_t i = 0; i < sizeof cl_names / sizeof cl_names[0]; i++)
        if (cl_names[i].code == code)
            return cl_names[i].name;
    return "unknown OpenCL error";
}

static clattn_status status_of(cl_int code) {
    switch (code) {
    case CL_SUCCESS:
        return CLATTN_SUCCESS;
    case CL_OUT_OF_HOST_MEMORY:
        return CLATTN_OUT_OF_HOST_MEMORY;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
        return CLATTN_OUT_OF_DEVICE_MEMORY;
    case CL_COMPILER_NOT_AVAILABLE:
    case CL_BUILD_PROGRAM_FAILURE:
    case CL_COMPILE_PROGRAM_FAILURE:
    case CL_LINKER_NOT_AVAILABLE:
    case CL_LINK_PROGRAM_FAILURE:
    case CL_INVALID_BUILD_OPTIONS:
    case CL_INVALID_COMPILER_OPTIONS:
    case CL_INVALID_LINKER_OPTIONS:
        return CLATTN_BUILD_FAILED;
    case CL_DEVICE_NOT_AVAILABLE:
    case -9999:
        return CLATTN_DEVICE_LOST;
    default:
        return CLATTN_OPENCL_ERROR;
    }
}

clattn_status status_from_cl(cl_int code, const char *what) {
    if (code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    return status_set(status_of(code), "%s: %s (%d)", what, status_cl_name(code), (int)code);
}
