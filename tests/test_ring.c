/* Attention over 1 to 4 ranks of one process equals attention on one device: causal and not, balanced and not, shards of
 * unequal and of no rows, modifiers. What no query sees holds NaN. */
#include "ring_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void check_shape(const struct attention_case *shape, clattn_dtype dtype, clattn_ring_split split,
                        int32_t ranks) {
    struct ring_problem problem = ring_problem_of(shape, dtype, split, ranks);
    ring_check(&problem);
    ring_problem_free(&problem);
}

static void every_query_sees_the_keys_of_all_ranks(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("full", 2, 45, 61, CLATTN_CAUSAL_NONE);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++)
        for (int d = 0; d < 3; d++)
            check_shape(&shape, all_dtypes[d], CLATTN_RING_CONTIGUOUS, ranks);
}

/* More keys than queries: the last ones hold NaN, and no rank has a query that sees them. */
static void causal_limits_count_in_the_whole_sequence(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("causal", 1, 203, 219, CLATTN_CAUSAL_TOP_LEFT);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++)
        for (int d = 0; d < 3; d++)
            check_shape(&shape, all_dtypes[d], ranks % 2 == 0 ? CLATTN_RING_ZIGZAG : CLATTN_RING_CONTIGUOUS, ranks);
    check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_query_sees_the_keys_of_all_ranks, ring_open, ring_close),
        cmocka_unit_test_setup_teardown(causal_limits_count_in_the_whole_sequence, ring_open, ring_close),
    };
    return support_main("ring", tests, sizeof tests / sizeof *tests);
}
