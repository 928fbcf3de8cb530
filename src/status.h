/* Status codes and the calling thread's error text. */
#ifndef CLATTN_STATUS_H
#define CLATTN_STATUS_H

#include <clattn/clattn.h>

/* Sets the thread's error text and returns code. */
clattn_status status_set(clattn_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The status an OpenCL code stands for; the text is "<what>: <CL_NAME> (<code>)". CL_SUCCESS gives CLATTN_SUCCESS. */
clattn_status status_from_cl(cl_int code, const char *what);

/* "CL_OUT_OF_RESOURCES"; "unknown OpenCL error" where there is no name. */
const char *status_cl_name(cl_int code);

#define RETURN_IF(condition, code, ...)             \
    do {                                            \
        if (condition)                              \
            return status_set((code), __VA_ARGS__); \
    } while (0)

#define FORWARD(call)                            \
    do {                                         \
        const clattn_status forwarded_ = (call); \
        if (forwarded_ != CLATTN_SUCCESS)        \
            return forwarded_;                   \
    } while (0)

#define FORWARD_CL(call, what)                         \
    do {                                               \
        const cl_int forwarded_ = (call);              \
        if (forwarded_ != CL_SUCCESS)                  \
            return status_from_cl(forwarded_, (what)); \
    } while (0)

#endif
