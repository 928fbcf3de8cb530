/* Device facts from invented drivers: vendors, names, sub-groups, languages, limits, the capability mask, failures. */
#include "device.h"
#include "fake_cl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SHUFFLE CAP_BIT(CAP_SUBGROUP_SHUFFLE)
#define HALF CAP_BIT(CAP_HALF_TYPE)
#define CPU CAP_BIT(CAP_CPU)
#define MMA CAP_BIT(CAP_NVIDIA_MMA)
#define WGMMA CAP_BIT(CAP_NVIDIA_WGMMA)

static const cl_uint one = 1, two = 2, three = 3, five = 5, six = 6, seven = 7, eight = 8, nine = 9, twelve = 12,
                     zero = 0;
static const cl_uint thirty_two = 32, sixty_four = 64;
static const cl_uint dg2 = 12u << 22 | 55u << 14, pvc = 12u << 22 | 60u << 14, lnl = 20u << 22 | 4u << 14;
static const size_t sizes_8_16_32[] = {8, 16, 32}, sizes_32[] = {32};

#define ANSWERS(...) ((const struct fake_answer[]){__VA_ARGS__, {0, NULL, 0}})
#define UINT(query, value) \
    { (query), &(value), sizeof(cl_uint) }
#define WARP(major, minor) ANSWERS(UINT(0x4000, major), UINT(0x4001, minor), UINT(0x4003, thirty_two))
#define BOARD "AMD Radeon RX 7900 XTX"

static int reset(void **state) {
    (void)state;
    fake_reset();
    return 0;
}

static struct device_facts query(const char *mask) {
    struct device_facts facts;
    assert_int_equal(device_query(fake_device_id(0), mask, &facts), CLATTN_SUCCESS);
    return facts;
}

struct expectation {
    cl_device_type type;
    const char *name, *vendor, *version, *extensions;
    const struct fake_answer *answers;
    /* facts */
    const char *clean_name, *architecture;
    enum device_vendor vendor_is;
    uint64_t caps;
    enum subgroup_backend subgroup;
    uint32_t subgroup_size;
    const char *build_options;
    bool opencl_1_2;
};

static void compare(const struct expectation *row) {
    fake_device[0].type = row->type;
    fake_device[0].name = row->name;
    fake_device[0].vendor = row->vendor;
    fake_device[0].version = row->version;
    fake_device[0].extensions = row->extensions;
    fake_device[0].answers = row->answers;
    const struct device_facts facts = query(NULL);
    assert_string_equal(facts.name, row->clean_name);
    assert_string_equal(facts.architecture, row->architecture);
    assert_int_equal(facts.vendor, row->vendor_is);
    assert_int_equal(facts.caps, row->caps);
    assert_int_equal(facts.subgroup, row->subgroup);
    assert_int_equal(facts.subgroup_size, row->subgroup_size);
    assert_string_equal(facts.build_options, row->build_options);
    assert_int_equal(facts.opencl_1_2, row->opencl_1_2);
    assert_int_equal(facts.is_cpu, (row->type & CL_DEVICE_TYPE_CPU) != 0);
}

static const char nv[] = "cl_khr_icd cl_nv_device_attribute_query cl_nv_pragma_unroll";

static void nvidia_devices(void **state) {
    const struct expectation rows[] = {
        {CL_DEVICE_TYPE_GPU, "NVIDIA H200", "NVIDIA Corporation", "OpenCL 3.0 CUDA", nv, WARP(nine, zero), "H200",
         "sm_90", VENDOR_NVIDIA, SHUFFLE | MMA | WGMMA, SUBGROUP_NVIDIA, 32, "-w", true},
        {CL_DEVICE_TYPE_GPU, "NVIDIA GeForce RTX 3090", "NVIDIA Corporation", "OpenCL 3.0 CUDA", nv, WARP(eight, six),
         "GeForce RTX 3090", "sm_86", VENDOR_NVIDIA, SHUFFLE | MMA, SUBGROUP_NVIDIA, 32, "-w", true},
        /* Its tensor cores have neither this shape, nor bf16, nor asynchronous copies. */
        {CL_DEVICE_TYPE_GPU, "Tesla T4", "NVIDIA Corporation", "OpenCL 3.0 CUDA", nv, WARP(seven, five), "Tesla T4",
         "sm_75", VENDOR_NVIDIA, SHUFFLE, SUBGROUP_NVIDIA, 32, "-w", true},
        {CL_DEVICE_TYPE_GPU, "Tesla V100-SXM2-16GB", "NVIDIA Corporation", "OpenCL 1.2 CUDA", nv, WARP(seven, zero),
         "Tesla V100-SXM2-16GB", "sm_70", VENDOR_NVIDIA, SHUFFLE, SUBGROUP_NVIDIA, 32, "-w", true},
        {CL_DEVICE_TYPE_GPU, "NVIDIA H200", "NVIDIA Corporation", "OpenCL 3.0 CUDA", nv, NULL, "H200", "unknown",
         VENDOR_NVIDIA, 0, SUBGROUP_LOCAL, 32, "-w", true},
        /* The same silicon behind another driver that has none of the queries. */
        {CL_DEVICE_TYPE_GPU, "NVIDIA H200", "Mesa", "OpenCL 3.0", "cl_khr_icd", NULL, "NVIDIA H200", "unknown",
         VENDOR_OTHER, 0, SUBGROUP_LOCAL, 1, "-w", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        compare(&rows[i]);
}

static void nvidia_static_local_memory(void **state) {
    static const struct {
        const cl_uint *major, *minor;
        cl_ulong expected;
    } rows[] = {
        {&nine, &zero, 232448},  {&eight, &zero, 166912},  {&eight, &six, 101376},
        {&eight, &nine, 101376}, {&twelve, &zero, 101376}, {&seven, &five, 49152},
    };
    (void)state;
    fake_device[0].extensions = nv;
    fake_device[0].local_memory = 49152;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fake_device[0].answers = WARP(*rows[i].major, *rows[i].minor);
        assert_int_equal(query(NULL).local_memory, rows[i].expected);
    }
}

static void amd_devices(void **state) {
    static const char khr[] = "cl_khr_fp16 cl_khr_subgroups cl_amd_device_attribute_query";
    static const char shuffle[] = "cl_khr_subgroups cl_khr_subgroup_shuffle cl_amd_device_attribute_query";
    const struct expectation rows[] = {
        {CL_DEVICE_TYPE_GPU, "gfx1100", "Advanced Micro Devices, Inc.", "OpenCL 2.0 ", khr,
         ANSWERS({0x4038, BOARD, sizeof BOARD}, UINT(0x4043, thirty_two)), "Radeon RX 7900 XTX", "gfx1100", VENDOR_AMD,
         HALF, SUBGROUP_LOCAL, 32, "-w", true},
        {CL_DEVICE_TYPE_GPU, "gfx942:sramecc+:xnack-", "Advanced Micro Devices, Inc.", "OpenCL 2.0 ", khr,
         ANSWERS(UINT(0x4043, sixty_four)), "gfx942:sramecc+:xnack-", "gfx942", VENDOR_AMD, HALF, SUBGROUP_LOCAL, 64,
         "-w", true},
        {CL_DEVICE_TYPE_GPU, "gfx90a", "Advanced Micro Devices, Inc.", "OpenCL 2.0 ", shuffle,
         ANSWERS(UINT(0x4043, sixty_four)), "gfx90a", "gfx90a", VENDOR_AMD, SHUFFLE, SUBGROUP_KHR, 64,
         "-w -cl-std=CL2.0", false},
        /* Its size is not known. */
        {CL_DEVICE_TYPE_GPU, "gfx90a", "Advanced Micro Devices, Inc.", "OpenCL 2.0 ", shuffle, NULL, "gfx90a", "gfx90a",
         VENDOR_AMD, 0, SUBGROUP_LOCAL, 1, "-w", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        compare(&rows[i]);
}

static void intel_devices(void **state) {
    static const char all[] = "cl_khr_fp16 cl_khr_subgroups cl_khr_subgroup_shuffle cl_intel_required_subgroup_size";
    static const char unsized[] = "cl_khr_fp16 cl_khr_subgroups cl_khr_subgroup_shuffle";
    const struct expectation rows[] = {
        {CL_DEVICE_TYPE_GPU, "Intel(R) Arc(TM) A770 Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", all,
         ANSWERS({0x4108, sizes_8_16_32, sizeof sizes_8_16_32}, UINT(0x4250, dg2)), "Arc A770 Graphics", "xe_hpg",
         VENDOR_INTEL, SHUFFLE | HALF, SUBGROUP_KHR, 16, "-w -cl-std=CL3.0", false},
        {CL_DEVICE_TYPE_GPU, "Intel(R) Data Center GPU Max 1550", "Intel(R) Corporation", "OpenCL 3.0 NEO", all,
         ANSWERS({0x4108, sizes_32, sizeof sizes_32}, UINT(0x4250, pvc)), "Data Center GPU Max 1550", "xe_hpc",
         VENDOR_INTEL, SHUFFLE | HALF, SUBGROUP_KHR, 32, "-w -cl-std=CL3.0", false},
        {CL_DEVICE_TYPE_GPU, "Intel(R) Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", all,
         ANSWERS({0x4108, sizes_8_16_32, sizeof sizes_8_16_32}, UINT(0x4250, lnl)), "Graphics", "xe2_lpg", VENDOR_INTEL,
         SHUFFLE | HALF, SUBGROUP_KHR, 16, "-w -cl-std=CL3.0", false},
        {CL_DEVICE_TYPE_GPU, "Intel(R) Iris(R) Xe Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", unsized, NULL,
         "Iris Xe Graphics", "xe_lp", VENDOR_INTEL, HALF, SUBGROUP_LOCAL, 1, "-w", true},
        {CL_DEVICE_TYPE_GPU, "Intel(R) Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "", NULL, "Graphics",
         "unknown", VENDOR_INTEL, 0, SUBGROUP_LOCAL, 1, "-w", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        compare(&rows[i]);
}

static void cpus(void **state) {
    static const char groups[] = "cl_khr_fp16 cl_khr_subgroups cl_khr_subgroup_shuffle cl_intel_required_subgroup_size";
    const struct expectation rows[] = {
        {CL_DEVICE_TYPE_CPU, "pthread-skylake-avx512", "GenuineIntel", "OpenCL 3.0 PoCL HSTR: x", "cl_khr_fp64", NULL,
         "skylake-avx512", "cpu", VENDOR_OTHER, CPU, SUBGROUP_LOCAL, 1, "-w", true},
        {CL_DEVICE_TYPE_CPU, "pthread-haswell-AMD EPYC", "AuthenticAMD", "OpenCL 3.0 PoCL", "", NULL,
         "haswell-AMD EPYC", "cpu", VENDOR_OTHER, CPU, SUBGROUP_LOCAL, 1, "-w", true},
        {CL_DEVICE_TYPE_CPU, "cpu-haswell-Intel(R) Xeon(R) CPU  @ 2.20GHz", "GenuineIntel", "OpenCL 3.0 PoCL", groups,
         ANSWERS({0x4108, sizes_8_16_32, sizeof sizes_8_16_32}), "haswell-Intel Xeon CPU @ 2.20GHz", "cpu",
         VENDOR_OTHER, CPU | SHUFFLE | HALF, SUBGROUP_KHR, 16, "-w -cl-std=CL3.0", false},
        {CL_DEVICE_TYPE_CPU, "pthread-", "x", "OpenCL 1.1 old", "", NULL, "pthread-", "cpu", VENDOR_OTHER, CPU,
         SUBGROUP_LOCAL, 1, "-w", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        compare(&rows[i]);
}

/* Sub-groups of the core of OpenCL 3.0 count where the device says how many it has; the extension for shuffles is asked
 * for as a whole word. */
static void core_subgroups_and_whole_words(void **state) {
    (void)state;
    fake_device[0].vendor = "Advanced Micro Devices, Inc.";
    fake_device[0].version = "OpenCL 3.0 x";
    fake_device[0].extensions = "cl_khr_subgroup_shuffle";
    fake_device[0].answers = ANSWERS(UINT(0x105C, three), UINT(0x4043, thirty_two));
    assert_int_equal(query(NULL).subgroup, SUBGROUP_KHR);
    fake_device[0].answers = ANSWERS(UINT(0x105C, zero), UINT(0x4043, thirty_two));
    assert_int_equal(query(NULL).subgroup, SUBGROUP_LOCAL);
    fake_device[0].answers = ANSWERS(UINT(0x105C, two), UINT(0x4043, thirty_two));
    fake_device[0].extensions = "cl_khr_subgroup_shuffle_relative xcl_khr_subgroup_shuffle";
    assert_int_equal(query(NULL).subgroup, SUBGROUP_LOCAL);
    fake_device[0].answers = ANSWERS(UINT(0x105C, two), UINT(0x4043, one));
    fake_device[0].extensions = "cl_khr_subgroup_shuffle";
    assert_int_equal(query(NULL).subgroup, SUBGROUP_LOCAL);
    assert_true(device_has_extension(fake_device_id(0), "cl_khr_subgroup_shuffle"));
    fake_device[0].extensions = "a  b ";
    assert_true(device_has_extension(fake_device_id(0), "b"));
    assert_false(device_has_extension(fake_device_id(0), "c"));
    fake_device[0].extensions = "";
    assert_false(device_has_extension(fake_device_id(0), "c"));
}

static void limits_are_read(void **state) {
    (void)state;
    const struct device_facts facts = query("");
    assert_string_equal(facts.name, "Fake Device");
    assert_string_equal(facts.driver, "1.0");
    assert_string_equal(facts.platform, "Fake Platform");
    assert_int_equal(facts.compute_units, 4);
    assert_int_equal(facts.max_group, 256);
    assert_int_equal(facts.max_item[2], 64);
    assert_int_equal(facts.local_memory, 32768);
    assert_int_equal(facts.global_memory, 1 << 30);
    assert_int_equal(facts.max_allocation, 1 << 28);
    assert_true(facts.opencl_1_2);
    fake_device[0].version = "OpenCL 1.1 x";
    assert_false(query(NULL).opencl_1_2);
    fake_device[0].version = "nonsense";
    assert_false(query(NULL).opencl_1_2);
}

static void long_texts_are_cut(void **state) {
    char text[5000];
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fake_device[0].name = fake_device[0].vendor = fake_device[0].driver = fake_device[0].extensions = text;
    fake_settings.platform_name = text;
    const struct device_facts facts = query(NULL);
    assert_int_equal(strlen(facts.name), sizeof facts.name - 1);
    assert_int_equal(strlen(facts.platform) < sizeof facts.platform, 1);
    fake_device[0].name = "   ";
    assert_string_equal(query(NULL).name, "unnamed");
}

static void mask_only_lowers(void **state) {
    static const struct {
        const char *mask;
        uint64_t caps;
    } rows[] = {
        {NULL, SHUFFLE | HALF | MMA | WGMMA},
        {"", SHUFFLE | HALF | MMA | WGMMA},
        {"all", SHUFFLE | HALF | MMA | WGMMA},
        {"none", 0},
        {"all,-shuffle", HALF | MMA | WGMMA},
        {"-shuffle", HALF | MMA | WGMMA},
        {"all,-shuffle,-nvidia_mma", HALF | WGMMA},
        {"nvidia_wgmma", WGMMA},
        {"shuffle,half", SHUFFLE | HALF},
        {"half", HALF},
        {"none,half", HALF},
        {"cpu", 0},
        {"half,-half", 0},
        {"all,-all", 0},
        {"all,", SHUFFLE | HALF | MMA | WGMMA},
        {"cpu,all", SHUFFLE | HALF | MMA | WGMMA},
    };
    (void)state;
    fake_device[0].extensions = "cl_nv_device_attribute_query cl_khr_fp16";
    fake_device[0].answers = WARP(nine, zero);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct device_facts facts = query(rows[i].mask);
        assert_int_equal(facts.caps, rows[i].caps);
        assert_int_equal(facts.subgroup, rows[i].caps & SHUFFLE ? SUBGROUP_NVIDIA : SUBGROUP_LOCAL);
        assert_int_equal(facts.subgroup_size, 32);
    }
}

static void unknown_names_in_the_mask(void **state) {
    static const char *const masks[] = {"shufle", "all,-cup", "half,,shuffle", ",", "ALL",        "all -half",
                                        "-none",  "--half",   "nvidia_mm",     "-", "nvidia_mmaa"};
    struct device_facts facts;
    (void)state;
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        assert_int_equal(device_query(fake_device_id(0), masks[i], &facts), CLATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(clattn_last_error(), "capabilities"));
    }
    assert_int_equal(device_query(fake_device_id(0), "all,-cup", &facts), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "\"cup\""));
}

/* Whichever query fails: an error that names it, or facts without what it would have told. Never a crash. */
static void any_query_may_fail(void **state) {
    int errors = 0, nth = 0;
    (void)state;
    fake_device[0].extensions = nv;
    fake_device[0].answers = WARP(nine, zero);
    do {
        struct device_facts facts;
        fake_fail_nth(++nth, CL_OUT_OF_HOST_MEMORY);
        const clattn_status status = device_query(fake_device_id(0), NULL, &facts);
        errors += status != CLATTN_SUCCESS;
        if (status != CLATTN_SUCCESS)
            assert_non_null(strstr(clattn_last_error(), "CL_"));
    } while (fake_has_failed());
    assert_in_range(errors, 8, nth - 2);
}

static void names_of_everything(void **state) {
    (void)state;
    assert_string_equal(device_capability_name(CAP_SUBGROUP_SHUFFLE), "shuffle");
    assert_string_equal(device_capability_name(CAP_NVIDIA_MMA), "nvidia_mma");
    assert_string_equal(device_capability_name(CAP_NVIDIA_WGMMA), "nvidia_wgmma");
    assert_string_equal(device_capability_name(CAP_COUNT), "unknown");
    assert_string_equal(device_vendor_name(VENDOR_NVIDIA), "nvidia");
    assert_string_equal(device_vendor_name(VENDOR_OTHER), "other");
    assert_string_equal(device_subgroup_name(SUBGROUP_KHR), "khr");
    assert_string_equal(device_subgroup_name(SUBGROUP_LOCAL), "local");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nvidia_devices, reset),
        cmocka_unit_test_setup(nvidia_static_local_memory, reset),
        cmocka_unit_test_setup(amd_devices, reset),
        cmocka_unit_test_setup(intel_devices, reset),
        cmocka_unit_test_setup(cpus, reset),
        cmocka_unit_test_setup(core_subgroups_and_whole_words, reset),
        cmocka_unit_test_setup(limits_are_read, reset),
        cmocka_unit_test_setup(long_texts_are_cut, reset),
        cmocka_unit_test_setup(mask_only_lowers, reset),
        cmocka_unit_test_setup(unknown_names_in_the_mask, reset),
        cmocka_unit_test_setup(any_query_may_fail, reset),
        cmocka_unit_test(names_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
