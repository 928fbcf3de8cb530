/* Device facts: the queries that mean the same on every driver, and the capability mask. What only a vendor's own
 * queries tell is asked in device_<vendor>.c. Queries that OpenCL 1.2 demands must succeed; all others may fail and
 * leave the cautious default. */
#include "device.h"
#include "status.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const capability_names[CAP_COUNT] = {
    [CAP_SUBGROUP_SHUFFLE] = "shuffle",  [CAP_HALF_TYPE] = "half", [CAP_CPU] = "cpu", [CAP_NVIDIA_MMA] = "nvidia_mma",
    [CAP_NVIDIA_WGMMA] = "nvidia_wgmma", [CAP_GRID] = "grid",
};

const char *device_capability_name(enum device_capability cap) {
    return (unsigned)cap < CAP_COUNT ? capability_names[cap] : "unknown";
}

const char *device_vendor_name(enum device_vendor vendor) {
    static const char *const names[] = {
        [VENDOR_OTHER] = "other",
        [VENDOR_NVIDIA] = "nvidia",
        [VENDOR_AMD] = "amd",
        [VENDOR_INTEL] = "intel",
    };
    return (unsigned)vendor < sizeof names / sizeof names[0] ? names[vendor] : "other";
}

const char *device_subgroup_name(enum subgroup_backend backend) {
    static const char *const names[] = {
        [SUBGROUP_LOCAL] = "local",
        [SUBGROUP_KHR] = "khr",
        [SUBGROUP_NVIDIA] = "nvidia",
    };
    return (unsigned)backend < sizeof names / sizeof names[0] ? names[backend] : "local";
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void squeeze_blanks(char *text) {
    size_t out = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        const bool blank = isspace((unsigned char)text[i]) != 0;
        if (blank && (out == 0 || text[out - 1] == ' '))
            continue;
        text[out++] = blank ? ' ' : text[i];
    }
    while (out > 0 && text[out - 1] == ' ')
        out--;
    text[out] = '\0';
}

void device_strip(char *name, const char *word) {
    const size_t length = strlen(word);
    for (char *at = strstr(name, word); at != NULL; at = strstr(at, word))
        memmove(at, at + length, strlen(at + length) + 1);
    squeeze_blanks(name);
}

/* The whole text of a query in malloc'd memory, or NULL: drivers refuse a buffer that is too small. */
static char *query_whole(cl_device_id device, cl_device_info parameter) {
    size_t size = 0;
    if (clGetDeviceInfo(device, parameter, 0, NULL, &size) != CL_SUCCESS || size == 0)
        return NULL;
    char *text = malloc(size + 1);
    if (text == NULL)
        return NULL;
    if (clGetDeviceInfo(device, parameter, size, text, NULL) != CL_SUCCESS) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    return text;
}

bool device_query_text(cl_device_id device, cl_device_info parameter, char *text, size_t size) {
    char *whole = query_whole(device, parameter);
    text[0] = '\0';
    if (whole != NULL)
        snprintf(text, size, "%s", whole);
    free(whole);
    squeeze_blanks(text);
    return text[0] != '\0';
}

bool device_query_uint(cl_device_id device, cl_device_info parameter, uint32_t *value) {
    cl_uint answer = 0;
    if (clGetDeviceInfo(device, parameter, sizeof answer, &answer, NULL) != CL_SUCCESS)
        return false;
    *value = answer;
    return true;
}

bool device_has_extension(cl_device_id device, const char *extension) {
    char *list = query_whole(device, CL_DEVICE_EXTENSIONS);
    const size_t length = strlen(extension);
    bool found = false;
    for (const char *at = list; at != NULL && !found; at = strchr(at, ' ')) {
        at += strspn(at, " ");
        found = strncmp(at, extension, length) == 0 && (at[length] == ' ' || at[length] == '\0');
    }
    free(list);
    return found;
}

/* ---- capability mask --------------------------------------------------------------------------------------------- */

static clattn_status capability_bits(const char *word, size_t length, uint64_t *bits) {
    if (length == 3 && strncmp(word, "all", length) == 0) {
        *bits = UINT64_MAX;
        return CLATTN_SUCCESS;
    }
    for (int cap = 0; cap < CAP_COUNT; cap++) {
        if (strlen(capability_names[cap]) == length && strncmp(word, capability_names[cap], length) == 0) {
            *bits = CAP_BIT(cap);
            return CLATTN_SUCCESS;
        }
    }
    return status_set(CLATTN_INVALID_ARGUMENT,
                      "capabilities (CLATTN_CAPS): unknown name \"%.*s\" (known: all, none, shuffle, half, cpu, "
                      "nvidia_mma, nvidia_wgmma, grid)",
                      (int)length, word);
}

/* A list that opens with "-name" takes away from all; any other is built up from nothing. */
static clattn_status parse_mask(const char *mask, uint64_t *keep) {
    *keep = mask == NULL || mask[0] == '\0' || mask[0] == '-' ? UINT64_MAX : 0;
    for (const char *word = mask; word != NULL && *word != '\0';) {
        const size_t length = strcspn(word, ",");
        const bool removes = word[0] == '-';
        uint64_t bits = 0;
        if (length != 4 || strncmp(word, "none", length) != 0)
            FORWARD(capability_bits(word + removes, length - removes, &bits));
        *keep = removes ? *keep & ~bits : *keep | bits;
        word += length + (word[length] == ',');
    }
    return CLATTN_SUCCESS;
}

void device_drop_capabilities(struct device_facts *facts, uint64_t caps) {
    facts->caps &= ~caps;
    if ((facts->caps & CAP_BIT(CAP_SUBGROUP_SHUFFLE)) == 0)
        facts->subgroup = SUBGROUP_LOCAL;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

#define QUERY(device, parameter, value) \
    FORWARD_CL(clGetDeviceInfo((device), (parameter), sizeof(value), &(value), NULL), "clGetDeviceInfo(" #parameter ")")

static clattn_status query_names(cl_device_id device, struct device_facts *facts) {
    cl_platform_id platform = NULL;
    size_t size = 0;
    QUERY(device, CL_DEVICE_PLATFORM, platform);
    FORWARD_CL(clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, NULL, &size), "clGetPlatformInfo(CL_PLATFORM_NAME)");
    if (size <= sizeof facts->platform)
        FORWARD_CL(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof facts->platform, facts->platform, NULL),
                   "clGetPlatformInfo(CL_PLATFORM_NAME)");
    facts->platform[sizeof facts->platform - 1] = '\0';
    if (!device_query_text(device, CL_DEVICE_NAME, facts->name, sizeof facts->name))
        snprintf(facts->name, sizeof facts->name, "unnamed");
    device_query_text(device, CL_DEVICE_VENDOR, facts->vendor_name, sizeof facts->vendor_name);
    device_query_text(device, CL_DRIVER_VERSION, facts->driver, sizeof facts->driver);
    snprintf(facts->architecture, sizeof facts->architecture, "unknown");
    return CLATTN_SUCCESS;
}

static clattn_status query_limits(cl_device_id device, struct device_facts *facts) {
    size_t group = 0, item[16] = {0}, arguments = 0;
    cl_uint dims = 0, units = 0;
    cl_ulong local = 0, global = 0, allocation = 0;
    QUERY(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, group);
    QUERY(device, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, dims);
    RETURN_IF(dims < 3 || dims > 16, CLATTN_UNSUPPORTED, "the device has %u work-item dimensions", dims);
    FORWARD_CL(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, dims * sizeof item[0], item, NULL),
               "clGetDeviceInfo(CL_DEVICE_MAX_WORK_ITEM_SIZES)");
    QUERY(device, CL_DEVICE_MAX_COMPUTE_UNITS, units);
    QUERY(device, CL_DEVICE_LOCAL_MEM_SIZE, local);
    QUERY(device, CL_DEVICE_GLOBAL_MEM_SIZE, global);
    QUERY(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, allocation);
    if (clGetDeviceInfo(device, CL_DEVICE_MAX_PARAMETER_SIZE, sizeof arguments, &arguments, NULL) == CL_SUCCESS)
        facts->argument_bytes = arguments > UINT32_MAX ? UINT32_MAX : (uint32_t)arguments;
    facts->max_group = group > UINT32_MAX ? UINT32_MAX : (uint32_t)group;
    for (int i = 0; i < 3; i++)
        facts->max_item[i] = item[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)item[i];
    facts->compute_units = units;
    facts->local_memory = local;
    facts->global_memory = global;
    facts->max_allocation = allocation;
    return CLATTN_SUCCESS;
}

static clattn_status query_kind(cl_device_id device, struct device_facts *facts) {
    cl_device_type type = 0;
    QUERY(device, CL_DEVICE_TYPE, type);
    facts->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    facts->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    if (device_has_extension(device, "cl_khr_fp16"))
        facts->caps |= CAP_BIT(CAP_HALF_TYPE);
    if (device_has_extension(device, "cl_khr_int64_base_atomics"))
        facts->caps |= CAP_BIT(CAP_GRID);
    return CLATTN_SUCCESS;
}

/* Standard sub-groups: shuffles, and a size that is the same in every kernel. Only vendors' queries tell the size. */
static void query_subgroups(cl_device_id device, struct device_facts *facts) {
    enum { MAX_NUM_SUB_GROUPS = 0x105C }; /* CL_DEVICE_MAX_NUM_SUB_GROUPS, of OpenCL 2.1 */
    uint32_t most = 0;
    const bool in_core = device_query_uint(device, MAX_NUM_SUB_GROUPS, &most) && most > 0;
    if (facts->subgroup != SUBGROUP_LOCAL || facts->subgroup_size < 2 || (facts->subgroup_size & 1) != 0)
        return;
    if (!in_core && !device_has_extension(device, "cl_khr_subgroups"))
        return;
    if (!device_has_extension(device, "cl_khr_subgroup_shuffle"))
        return;
    facts->subgroup = SUBGROUP_KHR;
    facts->caps |= CAP_BIT(CAP_SUBGROUP_SHUFFLE);
}

/* Kernels are OpenCL C 1.2, but compilers offer the standard sub-group functions only in a later language. */
static void choose_language(cl_device_id device, struct device_facts *facts) {
    char version[64];
    int major = 0, minor = 0;
    device_query_text(device, CL_DEVICE_VERSION, version, sizeof version);
    if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2)
        return;
    if (facts->subgroup == SUBGROUP_KHR && major >= 2)
        facts->build_options = major >= 3 ? "-w -cl-std=CL3.0" : "-w -cl-std=CL2.0";
    else
        facts->opencl_1_2 = major > 1 || minor >= 2;
}

clattn_status device_query(cl_device_id device, const char *mask, struct device_facts *facts) {
    uint64_t keep = 0;
    memset(facts, 0, sizeof *facts);
    facts->subgroup_size = 1;
    facts->build_options = "-w"; /* some compilers print their warnings, and a library must not */
    FORWARD(parse_mask(mask, &keep));
    FORWARD(query_names(device, facts));
    FORWARD(query_limits(device, facts));
    FORWARD(query_kind(device, facts));
    device_nvidia(device, facts);
    device_amd(device, facts);
    device_intel(device, facts);
    device_cpu(device, facts);
    query_subgroups(device, facts);
    device_drop_capabilities(facts, ~keep);
    choose_language(device, facts);
    return CLATTN_SUCCESS;
}
