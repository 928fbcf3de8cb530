/* Which programs attention builds, on the fake driver: whatever changes the code is a program of its own (A60), and
 * what is known only at run time (lengths, windows, scale, cap, strides) builds nothing. */
#include "context.h"
#include "fake_cl.h"

#include <clattn/variants.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { HEADS = 4, LENGTH = 16, DIM = 32, BYTES = 1 << 20 };

static cl_context cl;
static cl_command_queue queue;
static cl_mem memory, output, workspace;
static clattn_context *context;

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    clattn_context_options options;
    (void)state;
    fake_reset();
    clattn_context_options_init(&options);
    options.cache_dir = options.tuning_db = options.cl_dir = "";
    options.capabilities = "none";
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    queue = clCreateCommandQueue(cl, device, 0, NULL);
    memory = clCreateBuffer(cl, CL_MEM_READ_WRITE, BYTES, NULL, NULL);
    output = clCreateBuffer(cl, CL_MEM_READ_WRITE, BYTES, NULL, NULL);
    workspace = clCreateBuffer(cl, CL_MEM_READ_WRITE, BYTES, NULL, NULL);
    return clattn_context_create(cl, device, &options, &context) == CLATTN_SUCCESS ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    clattn_context_release(&context);
    clReleaseMemObject(workspace);
    clReleaseMemObject(output);
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(cl);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

static clattn_attention_op plain(clattn_dtype dtype) {
    const int64_t dims[] = {1, HEADS, LENGTH, DIM};
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = clattn_tensor_dense(memory, dtype, 4, dims);
    op.k = op.v = op.o = op.q;
    op.o.memory.as.buffer = output;
    return op;
}

static clattn_tensor vector(clattn_dtype dtype, int64_t count) {
    return clattn_tensor_dense(memory, dtype, 1, &count);
}

static clattn_tensor plane(clattn_dtype dtype) {
    return clattn_tensor_dense(memory, dtype, 4, (const int64_t[]){1, 1, LENGTH, LENGTH});
}

/* By this variant and with these; NULL: the library's choice. */
static const char *forced, *parameters;

/* What calling this builds. */
static int built_by(const clattn_attention_op *op) {
    clattn_statistics before = {.size = sizeof before}, after = before;
    clattn_launch launch;
    clattn_launch_init(&launch, queue);
    launch.workspace = (clattn_workspace){workspace, 0, BYTES};
    launch.variant = forced;
    launch.parameters = parameters;
    assert_int_equal(clattn_context_statistics(context, &before), CLATTN_SUCCESS);
    const clattn_status status = clattn_attention(context, op, &launch);
    if (status != CLATTN_SUCCESS)
        fail_msg("%s: %s", clattn_status_name(status), clattn_last_error());
    assert_int_equal(clattn_context_statistics(context, &after), CLATTN_SUCCESS);
    return (int)(after.programs_built - before.programs_built);
}

static void every_modifier_is_code(void **state) {
    (void)state;
    clattn_attention_op op = plain(CLATTN_F32);
    assert_int_equal(built_by(&op), 1);
    op.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    assert_int_equal(built_by(&op), 1);
    op.softcap = 30;
    assert_int_equal(built_by(&op), 1);
    op.alibi = vector(CLATTN_F32, HEADS);
    assert_int_equal(built_by(&op), 1);
    op.sinks = vector(CLATTN_F32, HEADS);
    assert_int_equal(built_by(&op), 1);
    op.bias = plane(CLATTN_F32);
    assert_int_equal(built_by(&op), 1);
    op.k_lengths = vector(CLATTN_I32, 1);
    assert_int_equal(built_by(&op), 1);
    op.mask = plane(CLATTN_U8);
    assert_int_equal(built_by(&op), 2); /* with the pre-pass */
    op.page_table = clattn_tensor_dense(memory, CLATTN_I32, 2, (const int64_t[]){1, 1});
    assert_int_equal(built_by(&op), 1);
    op = plain(CLATTN_F16);
    assert_int_equal(built_by(&op), 1);
    op.bias = plane(CLATTN_F16);
    assert_int_equal(built_by(&op), 1);
    op.bias = plane(CLATTN_F32);
    assert_int_equal(built_by(&op), 1);
    op = plain(CLATTN_F32);
    op.q.dims[3] = op.k.dims[3] = DIM / 2;
    assert_int_equal(built_by(&op), 1);
}

/* Shapes, limits and numbers, one after the other, of a variant that has built for a window, a soft cap and lengths. */
static void shapes_build_nothing(void) {
    clattn_attention_op op = plain(CLATTN_F32);
    op.window_left = 3;
    op.softcap = 30;
    op.k_lengths = vector(CLATTN_I32, 1);
    assert_int_equal(built_by(&op), 1);
    op.q.dims[2] = op.o.dims[2] = 5;
    op.k.dims[2] = op.v.dims[2] = 11;
    assert_int_equal(built_by(&op), 0);
    op.k.dims[2] = op.v.dims[2] = 200;
    assert_int_equal(built_by(&op), 0);
    op.q.dims[1] = op.o.dims[1] = 2;
    op.k.dims[1] = op.v.dims[1] = 1;
    assert_int_equal(built_by(&op), 0);
    op.q.dims[0] = op.k.dims[0] = op.v.dims[0] = op.o.dims[0] = 3;
    op.k_lengths = vector(CLATTN_I32, 3);
    assert_int_equal(built_by(&op), 0);
    op.q_lengths = vector(CLATTN_I32, 3);
    assert_int_equal(built_by(&op), 0);
    op.window_left = 100;
    assert_int_equal(built_by(&op), 0);
    op.window_left = -1, op.window_right = 0;
    assert_int_equal(built_by(&op), 0);
    op.causal = CLATTN_CAUSAL_TOP_LEFT;
    assert_int_equal(built_by(&op), 0);
    op.has_diagonal = 1, op.diagonal = -3;
    assert_int_equal(built_by(&op), 0);
    op.has_scale = 1, op.scale = -2;
    assert_int_equal(built_by(&op), 0);
    op.softcap = 0.5F;
    assert_int_equal(built_by(&op), 0);
    op.max_q = 4, op.max_k = 7;
    assert_int_equal(built_by(&op), 0);
    op.q.dims[0] = op.k.dims[0] = op.v.dims[0] = op.o.dims[0] = 1;
    op.q_lengths.memory.kind = op.k_lengths.memory.kind = CLATTN_MEMORY_NONE;
    op.q_offsets = vector(CLATTN_I32, 2);
    op.k_offsets = vector(CLATTN_I32, 2);
    assert_int_equal(built_by(&op), 0);
    op.q.strides[2] = op.k.strides[2] = 2 * DIM;
    assert_int_equal(built_by(&op), 0);
}

/* Dims and strides of masks, biases, slopes and pages. */
static void planes_and_pages_build_nothing(void) {
    clattn_attention_op op = plain(CLATTN_F32);
    op.mask = plane(CLATTN_U8);
    op.bias = plane(CLATTN_F32);
    op.alibi = vector(CLATTN_F32, HEADS);
    assert_true(built_by(&op) > 0);
    op.mask.dims[2] = op.bias.dims[3] = 1;
    assert_int_equal(built_by(&op), 0);
    op.mask.strides[3] = op.bias.strides[2] = 0;
    assert_int_equal(built_by(&op), 0);
    op.alibi = clattn_tensor_dense(memory, CLATTN_F32, 2, (const int64_t[]){1, HEADS});
    assert_int_equal(built_by(&op), 0);
    op = plain(CLATTN_F32);
    op.page_table = clattn_tensor_dense(memory, CLATTN_I32, 2, (const int64_t[]){1, 1});
    assert_true(built_by(&op) > 0);
    op.page_table = clattn_tensor_dense(memory, CLATTN_I32, 2, (const int64_t[]){1, 9});
    assert_int_equal(built_by(&op), 0);
    op.k.dims[0] = op.v.dims[0] = 7, op.k.dims[2] = op.v.dims[2] = 5;
    assert_int_equal(built_by(&op), 0);
}

static void run_time_values_build_nothing(void **state) {
    static const char *const variants[] = {"fused_fma", "two_pass_fma"};
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        forced = variants[i];
        shapes_build_nothing();
        planes_and_pages_build_nothing();
    }
    forced = NULL;
}

/* Rows of a work-group are a fact of decode's programs, the number of keys and of their parts is not. */
static void keys_of_decode_build_nothing(void **state) {
    clattn_attention_op op = plain(CLATTN_F32);
    (void)state;
    forced = "decode_fma";
    parameters = "splits=2";
    op.q.dims[2] = op.o.dims[2] = 1;
    op.k.dims[2] = op.v.dims[2] = 1024;
    assert_int_equal(built_by(&op), 2); /* with what puts the parts together */
    op.k.dims[2] = op.v.dims[2] = 2000;
    assert_int_equal(built_by(&op), 0);
    op.q.dims[2] = op.o.dims[2] = 3;
    assert_int_equal(built_by(&op), 0);
    parameters = "splits=5";
    assert_int_equal(built_by(&op), 0);
    forced = parameters = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_modifier_is_code, set_up, tear_down),
        cmocka_unit_test_setup_teardown(run_time_values_build_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_of_decode_build_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("programs of attention", tests, NULL, NULL);
}
