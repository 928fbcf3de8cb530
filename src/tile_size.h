/* The sizes of the tile back-ends (cl/tile/), computed on the host by the formulas of their macros: a static local
 * array above the device's limit is not an error on every device but may end the process, so that what a kernel needs
 * is known before it is built. All that differs between back-ends is one row of the table in tile_size.c. Pure. */
#ifndef CLATTN_TILE_SIZE_H
#define CLATTN_TILE_SIZE_H

#include "variant.h"

#define TILE_ALIGNMENT 128        /* bytes, of local arrays in kernels */
#define TILE_START TILE_ALIGNMENT /* what a compiler may leave free before the first of them; NVIDIA's does */

enum { TILE_OWN = 2 }; /* parameters that a back-end has for itself, at most */

struct tile_shape {
    enum backend backend;
    int own[TILE_OWN]; /* values of the back-end's own parameters, in the order of its row */
    int groups;        /* GROUPS: tile groups in a work-group */
    int items;         /* TILE_GROUP: work-items of a tile group */
    int m, n, k;       /* TILE_M, TILE_N, TILE_K */
    int element;       /* bytes of a local_t */
    int padding;       /* elements between the rows of a local tile */
    bool acc_is_a;
    bool shares_rows; /* work-items of a tile group hold parts of the same rows */
    bool unroll;      /* TILE_UNROLL */
    enum subgroup_backend subgroup;
    int subgroup_size;
};

/* A parameter that may be halved down to `least`, so that a kernel fits a device. */
struct tile_step {
    const char *parameter;
    int least;
    bool is_rows; /* it is the number of a tile's rows, of which a kernel may need more */
};

/* Reads "groups" and the back-end's own parameters. Sub-groups are used where they hold whole tile groups and the
 * work-group holds whole sub-groups. */
struct tile_shape tile_shape_of(enum backend backend, const struct parameters *parameters,
                                const struct device_facts *facts);

/* Why the parameters cannot be those of the back-end in that operation, or NULL; NULL too where the back-end has no
 * tiles. */
const char *tile_shape_refusal(enum backend backend, clattn_op_kind op, const struct parameters *parameters);

/* Rows that a tile of the operation has at least. */
int tile_least_rows(clattn_op_kind op);

/* Adds "groups" and the back-end's own parameters as they are in the shape. */
void tile_spell_out(const struct tile_shape *shape, struct parameters *parameters);

/* What the back-end can do without, in order, for fewer work-items and for less local memory; end with parameter NULL.
 */
const struct tile_step *tile_steps_for_items(enum backend backend);
const struct tile_step *tile_steps_for_local(enum backend backend);

/* The options that select the back-end, its parameters and its sub-groups; `stage` names a file of cl/stage/. */
void tile_options(const struct tile_shape *shape, const char *stage, char *options, size_t size);

/* A_SIZE, BT_SIZE, B_SIZE, LEFT_SIZE and ROW_SCRATCH in bytes; row and column counts as in cl/tile.clh. */
size_t tile_a_bytes(const struct tile_shape *shape, int rows, int k);
size_t tile_bt_bytes(const struct tile_shape *shape, int columns, int k);
size_t tile_b_bytes(const struct tile_shape *shape, int k, int columns);
size_t tile_left_bytes(const struct tile_shape *shape, int rows, int k);
size_t tile_row_scratch_bytes(const struct tile_shape *shape);

/* What an array of so many bytes takes, with the space that aligning it may cost. */
size_t tile_array_bytes(size_t bytes);

#endif
