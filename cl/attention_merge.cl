/* Merges up to eight partial attention results row by row: o = sum(w_i o_i) / sum(w_i), lse = log(sum(exp(lse_i))),
 * with w_i = exp(lse_i - max). An operand whose lse is infinite saw no key: its weight is 0 and its o is not used. All
 * of a row's lse are read, behind a barrier, before one is written; each element of o is read and written by one
 * work-item. So the result may lie in an operand's own memory. */

/* Parameters. */
#ifndef COUNT
#define COUNT 2 /* operands, 0 to 8 */
#endif
#ifndef IN_DTYPE
#define IN_DTYPE 1 /* of o_in, a number of clattn_dtype */
#endif
#ifndef FIRST_DTYPE
#define FIRST_DTYPE 1 /* of operand 0 */
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE 1 /* of o */
#endif
#ifndef VECTOR
#define VECTOR 1 /* elements of a packet */
#endif
#ifndef ALIGNED
#define ALIGNED 0 /* 1: packets start at multiples of their size */
#endif
#ifndef LANES
#define LANES 1 /* work-items of a row */
#endif
#ifndef GROUP
#define GROUP 1 /* work-items of a work-group */
#endif
#ifndef KEEPS
#define KEEPS 0 /* 1: rows whose last lse is UNWRITTEN are left as they are */
#endif
/* HALF_TYPE, where defined: the device has the type half. */

#define UNWRITTEN 0x7fa00000u /* ATTENTION_UNWRITTEN of src/attention.h */
#define PARTIAL 0
#define RANK 3
#include "merge.clh"
#include "packet.clh"

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
attention_merge(global byte_t *o, global float *lse, global const byte_t *o0, global const float *lse0,
                global const byte_t *o1, global const float *lse1, global const byte_t *o2, global const float *lse2,
                global const byte_t *o3, global const float *lse3, global const byte_t *o4, global const float *lse4,
                global const byte_t *o5, global const float *lse5, global const byte_t *o6, global const float *lse6,
                global const byte_t *o7, global const float *lse7, const struct merge_layout layout) {
    global const byte_t *const o_in[8] = {o0, o1, o2, o3, o4, o5, o6, o7};
    global const float *const lse_in[8] = {lse0, lse1, lse2, lse3, lse4, lse5, lse6, lse7};
    const long row = (long)get_group_id(0) * (GROUP / LANES) + (long)(get_local_id(0) / LANES);
    const uint lane = (uint)get_local_id(0) % LANES;
    bool writes = row < layout.rows;
    float weight[8];
    long start[8];
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        weight[i] = row < layout.rows ? lse_in[i][merge_at(&layout, &layout.second_in[i], row)] : -INFINITY;
        writes = writes && !(KEEPS && i == COUNT - 1 && as_uint(weight[i]) == UNWRITTEN);
        weight[i] = weight[i] == INFINITY ? -INFINITY : weight[i];
        start[i] = merge_at(&layout, &layout.first_in[i], row);
        max = fmax(max, weight[i]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        weight[i] = weight[i] == -INFINITY ? 0.0f : exp2((weight[i] - max) * LOG2_E);
        sum += weight[i];
    }
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    const uint columns = writes ? (uint)layout.columns : 0;
    const long to = merge_at(&layout, &layout.first, row);
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint index = lane * VECTOR; index < columns; index += LANES * VECTOR) {
        packet_t total = (packet_t)(0.0f);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int dtype = i == 0 ? FIRST_DTYPE : IN_DTYPE;
            if (weight[i] != 0.0f)
                total += weight[i] * packet_load(o_in[i], start[i], index, columns, 1, dtype, 0.0f);
        }
        packet_store(o, to, index, columns, 1, total * inverse, OUT_DTYPE);
    }
    if (lse != 0 && lane == 0 && writes)
        lse[merge_at(&layout, &layout.second, row)] = sum == 0.0f ? -INFINITY : max + log(sum);
}
