/* Casts, unscaling and the optimizers as jobs. The oracle looks at single elements; whole lists, flags and series of
 * steps are the tests' business. With tensors=N a job's tensors are handed over as a list of N parts. */
#include "command.h"
#include "job.h"

#include <math.h>
#include <reference.h>
#include <stdio.h>
#include <string.h>

enum variety { CAST, UNSCALE, ADAMW, SGD };

/* Multiplications that an element counts for: its share of what the oracle may look at. */
#define ELEMENT_COST 1000

static enum variety variety_of(const struct job *job) {
    return (enum variety)job->kind->variety;
}

static bool is_optimizer(const struct job *job) {
    return variety_of(job) == ADAMW || variety_of(job) == SGD;
}

static const char *first_name(const struct job *job) {
    return is_optimizer(job) ? "grad" : "x";
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int add_like(struct job *job, const char *name, const struct job_shape *shape) {
    struct job_shape whole = *shape;
    whole.element = ELEMENT_F32;
    return job_add_random(job, name, &whole, (int)shape->count, shape->dims);
}

/* Moments are squares. */
static void make_positive(const struct job *job, const char *name) {
    struct array *host = &job_find(job, name)->host;
    for (size_t i = 0; i < host->count; i++)
        array_set(host, i, fabs(array_get(host, i)));
}

static int generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    float momentum = 0;
    if (shape->count < 1 || shape->count > CLATTN_MAX_RANK)
        return complain(EXIT_USAGE, "%s wants --shape %s", job->kind->name, job->kind->shape);
    FORWARD(job_add_random(job, first_name(job), shape, (int)shape->count, shape->dims));
    if (is_optimizer(job))
        FORWARD(add_like(job, "param", shape));
    if (variety_of(job) == ADAMW) {
        FORWARD(add_like(job, "m", shape));
        FORWARD(add_like(job, "v", shape));
        if (!shape->blank)
            make_positive(job, "v");
    }
    if (variety_of(job) == SGD)
        FORWARD(settings_real(settings, "momentum", &momentum, NULL));
    return momentum != 0 ? add_like(job, "velocity", shape) : EXIT_OK;
}

static int add_scalar(struct job *job, const char *name, bool output, enum element element, double value) {
    const int64_t one = 1;
    struct array array;
    if (!array_make(&array, element, 1, &one))
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory", name);
    array_set(&array, 0, value);
    return job_add(job, name, output, &array);
}

/* A tensor that the operation reads and writes; zeros where the caller gives none. */
static int require_master(struct job *job, const char *name, bool may_be_made) {
    const struct array like = job_find(job, first_name(job))->host;
    struct array zeros;
    if (may_be_made && !job_find(job, name)) {
        if (!array_make(&zeros, ELEMENT_F32, like.rank, like.dims))
            return complain(EXIT_UNSUPPORTED, "%s: out of host memory", name);
        FORWARD(job_add(job, name, true, &zeros));
    }
    FORWARD(job_require(job, name, like.rank));
    struct job_tensor *tensor = job_find(job, name);
    tensor->output = tensor->updated = true;
    return EXIT_OK;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static int take_list(struct job *job, struct settings *settings) {
    int64_t tensors = 1;
    FORWARD(settings_integer(settings, "tensors", &tensors, NULL));
    if (tensors < 1 || tensors > JOB_MAX_PARTS)
        return complain(EXIT_USAGE, "tensors=%lld is not in 1..%d", (long long)tensors, JOB_MAX_PARTS);
    job->list_count = (int)tensors;
    return EXIT_OK;
}

static int arrange_cast(struct job *job, struct settings *settings) {
    const struct array x = job_find(job, "x")->host;
    int out = x.element == ELEMENT_F32 ? ELEMENT_F16 : ELEMENT_F32;
    clattn_cast_init(&job->op.cast);
    FORWARD(settings_choice(settings, "out_dtype", "f32 f16 bf16", &out));
    return job_add_output(job, "y", (enum element)out, x.rank, x.dims);
}

static int arrange_unscale(struct job *job, struct settings *settings) {
    float scale = 1024;
    int32_t in_place = 0;
    int out = ELEMENT_F32;
    clattn_unscale_init(&job->op.unscale);
    FORWARD(take_list(job, settings));
    FORWARD(settings_real(settings, "scale", &scale, NULL));
    FORWARD(settings_flag(settings, "in_place", &in_place));
    FORWARD(settings_choice(settings, "out_dtype", "f32 f16 bf16", &out));
    struct job_tensor *x = job_find(job, "x");
    if (in_place)
        x->output = x->updated = true;
    else
        FORWARD(job_add_output(job, "y", (enum element)out, x->host.rank, x->host.dims));
    FORWARD(add_scalar(job, "scale", false, ELEMENT_F32, (double)scale));
    return add_scalar(job, "overflow", true, ELEMENT_I32, 0);
}

static int take_rates(struct job *job, struct settings *settings) {
    if (variety_of(job) == ADAMW) {
        clattn_adamw_op *op = &job->op.adamw;
        clattn_adamw_init(op);
        FORWARD(settings_real(settings, "lr", &op->lr, NULL));
        FORWARD(settings_real(settings, "beta1", &op->beta1, NULL));
        FORWARD(settings_real(settings, "beta2", &op->beta2, NULL));
        FORWARD(settings_real(settings, "eps", &op->eps, NULL));
        return settings_real(settings, "weight_decay", &op->weight_decay, NULL);
    }
    clattn_sgd_op *op = &job->op.sgd;
    clattn_sgd_init(op);
    FORWARD(settings_real(settings, "lr", &op->lr, NULL));
    FORWARD(settings_real(settings, "momentum", &op->momentum, NULL));
    FORWARD(settings_real(settings, "dampening", &op->dampening, NULL));
    FORWARD(settings_flag(settings, "nesterov", &op->nesterov));
    return settings_real(settings, "weight_decay", &op->weight_decay, NULL);
}

static int arrange_masters(struct job *job) {
    FORWARD(require_master(job, "param", false));
    if (variety_of(job) == ADAMW) {
        FORWARD(require_master(job, "m", true));
        return require_master(job, "v", true);
    }
    return job->op.sgd.momentum != 0 ? require_master(job, "velocity", true) : EXIT_OK;
}

static int arrange_optimizer(struct job *job, struct settings *settings) {
    const struct array grad = job_find(job, "grad")->host;
    bool has_scale = false, has_steps = false;
    float scale = 1;
    int64_t steps = 0;
    int copy = 0;
    FORWARD(take_rates(job, settings));
    FORWARD(take_list(job, settings));
    FORWARD(arrange_masters(job));
    FORWARD(settings_choice(settings, "copy", "none f16 bf16", &copy));
    if (copy != 0)
        FORWARD(job_add_output(job, "copy", copy == 1 ? ELEMENT_F16 : ELEMENT_BF16, grad.rank, grad.dims));
    FORWARD(settings_real(settings, "scale", &scale, &has_scale));
    if (has_scale)
        FORWARD(add_scalar(job, "scale", false, ELEMENT_F32, (double)scale));
    FORWARD(settings_integer(settings, "steps", &steps, &has_steps));
    if (!has_steps && variety_of(job) == SGD)
        return EXIT_OK;
    FORWARD(add_scalar(job, "steps", false, ELEMENT_I32, (double)steps));
    job_find(job, "steps")->updated = true;
    return EXIT_OK;
}

static int arrange(struct job *job, struct settings *settings) {
    FORWARD(job_require(job, first_name(job), 0));
    switch (variety_of(job)) {
    case CAST:
        return arrange_cast(job, settings);
    case UNSCALE:
        return arrange_unscale(job, settings);
    default:
        return arrange_optimizer(job, settings);
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static int64_t elements_of(const struct job *job) {
    return (int64_t)job_find(job, first_name(job))->host.count;
}

/* Parts of a tensor, which begin at multiples of 16 bytes in every dtype; NULL where it is absent. */
static const clattn_tensor *cut(struct job *job, int part, const char *name) {
    const int64_t all = elements_of(job);
    clattn_tensor whole = job_view(job, name), *parts = job->parts[part];
    if (whole.memory.kind == CLATTN_MEMORY_NONE && !job_find(job, name))
        return NULL;
    whole.rank = 1;
    whole.strides[0] = 1;
    for (int i = 0; i < job->list_count; i++) {
        const int64_t first = all * i / job->list_count / 8 * 8,
                      end = i + 1 < job->list_count ? all * (i + 1) / job->list_count / 8 * 8 : all;
        parts[i] = whole;
        parts[i].offset = first;
        parts[i].dims[0] = end - first;
    }
    return parts;
}

static void bind(struct job *job) {
    if (variety_of(job) == CAST) {
        job->op.cast.x = job_view(job, "x");
        job->op.cast.y = job_view(job, "y");
        return;
    }
    if (variety_of(job) == UNSCALE) {
        clattn_unscale_op *op = &job->op.unscale;
        op->count = job->list_count;
        op->x = cut(job, 0, "x");
        op->y = cut(job, 1, job_find(job, "y") ? "y" : "x");
        op->scale = job_view(job, "scale");
        op->overflow = job_view(job, "overflow");
        return;
    }
    const clattn_optimizer_list list = {.count = job->list_count,
                                        .param = cut(job, 0, "param"),
                                        .grad = cut(job, 1, "grad"),
                                        .copy = cut(job, 2, "copy"),
                                        .scale = job_view(job, "scale"),
                                        .steps = job_view(job, "steps")};
    if (variety_of(job) == ADAMW) {
        job->op.adamw.list = list;
        job->op.adamw.m = cut(job, 3, "m");
        job->op.adamw.v = cut(job, 4, "v");
    } else {
        job->op.sgd.list = list;
        job->op.sgd.velocity = cut(job, 3, "velocity");
    }
}

static clattn_status call(clattn_context *context, const clattn_op *op, const clattn_launch *launch) {
    switch (op->kind) {
    case CLATTN_OP_CAST:
        return clattn_cast(context, (const clattn_cast_op *)op, launch);
    case CLATTN_OP_UNSCALE:
        return clattn_unscale(context, (const clattn_unscale_op *)op, launch);
    case CLATTN_OP_ADAMW:
        return clattn_adamw(context, (const clattn_adamw_op *)op, launch);
    default:
        return clattn_sgd(context, (const clattn_sgd_op *)op, launch);
    }
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

/* The flag is no element's. */
static struct job_rows rows(const struct job *job) {
    struct job_rows shape = {.count = elements_of(job), .inner = 1, .cost = ELEMENT_COST};
    shape.size = (double)shape.count;
    for (size_t i = 0, k = 0; i < job->count && k < JOB_MAX_OUTPUTS; i++)
        if (job->tensors[i].output)
            shape.widths[k++] = strcmp(job->tensors[i].name, "overflow") != 0;
    return shape;
}

static double value_at(const struct job *job, const char *name, int64_t element, double otherwise) {
    const struct job_tensor *tensor = job_find(job, name);
    return tensor ? job_value(tensor, &tensor->host, element) : otherwise;
}

/* The values of an element before and after the call, by name. */
struct element_values {
    double x, param, m, v;
};

static struct reference_optimizer step_of(const struct job *job) {
    const double steps = value_at(job, "steps", 0, 1);
    struct reference_optimizer step = {.number = (int64_t)steps + 1, .scale = value_at(job, "scale", 0, 1)};
    if (variety_of(job) == ADAMW) {
        const clattn_adamw_op *op = &job->op.adamw;
        step.lr = (double)op->lr;
        step.weight_decay = (double)op->weight_decay;
        step.beta1 = (double)op->beta1;
        step.beta2 = (double)op->beta2;
        step.eps = (double)op->eps;
    } else {
        const clattn_sgd_op *op = &job->op.sgd;
        step.lr = (double)op->lr;
        step.weight_decay = (double)op->weight_decay;
        step.momentum = (double)op->momentum;
        step.dampening = (double)op->dampening;
        step.nesterov = op->nesterov != 0;
        step.begins = steps == 0;
    }
    return step;
}

static struct element_values step_element(const struct job *job, int64_t element, bool plain) {
    struct element_values e = {.x = value_at(job, first_name(job), element, 0),
                               .param = value_at(job, "param", element, 0),
                               .m = value_at(job, variety_of(job) == SGD ? "velocity" : "m", element, 0),
                               .v = value_at(job, "v", element, 0)};
    if (variety_of(job) == UNSCALE) {
        const double scale = value_at(job, "scale", 0, 1);
        e.x = plain ? (double)((float)e.x * (1 / (float)scale)) : e.x / scale;
    }
    if (!is_optimizer(job))
        return e;
    const struct reference_optimizer step = step_of(job);
    if (variety_of(job) == ADAMW)
        (plain ? plain_adamw : reference_adamw)(&step, e.x, &e.param, &e.m, &e.v);
    else
        (plain ? plain_sgd : reference_sgd)(&step, e.x, &e.param, &e.m);
    return e;
}

static double value_of(const struct element_values *e, const char *name) {
    if (strcmp(name, "param") == 0 || strcmp(name, "copy") == 0)
        return e->param;
    if (strcmp(name, "m") == 0 || strcmp(name, "velocity") == 0)
        return e->m;
    return strcmp(name, "v") == 0 ? e->v : e->x;
}

static bool reference(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain) {
    const struct element_values right = step_element(job, row, false), rounded = step_element(job, row, true);
    (void)cache;
    for (size_t i = 0; i < job->count; i++) {
        const struct job_tensor *tensor = &job->tensors[i];
        if (!tensor->output || strcmp(tensor->name, "overflow") == 0)
            continue;
        *want++ = value_of(&right, tensor->name);
        *plain++ = reference_round(tensor->view.dtype, value_of(&rounded, tensor->name));
    }
    return true;
}

static double flops(const struct job *job) {
    static const double each[] = {[CAST] = 0, [UNSCALE] = 1, [ADAMW] = 15, [SGD] = 7};
    return each[variety_of(job)] * (double)elements_of(job);
}

static void describe(const struct job *job, char *text, size_t size) {
    const struct array *host = &job_find(job, first_name(job))->host;
    const struct job_tensor *copy = job_find(job, "copy"), *y = job_find(job, "y");
    int used = 0;
    for (int d = 0; d < host->rank; d++)
        used += snprintf(text + used, size - (size_t)used, d ? ",%lld" : "%lld", (long long)host->dims[d]);
    if (y || copy)
        used += snprintf(text + used, size - (size_t)used, y ? " to %s" : " copy %s",
                         element_name((y ? y : copy)->host.element));
    if (job->list_count > 1)
        snprintf(text + used, size - (size_t)used, " tensors=%d", job->list_count);
}

#define KIND(kind_name, kind_op, kind_variety)                                                                    \
    {                                                                                                             \
        .name = kind_name, .shape = "[D0[,D1[,D2]],]COLUMNS", .op = kind_op, .variety = kind_variety,             \
        .memory_bound = true, .generate = generate, .arrange = arrange, .bind = bind, .call = call, .rows = rows, \
        .reference = reference, .flops = flops, .describe = describe                                              \
    }

const struct job_kind job_cast = KIND("cast", CLATTN_OP_CAST, CAST);
const struct job_kind job_unscale = KIND("unscale", CLATTN_OP_UNSCALE, UNSCALE);
const struct job_kind job_adamw = KIND("adamw", CLATTN_OP_ADAMW, ADAMW);
const struct job_kind job_sgd = KIND("sgd", CLATTN_OP_SGD, SGD);
