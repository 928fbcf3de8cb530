/* The context: options and environment on the way in, facts and counters on the way out. This is the only place that
 * reads the environment, but for the XDG folders. */
#include "context.h"
#include "os.h"
#include "status.h"

#include <clattn/variants.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_CACHE_BYTES (UINT64_C(256) << 20)

/* Copies what both sides know of a public struct that may have grown since. */
#define COPY_KNOWN(to, from, size) memcpy((to), (from), (size) < sizeof *(to) ? (size) : sizeof *(to))

void clattn_context_options_init(clattn_context_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* ---- options and environment ------------------------------------------------------------------------------------- */

static const char *or_environment(const char *given, const char *name) {
    return given != NULL ? given : os_environment(name);
}

static clattn_status read_log_level(clattn_log_level given, clattn_log_level *level) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    const char *text = os_environment("CLATTN_LOG");
    RETURN_IF((int)given < 0 || given > CLATTN_LOG_DEBUG, CLATTN_INVALID_ARGUMENT, "options: log_level %d is unknown",
              (int)given);
    *level = given != 0 ? given : CLATTN_LOG_WARNING;
    if (given != 0 || text == NULL || text[0] == '\0')
        return CLATTN_SUCCESS;
    for (int i = 0; i < 4; i++) {
        *level = (clattn_log_level)(CLATTN_LOG_ERROR + i);
        if (strcmp(text, names[i]) == 0)
            return CLATTN_SUCCESS;
    }
    return status_set(CLATTN_INVALID_ARGUMENT, "CLATTN_LOG = \"%.60s\" is none of: error, warning, info, debug", text);
}

static clattn_status read_options(const clattn_context_options *given, clattn_context_options *options) {
    clattn_context_options_init(options);
    if (given != NULL) {
        RETURN_IF(given->size < sizeof given->size, CLATTN_INVALID_ARGUMENT,
                  "options: size is %zu; was clattn_context_options_init() called?", given->size);
        COPY_KNOWN(options, given, given->size);
    }
    FORWARD(read_log_level(options->log_level, &options->log_level));
    const char *named = options->cl_dir != NULL ? "options: cl_dir" : "CLATTN_CL_DIR";
    options->cl_dir = or_environment(options->cl_dir, "CLATTN_CL_DIR");
    RETURN_IF(options->cl_dir != NULL && options->cl_dir[0] != '\0' && !os_is_directory(options->cl_dir),
              CLATTN_INVALID_ARGUMENT, "%s = \"%.200s\" is no folder", named, options->cl_dir);
    options->cache_dir = or_environment(options->cache_dir, "CLATTN_CACHE_DIR");
    options->tuning_db = or_environment(options->tuning_db, "CLATTN_TUNING_DB");
    options->capabilities = or_environment(options->capabilities, "CLATTN_CAPS");
    if (options->cache_bytes == 0)
        options->cache_bytes = DEFAULT_CACHE_BYTES;
    return CLATTN_SUCCESS;
}

/* By the XDG rules, which ignore relative paths; malloc'd, or NULL where there is no home. */
static char *default_tuning_path(void) {
    const char *data = os_environment("XDG_DATA_HOME"), *home = os_environment("HOME");
    if (data != NULL && data[0] == '/')
        return os_join_path(data, "clattn/tuning.json");
    return home != NULL && home[0] == '/' ? os_join_path(home, ".local/share/clattn/tuning.json") : NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static clattn_status check_device_of_context(cl_context cl, cl_device_id device) {
    cl_device_id devices[64];
    size_t size = 0;
    RETURN_IF(cl == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(device == NULL, CLATTN_INVALID_ARGUMENT, "device is NULL");
    FORWARD_CL(clGetContextInfo(cl, CL_CONTEXT_DEVICES, sizeof devices, devices, &size), "context");
    for (size_t i = 0; i < size / sizeof devices[0]; i++)
        if (devices[i] == device)
            return CLATTN_SUCCESS;
    return status_set(CLATTN_INVALID_ARGUMENT, "device is none of the context's %zu devices", size / sizeof devices[0]);
}

/* Fills in a zeroed context; whatever is done by a failure is undone by clattn_context_release(). */
static clattn_status open_context(clattn_context *context, const clattn_context_options *options) {
    const bool has_cl_dir = options->cl_dir != NULL && options->cl_dir[0] != '\0';
    context->log = (struct log){options->log, options->log_user, options->log_level};
    selftest_init(&context->selftest);
    program_table_init(&context->programs);
    memo_init(&context->memo);
    binary_cache_open(&context->cache, options->cache_dir, options->cache_bytes, &context->log);
    if (has_cl_dir)
        context->cl_dir = os_copy_text(options->cl_dir);
    context->tuning_path = options->tuning_db != NULL ? os_copy_text(options->tuning_db) : default_tuning_path();
    RETURN_IF((has_cl_dir && context->cl_dir == NULL) || (options->tuning_db != NULL && context->tuning_path == NULL),
              CLATTN_OUT_OF_HOST_MEMORY, "context: out of memory");
    FORWARD(device_query(context->device, options->capabilities, &context->facts));
    FORWARD(tuning_load(context->tuning_path, &context->log, &context->tuning));
    tuning_narrow(context->tuning, &context->facts, context->cl_dir, &context->log);
    return CLATTN_SUCCESS;
}

clattn_status clattn_context_create(cl_context cl, cl_device_id device, const clattn_context_options *given,
                                    clattn_context **out) {
    clattn_context_options options;
    RETURN_IF(out == NULL, CLATTN_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    FORWARD(check_device_of_context(cl, device));
    FORWARD(read_options(given, &options));
    clattn_context *context = calloc(1, sizeof *context);
    RETURN_IF(context == NULL, CLATTN_OUT_OF_HOST_MEMORY, "context: out of memory");
    clRetainContext(cl);
    clRetainDevice(device);
    context->cl = cl;
    context->device = device;
    const clattn_status status = open_context(context, &options);
    if (status != CLATTN_SUCCESS) {
        clattn_context_release(&context);
        return status;
    }
    log_write(&context->log, CLATTN_LOG_INFO, "device %s (%s), driver %s", context->facts.name,
              context->facts.architecture, context->facts.driver);
    *out = context;
    return CLATTN_SUCCESS;
}

void clattn_context_release(clattn_context **handle) {
    clattn_context *context = handle != NULL ? *handle : NULL;
    if (context == NULL)
        return;
    tuning_free(context->tuning);
    memo_free(&context->memo);
    program_table_free(&context->programs);
    binary_cache_close(&context->cache);
    selftest_free(&context->selftest);
    free(context->tuning_path);
    free(context->cl_dir);
    clReleaseDevice(context->device);
    clReleaseContext(context->cl);
    free(context);
    *handle = NULL;
}

/* ---- looking in -------------------------------------------------------------------------------------------------- */

static void print_capabilities(const struct device_facts *facts, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int cap = 0; cap < CAP_COUNT; cap++) {
        if ((facts->caps & CAP_BIT(cap)) == 0 || used >= size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? "," : "", device_capability_name(cap));
    }
}

static void fill_info(clattn_context *context, clattn_device_info *info) {
    const struct device_facts facts = selftest_facts(context);
    snprintf(info->name, sizeof info->name, "%s", facts.name);
    snprintf(info->vendor, sizeof info->vendor, "%s", facts.vendor_name);
    snprintf(info->driver, sizeof info->driver, "%s", facts.driver);
    snprintf(info->platform, sizeof info->platform, "%s", facts.platform);
    snprintf(info->architecture, sizeof info->architecture, "%s", facts.architecture);
    snprintf(info->subgroup_backend, sizeof info->subgroup_backend, "%s", device_subgroup_name(facts.subgroup));
    snprintf(info->cache_dir, sizeof info->cache_dir, "%s", context->cache.dir != NULL ? context->cache.dir : "");
    snprintf(info->tuning_db, sizeof info->tuning_db, "%s", context->tuning_path != NULL ? context->tuning_path : "");
    print_capabilities(&facts, info->capabilities, sizeof info->capabilities);
    info->compute_units = facts.compute_units;
    info->max_work_group_size = facts.max_group;
    info->subgroup_size = facts.subgroup_size;
    info->local_memory = facts.local_memory;
    info->global_memory = facts.global_memory;
    info->max_allocation = facts.max_allocation;
}

clattn_status clattn_context_info(clattn_context *context, clattn_device_info *info) {
    clattn_device_info filled = {0};
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(info == NULL, CLATTN_INVALID_ARGUMENT, "info is NULL");
    RETURN_IF(info->size < sizeof info->size, CLATTN_INVALID_ARGUMENT, "info: size is %zu, not set", info->size);
    filled.size = info->size;
    fill_info(context, &filled);
    COPY_KNOWN(info, &filled, filled.size);
    return CLATTN_SUCCESS;
}

clattn_status clattn_capability_report(clattn_context *context, size_t index, int run, const char **capability,
                                       const char **verdict) {
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(capability == NULL, CLATTN_INVALID_ARGUMENT, "capability is NULL");
    RETURN_IF(verdict == NULL, CLATTN_INVALID_ARGUMENT, "verdict is NULL");
    *capability = *verdict = NULL;
    if (index >= CAP_COUNT)
        return CLATTN_SUCCESS;
    if (run)
        (void)selftest_passes(context, CAP_BIT(index));
    *capability = device_capability_name((enum device_capability)index);
    *verdict = selftest_verdict_name(context, (enum device_capability)index);
    return CLATTN_SUCCESS;
}

clattn_status clattn_context_statistics(clattn_context *context, clattn_statistics *statistics) {
    clattn_statistics filled = {0};
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(statistics == NULL, CLATTN_INVALID_ARGUMENT, "statistics is NULL");
    RETURN_IF(statistics->size < sizeof statistics->size, CLATTN_INVALID_ARGUMENT, "statistics: size is %zu, not set",
              statistics->size);
    filled.size = statistics->size;
    os_lock(&context->programs.lock);
    filled.programs_built = context->programs.built;
    filled.programs_loaded = context->programs.loaded;
    os_unlock(&context->programs.lock);
    filled.kernel_launches = __atomic_load_n(&context->launches, __ATOMIC_RELAXED);
    COPY_KNOWN(statistics, &filled, filled.size);
    return CLATTN_SUCCESS;
}
