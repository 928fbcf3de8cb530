/* A pre-pass over an explicit mask: one byte for each block of queries and keys tells whether the mask hides it as a
 * whole, shows it as a whole, or neither, so that attention skips the first and need not look at the mask of the second
 * (FlexAttention, arXiv:2412.05496). Parameter: ITEMS (work-items of a group). A work-group takes one block. */
#include "element.clh"
#include "view.clh"

/* As in mask.clh. */
#define MASK_HIDDEN 0
#define MASK_MIXED 1
#define MASK_OPEN 2

typedef struct {
    view_t mask;
    long column; /* elements between columns of the mask */
    long offset; /* of the first byte written */
    int heads, rows, columns;
    int block_rows, block_columns;
    int unused; /* makes the size a multiple of 8 on every compiler */
} mask_blocks_t;

static inline int blocks_in(int size, int step) {
    return (size + step - 1) / step;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_mask_blocks(const __global byte_t *mask, __global byte_t *blocks, mask_blocks_t call) {
    __local int met; /* 1: hidden, 2: shown */
    const int across = blocks_in(call.columns, call.block_columns), down = blocks_in(call.rows, call.block_rows);
    const long group = get_group_id(0), head = group / across / down;
    const int row = (int)(group / across % down) * call.block_rows;
    const int column = (int)(group % across) * call.block_columns;
    const int rows = min(call.block_rows, call.rows - row), columns = min(call.block_columns, call.columns - column);
    const long start = view_element(call.mask, head / call.heads, head % call.heads, row) + column * call.column;
    int own = 0;
    if (get_local_id(0) == 0)
        met = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = (int)get_local_id(0); i < rows * columns; i += ITEMS)
        own |= mask[start + i / columns * call.mask.row + i % columns * call.column] ? 2 : 1;
    atomic_or(&met, own);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0)
        blocks[call.offset + group] = met == 1 ? MASK_HIDDEN : met == 2 ? MASK_OPEN : MASK_MIXED;
}
