/* From a choice's parameters to those of a kernel that fits the device: what a row or a caller left out is filled in,
 * and rows (never what a caller asked for) are halved, one parameter after the other, until a work-group has few enough
 * work-items and a small enough local memory. Pure but for the text of errors. */
#ifndef CLATTN_TILE_FIT_H
#define CLATTN_TILE_FIT_H

#include "choice.h"
#include "tile_size.h"

/* What a work-group of a kernel takes. */
struct tile_need {
    uint64_t items; /* work-items */
    uint64_t local; /* bytes of local memory, as arrays aligned to TILE_ALIGNMENT */
};

struct tile_plan;

/* A kernel on tiles, as its front-end describes it. Parameters may lie between the steps: both functions round them up
 * to what the kernel can take. */
struct tile_kernel {
    const struct tile_step *for_local; /* what to do without first; then come the back-end's own steps */
    struct tile_need (*need)(const struct tile_plan *plan, const struct parameters *parameters,
                             const struct device_facts *facts);
    /* Adds the kernel's own parameters, all of them, to `out`. */
    void (*spell_out)(const struct tile_plan *plan, const struct parameters *parameters,
                      const struct device_facts *facts, struct parameters *out);
};

struct tile_plan {
    const struct tile_kernel *kernel;
    const struct problem *problem;
    enum backend backend;
};

/* False where even the smallest parameters do not fit; *parameters is then the smallest set. A parameter can only be
 * halved where the set names it. */
bool tile_fit(const struct tile_plan *plan, const struct device_facts *facts, struct parameters *parameters);

/* Makes choice->parameters those that run. UNSUPPORTED where nothing fits, or not what the caller asked for. */
clattn_status tile_choose(const struct tile_kernel *kernel, const struct problem *problem, struct choice *choice);

/* Work-groups of a launch; UNSUPPORTED, in the name of the tensor that they divide, where they are more than every
 * device takes. */
clattn_status tile_count_groups(const char *name, int64_t batch, int64_t down, int64_t across, size_t *groups);

/* The next multiple of step. */
int64_t tile_round_up(int64_t value, int64_t step);

#endif
