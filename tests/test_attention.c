/* Attention against published numbers, every variant that accepts, every dtype. */
#include "attention_harness.h"

static void published(clattn_dtype dtype) {
    for (size_t i = 0; i < attention_case_count; i++)
        attention_check_case(&attention_cases[i], dtype);
}

static void published_numbers_in_fp32(void **state) {
    (void)state;
    published(CLATTN_F32);
}

static void published_numbers_in_fp16(void **state) {
    (void)state;
    published(CLATTN_F16);
}

static void published_numbers_in_bf16(void **state) {
    (void)state;
    published(CLATTN_BF16);
}

/* What the library chooses by itself is one of the variants, bit by bit. */
static void the_choice_is_a_variant(void **state) {
    (void)state;
    const struct attention_case shape = {.name = "the choice",
                                         .batch = 1,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .nq = 33,
                                         .nk = 70,
                                         .head_dim = 64, /* all variants, in order of preference */
                                         .value_dim = 64};
    struct attention_data data = attention_data_random(&shape, CLATTN_F32, 5);
    size_t index = 0;
    const char *first = attention_next_variant(&data, &index);
    assert_non_null(first);
    struct attention_result chosen = attention_run(&data, NULL), forced = attention_run(&data, first);
    attention_same_rows(&data, first, &chosen, &forced, 0, attention_row_count(&data));
    attention_result_free(&chosen);
    attention_result_free(&forced);
    attention_data_free(&data);
}

static void half_inputs_may_give_fp32_outputs(void **state) {
    (void)state;
    const struct attention_case shape = {.name = "fp32 output",
                                         .batch = 1,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .nq = 33,
                                         .nk = 70,
                                         .head_dim = 64,
                                         .value_dim = 64};
    for (int t = 1; t < 3; t++) {
        struct attention_data data = attention_data_random(&shape, all_dtypes[t], 11);
        data.out_dtype = CLATTN_F32;
        attention_check(&data);
        attention_data_free(&data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_numbers_in_fp32),         cmocka_unit_test(published_numbers_in_fp16),
        cmocka_unit_test(published_numbers_in_bf16),         cmocka_unit_test(the_choice_is_a_variant),
        cmocka_unit_test(half_inputs_may_give_fp32_outputs),
    };
    return support_main("attention", tests, sizeof tests / sizeof tests[0]);
}
