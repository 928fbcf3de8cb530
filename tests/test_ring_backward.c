/* Gradients over 1 to 4 ranks of one process equal those of one device. */
#include "ring_harness.h"

#include <string.h>

static void check_shape(const struct attention_case *shape, clattn_dtype dtype, clattn_ring_split split, int32_t ranks,
                        bool with_dlse) {
    const struct attention_data forward = attention_data_random(shape, dtype, 11);
    struct gradient_data data = gradient_data_from(&forward, 12, with_dlse);
    struct ring_problem problem = ring_problem_of(shape, dtype, split, ranks);
    problem.gradients = &data;
    ring_check(&problem);
    ring_problem_free(&problem);
    gradient_data_free(&data);
}

static void gradients_of_all_keys(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("full", 2, 45, 61, CLATTN_CAUSAL_NONE);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++)
        check_shape(&shape, CLATTN_F32, CLATTN_RING_CONTIGUOUS, ranks, ranks == 3);
}

/* Contiguous shards: some blocks pass a rank that does not see them. */
static void gradients_under_a_causal_limit(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("causal", 1, 99, 103, CLATTN_CAUSAL_TOP_LEFT);
    for (int32_t ranks = 1; ranks <= RING_MOST_RANKS; ranks++) {
        check_shape(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, ranks, false);
        if (ranks % 2 == 0)
            check_shape(&shape, CLATTN_F16, CLATTN_RING_CONTIGUOUS, ranks, false);
    }
    check_shape(&shape, CLATTN_BF16, CLATTN_RING_ZIGZAG, 3, false);
}

static void shards_may_be_unequal_and_empty(void **state) {
    (void)state;
    static const clattn_ring_shard queries[4] = {{{{40, 30}, {0, 3}}}, {{{3, 1}, {0, 0}}}, {{{4, 36}}}, {{{70, 0}}}};
    static const clattn_ring_shard keys[4] = {{{{9, 55}}}, {{{0, 0}}}, {{{64, 6}, {0, 9}}}, {{{70, 0}}}};
    const struct attention_case shape = attention_shape("unequal", 1, 70, 70, CLATTN_CAUSAL_TOP_LEFT);
    const struct attention_data forward = attention_data_random(&shape, CLATTN_F32, 11);
    struct gradient_data data = gradient_data_from(&forward, 12, false);
    struct ring_problem problem = ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, RING_MOST_RANKS);
    memcpy(problem.q_shards, queries, sizeof queries);
    memcpy(problem.k_shards, keys, sizeof keys);
    problem.gradients = &data;
    ring_check(&problem);
    ring_problem_free(&problem);
    gradient_data_free(&data);
}

static void what_is_missing_or_refused_is_named(void **state) {
    (void)state;
    const struct attention_case shape = attention_shape("refused", 1, 16, 16, CLATTN_CAUSAL_NONE);
    const struct attention_data forward = attention_data_random(&shape, CLATTN_F32, 11);
    struct gradient_data data = gradient_data_from(&forward, 12, false);
    struct ring_problem problem = ring_problem_of(&shape, CLATTN_F32, CLATTN_RING_ZIGZAG, 2);
    problem.gradients = &data;
    clattn_ring_group *group = ring_upload(&problem, 60000);
    clattn_attention_backward_op *op = &ring_ranks[1].backward.backward;
    const clattn_attention_backward_op good = *op;
    op->dk.memory.kind = CLATTN_MEMORY_NONE;
    ring_run(2);
    assert_int_equal(ring_ranks[0].status, CLATTN_PEER_FAILED);
    assert_non_null(strstr(ring_ranks[1].text, "dk: absent"));
    *op = good;
    op->dsinks = ring_ranks[1].lse.view;
    ring_run(2);
    assert_int_equal(ring_ranks[1].status, CLATTN_UNSUPPORTED);
    assert_non_null(strstr(ring_ranks[1].text, "dsinks"));
    *op = good;
    op->attention.lse.memory.kind = CLATTN_MEMORY_NONE;
    ring_run(2);
    assert_int_equal(ring_ranks[1].status, CLATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(ring_ranks[1].text, "lse: absent"));
    ring_release(2, &group);
    ring_problem_free(&problem);
    gradient_data_free(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gradients_of_all_keys, ring_open),
        cmocka_unit_test_setup(gradients_under_a_causal_limit, ring_open),
        cmocka_unit_test_setup(shards_may_be_unequal_and_empty, ring_open),
        cmocka_unit_test_setup(what_is_missing_or_refused_is_named, ring_open),
    };
    return support_main("ring_backward", tests, sizeof tests / sizeof *tests);
}
