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
        cmocka_unit_test(dtypes_have_sizes),       cmocka_unit_test(dtypes_have_names),
        cmocka_unit_test(dense_is_row_major),      cmocka_unit_test(rank_is_clamped),
        cmocka_unit_test(absurd_dims_do_not_trap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
