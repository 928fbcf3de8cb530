/* Coarse points find the right region of a space with several valleys; climbing is what finishes. */
#include "tune_search.h"

#include <string.h>

/* SplitMix64: the generator must be the same on every machine. */
static uint64_t draw(struct search *search) {
    uint64_t z = search->chance += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool is_known(const struct search *search, const struct point *point) {
    for (int i = 0; i < search->count; i++)
        if (memcmp(&search->trials[i].point, point, sizeof *point) == 0)
            return true;
    return false;
}

static bool propose(struct search *search, const struct point *point) {
    if (is_known(search, point))
        return false;
    search->trials[search->count++] = (struct search_trial){.point = *point};
    return true;
}

void search_begin(struct search *search, const struct space *space, const struct point *given, int givens,
                  uint64_t seed, int coarse, int most) {
    *search = (struct search){.space = space, .givens = givens, .chance = seed, .coarse = coarse, .most = most};
    memcpy(search->given, given, (size_t)givens * sizeof *given);
}

static bool propose_given(struct search *search) {
    for (int i = 0; i < search->givens; i++)
        if (propose(search, &search->given[i]))
            return true;
    return false;
}

/* A point of the coarse grid, whose axes have every second value, begun at the first or the second by chance. */
static struct point draw_coarse(struct search *search) {
    struct point point = {{0}};
    for (int i = 0; i < search->space->axes; i++) {
        const int count = search->space->axis[i].count;
        const uint64_t value = draw(search);
        const int first = count > 2 ? (int)(value & 1) : 0, step = count > 2 ? 2 : 1;
        const int places = (count - first + step - 1) / step;
        point.at[i] = (signed char)(first + step * (int)((value >> 1) % (uint64_t)places));
    }
    return point;
}

/* A small space is soon known whole. */
static bool propose_coarse(struct search *search) {
    enum { TRIES = 64 };
    for (int i = 0; i < TRIES && search->coarse > 0; i++) {
        const struct point point = draw_coarse(search);
        if (propose(search, &point)) {
            search->coarse--;
            search->drawn = true;
            return true;
        }
    }
    search->coarse = 0;
    return false;
}

static struct search_trial *find_best(struct search *search, bool unclimbed) {
    struct search_trial *best = NULL;
    for (int i = 0; i < search->count; i++) {
        struct search_trial *trial = &search->trials[i];
        if (trial->seconds > 0 && !(unclimbed && trial->climbed) && (!best || trial->seconds < best->seconds))
            best = trial;
    }
    return best;
}

/* A step on one axis; those that are left are taken in an order by chance. */
static bool propose_neighbour(struct search *search, const struct point *centre) {
    struct point steps[2 * SPACE_AXES];
    int count = 0;
    for (int i = 0; i < search->space->axes; i++)
        for (int step = -1; step <= 1; step += 2) {
            struct point point = *centre;
            const int at = point.at[i] + step;
            point.at[i] = (signed char)at;
            if (at >= 0 && at < search->space->axis[i].count && !is_known(search, &point))
                steps[count++] = point;
        }
    return count > 0 && propose(search, &steps[draw(search) % (uint64_t)count]);
}

/* Around the best point, as long as it has untried neighbours; a better one, once found, is the next centre. Where the
 * best is done, a further one may lead elsewhere. */
static bool propose_fine(struct search *search) {
    for (struct search_trial *best = find_best(search, true); best; best = find_best(search, true)) {
        if (propose_neighbour(search, &best->point))
            return true;
        best->climbed = true;
    }
    return false;
}

bool search_next(struct search *search, struct point *point) {
    if (search->count == SEARCH_TRIALS || search->ran >= search->most)
        return false;
    search->drawn = false;
    if (!propose_given(search) && !propose_coarse(search) && !propose_fine(search))
        return false;
    *point = search->trials[search->count - 1].point;
    return true;
}

void search_report(struct search *search, double seconds, bool ran) {
    search->trials[search->count - 1].seconds = seconds;
    search->ran += ran;
    search->coarse += search->drawn && !ran && search->count < SEARCH_TRIALS / 2; /* another in its place */
}

const struct search_trial *search_best(const struct search *search) {
    return find_best((struct search *)search, false);
}
