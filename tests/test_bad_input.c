/* Over a hundred calls that must be refused: each gives its status and a text with the argument's name and value,
 * enqueues nothing and leaves every output as it was.
 *
 * A valid set of calls is made once; a row of the table patches one or two members of a copy, makes the call, and looks
 * at what happened. */
#include "bad_input.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct call_set valid;
static struct test_tensor tensors[BUFFERS];

static void add(enum buffer_name which, clattn_dtype dtype, int rank, const int64_t *dims) {
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= dims[d];
    double *zeros = test_array(count);
    tensors[which] = which >= FIRST_OUTPUT ? test_output(dtype, rank, dims, NULL)
                                           : test_input(dtype, rank, dims, zeros, NULL, (double)NAN);
    free(zeros);
}

static void make_tensors(void) {
    add(IN_Q, CLATTN_F32, 4, (const int64_t[]){2, 4, 5, 8});
    add(IN_K, CLATTN_F32, 4, (const int64_t[]){2, 2, 7, 8});
    add(IN_V, CLATTN_F32, 4, (const int64_t[]){2, 2, 7, 6});
    add(IN_O0, CLATTN_F32, 4, (const int64_t[]){2, 4, 5, 6});
    add(IN_O1, CLATTN_F32, 4, (const int64_t[]){2, 4, 5, 6});
    add(IN_LSE0, CLATTN_F32, 3, (const int64_t[]){2, 4, 5});
    add(IN_LSE1, CLATTN_F32, 3, (const int64_t[]){2, 4, 5});
    add(IN_X, CLATTN_F32, 2, (const int64_t[]){3, 10});
    add(IN_A, CLATTN_F32, 2, (const int64_t[]){4, 6});
    add(IN_B, CLATTN_F32, 2, (const int64_t[]){6, 5});
    add(IN_MASK, CLATTN_U8, 4, (const int64_t[]){2, 4, 5, 7});
    add(IN_BIAS, CLATTN_F32, 4, (const int64_t[]){2, 1, 5, 7});
    add(IN_ALIBI, CLATTN_F32, 2, (const int64_t[]){2, 4});
    add(IN_SINKS, CLATTN_F32, 1, (const int64_t[]){4});
    add(IN_LENGTHS, CLATTN_I32, 1, (const int64_t[]){2});
    add(IN_OFFSETS, CLATTN_I32, 1, (const int64_t[]){3});
    add(IN_TABLE, CLATTN_I32, 2, (const int64_t[]){2, 3});
    add(IN_NIBBLES, CLATTN_U8, 1, (const int64_t[]){240});
    add(IN_CODES, CLATTN_U8, 1, (const int64_t[]){480});
    add(IN_SCALES, CLATTN_F16, 4, (const int64_t[]){2, 3, 2, 2});
    add(IN_ZEROS, CLATTN_F16, 4, (const int64_t[]){2, 3, 2, 2});
    add(IN_HEAD_SCALES, CLATTN_F32, 1, (const int64_t[]){3});
    add(OUT_O, CLATTN_F32, 4, (const int64_t[]){2, 4, 5, 6});
    add(OUT_LSE, CLATTN_F32, 3, (const int64_t[]){2, 4, 5});
    add(OUT_Y, CLATTN_F32, 2, (const int64_t[]){3, 10});
    add(OUT_M, CLATTN_F32, 2, (const int64_t[]){3, 1});
    add(OUT_L, CLATTN_F32, 2, (const int64_t[]){3, 1});
    add(OUT_C, CLATTN_F32, 2, (const int64_t[]){4, 5});
    add(OUT_HALF, CLATTN_F16, 4, (const int64_t[]){2, 4, 5, 6});
}

static void fill_modifiers(void) {
    clattn_attention_op *modified = &valid.modified, *ragged = &valid.ragged, *paged = &valid.paged;
    *modified = *ragged = *paged = valid.attention;
    modified->mask = ragged->mask = tensors[IN_MASK].view;
    modified->bias = tensors[IN_BIAS].view;
    modified->alibi = tensors[IN_ALIBI].view;
    modified->sinks = tensors[IN_SINKS].view;
    modified->q_lengths = modified->k_lengths = paged->k_lengths = tensors[IN_LENGTHS].view;
    ragged->q_offsets = ragged->k_offsets = paged->k_offsets = tensors[IN_OFFSETS].view;
    ragged->q.dims[0] = ragged->k.dims[0] = ragged->v.dims[0] = ragged->o.dims[0] = ragged->lse.dims[0] = 1;
    paged->k_offsets.memory.kind = CLATTN_MEMORY_NONE;
    paged->page_table = tensors[IN_TABLE].view;
}

/* As dense codes or values of the given dims, in a buffer that holds bytes or more elements. */
static clattn_tensor dense_in(enum buffer_name which, clattn_dtype dtype, const int64_t *dims) {
    clattn_tensor view = clattn_tensor_dense(tensors[which].buffer, dtype, 4, dims);
    view.offset = dtype == CLATTN_I4 ? 2 * GUARD : GUARD;
    return view;
}

static void fill_quantized(void) {
    const int64_t q_dims[4] = {2, 3, 1, 40}, k_dims[4] = {2, 3, 2, 40};
    clattn_attention_op *quantized = &valid.quantized, *fp8 = &valid.fp8;
    clattn_attention_init(quantized);
    quantized->q = dense_in(IN_Q, CLATTN_F32, q_dims);
    quantized->o = dense_in(OUT_O, CLATTN_F32, q_dims);
    quantized->lse = dense_in(OUT_LSE, CLATTN_F32, q_dims);
    quantized->lse.rank = 3;
    quantized->lse.strides[0] = 3, quantized->lse.strides[1] = quantized->lse.strides[2] = 1;
    *fp8 = *quantized;
    quantized->k = dense_in(IN_NIBBLES, CLATTN_I4, k_dims);
    quantized->v = dense_in(IN_CODES, CLATTN_I8, k_dims);
    quantized->k_quantization = (clattn_quantization){.block = 32, .scales = tensors[IN_SCALES].view};
    quantized->v_quantization = quantized->k_quantization;
    quantized->v_quantization.zeros = tensors[IN_ZEROS].view;
    fp8->k = fp8->v = dense_in(IN_CODES, CLATTN_F8_E4M3, k_dims);
    fp8->k_quantization.scales = fp8->v_quantization.scales = tensors[IN_HEAD_SCALES].view;
}

static void fill_calls(void) {
    clattn_attention_init(&valid.attention);
    valid.attention.q = tensors[IN_Q].view;
    valid.attention.k = tensors[IN_K].view;
    valid.attention.v = tensors[IN_V].view;
    valid.attention.o = tensors[OUT_O].view;
    valid.attention.lse = tensors[OUT_LSE].view;
    fill_modifiers();
    fill_quantized();
    clattn_attention_merge_init(&valid.merge);
    valid.merge.count = 2;
    valid.o_in[0] = tensors[IN_O0].view;
    valid.o_in[1] = tensors[IN_O1].view;
    valid.lse_in[0] = tensors[IN_LSE0].view;
    valid.lse_in[1] = tensors[IN_LSE1].view;
    valid.merge.o = tensors[OUT_O].view;
    valid.merge.lse = tensors[OUT_LSE].view;
    clattn_softmax_init(&valid.softmax);
    valid.softmax.x = tensors[IN_X].view;
    valid.softmax.y = tensors[OUT_Y].view;
    clattn_softmax_init(&valid.state);
    valid.state.function = CLATTN_SOFTMAX_STATE;
    valid.state.x = tensors[IN_X].view;
    valid.state.m = tensors[OUT_M].view;
    valid.state.l = tensors[OUT_L].view;
    clattn_softmax_merge_init(&valid.softmax_merge);
    valid.softmax_merge.count = 2;
    valid.m_in[0] = valid.m_in[1] = tensors[IN_LSE0].view;
    valid.l_in[0] = valid.l_in[1] = tensors[IN_LSE1].view;
    valid.softmax_merge.m = tensors[OUT_LSE].view;
    valid.softmax_merge.l = tensors[OUT_O].view;
    valid.softmax_merge.l.rank = 3;
    valid.softmax_merge.l.strides[0] = 20;
    valid.softmax_merge.l.strides[1] = 5;
    valid.softmax_merge.l.strides[2] = 1;
    clattn_gemm_init(&valid.gemm);
    valid.gemm.a = tensors[IN_A].view;
    valid.gemm.b = tensors[IN_B].view;
    valid.gemm.c = tensors[OUT_C].view;
    clattn_launch_init(&valid.launch, device.queue);
}

static cl_context other_context;
static cl_command_queue other_queue;
static cl_mem foreign_buffer;

static int set_up(void **state) {
    (void)state;
    cl_int code = CL_SUCCESS;
    make_tensors();
    fill_calls();
    other_context = clCreateContext(NULL, 1, &device.id, NULL, NULL, &code);
    support_expect_cl(code, "clCreateContext");
    other_queue = clCreateCommandQueue(other_context, device.id, 0, &code);
    support_expect_cl(code, "clCreateCommandQueue");
    foreign_buffer = clCreateBuffer(other_context, CL_MEM_READ_WRITE, 1 << 16, NULL, &code);
    support_expect_cl(code, "clCreateBuffer");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < BUFFERS; i++)
        test_release(&tensors[i]);
    clReleaseMemObject(foreign_buffer);
    clReleaseCommandQueue(other_queue);
    clReleaseContext(other_context);
    return 0;
}

/* ---- one row ---- */

static const void *special(enum special which) {
    switch (which) {
    case FOREIGN_BUFFER:
        return foreign_buffer;
    case FOREIGN_QUEUE:
        return other_queue;
    case BUFFER_OF_Q:
        return tensors[IN_Q].buffer;
    case BUFFER_OF_X:
        return tensors[IN_X].buffer;
    case BUFFER_OF_A:
        return tensors[IN_A].buffer;
    case BUFFER_OF_O0:
        return tensors[IN_O0].buffer;
    case BUFFER_OF_O:
        return tensors[OUT_O].buffer;
    case BUFFER_OF_M:
        return tensors[OUT_M].buffer;
    case BUFFER_OF_SINKS:
        return tensors[IN_SINKS].buffer;
    case BUFFER_OF_SCALES:
        return tensors[IN_SCALES].buffer;
    case BUFFER_OF_NIBBLES:
        return tensors[IN_NIBBLES].buffer;
    case NO_SPECIAL:
        break;
    }
    return NULL;
}

static void apply(struct call_set *set, const struct patch *patch) {
    char *at = (char *)set + patch->offset;
    const int32_t narrow = (int32_t)patch->integer;
    const float real = (float)patch->real;
    const void *pointer = patch->special != NO_SPECIAL ? special(patch->special) : patch->pointer;
    switch (patch->kind) {
    case PATCH_NONE:
        break;
    case PATCH_INT:
        memcpy(at, patch->size == sizeof narrow ? (const void *)&narrow : (const void *)&patch->integer, patch->size);
        break;
    case PATCH_FLOAT:
        memcpy(at, &real, sizeof real);
        break;
    case PATCH_POINTER:
        memcpy(at, &pointer, sizeof pointer);
        break;
    case PATCH_ABSENT:
        memset(at, 0, patch->size);
        break;
    }
}

/* The text holds the word, not as a part of a longer one. */
static bool mentions(const char *text, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        const bool starts = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (starts && !(isalnum((unsigned char)at[length]) || at[length] == '_'))
            return true;
    }
    return false;
}

static uint64_t launches(void) {
    clattn_statistics statistics = {.size = sizeof statistics};
    CHECK(clattn_context_statistics(device.clattn, &statistics));
    return statistics.kernel_launches;
}

static const clattn_op *op_of(const struct call_set *set, enum base base) {
    switch (base) {
    case ATTENTION:
        return &set->attention.head;
    case MODIFIED:
        return &set->modified.head;
    case RAGGED:
        return &set->ragged.head;
    case PAGED:
        return &set->paged.head;
    case QUANTIZED:
        return &set->quantized.head;
    case FP8:
        return &set->fp8.head;
    case MERGE:
        return &set->merge.head;
    case SOFTMAX:
        return &set->softmax.head;
    case STATE:
        return &set->state.head;
    case SOFTMAX_MERGE:
        return &set->softmax_merge.head;
    case GEMM:
        return &set->gemm.head;
    }
    return NULL;
}

static clattn_status call_base(const struct call_set *set, enum base base) {
    switch (base) {
    case ATTENTION:
        return clattn_attention(device.clattn, &set->attention, &set->launch);
    case MODIFIED:
        return clattn_attention(device.clattn, &set->modified, &set->launch);
    case RAGGED:
        return clattn_attention(device.clattn, &set->ragged, &set->launch);
    case PAGED:
        return clattn_attention(device.clattn, &set->paged, &set->launch);
    case QUANTIZED:
        return clattn_attention(device.clattn, &set->quantized, &set->launch);
    case FP8:
        return clattn_attention(device.clattn, &set->fp8, &set->launch);
    case MERGE:
        return clattn_attention_merge(device.clattn, &set->merge, &set->launch);
    case SOFTMAX:
        return clattn_softmax(device.clattn, &set->softmax, &set->launch);
    case STATE:
        return clattn_softmax(device.clattn, &set->state, &set->launch);
    case SOFTMAX_MERGE:
        return clattn_softmax_merge(device.clattn, &set->softmax_merge, &set->launch);
    case GEMM:
        return clattn_gemm(device.clattn, &set->gemm, &set->launch);
    }
    return CLATTN_INTERNAL_ERROR;
}

static int complain(const struct bad_call *bad, const char *what, clattn_status status, const char *text) {
    printf("%s: %s (%s, \"%s\")\n", bad->what, what, clattn_status_name(status), text);
    return 1;
}

static int check_text(const struct bad_call *bad, clattn_status status) {
    char text[4096];
    snprintf(text, sizeof text, "%s", clattn_last_error());
    if (status != bad->status)
        return complain(bad, "another status than documented", status, text);
    if (!mentions(text, bad->argument))
        return complain(bad, "the text does not name the argument", status, text);
    if (bad->value && !strstr(text, bad->value))
        return complain(bad, "the text does not give the value", status, text);
    return 0;
}

/* A copy of the calls whose merges point at its own arrays. */
static void copy_valid(struct call_set *set) {
    *set = valid;
    set->merge.o_in = set->o_in;
    set->merge.lse_in = set->lse_in;
    set->softmax_merge.m_in = set->m_in;
    set->softmax_merge.l_in = set->l_in;
}

static int try_bad_call(const struct bad_call *bad) {
    struct call_set set;
    char sentinel;
    cl_event event = (cl_event)(void *)&sentinel;
    copy_valid(&set);
    set.launch.event = &event;
    for (int p = 0; p < 2; p++)
        apply(&set, &bad->patch[p]);
    const uint64_t before = launches();
    const clattn_status status = call_base(&set, bad->base);
    int wrong = check_text(bad, status);
    if (launches() != before)
        wrong += complain(bad, "something was enqueued", status, "");
    if (event != (cl_event)(void *)&sentinel && event != NULL)
        wrong += complain(bad, "an event was made", status, "");
    for (int i = FIRST_OUTPUT; i < BUFFERS; i++)
        test_untouched(&tensors[i], bad->what);
    if (!bad->launch_only)
        wrong += check_text(bad, clattn_supported(device.clattn, op_of(&set, bad->base), &set.launch));
    return wrong;
}

static void every_bad_call_is_refused(void **state) {
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < bad_call_count; i++)
        wrong += try_bad_call(&bad_calls[i]);
    for (size_t i = 0; i < bad_attention_call_count; i++)
        wrong += try_bad_call(&bad_attention_calls[i]);
    for (size_t i = 0; i < bad_quantized_call_count; i++)
        wrong += try_bad_call(&bad_quantized_calls[i]);
    assert_true(bad_call_count >= 100 && bad_attention_call_count >= 100);
    assert_int_equal(wrong, 0);
}

/* Without this, a row could be refused for a reason of its own making. */
static void the_unspoilt_calls_are_accepted(void **state) {
    (void)state;
    struct call_set set;
    copy_valid(&set);
    for (int base = ATTENTION; base <= GEMM; base++)
        CHECK(clattn_supported(device.clattn, op_of(&set, (enum base)base), NULL));
}

/* Codes and scales that end with their buffers fit; by whole bytes, where two codes share one. */
static void codes_that_just_fit_are_accepted(void **state) {
    (void)state;
    struct call_set set;
    copy_valid(&set);
    set.quantized.k.offset = 256;
    set.quantized.v.offset = 128;
    set.quantized.k_quantization.scales.offset = 128;
    set.quantized.v_quantization.zeros.offset = 128;
    CHECK(clattn_supported(device.clattn, &set.quantized.head, NULL));
    set.quantized.q.dims[3] = set.quantized.k.dims[3] = 39;
    set.quantized.k.offset = 256;
    CHECK(clattn_supported(device.clattn, &set.quantized.head, NULL));
    set.fp8.k.offset = 128;
    CHECK(clattn_supported(device.clattn, &set.fp8.head, NULL));
}

static void refused(clattn_status status, const char *argument) {
    support_expect(status, CLATTN_INVALID_ARGUMENT, argument);
    if (!mentions(clattn_last_error(), argument))
        fail_msg("the text \"%s\" does not name %s", clattn_last_error(), argument);
}

static void missing_arguments_of_calls(void **state) {
    (void)state;
    size_t bytes = 0;
    char reason[64];
    struct call_set set;
    clattn_choice choice = {.size = sizeof choice};
    copy_valid(&set);
    const clattn_op unknown = {.size = sizeof unknown, .kind = (clattn_op_kind)99};
    refused(clattn_attention(NULL, &set.attention, &set.launch), "context");
    refused(clattn_attention(device.clattn, NULL, &set.launch), "op");
    refused(clattn_attention(device.clattn, &set.attention, NULL), "launch");
    refused(clattn_attention_merge(NULL, &set.merge, &set.launch), "context");
    refused(clattn_softmax(NULL, &set.softmax, &set.launch), "context");
    refused(clattn_softmax(device.clattn, &set.softmax, NULL), "launch");
    refused(clattn_softmax_merge(device.clattn, NULL, &set.launch), "op");
    refused(clattn_gemm(device.clattn, &set.gemm, NULL), "launch");
    refused(clattn_supported(NULL, &set.gemm.head, NULL), "context");
    refused(clattn_supported(device.clattn, NULL, NULL), "op");
    refused(clattn_supported(device.clattn, &unknown, NULL), "kind");
    refused(clattn_prepare(device.clattn, &unknown, NULL), "kind");
    refused(clattn_workspace_size(device.clattn, &unknown, NULL, &bytes), "kind");
    refused(clattn_workspace_size(device.clattn, &set.gemm.head, NULL, NULL), "bytes");
    refused(clattn_variant_question(device.clattn, &set.gemm.head, NULL, reason, sizeof reason), "variant");
    refused(clattn_variant_question(device.clattn, &set.gemm.head, "fold", reason, sizeof reason), "tiled_fma");
    refused(clattn_variant_question(device.clattn, &set.gemm.head, "no_such", reason, sizeof reason), "no_such");
    refused(clattn_variant_question(device.clattn, &set.gemm.head, "no_such", NULL, 0), "reason");
    refused(clattn_variant_choose(device.clattn, &set.gemm.head, NULL, NULL), "choice");
    refused(clattn_variant_choose(NULL, &set.gemm.head, NULL, &choice), "context");
    refused(clattn_context_info(device.clattn, NULL), "info");
    refused(clattn_context_info(NULL, NULL), "context");
    refused(clattn_context_statistics(device.clattn, NULL), "statistics");
}

static void bad_context_options(void **state) {
    (void)state;
    clattn_context_options options;
    clattn_context *context = NULL;
    clattn_context_options_init(&options);
    refused(clattn_context_create(NULL, device.id, &options, &context), "context");
    refused(clattn_context_create(device.context, NULL, &options, &context), "device");
    refused(clattn_context_create(device.context, device.id, &options, NULL), "out");
    options.size = 0;
    refused(clattn_context_create(device.context, device.id, &options, &context), "size");
    clattn_context_options_init(&options);
    options.log_level = (clattn_log_level)17;
    refused(clattn_context_create(device.context, device.id, &options, &context), "17");
    const char *const masks[] = {"warp_drive", "all,-warp_drive", "all,,-half", "-", "all -half"};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        clattn_context_options_init(&options);
        options.capabilities = masks[i];
        refused(clattn_context_create(device.context, device.id, &options, &context), "capabilities");
        assert_null(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_unspoilt_calls_are_accepted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_bad_call_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(codes_that_just_fit_are_accepted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_arguments_of_calls, set_up, tear_down),
        cmocka_unit_test(bad_context_options),
    };
    return support_main("bad input", tests, sizeof tests / sizeof tests[0]);
}
