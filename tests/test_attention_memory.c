/* Where tensors of attention lie: each in a buffer that ends with its last element, or in a sub-buffer, or all in one
 * buffer. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A buffer of NaN, whatever is read as a number. */
static cl_mem filled(size_t bytes) {
    cl_int code = CL_SUCCESS;
    unsigned char *nan = malloc(bytes);
    assert_non_null(nan);
    memset(nan, 0xff, bytes);
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    CHECK_CL(clEnqueueWriteBuffer(device.queue, buffer, CL_TRUE, 0, bytes, nan, 0, NULL, NULL));
    free(nan);
    return buffer;
}

#define VIEW(member) \
    { #member, offsetof(clattn_attention_op, member) }
static const struct {
    const char *name;
    size_t at;
} views[] = {VIEW(q),         VIEW(k),         VIEW(v),         VIEW(o),         VIEW(lse),
             VIEW(mask),      VIEW(bias),      VIEW(alibi),     VIEW(sinks),     VIEW(q_lengths),
             VIEW(k_lengths), VIEW(q_offsets), VIEW(k_offsets), VIEW(page_table)};
#undef VIEW
enum { VIEWS = sizeof views / sizeof views[0], O_VIEW = 3, LSE_VIEW = 4 };

static clattn_tensor *view_at(clattn_attention_op *op, size_t i) {
    return (clattn_tensor *)((char *)op + views[i].at);
}

static bool present(const clattn_tensor *view) {
    return view->memory.kind == CLATTN_MEMORY_BUFFER;
}

/* From the first element to the last, in elements. */
static int64_t extent_of(const clattn_tensor *view) {
    int64_t last = 0;
    for (int d = 0; d < view->rank; d++)
        last += (view->dims[d] - 1) * view->strides[d];
    return last + 1;
}

/* Where the tensors of an operation have gone: parents, and the sub-buffers in them, or NULL. */
struct places {
    cl_mem parent[VIEWS], part[VIEWS];
};

/* How they lie there: behind `origin` bytes as a sub-buffer (0: a whole buffer), elements in front of the first one,
 * and elements less than the last one needs. */
struct place {
    size_t origin;
    int64_t offset, missing;
};

static cl_mem part_of(cl_mem parent, size_t origin, size_t bytes) {
    const cl_buffer_region region = {origin, bytes};
    cl_int code = CL_SUCCESS;
    cl_mem part = clCreateSubBuffer(parent, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    support_expect_cl(code, "clCreateSubBuffer");
    return part;
}

/* Moves what the view shows to where `place` says, to the last byte. */
static void move(clattn_tensor *view, const struct place *place, cl_mem *parent, cl_mem *part) {
    const size_t size = clattn_dtype_size(view->dtype), bytes = (size_t)(extent_of(view) - place->missing) * size;
    const size_t before = (size_t)place->offset * size;
    *parent = filled(place->origin + before + bytes);
    *part = place->origin > 0 ? part_of(*parent, place->origin, before + bytes) : NULL;
    CHECK_CL(clEnqueueCopyBuffer(device.queue, view->memory.as.buffer, *parent, (size_t)view->offset * size,
                                 place->origin + before, bytes, 0, NULL, NULL));
    CHECK_CL(clFinish(device.queue));
    view->memory.as.buffer = *part ? *part : *parent;
    view->offset = place->offset;
}

static struct places move_all(clattn_attention_op *op, const struct place *place) {
    struct places places = {{NULL}, {NULL}};
    for (size_t i = 0; i < VIEWS; i++)
        if (present(view_at(op, i)))
            move(view_at(op, i), place, &places.parent[i], &places.part[i]);
    return places;
}

static void leave(const struct places *places) {
    for (size_t i = 0; i < VIEWS; i++) {
        if (places->part[i])
            clReleaseMemObject(places->part[i]);
        if (places->parent[i])
            clReleaseMemObject(places->parent[i]);
    }
}

static double *values_at(const clattn_tensor *view, const struct places *places, size_t i, const struct place *place) {
    const size_t size = clattn_dtype_size(view->dtype), bytes = (size_t)(view->offset + extent_of(view)) * size;
    unsigned char *memory = malloc(bytes);
    double *values = test_array(reference_count(view));
    assert_non_null(memory);
    CHECK_CL(
        clEnqueueReadBuffer(device.queue, places->parent[i], CL_TRUE, place->origin, bytes, memory, 0, NULL, NULL));
    reference_gather(view, memory, values);
    free(memory);
    return values;
}

/* The operation on the device, o and lse included. */
struct operation {
    struct attention_inputs inputs;
    struct test_tensor o, lse;
};

static struct operation upload(const struct attention_data *data) {
    struct operation t = {.inputs = attention_upload(data)};
    const int64_t *q = data->settings.q.dims, dims[] = {q[0], q[1], q[2], data->problem.value_dim};
    t.o = test_output(data->out_dtype, 4, dims, data->layout_o);
    t.lse = test_output(CLATTN_F32, 3, dims, data->layout_lse);
    t.inputs.op.o = t.o.view;
    t.inputs.op.lse = t.lse.view;
    return t;
}

static void release(struct operation *t) {
    attention_inputs_release(&t->inputs);
    test_release(&t->o);
    test_release(&t->lse);
}

/* Some variants want rows that are aligned, which those that were moved are not. */
static bool takes(const clattn_attention_op *op, const char *variant) {
    char reason[160] = "";
    if (variant != NULL)
        clattn_variant_question(device.clattn, &op->head, variant, reason, sizeof reason);
    return reason[0] == 0;
}

/* Runs the problem with all its tensors moved. */
static void run_moved(const struct attention_data *data, const struct place *place, const char *variant) {
    struct operation t = upload(data);
    clattn_attention_op op = t.inputs.op;
    const struct places places = move_all(&op, place);
    if (takes(&op, variant)) {
        test_run(&op.head, variant);
        struct attention_result result = {values_at(&op.o, &places, O_VIEW, place),
                                          values_at(&op.lse, &places, LSE_VIEW, place)};
        attention_compare(data, &result, variant, 64);
        attention_result_free(&result);
    }
    leave(&places);
    release(&t);
}

/* One tensor after the other lacks its last element. */
static void refuse_short_buffers(const struct attention_data *data) {
    struct operation t = upload(data);
    const struct place place = {.offset = 1, .missing = 1};
    for (size_t i = 0; i < VIEWS; i++) {
        clattn_attention_op op = t.inputs.op;
        clattn_launch launch;
        cl_mem parent = NULL, part = NULL;
        if (!present(view_at(&op, i)))
            continue;
        move(view_at(&op, i), &place, &parent, &part);
        clattn_launch_init(&launch, device.queue);
        support_expect(clattn_attention(device.clattn, &op, &launch), CLATTN_INVALID_ARGUMENT, views[i].name);
        if (strncmp(clattn_last_error(), views[i].name, strlen(views[i].name)) != 0)
            fail_msg("%s a byte short: %s", views[i].name, clattn_last_error());
        clReleaseMemObject(parent);
    }
    test_untouched(&t.o, "o");
    test_untouched(&t.lse, "lse");
    release(&t);
}

static double all_but_every_fifth(const int64_t at[4], int64_t flat) {
    (void)at;
    return flat % 5 != 2;
}

enum { NQ = 7, NK = 19, PITCH = NK + 5 };
static const struct test_layout rows_apart = {0, {NQ * PITCH, NQ *PITCH, PITCH, 1}};

/* A17 among them: rows of mask and bias with a pitch, and no row behind the last. */
static struct attention_data modified(clattn_dtype dtype) {
    struct attention_case shape = attention_shape("A47 modifiers", 2, NQ, NK, CLATTN_CAUSAL_BOTTOM_RIGHT);
    shape.with = (struct case_modifiers){.mask = {.dims = {1, 1, NQ, NK}, .fill = all_but_every_fifth},
                                         .bias = {.dims = {2, 1, NQ, NK}, .fill = fill_u3},
                                         .alibi = (const double[]){0.5, 0.25, 0.125, 0.0625},
                                         .sinks = (const double[]){1, -1, 0, 2},
                                         .q_lengths = (const double[]){7, 3},
                                         .k_lengths = (const double[]){19, 11}};
    struct attention_data data = attention_data_random(&shape, dtype, 3);
    data.layout_mask = data.layout_bias = &rows_apart;
    return data;
}

static struct attention_data ragged(clattn_dtype dtype) {
    struct attention_case shape = attention_shape("A47 offsets", 2, NQ, NK, CLATTN_CAUSAL_NONE);
    shape.with =
        (struct case_modifiers){.q_offsets = (const double[]){0, 3, 7}, .k_offsets = (const double[]){0, 11, 19}};
    return attention_data_random(&shape, dtype, 4);
}

static struct attention_data paged(clattn_dtype dtype) {
    struct attention_case shape = attention_shape("A47 pages", 2, NQ, 8, CLATTN_CAUSAL_NONE);
    shape.with = (struct case_modifiers){
        .page_table = (const double[]){1, 0, 2, 1}, .max_pages = 2, .pages = 3, .k_lengths = (const double[]){16, 9}};
    return attention_data_random(&shape, dtype, 5);
}

/* A47: whatever a call reads or writes may end with its buffer, and not before. */
static void every_tensor_just_fits(void **state) {
    struct attention_data (*const of[])(clattn_dtype) = {modified, ragged, paged};
    const struct place exact = {.offset = 1};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
            struct attention_data data = of[i](all_dtypes[t]);
            if (t == (int)i) /* each kind is a program, or a few */
                run_moved(&data, &exact, NULL);
            refuse_short_buffers(&data);
            attention_data_free(&data);
        }
}

/* A48: sub-buffers at an aligned origin, with an odd offset on top, for one row, a few and many. */
static void sub_buffers(void **state) {
    const int64_t rows[] = {1, 7, 500};
    cl_uint align_bits = 0;
    (void)state;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits, NULL));
    const struct place place = {.origin = align_bits < 8 ? 1 : align_bits / 8, .offset = 3};
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < 3; i++) {
            const struct attention_case shape = attention_shape("A48 sub-buffers", 1, rows[i], 70, CLATTN_CAUSAL_NONE);
            struct attention_data data = attention_data_random(&shape, all_dtypes[t], i + 1);
            size_t index = 0;
            for (const char *variant; (variant = attention_next_variant(&data, &index));)
                run_moved(&data, &place, variant);
            attention_data_free(&data);
        }
}

/* The tensor's elements go behind `before` elements after what is there already. */
static void append(clattn_tensor *view, cl_mem buffer, int64_t before, int64_t *end) {
    const int64_t size = (int64_t)clattn_dtype_size(view->dtype), first = (*end + size - 1) / size + before;
    CHECK_CL(clEnqueueCopyBuffer(device.queue, view->memory.as.buffer, buffer, (size_t)(view->offset * size),
                                 (size_t)(first * size), (size_t)(extent_of(view) * size), 0, NULL, NULL));
    view->memory.as.buffer = buffer;
    view->offset = first;
    *end = (first + extent_of(view)) * size;
}

static cl_mem gather_all(clattn_attention_op *op, int64_t before, struct places *places) {
    int64_t bytes = 0, end = 0;
    for (size_t i = 0; i <= LSE_VIEW; i++)
        bytes += (before + extent_of(view_at(op, i)) + 1) * (int64_t)sizeof(float);
    cl_mem buffer = filled((size_t)bytes);
    for (size_t i = 0; i <= LSE_VIEW; i++) {
        append(view_at(op, i), buffer, before, &end);
        places->parent[i] = buffer;
    }
    CHECK_CL(clFinish(device.queue));
    return buffer;
}

/* A46: all operands one behind the other in one buffer, with 3, 8 and 1000 elements before each: the bits of tensors
 * that are dense and alone. */
static void operands_of_one_buffer(int64_t before, clattn_dtype dtype) {
    const struct attention_case shape = attention_shape("A46 one buffer", 1, 21, 70, CLATTN_CAUSAL_NONE);
    const struct place whole = {0};
    struct attention_data data = attention_data_random(&shape, dtype, 7);
    size_t index = 0;
    for (const char *variant; (variant = attention_next_variant(&data, &index));) {
        struct operation t = upload(&data);
        clattn_attention_op op = t.inputs.op;
        struct places places = {{NULL}, {NULL}};
        cl_mem buffer = gather_all(&op, before, &places);
        if (takes(&op, variant)) {
            struct attention_result expected = attention_run(&data, variant);
            test_run(&op.head, variant);
            struct attention_result result = {values_at(&op.o, &places, O_VIEW, &whole),
                                              values_at(&op.lse, &places, LSE_VIEW, &whole)};
            attention_same_rows(&data, variant, &result, &expected, 0, attention_row_count(&data));
            attention_result_free(&result);
            attention_result_free(&expected);
        }
        clReleaseMemObject(buffer);
        release(&t);
    }
    attention_data_free(&data);
}

static void one_buffer(void **state) {
    const int64_t before[] = {3, 8, 1000};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 3; i++)
            operands_of_one_buffer(before[i], all_dtypes[t]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_just_fits),
        cmocka_unit_test(sub_buffers),
        cmocka_unit_test(one_buffer),
    };
    return support_main("memory of attention", tests, sizeof tests / sizeof tests[0]);
}
