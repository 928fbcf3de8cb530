/* One row a back-end: the host's copy of the constants at the head of cl/tile/<back-end>.clh. test_tile_size compares
 * the sums with what the compiler says of built kernels. */
#include "tile_size.h"
#include <stdio.h>

/* ---- the back-ends ----------------------------------------------------------------------------------------------- */

/* A power of two. */
struct own_parameter {
    const char *name, *macro;
    int usual, least, most;
    const char *refusal;
};

struct tile_backend {
    enum backend backend;
    int most_groups;
    const char *groups_refusal;
    bool uses_subgroups;
    struct tile_shape (*shape)(const int *own);
    struct own_parameter own[TILE_OWN];
    struct tile_step for_items[2], for_local[4];
};

static struct tile_shape fma_shape(const int *own) {
    const int items = own[0];
    return (struct tile_shape){
        .items = items, .m = own[1], .n = items * 4, .k = 4, .element = 4, .padding = 4, .shares_rows = items > 1};
}

static struct tile_shape cpu_vector_shape(const int *own) {
    return (struct tile_shape){.items = 1, .m = own[0], .n = 16, .k = 16, .element = 4};
}

/* Its rows meet in registers, by the unit's own shuffles. */
static struct tile_shape nvidia_mma_shape(const int *own) {
    return (struct tile_shape){
        .items = 32, .m = own[0], .n = 16, .k = 16, .element = 2, .padding = 8, .acc_is_a = true};
}

static const struct tile_backend backends[] = {
    {.backend = BACKEND_FMA,
     .most_groups = 1024,
     .groups_refusal = "groups must lie in 1..1024.",
     .uses_subgroups = true,
     .shape = fma_shape,
     .own = {{"fma_items", "FMA_ITEMS", 16, 1, 32, "fma_items must be 1, 2, 4, 8, 16 or 32."},
             {"fma_rows", "FMA_ROWS", 4, 1, 8, "fma_rows must be 1, 2, 4 or 8."}},
     .for_items = {{"fma_items", 1, false}},
     .for_local = {{"fma_items", 4, false}, {"fma_rows", 1, true}, {"fma_items", 1, false}}},
    {.backend = BACKEND_CPU_VECTOR,
     .most_groups = 1,
     .groups_refusal = "groups must be 1 where a work-item is a whole vector unit.",
     .shape = cpu_vector_shape,
     .own = {{"cpu_rows", "CPU_ROWS", 32, 8, 128, "cpu_rows must be 8, 16, 32, 64 or 128."}},
     .for_local = {{"cpu_rows", 8, true}}},
    {.backend = BACKEND_NVIDIA_MMA,
     .most_groups = 1024,
     .groups_refusal = "groups must lie in 1..1024.",
     .shape = nvidia_mma_shape,
     .own = {{"mma_rows", "MMA_ROWS", 16, 16, 32, "mma_rows must be 16 or 32."}},
     .for_local = {{"mma_rows", 16, true}}},
};

/* The row, or NULL where the back-end has no tiles. */
static const struct tile_backend *row_of(enum backend backend) {
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (backends[i].backend == backend)
            return &backends[i];
    return NULL;
}

static bool has_own(const struct tile_backend *row, int i) {
    return i < TILE_OWN && row->own[i].name != NULL;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static bool suits_subgroups(const struct tile_shape *shape, const struct device_facts *facts) {
    const uint32_t lanes = facts->subgroup_size;
    return facts->subgroup != SUBGROUP_LOCAL && lanes >= (uint32_t)shape->items &&
           lanes % (uint32_t)shape->items == 0 && (uint32_t)(shape->groups * shape->items) % lanes == 0;
}

static void read_own(const struct tile_backend *row, const struct parameters *parameters, int *own) {
    for (int i = 0; i < TILE_OWN; i++)
        own[i] = has_own(row, i) ? parameters_get(parameters, row->own[i].name, row->own[i].usual) : 0;
}

struct tile_shape tile_shape_of(enum backend backend, const struct parameters *parameters,
                                const struct device_facts *facts) {
    const struct tile_backend *row = row_of(backend);
    int own[TILE_OWN];
    read_own(row, parameters, own);
    struct tile_shape shape = row->shape(own);
    for (int i = 0; i < TILE_OWN; i++)
        shape.own[i] = own[i];
    shape.backend = backend;
    shape.unroll = !facts->is_cpu;
    shape.groups = parameters_get(parameters, "groups", 1);
    shape.subgroup = SUBGROUP_LOCAL;
    shape.subgroup_size = 1;
    if (row->uses_subgroups && suits_subgroups(&shape, facts)) {
        shape.subgroup = facts->subgroup;
        shape.subgroup_size = (int)facts->subgroup_size;
    }
    return shape;
}

int tile_least_rows(clattn_op_kind op) {
    return op == CLATTN_OP_GEMM ? 4 : 1; /* A is staged in packets of four rows where it is transposed */
}

static const char *own_refusal(const struct tile_backend *row, const int *own) {
    for (int i = 0; has_own(row, i); i++)
        if (own[i] < row->own[i].least || own[i] > row->own[i].most || (own[i] & (own[i] - 1)) != 0)
            return row->own[i].refusal;
    return NULL;
}

const char *tile_shape_refusal(enum backend backend, clattn_op_kind op, const struct parameters *parameters) {
    const struct tile_backend *row = row_of(backend);
    const int groups = parameters_get(parameters, "groups", 1);
    int own[TILE_OWN];
    if (row == NULL)
        return NULL;
    if (groups < 1 || groups > row->most_groups)
        return row->groups_refusal;
    read_own(row, parameters, own);
    const char *refusal = own_refusal(row, own);
    if (refusal == NULL && row->shape(own).m < tile_least_rows(op))
        return "A tile of a product has at least 4 rows.";
    return refusal;
}

void tile_spell_out(const struct tile_shape *shape, struct parameters *parameters) {
    const struct tile_backend *row = row_of(shape->backend);
    for (int i = 0; has_own(row, i); i++)
        parameters_put(parameters, row->own[i].name, shape->own[i]);
    parameters_put(parameters, "groups", shape->groups);
}

const struct tile_step *tile_steps_for_items(enum backend backend) {
    return row_of(backend)->for_items;
}

const struct tile_step *tile_steps_for_local(enum backend backend) {
    return row_of(backend)->for_local;
}

void tile_options(const struct tile_shape *shape, const char *stage, char *options, size_t size) {
    const struct tile_backend *row = row_of(shape->backend);
    char own[64];
    int used = 0;
    for (int i = 0; has_own(row, i); i++)
        used += snprintf(own + used, sizeof own - (size_t)used, " -D%s=%d", row->own[i].macro, shape->own[i]);
    snprintf(options, size,
             "-DTILE_BACKEND=%s%s -DTILE_UNROLL=%d -DGROUPS=%d -DSTAGE_BACKEND=%s -DSUBGROUP_BACKEND=%s -DSG_SIZE=%d",
             variant_backend_name(shape->backend), own, shape->unroll, shape->groups, stage,
             device_subgroup_name(shape->subgroup), shape->subgroup_size);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

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
    const bool exchanges = shape->shares_rows && shape->subgroup == SUBGROUP_LOCAL;
    return exchanges ? (size_t)(shape->groups * shape->items * shape->m) * sizeof(float) : 0;
}

size_t tile_array_bytes(size_t bytes) {
    return (bytes + TILE_ALIGNMENT - 1) / TILE_ALIGNMENT * TILE_ALIGNMENT;
}
