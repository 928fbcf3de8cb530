/* A user's rows in a context, on the fake driver: which are in force, what is told of the others, and that attention
 * takes the variant that a row prefers, but fails no call for it. */
#include "fake_cl.h"
#include "temporary.h"

#include <clattn/variants.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 4, QUERIES = 16, KEYS = 16, DIM = 32, SCORE_BYTES = HEADS * QUERIES * KEYS * 4 };

static cl_context cl;
static cl_command_queue queue;
static cl_mem memory;
static clattn_context *context;
static char log_text[8192];

static void keep_log(void *user, clattn_log_level level, const char *message) {
    const size_t used = strlen(log_text);
    (void)user;
    if (level <= CLATTN_LOG_WARNING)
        snprintf(log_text + used, sizeof log_text - used, "%s\n", message);
}

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    (void)state;
    fake_reset();
    fake_device[0].driver = "1.5";
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    queue = clCreateCommandQueue(cl, device, 0, NULL);
    memory = clCreateBuffer(cl, CL_MEM_READ_WRITE, 1 << 20, NULL, NULL);
    return cl != NULL && queue != NULL && memory != NULL ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    clattn_context_release(&context);
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(cl);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

/* A context whose database holds these rows. */
static void open_with(const char *rows, const char *cl_dir) {
    char text[4096];
    char *folder = temporary_folder(), *path = temporary_path(folder, "tuning.json");
    clattn_context_options options;
    const int size = snprintf(text, sizeof text, "{\"rows\": [%s]}", rows);
    assert_in_range(size, 1, sizeof text - 1);
    temporary_write(folder, "tuning.json", text, (size_t)size);
    clattn_context_options_init(&options);
    options.log = keep_log;
    options.cache_dir = "";
    options.cl_dir = cl_dir;
    options.capabilities = "all";
    options.tuning_db = path;
    log_text[0] = '\0';
    clattn_context_release(&context);
    assert_int_equal(clattn_context_create(cl, fake_device_id(0), &options, &context), CLATTN_SUCCESS);
    free(path);
    temporary_remove(folder);
}

static clattn_attention_op attention(void) {
    const int64_t dims[] = {1, HEADS, QUERIES, DIM};
    clattn_attention_op op;
    clattn_attention_init(&op);
    op.q = clattn_tensor_dense(memory, CLATTN_F32, 4, dims);
    op.k = op.v = op.o = op.q;
    op.k.offset = 65536;
    op.v.offset = 2 * 65536;
    op.o.offset = 3 * 65536;
    return op;
}

static void assert_takes(const clattn_attention_op *op, const char *variant) {
    clattn_choice choice = {.size = sizeof choice};
    assert_int_equal(clattn_variant_choose(context, &op->head, NULL, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant, variant);
}

/* The first row of the database, whatever its place. */
static clattn_tuning_row user_row(void) {
    clattn_tuning_row row = {.size = sizeof row};
    for (size_t i = 0; i == 0 || row.op[0] != '\0'; i++) {
        assert_int_equal(clattn_tuning_row_at(context, i, &row), CLATTN_SUCCESS);
        if (row.user)
            break;
    }
    return row;
}

/* ---- rows in force ----------------------------------------------------------------------------------------------- */

static void rows_are_listed(void **state) {
    clattn_tuning_row row;
    (void)state;
    open_with("{\"vendor\": \"nobody\", \"op\": \"gemm\", \"variant\": \"tiled_fma\", \"parameters\": {}},"
              "{\"op\": \"gemm\", \"variant\": \"tiled_fma\", \"dtype\": \"f16\", \"min_size\": 65, \"max_size\": 128,"
              " \"parameters\": {\"groups\": 8}}",
              "");
    row = user_row();
    assert_string_equal(row.op, "gemm");
    assert_string_equal(row.variant, "tiled_fma");
    assert_string_equal(row.level, "default");
    assert_string_equal(row.dtype, "f16");
    assert_int_equal(row.min_size, 65);
    assert_int_equal(row.max_size, 128);
    assert_int_equal(row.prefers, 0);
    assert_string_equal(row.parameters, "groups=8");
    assert_string_equal(row.ignored, "");
    open_with("{\"op\": \"attention\", \"prefer\": \"unfused\", \"queries\": [2, 16], \"causal\": true}", "");
    row = user_row();
    assert_int_equal(row.prefers, 1);
    assert_int_equal(row.max_size, INT64_MAX);
    assert_string_equal(row.variant, "unfused");
    assert_string_equal(row.parameters, "queries=2..16,causal=1");
    size_t shipped = 0;
    for (size_t i = 0; clattn_tuning_row_at(context, i, &row) == CLATTN_SUCCESS && row.op[0] != '\0'; i++)
        shipped += !row.user;
    assert_in_range(shipped, 20, 4096);
    assert_string_equal(log_text, "");
}

static void asking_for_rows_is_checked(void **state) {
    clattn_tuning_row row = {.size = 0};
    char hash[17], short_hash[16];
    (void)state;
    open_with("", "");
    assert_int_equal(clattn_tuning_row_at(context, 0, &row), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_tuning_row_at(context, 0, NULL), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_tuning_row_at(NULL, 0, &row), CLATTN_INVALID_ARGUMENT);
    row.size = sizeof row;
    assert_int_equal(clattn_tuning_row_at(context, SIZE_MAX, &row), CLATTN_SUCCESS);
    assert_string_equal(row.op, "");
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_SOFTMAX, "group", hash, sizeof hash), CLATTN_SUCCESS);
    assert_int_equal(strspn(hash, "0123456789abcdef"), 16);
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_SOFTMAX, NULL, hash, sizeof hash), CLATTN_SUCCESS);
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_SOFTMAX, "none", hash, sizeof hash),
                     CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_SOFTMAX, NULL, short_hash, sizeof short_hash),
                     CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_tuning_kernels(NULL, CLATTN_OP_SOFTMAX, NULL, hash, sizeof hash), CLATTN_INVALID_ARGUMENT);
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_ATTENTION_CASCADE, NULL, hash, sizeof hash),
                     CLATTN_UNSUPPORTED);
}

/* A row that tells its driver and kernels. */
static void open_with_origin(const char *driver, const char *kernels, const char *cl_dir) {
    char row[256];
    snprintf(row, sizeof row,
             "{\"op\": \"attention\", \"variant\": \"fused_fma\", \"driver\": \"%s\", \"kernels\": \"%s\","
             " \"parameters\": {\"groups\": 2}}",
             driver, kernels);
    open_with(row, cl_dir);
}

static void assert_in_force(bool in_force, const char *reason) {
    const clattn_attention_op op = attention();
    const clattn_tuning_row row = user_row();
    clattn_choice choice = {.size = sizeof choice};
    assert_int_equal(clattn_variant_choose(context, &op.head, NULL, &choice), CLATTN_SUCCESS);
    assert_int_equal(strstr(choice.parameters, "groups=2,") != NULL, in_force);
    assert_string_equal(row.ignored, reason);
    assert_int_equal(log_text[0] == '\0', in_force);
    if (!in_force)
        assert_non_null(strstr(log_text, "1 rows for this device are ignored"));
}

static void rows_of_another_driver_or_kernels_are_ignored(void **state) {
    char own[17], other[17];
    (void)state;
    open_with("", "");
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_ATTENTION, "fused_fma", own, sizeof own), CLATTN_SUCCESS);
    assert_int_equal(clattn_tuning_kernels(context, CLATTN_OP_ATTENTION, "decode_cpu_vector", other, sizeof other),
                     CLATTN_SUCCESS);
    open_with_origin("1.5", own, "");
    assert_in_force(true, "");
    open_with_origin("1.5", own, CL_DIR); /* the same files */
    assert_in_force(true, "");
    open_with_origin("1.6", own, "");
    assert_in_force(false, "measured with another driver");
    open_with_origin("1.5", other, "");
    assert_in_force(false, "measured with other kernels");
    open_with_origin("1.5", own, CL_DIR "/tile"); /* a folder without them */
    assert_string_equal(user_row().ignored, "measured with other kernels");
}

/* ---- preferred variants ------------------------------------------------------------------------------------------ */

static void attention_takes_what_a_row_prefers(void **state) {
    static const struct {
        const char *ranges;
        bool takes;
    } rows[] = {{"", true},
                {", \"queries\": [16, 16], \"keys\": [16, 16], \"heads\": [4, 4], \"sharing\": [1, 1]", true},
                {", \"dtype\": \"f32\", \"min_size\": 32, \"max_size\": 32, \"causal\": false", true},
                {", \"queries\": [1, 15]", false},
                {", \"keys\": [17, 9007199254740992]", false},
                {", \"heads\": [5, 8]", false},
                {", \"sharing\": [2, 2]", false},
                {", \"dtype\": \"f16\"", false},
                {", \"max_size\": 31", false},
                {", \"min_size\": 33", false},
                {", \"causal\": true", false},
                {", \"driver\": \"1.6\"", false},
                {", \"device\": \"another\"", false}};
    const clattn_attention_op op = attention();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char row[256];
        snprintf(row, sizeof row, "{\"op\": \"attention\", \"prefer\": \"two_pass_fma\"%s}", rows[i].ranges);
        open_with(row, "");
        assert_takes(&op, rows[i].takes ? "two_pass_fma" : "fused_fma");
    }
}

/* The first row in order of the steps, and a variant that is asked for by name all the same. */
static void nearer_rows_and_names_come_first(void **state) {
    const clattn_attention_op op = attention();
    clattn_launch launch;
    clattn_choice choice = {.size = sizeof choice};
    (void)state;
    open_with("{\"prefer\": \"two_pass_fma\"}, {\"prefer\": \"unfused\", \"max_size\": 32},"
              "{\"prefer\": \"decode_fma\", \"max_size\": 64}",
              "");
    assert_takes(&op, "unfused");
    clattn_launch_init(&launch, queue);
    launch.variant = "fused_fma";
    assert_int_equal(clattn_variant_choose(context, &op.head, &launch, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant, "fused_fma");
}

static void some_problems_are_left_to_the_table(void **state) {
    clattn_attention_op op = attention();
    (void)state;
    open_with("{\"prefer\": \"two_pass_fma\", \"causal\": true}, {\"prefer\": \"unfused\", \"causal\": false}", "");
    assert_takes(&op, "unfused");
    op.causal = CLATTN_CAUSAL_BOTTOM_RIGHT;
    assert_takes(&op, "two_pass_fma");
    op.q.dims[2] = op.o.dims[2] = 1; /* a single query sees all keys */
    assert_takes(&op, "unfused");
    op = attention();
    op.softcap = 20;
    assert_takes(&op, "fused_fma");
    op = attention();
    op.window_left = 5;
    assert_takes(&op, "fused_fma");
    open_with("{\"prefer\": \"two_pass_fma\"}", "");
    assert_takes(&op, "fused_fma");
    op.window_left = -1;
    op.softcap = 20;
    assert_takes(&op, "two_pass_fma");
}

/* What prefers a variant that cannot run is as if it were not there. */
static void a_row_makes_no_call_fail(void **state) {
    clattn_attention_op op = attention();
    clattn_launch launch;
    size_t bytes = 0;
    (void)state;
    clattn_launch_init(&launch, queue);
    open_with("{\"prefer\": \"unfused\"}", "");
    launch.parameters = "score_tiles=1"; /* of the variant that the table has */
    assert_int_equal(clattn_attention(context, &op, &launch), CLATTN_SUCCESS);
    launch.parameters = NULL;
    open_with("{\"prefer\": \"fused_cpu_vector\"}", ""); /* refused at once */
    assert_takes(&op, "fused_fma");
    op.q.dtype = op.k.dtype = op.v.dtype = op.o.dtype = CLATTN_F16;
    fake_device[0].max_allocation = SCORE_BYTES; /* scores alone fit, but with probabilities beside them do not */
    open_with("{\"prefer\": \"unfused\"}", "");
    assert_takes(&op, "fused_fma");
    assert_int_equal(clattn_supported(context, &op.head, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_workspace_size(context, &op.head, NULL, &bytes), CLATTN_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_int_equal(clattn_attention(context, &op, &launch), CLATTN_SUCCESS);
    launch.variant = "unfused";
    assert_int_equal(clattn_attention(context, &op, &launch), CLATTN_UNSUPPORTED);
}

/* Extreme values that some kernel could take: each fits a call, or makes way. */
static void extreme_rows_fail_no_call(void **state) {
    static const char *const rows[] = {
        "{\"prefer\": \"decode_fma\"}, {\"variant\": \"decode_fma\", \"parameters\": {\"chunk\": 1073741824}}",
        "{\"prefer\": \"decode_fma\"}, {\"variant\": \"decode_fma\", \"parameters\": {\"splits\": 1073741824}}",
        "{\"prefer\": \"decode_fma\"}, {\"variant\": \"decode_fma\", \"parameters\": {\"chunk\": 1}}",
        "{\"prefer\": \"two_pass_fma\"}, {\"variant\": \"two_pass_fma\", \"parameters\": {\"k_slice\": 65536}}",
        "{\"variant\": \"fused_fma\", \"parameters\": {\"k_slice\": 1, \"v_slice\": 1, \"score_tiles\": 64}}",
        "{\"variant\": \"fused_fma\", \"parameters\": {\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, "
        "\"g\": 7, \"h\": 8, \"i\": 9, \"j\": 1, \"k\": 1, \"l\": 1, \"m\": 1, \"n\": 1, \"o\": 1, \"p\": 1}}",
    };
    const clattn_attention_op op = attention();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        clattn_launch launch;
        clattn_launch_init(&launch, queue);
        open_with(rows[i], "");
        assert_string_equal(log_text, "");
        assert_int_equal(clattn_workspace_size(context, &op.head, &launch, &launch.workspace.size), CLATTN_SUCCESS);
        if (launch.workspace.size > 0)
            launch.workspace.buffer = clCreateBuffer(cl, CL_MEM_READ_WRITE, launch.workspace.size, NULL, NULL);
        if (clattn_attention(context, &op, &launch) != CLATTN_SUCCESS)
            fail_msg("%s: %s", rows[i], clattn_last_error());
        if (launch.workspace.buffer != NULL)
            clReleaseMemObject(launch.workspace.buffer);
    }
}

/* Where a work-group can have all local memory of a compute unit, it is not to be a small one. */
static void vendors_rows_fill_compute_units(void **state) {
    static const char *const vendors[] = {"Advanced Micro Devices, Inc.", "Intel(R) Corporation"};
    (void)state;
    fake_device[0].local_memory = 65536;
    fake_device[0].max_group = fake_device[0].max_item[0] = 256;
    for (int i = 0; i < 2; i++)
        for (int64_t dim = 32; dim <= 256; dim *= 2) {
            clattn_attention_op op = attention();
            clattn_choice choice = {.size = sizeof choice};
            fake_device[0].vendor = vendors[i];
            open_with("", "");
            op.q = clattn_tensor_dense(memory, CLATTN_F32, 4, (const int64_t[]){1, 1, QUERIES, dim});
            op.k = op.v = op.o = op.q;
            op.o.offset = 65536;
            assert_int_equal(clattn_variant_choose(context, &op.head, NULL, &choice), CLATTN_SUCCESS);
            assert_string_equal(choice.variant, "fused_fma");
            assert_string_equal(choice.source, dim > 64 ? "vendor" : "default");
            assert_non_null(strstr(choice.parameters, "groups=16,"));
        }
}

/* PoCL mixes up work-items that share rows, so that no row makes them do so. */
static void rows_share_no_rows_on_pocl(void **state) {
    const int64_t dims[] = {8, 1024}, found[] = {8, 4};
    clattn_choice choice = {.size = sizeof choice};
    clattn_norm_op norm;
    clattn_softmax_topk_op topk;
    (void)state;
    fake_settings.platform_name = "Portable Computing Language";
    open_with("{\"op\": \"norm\", \"variant\": \"subgroup\", \"parameters\": {\"team\": 4, \"group\": 64}},"
              "{\"op\": \"norm\", \"variant\": \"online\", \"parameters\": {\"team\": 4, \"group\": 64}},"
              "{\"op\": \"softmax_topk\", \"variant\": \"select\", \"parameters\": {\"group\": 64}}",
              "");
    clattn_norm_init(&norm);
    norm.x = norm.y = clattn_tensor_dense(memory, CLATTN_F32, 2, dims);
    norm.y.offset = 65536;
    assert_int_equal(clattn_variant_choose(context, &norm.head, NULL, &choice), CLATTN_SUCCESS);
    assert_non_null(strstr(choice.parameters, "team=1,"));
    clattn_softmax_topk_init(&topk);
    topk.k = 4;
    topk.x = norm.x;
    topk.values = topk.indices = clattn_tensor_dense(memory, CLATTN_F32, 2, found);
    topk.values.offset = 65536;
    topk.indices.offset = 2 * 65536;
    topk.indices.dtype = CLATTN_I32;
    assert_int_equal(clattn_variant_choose(context, &topk.head, NULL, &choice), CLATTN_SUCCESS);
    assert_non_null(strstr(choice.parameters, "group=1,"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_are_listed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(asking_for_rows_is_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_of_another_driver_or_kernels_are_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(attention_takes_what_a_row_prefers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nearer_rows_and_names_come_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(some_problems_are_left_to_the_table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_row_makes_no_call_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(extreme_rows_fail_no_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(vendors_rows_fill_compute_units, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_share_no_rows_on_pocl, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
