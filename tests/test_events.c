/* Wait lists and events on an out-of-order queue: nothing starts before what it waits for, and the event stands for the
 * whole call. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static cl_command_queue out_of_order_queue(void) {
    cl_int code = CL_SUCCESS;
    cl_command_queue queue =
        clCreateCommandQueue(device.context, device.id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
    if (code == CL_INVALID_QUEUE_PROPERTIES) /* an in-order queue keeps the same promises */
        queue = clCreateCommandQueue(device.context, device.id, 0, &code);
    support_expect_cl(code, "clCreateCommandQueue");
    return queue;
}

static bool is_complete(cl_event event) {
    cl_int state = CL_QUEUED;
    CHECK_CL(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
    return state == CL_COMPLETE;
}

/* The input is written after a gate opens; the call waits for the writing, the reading for the call. */
static void chained(const clattn_op *op, const char *variant, const struct test_tensor *input,
                    const struct test_tensor *output, unsigned char *result) {
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = out_of_order_queue();
    cl_event gate = clCreateUserEvent(device.context, &code), written, done = NULL, read;
    support_expect_cl(code, "clCreateUserEvent");
    unsigned char *garbage = calloc(1, input->bytes);
    assert_non_null(garbage);
    CHECK_CL(clEnqueueWriteBuffer(queue, input->buffer, CL_TRUE, 0, input->bytes, garbage, 0, NULL, NULL));
    struct test_call call;
    test_call_begin(&call, op, variant);
    CHECK_CL(clFinish(device.queue)); /* the workspace has been filled */
    CHECK_CL(clEnqueueWriteBuffer(queue, input->buffer, CL_FALSE, 0, input->bytes, input->image, 1, &gate, &written));
    call.launch.queue = queue;
    call.launch.num_events_in_wait_list = 1;
    call.launch.event_wait_list = &written;
    call.launch.event = &done;
    CHECK(test_dispatch(device.clattn, op, &call.launch));
    CHECK_CL(clEnqueueReadBuffer(queue, output->buffer, CL_FALSE, 0, output->bytes, result, 1, &done, &read));
    CHECK_CL(clFlush(queue));
    assert_false(is_complete(done));
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &read));
    assert_true(is_complete(done));
    CHECK_CL(clFinish(queue));
    clReleaseEvent(gate);
    clReleaseEvent(written);
    clReleaseEvent(done);
    clReleaseEvent(read);
    test_call_end(&call);
    clReleaseCommandQueue(queue);
    free(garbage);
}

/* Against the same call made at leisure. */
static void same_as_unchained(const clattn_op *op, struct test_tensor *input, struct test_tensor *output) {
    size_t index = 0, ran = 0;
    for (const char *variant; (variant = test_next_variant(op, &index)); ran++) {
        unsigned char *result = malloc(output->bytes);
        assert_non_null(result);
        test_reset(output);
        test_run(op, variant);
        unsigned char *expected = test_bytes(output);
        test_reset(output);
        chained(op, variant, input, output, result);
        if (memcmp(result, expected, output->bytes) != 0)
            fail_msg("%s: another result behind a wait list", variant);
        free(result);
        free(expected);
    }
    assert_true(ran > 0);
}

static struct test_tensor u_input(int rank, const int64_t *dims, int64_t count) {
    double *values = test_array(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = reference_u((uint32_t)i, 1);
    struct test_tensor tensor = test_input(CLATTN_F32, rank, dims, values, NULL, (double)NAN);
    free(values);
    return tensor;
}

static void attention_behind_a_wait_list(void **state) {
    (void)state;
    const int64_t dims[] = {1, 2, 40, 16};
    struct test_tensor x = u_input(4, dims, 2 * 40 * 16), o = test_output(CLATTN_F32, 4, dims, NULL);
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = op.k = op.v = x.view;
    op.o = o.view;
    same_as_unchained(&op.head, &x, &o);
    test_release(&x);
    test_release(&o);
}

static void softmax_behind_a_wait_list(void **state) {
    (void)state;
    const int64_t dims[] = {3, 5000};
    struct test_tensor x = u_input(2, dims, 15000), y = test_output(CLATTN_F32, 2, dims, NULL);
    clattn_softmax_op op;
    clattn_softmax_init(&op);
    op.x = x.view;
    op.y = y.view;
    same_as_unchained(&op.head, &x, &y);
    test_release(&x);
    test_release(&y);
}

static void gemm_behind_a_wait_list(void **state) {
    (void)state;
    const int64_t dims[] = {3, 33, 33};
    struct test_tensor a = u_input(3, dims, 3 * 33 * 33), c = test_output(CLATTN_F32, 3, dims, NULL);
    clattn_gemm_op op;
    clattn_gemm_init(&op);
    op.a = op.b = a.view;
    op.c = c.view;
    same_as_unchained(&op.head, &a, &c);
    test_release(&a);
    test_release(&c);
}

/* A call with nothing to do waits too, and has an event. */
static void an_empty_call_waits(void **state) {
    (void)state;
    const int64_t dims[] = {0, 2, 3, 8};
    double none = 0;
    cl_int code = CL_SUCCESS;
    struct test_tensor q = test_input(CLATTN_F32, 4, dims, &none, NULL, (double)NAN);
    struct test_tensor o = test_output(CLATTN_F32, 4, dims, NULL);
    clattn_attention_op op;
    clattn_launch launch;
    cl_event done = NULL;
    cl_event gate = clCreateUserEvent(device.context, &code);
    support_expect_cl(code, "clCreateUserEvent");
    clattn_attention_init(&op);
    op.q = op.k = op.v = q.view;
    op.o = o.view;
    clattn_launch_init(&launch, device.queue);
    launch.num_events_in_wait_list = 1;
    launch.event_wait_list = &gate;
    launch.event = &done;
    CHECK(clattn_attention(device.clattn, &op, &launch));
    CHECK_CL(clFlush(device.queue));
    assert_non_null(done);
    assert_false(is_complete(done));
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &done));
    clReleaseEvent(done);
    clReleaseEvent(gate);
    test_release(&q);
    test_release(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_behind_a_wait_list),
        cmocka_unit_test(softmax_behind_a_wait_list),
        cmocka_unit_test(gemm_behind_a_wait_list),
        cmocka_unit_test(an_empty_call_waits),
    };
    return support_main("events", tests, sizeof tests / sizeof tests[0]);
}
