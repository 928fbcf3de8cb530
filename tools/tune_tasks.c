/* What there is to tune: a table of shapes, and for each the variants that the device takes. */
#include "command.h"
#include "tune.h"
#include "tune_space.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each stands for an octave of what rows are looked up by: the larger head dim, columns, elements, max(m, n). Kinds
 * that share their rows with another (log-softmax, layer norm) are not repeated. */
static const struct {
    const struct job_kind *kind;
    const char *cpu, *gpu;
} shapes[] = {
    {&job_softmax, "1024,1024", "32768,1024"},
    {&job_softmax, "1024,4096", "8192,4096"},
    {&job_softmax, "4096,256", "131072,256"},
    {&job_softmax, "64,65536", "512,65536"},
    {&job_attention, "1,8,8,512,512,64", "1,32,32,4096,4096,64"},
    {&job_attention, "1,8,8,512,512,128", "1,32,32,4096,4096,128"},
    {&job_attention_decode, "1,8,2,1,8192,128", "16,32,8,1,8192,128"},
    {&job_attention_decode, "1,8,2,1,8192,64", "16,32,8,1,8192,64"},
    {&job_gemm, "512,512,512", "512,512,512"},
    {&job_gemm, "1024,1024,1024", "4096,4096,4096"},
    {&job_rms_norm, "1024,4096", "8192,4096"},
    {&job_rms_norm, "1024,1024", "32768,1024"},
    {&job_attention_backward, "1,4,4,256,256,64", "1,32,32,2048,2048,64"},
    {&job_attention_backward, "1,4,4,256,256,128", "1,32,32,2048,2048,128"},
    {&job_softmax_topk, "16,131072", "256,131072"},
    {&job_softmax_backward, "1024,1024", "32768,1024"},
    {&job_softmax_backward, "1024,4096", "8192,4096"},
    {&job_rms_norm_backward, "1024,4096", "8192,4096"},
    {&job_rms_norm_backward, "1024,1024", "32768,1024"},
    {&job_attention, "1,4,4,512,512,256", "1,16,16,4096,4096,256"},
    {&job_attention, "1,8,8,512,512,32", "1,32,32,4096,4096,32"},
    {&job_cast, "16777216", "33554432"},
    {&job_unscale, "16777216", "33554432"},
    {&job_adamw, "16777216", "33554432"},
    {&job_sgd, "16777216", "33554432"},
};

static int add(struct tune_tasks *tasks, const struct tune_task *task) {
    if (tasks->count == tasks->capacity) {
        const size_t capacity = tasks->capacity ? 2 * tasks->capacity : 64;
        struct tune_task *items = realloc(tasks->items, capacity * sizeof *items);
        if (!items)
            return complain(EXIT_UNSUPPORTED, "out of host memory");
        tasks->items = items;
        tasks->capacity = capacity;
    }
    tasks->items[tasks->count++] = *task;
    return EXIT_OK;
}

/* Has the variant parameters that the tuner knows? */
static bool is_tunable(const struct tune *tune, const struct job *job, const char *variant) {
    clattn_choice choice = {.size = sizeof choice};
    const clattn_launch launch = job_launch_of(job, &tune->machine, variant, NULL);
    struct space space;
    struct point start;
    return clattn_variant_choose(tune->machine.clattn, &job->op.head, &launch, &choice) == CLATTN_SUCCESS &&
           space_make(&space, choice.parameters, &start);
}

/* All variants that take the job; those that are run by name alone come last of all. */
static int add_variants(const struct tune *tune, const struct job *job, struct tune_task *task,
                        struct tune_tasks *tasks) {
    clattn_choice usual = {.size = sizeof usual};
    const clattn_launch launch = job_launch_of(job, &tune->machine, NULL, NULL);
    if (clattn_variant_choose(tune->machine.clattn, &job->op.head, &launch, &usual) != CLATTN_SUCCESS)
        return EXIT_OK;
    for (size_t i = 0; i < clattn_variant_count(job->kind->op); i++) {
        char reason[160] = "";
        const char *name = clattn_variant_name(job->kind->op, i);
        if (!job_takes(job, name) || (tune->arguments.variant && strcmp(tune->arguments.variant, name) != 0) ||
            clattn_variant_question(tune->machine.clattn, &job->op.head, name, reason, sizeof reason) !=
                CLATTN_SUCCESS ||
            reason[0] || !is_tunable(tune, job, name))
            continue;
        snprintf(task->variant, sizeof task->variant, "%s", name);
        task->first = strcmp(name, usual.variant) == 0;
        FORWARD(add(tasks, task));
    }
    return EXIT_OK;
}

/* A shape that the device has no memory for is left out. */
static int add_shape(const struct tune *tune, const struct job_kind *kind, enum element element, const char *dims,
                     struct tune_tasks *tasks) {
    struct settings none = {.count = 0};
    struct job_shape shape = {.element = element, .blank = true};
    struct tune_task task = {.kind = kind, .element = element};
    struct job job;
    shape.count = parse_integers(dims, shape.dims, JOB_MAX_DIMS);
    if (shape.count == 0 || strlen(dims) >= sizeof task.shape)
        return complain(EXIT_USAGE, "--shape %s is not %s", dims, kind->shape);
    snprintf(task.shape, sizeof task.shape, "%s", dims);
    int code = job_generate(&job, kind, &shape, &none);
    if (code == EXIT_OK)
        code = job_upload(&job, &tune->machine);
    if (code == EXIT_OK)
        code = add_variants(tune, &job, &task, tasks);
    job_release(&job);
    return code == EXIT_UNSUPPORTED ? EXIT_OK : code;
}

static int add_shapes(const struct tune *tune, enum element element, struct tune_tasks *tasks) {
    const bool cpu = tune->machine.entry.type & CL_DEVICE_TYPE_CPU;
    if (tune->arguments.shape)
        return add_shape(tune, tune->selection.kinds[0], element, tune->arguments.shape, tasks);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (selection_holds(&tune->selection, shapes[i].kind->name))
            FORWARD(add_shape(tune, shapes[i].kind, element, cpu ? shapes[i].cpu : shapes[i].gpu, tasks));
    return EXIT_OK;
}

/* What the library picks comes first, in every dtype, since a budget may end before the list. */
int tune_tasks_list(const struct tune *tune, struct tune_tasks *tasks) {
    *tasks = (struct tune_tasks){.count = 0};
    for (size_t e = 0; e < tune->selection.element_count; e++)
        FORWARD(add_shapes(tune, tune->selection.elements[e], tasks));
    struct tune_task *ordered = calloc(tasks->count ? tasks->count : 1, sizeof *ordered);
    if (!ordered)
        return complain(EXIT_UNSUPPORTED, "out of host memory");
    size_t count = 0;
    for (int first = 1; first >= 0; first--)
        for (size_t i = 0; i < tasks->count; i++)
            if (tasks->items[i].first == first)
                ordered[count++] = tasks->items[i];
    free(tasks->items);
    tasks->items = ordered;
    return EXIT_OK;
}

static int64_t at_most(int64_t value, int64_t most) {
    return value < most ? value : most;
}

/* Are the rows of tuning of the operation looked up by columns, whatever the number of rows? */
static bool goes_by_columns(clattn_op_kind op) {
    return op == CLATTN_OP_SOFTMAX || op == CLATTN_OP_SOFTMAX_BACKWARD || op == CLATTN_OP_SOFTMAX_TOPK ||
           op == CLATTN_OP_NORM || op == CLATTN_OP_NORM_BACKWARD;
}

bool tune_guard(const struct tune_task *task, struct tune_task *guard) {
    int64_t dims[JOB_MAX_DIMS];
    const size_t count = parse_integers(task->shape, dims, JOB_MAX_DIMS);
    const bool decodes = task->kind == &job_attention_decode;
    size_t used = 0;
    *guard = *task;
    if (task->kind->op == CLATTN_OP_ATTENTION || task->kind->op == CLATTN_OP_ATTENTION_BACKWARD) {
        dims[3] = at_most(dims[3], 64);
        dims[4] = at_most(dims[4], decodes ? 512 : 64);
    } else if (task->kind->op == CLATTN_OP_GEMM) {
        int64_t *m = &dims[count - 3];
        *m = *m <= m[1] && *m >= 64 ? *m / 8 : *m; /* the larger of m and n stays */
    } else if (count > 1 && goes_by_columns(task->kind->op)) {
        dims[0] = at_most(dims[0], 8);
    }
    for (size_t i = 0; i < count && used < sizeof guard->shape; i++)
        used += (size_t)snprintf(guard->shape + used, sizeof guard->shape - used, "%s%" PRId64, i ? "," : "", dims[i]);
    return used < sizeof guard->shape && strcmp(guard->shape, task->shape) != 0;
}
