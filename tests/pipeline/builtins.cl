/* The functions of OpenCL C that the kernels call, which no driver brings along here. */
#define OVERLOADED __attribute__((overloadable))

int machine_local_id(void);
int machine_group_id(void);
int machine_group_count(void);
void machine_group_barrier(void);
uint machine_atomic_add(volatile __global uint *at, uint value);
float machine_from_half(ushort bits);
ushort machine_to_half(float value);

size_t OVERLOADED get_local_id(uint dim) {
    return (size_t)machine_local_id();
}

size_t OVERLOADED get_group_id(uint dim) {
    return (size_t)machine_group_id();
}

size_t OVERLOADED get_num_groups(uint dim) {
    return (size_t)machine_group_count();
}

void OVERLOADED barrier(cl_mem_fence_flags flags) {
    machine_group_barrier();
}

uint OVERLOADED atomic_inc(volatile __global uint *at) {
    return machine_atomic_add(at, 1);
}

int OVERLOADED atomic_inc(volatile __global int *at) {
    return (int)machine_atomic_add((volatile __global uint *)at, 1);
}

/* Work-items of a group take turns in one thread. */
int OVERLOADED atomic_min(volatile __local int *at, int value) {
    const int before = *at;
    *at = value < before ? value : before;
    return before;
}

float OVERLOADED fmax(float a, float b) {
    return __builtin_fmaxf(a, b);
}

int OVERLOADED isnan(float x) {
    return x != x;
}

float OVERLOADED select(float a, float b, int chosen) {
    return chosen ? b : a;
}

float OVERLOADED fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

float OVERLOADED log2(float x) {
    return __builtin_log2f(x);
}

float OVERLOADED exp2(float x) {
    return __builtin_exp2f(x);
}

float OVERLOADED tanh(float x) {
    return __builtin_tanhf(x);
}

int OVERLOADED max(int a, int b) {
    return a > b ? a : b;
}

int OVERLOADED min(int a, int b) {
    return a < b ? a : b;
}

int OVERLOADED clamp(int x, int low, int high) {
    return min(max(x, low), high);
}

long OVERLOADED clamp(long x, long low, long high) {
    return x < low ? low : x > high ? high : x;
}

int OVERLOADED clz(int x) {
    return x == 0 ? 32 : __builtin_clz((uint)x);
}

int OVERLOADED add_sat(int a, int b) {
    return (int)clamp((long)a + b, (long)INT_MIN, (long)INT_MAX);
}

float2 OVERLOADED vload2(size_t index, const __global float *from) {
    return (float2)(from[2 * index], from[2 * index + 1]);
}

void OVERLOADED vstore2(float2 value, size_t index, __global float *to) {
    to[2 * index] = value.x, to[2 * index + 1] = value.y;
}

float4 OVERLOADED vload4(size_t index, const __global float *from) {
    from += 4 * index;
    return (float4)(from[0], from[1], from[2], from[3]);
}

long OVERLOADED min(long a, long b) {
    return a < b ? a : b;
}

long OVERLOADED max(long a, long b) {
    return a > b ? a : b;
}

float OVERLOADED vload_half(size_t index, const __private half *from) {
    return machine_from_half(((const __private ushort *)from)[index]);
}

void OVERLOADED vstore_half_rte(float value, size_t index, __private half *to) {
    ((__private ushort *)to)[index] = machine_to_half(value);
}
