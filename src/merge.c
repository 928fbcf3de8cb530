/* Deals a merge's operands out to launches. There are three kinds of steps at most: the first, those in the middle, and
 * the last. */
#include "merge.h"
#include "check.h"
#include "status.h"

/* Mirrors struct merge_view and struct merge_layout of cl/merge.clh. */
struct view {
    int64_t offset, stride[4];
};
struct layout {
    int64_t rows, columns, dim[4];
    struct view first, second, first_in[MERGE_OPERANDS], second_in[MERGE_OPERANDS];
};

enum { FIRST, MIDDLE, LAST, KINDS };

/* Programs of a merge; NULL where it has no such step. */
struct programs {
    struct program *of[KINDS];
};

static bool is_present(const clattn_tensor *tensor) {
    return tensor->memory.kind != CLATTN_MEMORY_NONE;
}

int merge_own_operand(const struct merge_pair *result, int count, const clattn_tensor *first_in,
                      const clattn_tensor *second_in) {
    for (int i = 0; i < count; i++)
        if (check_same_view(result->first, &first_in[i]) &&
            (!is_present(result->second) || check_same_view(result->second, &second_in[i])))
            return i;
    return -1;
}

/* The first launch takes eight operands, each further one seven beside the result so far. */
static int count_launches(int count) {
    return count <= MERGE_OPERANDS ? 1 : 1 + (count - MERGE_OPERANDS + MERGE_OPERANDS - 2) / (MERGE_OPERANDS - 1);
}

static int kind_of(int index, int launches) {
    return index == launches - 1 ? LAST : index == 0 ? FIRST : MIDDLE;
}

static struct merge_step step_of(int count, int index) {
    const int launches = count_launches(count), before = index * (MERGE_OPERANDS - 1);
    struct merge_step step = {MERGE_OPERANDS, index == 0, index == launches - 1};
    if (step.ends)
        step.operands = count - before;
    return step;
}

static clattn_status get_programs(clattn_context *context, const struct merge *merge, struct programs *programs) {
    const int launches = count_launches(merge->count);
    *programs = (struct programs){{NULL}};
    for (int i = 0; i < launches; i++) {
        const struct merge_step step = step_of(merge->count, i);
        struct program **program = &programs->of[kind_of(i, launches)];
        if (*program == NULL)
            FORWARD(merge->program(context, merge->user, &step, program));
    }
    return CLATTN_SUCCESS;
}

clattn_status merge_prepare(clattn_context *context, const struct merge *merge) {
    struct programs programs;
    return get_programs(context, merge, &programs);
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static struct view view_of(const clattn_tensor *tensor, int rank) {
    struct view view = {.offset = tensor->offset};
    for (int i = 0; i < rank; i++)
        view.stride[4 - rank + i] = tensor->strides[i];
    return view;
}

/* The caller's operands in the order in which they are taken: the own one first. */
static struct merge_pair operand(const struct merge *merge, int index) {
    const int own = merge->own;
    const int i = own < 0 || index > own ? index : index == 0 ? own : index - 1;
    return (struct merge_pair){&merge->first_in[i], &merge->second_in[i]};
}

/* Operand `slot` of a launch. Each launch but the first starts with the result so far. */
static struct merge_pair operand_of_launch(const struct merge *merge, int index, int slot) {
    return index > 0 && slot == 0 ? merge->partial : operand(merge, index * (MERGE_OPERANDS - 1) + slot);
}

static clattn_status enqueue_step(const struct merge *merge, int index, struct program *program,
                                  struct sequence *sequence) {
    const struct merge_step step = step_of(merge->count, index);
    const struct merge_pair result = step.ends ? merge->result : merge->partial;
    const size_t groups = ((size_t)merge->rows + merge->rows_per_group - 1) / merge->rows_per_group;
    struct layout layout = {.rows = merge->rows,
                            .columns = merge->columns,
                            .dim = {1, 1, 1, 1},
                            .first = view_of(result.first, merge->rank),
                            .second = view_of(result.second, merge->rank)};
    struct launch launch;
    for (int i = 0; i < merge->rank; i++)
        layout.dim[4 - merge->rank + i] = merge->result.first->dims[i];
    launch_begin(&launch, program);
    launch_buffer(&launch, result.first->memory.as.buffer);
    launch_buffer(&launch, is_present(result.second) ? result.second->memory.as.buffer : NULL);
    for (int i = 0; i < MERGE_OPERANDS; i++) {
        if (i >= step.operands) {
            launch_buffer(&launch, NULL);
            launch_buffer(&launch, NULL);
            continue;
        }
        const struct merge_pair in = operand_of_launch(merge, index, i);
        launch_buffer(&launch, in.first->memory.as.buffer);
        launch_buffer(&launch, in.second->memory.as.buffer);
        layout.first_in[i] = view_of(in.first, merge->rank);
        layout.second_in[i] = view_of(in.second, merge->rank);
    }
    launch_struct(&launch, &layout, sizeof layout);
    return launch_enqueue(&launch, sequence, 1, &groups, &merge->group);
}

static clattn_status enqueue_steps(const struct merge *merge, const struct programs *programs,
                                   struct sequence *sequence) {
    const int launches = count_launches(merge->count);
    for (int i = 0; i < launches; i++)
        FORWARD(enqueue_step(merge, i, programs->of[kind_of(i, launches)], sequence));
    return CLATTN_SUCCESS;
}

clattn_status merge_enqueue(clattn_context *context, const struct merge *merge, const clattn_launch *launch) {
    struct programs programs;
    struct sequence sequence;
    FORWARD(get_programs(context, merge, &programs));
    sequence_begin(&sequence, context, launch, count_launches(merge->count));
    const clattn_status status = enqueue_steps(merge, &programs, &sequence);
    sequence_end(&sequence);
    return status;
}
