/* Self-test of the type half: all its bit patterns to float, and as many floats to half. Both buffers hold one part a
 * direction: in is 65536 half, then 65536 float; out is 65536 float, then 65536 half. */
#include "element.clh"

#define PATTERNS 65536

__kernel void selftest_half(const __global uchar *in, __global uchar *out) {
    const __global ushort *half_in = (const __global ushort *)in;
    const __global float *float_in = (const __global float *)(in + PATTERNS * sizeof(ushort));
    __global float *float_out = (__global float *)out;
    __global ushort *half_out = (__global ushort *)(out + PATTERNS * sizeof(float));
    for (uint i = get_global_id(0); i < PATTERNS; i += get_global_size(0)) {
        float_out[i] = half_to_float(half_in[i]);
        half_out[i] = float_to_half(float_in[i]);
    }
}
