/* The sizes of decode attention's splits. */
#include "attention_split.h"

enum { GPU_GROUPS = 16, CPU_GROUPS = 4, GPU_KEYS = 128, CPU_KEYS = 512, KEYS_PER_ROW = 16 };

static int64_t at_least(int64_t value, int64_t least) {
    return value > least ? value : least;
}

static int64_t divide_up(int64_t value, int64_t by) {
    return value / by + (value % by != 0);
}

struct attention_split attention_split_given(const struct attention_split_task *task, int64_t chunk, int64_t splits) {
    const int64_t keys = at_least(task->keys, 1);
    const int64_t asked = chunk > 0 ? chunk : divide_up(keys, at_least(splits, 1));
    const int64_t blocks = divide_up(asked < keys ? asked : keys, task->block_keys);
    return (struct attention_split){.splits = divide_up(keys, blocks * task->block_keys),
                                    .chunk = blocks * task->block_keys};
}

struct attention_split attention_split_of(const struct device_facts *facts, const struct attention_split_task *task) {
    const int64_t groups = at_least(facts->compute_units, 1) * (facts->is_cpu ? CPU_GROUPS : GPU_GROUPS);
    const int64_t least = at_least(facts->is_cpu ? CPU_KEYS : GPU_KEYS, KEYS_PER_ROW * task->rows);
    const int64_t splits = divide_up(groups, at_least(task->blocks, 1));
    return attention_split_given(task, at_least(divide_up(at_least(task->keys, 1), splits), least), 0);
}
