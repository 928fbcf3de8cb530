/* The tile contract, for every back-end that the device can run: the same kernel and the same whole numbers that test
 * matrix units at run time (cl/selftest_tile.cl), over the parameters that tuning may choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"
#include "launch.h"
#include "selftest_tile.h"
#include "support.h"

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static void enqueue(const struct tile_shape *shape, clattn_dtype dtype, cl_mem in, cl_mem out) {
    char options[512];
    struct program *program = NULL;
    struct sequence sequence;
    struct launch launch;
    clattn_launch call;
    const size_t groups = 1, items = (size_t)(shape->groups * shape->items);
    selftest_tile_options(shape, dtype, options, sizeof options);
    const struct program_key key = {"selftest_tile.cl", "selftest_tile", options};
    CHECK(program_get(device.clattn, &key, &program));
    clattn_launch_init(&call, device.queue);
    sequence_begin(&sequence, device.clattn, &call, 1);
    launch_begin(&launch, program);
    launch_buffer(&launch, in);
    launch_buffer(&launch, out);
    CHECK(launch_enqueue(&launch, &sequence, 1, &groups, &items));
    sequence_end(&sequence);
}

static void run(const struct tile_shape *shape, clattn_dtype dtype) {
    const size_t in_size = selftest_tile_in_size(shape, dtype), out_size = selftest_tile_out_size(shape);
    void *fed = calloc(1, in_size), *got = calloc(1, out_size);
    cl_int code = CL_SUCCESS;
    selftest_tile_fill(shape, dtype, fed);
    cl_mem in = clCreateBuffer(device.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, in_size, fed, &code);
    CHECK_CL(code);
    cl_mem out = clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, out_size, got, &code);
    CHECK_CL(code);
    enqueue(shape, dtype, in, out);
    CHECK_CL(clEnqueueReadBuffer(device.queue, out, CL_TRUE, 0, out_size, got, 0, NULL, NULL));
    if (!selftest_tile_holds(shape, got))
        fail_msg("%s: %d groups of %d work-items, tile %dx%dx%d, dtype %d", variant_backend_name(shape->backend),
                 shape->groups, shape->items, shape->m, shape->n, shape->k, (int)dtype);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    free(fed);
    free(got);
}

/* As the kernel's arrays are. */
static uint64_t local_bytes(const struct tile_shape *shape) {
    const int rows = shape->groups * shape->m, columns = 2 * shape->n, depth = 2 * shape->k;
    return tile_a_bytes(shape, rows, depth) + tile_bt_bytes(shape, columns, depth) +
           tile_b_bytes(shape, columns, columns) + tile_left_bytes(shape, rows, columns) +
           tile_row_scratch_bytes(shape) + 5 * TILE_ALIGNMENT;
}

static void run_text(enum backend backend, const char *text, const clattn_dtype *dtypes, size_t count) {
    struct parameters parameters = {0};
    CHECK(parameters_parse(&parameters, text));
    const struct tile_shape shape = tile_shape_of(backend, &parameters, &device.clattn->facts);
    if ((uint32_t)(shape.groups * shape.items) > device.clattn->facts.max_group ||
        local_bytes(&shape) > device.clattn->facts.local_memory)
        return;
    for (size_t i = 0; i < count; i++)
        run(&shape, dtypes[i]);
}

static const clattn_dtype all_dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};

static void fma_holds(void **state) {
    (void)state;
    run_text(BACKEND_FMA, "fma_items=16,fma_rows=4,groups=4", all_dtypes, 3);
    run_text(BACKEND_FMA, "fma_items=8,fma_rows=8,groups=8", all_dtypes, 1);
    run_text(BACKEND_FMA, "fma_items=4,fma_rows=2,groups=8", all_dtypes, 1);
    run_text(BACKEND_FMA, "fma_items=32,fma_rows=1,groups=1", all_dtypes, 1);
    run_text(BACKEND_FMA, "fma_items=1,fma_rows=4,groups=1", all_dtypes, 1);
}

static void cpu_vector_holds(void **state) {
    (void)state;
    run_text(BACKEND_CPU_VECTOR, "cpu_rows=8", all_dtypes, 3);
    run_text(BACKEND_CPU_VECTOR, "cpu_rows=64", all_dtypes, 1);
}

static void nvidia_mma_holds(void **state) {
    (void)state;
    if ((device.clattn->facts.caps & CAP_BIT(CAP_NVIDIA_MMA)) == 0)
        skip();
    run_text(BACKEND_NVIDIA_MMA, "mma_rows=16,groups=4", all_dtypes + 1, 2);
    run_text(BACKEND_NVIDIA_MMA, "mma_rows=32,groups=2", all_dtypes + 1, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fma_holds),
        cmocka_unit_test(cpu_vector_holds),
        cmocka_unit_test(nvidia_mma_holds),
    };
    return support_main("tile contract", tests, sizeof tests / sizeof tests[0]);
}
