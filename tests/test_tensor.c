/* Helpers for the public tensor struct. */
#include "tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void dtypes_have_sizes(void **state) {
    (void)state;
    assert_int_equal(clattn_dtype_size(CLATTN_F32), 4);
    assert_int_equal(clattn_dtype_size(CLATTN_F16), 2);
    assert_int_equal(clattn_dtype_size(CLATTN_BF16), 2);
    assert_int_equal(clattn_dtype_size(CLATTN_I8), 1);
    assert_int_equal(clattn_dtype_size(CLATTN_F8_E4M3), 1);
    assert_int_equal(clattn_dtype_size(CLATTN_I4), 0);
    assert_int_equal(tensor_dtype_bits(CLATTN_I4), 4);
    assert_int_equal(tensor_dtype_bits(CLATTN_BF16), 16);
    assert_int_equal(tensor_dtype_bits((clattn_dtype)9), 0);
    assert_int_equal(clattn_dtype_size((clattn_dtype)0), 0);
    assert_int_equal(clattn_dtype_size((clattn_dtype)99), 0);
}

static void dtypes_have_names(void **state) {
    (void)state;
    assert_string_equal(tensor_dtype_name(CLATTN_F32), "f32");
    assert_string_equal(tensor_dtype_name(CLATTN_F16), "f16");
    assert_string_equal(tensor_dtype_name(CLATTN_BF16), "bf16");
    assert_string_equal(tensor_dtype_name(CLATTN_I8), "i8");
    assert_string_equal(tensor_dtype_name(CLATTN_I4), "i4");
    assert_string_equal(tensor_dtype_name(CLATTN_F8_E4M3), "f8_e4m3");
    assert_string_equal(tensor_dtype_name((clattn_dtype)0), "unknown");
}

static void dense_is_row_major(void **state) {
    (void)state;
    const int64_t dims[] = {2, 3, 5, 7};
    const cl_mem buffer = (cl_mem)(uintptr_t)64;
    const clattn_tensor tensor = clattn_tensor_dense(buffer, CLATTN_F16, 4, dims);
    const int64_t strides[] = {105, 35, 7, 1};
    assert_int_equal(tensor.memory.kind, CLATTN_MEMORY_BUFFER);
    assert_ptr_equal(tensor.memory.as.buffer, buffer);
    assert_int_equal(tensor.offset, 0);
    assert_int_equal(tensor.dtype, CLATTN_F16);
    assert_int_equal(tensor.rank, 4);
    assert_memory_equal(tensor.dims, dims, sizeof dims);
    assert_memory_equal(tensor.strides, strides, sizeof strides);
}

static void assert_view(clattn_tensor view, int64_t offset, const int64_t *dims, const int64_t *strides) {
    assert_int_equal(view.memory.kind, CLATTN_MEMORY_BUFFER);
    assert_int_equal(view.dtype, CLATTN_F16);
    assert_int_equal(view.offset, offset);
    assert_int_equal(view.rank, 4);
    assert_memory_equal(view.dims, dims, 4 * sizeof *dims);
    assert_memory_equal(view.strides, strides, 4 * sizeof *strides);
}

/* Packed rows [1,N,3 H,D] with H = 4, N = 5, D = 8. */
static clattn_tensor packed(void) {
    clattn_tensor rows = clattn_tensor_dense((cl_mem)(uintptr_t)64, CLATTN_F16, 4, (const int64_t[]){1, 5, 12, 8});
    rows.offset = 1000;
    return rows;
}

static void slices_and_transposes_are_views(void **state) {
    (void)state;
    const clattn_tensor keys = clattn_tensor_slice(packed(), 2, 4, 4);
    assert_view(keys, 1032, (const int64_t[]){1, 5, 4, 8}, (const int64_t[]){480, 96, 8, 1});
    assert_view(clattn_tensor_transpose(keys, 1, 2), 1032, (const int64_t[]){1, 4, 5, 8},
                (const int64_t[]){480, 8, 96, 1});
    assert_view(clattn_tensor_transpose(keys, -2, -3), 1032, (const int64_t[]){1, 4, 5, 8},
                (const int64_t[]){480, 8, 96, 1});
    assert_view(clattn_tensor_slice(packed(), -2, 12, 0), 1096, (const int64_t[]){1, 5, 0, 8},
                (const int64_t[]){480, 96, 8, 1});
    assert_view(clattn_tensor_transpose(keys, 3, 3), 1032, keys.dims, keys.strides);
}

static void views_that_the_tensor_lacks_have_no_rank(void **state) {
    const int64_t most = INT64_MAX;
    clattn_tensor far = packed();
    (void)state;
    assert_int_equal(clattn_tensor_slice(packed(), 4, 0, 1).rank, 0);
    assert_int_equal(clattn_tensor_slice(packed(), -5, 0, 1).rank, 0);
    assert_int_equal(clattn_tensor_slice(packed(), 2, -1, 1).rank, 0);
    assert_int_equal(clattn_tensor_slice(packed(), 2, 0, -1).rank, 0);
    assert_int_equal(clattn_tensor_slice(packed(), 2, 0, 13).rank, 0);
    assert_int_equal(clattn_tensor_slice(packed(), 2, 9, 4).rank, 0);
    assert_int_equal(clattn_tensor_slice(packed(), 2, most, most).rank, 0);
    far.dims[0] = far.strides[0] = most;
    assert_int_equal(clattn_tensor_slice(far, 0, 2, 1).rank, 0);
    assert_int_equal(clattn_tensor_slice(far, 0, 1, 1).rank, 0);
    assert_int_equal(clattn_tensor_transpose(packed(), 1, 4).rank, 0);
    assert_int_equal(clattn_tensor_transpose(packed(), -5, 1).rank, 0);
    far.rank = 77;
    assert_int_equal(clattn_tensor_transpose(far, 1, 70).rank, 0);
    far.rank = INT32_MIN; /* whose negative is no number */
    assert_int_equal(clattn_tensor_slice(far, 0, 0, 0).rank, 0);
    assert_int_equal(clattn_tensor_transpose(far, 0, 0).rank, 0);
    far.rank = 0;
    assert_int_equal(clattn_tensor_slice(far, 0, 0, 0).rank, 0);
    assert_int_equal(clattn_tensor_slice(far, -1, 0, 0).rank, 0);
}

static void rank_is_clamped(void **state) {
    (void)state;
    const int64_t dims[] = {2, 3, 5, 7, 11};
    assert_int_equal(clattn_tensor_dense(NULL, CLATTN_F32, 5, dims).rank, 4);
    assert_int_equal(clattn_tensor_dense(NULL, CLATTN_F32, 0, dims).rank, 1);
    const clattn_tensor row = clattn_tensor_dense(NULL, CLATTN_F32, -3, dims);
    assert_int_equal(row.dims[0], 2);
    assert_int_equal(row.strides[0], 1);
    assert_int_equal(row.dims[1], 0);
}

/* Refused later by the call; here it must only not trap. */
static void absurd_dims_do_not_trap(void **state) {
    (void)state;
    const int64_t dims[] = {INT64_MAX, INT64_MAX, INT64_MIN, INT64_MAX};
    assert_int_equal(clattn_tensor_dense(NULL, CLATTN_F32, 4, dims).dims[2], INT64_MIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_sizes),
        cmocka_unit_test(dtypes_have_names),
        cmocka_unit_test(dense_is_row_major),
        cmocka_unit_test(slices_and_transposes_are_views),
        cmocka_unit_test(views_that_the_tensor_lacks_have_no_rank),
        cmocka_unit_test(rank_is_clamped),
        cmocka_unit_test(absurd_dims_do_not_trap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
