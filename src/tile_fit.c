/* The search is greedy: each list starts with what costs least speed. */
#include "tile_fit.h"
#include "status.h"

#include <inttypes.h>
#include <string.h>

/* ---- fitting ----------------------------------------------------------------------------------------------------- */

/* Halves the first parameter of the list that is above its least value; false where none is. */
static bool step_down(const struct tile_step *steps, int least_rows, struct parameters *parameters) {
    for (; steps->parameter != NULL; steps++) {
        const int least = steps->is_rows && least_rows > steps->least ? least_rows : steps->least;
        const int value = parameters_get(parameters, steps->parameter, least);
        if (value > least)
            return parameters_put(parameters, steps->parameter, value / 2 > least ? value / 2 : least);
    }
    return false;
}

bool tile_fit(const struct tile_plan *plan, const struct device_facts *facts, struct parameters *parameters) {
    static const struct tile_step fewer_groups[] = {{"groups", 1, false}, {NULL, 0, false}};
    const int rows = tile_least_rows(plan->problem->op);
    for (;;) {
        const struct tile_need need = plan->kernel->need(plan, parameters, facts);
        const bool crowded = need.items > facts->max_group || need.items > facts->max_item[0];
        if (!crowded && need.local <= facts->local_memory)
            return true;
        if (!step_down(crowded ? fewer_groups : plan->kernel->for_local, rows, parameters) &&
            !step_down(crowded ? tile_steps_for_items(plan->backend) : tile_steps_for_local(plan->backend), rows,
                       parameters))
            return false;
    }
}

/* ---- a choice ---------------------------------------------------------------------------------------------------- */

/* Every parameter by name, and no other. */
static struct parameters spelled_out(const struct tile_plan *plan, const struct parameters *parameters,
                                     const struct device_facts *facts) {
    struct parameters out = {0};
    const struct tile_shape shape = tile_shape_of(plan->backend, parameters, facts);
    tile_spell_out(&shape, &out);
    plan->kernel->spell_out(plan, parameters, facts, &out);
    return out;
}

clattn_status tile_choose(const struct tile_kernel *kernel, const struct problem *problem, struct choice *choice) {
    const struct tile_plan plan = {kernel, problem, choice->variant->backend};
    const struct device_facts *facts = &choice->facts;
    const struct parameters asked = spelled_out(&plan, &choice->parameters, facts);
    struct parameters fitted = asked;
    RETURN_IF(!tile_fit(&plan, facts, &fitted), CLATTN_UNSUPPORTED,
              "the smallest tile needs more work-items or local memory than the device has (%u, %" PRIu64 " bytes)",
              facts->max_group, facts->local_memory);
    RETURN_IF(choice->overridden && memcmp(&asked, &fitted, sizeof asked) != 0, CLATTN_UNSUPPORTED,
              "parameters: they need more work-items or local memory than the device has (%u, %" PRIu64 " bytes)",
              facts->max_group, facts->local_memory);
    choice->parameters = spelled_out(&plan, &fitted, facts);
    return CLATTN_SUCCESS;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

clattn_status tile_count_groups(const char *name, int64_t batch, int64_t down, int64_t across, size_t *groups) {
    int64_t all = 0;
    RETURN_IF(__builtin_mul_overflow(down, across, &all) || __builtin_mul_overflow(all, batch, &all) || all > INT32_MAX,
              CLATTN_UNSUPPORTED, "%s: more than 2^31 blocks of tiles", name);
    *groups = (size_t)all;
    return CLATTN_SUCCESS;
}

int64_t tile_round_up(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}
