/* Softmax's launches as plain numbers: where rows lie, and how work-items share them. Pure; no OpenCL call. */
#ifndef CLATTN_SOFTMAX_PLAN_H
#define CLATTN_SOFTMAX_PLAN_H

#include "device.h"
#include "parameters.h"
#include "variant.h"

/* Mirrors struct softmax_layout of cl/softmax_row.clh. */
struct softmax_layout {
    int64_t rows, columns;
    int64_t dim[3];
    int64_t x_offset, x_step, x_stride[3];
    int64_t y_offset, y_step, y_stride[3];
    int64_t l_offset, l_stride[3];
    int64_t diagonal;
    int64_t mask_offset, mask_step, mask_stride[3];
    int64_t bias_offset, bias_step, bias_stride[3];
    float scale;
    uint32_t zero; /* 0 */
};

/* What is known of the rows before work-items are dealt out. */
struct softmax_rows {
    struct softmax_layout layout;
    int outer; /* dims used of layout.dim, the last ones */
    clattn_dtype x_dtype, y_dtype;
    bool writes_row; /* y is a row, not one element per row */
    bool dense;      /* neighbours in a row are neighbours in memory, in x and, where it is a row, y */
    bool aligned;    /* rows start at multiples of 16 bytes there */
};

/* The macros of the softmax kernels, and the cut of a split row. */
struct softmax_plan {
    enum subgroup_backend backend;
    int group, team, subgroup, vector, packets;
    bool unrolled, aligned, partial;
    int local_packets;     /* SCHEDULE_HELD: of the packets, those in local memory */
    bool packed;           /* SCHEDULE_GROUP and SCHEDULE_HELD: elements are held as x stores them */
    int registers;         /* of a work-item, at most, where the compiler takes an order; 0: its own choice */
    int64_t chunk, splits; /* SCHEDULE_SPLIT, _TICKETS and _HELD: columns of a chunk, chunks of a row */
    int64_t lag;           /* SCHEDULE_TICKETS: how many chunks a result lies behind its state */
    int patience;          /* SCHEDULE_HELD: how often to look for a state before making it */
};

/* The tensors whose rows are numbered alike. y is the result, or the maximum of a state; l its sum. NULL: absent. */
struct softmax_tensors {
    const clattn_tensor *x, *y, *l, *mask, *bias; /* dims of 1 in mask and bias are repeated */
};

/* Numbers the rows along an axis (0 <= axis < rank). writes_row: y has x's dims. */
void softmax_rows_of(const struct softmax_tensors *tensors, int axis, bool writes_row, struct softmax_rows *rows);

/* The rows of x and y [a, b, c, columns], numbered over all three leading dims whatever their sizes and strides. */
void softmax_rows_unmerged(const clattn_tensor *x, const clattn_tensor *y, struct softmax_rows *rows);

/* Sizes for a schedule, from the device's limits and the parameters "group", "team", "vector" and those of tickets,
 * "blocks" (of a chunk) and "lag" (in MiB), and of held rows, "packets" (of a work-item), "local_packets" (of these)
 * and "patience"; "registers" (of a work-item, on NVIDIA's devices). 0 or absent: chosen here. An argument error where
 * a parameter cannot be; what is chosen here always can. */
clattn_status softmax_plan_make(const struct device_facts *facts, enum schedule schedule,
                                const struct softmax_rows *rows, const struct parameters *parameters,
                                struct softmax_plan *plan);

/* How the lanes of a team exchange values in a work-group of that size. */
enum subgroup_backend softmax_plan_backend(const struct device_facts *facts, int team, int group);

#endif
