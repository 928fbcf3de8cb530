/* Keys and values in pages: in any order, shared, unused, of any size and layout. */
#include "attention_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, PAGE = 16, ENTRIES = 4, POOL = 10 };

static const double table[2 * ENTRIES] = {5, 4, 3, 2, 5, 9, 3, 0}, lengths[2] = {64, 50};

static struct attention_data paged(const char *name, clattn_dtype dtype, int64_t nq, clattn_causal causal) {
    struct attention_case shape = attention_shape(name, 2, nq, PAGE, causal);
    shape.with =
        (struct case_modifiers){.page_table = table, .max_pages = ENTRIES, .pages = POOL, .k_lengths = lengths};
    return attention_data_random(&shape, dtype, 3);
}

/* The same keys without pages. */
static struct attention_data contiguous(const struct attention_data *from, clattn_causal causal) {
    struct attention_case shape = attention_shape("A33 contiguous", 2, from->problem.nq, ENTRIES * PAGE, causal);
    shape.with.k_lengths = lengths;
    struct attention_data to = attention_data_random(&shape, from->dtype, 3);
    memcpy(to.q, from->q, (size_t)reference_count(&to.settings.q) * sizeof(double));
    for (int64_t row = 0; row < 2 * 2 * ENTRIES * PAGE; row++) {
        const int64_t j = row % (ENTRIES * PAGE), head = row / (ENTRIES * PAGE) % 2, b = row / (ENTRIES * PAGE) / 2;
        const int64_t page = (int64_t)from->page_table[b * ENTRIES + j / PAGE];
        const int64_t at = (page * 2 + head) * PAGE + j % PAGE;
        memcpy(to.k + row * D, from->k + at * D, D * sizeof(double));
        memcpy(to.v + row * D, from->v + at * D, D * sizeof(double));
    }
    return to;
}

/* A33, for one query and for many. */
static void pages_are_as_contiguous_keys(void **state) {
    const int64_t queries[] = {1, 7, 64};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t n = 0; n < 3; n++) {
            const clattn_causal causal = n ? CLATTN_CAUSAL_BOTTOM_RIGHT : CLATTN_CAUSAL_NONE;
            struct attention_data pages = paged("A33 pages", all_dtypes[t], queries[n], causal);
            struct attention_data plain = contiguous(&pages, causal);
            size_t index = 0;
            for (const char *variant; (variant = attention_next_variant(&pages, &index));) {
                struct attention_result a = attention_run(&pages, variant), b = attention_run(&plain, variant);
                attention_compare(&pages, &a, variant, 64);
                attention_same_rows(&pages, variant, &a, &b, 0, attention_row_count(&pages));
                attention_result_free(&a);
                attention_result_free(&b);
            }
            attention_data_free(&pages);
            attention_data_free(&plain);
        }
}

/* A33: a smaller batch afterwards reads its own rows of a table that still holds the former entries. */
static void a_reused_table_has_stale_rows(void **state) {
    const double stale[4 * ENTRIES] = {1, -1, 7, 99, 8, 2, -7, 2147483647};
    const double short_lengths[2] = {9, 20};
    struct attention_case shape = attention_shape("A33 stale rows", 2, 3, PAGE, CLATTN_CAUSAL_NONE);
    const struct test_layout rows_apart = {2 * ENTRIES, {2 * ENTRIES, 1}};
    shape.with =
        (struct case_modifiers){.page_table = stale, .max_pages = ENTRIES, .pages = POOL, .k_lengths = short_lengths};
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = attention_data_random(&shape, all_dtypes[t], 4);
        attention_check(&data);
        data.layout_page_table = &rows_apart;
        attention_check(&data);
        attention_data_free(&data);
    }
}

/* Other page layouts are a choice of strides: heads within a row, keys and values in one pool. */
static void pages_in_any_layout(void **state) {
    const struct test_layout tokens_first = {0, {PAGE * 2 * D, D, 2 * D, 1}};
    const struct test_layout apart = {5, {2 * 2 * PAGE * (D + 8), PAGE * (D + 8), D + 8, 1}};
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_data data = paged("pages in any layout", all_dtypes[t], 5, CLATTN_CAUSAL_BOTTOM_RIGHT);
        data.layout_k = &tokens_first;
        data.layout_v = &apart;
        attention_check(&data);
        attention_data_free(&data);
    }
}

static void pages_of_any_size(void **state) {
    const int64_t sizes[] = {1, 3, 7, 16, 64, 100, 256};
    (void)state;
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        struct attention_case shape = attention_shape("page sizes", 2, 20, sizes[n], CLATTN_CAUSAL_BOTTOM_RIGHT);
        const double any[2 * ENTRIES] = {6, 0, 3, 1, 2, 2, 5, 4};
        shape.with = (struct case_modifiers){.page_table = any, .max_pages = ENTRIES, .pages = 7};
        struct attention_data data = attention_data_random(&shape, CLATTN_F32, 5);
        attention_check(&data);
        attention_data_free(&data);
    }
}

/* Mixed batches: queries of different lengths end to end, each on pages of its own. */
static void offsets_of_queries_with_pages(void **state) {
    const double offsets[3] = {0, 1, 30}, q_lengths[2] = {1, 25};
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct attention_case shape = attention_shape("offsets and pages", 2, 33, PAGE, CLATTN_CAUSAL_BOTTOM_RIGHT);
        shape.with = (struct case_modifiers){.page_table = table,
                                             .max_pages = ENTRIES,
                                             .pages = POOL,
                                             .k_lengths = lengths,
                                             .q_offsets = offsets,
                                             .q_lengths = q_lengths};
        struct attention_data data = attention_data_random(&shape, all_dtypes[t], 6);
        attention_check(&data);
        attention_data_free(&data);
    }
}

/* A34: ids and lengths out of range must not lead out of the pool. */
static void pages_out_of_range(clattn_dtype dtype) {
    const double ids[][2 * ENTRIES] = {{10, -1, 3, 2, 5, 9, INT32_MAX, INT32_MIN}, {10, 11, 12, 13, -1, -2, -3, -4}};
    const double too_long[2] = {65, INT32_MAX};
    for (int i = 0; i < 2; i++)
        for (int with_lengths = 0; with_lengths < 2; with_lengths++) {
            struct attention_case shape = attention_shape("A34 pages", 2, 7, PAGE, CLATTN_CAUSAL_NONE);
            shape.with = (struct case_modifiers){
                .page_table = ids[i], .max_pages = ENTRIES, .pages = POOL, .k_lengths = with_lengths ? too_long : NULL};
            struct attention_data data = attention_data_random(&shape, dtype, 7);
            attention_survive(&data);
            attention_data_free(&data);
        }
}

static void pages_out_of_range_do_no_harm(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        pages_out_of_range(all_dtypes[t]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ATTENTION_TABLE_TESTS(paged_cases),
        cmocka_unit_test(pages_are_as_contiguous_keys),
        cmocka_unit_test(a_reused_table_has_stale_rows),
        cmocka_unit_test(pages_in_any_layout),
        cmocka_unit_test(pages_of_any_size),
        cmocka_unit_test(offsets_of_queries_with_pages),
        cmocka_unit_test(pages_out_of_range_do_no_harm),
    };
    return support_main("attention, paged", tests, sizeof tests / sizeof tests[0]);
}
