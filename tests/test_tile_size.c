/* The host's sizes of tiles against what the compiler says of kernels built with the same parameters. */
#include "context.h"
#include "support.h"
#include "tile_size.h"

#include <stdio.h>

/* A product's kernel: its local memory is one tile for each operand. */
struct kernel {
    enum backend backend;
    clattn_dtype dtype;
    const char *parameters;
    int column_tiles, k_slice, transpose_b;
};

static const struct kernel kernels[] = {
    {BACKEND_FMA, CLATTN_F32, "fma_items=8,fma_rows=4,groups=2", 2, 12, 0},
    {BACKEND_FMA, CLATTN_F16, "fma_items=4,fma_rows=8,groups=3", 1, 16, 1},
    {BACKEND_FMA, CLATTN_F32, "fma_items=1,fma_rows=4,groups=1", 1, 4, 1},
    {BACKEND_CPU_VECTOR, CLATTN_F32, "cpu_rows=8", 3, 16, 0},
    {BACKEND_CPU_VECTOR, CLATTN_BF16, "cpu_rows=32", 1, 48, 1},
    {BACKEND_NVIDIA_MMA, CLATTN_F16, "mma_rows=16,groups=4", 2, 32, 0},
    {BACKEND_NVIDIA_MMA, CLATTN_BF16, "mma_rows=32,groups=2", 3, 16, 1},
};

static cl_ulong local_size(const struct kernel *kernel, const struct tile_shape *shape) {
    char tile[256], options[512];
    struct program *program = NULL;
    cl_kernel object = NULL;
    cl_ulong size = 0;
    tile_options(shape, "plain", tile, sizeof tile);
    snprintf(options, sizeof options,
             "%s -DELEMENT=%d -DOUT_ELEMENT=1 -DTRANSPOSE_A=0 -DTRANSPOSE_B=%d -DALIGNED=0 -DCOLUMN_TILES=%d "
             "-DK_SLICE=%d -DSTAGE_SLOTS=1",
             tile, (int)kernel->dtype, kernel->transpose_b, kernel->column_tiles, kernel->k_slice);
    const struct program_key key = {.file = "gemm.cl", .kernel = "gemm", .options = options};
    if (program_get(device.clattn, &key, &program) != CLATTN_SUCCESS)
        fail_msg("%s", clattn_last_error());
    assert_int_equal(program_acquire_kernel(program, &object), CLATTN_SUCCESS);
    assert_int_equal(clGetKernelWorkGroupInfo(object, device.id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof size, &size, NULL),
                     CL_SUCCESS);
    program_release_kernel(program, object);
    return size;
}

static void compare(const struct kernel *kernel) {
    struct parameters parameters = {0};
    assert_int_equal(parameters_parse(&parameters, kernel->parameters), CLATTN_SUCCESS);
    assert_null(tile_shape_refusal(kernel->backend, CLATTN_OP_ATTENTION, &parameters));
    const struct tile_shape shape = tile_shape_of(kernel->backend, &parameters, &device.clattn->facts);
    const int rows = shape.groups * shape.m, columns = kernel->column_tiles * shape.n;
    const size_t a = tile_a_bytes(&shape, rows, kernel->k_slice);
    const size_t b = kernel->transpose_b ? tile_bt_bytes(&shape, columns, kernel->k_slice)
                                         : tile_b_bytes(&shape, kernel->k_slice, columns);
    const cl_ulong told = local_size(kernel, &shape);
    if (told < a + b || told > TILE_START + tile_array_bytes(a) + tile_array_bytes(b))
        fail_msg("%s, %s: the kernel takes %llu bytes, the host says %zu + %zu", variant_backend_name(kernel->backend),
                 kernel->parameters, (unsigned long long)told, a, b);
}

static void sizes_are_those_of_kernels(void **state) {
    const bool has_mma = (device.clattn->facts.caps & CAP_BIT(CAP_NVIDIA_MMA)) != 0;
    (void)state;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (kernels[i].backend != BACKEND_NVIDIA_MMA || has_mma)
            compare(&kernels[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_those_of_kernels)};
    return support_main("tile sizes", tests, 1);
}
