/* Self-tests on the fake driver: the test plays the device, rightly or wrongly, and watches verdicts, demotion and what
 * is kept on disk. The kernels themselves run in the device tests. */
#include "choice.h"
#include "context.h"
#include "fake_cl.h"
#include "half.h"
#include "temporary.h"

#include <clattn/variants.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const cl_uint nine = 9, zero = 0, warp = 32;
static const struct fake_answer answers[] = {
    {0x4000, &nine, sizeof nine}, {0x4001, &zero, sizeof zero}, {0x4003, &warp, sizeof warp}, {0, NULL, 0}};

static cl_context cl;
static char *folder;
static int warnings;

/* ---- the device that the test plays ------------------------------------------------------------------------------ */

static bool shuffle_is_right, half_is_right;

static void play_shuffle(const float *in, float *out, size_t items) {
    for (size_t i = 0; i < items; i++) {
        const float *group = in + i / warp * warp;
        float largest = group[0], sum = 0;
        for (size_t lane = 0; lane < warp; lane++) {
            largest = fmaxf(largest, group[lane]);
            sum += group[lane];
        }
        for (size_t bit = 0; bit < 5; bit++)
            out[bit * 256 + i] = in[i ^ ((size_t)1 << bit)];
        out[7 * 256 + i] = group[warp - 1];
        out[8 * 256 + i] = largest;
        out[9 * 256 + i] = sum;
    }
    if (!shuffle_is_right)
        out[9 * 256 + items - 1] += 1;
}

static void play_half(const unsigned char *in, unsigned char *out) {
    const uint16_t *half_in = (const uint16_t *)in;
    const float *float_in = (const float *)(in + 131072);
    float *float_out = (float *)out;
    uint16_t *half_out = (uint16_t *)(out + 262144);
    for (size_t i = 0; i < 65536; i++) {
        float_out[i] = (float)half_to_double(half_in[i]);
        half_out[i] = half_from_double((double)float_in[i]);
    }
    if (!half_is_right)
        half_out[0x3c01] ^= 1; /* one tie rounded the wrong way */
}

static void play(const struct fake_command *command) {
    if (strcmp(command->kernel, "selftest_shuffle") == 0)
        play_shuffle(fake_argument_bytes(command, 0), fake_argument_bytes(command, 1), command->local[0]);
    if (strcmp(command->kernel, "selftest_half") == 0)
        play_half(fake_argument_bytes(command, 0), fake_argument_bytes(command, 1));
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

static void count_warnings(void *user, clattn_log_level level, const char *message) {
    (void)user;
    (void)message;
    if (level <= CLATTN_LOG_WARNING)
        __atomic_add_fetch(&warnings, 1, __ATOMIC_RELAXED);
}

static int set_up(void **state) {
    const cl_device_id device = fake_device_id(0);
    (void)state;
    fake_reset();
    fake_device[0].extensions = "cl_nv_device_attribute_query cl_khr_fp16";
    fake_device[0].answers = answers;
    fake_settings.execute = play;
    shuffle_is_right = half_is_right = true;
    warnings = 0;
    folder = temporary_folder();
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    clReleaseContext(cl);
    temporary_remove(folder);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

static clattn_context *open_context(bool with_cache) {
    clattn_context_options options;
    clattn_context *context = NULL;
    clattn_context_options_init(&options);
    options.log = count_warnings;
    options.tuning_db = "";
    options.cache_dir = with_cache ? folder : "";
    assert_int_equal(clattn_context_create(cl, fake_device_id(0), &options, &context), CLATTN_SUCCESS);
    return context;
}

static const char *verdict(clattn_context *context, enum device_capability cap, int run) {
    const char *name = NULL, *said = NULL;
    assert_int_equal(clattn_capability_report(context, cap, run, &name, &said), CLATTN_SUCCESS);
    assert_string_equal(name, device_capability_name(cap));
    return said;
}

#define SHUFFLE CAP_BIT(CAP_SUBGROUP_SHUFFLE)
#define HALF CAP_BIT(CAP_HALF_TYPE)

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

static void creating_a_context_runs_nothing(void **state) {
    (void)state;
    clattn_context *context = open_context(true);
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(fake_calls("clCreateCommandQueue"), 0);
    assert_int_equal(fake_calls("clCreateBuffer"), 0);
    assert_int_equal(fake_calls("clBuildProgram"), 0);
    assert_string_equal(verdict(context, CAP_SUBGROUP_SHUFFLE, 0), "untested");
    assert_string_equal(verdict(context, CAP_CPU, 0), "absent");
    assert_int_equal(fake_command_count(), 0);
    clattn_context_release(&context);
}

static void a_right_device_passes_once(void **state) {
    (void)state;
    clattn_context *context = open_context(false);
    for (int i = 0; i < 3; i++)
        assert_true(selftest_passes(context, SHUFFLE | HALF));
    assert_int_equal(fake_calls("clEnqueueNDRangeKernel"), 2);
    assert_string_equal(verdict(context, CAP_SUBGROUP_SHUFFLE, 0), "passed");
    assert_string_equal(verdict(context, CAP_HALF_TYPE, 1), "passed");
    assert_int_equal(fake_calls("clEnqueueNDRangeKernel"), 2);
    assert_int_equal(selftest_facts(context).subgroup, SUBGROUP_NVIDIA);
    assert_int_equal(warnings, 0);
    clattn_context_release(&context);
}

static void a_wrong_device_is_demoted(void **state) {
    clattn_device_info info = {.size = sizeof info};
    (void)state;
    shuffle_is_right = false;
    clattn_context *context = open_context(false);
    assert_false(selftest_passes(context, SHUFFLE | HALF));
    assert_true(selftest_passes(context, HALF));
    assert_int_equal(warnings, 1);
    assert_string_equal(verdict(context, CAP_SUBGROUP_SHUFFLE, 0), "failed");
    const struct device_facts facts = selftest_facts(context);
    assert_int_equal(facts.caps & (SHUFFLE | HALF), HALF);
    assert_int_equal(facts.subgroup, SUBGROUP_LOCAL);
    assert_int_equal(clattn_context_info(context, &info), CLATTN_SUCCESS);
    assert_string_equal(info.subgroup_backend, "local");
    assert_string_equal(info.capabilities, "half,nvidia_mma,nvidia_wgmma");
    clattn_context_release(&context);
}

static void one_wrong_bit_of_half_is_seen(void **state) {
    (void)state;
    half_is_right = false;
    clattn_context *context = open_context(false);
    assert_false(selftest_passes(context, HALF));
    assert_int_equal(warnings, 1);
    clattn_context_release(&context);
}

static void masked_capabilities_are_not_tested(void **state) {
    clattn_context_options options;
    clattn_context *context = NULL;
    (void)state;
    clattn_context_options_init(&options);
    options.capabilities = "none";
    options.cache_dir = options.tuning_db = "";
    assert_int_equal(clattn_context_create(cl, fake_device_id(0), &options, &context), CLATTN_SUCCESS);
    assert_false(selftest_passes(context, SHUFFLE));
    assert_true(selftest_passes(context, 0));
    assert_string_equal(verdict(context, CAP_SUBGROUP_SHUFFLE, 1), "absent");
    assert_int_equal(fake_command_count(), 0);
    clattn_context_release(&context);
}

/* ---- the disk ---------------------------------------------------------------------------------------------------- */

static void verdicts_are_kept_on_disk(void **state) {
    (void)state;
    half_is_right = false;
    clattn_context *context = open_context(true);
    assert_true(selftest_passes(context, SHUFFLE));
    assert_false(selftest_passes(context, HALF));
    clattn_context_release(&context);
    shuffle_is_right = false;
    half_is_right = true;
    context = open_context(true);
    assert_true(selftest_passes(context, SHUFFLE));
    assert_false(selftest_passes(context, HALF));
    assert_int_equal(fake_calls("clEnqueueNDRangeKernel"), 2);
    clattn_context_release(&context);
    fake_device[0].driver = "1.1"; /* a new driver is another device */
    context = open_context(true);
    assert_false(selftest_passes(context, SHUFFLE));
    assert_true(selftest_passes(context, HALF));
    clattn_context_release(&context);
}

static void damage_one(void *user, const char *path, const char *name, uint64_t size, int64_t modified_ns) {
    const size_t cut = *(const size_t *)user;
    (void)modified_ns;
    if (strncmp(name, "selftest-", 9) != 0)
        return;
    size_t length = 0;
    char *text = os_read_file(path, 4096, &length);
    assert_int_equal(length, size);
    if (cut < length)
        text[cut] = (char)(text[cut] ^ 1);
    os_write_file_atomic(path, text, cut < length ? length : cut - length);
    free(text);
}

/* Each byte flipped, then each shorter file: never believed, always tested again. */
static void damaged_verdicts_are_not_believed(void **state) {
    (void)state;
    for (size_t cut = 0; cut < 100; cut++) {
        clattn_context *context = open_context(true);
        assert_true(selftest_passes(context, SHUFFLE | HALF));
        clattn_context_release(&context);
        const int before = fake_calls("clEnqueueNDRangeKernel");
        os_list_files(folder, damage_one, &cut);
        context = open_context(true);
        assert_true(selftest_passes(context, SHUFFLE | HALF));
        assert_int_equal(fake_calls("clEnqueueNDRangeKernel"), before + 2);
        clattn_context_release(&context);
    }
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void a_refused_build_is_a_verdict(void **state) {
    (void)state;
    fake_fail_function("clBuildProgram", CL_BUILD_PROGRAM_FAILURE);
    clattn_context *context = open_context(true);
    assert_false(selftest_passes(context, SHUFFLE));
    clattn_context_release(&context);
    fake_fail_function(NULL, CL_SUCCESS);
    context = open_context(true);
    assert_false(selftest_passes(context, SHUFFLE));
    clattn_context_release(&context);
}

/* Any call of the test fails once: the capability is not used by this context, and the next context tries again. */
static void any_call_may_fail(void **state) {
    int nth = 0;
    (void)state;
    do {
        char *kept = folder;
        folder = temporary_folder();
        clattn_context *context = open_context(true);
        fake_fail_nth(++nth, CL_OUT_OF_RESOURCES);
        const bool passed = selftest_passes(context, SHUFFLE);
        if (!fake_has_failed())
            assert_true(passed);
        fake_fail_nth(0, CL_SUCCESS);
        assert_true(selftest_passes(context, SHUFFLE) == passed);
        clattn_context_release(&context);
        context = open_context(true);
        assert_true(selftest_passes(context, SHUFFLE));
        clattn_context_release(&context);
        temporary_remove(folder);
        folder = kept;
        assert_int_equal(fake_live(), 1);
    } while (nth < 60);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static const struct problem softmax_problem = {
    .op = CLATTN_OP_SOFTMAX, .dtype = CLATTN_F32, .out_dtype = CLATTN_F32, .rows = 64, .columns = 100};

static void a_choice_tests_what_its_kernels_use(void **state) {
    struct choice choice;
    (void)state;
    shuffle_is_right = false;
    clattn_context *context = open_context(false);
    assert_int_equal(choice_make(context, &softmax_problem, NULL, 100, false, &choice), CLATTN_SUCCESS);
    assert_int_equal(choice.facts.subgroup, SUBGROUP_NVIDIA);
    assert_int_equal(fake_command_count(), 0);
    assert_int_equal(choice_make(context, &softmax_problem, NULL, 100, true, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant->name, "subgroup");
    assert_int_equal(choice.facts.subgroup, SUBGROUP_LOCAL);
    clattn_context_release(&context);
}

static void a_failed_capability_gives_the_next_variant(void **state) {
    const struct problem problem = {.op = CLATTN_OP_ATTENTION,
                                    .dtype = CLATTN_F16,
                                    .out_dtype = CLATTN_F16,
                                    .head_dim = 64,
                                    .value_dim = 64,
                                    .nq = 64,
                                    .nk = 64,
                                    .aligned = true};
    struct choice choice;
    clattn_launch launch = {.variant = "fused_nvidia_mma"};
    (void)state;
    shuffle_is_right = false;
    clattn_context *context = open_context(false);
    assert_int_equal(choice_make(context, &problem, NULL, 64, false, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant->name, "fused_nvidia_mma");
    assert_int_equal(choice_make(context, &problem, NULL, 64, true, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant->name, "fused_fma");
    assert_int_equal(choice_make(context, &problem, &launch, 64, true, &choice), CLATTN_UNSUPPORTED);
    assert_non_null(strstr(clattn_last_error(), "fused_nvidia_mma"));
    clattn_context_release(&context);
}

/* The fake's binaries are no assembly text: programs that have to be retargeted fail to build, and what is left is
 * used. */
static void a_driver_that_cannot_be_retargeted_gives_the_next_variant(void **state) {
    const struct problem problem = {.op = CLATTN_OP_ATTENTION,
                                    .dtype = CLATTN_F16,
                                    .out_dtype = CLATTN_F16,
                                    .head_dim = 64,
                                    .value_dim = 64,
                                    .nq = 64,
                                    .nk = 64,
                                    .aligned = true,
                                    .copyable = true,
                                    .positive_scale = true};
    struct choice choice;
    (void)state;
    clattn_context *context = open_context(false);
    assert_int_equal(choice_make(context, &problem, NULL, 64, false, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant->name, "fused_nvidia_wgmma");
    assert_false(selftest_passes(context, CAP_BIT(CAP_NVIDIA_WGMMA)));
    assert_int_equal(warnings, 1);
    assert_string_equal(verdict(context, CAP_NVIDIA_WGMMA, 0), "failed");
    assert_int_equal(choice_make(context, &problem, NULL, 64, false, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant->name, "fused_nvidia_mma");
    clattn_context_release(&context);
}

static void callers_may_force_and_override(void **state) {
    struct choice choice;
    clattn_launch launch = {.variant = "three_pass"};
    (void)state;
    clattn_context *context = open_context(false);
    assert_int_equal(choice_make(context, &softmax_problem, &launch, 100, true, &choice), CLATTN_SUCCESS);
    assert_string_equal(choice.variant->name, "three_pass");
    assert_false(choice.overridden);
    launch.variant = "fused_fma";
    assert_int_equal(choice_make(context, &softmax_problem, &launch, 100, true, &choice), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "\"fused_fma\""));
    assert_non_null(strstr(clattn_last_error(), "three_pass"));
    launch.variant = NULL;
    launch.parameters = "no_such_parameter=3";
    assert_int_equal(choice_make(context, &softmax_problem, &launch, 100, true, &choice), CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(clattn_last_error(), "no_such_parameter"));
    launch.parameters = "=";
    assert_int_equal(choice_make(context, &softmax_problem, &launch, 100, true, &choice), CLATTN_INVALID_ARGUMENT);
    launch.parameters = "";
    assert_int_equal(choice_make(context, &softmax_problem, &launch, 100, true, &choice), CLATTN_SUCCESS);
    assert_false(choice.overridden);
    const struct problem unknown = {.op = (clattn_op_kind)77};
    assert_int_equal(choice_make(context, &unknown, NULL, 100, true, &choice), CLATTN_UNSUPPORTED);
    clattn_context_release(&context);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *choose_often(void *user) {
    clattn_context *context = user;
    intptr_t wrong = 0;
    for (int i = 0; i < 200; i++) {
        struct choice choice;
        wrong += choice_make(context, &softmax_problem, NULL, 100, true, &choice) != CLATTN_SUCCESS;
        wrong += choice.facts.subgroup != SUBGROUP_NVIDIA;
        wrong += !selftest_passes(context, SHUFFLE | HALF);
    }
    return (void *)wrong;
}

static void threads_share_one_test(void **state) {
    pthread_t thread[4];
    (void)state;
    clattn_context *context = open_context(true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, choose_often, context), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(fake_calls("clEnqueueNDRangeKernel"), 2);
    clattn_context_release(&context);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(creating_a_context_runs_nothing),
        TEST(a_right_device_passes_once),
        TEST(a_wrong_device_is_demoted),
        TEST(one_wrong_bit_of_half_is_seen),
        TEST(masked_capabilities_are_not_tested),
        TEST(verdicts_are_kept_on_disk),
        TEST(damaged_verdicts_are_not_believed),
        TEST(a_refused_build_is_a_verdict),
        TEST(any_call_may_fail),
        TEST(a_choice_tests_what_its_kernels_use),
        TEST(a_failed_capability_gives_the_next_variant),
        TEST(a_driver_that_cannot_be_retargeted_gives_the_next_variant),
        TEST(callers_may_force_and_override),
        TEST(threads_share_one_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
