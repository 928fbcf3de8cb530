/* Intel GPUs, and whichever device lets a kernel require its sub-group size by Intel's extension. The architecture
 * comes from the IP version that newer drivers tell, else from the product's name. */
#include "device.h"

#include <stdio.h>
#include <string.h>

enum {
    SUB_GROUP_SIZES = 0x4108, /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */
    IP_VERSION = 0x4250,      /* CL_DEVICE_IP_VERSION_INTEL: major << 22 | minor << 14 | revision */
    PREFERRED_SIZE = 16
};

/* The highest minor of each row's range; the first row that holds the version wins. */
static const struct {
    unsigned major, last_minor;
    const char *architecture;
} ip_versions[] = {
    {9, 99, "gen9"},    {11, 99, "gen11"},  {12, 49, "xe_lp"},   {12, 59, "xe_hpg"}, {12, 69, "xe_hpc"},
    {12, 99, "xe_lpg"}, {20, 3, "xe2_hpg"}, {20, 99, "xe2_lpg"}, {30, 99, "xe3"},
};

static const struct {
    const char *part, *architecture;
} product_names[] = {
    {"Data Center GPU Max", "xe_hpc"}, {"Data Center GPU Flex", "xe_hpg"},
    {"Arc(TM) A", "xe_hpg"},           {"Arc(TM) B", "xe2_hpg"},
    {"Iris(R) Xe", "xe_lp"},           {"UHD Graphics 7", "xe_lp"},
};

static const char *architecture_of(cl_device_id device, const char *name) {
    uint32_t version = 0;
    if (device_query_uint(device, IP_VERSION, &version)) {
        const unsigned major = version >> 22, minor = (version >> 14) & 0xffu;
        for (size_t i = 0; i < sizeof ip_versions / sizeof ip_versions[0]; i++)
            if (ip_versions[i].major == major && minor <= ip_versions[i].last_minor)
                return ip_versions[i].architecture;
    }
    for (size_t i = 0; i < sizeof product_names / sizeof product_names[0]; i++)
        if (strstr(name, product_names[i].part) != NULL)
            return product_names[i].architecture;
    return "unknown";
}

/* The size that kernels require; without the extension the compiler picks one per kernel, and none is known. */
static void read_subgroup_size(cl_device_id device, struct device_facts *facts) {
    size_t sizes[16] = {0}, bytes = 0;
    if (!device_has_extension(device, "cl_intel_required_subgroup_size") ||
        clGetDeviceInfo(device, SUB_GROUP_SIZES, sizeof sizes, sizes, &bytes) != CL_SUCCESS)
        return;
    const size_t count = bytes / sizeof sizes[0];
    for (size_t i = 0; i < count && i < 16; i++) {
        if (sizes[i] == PREFERRED_SIZE || facts->subgroup_size == 1)
            facts->subgroup_size = (uint32_t)sizes[i];
        if (sizes[i] == PREFERRED_SIZE)
            return;
    }
}

void device_intel(cl_device_id device, struct device_facts *facts) {
    if (facts->vendor != VENDOR_OTHER)
        return;
    read_subgroup_size(device, facts);
    if (!facts->is_gpu || strstr(facts->vendor_name, "Intel") == NULL)
        return;
    facts->vendor = VENDOR_INTEL;
    snprintf(facts->architecture, sizeof facts->architecture, "%s", architecture_of(device, facts->name));
    device_strip(facts->name, "Intel(R)");
    device_strip(facts->name, "(R)");
    device_strip(facts->name, "(TM)");
}
