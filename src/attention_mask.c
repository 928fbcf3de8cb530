/* The pre-pass over an explicit mask, for any block size. */
#include "attention_mask.h"
#include "context.h"
#include "status.h"
#include "tile_fit.h"

#include <stdio.h>

enum { BATCH, HEAD, ROW, COLUMN };

/* As mask_blocks_t of cl/attention_mask_blocks.cl. */
struct call {
    struct attention_view mask;
    int64_t column, offset;
    int32_t heads, rows, columns, block_rows, block_columns, unused;
};

enum { MOST_ITEMS = 64 };

static size_t items_of(const struct device_facts *facts) {
    return facts->max_group < MOST_ITEMS ? facts->max_group : MOST_ITEMS;
}

static clattn_status count_blocks(const clattn_attention_op *op, int queries, int keys, size_t *blocks) {
    const int64_t *dims = op->mask.dims;
    const int64_t down = (dims[ROW] + queries - 1) / queries, across = (dims[COLUMN] + keys - 1) / keys;
    int64_t heads;
    RETURN_IF(__builtin_mul_overflow(dims[BATCH], dims[HEAD], &heads), CLATTN_UNSUPPORTED,
              "mask: more heads than 64 bits count");
    return tile_count_groups("mask", heads, down, across, blocks);
}

clattn_status attention_mask_workspace(const clattn_attention_op *op, int queries, int keys, size_t *bytes) {
    return count_blocks(op, queries, keys, bytes);
}

clattn_status attention_mask_program(clattn_context *context, const struct device_facts *facts,
                                     struct program **program) {
    char options[32];
    snprintf(options, sizeof options, "-DITEMS=%zu", items_of(facts));
    const struct program_key key = {
        .file = "attention_mask_blocks.cl", .kernel = "attention_mask_blocks", .options = options};
    return program_get(context, &key, program);
}

clattn_status attention_mask_enqueue(struct program *program, const struct device_facts *facts,
                                     const clattn_attention_op *op, const struct attention_mask_blocks *blocks,
                                     struct sequence *sequence) {
    const clattn_tensor *mask = &op->mask;
    const struct call call = {
        .mask = attention_view_of(mask),
        .column = attention_stride(mask, COLUMN),
        .offset = blocks->offset,
        .heads = (int32_t)mask->dims[HEAD],
        .rows = (int32_t)mask->dims[ROW],
        .columns = (int32_t)mask->dims[COLUMN],
        .block_rows = blocks->queries,
        .block_columns = blocks->keys,
    };
    struct launch launch;
    size_t groups = 0;
    const size_t items = items_of(facts);
    FORWARD(count_blocks(op, blocks->queries, blocks->keys, &groups));
    launch_begin(&launch, program);
    launch_buffer(&launch, mask->memory.as.buffer);
    launch_buffer(&launch, blocks->buffer);
    launch_struct(&launch, &call, sizeof call);
    return launch_enqueue(&launch, sequence, 1, &groups, &items);
}
