/* Measures copy bandwidth and multiply-add throughput with two kernels that do nothing else. */
#include "yardstick.h"
#include "command.h"
#include "timer.h"

#include <stdio.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)
#define COPY_ITEM 64 /* bytes of one work-item: four vectors of 16 */
#define FMA_STEPS 2048
#define FMA_CHAINS 8

static const char source[] =
    "__kernel void copy(__global const uint4 *from, __global uint4 *to) {\n"
    "    const size_t step = get_global_size(0), i = get_global_id(0);\n"
    "    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];\n"
    "    to[i] = a;\n    to[i + step] = b;\n    to[i + 2 * step] = c;\n    to[i + 3 * step] = d;\n"
    "}\n"
    "__kernel void multiply_add(__global float *out, float x, float y) {\n"
    "    real a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4, f = x + 5, g = x + 6, h = x + 7;\n"
    "    const real m = y, n = x;\n"
    "    for (int i = 0; i < STEPS; i++) {\n"
    "        a = a * m + n; b = b * m + n; c = c * m + n; d = d * m + n;\n"
    "        e = e * m + n; f = f * m + n; g = g * m + n; h = h * m + n;\n"
    "    }\n"
    "    a += b + c + d + e + f + g + h;\n"
    "    out[get_global_id(0)] = FIRST(a);\n"
    "}\n";

/* The speed below which a measurement on a known device is void. */
static const struct {
    const char *name_part;
    double copy_bytes_per_second;
} expectations[] = {{"H200", 4.0e12}};

struct bench {
    const struct machine *machine;
    cl_program program;
    cl_kernel kernel; /* NULL: clEnqueueCopyBuffer */
    cl_mem from, to;
    size_t bytes, items, group;
    cl_uint lanes;
};

static int enqueue(void *user, unsigned index, cl_event *event) {
    const struct bench *b = user;
    (void)index;
    const cl_command_queue queue = b->machine->queue;
    const cl_int error = b->kernel
                             ? clEnqueueNDRangeKernel(queue, b->kernel, 1, NULL, &b->items, &b->group, 0, NULL, event)
                             : clEnqueueCopyBuffer(queue, b->from, b->to, 0, 0, b->bytes, 0, NULL, event);
    return error == CL_SUCCESS ? EXIT_OK : complain(EXIT_UNSUPPORTED, "measuring the device: OpenCL error %d", error);
}

static int measure(struct bench *bench, double *seconds) {
    struct timer timer = {.queue = bench->machine->queue, .call = enqueue, .user = bench};
    timer.plan = timer_plan_for(bench->machine->entry.type);
    if (bench->machine->entry.type & CL_DEVICE_TYPE_CPU)
        timer.plan.runs = 7;
    FORWARD(timer_measure(&timer));
    *seconds = timer_median(&timer);
    return EXIT_OK;
}

/* On a CPU a work-item is as wide as a register; a GPU has work-items for that. */
static cl_uint lanes_of(const struct machine *machine) {
    cl_uint width = 1;
    if (machine->entry.type & CL_DEVICE_TYPE_CPU)
        clGetDeviceInfo(machine->entry.device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof width, &width, NULL);
    return width == 4 || width == 8 || width == 16 ? width : 1;
}

static int build(struct bench *bench) {
    const char *text = source;
    char options[128];
    cl_int error;
    bench->lanes = lanes_of(bench->machine);
    if (bench->lanes > 1)
        snprintf(options, sizeof options, "-cl-mad-enable -DSTEPS=%d -Dreal=float%u -DFIRST(v)=((v).s0)", FMA_STEPS,
                 bench->lanes);
    else
        snprintf(options, sizeof options, "-cl-mad-enable -DSTEPS=%d -Dreal=float -DFIRST(v)=(v)", FMA_STEPS);
    bench->program = clCreateProgramWithSource(bench->machine->context, 1, &text, NULL, &error);
    if (error == CL_SUCCESS)
        error = clBuildProgram(bench->program, 1, &bench->machine->entry.device, options, NULL, NULL);
    return error == CL_SUCCESS ? EXIT_OK : complain(EXIT_UNSUPPORTED, "measuring the device: build error %d", error);
}

static uint64_t copy_size(const struct machine *machine) {
    uint64_t size = machine->entry.type & CL_DEVICE_TYPE_CPU ? GIB / 8 : GIB;
    if (size > machine->largest_buffer / 2)
        size = machine->largest_buffer / 2;
    if (size > machine->memory / 8)
        size = machine->memory / 8;
    return size & ~(uint64_t)(COPY_ITEM * 256 - 1);
}

static int measure_copy(struct bench *bench, struct yardstick *out) {
    double by_command = 0, by_kernel = 0;
    bench->kernel = NULL;
    FORWARD(measure(bench, &by_command));
    cl_int error;
    bench->kernel = clCreateKernel(bench->program, "copy", &error);
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "measuring the device: no kernel (%d)", error);
    clSetKernelArg(bench->kernel, 0, sizeof bench->from, &bench->from);
    clSetKernelArg(bench->kernel, 1, sizeof bench->to, &bench->to);
    bench->items = bench->bytes / COPY_ITEM;
    bench->group = 256;
    const int code = measure(bench, &by_kernel);
    clReleaseKernel(bench->kernel);
    bench->kernel = NULL;
    out->copy_bytes = bench->bytes;
    out->copy_bytes_per_second = 2.0 * (double)bench->bytes / (by_kernel < by_command ? by_kernel : by_command);
    return code;
}

static int measure_flops(struct bench *bench, struct yardstick *out) {
    const bool cpu = bench->machine->entry.type & CL_DEVICE_TYPE_CPU;
    const cl_float x = 0.5f, y = 0.25f;
    cl_uint units = 1;
    clGetDeviceInfo(bench->machine->entry.device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    cl_int error;
    bench->kernel = clCreateKernel(bench->program, "multiply_add", &error);
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "measuring the device: no kernel (%d)", error);
    clSetKernelArg(bench->kernel, 0, sizeof bench->to, &bench->to);
    clSetKernelArg(bench->kernel, 1, sizeof x, &x);
    clSetKernelArg(bench->kernel, 2, sizeof y, &y);
    bench->group = cpu ? 16 : 256;
    bench->items = bench->group * units * 64;
    double seconds = 0;
    const int code = measure(bench, &seconds);
    clReleaseKernel(bench->kernel);
    bench->kernel = NULL;
    out->flops_per_second = 2.0 * FMA_CHAINS * FMA_STEPS * bench->lanes * (double)bench->items / seconds;
    return code;
}

static void judge(const struct machine *machine, const struct yardstick *yardstick) {
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++)
        if (strstr(machine->entry.name, expectations[i].name_part) &&
            yardstick->copy_bytes_per_second < expectations[i].copy_bytes_per_second)
            remark("VOID: this device copies at %.2f TB/s, should reach %.2f; something disturbs it",
                   yardstick->copy_bytes_per_second / 1e12, expectations[i].copy_bytes_per_second / 1e12);
}

int yardstick_measure(const struct machine *machine, struct yardstick *out) {
    struct bench bench = {.machine = machine, .bytes = copy_size(machine)};
    *out = (struct yardstick){.copy_bytes = 0};
    int code = build(&bench);
    bench.from = machine_buffer(machine, bench.bytes);
    bench.to = machine_buffer(machine, bench.bytes);
    if (code == EXIT_OK && (!bench.from || !bench.to))
        code = complain(EXIT_UNSUPPORTED, "measuring the device: no memory for two buffers of %zu bytes", bench.bytes);
    const cl_uint zero = 0;
    if (code == EXIT_OK)
        clEnqueueFillBuffer(machine->queue, bench.from, &zero, sizeof zero, 0, bench.bytes, 0, NULL, NULL);
    if (code == EXIT_OK)
        code = measure_copy(&bench, out);
    if (code == EXIT_OK)
        code = measure_flops(&bench, out);
    if (code == EXIT_OK)
        judge(machine, out);
    if (bench.from)
        clReleaseMemObject(bench.from);
    if (bench.to)
        clReleaseMemObject(bench.to);
    if (bench.program)
        clReleaseProgram(bench.program);
    return code;
}
