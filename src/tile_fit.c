/* The search is greedy: each list starts with what costs least speed. */
#include "tile_fit.h"

/* Halves the first parameter of the list that is above its least value; false where none is. */
static bool step_down(const struct tile_step *steps, struct parameters *parameters) {
    for (; steps->parameter != NULL; steps++) {
        const int value = parameters_get(parameters, steps->parameter, steps->least);
        if (value <= steps->least)
            continue;
        return parameters_put(parameters, steps->parameter, value / 2 > steps->least ? value / 2 : steps->least);
    }
    return false;
}

bool tile_fit(const struct tile_plan *plan, const struct device_facts *facts, struct parameters *parameters) {
    for (;;) {
        const struct tile_need need = plan->need(parameters, facts, plan->user);
        const struct tile_step *steps = NULL;
        if (need.items > facts->max_group || need.items > facts->max_item[0])
            steps = plan->for_items;
        else if (need.local > facts->local_memory)
            steps = plan->for_local;
        else
            return true;
        if (!step_down(steps, parameters))
            return false;
    }
}
