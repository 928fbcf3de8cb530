/* The sizes of attention kernels that are built on cl/attention_block.clh: from a choice's parameters to the kernel's
 * options. Pure but for the text of errors. */
#ifndef CLATTN_ATTENTION_PLAN_H
#define CLATTN_ATTENTION_PLAN_H

#include "tile_fit.h"

/* As the kernel's parameters; see cl/attention_block.clh. */
struct attention_plan {
    struct tile_shape shape;
    int score_tiles, k_slice, v_slice, q_resident, stage_slots;
    int shares;  /* tile groups of a work-group that share rows; divides shape.groups */
    bool v_in_k; /* tiles of K are used as V too */
    int ahead; /* what is issued before it is needed: 1, a tile; 2, all tiles of a block of keys; 0: staging is plain */
    int registers; /* that a work-item may take, for compilers that can be told (NVIDIA's); 0: as many as it wants */
};

/* Makes the choice's parameters those that run; UNSUPPORTED where nothing fits. Comes before all of these. */
clattn_status attention_plan_choose(const struct problem *problem, struct choice *choice);
struct attention_plan attention_plan_of(const struct problem *problem, const struct choice *choice);

/* Rows and keys of a block. */
int attention_plan_queries(const struct attention_plan *plan);
int attention_plan_keys(const struct attention_plan *plan);
/* Work-groups whose local memory a unit has, if it has no more than a work-group may take; 1..16. */
int attention_plan_resident(const struct problem *problem, const struct choice *choice);

enum { ATTENTION_PLAN_OPTIONS = 1024 }; /* characters */
/* All options of such a kernel but those that are one kernel's own. */
void attention_plan_options(const struct problem *problem, const struct attention_plan *plan, clattn_dtype out_dtype,
                            char options[ATTENTION_PLAN_OPTIONS]);

#endif
