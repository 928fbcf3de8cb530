/* NVIDIA's OpenCL driver: what it does not say, or says wrongly. It advertises neither cl_khr_fp16 nor sub-groups,
 * though the type half works and shuffles are reached by inline PTX; and CL_DEVICE_LOCAL_MEM_SIZE is the limit of local
 * kernel arguments, while static arrays may take all that a group of this architecture can have. */
#include "device.h"

#include <stdio.h>

enum {
    COMPUTE_CAPABILITY_MAJOR = 0x4000, /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */
    COMPUTE_CAPABILITY_MINOR = 0x4001, /* CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV */
    WARP_SIZE = 0x4003                 /* CL_DEVICE_WARP_SIZE_NV */
};

/* Bytes of shared memory that one group may have, by compute capability (CUDA C++ Programming Guide). */
static const struct {
    unsigned capability; /* major * 10 + minor */
    uint64_t bytes;
} static_local_memory[] = {
    {80, 166912},  {86, 101376},  {87, 166912},  {89, 101376},  {90, 232448},
    {100, 232448}, {103, 232448}, {120, 101376}, {121, 101376},
};

void device_nvidia(cl_device_id device, struct device_facts *facts) {
    uint32_t major = 0, minor = 0;
    if (!facts->is_gpu || !device_has_extension(device, "cl_nv_device_attribute_query"))
        return;
    facts->vendor = VENDOR_NVIDIA;
    facts->starts_in_order = true;
    device_strip(facts->name, "NVIDIA ");
    device_strip(facts->name, "(R)");
    facts->subgroup_size = 32;
    device_query_uint(device, WARP_SIZE, &facts->subgroup_size);
    if (!device_query_uint(device, COMPUTE_CAPABILITY_MAJOR, &major) ||
        !device_query_uint(device, COMPUTE_CAPABILITY_MINOR, &minor))
        return;
    snprintf(facts->architecture, sizeof facts->architecture, "sm_%u%u", (unsigned)major, (unsigned)minor);
    facts->subgroup = SUBGROUP_NVIDIA;
    facts->caps |= CAP_BIT(CAP_SUBGROUP_SHUFFLE); /* the compiler refuses to load a half in OpenCL C 1.2 */
    if (major >= 8)
        facts->caps |= CAP_BIT(CAP_NVIDIA_MMA);
    if (major == 9 && minor == 0) /* these instructions exist on this architecture alone, not on later ones */
        facts->caps |= CAP_BIT(CAP_NVIDIA_WGMMA);
    for (size_t i = 0; i < sizeof static_local_memory / sizeof static_local_memory[0]; i++)
        if (static_local_memory[i].capability == major * 10 + minor)
            facts->local_memory = static_local_memory[i].bytes;
}
