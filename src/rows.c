/* Numbers rows, and builds kernels that walk over them. */
#include "rows.h"
#include "check.h"
#include "context.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

/* ---- where rows lie ---------------------------------------------------------------------------------------------- */

struct outer_dim {
    int64_t size, stride[ROWS_VIEWS];
};

static bool merges(const struct outer_dim *slow, const struct outer_dim *fast) {
    for (int v = 0; v < ROWS_VIEWS; v++) {
        const int64_t factors[] = {fast->stride[v], fast->size};
        if (slow->stride[v] != check_product(factors, 2))
            return false;
    }
    return true;
}

/* The dims but the axis and those of size 1, with neighbours that walk on evenly in all tensors made one. */
static int collect_outer(const clattn_tensor *const *tensors, int count, int axis, struct outer_dim *outer) {
    int used = 0;
    for (int i = 0; i < tensors[0]->rank; i++) {
        struct outer_dim dim = {.size = tensors[0]->dims[i]};
        if (i == axis || dim.size == 1)
            continue;
        for (int v = 0; v < count; v++)
            dim.stride[v] = tensor_is_present(tensors[v]) ? tensors[v]->strides[i] : 0;
        if (used > 0 && merges(&outer[used - 1], &dim)) {
            const int64_t sizes[] = {outer[used - 1].size, dim.size};
            dim.size = check_product(sizes, 2);
            used--;
        }
        outer[used++] = dim;
    }
    return used;
}

static void number_rows(const struct outer_dim *outer, int count, struct rows *rows) {
    struct rows_layout *layout = &rows->layout;
    rows->outer = count > 0 ? count : 1;
    for (int i = 0; i < 3; i++)
        layout->dim[i] = 1;
    for (int i = 0; i < count; i++) {
        layout->dim[3 - count + i] = outer[i].size;
        for (int v = 0; v < ROWS_VIEWS; v++)
            layout->view[v].stride[3 - count + i] = outer[i].stride[v];
    }
    layout->rows = check_product(layout->dim, 3);
}

/* Its rows start at multiples of 16 bytes: what check_aligned() asks, with the axis last. */
static bool starts_aligned(const clattn_tensor *tensor, int axis) {
    clattn_tensor turned = *tensor;
    const int last = tensor->rank - 1;
    turned.dims[axis] = tensor->dims[last];
    turned.strides[axis] = tensor->strides[last];
    turned.dims[last] = tensor->dims[axis];
    turned.strides[last] = tensor->strides[axis];
    return check_aligned(&turned, 16);
}

/* Where its rows start, and whether the kernels may count on what softmax_plan_make() is told. */
static void add_whole(const clattn_tensor *tensor, int axis, struct rows *rows) {
    rows->dense = rows->dense && (rows->layout.columns <= 1 || tensor->strides[axis] == 1);
    rows->aligned = rows->aligned && starts_aligned(tensor, axis);
    rows->narrow = rows->narrow && clattn_dtype_size(tensor->dtype) == 2;
}

static void describe_rows(const clattn_tensor *const *tensors, int count, int whole, int axis, struct rows *rows) {
    struct outer_dim outer[CLATTN_MAX_RANK];
    memset(rows, 0, sizeof *rows);
    rows->layout.columns = tensors[0]->dims[axis];
    rows->dense = rows->aligned = rows->narrow = true;
    number_rows(outer, collect_outer(tensors, count, axis, outer), rows);
    for (int v = 0; v < count; v++) {
        if (!tensor_is_present(tensors[v]))
            continue;
        rows->layout.view[v].offset = tensors[v]->offset;
        rows->layout.view[v].step = tensors[v]->strides[axis];
        if (v < whole)
            add_whole(tensors[v], axis, rows);
    }
    rows->aligned = rows->aligned && rows->dense;
}

void rows_of(const clattn_tensor *const *tensors, int count, int axis, struct rows *rows) {
    describe_rows(tensors, count, count, axis, rows);
}

void rows_of_first(const clattn_tensor *const *tensors, int count, int axis, struct rows *rows) {
    describe_rows(tensors, count, 1, axis, rows);
}

/* PoCL now and then gives a wrong row where work-items share one (seen of norms, with two threads): there a row is one
 * work-item's, as on a CPU, also where the capabilities hide that it is one. */
static struct device_facts facts_for_rows(const struct device_facts *facts) {
    struct device_facts sharing = *facts;
    if (!variant_keeps_rows(facts))
        sharing.caps |= CAP_BIT(CAP_CPU);
    return sharing;
}

clattn_status rows_plan(const struct choice *choice, const struct rows *rows, struct softmax_plan *plan) {
    const struct device_facts facts = facts_for_rows(&choice->facts);
    const clattn_dtype widest = rows->narrow ? CLATTN_F16 : CLATTN_F32;
    const struct softmax_rows sizes = {.layout = {.rows = rows->layout.rows, .columns = rows->layout.columns},
                                       .x_dtype = widest,
                                       .y_dtype = widest,
                                       .writes_row = true,
                                       .dense = rows->dense,
                                       .aligned = rows->aligned};
    return softmax_plan_make(&facts, choice->variant->schedule, &sizes, &choice->parameters, plan);
}

clattn_status rows_choose(struct choice *choice, const struct rows *rows) {
    struct softmax_plan plan;
    clattn_status status = rows_plan(choice, rows, &plan);
    const bool mixed_up = status == CLATTN_SUCCESS && plan.team > 1 && !variant_keeps_rows(&choice->facts);
    if ((status == CLATTN_INVALID_ARGUMENT || mixed_up) && !choice->overridden) {
        choice->parameters.count = 0;
        status = rows_plan(choice, rows, &plan);
    }
    FORWARD(status);
    /* The library itself shares only rows of over 2^17 elements there. */
    RETURN_IF(choice->overridden && plan.team > 1 && !variant_keeps_rows(&choice->facts), CLATTN_UNSUPPORTED,
              "PoCL mixes up work-items that share rows (team = %d).", plan.team);
    choice->parameters.count = 0;
    if (choice->variant->schedule != SCHEDULE_GROUP && choice->variant->schedule != SCHEDULE_SELECT)
        parameters_put(&choice->parameters, "team", plan.team);
    parameters_put(&choice->parameters, "group", plan.group);
    parameters_put(&choice->parameters, "vector", plan.vector);
    if (plan.registers > 0)
        parameters_put(&choice->parameters, "registers", plan.registers);
    return CLATTN_SUCCESS;
}

void rows_describe(const struct choice *choice, char *name, size_t size) {
    const int group = parameters_get(&choice->parameters, "group", 1);
    const int team = parameters_get(&choice->parameters, "team", group);
    snprintf(name, size, "%s_%s", choice->variant->name,
             device_subgroup_name(softmax_plan_backend(&choice->facts, team, group)));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Everything that the program's text depends on. */
struct kind {
    const char *kernel;
    uint64_t caps;
    int32_t outer, dense, values[ROWS_MACROS];
    struct softmax_plan plan; /* without the cut */
};

static struct kind kind_of(const struct device_facts *facts, const struct rows *rows, const struct softmax_plan *plan,
                           const struct rows_kernel *kernel) {
    struct kind kind;
    memset(&kind, 0, sizeof kind); /* padding too: it is compared byte by byte */
    kind.kernel = kernel->kernel;
    kind.caps = facts->caps;
    kind.outer = rows->outer;
    kind.dense = rows->dense;
    memcpy(kind.values, kernel->values, sizeof kind.values);
    memcpy(&kind.plan, plan, sizeof kind.plan);
    kind.plan.chunk = kind.plan.splits = kind.plan.lag = 0;
    return kind;
}

static clattn_status build(clattn_context *context, const struct kind *kind, const struct rows_kernel *kernel,
                           struct program **program) {
    const struct softmax_plan *plan = &kind->plan;
    char options[640], limit[48] = "";
    if (plan->registers > 0)
        snprintf(limit, sizeof limit, " -cl-nv-maxrregcount=%d", plan->registers);
    int used = snprintf(options, sizeof options,
                        "-DSUBGROUP_BACKEND=%s -DOUTER=%d -DDENSE=%d -DALIGNED=%d -DVECTOR=%d -DPARTIAL=%d "
                        "-DPACKETS=%d -DUNROLLED=%d -DSG_SIZE=%d -DTEAM=%d -DGROUP=%d%s%s",
                        device_subgroup_name(plan->backend), kind->outer, kind->dense, plan->aligned, plan->vector,
                        plan->partial, plan->packets, plan->unrolled, plan->subgroup, plan->team, plan->group,
                        (kind->caps & CAP_BIT(CAP_HALF_TYPE)) != 0 ? " -DHALF_TYPE" : "", limit);
    for (int i = 0; i < kernel->count; i++)
        used +=
            snprintf(options + used, sizeof options - (size_t)used, " -D%s=%d", kernel->macros[i], kernel->values[i]);
    const struct program_key key = {kernel->file, kernel->kernel, options};
    return program_get(context, &key, program);
}

clattn_status rows_program(clattn_context *context, const struct device_facts *facts, const struct rows *rows,
                           const struct softmax_plan *plan, const struct rows_kernel *kernel,
                           struct program **program) {
    const struct kind kind = kind_of(facts, rows, plan, kernel);
    if (memo_find(&context->memo, &kind, sizeof kind, program, sizeof *program))
        return CLATTN_SUCCESS;
    FORWARD(build(context, &kind, kernel, program));
    memo_keep(&context->memo, &kind, sizeof kind, program, sizeof *program);
    return CLATTN_SUCCESS;
}

cl_mem rows_buffer(const clattn_tensor *tensor) {
    return tensor_is_present(tensor) ? tensor->memory.as.buffer : NULL;
}

int32_t rows_dtype(const clattn_tensor *tensor) {
    return tensor_is_present(tensor) ? (int32_t)tensor->dtype : 0;
}

size_t rows_groups(const struct rows *rows, const struct softmax_plan *plan) {
    const int64_t teams = plan->group / plan->team;
    return (size_t)((rows->layout.rows + teams - 1) / teams);
}
