/* One OpenCL device, opened for use: context, profiling queue and clattn context. */
#ifndef TOOLS_MACHINE_H
#define TOOLS_MACHINE_H

#include <clattn/clattn.h>
#include <stdbool.h>

#define MACHINE_MAX_DEVICES 64

struct device_entry {
    cl_platform_id platform;
    cl_device_id device;
    cl_device_type type;
    char name[128], platform_name[128];
};

/* Every device of every platform, in the order of `clattn info`. */
size_t machine_list(struct device_entry entries[MACHINE_MAX_DEVICES]);

/* wanted: NULL, an index into the list, or a part of a name. Complains and returns an exit code where there is none. */
int machine_find(const char *wanted, struct device_entry *out);

struct machine {
    struct device_entry entry;
    cl_context context;
    cl_command_queue queue; /* in order, profiling */
    clattn_context *clattn;
    uint64_t memory, largest_buffer, cache_bytes;
};

int machine_open(const char *wanted, struct machine *out);
int machine_open_entry(const struct device_entry *entry, struct machine *out);
/* With this tuning database and no program cache; "": no rows of the user, NULL: the user's database and cache. */
int machine_open_tuned(const struct device_entry *entry, const char *tuning_db, struct machine *out);
/* A further context of the library on the machine's OpenCL context, for the caller to release. */
int machine_new_context(const struct machine *machine, const char *tuning_db, clattn_context **out);
void machine_close(struct machine *machine);

/* NULL where memory is short. */
cl_mem machine_buffer(const struct machine *machine, size_t bytes);

/* Complains "<what>: <last error>"; the exit code that suits the status. */
int complain_status(clattn_status status, const char *what);

#endif
