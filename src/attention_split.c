/* The sizes of decode attention's splits. */
#include "attention_split.h"

#include <math.h>

enum { GPU_GROUPS = 16, CPU_GROUPS = 4, GPU_KEYS = 128, CPU_KEYS = 512, LARGE = 2 };
enum { GPU_KEYS_PER_ROW = 32, CPU_KEYS_PER_ROW = 16 };

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

/* So many splits that there are `groups` work-groups, or fewer of `least` keys. */
static struct attention_split split_for(const struct attention_split_task *task, int64_t groups, int64_t least) {
    const int64_t splits = at_least(divide_up(groups, at_least(task->blocks, 1)), 1);
    return attention_split_given(task, at_least(divide_up(at_least(task->keys, 1), splits), least), 0);
}

/* As many splits as so many waves have places for, but no more than `most`; 1 or more. */
static struct attention_split split_of_waves(const struct attention_split_task *task, int64_t places, int64_t waves,
                                             int64_t most) {
    const int64_t splits = at_least(waves * places / at_least(task->blocks, 1), 1);
    return attention_split_given(task, 0, splits < most ? splits : most);
}

/* The share of the places that is taken, in all waves together. */
static double share_taken(const struct attention_split_task *task, int64_t places, int64_t splits) {
    const int64_t groups = task->blocks * splits;
    return (double)groups / (double)(at_least(divide_up(groups, places), 1) * places);
}

/* The fewest that take 15 of 16 places that any number up to `most` takes. */
static struct attention_split split_in_waves(const struct attention_split_task *task, int64_t places,
                                             struct attention_split most) {
    const int64_t all = divide_up(task->blocks * most.splits, places);
    double best = share_taken(task, places, most.splits);
    for (int64_t waves = 1; waves < all; waves++)
        best = fmax(best, share_taken(task, places, split_of_waves(task, places, waves, most.splits).splits));
    for (int64_t waves = 1; waves < all; waves++) {
        const struct attention_split split = split_of_waves(task, places, waves, most.splits);
        if (share_taken(task, places, split.splits) * 16 >= best * 15)
            return split;
    }
    return most;
}

struct attention_split attention_split_of(const struct device_facts *facts, const struct attention_split_task *task) {
    const int64_t units = at_least(facts->compute_units, 1), places = units * task->resident;
    if (facts->is_cpu)
        return split_for(task, units * CPU_GROUPS, at_least(CPU_KEYS, CPU_KEYS_PER_ROW * task->rows));
    const int64_t least = at_least(GPU_KEYS, GPU_KEYS_PER_ROW * task->rows);
    const struct attention_split usual = split_for(task, units * GPU_GROUPS, least);
    struct attention_split filling = split_for(task, places, least);
    if (task->blocks * filling.splits < units)
        filling = split_for(task, places, GPU_KEYS);
    const struct attention_split most = filling.splits > usual.splits ? filling : usual;
    if (!task->even || task->resident < 1)
        return most;
    if (task->resident > LARGE) {
        const struct attention_split one = split_of_waves(task, places, 1, most.splits);
        const int64_t groups = task->blocks * one.splits;
        return groups <= places && groups * 4 >= places * 3 ? one : most;
    }
    return most.splits > 1 ? split_in_waves(task, places, most) : most;
}
