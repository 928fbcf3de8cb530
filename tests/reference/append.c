/* Where new rows of keys and values go in a cache, and at which positions they turn. */
#include "reference.h"

#include <math.h>

/* Of a row of the new tensors: its sequence and its place there; false where it is no sequence's. */
static bool find_sequence(const struct reference_append *append, int64_t row, struct reference_new_row *out) {
    if (append->q_offsets == NULL)
        return true;
    for (int64_t s = 0; s < append->sequences; s++)
        if ((double)row >= append->q_offsets[s] && (double)row < append->q_offsets[s + 1]) {
            out->sequence = s;
            out->index = row - (int64_t)append->q_offsets[s];
            return true;
        }
    return false;
}

static void find_target(const struct reference_append *append, double length, struct reference_new_row *out) {
    const double target = length + (double)out->index;
    out->page = -1;
    if (length < 0)
        return;
    if (append->page_table == NULL) {
        if (target < (double)append->cache_rows)
            out->page = out->sequence, out->row = (int64_t)target;
        return;
    }
    const double entry = floor(target / (double)append->cache_rows);
    if (entry >= (double)append->max_pages)
        return;
    const double page = append->page_table[out->sequence * append->max_pages + (int64_t)entry];
    if (page < 0 || page >= (double)append->pages)
        return;
    out->page = (int64_t)page;
    out->row = (int64_t)target % append->cache_rows;
}

struct reference_new_row reference_append_locate(const struct reference_append *append, int64_t batch, int64_t row) {
    struct reference_new_row out = {.sequence = batch, .index = row, .page = -1};
    if (!find_sequence(append, row, &out))
        return out;
    const double rows = append->q_lengths ? append->q_lengths[out.sequence] : INFINITY;
    const double length = append->k_lengths ? append->k_lengths[out.sequence] : 0;
    out.position = (int64_t)length + out.index;
    if (append->positions)
        out.position = (int64_t)append->positions[batch * append->rows + row];
    if (append->position_offsets)
        out.position += (int64_t)append->position_offsets[out.sequence];
    find_target(append, length, &out);
    out.exists = (double)out.index < rows &&
                 (append->table_rows == 0 || (out.position >= 0 && out.position < append->table_rows));
    return out;
}
