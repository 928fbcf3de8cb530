/* Sorts the entries of a list into classes that one program serves, and deals each class out to launches. */
#include "list.h"
#include "context.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements that a work-group takes where there are many; work-groups that a compute unit gets where there are few. */
#define MOST_SPAN 16384
#define GROUPS_PER_UNIT 32
#define MOST_TENSORS 32
#define USUAL_GROUP 256
/* Bytes of kernel arguments: what every device takes, what is made use of, what is kept for others than the list. */
#define LEAST_ARGUMENTS 1024
#define MOST_ARGUMENTS 4096
#define OTHER_ARGUMENTS 144

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Words of 8 bytes that struct list_entry of cl/list.clh takes. */
static int entry_words(const struct list *list, const struct list_class *class) {
    return 1 + list->views + (class->dense ? 0 : CLATTN_MAX_RANK - 1 + CLATTN_MAX_RANK * list->views);
}

/* A power of two; a list of one tensor spares itself the others' arguments. */
static int fitting_tensors(const struct list *list, const struct list_class *class, const struct device_facts *facts) {
    const uint32_t given = facts->argument_bytes > LEAST_ARGUMENTS ? facts->argument_bytes : LEAST_ARGUMENTS;
    const int limit = given < MOST_ARGUMENTS ? (int)given : MOST_ARGUMENTS;
    const int bytes = 8 * (list->views + 1 + entry_words(list, class));
    int tensors = 1;
    while (list->count > 1 && tensors < MOST_TENSORS && 2 * tensors * bytes <= limit - OTHER_ARGUMENTS)
        tensors *= 2;
    return tensors;
}

/* Everything that a program's text depends on. */
struct key {
    const char *kernel;
    uint64_t half_type;
    struct list_class class;
    int32_t tensors, group, packets, values[LIST_MACROS];
};

static clattn_status build(clattn_context *context, const struct list_kernel *kernel, const struct key *key,
                           struct program **program) {
    const struct list_class *class = &key->class;
    char options[320];
    size_t used = (size_t)snprintf(options, sizeof options,
                                   "-DTENSORS=%d -DDENSE=%d -DVECTOR=%d -DALIGNED=%d -DGROUP=%d -DPACKETS=%d%s",
                                   (int)key->tensors, (int)class->dense, (int)class->vector, (int)class->aligned,
                                   (int)key->group, (int)key->packets, key->half_type != 0 ? " -DHALF_TYPE" : "");
    for (int v = 0; v < LIST_VIEWS; v++)
        if (kernel->dtypes[v] != NULL)
            used += (size_t)snprintf(options + used, sizeof options - used, " -D%s=%d", kernel->dtypes[v],
                                     (int)class->dtype[v]);
    for (int m = 0; m < LIST_MACROS; m++)
        if (kernel->macros[m] != NULL)
            used += (size_t)snprintf(options + used, sizeof options - used, " -D%s=%d", kernel->macros[m],
                                     (int)key->values[m]);
    const struct program_key wanted = {kernel->file, kernel->kernel, options};
    return program_get(context, &wanted, program);
}

static clattn_status get_program(clattn_context *context, const struct choice *choice, struct list_plan *plan, int c) {
    struct key key;
    memset(&key, 0, sizeof key); /* padding too: it is compared byte by byte */
    key.kernel = plan->kernel->kernel;
    key.half_type = choice->facts.caps & CAP_BIT(CAP_HALF_TYPE);
    key.class = plan->class[c];
    key.tensors = plan->tensors[c];
    key.group = plan->group;
    key.packets = plan->packets;
    memcpy(key.values, plan->kernel->values, sizeof key.values);
    if (memo_find(&context->memo, &key, sizeof key, &plan->program[c], sizeof plan->program[c]))
        return CLATTN_SUCCESS;
    FORWARD(build(context, plan->kernel, &key, &plan->program[c]));
    memo_keep(&context->memo, &key, sizeof key, &plan->program[c], sizeof plan->program[c]);
    return CLATTN_SUCCESS;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* Entries of one class that go into one launch. */
struct batch {
    int class, count;
    const struct list_walk *walk[MOST_TENSORS];
};

/* The next batch of a class, of the entries from *at on; false where none is left. */
static bool next_batch(const struct list_plan *plan, int class, int *at, struct batch *batch) {
    *batch = (struct batch){.class = class};
    for (; *at < plan->count && batch->count < plan->tensors[class]; (*at)++)
        if (plan->walks[*at].class == class)
            batch->walk[batch->count++] = &plan->walks[*at];
    return batch->count > 0;
}

/* Elements of a work-group, a multiple of what it takes at a time. */
static int64_t span_of(const struct list_plan *plan, const struct batch *batch) {
    const int64_t block = (int64_t)plan->group * plan->class[batch->class].vector * plan->packets;
    int64_t elements = 0, blocks = plan->blocks;
    for (int t = 0; t < batch->count; t++)
        elements += batch->walk[t]->count;
    if (blocks == 0) {
        const int64_t most = MOST_SPAN / block, wanted = elements / (block * GROUPS_PER_UNIT * plan->compute_units);
        blocks = wanted < most ? wanted : most;
    }
    return block * (blocks > 0 ? blocks : 1);
}

static int64_t groups_of(const struct list_walk *walk, int64_t span) {
    return (walk->count + span - 1) / span;
}

/* Kernels count work-groups in 32 bits. */
static clattn_status check_batch(const struct list_plan *plan, const struct batch *batch) {
    const int64_t span = span_of(plan, batch);
    int64_t groups = 0;
    for (int t = 0; t < batch->count; t++)
        groups += groups_of(batch->walk[t], span);
    RETURN_IF(groups > INT32_MAX, CLATTN_UNSUPPORTED,
              "%s: %lld work-groups in one launch, with parameters blocks = %d and group = %d",
              plan->list->view[0].name, (long long)groups, plan->blocks, plan->group);
    return CLATTN_SUCCESS;
}

static clattn_status check_batches(const struct list_plan *plan) {
    struct batch batch;
    for (int c = 0; c < plan->classes; c++)
        for (int at = 0; next_batch(plan, c, &at, &batch);)
            FORWARD(check_batch(plan, &batch));
    return CLATTN_SUCCESS;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

int64_t list_tuning_size(const struct problem *problem) {
    return problem->columns;
}

clattn_status list_workspace(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice, size_t *bytes) {
    (void)context;
    (void)op;
    (void)problem;
    (void)choice;
    *bytes = 0;
    return CLATTN_SUCCESS;
}

static int usual_group(const struct device_facts *facts, uint32_t most) {
    int group = 1;
    while ((facts->caps & CAP_BIT(CAP_CPU)) == 0 && group < USUAL_GROUP && 2 * (uint32_t)group <= most)
        group *= 2;
    return group;
}

/* Makes the choice's parameters those that run. A row of tuning may be made for a larger device. */
clattn_status list_operation_plan(clattn_context *context, const clattn_op *op, const struct problem *problem,
                                  bool run_selftest, struct choice *choice) {
    const struct device_facts *facts = &choice->facts;
    const uint32_t most = facts->max_group < facts->max_item[0] ? facts->max_group : facts->max_item[0];
    (void)context;
    (void)op;
    (void)problem;
    (void)run_selftest;
    int group = parameters_get(&choice->parameters, "group", 0);
    const int vector = parameters_get(&choice->parameters, "vector", 0),
              blocks = parameters_get(&choice->parameters, "blocks", 0);
    RETURN_IF(choice->overridden && (uint32_t)group > most, CLATTN_INVALID_ARGUMENT,
              "parameters: group = %d, the device takes %u", group, (unsigned)most);
    if (group == 0 || (uint32_t)group > most)
        group = usual_group(facts, most);
    choice->parameters.count = 0;
    parameters_put(&choice->parameters, "group", group);
    parameters_put(&choice->parameters, "vector", vector);
    parameters_put(&choice->parameters, "blocks", blocks);
    return CLATTN_SUCCESS;
}

static clattn_status fill_plan(clattn_context *context, const struct choice *choice, struct list_plan *plan) {
    const struct list *list = plan->list;
    for (int i = 0; i < list->count; i++)
        if (!tensor_is_empty(&list->view[0].tensors[i]))
            FORWARD(list_add_walk(plan, choice, i));
    for (int c = 0; c < plan->classes; c++) {
        plan->tensors[c] = fitting_tensors(list, &plan->class[c], &choice -> facts);
        plan->launches += (plan->members[c] + plan->tensors[c] - 1) / plan->tensors[c];
    }
    FORWARD(check_batches(plan));
    for (int c = 0; c < plan->classes; c++)
        FORWARD(get_program(context, choice, plan, c));
    return CLATTN_SUCCESS;
}

clattn_status list_plan_make(clattn_context *context, const struct list *list, const struct list_kernel *kernel,
                             const struct choice *choice, struct list_plan *plan) {
    const size_t count = list->count > 0 ? (size_t)list->count : 1;
    *plan = (struct list_plan){.list = list,
                               .kernel = kernel,
                               .group = parameters_get(&choice->parameters, "group", 1),
                               .blocks = parameters_get(&choice->parameters, "blocks", 0),
                               .packets = (choice->facts.caps & CAP_BIT(CAP_CPU)) != 0 ? 1 : kernel->packets,
                               .compute_units = choice->facts.compute_units,
                               .walks = malloc(count * sizeof *plan->walks)};
    RETURN_IF(plan->walks == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no host memory for a list of %d tensors", list->count);
    return fill_plan(context, choice, plan);
}

clattn_status list_prepare(clattn_context *context, const struct list *list, const struct list_kernel *kernel,
                           const struct choice *choice) {
    struct list_plan plan;
    const clattn_status status = list_plan_make(context, list, kernel, choice, &plan);
    list_plan_free(&plan);
    return status;
}

void list_plan_free(struct list_plan *plan) {
    free(plan->walks);
    plan->walks = NULL;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* struct list of cl/list.clh has no more words than fit the kernel arguments. */
struct words {
    int64_t word[MOST_ARGUMENTS / sizeof(int64_t)];
    int used;
};

static void put(struct words *words, int64_t value) {
    words->word[words->used++] = value;
}

static void put_entry(const struct list_plan *plan, const struct list_walk *walk, struct words *words) {
    const struct list *list = plan->list;
    put(words, walk->count);
    for (int v = 0; v < list->views; v++)
        put(words, list_has(list, v, walk->index) ? list->view[v].tensors[walk->index].offset : 0);
    if (plan->class[walk->class].dense)
        return;
    for (int d = 1; d < CLATTN_MAX_RANK; d++)
        put(words, walk->dim[d]);
    for (int v = 0; v < list->views; v++)
        for (int d = 0; d < CLATTN_MAX_RANK; d++)
            put(words, walk->stride[v][d]);
}

/* Words of the list; returns its work-groups. */
static int64_t put_list(const struct list_plan *plan, const struct batch *batch, struct words *words) {
    const int tensors = plan->tensors[batch->class];
    const int64_t span = span_of(plan, batch);
    int64_t groups = 0;
    put(words, span);
    for (int t = 0; t < tensors; t++) {
        put(words, t < batch->count ? groups : INT64_MAX);
        groups += t < batch->count ? groups_of(batch->walk[t], span) : 0;
    }
    for (int t = 0; t < batch->count; t++)
        put_entry(plan, batch->walk[t], words);
    const int unused = (tensors - batch->count) * entry_words(plan->list, &plan->class[batch->class]);
    for (int w = 0; w < unused; w++)
        put(words, 0);
    return groups;
}

static clattn_status enqueue_batch(const struct list_plan *plan, const struct batch *batch, const clattn_op *op,
                                   struct sequence *sequence) {
    const struct list *list = plan->list;
    const size_t local = (size_t)plan->group;
    struct words words = {.used = 0};
    struct launch launch;
    const size_t groups = (size_t)put_list(plan, batch, &words);
    launch_begin(&launch, plan->program[batch->class]);
    for (int t = 0; t < plan->tensors[batch->class]; t++)
        for (int v = 0; v < list->views; v++) {
            const bool there = t < batch->count && list_has(list, v, batch->walk[t]->index);
            launch_buffer(&launch, there ? list->view[v].tensors[batch->walk[t]->index].memory.as.buffer : NULL);
        }
    launch_struct(&launch, words.word, (size_t)words.used * sizeof *words.word);
    plan->kernel->arguments(&launch, op);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

clattn_status list_plan_enqueue(const struct list_plan *plan, const clattn_op *op, struct sequence *sequence) {
    struct batch batch;
    for (int c = 0; c < plan->classes; c++)
        for (int at = 0; next_batch(plan, c, &at, &batch);)
            FORWARD(enqueue_batch(plan, &batch, op, sequence));
    return CLATTN_SUCCESS;
}

cl_mem list_buffer(const clattn_tensor *tensor) {
    return tensor_is_present(tensor) ? tensor->memory.as.buffer : NULL;
}
