/* NaN and infinities in the values of unfused attention. The product P V would carry them into every row, 0 times such
 * a value being NaN, also where a row must not see the key: it is made with a finite copy of V (attention_pack.cl), and
 * afterwards the rows that see a special value get it. Parameters: attention_rows.clh. */
#include "attention_rows.clh"

/* out: rows of o, or of its place in the workspace. */
ROWS_KERNEL void attention_special(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                                   __global byte_t *o, __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                                   __global byte_t *out, view_t view, const __global int *met, area_t values) {
    if (met[values.met] == 0)
        return;
    MODIFIERS(modifiers);
    FOR_EACH_ROW(row, (long)call.batches * call.heads * call.max_q) {
        const row_place_t place = row_place(row, call.heads, call.max_q);
        const sequence_t sequence = sequence_of(&modifiers, &call, place.batch);
        const sight_t sight = row_sight(&sequence, &modifiers, &call, place);
        const matrix_t source = sequence_v(&sequence, &modifiers, &call, v, place.head / call.heads_per_kv);
        const long to = view_element(view, place.batch, place.head, place.index);
        const int end = place.index < sequence.nq ? band_last(sight.band, place.index) + 1 : 0;
        FOR_EACH_COLUMN(col, values.columns) {
            const float sum = special_of(&sight, &source, place.index, band_first(sight.band, place.index), end, col);
            element_store(out, to + col, element_load(out, to + col, OUT_ELEMENT) + sum, OUT_ELEMENT);
        }
    }
}
