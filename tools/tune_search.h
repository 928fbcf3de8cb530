/* The order in which the tuner tries candidates: from coarse to fine, by chance and by what was measured so far. The
 * same space, seed and reports give the same candidates, so that a search that was cut off goes on where it was by
 * being told again what had been measured. Pure. */
#ifndef TOOLS_TUNE_SEARCH_H
#define TOOLS_TUNE_SEARCH_H

#include "tune_space.h"

#include <stdint.h>

#define SEARCH_TRIALS 1024

struct search_trial {
    struct point point;
    double seconds; /* 0: refused, failed or wrong */
    bool climbed;   /* its neighbours have all been proposed */
};

struct search {
    const struct space *space;
    struct point given[2];
    int givens;
    uint64_t chance;
    int coarse; /* points by chance that are still to be proposed */
    bool drawn; /* the last proposal is one */
    int most;   /* candidates that ran, at most */
    struct search_trial trials[SEARCH_TRIALS];
    int count, ran;
};

/* Begins at the points that are given (one, or two that differ), then takes `coarse` points by chance from every second
 * value of each axis, then climbs: all neighbours (a step on one axis) of the best point so far, until the best has
 * none left; then those of the second best, and so on. At most `most` candidates are run. */
void search_begin(struct search *search, const struct space *space, const struct point *given, int givens,
                  uint64_t seed, int coarse, int most);

/* The next candidate, one that was not proposed before; false where the search is over. */
bool search_next(struct search *search, struct point *point);

/* What became of the candidate that was proposed last. seconds 0: it does not count, nor towards `most` where it was
 * only refused. */
void search_report(struct search *search, double seconds, bool ran);

/* The fastest so far, or NULL. */
const struct search_trial *search_best(const struct search *search);

#endif
