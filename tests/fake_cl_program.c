/* The fake driver's programs and kernels. A source with "#error" does not build; a kernel exists where the source holds
 * "void <name>(" with any blanks; a binary is a mark, the options and the source, and only its build tells whether it
 * is valid.
 */
#include "fake_cl_core.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BINARY_MARK "FAKE BINARY\n"
#define BUILD_LOG "fake.cl:1: error: the source says so"

static cl_program fail(cl_int *code_ret, cl_int code) {
    *code_ret = code;
    return NULL;
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings, const size_t *lengths,
                                     cl_int *code_ret) {
    cl_int code = fake_enter("clCreateProgramWithSource");
    if (code == CL_SUCCESS && (!fake_is(context, OBJECT_CONTEXT) || count != 1))
        code = CL_INVALID_VALUE;
    if (code != CL_SUCCESS)
        return fail(code_ret, code);
    struct object *program = fake_create(OBJECT_PROGRAM);
    const struct object *owner = (const struct object *)context;
    program->context = context;
    program->device_count = owner->device_count;
    memcpy(program->devices, owner->devices, sizeof program->devices);
    program->source = strndup(strings[0], lengths != NULL ? lengths[0] : strlen(strings[0]));
    *code_ret = CL_SUCCESS;
    return (cl_program)program;
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                     const size_t *lengths, const unsigned char **binaries, cl_int *statuses,
                                     cl_int *code_ret) {
    cl_int code = fake_enter("clCreateProgramWithBinary");
    if (code == CL_SUCCESS && (!fake_is(context, OBJECT_CONTEXT) || count != 1))
        code = CL_INVALID_VALUE;
    if (code != CL_SUCCESS)
        return fail(code_ret, code);
    struct object *program = fake_create(OBJECT_PROGRAM);
    program->context = context;
    program->device_count = 1;
    program->devices[0] = devices[0];
    program->source = strndup((const char *)binaries[0], lengths[0]);
    program->from_binary = true;
    statuses[0] = *code_ret = CL_SUCCESS;
    return (cl_program)program;
}

static cl_int compile(struct object *program, const char *options) {
    if (program->from_binary) {
        const char *assembles = fake_settings.assembly != NULL ? fake_settings.assembles : NULL;
        if (strncmp(program->source, BINARY_MARK, sizeof BINARY_MARK - 1) != 0 &&
            (assembles == NULL || strstr(program->source, assembles) == NULL))
            return CL_INVALID_BINARY;
        program->built = strdup(program->source);
        return CL_SUCCESS;
    }
    if (strstr(program->source, "#error") != NULL)
        return CL_BUILD_PROGRAM_FAILURE;
    if (fake_settings.assembly != NULL) {
        program->built = strdup(fake_settings.assembly);
        return CL_SUCCESS;
    }
    const size_t size = sizeof BINARY_MARK + strlen(options) + 1 + strlen(program->source);
    program->built = malloc(size);
    snprintf(program->built, size, "%s%s\n%s", BINARY_MARK, options, program->source);
    return CL_SUCCESS;
}

enum { MEETING_SECONDS = 30 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    unsigned count;
} meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

/* False where the others never came. */
static bool meet_other_builds(void) {
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += MEETING_SECONDS;
    pthread_mutex_lock(&meeting.lock);
    meeting.count = fake_settings.builds_meet > 0 ? meeting.count + 1 : 0;
    pthread_cond_broadcast(&meeting.came);
    while (meeting.count < fake_settings.builds_meet && error == 0)
        error = pthread_cond_timedwait(&meeting.came, &meeting.lock, &end);
    const bool met = meeting.count >= fake_settings.builds_meet;
    pthread_mutex_unlock(&meeting.lock);
    return met;
}

cl_int clBuildProgram(cl_program handle, cl_uint count, const cl_device_id *devices, const char *options,
                      void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
    (void)notify, (void)user;
    ENTER(clBuildProgram);
    if (!fake_is(handle, OBJECT_PROGRAM) || count != 1)
        return CL_INVALID_PROGRAM;
    usleep(fake_settings.build_delay_us);
    if (!meet_other_builds())
        return CL_BUILD_PROGRAM_FAILURE;
    struct object *program = (struct object *)handle;
    program->built_for = devices[0];
    snprintf(program->options, sizeof program->options, "%s", options != NULL ? options : "");
    return compile(program, options != NULL ? options : "");
}

static cl_int give_binaries(const struct object *program, unsigned char **binaries) {
    for (cl_uint i = 0; i < program->device_count; i++)
        if (binaries[i] != NULL && program->devices[i] == program->built_for)
            memcpy(binaries[i], program->built, strlen(program->built));
    return CL_SUCCESS;
}

cl_int clGetProgramInfo(cl_program handle, cl_program_info name, size_t size, void *value, size_t *size_ret) {
    ENTER(clGetProgramInfo);
    if (!fake_is(handle, OBJECT_PROGRAM))
        return CL_INVALID_PROGRAM;
    const struct object *program = (const struct object *)handle;
    size_t sizes[FAKE_DEVICES] = {0};
    for (cl_uint i = 0; i < program->device_count; i++)
        if (program->built != NULL && program->devices[i] == program->built_for)
            sizes[i] = strlen(program->built);
    switch (name) {
    case CL_PROGRAM_NUM_DEVICES:
        return fake_give(&program->device_count, sizeof program->device_count, size, value, size_ret);
    case CL_PROGRAM_DEVICES:
        return fake_give(program->devices, program->device_count * sizeof(cl_device_id), size, value, size_ret);
    case CL_PROGRAM_BINARY_SIZES:
        return fake_give(sizes, program->device_count * sizeof(size_t), size, value, size_ret);
    case CL_PROGRAM_BINARIES:
        return give_binaries(program, value);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetProgramBuildInfo(cl_program handle, cl_device_id device, cl_program_build_info name, size_t size,
                             void *value, size_t *size_ret) {
    (void)device;
    ENTER(clGetProgramBuildInfo);
    if (!fake_is(handle, OBJECT_PROGRAM))
        return CL_INVALID_PROGRAM;
    if (name != CL_PROGRAM_BUILD_LOG)
        return CL_INVALID_VALUE;
    return fake_give_text(fake_settings.no_build_log ? "" : BUILD_LOG, size, value, size_ret);
}

static bool holds_kernel(const struct object *program, const char *name) {
    char pattern[96];
    snprintf(pattern, sizeof pattern, "%s(", name);
    for (const char *at = program->built; at != NULL && (at = strstr(at, pattern)) != NULL; at++) {
        const char *before = at;
        while (before > program->built && isspace((unsigned char)before[-1]))
            before--;
        if (before < at && before - program->built >= 4 && strncmp(before - 4, "void", 4) == 0)
            return true;
    }
    return false;
}

cl_kernel clCreateKernel(cl_program handle, const char *name, cl_int *code_ret) {
    cl_int code = fake_enter("clCreateKernel");
    if (code == CL_SUCCESS && !fake_is(handle, OBJECT_PROGRAM))
        code = CL_INVALID_PROGRAM;
    if (code == CL_SUCCESS && !holds_kernel((const struct object *)handle, name))
        code = CL_INVALID_KERNEL_NAME;
    *code_ret = code;
    if (code != CL_SUCCESS)
        return NULL;
    struct object *kernel = fake_create(OBJECT_KERNEL);
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    memcpy(kernel->options, ((const struct object *)handle)->options, sizeof kernel->options);
    return (cl_kernel)kernel;
}

cl_int clGetKernelWorkGroupInfo(cl_kernel handle, cl_device_id device, cl_kernel_work_group_info name, size_t size,
                                void *value, size_t *size_ret) {
    ENTER(clGetKernelWorkGroupInfo);
    if (!fake_is(handle, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    const struct fake_device *facts = (const struct fake_device *)device;
    if (name == CL_KERNEL_COMPILE_WORK_GROUP_SIZE)
        return fake_give(facts->kernel_required_group, sizeof facts->kernel_required_group, size, value, size_ret);
    if (name != CL_KERNEL_WORK_GROUP_SIZE)
        return CL_INVALID_VALUE;
    return fake_give(&facts->kernel_max_group, sizeof facts->kernel_max_group, size, value, size_ret);
}

/* Between its first argument and its launch a kernel belongs to one thread. */
static void claim(struct object *kernel) {
    const pthread_t self = pthread_self();
    fake_lock();
    const bool shared = kernel->claimed && !pthread_equal(kernel->owner, self);
    kernel->claimed = true;
    kernel->owner = self;
    fake_unlock();
    if (shared)
        fake_report("one kernel is used by two threads");
}

cl_int clSetKernelArg(cl_kernel handle, cl_uint index, size_t size, const void *value) {
    ENTER(clSetKernelArg);
    if (!fake_is(handle, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    if (index >= FAKE_ARGUMENTS_MAX || size == 0 || size > FAKE_ARGUMENT_BYTES)
        return CL_INVALID_ARG_SIZE;
    struct object *kernel = (struct object *)handle;
    claim(kernel);
    struct fake_argument *argument = &kernel->argument[index];
    argument->size = size;
    argument->null = value == NULL;
    if (value != NULL)
        memcpy(argument->bytes, value, size);
    return CL_SUCCESS;
}
