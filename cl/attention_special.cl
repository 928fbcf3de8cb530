/* NaN and infinities in the values of unfused causal attention. The product P V would carry them into every row, 0
 * times such a value being NaN, also where a row must not see the key: it is made with a finite copy of V, and
 * afterwards the rows that may see a special value get it. Parameters: ELEMENT and OUT_ELEMENT (numbers of
 * clattn_dtype: of v and of o), ITEMS (work-items of a group). Work-items take elements in turn. */
#define BAND 1
#include "element.clh"
#include "key_range.clh"
#include "view.clh"

#define SPECIAL_ELEMENT(x) ((as_uint(x) & 0x7f800000u) == 0x7f800000u)

/* copy: rows of v one behind the other, `pitch` elements apart. *met becomes 1 where v holds a special value. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_finite_values(const __global byte_t *v, __global byte_t *copy, __global int *met, view_t view,
                        long copy_offset, long met_index, int batches, int heads, int keys, int dim, int pitch) {
    const long count = (long)batches * heads * keys * dim;
    for (long i = get_global_id(0); i < count; i += get_global_size(0)) {
        const long row = i / dim, head = row / keys;
        const int col = (int)(i % dim);
        const long from = view_element(view, head / heads, head % heads, row % keys) + col;
        const float value = element_load(v, from, ELEMENT);
        const bool special = SPECIAL_ELEMENT(value);
        element_store(copy, copy_offset + row * pitch + col, special ? 0.0f : value, ELEMENT);
        if (special)
            atomic_or(&met[met_index], 1);
    }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_add_special(const __global byte_t *v, __global byte_t *o, const __global int *met, view_t v_view,
                      view_t o_view, long met_index, long diagonal, int batches, int heads, int heads_per_kv,
                      int queries, int keys, int dim) {
    if (met[met_index] == 0)
        return;
    const long count = (long)batches * heads * queries * dim;
    for (long i = get_global_id(0); i < count; i += get_global_size(0)) {
        const long row = i / dim, head = row / queries, query = row % queries;
        const int col = (int)(i % dim);
        const long to = view_element(o_view, head / heads, head % heads, query) + col;
        const long from = view_element(v_view, head / heads, head % heads / heads_per_kv, 0) + col;
        const band_t band = band_of(INT_MIN, diagonal, keys);
        const long last = band_last(band, (int)query);
        float sum = element_load(o, to, OUT_ELEMENT);
        for (long key = 0; key <= last; key++) {
            const float value = element_load(v, from + key * v_view.row, ELEMENT);
            sum += SPECIAL_ELEMENT(value) ? value : 0.0f;
        }
        element_store(o, to, sum, OUT_ELEMENT);
    }
}
