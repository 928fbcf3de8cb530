/* The way of unfused attention from the caller's tensors to dense ones and back. Products want every sequence at the
 * same distance and length: queries, keys and values that lie one behind the other or in pages are copied to the
 * workspace, zeros beyond each sequence's end, and results are copied back. Values that a query may have to ignore are
 * always copied, because 0 times NaN or infinity would reach it: the copy holds zeros for these, and
 * attention_special.cl adds them where they are seen. Quantised rows are copied as the values that they stand for.
 * Parameters: attention_rows.clh. */
#include "attention_rows.clh"

/* area_t.what */
#define QUERIES 0
#define KEYS 1
#define VALUES 2

static inline matrix_t source_of(int what, const sequence_t *sequence, const __global byte_t *q,
                                 const __global byte_t *k, const __global byte_t *v, const modifiers_t *modifiers,
                                 const attention_t *call, int head) {
    if (what == QUERIES)
        return sequence_queries(sequence, q, call->q, head);
    if (what == KEYS)
        return sequence_k(sequence, modifiers, call, k, head);
    return sequence_v(sequence, modifiers, call, v, head);
}

/* area and met: the workspace. */
ROWS_KERNEL void attention_pack(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                                __global byte_t *o, __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                                __global byte_t *area, __global int *met, area_t copy) {
    MODIFIERS(modifiers);
    const bool of_queries = copy.what == QUERIES;
    const int heads = of_queries ? call.heads : call.heads / call.heads_per_kv;
    const int rows = of_queries ? call.max_q : call.max_k;
    FOR_EACH_ROW(row, (long)call.batches * heads * rows) {
        const row_place_t place = row_place(row, heads, rows);
        const sequence_t sequence = sequence_of(&modifiers, &call, place.batch);
        const matrix_t source = source_of(copy.what, &sequence, q, k, v, &modifiers, &call, place.head);
        const bool exists = place.index < (of_queries ? sequence.nq : sequence.nk);
        const long to = copy.offset + row * copy.pitch;
        FOR_EACH_COLUMN(col, copy.columns) {
            const float value = exists ? matrix_element(&source, place.index, col, ELEMENT) : 0.0f;
            const bool special = copy.what == VALUES && is_special(value);
            element_store(area, to + col, special ? 0.0f : value, ELEMENT);
            if (special)
                atomic_or(&met[copy.met], 1);
        }
    }
}

/* Rows of o and lse, zeros and -inf where a sequence has no query for them. Those of sequences one behind the other are
 * numbered as sequence_find() says. */
ROWS_KERNEL void attention_unpack(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                                  __global byte_t *o, __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                                  const __global byte_t *area, const __global float *lse_area, area_t values,
                                  long lse_offset) {
    MODIFIERS(modifiers);
    const bool packed = SEQUENCES && modifiers.q_offsets;
    const int rows = sequence_blocks(&modifiers, &call, 1);
    FOR_EACH_ROW(row, (long)(packed ? 1 : call.batches) * call.heads * rows) {
        row_place_t place = row_place(row, call.heads, rows);
        if (packed)
            place.batch = sequence_find(&modifiers, &call, 1, place.index, &place.index);
        const sequence_t sequence = sequence_of(&modifiers, &call, place.batch);
        const bool is_row = place.index >= 0 && place.index < sequence.rows, is_query = place.index < sequence.nq;
        const long from = ((long)place.batch * call.heads + place.head) * call.max_q + place.index;
        const matrix_t to = sequence_queries(&sequence, o, call.o, place.head);
        const matrix_t lse_to = sequence_queries(&sequence, (const __global byte_t *)lse, call.lse, place.head);
        FOR_EACH_COLUMN(col, is_row ? values.columns : 0) {
            const long at = values.offset + from * values.pitch + col;
            const float value = is_query ? element_load(area, at, OUT_ELEMENT) : 0.0f;
            element_store(o, matrix_row(to, place.index) + col, value, OUT_ELEMENT);
        }
        if (is_row && lse && get_local_id(0) == 0)
            lse[matrix_row(lse_to, place.index)] = is_query ? lse_area[lse_offset + from] : -INFINITY;
    }
}
