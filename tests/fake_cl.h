/* An OpenCL driver for tests, linked in place of the loader: two invented devices, real object counting, no execution.
 * It can fail the n-th call or all calls of one function, records what is enqueued, and notices misuse (dead objects,
 * kernels shared by threads, an event inside its own wait list). Thread-safe. Calls go through the ordinary cl* names.
 */
#ifndef FAKE_CL_H
#define FAKE_CL_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

#define FAKE_DEVICES 2
#define FAKE_ARGUMENTS_MAX 64
#define FAKE_ARGUMENT_BYTES 1024
#define FAKE_WAITS_MAX 16
#define FAKE_OPTIONS_BYTES 1024

/* An answer to a vendor's own query. */
struct fake_answer {
    cl_device_info name;
    const void *data;
    size_t size; /* 0 ends a list */
};

/* What a device answers; tests may change it at any time. fake_reset() gives the defaults: a plain GPU. */
struct fake_device {
    const char *name, *vendor, *version, *driver, *extensions;
    cl_device_type type;
    cl_uint compute_units;
    size_t max_group, max_item[3];
    cl_ulong local_memory, global_memory, max_allocation;
    size_t kernel_max_group;           /* CL_KERNEL_WORK_GROUP_SIZE of every kernel */
    const struct fake_answer *answers; /* beyond those above; NULL: none */
    size_t kernel_required_group[3];   /* CL_KERNEL_COMPILE_WORK_GROUP_SIZE; 0: none */
};
extern struct fake_device fake_device[FAKE_DEVICES];

struct fake_command;

struct fake_settings {
    const char *platform_name, *platform_version;
    bool no_platform;
    bool no_build_log;    /* as drivers do that serve a build from a cache of their own */
    const char *assembly; /* the binary of every compiled program; NULL: the fake's own. Binaries that hold
                              * `assembles` are then built too */
    const char *assembles;
    unsigned build_delay_us; /* time that a build takes */
    unsigned builds_meet;    /* so many builds go on at once before the first ends; one that waits for long fails */
    void (*execute)(const struct fake_command *command); /* stands in for the device; NULL: kernels do nothing */
};
extern struct fake_settings fake_settings;

/* Defaults, no failures, no records, counters at 0. Objects that live on stay counted. */
void fake_reset(void);
cl_device_id fake_device_id(int index);

/* References held on all objects: 0 when nothing has leaked. */
long fake_live(void);
/* Rules of the API that were broken since the reset; prints each to stderr. */
int fake_misuse(void);

/* The nth call from now on (1 is the next) that may fail gives code; 0: none. */
void fake_fail_nth(int nth, cl_int code);
/* Has that failure happened? */
bool fake_has_failed(void);
/* All calls of one function, "clBuildProgram", give code; NULL: none. */
void fake_fail_function(const char *function, cl_int code);
/* How often a function was called since the reset. */
int fake_calls(const char *function);

enum fake_kind { FAKE_KERNEL, FAKE_MARKER, FAKE_BARRIER, FAKE_FILL, FAKE_COPY, FAKE_READ, FAKE_WRITE };

struct fake_argument {
    size_t size; /* 0: not set */
    bool null;   /* the value's pointer was NULL */
    unsigned char bytes[FAKE_ARGUMENT_BYTES];
};

struct fake_command {
    enum fake_kind kind;
    cl_command_queue queue;
    char kernel[64];
    char options[FAKE_OPTIONS_BYTES]; /* that its program was built with */
    cl_uint dims;
    size_t global[3], local[3];
    struct fake_argument argument[FAKE_ARGUMENTS_MAX];
    cl_uint waits;
    cl_event wait[FAKE_WAITS_MAX];
    cl_event event; /* NULL where none was asked for */
};

/* The memory of the buffer that is the command's n-th argument, and its size; NULL and 0 where there is none. */
void *fake_argument_bytes(const struct fake_command *command, int n);
size_t fake_argument_size(const struct fake_command *command, int n);

int fake_command_count(void);
const struct fake_command *fake_command(int index); /* in the order of enqueueing */
void fake_clear_commands(void);

#endif
