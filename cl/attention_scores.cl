/* From products to scores, in place: scale, soft cap, ALiBi and bias, and -inf for keys that a query does not see. With
 * sinks a row has one element more, behind its keys: the softmax then counts it as it does any score, and the product
 * with the values leaves it out. Rows that are no queries become -inf altogether. Parameters: attention_rows.clh. */
#include "attention_rows.clh"

ROWS_KERNEL void attention_scores(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                                  __global byte_t *o, __global float *lse MODIFIER_ARGUMENTS, attention_t call,
                                  __global float *scores, area_t area) {
    MODIFIERS(modifiers);
    FOR_EACH_ROW(row, (long)call.batches * call.heads * call.max_q) {
        const row_place_t place = row_place(row, call.heads, call.max_q);
        const sequence_t sequence = sequence_of(&modifiers, &call, place.batch);
        const bool is_query = place.index < sequence.nq;
        const band_t band = sequence_band(&sequence, &call);
        const plane_t mask = mask_of(&modifiers, &call, place.batch, place.head);
        const bias_t bias = bias_of(&modifiers, &call, place.batch, place.head);
        const long off = sequence_off(&sequence, &call), start = area.offset + row * area.pitch;
        const int query = place.index, first = band_first(band, query), last = band_last(band, query);
        FOR_EACH_COLUMN(key, call.max_k) {
            const bool seen = is_query && key >= first && key <= last && mask_shows(mask, query, key);
            float s = -INFINITY;
            if (seen) {
                s = bias_curve(bias, scores[start + key], query, (float)(key - query - off));
                if (BIAS)
                    s = bias_add(bias, s, query, key, sequence.nq, sequence.nk);
            }
            scores[start + key] = s;
        }
        if (SINKS && get_local_id(0) == 0)
            scores[start + call.max_k] = is_query ? modifiers.sinks[call.sinks + place.head] : -INFINITY;
    }
}
