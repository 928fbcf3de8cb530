/* Is one candidate faster than another, beyond what chance explains? Both were timed in turn, so that what disturbs one
 * disturbs the other. Pure. */
#ifndef TOOLS_TUNE_VERDICT_H
#define TOOLS_TUNE_VERDICT_H

#define VERDICT_MIN_PAIRS 8
#define VERDICT_MAX_PAIRS 64
#define VERDICT_GAIN 0.02   /* less is not worth a row */
#define VERDICT_SPREAD 0.25 /* of the middle half of the times, relative to their median: above, they tell nothing */

enum verdict {
    VERDICT_FASTER,
    VERDICT_NO_FASTER,
    VERDICT_NOISY,  /* the times, or their ratios, scatter too much */
    VERDICT_UNKNOWN /* too few times, or times that are none */
};

struct comparison {
    enum verdict verdict;
    double usual, rival; /* medians, seconds */
    double ratio;        /* the median of rival / usual over the pairs */
};

/* Faster: the median ratio says so by VERDICT_GAIN, and so do three pairs of four by anything. */
struct comparison verdict_of(const double *usual, const double *rival, int pairs);

const char *verdict_name(enum verdict verdict);

#endif
