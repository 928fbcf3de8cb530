/* What the fake driver's files share. */
#ifndef FAKE_CL_CORE_H
#define FAKE_CL_CORE_H

#include "fake_cl.h"
#include <pthread.h>

enum object_type { OBJECT_CONTEXT, OBJECT_QUEUE, OBJECT_BUFFER, OBJECT_PROGRAM, OBJECT_KERNEL, OBJECT_EVENT };

/* Every handle points to one of these. */
struct object {
    struct object *previous, *next; /* of the list of living ones */
    enum object_type type;
    long references;
    /* context and program */
    cl_context context;
    cl_device_id devices[FAKE_DEVICES];
    cl_uint device_count;
    /* queue */
    cl_command_queue_properties properties;
    /* buffer */
    size_t size, origin;
    cl_mem parent;
    unsigned char *bytes;
    void *host; /* with CL_MEM_USE_HOST_PTR; used as an address only */
    /* program: text is "options\nsource" once built, the source before */
    char *source, *built;
    cl_device_id built_for;
    bool from_binary;
    /* kernel, and its program's options */
    char name[64];
    char options[FAKE_OPTIONS_BYTES];
    struct fake_argument argument[FAKE_ARGUMENTS_MAX];
    bool claimed; /* arguments are being set by the owner */
    pthread_t owner;
};

/* Counts the call; the code that it has to fail with, or CL_SUCCESS. */
cl_int fake_enter(const char *function);
void fake_lock(void);
void fake_unlock(void);
void fake_report(const char *what);

/* NULL where memory is short. The lock is not held for these. */
struct object *fake_create(enum object_type type);
bool fake_is(const void *handle, enum object_type type);
cl_int fake_retain(const char *function, void *handle, enum object_type type, cl_int invalid);
cl_int fake_release(const char *function, void *handle, enum object_type type, cl_int invalid);

/* The way of all clGet*Info functions. */
cl_int fake_give(const void *data, size_t data_size, size_t size, void *value, size_t *size_ret);
cl_int fake_give_text(const char *text, size_t size, void *value, size_t *size_ret);

#define ENTER(function)                                \
    do {                                               \
        const cl_int failure_ = fake_enter(#function); \
        if (failure_ != CL_SUCCESS)                    \
            return failure_;                           \
    } while (0)

#endif
