/* Tensors that share a buffer, or fill it to the last element. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64 };

static cl_mem filled(size_t bytes, const void *data) {
    cl_int code = CL_SUCCESS;
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    CHECK_CL(clEnqueueWriteBuffer(device.queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL));
    return buffer;
}

static clattn_tensor view_of(cl_mem buffer, clattn_dtype dtype, int64_t offset, const int64_t *dims,
                             const int64_t *strides) {
    clattn_tensor view = clattn_tensor_dense(buffer, dtype, 4, dims);
    view.offset = offset;
    memcpy(view.strides, strides, 4 * sizeof(int64_t));
    return view;
}

/* A46: q, k and v interleaved in one buffer, [N,3,H,D], against separate dense ones. */
static void packed_qkv(int64_t head_dim, clattn_dtype dtype) {
    const int64_t n = 21, heads = 2, row = 3 * heads * head_dim;
    const int64_t dims[] = {1, heads, n, head_dim}, strides[] = {n * row, head_dim, row, 1};
    const struct attention_case shape = {.name = "packed",
                                         .batch = 1,
                                         .heads = heads,
                                         .kv_heads = heads,
                                         .nq = n,
                                         .nk = n,
                                         .head_dim = head_dim,
                                         .value_dim = head_dim,
                                         .q = fill_u1,
                                         .k = fill_u2,
                                         .v = fill_u3};
    struct attention_data data = attention_data_of(&shape, dtype);
    const size_t bytes = (size_t)(n * row) * (dtype == CLATTN_F32 ? 4 : 2);
    unsigned char *packed = calloc(1, bytes);
    assert_non_null(packed);
    const double *const parts[] = {data.q, data.k, data.v};
    for (int p = 0; p < 3; p++) {
        const clattn_tensor view = view_of(NULL, dtype, p * heads * head_dim, dims, strides);
        reference_scatter(&view, packed, parts[p]);
    }
    cl_mem buffer = filled(bytes, packed);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index));) {
        struct attention_result expected = attention_run(&data, variant),
                                result = {test_array(n * heads * head_dim), NULL};
        struct test_tensor o = test_output(dtype, 4, dims, NULL);
        clattn_attention_op op;
        clattn_attention_init(&op);
        op.q = view_of(buffer, dtype, 0, dims, strides);
        op.k = view_of(buffer, dtype, heads * head_dim, dims, strides);
        op.v = view_of(buffer, dtype, 2 * heads * head_dim, dims, strides);
        op.o = o.view;
        test_run(&op.head, variant);
        test_read(&o, result.o);
        attention_same_rows(&data, variant, &result, &expected, 0, n * heads);
        attention_result_free(&expected);
        attention_result_free(&result);
        test_release(&o);
    }
    clReleaseMemObject(buffer);
    free(packed);
    attention_data_free(&data);
}

static void packed_inputs(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        packed_qkv(64, all_dtypes[t]);
        packed_qkv(256, all_dtypes[t]);
    }
}

/* Attention of 2 queries over one key equal to itself: o is v's row; only where things lie matters here. */
static clattn_status run_in(const clattn_tensor *q, const clattn_tensor *k, const clattn_tensor *o,
                            const clattn_tensor *lse) {
    clattn_attention_op op;
    clattn_launch launch;
    clattn_attention_init(&op);
    clattn_launch_init(&launch, device.queue);
    op.q = *q;
    op.k = op.v = *k;
    op.o = *o;
    op.lse = *lse;
    const clattn_status status = clattn_attention(device.clattn, &op, &launch);
    CHECK_CL(clFinish(device.queue));
    return status;
}

static void read_floats(cl_mem buffer, float *values, size_t count) {
    CHECK_CL(clEnqueueReadBuffer(device.queue, buffer, CL_TRUE, 0, count * sizeof *values, values, 0, NULL, NULL));
}

/* A47: [2,3] with a pitch of 5 needs 8 elements, 9 at offset 1; a column of 3 with stride 2 at offset 1 needs 6. */
static void buffers_that_just_fit(void **state) {
    (void)state;
    const int64_t q_dims[] = {1, 1, 2, 3}, k_dims[] = {1, 1, 1, 3}, pitched[] = {10, 10, 5, 1}, dense[] = {3, 3, 3, 1};
    const float zeros[16] = {0}, key[3] = {1, 2, 3};
    cl_mem k_buffer = filled(sizeof key, key);
    const clattn_tensor k = view_of(k_buffer, CLATTN_F32, 0, k_dims, dense), none = {.memory.kind = CLATTN_MEMORY_NONE};
    for (int64_t offset = 0; offset < 2; offset++)
        for (int64_t missing = 0; missing < 2; missing++) {
            const size_t bytes = (size_t)(8 + offset - missing) * sizeof(float);
            cl_mem small = filled(bytes, zeros), large = filled(sizeof zeros, zeros);
            const clattn_tensor fits = view_of(small, CLATTN_F32, offset, q_dims, pitched);
            const clattn_tensor ample = view_of(large, CLATTN_F32, offset, q_dims, pitched);
            const clattn_status expected = missing ? CLATTN_INVALID_ARGUMENT : CLATTN_SUCCESS;
            support_expect(run_in(&fits, &k, &ample, &none), expected, "q that just fits");
            support_expect(run_in(&ample, &k, &fits, &none), expected, "o that just fits");
            float o[9] = {0};
            read_floats(small, o, bytes / sizeof(float));
            for (int64_t c = 0; c < 3; c++)
                assert_true(o[offset + c] == (missing ? 0 : key[c]) && (missing || o[offset + 5 + c] == key[c]));
            clReleaseMemObject(small);
            clReleaseMemObject(large);
        }
    clReleaseMemObject(k_buffer);
}

static void a_strided_lse_that_just_fits(void **state) {
    (void)state;
    const int64_t q_dims[] = {1, 1, 3, 3}, k_dims[] = {1, 1, 1, 3}, dense[] = {9, 9, 3, 1}, key_dense[] = {3, 3, 3, 1};
    const float zeros[16] = {0}, key[3] = {1, 2, 3}, untouched[6] = {5, 5, 5, 5, 5, 5};
    cl_mem k_buffer = filled(sizeof key, key), q_buffer = filled(sizeof zeros, zeros),
           o_buffer = filled(sizeof zeros, zeros);
    const clattn_tensor k = view_of(k_buffer, CLATTN_F32, 0, k_dims, key_dense);
    const clattn_tensor q = view_of(q_buffer, CLATTN_F32, 0, q_dims, dense),
                        o = view_of(o_buffer, CLATTN_F32, 0, q_dims, dense);
    for (size_t count = 5; count <= 6; count++) {
        cl_mem buffer = filled(count * sizeof(float), untouched);
        clattn_tensor lse = clattn_tensor_dense(buffer, CLATTN_F32, 3, (const int64_t[]){1, 1, 3});
        lse.offset = 1;
        lse.strides[2] = 2;
        support_expect(run_in(&q, &k, &o, &lse), count == 6 ? CLATTN_SUCCESS : CLATTN_INVALID_ARGUMENT, "lse column");
        float values[6] = {0};
        read_floats(buffer, values, count);
        for (size_t i = 0; i < count; i++)
            assert_true(values[i] == (count == 6 && i % 2 == 1 ? 0 : 5));
        clReleaseMemObject(buffer);
    }
    clReleaseMemObject(k_buffer);
    clReleaseMemObject(q_buffer);
    clReleaseMemObject(o_buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_inputs),
        cmocka_unit_test(buffers_that_just_fit),
        cmocka_unit_test(a_strided_lse_that_just_fits),
    };
    return support_main("attention buffers", tests, sizeof tests / sizeof tests[0]);
}
