/* Self-test of the sub-group back-end: one work-group, one value a work-item, all exchanges and reductions of the
 * contract. Results lie as [result][work-item], RESULT_STRIDE apart: exchanges by 1, 2, 4 .. below SG_SIZE (room for
 * 7), the last lane's value, the maximum, the sum. */
#include "subgroup.clh"

#define EXCHANGES 7
#define GROUP_MAX 256

SG_KERNEL __kernel void selftest_shuffle(const __global uchar *in, __global uchar *out) {
    SG_SCRATCH(scratch, GROUP_MAX);
    const uint item = get_local_id(0);
    const float value = ((const __global float *)in)[item];
    __global float *result = (__global float *)out + item;
    for (uint exchange = 0; (1u << exchange) < SG_SIZE; exchange++)
        result[exchange * RESULT_STRIDE] = sg_xor(value, 1u << exchange, scratch);
    result += EXCHANGES * RESULT_STRIDE;
    result[0] = sg_broadcast(value, SG_SIZE - 1, scratch);
    result[RESULT_STRIDE] = sg_all_max(value, scratch);
    result[2 * RESULT_STRIDE] = sg_all_sum(value, scratch);
}
