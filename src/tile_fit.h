/* Makes tile parameters fit the device: a pure function that halves one parameter after the other, in an order that the
 * kernel's front-end gives, until a work-group has few enough work-items and a small enough local memory. */
#ifndef CLATTN_TILE_FIT_H
#define CLATTN_TILE_FIT_H

#include "tile_size.h"

/* What a work-group of a kernel takes. */
struct tile_need {
    uint64_t items; /* work-items */
    uint64_t local; /* bytes of local memory, as arrays aligned to TILE_ALIGNMENT */
};

/* A parameter that may be halved down to `least` (which it must be set above by name: a default is not seen here). */
struct tile_step {
    const char *parameter;
    int least;
};

struct tile_plan {
    const struct tile_step *for_items; /* in order; each list ends with parameter NULL */
    const struct tile_step *for_local;
    /* What the kernel takes with these parameters; `user` is handed through. Values between the steps are rounded up
     * here to what the kernel can take. */
    struct tile_need (*need)(const struct parameters *parameters, const struct device_facts *facts, const void *user);
    const void *user;
};

/* False where even the smallest parameters do not fit; *parameters is then the smallest set. */
bool tile_fit(const struct tile_plan *plan, const struct device_facts *facts, struct parameters *parameters);

#endif
