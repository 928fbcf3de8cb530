/* Argument checks on the fake driver: bounds to the byte, sums that overflow, self-overlap, and the proof that two
 * views do not meet, compared with a search by brute force. */
#include "check.h"
#include "context.h"
#include "fake_cl.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BUFFER_BYTES 4096

static clattn_context context;
static cl_mem buffer, other_buffer, sub_low, sub_high, foreign;
static cl_context foreign_context;

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    (void)state;
    fake_reset();
    context = (clattn_context){.device = device};
    context.cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    foreign_context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    buffer = clCreateBuffer(context.cl, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, NULL);
    other_buffer = clCreateBuffer(context.cl, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, NULL);
    foreign = clCreateBuffer(foreign_context, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, NULL);
    const cl_buffer_region low = {0, 1024}, high = {512, 1024};
    sub_low = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &low, NULL);
    sub_high = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &high, NULL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    clReleaseMemObject(sub_low);
    clReleaseMemObject(sub_high);
    clReleaseMemObject(buffer);
    clReleaseMemObject(other_buffer);
    clReleaseMemObject(foreign);
    clReleaseContext(foreign_context);
    clReleaseContext(context.cl);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

/* rank 0: dense. */
static clattn_tensor view(cl_mem memory, int64_t offset, int32_t rank, const int64_t *dims, const int64_t *strides) {
    clattn_tensor tensor = clattn_tensor_dense(memory, CLATTN_F32, rank, dims);
    tensor.offset = offset;
    if (strides != NULL)
        memcpy(tensor.strides, strides, (size_t)rank * sizeof *strides);
    return tensor;
}

static void assert_refused(clattn_status status, clattn_status expected, const char *words) {
    assert_int_equal(status, expected);
    if (strstr(clattn_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", clattn_last_error(), words);
}

static clattn_tensor sound(void) {
    return view(buffer, 0, 2, (int64_t[]){4, 8}, NULL);
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static void shape_faults_are_named(void **state) {
    (void)state;
    clattn_tensor tensor = sound();
    assert_int_equal(check_tensor(&context, "q", &tensor, CHECK_INPUT), CLATTN_SUCCESS);
    assert_int_equal(check_tensor(&context, "q", &tensor, CHECK_OUTPUT), CLATTN_SUCCESS);
#define REFUSED(change, words) \
    tensor = sound();          \
    change;                    \
    assert_refused(check_tensor(&context, "q", &tensor, CHECK_INPUT), CLATTN_INVALID_ARGUMENT, words)
    REFUSED(tensor.memory.kind = CLATTN_MEMORY_NONE, "q is absent");
    REFUSED(tensor.memory.kind = (clattn_memory_kind)2, "q: memory kind 2");
    REFUSED(tensor.memory.kind = (clattn_memory_kind)-1, "q: memory kind -1");
    REFUSED(tensor.dtype = (clattn_dtype)0, "q: dtype 0");
    REFUSED(tensor.dtype = (clattn_dtype)9, "q: dtype 9");
    REFUSED(tensor.rank = 0, "q: rank 0");
    REFUSED(tensor.rank = 5, "q: rank 5");
    REFUSED(tensor.rank = -1, "q: rank -1");
    REFUSED(tensor.offset = -1, "q: offset -1");
    REFUSED(tensor.dims[1] = -8, "q: dims[1] = -8");
    REFUSED(tensor.dims[0] = INT64_MIN, "q: dims[0] = -9223372036854775808");
    REFUSED(tensor.strides[0] = -8, "q: strides[0] = -8");
    REFUSED(tensor.memory.as.buffer = NULL, "q: the buffer is NULL");
    REFUSED(tensor.memory.as.buffer = foreign, "q: the buffer is of another cl_context");
    REFUSED(tensor.memory.as.buffer = (cl_mem)context.cl, "q: the buffer is no valid cl_mem: CL_INVALID_MEM_OBJECT");
#undef REFUSED
}

static void empty_tensors_need_no_buffer(void **state) {
    (void)state;
    clattn_tensor tensor = view(NULL, 0, 3, (int64_t[]){4, 0, INT64_MAX}, (int64_t[]){INT64_MAX, INT64_MAX, INT64_MAX});
    assert_int_equal(check_tensor(&context, "q", &tensor, CHECK_INPUT), CLATTN_SUCCESS);
    assert_int_equal(check_tensor(&context, "q", &tensor, CHECK_OUTPUT), CLATTN_SUCCESS);
    tensor.dims[2] = -1;
    assert_refused(check_tensor(&context, "q", &tensor, CHECK_INPUT), CLATTN_INVALID_ARGUMENT, "dims[2]");
}

static void bounds_are_exact(void **state) {
    const int64_t last = BUFFER_BYTES / 4 - 1;
    const struct {
        cl_mem memory;
        clattn_dtype dtype;
        int64_t offset, dims[3], strides[3];
        bool fits;
    } rows[] = {
        {buffer, CLATTN_F32, 0, {1, 1, last + 1}, {0, 0, 1}, true},
        {buffer, CLATTN_F32, 0, {1, 1, last + 2}, {0, 0, 1}, false},
        {buffer, CLATTN_F32, 1, {1, 1, last + 1}, {0, 0, 1}, false},
        {buffer, CLATTN_F32, last, {1, 1, 1}, {9, 9, 9}, true},
        {buffer, CLATTN_F32, last + 1, {1, 1, 1}, {9, 9, 9}, false},
        {buffer, CLATTN_F16, 2 * last + 1, {1, 1, 1}, {0, 0, 0}, true},
        {buffer, CLATTN_F16, 2 * last + 2, {1, 1, 1}, {0, 0, 0}, false},
        {buffer, CLATTN_BF16, 0, {2, 2, 2}, {last, last, 1}, true},
        {buffer, CLATTN_BF16, 4, {2, 2, 2}, {last, last, 1}, false},
        {buffer, CLATTN_F32, 0, {2, 2, 2}, {1, 2, last - 3}, true},
        {buffer, CLATTN_F32, 0, {2, 2, 2}, {1, 2, last - 2}, false},
        {buffer, CLATTN_F32, 0, {INT64_MAX, INT64_MAX, 1}, {0, 0, 1}, true}, /* a broadcast touches one element */
        {sub_high, CLATTN_F32, 0, {1, 1, 256}, {0, 0, 1}, true},
        {sub_high, CLATTN_F32, 0, {1, 1, 257}, {0, 0, 1}, false},
        /* What would fit after wrapping round 64 bits. */
        {buffer, CLATTN_F32, INT64_MAX, {1, 1, 1}, {1, 1, 1}, false},
        {buffer, CLATTN_F32, INT64_MAX / 4, {1, 1, 1}, {1, 1, 1}, false},
        {buffer, CLATTN_F32, INT64_MAX / 4 + 1, {1, 1, 1}, {1, 1, 1}, false},
        {buffer, CLATTN_F32, 0, {1, 2, 2}, {1, INT64_MAX, INT64_MAX}, false},
        {buffer, CLATTN_F32, 0, {1, 1, 5}, {1, 1, INT64_C(1) << 62}, false},
        {buffer, CLATTN_F32, 0, {1, 1, (INT64_C(1) << 62) + 1}, {1, 1, 4}, false},
        {buffer, CLATTN_F32, 0, {1, 1, INT64_MAX}, {1, 1, INT64_MAX}, false},
        {buffer, CLATTN_F32, 0, {1, 1, (INT64_C(1) << 62) + 1}, {1, 1, 1}, false},
        {buffer, CLATTN_F16, 0, {3, 1, 1}, {INT64_C(1) << 61, 1, 1}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        clattn_tensor tensor = view(rows[i].memory, rows[i].offset, 3, rows[i].dims, rows[i].strides);
        tensor.dtype = rows[i].dtype;
        const clattn_status status = check_tensor(&context, "k", &tensor, CHECK_INPUT);
        if (status != (rows[i].fits ? CLATTN_SUCCESS : CLATTN_INVALID_ARGUMENT))
            fail_msg("row %zu gives %s", i, clattn_status_name(status));
        if (!rows[i].fits)
            assert_memory_equal(clattn_last_error(), "k", 1);
    }
}

static void outputs_do_not_overlap_themselves(void **state) {
    static const struct {
        int64_t dims[4], strides[4];
        bool sound;
    } rows[] = {
        {{2, 3, 4, 5}, {60, 20, 5, 1}, true},  {{2, 3, 4, 5}, {60, 5, 15, 1}, true},
        {{2, 3, 4, 5}, {1, 2, 6, 24}, true},   {{2, 3, 4, 5}, {64, 20, 5, 1}, true},
        {{2, 3, 4, 5}, {59, 20, 5, 1}, false}, {{2, 3, 4, 5}, {60, 20, 4, 1}, false},
        {{2, 3, 4, 5}, {0, 20, 5, 1}, false},  {{2, 3, 4, 5}, {60, 20, 5, 0}, false},
        {{1, 3, 4, 5}, {0, 20, 5, 1}, true},   {{1, 1, 1, 1}, {0, 0, 0, 0}, true},
        {{1, 1, 2, 2}, {0, 0, 1, 1}, false},   {{1, 1, 2, 2}, {7, 7, 2, 1}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const clattn_tensor tensor = view(buffer, 3, 4, rows[i].dims, rows[i].strides);
        assert_int_equal(check_tensor(&context, "o", &tensor, CHECK_INPUT), CLATTN_SUCCESS);
        const clattn_status status = check_tensor(&context, "o", &tensor, CHECK_OUTPUT);
        assert_int_equal(status, rows[i].sound ? CLATTN_SUCCESS : CLATTN_INVALID_ARGUMENT);
    }
}

static void small_checks_name_their_argument(void **state) {
    clattn_tensor tensor = sound();
    (void)state;
    assert_int_equal(check_rank("v", &tensor, 2), CLATTN_SUCCESS);
    assert_refused(check_rank("v", &tensor, 4), CLATTN_INVALID_ARGUMENT, "v: rank is 2, must be 4");
    assert_int_equal(check_dim("v", &tensor, 1, 8, "head dim"), CLATTN_SUCCESS);
    assert_refused(check_dim("v", &tensor, 1, 9, "head dim"), CLATTN_INVALID_ARGUMENT,
                   "v: dims[1] = 8, must be 9 (head dim)");
    assert_int_equal(check_dtype("v", &tensor, 1u << CLATTN_F32 | 1u << CLATTN_F16), CLATTN_SUCCESS);
    assert_refused(check_dtype("v", &tensor, 1u << CLATTN_F16), CLATTN_INVALID_ARGUMENT,
                   "v: dtype is f32, must be f16");
    tensor.dtype = (clattn_dtype)77;
    assert_refused(check_dtype("v", &tensor, ~0u), CLATTN_INVALID_ARGUMENT, "v: dtype 77");
    tensor = sound();
    assert_int_equal(check_innermost_dense("v", &tensor), CLATTN_SUCCESS);
    tensor.strides[1] = 2;
    assert_refused(check_innermost_dense("v", &tensor), CLATTN_INVALID_ARGUMENT, "v: strides[1] = 2");
    tensor.dims[1] = 1;
    assert_int_equal(check_innermost_dense("v", &tensor), CLATTN_SUCCESS);
}

static void alignment_of_rows(void **state) {
    static const struct {
        int64_t offset, dims[3], strides[3];
        bool aligned;
    } rows[] = {
        {0, {2, 3, 8}, {24, 8, 1}, true},  {4, {2, 3, 8}, {24, 8, 1}, true},  {2, {2, 3, 8}, {24, 8, 1}, false},
        {0, {2, 3, 8}, {26, 8, 1}, false}, {0, {2, 3, 7}, {24, 7, 1}, false}, {0, {2, 3, 7}, {24, 8, 1}, true},
        {0, {1, 3, 8}, {25, 8, 1}, true},  {0, {2, 3, 8}, {0, 8, 1}, true},   {2, {0, 3, 8}, {24, 8, 1}, true},
    };
    static _Alignas(64) unsigned char memory[BUFFER_BYTES + 64];
    const int64_t dims[] = {4};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const clattn_tensor tensor = view(buffer, rows[i].offset, 3, rows[i].dims, rows[i].strides);
        const clattn_tensor later = view(NULL, rows[i].offset, 3, rows[i].dims, rows[i].strides);
        assert_int_equal(check_aligned(&tensor, 16), rows[i].aligned);
        assert_int_equal(check_aligned(&later, 16), rows[i].aligned);
    }
    for (size_t shift = 0; shift <= 16; shift += 4) {
        cl_mem mine = clCreateBuffer(context.cl, CL_MEM_USE_HOST_PTR, 64, memory + shift, NULL);
        const clattn_tensor tensor = view(mine, 0, 1, dims, NULL);
        assert_int_equal(check_aligned(&tensor, 16), shift % 16 == 0);
        clReleaseMemObject(mine);
    }
}

/* ---- two tensors ------------------------------------------------------------------------------------------------- */

static void same_view_ignores_strides_of_single_dims(void **state) {
    const clattn_tensor a = sound();
    clattn_tensor b = a;
    (void)state;
    assert_true(check_same_view(&a, &b));
#define DIFFERS(change) \
    b = a;              \
    change;             \
    assert_false(check_same_view(&a, &b))
    DIFFERS(b.memory.as.buffer = other_buffer);
    DIFFERS(b.offset = 1);
    DIFFERS(b.dtype = CLATTN_F16);
    DIFFERS(b.rank = 1);
    DIFFERS(b.dims[0] = 3);
    DIFFERS(b.strides[0] = 9);
#undef DIFFERS
    clattn_tensor single = a, again = a;
    single.dims[0] = again.dims[0] = 1;
    again.strides[0] = 1000;
    assert_true(check_same_view(&single, &again));
}

static bool disjoint(const clattn_tensor *a, const clattn_tensor *b) {
    const clattn_status status = check_disjoint("o", a, "q", b);
    if (status != CLATTN_SUCCESS)
        assert_refused(status, CLATTN_INVALID_ARGUMENT, "o overlaps q");
    /* The proof may not depend on which of the two is written, where both have the strides for it. */
    return status == CLATTN_SUCCESS;
}

static void ranges_are_compared_in_the_parent(void **state) {
    const int64_t n[] = {16};
    (void)state;
    const struct {
        cl_mem a;
        int64_t a_offset;
        cl_mem b;
        int64_t b_offset;
        bool disjoint;
    } rows[] = {
        {buffer, 0, buffer, 16, true},      {buffer, 0, buffer, 15, false},     {buffer, 16, buffer, 0, true},
        {buffer, 0, buffer, 0, false},      {buffer, 0, other_buffer, 0, true}, {sub_low, 0, sub_high, 0, true},
        {sub_low, 128, sub_high, 0, false}, {sub_low, 112, sub_high, 0, true},  {sub_low, 113, sub_high, 0, false},
        {buffer, 128, sub_high, 0, false},  {buffer, 112, sub_high, 0, true},   {sub_high, 0, buffer, 144, true},
        {sub_high, 0, buffer, 143, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const clattn_tensor a = view(rows[i].a, rows[i].a_offset, 1, n, NULL);
        const clattn_tensor b = view(rows[i].b, rows[i].b_offset, 1, n, NULL);
        assert_int_equal(disjoint(&a, &b), rows[i].disjoint);
    }
    clattn_tensor a = view(buffer, 0, 1, n, NULL), b = a;
    b.memory.kind = CLATTN_MEMORY_NONE;
    assert_true(disjoint(&a, &b));
    b = a;
    b.dims[0] = 0;
    assert_true(disjoint(&a, &b));
}

static void element_sizes_may_differ(void **state) {
    const int64_t n[] = {16};
    (void)state;
    clattn_tensor a = view(buffer, 0, 1, n, NULL), b = view(buffer, 32, 1, n, NULL);
    b.dtype = CLATTN_F16; /* bytes 64 to 95, and a has 0 to 63 */
    assert_true(disjoint(&a, &b));
    b.offset = 31;
    assert_false(disjoint(&a, &b));
}

/* The stride of a dim of 1 leads nowhere, whatever it is. */
static void strides_of_single_dims_do_not_count(void **state) {
    const int64_t dims[] = {1, 4, 2}, strides[] = {INT64_MAX, 4, 1};
    clattn_tensor a = view(buffer, 0, 3, dims, strides), b = view(buffer, 2, 3, dims, strides);
    (void)state;
    assert_int_equal(check_tensor(&context, "o", &a, CHECK_OUTPUT), CLATTN_SUCCESS);
    assert_true(check_aligned(&a, 16));
    assert_true(disjoint(&a, &b));
    b.offset = 1;
    assert_false(disjoint(&a, &b));
}

static void packed_qkv_is_accepted(void **state) {
    enum { B = 2, N = 3, H = 2, D = 4 };
    const int64_t dims[] = {B, H, N, D};
    const struct {
        const char *layout;
        int64_t strides[4], step; /* step: from q to k to v to o */
    } layouts[] = {
        {"B,N,4,H,D", {N * 4 * H * D, D, 4 * H * D, 1}, H * D}, {"B,N,H,4,D", {N * 4 * H * D, 4 * D, 4 * H * D, 1}, D},
        {"B,4,H,N,D", {4 * H * N * D, N * D, D, 1}, H * N * D}, {"4,B,H,N,D", {H * N * D, N * D, D, 1}, B * H * N * D},
        {"B,N,H,D,4", {N * 4 * H * D, 4 * D, 4 * H * D, 4}, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++) {
                const clattn_tensor out = view(buffer, a * layouts[i].step, 4, dims, layouts[i].strides);
                const clattn_tensor in = view(buffer, b * layouts[i].step, 4, dims, layouts[i].strides);
                if (disjoint(&out, &in) != (a != b))
                    fail_msg("layout %s: parts %d and %d", layouts[i].layout, a, b);
            }
    /* Grouped heads: q has two heads where k has one, in one packed row of 3 heads. */
    const clattn_tensor q = view(buffer, 0, 4, (int64_t[]){B, 2, N, D}, (int64_t[]){N * 3 * D, D, 3 * D, 1});
    clattn_tensor k = view(buffer, 2 * D, 4, (int64_t[]){B, 1, N, D}, (int64_t[]){N * 3 * D, D, 3 * D, 1});
    assert_true(disjoint(&k, &q));
    assert_true(disjoint(&q, &k));
    k.offset--;
    assert_false(disjoint(&k, &q));
    assert_false(disjoint(&q, &k));
}

/* A slot of a cache and the rest of the same cache. */
static void cache_append_is_accepted(void **state) {
    const int64_t strides[] = {64, 4, 1}; /* 16 slots of 4 per head */
    (void)state;
    const clattn_tensor slot = view(buffer, 10 * 4, 3, (int64_t[]){3, 1, 4}, strides);
    clattn_tensor before = view(buffer, 0, 3, (int64_t[]){3, 10, 4}, strides);
    assert_true(disjoint(&slot, &before));
    before.dims[1] = 11;
    assert_false(disjoint(&slot, &before));
}

static void collect(const clattn_tensor *tensor, bool *bytes) {
    const int64_t size = (int64_t)clattn_dtype_size(tensor->dtype);
    for (int64_t i = 0; i < tensor->dims[0]; i++)
        for (int64_t j = 0; j < tensor->dims[1]; j++)
            for (int64_t k = 0; k < tensor->dims[2]; k++)
                for (int64_t byte = 0; byte < size; byte++)
                    bytes[(tensor->offset + i * tensor->strides[0] + j * tensor->strides[1] + k * tensor->strides[2]) *
                              size +
                          byte] = true;
}

static clattn_tensor random_view(void) {
    int64_t dims[3], strides[3];
    for (int i = 0; i < 3; i++) {
        dims[i] = 1 + rand() % 4;
        strides[i] = rand() % 3 == 0 ? rand() % 13 : (int64_t)1 << rand() % 5;
    }
    clattn_tensor tensor = view(buffer, rand() % 24, 3, dims, strides);
    tensor.dtype = (clattn_dtype)(CLATTN_F32 + rand() % 2);
    return tensor;
}

/* Never accepts what meets; and does accept a fair part of what does not. */
static void no_overlap_is_ever_accepted(void **state) {
    int apart = 0, accepted = 0;
    (void)state;
    srand(20240229);
    for (int trial = 0; trial < 50000; trial++) {
        bool a_bytes[1024] = {false}, b_bytes[1024] = {false}, meet = false;
        const clattn_tensor a = random_view(), b = random_view();
        collect(&a, a_bytes);
        collect(&b, b_bytes);
        for (size_t i = 0; i < sizeof a_bytes; i++)
            meet |= a_bytes[i] && b_bytes[i];
        const bool proven = check_disjoint("o", &a, "q", &b) == CLATTN_SUCCESS;
        if (proven && meet)
            fail_msg("trial %d: accepted, though they meet", trial);
        apart += !meet;
        accepted += proven;
    }
    assert_true(accepted > apart / 2);
}

static void no_self_overlap_is_ever_accepted(void **state) {
    (void)state;
    srand(20240229);
    for (int trial = 0; trial < 20000; trial++) {
        bool bytes[1024] = {false};
        size_t touched = 0;
        const clattn_tensor tensor = random_view();
        collect(&tensor, bytes);
        for (size_t i = 0; i < sizeof bytes; i++)
            touched += bytes[i];
        const size_t elements = (size_t)(tensor.dims[0] * tensor.dims[1] * tensor.dims[2]);
        if (check_tensor(&context, "o", &tensor, CHECK_OUTPUT) == CLATTN_SUCCESS)
            assert_int_equal(touched, elements * clattn_dtype_size(tensor.dtype));
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static void launches_are_checked(void **state) {
    const cl_device_id devices[] = {fake_device_id(0), fake_device_id(1)};
    cl_context both = clCreateContext(NULL, 2, devices, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueue(context.cl, devices[0], 0, NULL);
    cl_command_queue other_context = clCreateCommandQueue(foreign_context, devices[0], 0, NULL);
    cl_command_queue other_device = clCreateCommandQueue(context.cl, devices[1], 0, NULL);
    clattn_launch launch;
    cl_event event = NULL;
    (void)state;
    clattn_launch_init(&launch, queue);
    assert_int_equal(check_launch(&context, &launch, 0), CLATTN_SUCCESS);
    assert_refused(check_launch(&context, NULL, 0), CLATTN_INVALID_ARGUMENT, "launch is NULL");
#define REFUSED(change, code, words)                           \
    clattn_launch_init(&launch, queue);                        \
    launch.workspace = (clattn_workspace){buffer, 1024, 2048}; \
    change;                                                    \
    assert_refused(check_launch(&context, &launch, 2048), code, words)
    REFUSED(launch.size = 0, CLATTN_INVALID_ARGUMENT, "launch: size is 0");
    REFUSED(launch.size--, CLATTN_INVALID_ARGUMENT, "launch: size");
    REFUSED(launch.queue = NULL, CLATTN_INVALID_ARGUMENT, "queue is NULL");
    REFUSED(launch.queue = (cl_command_queue)buffer, CLATTN_INVALID_ARGUMENT, "queue is no valid");
    REFUSED(launch.queue = other_context, CLATTN_INVALID_ARGUMENT, "queue is of another cl_context");
    REFUSED(launch.queue = other_device, CLATTN_INVALID_ARGUMENT, "queue is on another device");
    REFUSED(launch.num_events_in_wait_list = 1, CLATTN_INVALID_ARGUMENT, "event_wait_list is NULL");
    REFUSED(launch.event_wait_list = &event, CLATTN_INVALID_ARGUMENT, "event_wait_list is set");
    REFUSED((launch.event_wait_list = &event, launch.num_events_in_wait_list = 1), CLATTN_INVALID_ARGUMENT,
            "event_wait_list[0] is NULL");
    REFUSED(launch.workspace.buffer = NULL, CLATTN_WORKSPACE_TOO_SMALL, "2048 bytes are needed, none");
    REFUSED(launch.workspace.size = 2047, CLATTN_WORKSPACE_TOO_SMALL, "2048 bytes are needed, 2047");
    REFUSED(launch.workspace.offset = 128, CLATTN_INVALID_ARGUMENT, "offset 128");
    REFUSED(launch.workspace.offset = 2304, CLATTN_INVALID_ARGUMENT, "do not lie in a buffer of 4096");
    REFUSED(launch.workspace.offset = SIZE_MAX - 255, CLATTN_INVALID_ARGUMENT, "do not lie in a buffer of 4096");
    REFUSED(launch.workspace.size = SIZE_MAX, CLATTN_INVALID_ARGUMENT, "do not lie in a buffer of 4096");
    REFUSED(launch.workspace.buffer = foreign, CLATTN_INVALID_ARGUMENT, "workspace: the buffer is of another");
#undef REFUSED
    launch.workspace = (clattn_workspace){buffer, 2048, 2048};
    assert_int_equal(check_launch(&context, &launch, 2048), CLATTN_SUCCESS);
    launch.workspace = (clattn_workspace){foreign, 1, 1}; /* not needed, not looked at */
    assert_int_equal(check_launch(&context, &launch, 0), CLATTN_SUCCESS);
    clReleaseCommandQueue(queue);
    clReleaseCommandQueue(other_context);
    clReleaseCommandQueue(other_device);
    clReleaseContext(both);
}

static void operations_are_checked(void **state) {
    clattn_op op = {64, CLATTN_OP_GEMM};
    (void)state;
    assert_int_equal(check_op(&context, &op, CLATTN_OP_GEMM, 64), CLATTN_SUCCESS);
    assert_refused(check_op(NULL, &op, CLATTN_OP_GEMM, 64), CLATTN_INVALID_ARGUMENT, "context is NULL");
    assert_refused(check_op(&context, NULL, CLATTN_OP_GEMM, 64), CLATTN_INVALID_ARGUMENT, "op is NULL");
    assert_refused(check_op(&context, &op, CLATTN_OP_SOFTMAX, 64), CLATTN_INVALID_ARGUMENT, "op: kind is 5");
    assert_refused(check_op(&context, &op, CLATTN_OP_GEMM, 65), CLATTN_INVALID_ARGUMENT, "op: size is 64");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_faults_are_named),
        cmocka_unit_test(empty_tensors_need_no_buffer),
        cmocka_unit_test(bounds_are_exact),
        cmocka_unit_test(outputs_do_not_overlap_themselves),
        cmocka_unit_test(small_checks_name_their_argument),
        cmocka_unit_test(alignment_of_rows),
        cmocka_unit_test(same_view_ignores_strides_of_single_dims),
        cmocka_unit_test(ranges_are_compared_in_the_parent),
        cmocka_unit_test(element_sizes_may_differ),
        cmocka_unit_test(strides_of_single_dims_do_not_count),
        cmocka_unit_test(packed_qkv_is_accepted),
        cmocka_unit_test(cache_append_is_accepted),
        cmocka_unit_test(no_overlap_is_ever_accepted),
        cmocka_unit_test(no_self_overlap_is_ever_accepted),
        cmocka_unit_test(launches_are_checked),
        cmocka_unit_test(operations_are_checked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
