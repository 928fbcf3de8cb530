/* Registers: a work-group starts with equal shares of the register file for all work-items, and those that fetch give
 * to those that compute. What is taken must be there: the sum over all groups may not exceed the shares at the start,
 * or the kernel waits for ever. */
#include "pipeline_size.h"
#include "program_nvidia.h"

#include <stdio.h>

enum {
    GROUP_ROWS = 64,
    GROUP_ITEMS = 128,
    PANEL_COLUMNS = 64,
    ROW_BYTES = 128,                       /* of a panel */
    OTHER_BYTES = 256 + 3 * 128 + 2 * 128, /* barriers, three maps and two jobs */
    BIAS_ALIGNMENT = 128,
    ALIGNMENT = 1024 /* which the compiler may leave free before the array */
};

enum { MOST_GROUPS = 3, MOST_STAGES = 4, MOST_KEYS = 256, MOST_HEADS = 1024 };

/* By the number of computing groups; the shares at the start are 255, 168 and 128. */
static const struct {
    int take, give;
} registers[MOST_GROUPS + 1] = {[1] = {240, 40}, [2] = {232, 40}, [3] = {160, 32}};

struct pipeline_shape pipeline_shape_of(const struct parameters *parameters) {
    const int groups = parameters_get(parameters, "groups", 2);
    return (struct pipeline_shape){
        .groups = groups,
        .block_keys = parameters_get(parameters, "block_keys", 64),
        .stages = parameters_get(parameters, "stages", 2),
        .q_slots = parameters_get(parameters, "q_slots", 1),
        .q_held = parameters_get(parameters, "q_held", 0) != 0,
        .heads_together = parameters_get(parameters, "heads_together", 4),
        .take = registers[groups].take,
        .give = registers[groups].give,
    };
}

void pipeline_spell_out(const struct pipeline_shape *shape, struct parameters *parameters) {
    parameters_put(parameters, "groups", shape->groups);
    parameters_put(parameters, "block_keys", shape->block_keys);
    parameters_put(parameters, "stages", shape->stages);
    parameters_put(parameters, "q_slots", shape->q_slots);
    parameters_put(parameters, "q_held", shape->q_held);
    parameters_put(parameters, "heads_together", shape->heads_together);
}

static bool lies_in(const struct parameters *parameters, const char *name, int least, int most) {
    const int value = parameters_get(parameters, name, least);
    return value >= least && value <= most;
}

const char *pipeline_refusal(const struct parameters *parameters) {
    if (!lies_in(parameters, "groups", 1, MOST_GROUPS))
        return "groups must lie in 1..3.";
    if (!lies_in(parameters, "block_keys", 16, MOST_KEYS) || parameters_get(parameters, "block_keys", 16) % 16 != 0)
        return "block_keys must be a multiple of 16 up to 256.";
    if (!lies_in(parameters, "stages", 1, MOST_STAGES))
        return "stages must lie in 1..4.";
    if (!lies_in(parameters, "q_slots", 1, 2))
        return "q_slots must be 1 or 2.";
    if (!lies_in(parameters, "heads_together", 1, MOST_HEADS))
        return "heads_together must lie in 1..1024.";
    return NULL;
}

int pipeline_block_queries(const struct pipeline_shape *shape) {
    return shape->groups * GROUP_ROWS;
}

size_t pipeline_items(const struct pipeline_shape *shape) {
    return (size_t)((shape->groups + 1) * GROUP_ITEMS);
}

static size_t operand_bytes(int rows, int64_t columns) {
    return (size_t)((columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS) * (size_t)(rows * ROW_BYTES);
}

size_t pipeline_bytes(const struct pipeline_shape *shape, int64_t head_dim, int64_t value_dim) {
    const size_t block = operand_bytes(shape->block_keys, head_dim) + operand_bytes(shape->block_keys, value_dim);
    return ALIGNMENT + (size_t)shape->q_slots * operand_bytes(pipeline_block_queries(shape), head_dim) +
           (size_t)shape->stages * block + OTHER_BYTES;
}

size_t pipeline_bias_bytes(const struct pipeline_shape *shape) {
    const bool suits = shape->block_keys == 64 || shape->block_keys == 128;
    return suits ? (size_t)(pipeline_block_queries(shape) * shape->block_keys * 2 + BIAS_ALIGNMENT) : 0;
}

void pipeline_options(const struct pipeline_shape *shape, char *options, size_t size) {
    snprintf(options, size,
             PROGRAM_NVIDIA_OPTION
             " -DTILE_BACKEND=nvidia_wgmma -DSTAGE_BACKEND=nvidia_bulk -DTILE_UNROLL=1 "
             "-DGROUPS=%d -DBLOCK_KEYS=%d -DSTAGES=%d -DQ_SLOTS=%d -DQ_HELD=%d -DHEADS_TOGETHER=%d -DTAKE_REGISTERS=%d "
             "-DGIVE_REGISTERS=%d",
             shape->groups, shape->block_keys, shape->stages, shape->q_slots, shape->q_held, shape->heads_together,
             shape->take, shape->give);
}
