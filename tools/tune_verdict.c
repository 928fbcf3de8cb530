/* Quartiles, which a single disturbed run does not move. */
#include "tune_verdict.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct quartiles {
    double low, middle, high;
};

static double at_share(const double *sorted, int count, double share) {
    const double place = share * (count - 1);
    const int below = (int)place;
    const int above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

static struct quartiles quartiles_of(const double *values, int count) {
    double sorted[VERDICT_MAX_PAIRS];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return (struct quartiles){at_share(sorted, count, 0.25), at_share(sorted, count, 0.5),
                              at_share(sorted, count, 0.75)};
}

static bool is_noisy(const struct quartiles *times) {
    return times->high - times->low > VERDICT_SPREAD * times->middle;
}

struct comparison verdict_of(const double *usual, const double *rival, int pairs) {
    struct comparison found = {.verdict = VERDICT_UNKNOWN};
    double ratio[VERDICT_MAX_PAIRS];
    if (pairs < VERDICT_MIN_PAIRS || pairs > VERDICT_MAX_PAIRS)
        return found;
    for (int i = 0; i < pairs; i++) {
        if (!(usual[i] > 0) || !(rival[i] > 0) || !isfinite(usual[i]) || !isfinite(rival[i]))
            return found;
        ratio[i] = rival[i] / usual[i];
    }
    const struct quartiles of_usual = quartiles_of(usual, pairs), of_rival = quartiles_of(rival, pairs),
                           of_ratio = quartiles_of(ratio, pairs);
    found.usual = of_usual.middle;
    found.rival = of_rival.middle;
    found.ratio = of_ratio.middle;
    if (of_ratio.low >= 1)
        found.verdict = VERDICT_NO_FASTER; /* in whatever noise */
    else if (is_noisy(&of_ratio) || (is_noisy(&of_usual) && is_noisy(&of_rival)))
        found.verdict = VERDICT_NOISY;
    else if (of_ratio.middle < 1 - VERDICT_GAIN && of_ratio.high < 1)
        found.verdict = VERDICT_FASTER;
    else
        found.verdict = VERDICT_NO_FASTER;
    return found;
}

const char *verdict_name(enum verdict verdict) {
    static const char *const names[] = {"faster", "no faster", "noisy", "unknown"};
    return names[verdict];
}
