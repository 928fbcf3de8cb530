/* Finds and opens devices. The library's log goes to stderr here: the library itself never prints. */
#include "machine.h"
#include "command.h"
#include "settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void add_platform(cl_platform_id platform, struct device_entry *entries, size_t *count) {
    cl_device_id devices[MACHINE_MAX_DEVICES];
    cl_uint found = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MACHINE_MAX_DEVICES, devices, &found) != CL_SUCCESS)
        return;
    for (cl_uint i = 0; i < found && i < MACHINE_MAX_DEVICES && *count < MACHINE_MAX_DEVICES; i++) {
        struct device_entry *entry = &entries[(*count)++];
        *entry = (struct device_entry){.platform = platform, .device = devices[i]};
        clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof entry->name - 1, entry->name, NULL);
        clGetDeviceInfo(devices[i], CL_DEVICE_TYPE, sizeof entry->type, &entry->type, NULL);
        clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof entry->platform_name - 1, entry->platform_name, NULL);
    }
}

size_t machine_list(struct device_entry entries[MACHINE_MAX_DEVICES]) {
    cl_platform_id platforms[16];
    cl_uint found = 0;
    size_t count = 0;
    if (clGetPlatformIDs(16, platforms, &found) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < found && p < 16; p++)
        add_platform(platforms[p], entries, &count);
    return count;
}

static bool holds(const char *text, const char *part) {
    const size_t length = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
    }
    return false;
}

static const struct device_entry *choose(const struct device_entry *entries, size_t count, const char *wanted) {
    int64_t index;
    if (wanted && parse_integer(wanted, &index))
        return index >= 0 && (size_t)index < count ? &entries[index] : NULL;
    for (size_t i = 0; i < count; i++)
        if (wanted ? holds(entries[i].name, wanted) : entries[i].type & CL_DEVICE_TYPE_GPU)
            return &entries[i];
    for (size_t i = 0; wanted && i < count; i++)
        if (holds(entries[i].platform_name, wanted))
            return &entries[i];
    return wanted ? NULL : &entries[0];
}

int machine_find(const char *wanted, struct device_entry *out) {
    struct device_entry entries[MACHINE_MAX_DEVICES];
    const size_t count = machine_list(entries);
    if (count == 0)
        return complain(EXIT_UNSUPPORTED, "there is no OpenCL device");
    const struct device_entry *entry = choose(entries, count, wanted);
    if (!entry)
        return complain(EXIT_UNSUPPORTED, "no device '%s' among the %zu that 'clattn info' shows", wanted, count);
    *out = *entry;
    return EXIT_OK;
}

static void print_log(void *user, clattn_log_level level, const char *message) {
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    (void)user;
    fprintf(stderr, "clattn: %s: %s\n", names[level <= CLATTN_LOG_DEBUG ? level : 0], message);
}

int complain_status(clattn_status status, const char *what) {
    const int code = status == CLATTN_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_UNSUPPORTED;
    complain(EXIT_UNSUPPORTED, "%s: %s (%s)", what, clattn_last_error(), clattn_status_name(status));
    return code;
}

static int open_opencl(struct machine *machine) {
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)machine->entry.platform, 0};
    cl_int error;
    machine->context = clCreateContext(properties, 1, &machine->entry.device, NULL, NULL, &error);
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "%s: no context (OpenCL error %d)", machine->entry.name, error);
    machine->queue = clCreateCommandQueue(machine->context, machine->entry.device, CL_QUEUE_PROFILING_ENABLE, &error);
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "%s: no queue (OpenCL error %d)", machine->entry.name, error);
    return EXIT_OK;
}

static cl_ulong query(const struct machine *machine, cl_device_info what) {
    cl_ulong value = 0;
    clGetDeviceInfo(machine->entry.device, what, sizeof value, &value, NULL);
    return value;
}

int machine_new_context(const struct machine *machine, const char *tuning_db, clattn_context **out) {
    clattn_context_options options;
    clattn_context_options_init(&options);
    options.log = print_log;
    options.tuning_db = tuning_db;
    if (tuning_db)
        options.cache_dir = ""; /* what is only tried must not push out the programs that are in use */
    const clattn_status status = clattn_context_create(machine->context, machine->entry.device, &options, out);
    return status == CLATTN_SUCCESS ? EXIT_OK : complain_status(status, machine->entry.name);
}

int machine_open_tuned(const struct device_entry *entry, const char *tuning_db, struct machine *out) {
    *out = (struct machine){.entry = *entry};
    FORWARD(open_opencl(out));
    out->memory = query(out, CL_DEVICE_GLOBAL_MEM_SIZE);
    out->largest_buffer = query(out, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    out->cache_bytes = query(out, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    return machine_new_context(out, tuning_db, &out->clattn);
}

int machine_open_entry(const struct device_entry *entry, struct machine *out) {
    return machine_open_tuned(entry, NULL, out);
}

int machine_open(const char *wanted, struct machine *out) {
    struct device_entry entry;
    *out = (struct machine){.clattn = NULL};
    FORWARD(machine_find(wanted, &entry));
    return machine_open_entry(&entry, out);
}

void machine_close(struct machine *machine) {
    clattn_context_release(&machine->clattn);
    if (machine->queue)
        clReleaseCommandQueue(machine->queue);
    if (machine->context)
        clReleaseContext(machine->context);
    *machine = (struct machine){.clattn = NULL};
}

cl_mem machine_buffer(const struct machine *machine, size_t bytes) {
    cl_int error;
    const cl_mem buffer = clCreateBuffer(machine->context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &error);
    return error == CL_SUCCESS ? buffer : NULL;
}
