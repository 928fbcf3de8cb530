/* The gradient of attention's sinks: the sum over all queries of a head of what attention_backward_terms.cl found for
 * each, in an order that never changes. A work-group takes a head. Parameter: ITEMS (work-items of a group, a power of
 * two). */
#include "element.clh"

typedef struct {
    long terms, dsinks; /* in elements */
    int batches, heads, rows;
    int unused; /* makes the size a multiple of 8 on every compiler */
} sinks_t;

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_backward_sinks(const __global float *terms, __global float *dsinks, sinks_t call) {
    __local float part[ITEMS];
    const int head = (int)get_group_id(0), item = (int)get_local_id(0);
    float sum = 0.0f;
    for (int batch = 0; batch < call.batches; batch++) {
        const long first = call.terms + ((long)batch * call.heads + head) * call.rows;
        for (int row = item; row < call.rows; row += ITEMS)
            sum += terms[first + row];
    }
    part[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = ITEMS / 2; step > 0; step /= 2) {
        const float other = item < step ? part[item + step] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        part[item] += other;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0)
        dsinks[call.dsinks + head] = part[0];
}
