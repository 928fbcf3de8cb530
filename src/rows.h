/* Rows of several tensors that an operation walks over together: where they lie, how work-items share them, and the
 * programs and launches of kernels on cl/rows.clh. */
#ifndef CLATTN_ROWS_H
#define CLATTN_ROWS_H

#include "choice.h"
#include "launch.h"
#include "softmax_plan.h"

#define ROWS_VIEWS 4

/* Mirrors struct rows_layout of cl/rows.clh. */
struct rows_view {
    int64_t offset, step, stride[3];
};
struct rows_layout {
    int64_t rows, columns;
    int64_t dim[3];
    struct rows_view view[ROWS_VIEWS];
};

struct rows {
    struct rows_layout layout;
    int outer;    /* dims used of layout.dim, the last ones */
    bool dense;   /* neighbours in a row are neighbours in memory, in every tensor that has whole rows */
    bool aligned; /* rows start at multiples of 16 bytes there */
    bool narrow;  /* all of them are 16 bits wide */
};

/* Numbers the rows along an axis of up to ROWS_VIEWS tensors of one shape. Absent tensors have views of zeros; the
 * first is present and has whole rows. */
void rows_of(const clattn_tensor *const *tensors, int count, int axis, struct rows *rows);

/* The same where the others hold results of another length: neighbours and alignment are looked at in the first
 * only. */
void rows_of_first(const clattn_tensor *const *tensors, int count, int axis, struct rows *rows);

/* Sizes as softmax takes them (softmax_plan_make()), from a planned choice. */
clattn_status rows_plan(const struct choice *choice, const struct rows *rows, struct softmax_plan *plan);
/* Makes the choice's parameters those that run. A row of tuning may be made for a larger device: what does not fit this
 * one is chosen anew. */
clattn_status rows_choose(struct choice *choice, const struct rows *rows);
/* "group_nvidia": a planned choice's variant and how lanes meet. */
void rows_describe(const struct choice *choice, char *name, size_t size);

/* A kernel and the macros that it is built with beside those of rows.clh. */
#define ROWS_MACROS 10
struct rows_kernel {
    const char *file, *kernel; /* string constants: compared by address */
    const char *const *macros; /* names, an array of static storage */
    int32_t values[ROWS_MACROS];
    int count;
};

clattn_status rows_program(clattn_context *context, const struct device_facts *facts, const struct rows *rows,
                           const struct softmax_plan *plan, const struct rows_kernel *kernel, struct program **program);

/* The buffer of a tensor, or NULL; its dtype, or 0. */
cl_mem rows_buffer(const clattn_tensor *tensor);
int32_t rows_dtype(const clattn_tensor *tensor);

/* Work-groups that give every row a team. */
size_t rows_groups(const struct rows *rows, const struct softmax_plan *plan);

#endif
