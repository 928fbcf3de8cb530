/* Lists of tensors that kernels on cl/list.clh walk over element by element: checks, how elements are numbered, and as
 * few launches as kernel arguments allow. */
#ifndef CLATTN_LIST_H
#define CLATTN_LIST_H

#include "check.h"
#include "choice.h"
#include "launch.h"

#define LIST_VIEWS 5
#define LIST_FLOATS (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)

/* One tensor of every entry. */
struct list_view {
    const char *name;             /* as the caller knows it */
    const clattn_tensor *tensors; /* `count` of them; NULL: absent */
    unsigned dtypes;              /* mask of 1 << dtype bits; any number may be mixed in a list */
    bool written, optional;       /* optional: the array or single entries may be absent */
    bool in_place;                /* an entry may lie exactly where that of the first view does */
};

struct list {
    int count, views;
    bool single;                       /* `tensors` are members of the operation, not arrays */
    struct list_view view[LIST_VIEWS]; /* the first gives the dims */
};

/* Counts, arrays, each tensor by itself, and dims. *elements: of all entries. */
clattn_status list_check(clattn_context *context, const struct list *list, int64_t *elements);
/* That nothing which is written overlaps anything else; scalars may be absent. */
clattn_status list_check_apart(const struct list *list, const struct check_named *scalars, int outputs, int count);

/* A kernel, and what it is built and launched with beside its list. */
#define LIST_MACROS 2
struct list_kernel {
    const char *file, *kernel;       /* string constants: compared by address */
    const char *dtypes[LIST_VIEWS];  /* the macros of the views' dtypes; NULL: it is always F32 */
    const char *macros[LIST_MACROS]; /* NULL: none */
    int32_t values[LIST_MACROS];
    int packets; /* of a work-item, on a GPU */
    void (*arguments)(struct launch *launch, const clattn_op *op);
};

/* What differs between entries and is compiled in. No padding: it is compared byte by byte. */
struct list_class {
    int32_t dtype[LIST_VIEWS];
    int32_t dense, vector, aligned;
};

/* An entry whose dims are merged and put in order, the slowest first. */
struct list_walk {
    int index, class;
    int64_t count, dim[CLATTN_MAX_RANK], stride[LIST_VIEWS][CLATTN_MAX_RANK];
};

#define LIST_CLASSES 64
struct list_plan {
    const struct list *list;
    const struct list_kernel *kernel;
    int group, blocks; /* blocks: of a work-group; 0: by the number of elements */
    int packets;
    uint32_t compute_units;
    struct list_walk *walks; /* of the entries that are not empty */
    int count, classes, launches;
    struct list_class class[LIST_CLASSES];
    int members[LIST_CLASSES], tensors[LIST_CLASSES]; /* entries of each class, and of one of its launches */
    struct program *program[LIST_CLASSES];
};

/* From a planned choice, with all programs built. Free it in any case. */
clattn_status list_plan_make(clattn_context *context, const struct list *list, const struct list_kernel *kernel,
                             const struct choice *choice, struct list_plan *plan);
void list_plan_free(struct list_plan *plan);
/* plan->launches commands. */
clattn_status list_plan_enqueue(const struct list_plan *plan, const clattn_op *op, struct sequence *sequence);

/* ---- members of struct operation that all have, and what the others need ----------------------------------------- */

int64_t list_tuning_size(const struct problem *problem); /* elements */
clattn_status list_operation_plan(clattn_context *context, const clattn_op *op, const struct problem *problem,
                                  bool run_selftest, struct choice *choice);
clattn_status list_workspace(clattn_context *context, const clattn_op *op, const struct problem *problem,
                             const struct choice *choice, size_t *bytes); /* none */
clattn_status list_prepare(clattn_context *context, const struct list *list, const struct list_kernel *kernel,
                           const struct choice *choice);
/* The buffer of a tensor, or NULL. */
cl_mem list_buffer(const clattn_tensor *tensor);

/* ---- between list_walk.c and list.c ------------------------------------------------------------------------------ */

/* Is there a tensor of view v in entry i? */
bool list_has(const struct list *list, int v, int i);
/* Adds entry i, which is not empty, to the plan. */
clattn_status list_add_walk(struct list_plan *plan, const struct choice *choice, int i);

#endif
