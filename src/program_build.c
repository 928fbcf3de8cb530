/* Builds a program for the context's device. Whatever goes wrong with a cached binary leads to a build from source; no
 * decision depends on a build log, which drivers may leave empty. */
#include "program_build.h"
#include "context.h"
#include "program_nvidia.h"
#include "source.h"
#include "status.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define OPTIONS_SIZE 2048
#define LOG_SHOWN 5000 /* characters; the first errors say most */

struct build {
    clattn_context *context;
    const struct program_key *key;
    char options[OPTIONS_SIZE]; /* the key's and the device's */
    char *source;
    size_t source_size;
    struct binary_key binary_key;
};

/* ---- what determines the code -------------------------------------------------------------------------------------
 */

static clattn_status join_options(struct build *build) {
    const struct device_facts *facts = &build->context->facts;
    const char *device_wide = facts->build_options != NULL ? facts->build_options : "";
    const int length =
        snprintf(build->options, sizeof build->options, "%s%s%s%s", build->key->options,
                 device_wide[0] != '\0' ? " " : "", device_wide, facts->opencl_1_2 ? " -cl-std=CL1.2" : "");
    RETURN_IF(length < 0 || (size_t)length >= sizeof build->options, CLATTN_INTERNAL_ERROR,
              "build options of %s are longer than %d", build->key->file, OPTIONS_SIZE - 1);
    return CLATTN_SUCCESS;
}

/* Length first, so that two neighbouring texts never look like two others. */
static void hash_text(XXH3_state_t *state, const char *text) {
    const uint64_t length = strlen(text);
    XXH3_128bits_update(state, &length, sizeof length);
    XXH3_128bits_update(state, text, (size_t)length);
}

static clattn_status platform_version(cl_device_id device, char *version, size_t size) {
    cl_platform_id platform = NULL;
    FORWARD_CL(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, (void *)&platform, NULL),
               "CL_DEVICE_PLATFORM");
    FORWARD_CL(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, size, version, NULL), "CL_PLATFORM_VERSION");
    return CLATTN_SUCCESS;
}

static clattn_status compute_binary_key(struct build *build) {
    const struct device_facts *facts = &build->context->facts;
    char version[256] = "";
    FORWARD(platform_version(build->context->device, version, sizeof version));
    XXH3_state_t *state = XXH3_createState();
    RETURN_IF(state == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a program's hash");
    XXH3_128bits_reset(state);
    const char *texts[] = {build->source, build->options,  facts->name, facts->vendor_name,
                           facts->driver, facts->platform, version,     clattn_version()};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        hash_text(state, texts[i]);
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    build->binary_key = (struct binary_key){.low = hash.low64, .high = hash.high64};
    return CLATTN_SUCCESS;
}

/* ---- from program to kernel ---------------------------------------------------------------------------------------
 */

/* Compiles or links; the program stays the caller's. */
static cl_int run_compiler(const struct build *build, cl_program program) {
    return clBuildProgram(program, 1, &build->context->device, build->options, NULL, NULL);
}

/* The kernel's limit of work-items. Rusticl answers with the sub-group size, also for kernels that require a size and
 * run with it: so a required size that was built counts as possible, and the enqueueing tells where it is not. */
static cl_int query_max_group(const struct build *build, cl_kernel kernel, size_t *max_group) {
    const cl_device_id device = build->context->device;
    size_t limit = 0, required[3] = {0, 0, 0};
    cl_int code = clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof limit, &limit, NULL);
    if (code == CL_SUCCESS)
        code = clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof required, required,
                                        NULL);
    const size_t items = required[0] * required[1] * required[2];
    *max_group = items > limit ? items : limit;
    return code;
}

/* Makes the first kernel of a built program. */
static clattn_status take_kernel(const struct build *build, struct built_program *built) {
    char what[256];
    snprintf(what, sizeof what, "kernel %s of %s", build->key->kernel, build->key->file);
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(built->program, build->key->kernel, &code);
    FORWARD_CL(code, what);
    code = query_max_group(build, kernel, &built->max_group);
    if (code != CL_SUCCESS) {
        clReleaseKernel(kernel);
        return status_from_cl(code, what);
    }
    built->kernel = kernel;
    return CLATTN_SUCCESS;
}

/* ---- the cached binary --------------------------------------------------------------------------------------------
 */

static bool load_binary(const struct build *build, const unsigned char *binary, size_t size,
                        struct built_program *built) {
    cl_int code = CL_SUCCESS, binary_status = CL_SUCCESS;
    built->program = clCreateProgramWithBinary(build->context->cl, 1, &build->context->device, &size, &binary,
                                               &binary_status, &code);
    if (code != CL_SUCCESS)
        return false;
    if (binary_status == CL_SUCCESS && run_compiler(build, built->program) == CL_SUCCESS &&
        take_kernel(build, built) == CLATTN_SUCCESS)
        return true;
    clReleaseProgram(built->program);
    return false;
}

static bool load_cached(const struct build *build, struct built_program *built) {
    size_t size = 0;
    unsigned char *binary = binary_cache_load(&build->context->cache, build->binary_key, &size);
    if (binary == NULL)
        return false;
    built->loaded = load_binary(build, binary, size, built);
    free(binary);
    if (!built->loaded)
        log_write(&build->context->log, CLATTN_LOG_INFO, "the cached binary of %s was refused", build->key->file);
    return built->loaded;
}

/* The place of the context's device among the program's; -1 on any failure. */
static int device_index(const struct build *build, cl_program program, cl_uint devices) {
    cl_device_id *list = calloc(devices, sizeof(cl_device_id));
    int index = -1;
    if (list != NULL &&
        clGetProgramInfo(program, CL_PROGRAM_DEVICES, devices * sizeof(cl_device_id), (void *)list, NULL) == CL_SUCCESS)
        for (cl_uint i = 0; i < devices; i++)
            if (list[i] == build->context->device)
                index = (int)i;
    free(list);
    return index;
}

/* The binary of one of a program's devices; the others are not copied. NULL on any failure. */
static unsigned char *copy_binary(cl_program program, cl_uint devices, int index, size_t *size) {
    size_t *sizes = calloc(devices, sizeof(size_t));
    unsigned char **binaries = calloc(devices, sizeof(unsigned char *));
    unsigned char *binary = NULL;
    if (sizes == NULL || binaries == NULL)
        goto out;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, devices * sizeof(size_t), sizes, NULL) != CL_SUCCESS)
        goto out;
    *size = sizes[index];
    binary = binaries[index] = *size > 0 ? malloc(*size) : NULL;
    if (binary != NULL && clGetProgramInfo(program, CL_PROGRAM_BINARIES, devices * sizeof(unsigned char *),
                                           (void *)binaries, NULL) != CL_SUCCESS) {
        free(binary);
        binary = NULL;
    }
out:
    free(sizes);
    free(binaries);
    return binary;
}

/* The binary for the context's device; NULL on any failure. */
static unsigned char *program_binary(const struct build *build, cl_program program, size_t *size) {
    cl_uint devices = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof devices, &devices, NULL) != CL_SUCCESS || devices == 0)
        return NULL;
    const int index = device_index(build, program, devices);
    return index >= 0 ? copy_binary(program, devices, index, size) : NULL;
}

static void store_binary(const struct build *build, cl_program program) {
    size_t size = 0;
    unsigned char *binary = program_binary(build, program, &size);
    if (binary != NULL)
        binary_cache_store(&build->context->cache, build->binary_key, binary, size);
    free(binary);
}

/* ---- from source --------------------------------------------------------------------------------------------------
 */

/* The compiler's log in malloc'd memory; NULL where there is none. */
static char *build_log(const struct build *build, cl_program program) {
    const cl_device_id device = build->context->device;
    size_t size = 0;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) != CL_SUCCESS || size == 0)
        return NULL;
    char *text = calloc(size + 1, 1);
    if (text != NULL && clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, text, NULL) != CL_SUCCESS) {
        free(text);
        return NULL;
    }
    return text;
}

static clattn_status report_build(const struct build *build, cl_program program, cl_int code) {
    const clattn_status status = status_from_cl(code, "clBuildProgram");
    char *log = build_log(build, program);
    const char *text = log != NULL && log[0] != '\0' ? log : "(no build log)";
    status_set(status, "%s cannot be built with \"%s\": %s (%d)\n%.*s%s", build->key->file, build->options,
               status_cl_name(code), (int)code, LOG_SHOWN, text, strlen(text) > LOG_SHOWN ? " [...]" : "");
    free(log);
    return status;
}

static clattn_status compile(const struct build *build, cl_program program) {
    const cl_int code = run_compiler(build, program);
    return code == CL_SUCCESS ? CLATTN_SUCCESS : report_build(build, program, code);
}

/* The program that a driver makes of assembly text. */
static clattn_status assemble(const struct build *build, const unsigned char *text, size_t size, cl_program *out) {
    cl_int code = CL_SUCCESS, binary_status = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(build->context->cl, 1, &build->context->device, &size, &text, &binary_status, &code);
    FORWARD_CL(code, "clCreateProgramWithBinary");
    const clattn_status status = compile(build, program);
    if (status == CLATTN_SUCCESS)
        *out = program;
    else
        clReleaseProgram(program);
    return status;
}

/* Puts the retargeted program in the place of the one that was compiled. */
static clattn_status retarget(const struct build *build, cl_program *program) {
    size_t size = 0, text_size = 0;
    unsigned char *text = NULL;
    cl_program raised = NULL;
    unsigned char *binary = program_binary(build, *program, &size);
    RETURN_IF(binary == NULL, CLATTN_BUILD_FAILED, "%s: the driver gives no binary", build->key->file);
    clattn_status status = program_nvidia_retarget(binary, size, &text, &text_size);
    if (status == CLATTN_SUCCESS)
        status = assemble(build, text, text_size, &raised);
    if (status == CLATTN_SUCCESS) {
        clReleaseProgram(*program);
        *program = raised;
    }
    free(text);
    free(binary);
    return status;
}

static clattn_status build_from_source(const struct build *build, struct built_program *built) {
    const char *source = build->source;
    cl_int code = CL_SUCCESS;
    built->program = clCreateProgramWithSource(build->context->cl, 1, &source, &build->source_size, &code);
    FORWARD_CL(code, "clCreateProgramWithSource");
    clattn_status status = compile(build, built->program);
    if (status == CLATTN_SUCCESS && program_nvidia_is_wanted(build->key->options))
        status = retarget(build, &built->program);
    if (status == CLATTN_SUCCESS)
        status = take_kernel(build, built);
    if (status != CLATTN_SUCCESS)
        clReleaseProgram(built->program);
    return status;
}

static clattn_status build_uncached(const struct build *build, struct built_program *built) {
    const uint64_t start = os_time_ns();
    FORWARD(build_from_source(build, built));
    log_write(&build->context->log, CLATTN_LOG_INFO, "built %s of %s in %.0f ms with \"%s\"", build->key->kernel,
              build->key->file, (double)(os_time_ns() - start) * 1e-6, build->options);
    return CLATTN_SUCCESS;
}

/* No disk cache without a key: what the driver cannot tell about itself is no reason to fail. */
static clattn_status build_cached(struct build *build, struct built_program *built) {
    if (build->context->cache.dir == NULL || compute_binary_key(build) != CLATTN_SUCCESS)
        return build_uncached(build, built);
    if (load_cached(build, built))
        return CLATTN_SUCCESS;
    FORWARD(build_uncached(build, built));
    store_binary(build, built->program);
    return CLATTN_SUCCESS;
}

clattn_status program_build(clattn_context *context, const struct program_key *key, struct built_program *built) {
    struct build build = {.context = context, .key = key};
    memset(built, 0, sizeof *built);
    FORWARD(join_options(&build));
    FORWARD(source_expand(context->cl_dir, key->file, key->options, &build.source, &build.source_size));
    const clattn_status status = build_cached(&build, built);
    free(build.source);
    return status;
}
