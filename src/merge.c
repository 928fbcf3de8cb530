/* Deals a merge's operands out to launches. There are three kinds of steps at most: the first, those in the middle, and
 * the last. */
#include "merge.h"
#include "context.h"
#include "status.h"
#include "tensor.h"
#include <stdio.h>
#include <string.h>

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

int merge_own_operand(const struct merge_pair *result, int count, const clattn_tensor *first_in,
                      const clattn_tensor *second_in) {
    for (int i = 0; i < count; i++)
        if (check_same_view(result->first, &first_in[i]) &&
            (!tensor_is_present(result->second) || check_same_view(result->second, &second_in[i])))
            return i;
    return -1;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static clattn_status check_operand(clattn_context *context, const struct merge_arguments *arguments, int i, bool own) {
    const struct merge_pair *out = &arguments->result;
    const struct merge_pair in = {&arguments->first_in[i], &arguments->second_in[i]};
    char first[32], second[32];
    snprintf(first, sizeof first, "%s_in[%d]", arguments->first, i);
    snprintf(second, sizeof second, "%s_in[%d]", arguments->second, i);
    FORWARD(arguments->check_pair(context, arguments, &in, first, second, CHECK_INPUT));
    if (!own) {
        FORWARD(check_disjoint(arguments->first, out->first, first, in.first));
        FORWARD(check_disjoint(arguments->second, out->second, second, in.second));
    }
    FORWARD(check_disjoint(arguments->first, out->first, second, in.second));
    return check_disjoint(arguments->second, out->second, first, in.first);
}

clattn_status merge_check(clattn_context *context, const struct merge_arguments *arguments) {
    const struct merge_pair *out = &arguments->result;
    const char *missing = arguments->first_in == NULL    ? arguments->first
                          : arguments->second_in == NULL ? arguments->second
                                                         : NULL;
    RETURN_IF(arguments->count < 0, CLATTN_INVALID_ARGUMENT, "count = %d is negative", arguments->count);
    RETURN_IF(arguments->count > 0 && missing != NULL, CLATTN_INVALID_ARGUMENT, "%s_in is NULL, count is %d", missing,
              arguments->count);
    FORWARD(arguments->check_pair(context, arguments, out, arguments->first, arguments->second, CHECK_OUTPUT));
    FORWARD(check_disjoint(arguments->second, out->second, arguments->first, out->first));
    const int own = merge_own_operand(out, arguments->count, arguments->first_in, arguments->second_in);
    for (int i = 0; i < arguments->count; i++)
        FORWARD(check_operand(context, arguments, i, i == own));
    return CLATTN_SUCCESS;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

int merge_group(const struct device_facts *facts, int most) {
    const uint32_t limit = facts->max_group < facts->max_item[0] ? facts->max_group : facts->max_item[0];
    int group = 1;
    while (group < most && 2 * (uint32_t)group <= limit)
        group *= 2;
    return group;
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

/* All that a program depends on; compared byte by byte. */
struct key {
    const char *kernel;
    struct merge_kind kind;
    int32_t operands, begins, ends;
};

static clattn_status get_program(clattn_context *context, const struct merge *merge, const struct merge_step *step,
                                 struct program **program) {
    char file[64], options[256];
    struct key key;
    memset(&key, 0, sizeof key);
    key.kernel = merge->kernel;
    memcpy(&key.kind, &merge->kind, sizeof key.kind);
    key.operands = step->operands;
    key.begins = step->begins;
    key.ends = step->ends;
    if (memo_find(&context->memo, &key, sizeof key, program, sizeof *program))
        return CLATTN_SUCCESS;
    snprintf(file, sizeof file, "%s.cl", merge->kernel);
    merge->options(&merge->kind, step, options, sizeof options);
    const struct program_key wanted = {file, merge->kernel, options};
    FORWARD(program_get(context, &wanted, program));
    memo_keep(&context->memo, &key, sizeof key, program, sizeof *program);
    return CLATTN_SUCCESS;
}

static clattn_status get_programs(clattn_context *context, const struct merge *merge, struct programs *programs) {
    const int launches = count_launches(merge->count);
    *programs = (struct programs){{NULL}};
    for (int i = 0; i < launches; i++) {
        const struct merge_step step = step_of(merge->count, i);
        struct program **program = &programs->of[kind_of(i, launches)];
        if (*program == NULL)
            FORWARD(get_program(context, merge, &step, program));
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
    const size_t local = (size_t)merge->kind.group, rows = local / (size_t)merge->kind.lanes;
    const size_t groups = ((size_t)merge->rows + rows - 1) / rows;
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
    launch_buffer(&launch, tensor_is_present(result.second) ? result.second->memory.as.buffer : NULL);
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
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
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
