/* Merges up to eight softmax states element by element: m = max(m_i), l = sum(l_i exp(m_i - m)). An operand with m =
 * -inf counts for nothing, whatever its l holds. All operands of an element are read before its result is written. */

/* Parameters. */
#ifndef COUNT
#define COUNT 2 /* operands, 0 to 8 */
#endif
#ifndef GROUP
#define GROUP 1 /* work-items of a work-group */
#endif

#define RANK 4
#include "merge.clh"

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_merge(global float *m, global float *l, global const float *m0, global const float *l0, global const float *m1,
              global const float *l1, global const float *m2, global const float *l2, global const float *m3,
              global const float *l3, global const float *m4, global const float *l4, global const float *m5,
              global const float *l5, global const float *m6, global const float *l6, global const float *m7,
              global const float *l7, const struct merge_layout layout) {
    const long index = (long)get_global_id(0);
    if (index >= layout.rows)
        return;
    global const float *const m_in[8] = {m0, m1, m2, m3, m4, m5, m6, m7};
    global const float *const l_in[8] = {l0, l1, l2, l3, l4, l5, l6, l7};
    float max_in[8], sum_in[8];
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        max_in[i] = m_in[i][merge_at(&layout, &layout.first_in[i], index)];
        sum_in[i] = l_in[i][merge_at(&layout, &layout.second_in[i], index)];
        max = fmax(max, max_in[i]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum += max_in[i] == -INFINITY ? 0.0f : sum_in[i] * exp2((max_in[i] - max) * LOG2_E);
    m[merge_at(&layout, &layout.first, index)] = isnan(sum) ? NAN : max;
    l[merge_at(&layout, &layout.second, index)] = sum;
}
