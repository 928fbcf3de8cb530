/* One function a back-end: the host's copy of the constants at the head of cl/tile/<back-end>.clh. test_tile_size
 * compares the sums with what the compiler says of built kernels. */
#include "tile_size.h"
#include <stdio.h>

static bool is_power_of_two(int value, int least, int most) {
    return value >= least && value <= most && (value & (value - 1)) == 0;
}

static struct tile_shape fma_shape(const struct parameters *parameters) {
    const int items = parameters_get(parameters, "fma_items", 16);
    const int rows = parameters_get(parameters, "fma_rows", 4);
    return (struct tile_shape){.items = items, .m = rows, .n = items * 4, .k = 4, .element = 4, .padding = 4};
}

static struct tile_shape cpu_vector_shape(const struct parameters *parameters) {
    const int rows = parameters_get(parameters, "cpu_rows", 32);
    return (struct tile_shape){.items = 1, .m = rows, .n = 16, .k = 16, .element = 4};
}

static struct tile_shape nvidia_mma_shape(const struct parameters *parameters) {
    const int rows = parameters_get(parameters, "mma_rows", 16);
    return (struct tile_shape){.items = 32, .m = rows, .n = 16, .k = 16, .element = 2, .padding = 8, .acc_is_a = true};
}

static struct tile_shape backend_shape(enum backend backend, const struct parameters *parameters) {
    if (backend == BACKEND_CPU_VECTOR)
        return cpu_vector_shape(parameters);
    if (backend == BACKEND_NVIDIA_MMA)
        return nvidia_mma_shape(parameters);
    return fma_shape(parameters);
}

static bool suits_subgroups(const struct tile_shape *shape, const struct device_facts *facts) {
    const uint32_t lanes = facts->subgroup_size;
    return facts->subgroup != SUBGROUP_LOCAL && lanes >= (uint32_t)shape->items &&
           lanes % (uint32_t)shape->items == 0 && (uint32_t)(shape->groups * shape->items) % lanes == 0;
}

struct tile_shape tile_shape_of(enum backend backend, const struct parameters *parameters,
                                const struct device_facts *facts) {
    struct tile_shape shape = backend_shape(backend, parameters);
    shape.backend = backend;
    shape.unroll = !facts->is_cpu;
    shape.groups = parameters_get(parameters, "groups", 1);
    shape.subgroup = SUBGROUP_LOCAL;
    shape.subgroup_size = 1;
    if (backend == BACKEND_FMA && suits_subgroups(&shape, facts)) {
        shape.subgroup = facts->subgroup;
        shape.subgroup_size = (int)facts->subgroup_size;
    }
    return shape;
}

static const char *fma_refusal(const struct parameters *parameters) {
    if (!is_power_of_two(parameters_get(parameters, "fma_items", 16), 1, 32))
        return "fma_items must be 1, 2, 4, 8, 16 or 32.";
    if (!is_power_of_two(parameters_get(parameters, "fma_rows", 4), 1, 8))
        return "fma_rows must be 1, 2, 4 or 8.";
    return NULL;
}

static const char *cpu_vector_refusal(const struct parameters *parameters) {
    if (!is_power_of_two(parameters_get(parameters, "cpu_rows", 32), 8, 128))
        return "cpu_rows must be 8, 16, 32, 64 or 128.";
    if (parameters_get(parameters, "groups", 1) != 1)
        return "groups must be 1 where a work-item is a whole vector unit.";
    return NULL;
}

static const char *nvidia_mma_refusal(const struct parameters *parameters) {
    return is_power_of_two(parameters_get(parameters, "mma_rows", 16), 16, 32) ? NULL : "mma_rows must be 16 or 32.";
}

const char *tile_shape_refusal(enum backend backend, const struct parameters *parameters) {
    const int groups = parameters_get(parameters, "groups", 1);
    if (groups < 1 || groups > 1024)
        return "groups must lie in 1..1024.";
    if (backend == BACKEND_CPU_VECTOR)
        return cpu_vector_refusal(parameters);
    return backend == BACKEND_NVIDIA_MMA ? nvidia_mma_refusal(parameters) : fma_refusal(parameters);
}

static const char *subgroup_file(enum subgroup_backend backend) {
    return backend == SUBGROUP_KHR ? "khr" : backend == SUBGROUP_NVIDIA ? "nvidia" : "local";
}

void tile_options(const struct tile_shape *shape, const char *stage, char *options, size_t size) {
    char own[64];
    if (shape->backend == BACKEND_CPU_VECTOR)
        snprintf(own, sizeof own, "-DCPU_ROWS=%d", shape->m);
    else if (shape->backend == BACKEND_NVIDIA_MMA)
        snprintf(own, sizeof own, "-DMMA_ROWS=%d", shape->m);
    else
        snprintf(own, sizeof own, "-DFMA_ITEMS=%d -DFMA_ROWS=%d", shape->items, shape->m);
    snprintf(options, size,
             "-DTILE_BACKEND=%s %s -DTILE_UNROLL=%d -DGROUPS=%d -DSTAGE_BACKEND=%s -DSUBGROUP_BACKEND=%s -DSG_SIZE=%d",
             variant_backend_name(shape->backend), own, shape->unroll, shape->groups, stage,
             subgroup_file(shape->subgroup), shape->subgroup_size);
}

static size_t tile_bytes(const struct tile_shape *shape, int rows, int columns) {
    return (size_t)rows * (size_t)(columns + shape->padding) * (size_t)shape->element;
}

size_t tile_a_bytes(const struct tile_shape *shape, int rows, int k) {
    return tile_bytes(shape, rows, k);
}

/* Packed to rows of columns where there is no padding, which takes the same bytes. */
size_t tile_bt_bytes(const struct tile_shape *shape, int columns, int k) {
    return tile_bytes(shape, columns, k);
}

size_t tile_b_bytes(const struct tile_shape *shape, int k, int columns) {
    return tile_bytes(shape, k, columns);
}

size_t tile_left_bytes(const struct tile_shape *shape, int rows, int k) {
    return shape->acc_is_a ? 0 : tile_a_bytes(shape, rows, k);
}

size_t tile_row_scratch_bytes(const struct tile_shape *shape) {
    const bool exchanges = shape->backend == BACKEND_FMA && shape->subgroup == SUBGROUP_LOCAL && shape->items > 1;
    return exchanges ? (size_t)(shape->groups * shape->items * shape->m) * sizeof(float) : 0;
}

size_t tile_array_bytes(size_t bytes) {
    return (bytes + TILE_ALIGNMENT - 1) / TILE_ALIGNMENT * TILE_ALIGNMENT;
}
