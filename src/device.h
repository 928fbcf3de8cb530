/* What a device can do, asked once. Everything that chooses works on this plain struct, so that tests can invent
 * devices. device_<vendor>.c fill in what only a vendor's own queries tell. */
#ifndef CLATTN_DEVICE_H
#define CLATTN_DEVICE_H

#include <clattn/clattn.h>
#include <stdbool.h>

enum device_vendor { VENDOR_OTHER, VENDOR_NVIDIA, VENDOR_AMD, VENDOR_INTEL };

/* Optional capabilities. Each has a name for CLATTN_CAPS and, where its absence of faults can be tested, a self-test.
 */
enum device_capability {
    CAP_SUBGROUP_SHUFFLE, /* "shuffle": sub-group shuffles through the device's sub-group back-end (khr or nvidia) */
    CAP_HALF_TYPE,        /* "half": the type half may be loaded, stored and converted in kernels */
    CAP_CPU,              /* "cpu": the device is a CPU: one work-item per tile pays */
    CAP_NVIDIA_MMA,       /* "nvidia_mma": mma.sync and ldmatrix on fp16 and bf16 (sm_80 and later) */
    CAP_NVIDIA_WGMMA, /* "nvidia_wgmma": wgmma, tensor copies and their like, by retargeted programs (sm_90 alone) */
    CAP_GRID,         /* "grid": work-groups of one launch hand values on through 64-bit atomics */
    CAP_COUNT
};
#define CAP_BIT(cap) (UINT64_C(1) << (cap))

enum subgroup_backend { SUBGROUP_LOCAL, SUBGROUP_KHR, SUBGROUP_NVIDIA };

struct device_facts {
    char name[128], vendor_name[128], driver[128], platform[128];
    char architecture[32];
    enum device_vendor vendor;
    bool is_cpu, is_gpu;
    uint64_t caps;                  /* CAP_BIT(...), after the mask */
    enum subgroup_backend subgroup; /* SUBGROUP_LOCAL unless CAP_SUBGROUP_SHUFFLE is held */
    uint32_t subgroup_size;         /* work-items that run together; 1 where unknown */
    uint32_t compute_units;
    uint32_t max_group;    /* work-items */
    uint32_t max_item[3];  /* per dimension */
    uint64_t local_memory; /* bytes that a static __local array may take */
    uint64_t global_memory, max_allocation;
    bool starts_in_order;    /* a GPU that starts work-groups in order, each as soon as another makes room for it */
    uint32_t argument_bytes; /* of a kernel; 0 where unknown */
    bool opencl_1_2; /* build with -cl-std=CL1.2; false: too old for it, or build_options names a later language */
    const char *build_options; /* device-wide compiler options; static storage */
};

/* Queries the device. mask: see clattn_context_options.capabilities; NULL or "" = all. An unknown name in it is an
 * argument error. */
clattn_status device_query(cl_device_id device, const char *mask, struct device_facts *facts);

/* Vendor parts, called by device_query(); each leaves facts alone where the device is not its own. */
void device_nvidia(cl_device_id device, struct device_facts *facts);
void device_amd(cl_device_id device, struct device_facts *facts);
void device_intel(cl_device_id device, struct device_facts *facts);
void device_cpu(cl_device_id device, struct device_facts *facts);

const char *device_capability_name(enum device_capability cap);
/* "khr", "nvidia" or "local": also the file's name in cl/subgroup/. */
const char *device_subgroup_name(enum subgroup_backend backend);
/* Takes capabilities away, and whatever rests on them. */
void device_drop_capabilities(struct device_facts *facts, uint64_t caps);
const char *device_vendor_name(enum device_vendor vendor);
/* Does the device list the extension, as a whole word? */
bool device_has_extension(cl_device_id device, const char *extension);
/* Vendor queries: false, and value untouched, where the driver does not know the parameter. */
bool device_query_uint(cl_device_id device, cl_device_info parameter, uint32_t *value);
/* A query's text, cut to size, without surrounding blanks; false, and "", where there is none. */
bool device_query_text(cl_device_id device, cl_device_info parameter, char *text, size_t size);
/* Removes every occurrence of word from a device's name, and the blanks that this leaves doubled or at its ends. */
void device_strip(char *name, const char *word);

#endif
