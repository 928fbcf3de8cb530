/* Is a result right? The bound comes from the data: twice the error that a plain low-precision version makes, plus one
 * unit in the last place. NaN and infinities are compared by class, never skipped. */
#include "reference.h"

#include <math.h>

static bool same_class(double a, double b) {
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return isinf(a) || isinf(b) ? a == b : true;
}

static void note(struct reference_error *error, double got, double want, double bound) {
    const bool matching = same_class(got, want);
    const bool finite = isfinite(got) && isfinite(want);
    const double difference = finite ? fabs(got - want) : 0;
    if (difference > error->largest)
        error->largest = difference;
    if (finite && want != 0 && difference / fabs(want) > error->relative)
        error->relative = difference / fabs(want);
    error->class_mismatches += !matching;
    if (!matching || difference > bound) {
        if (error->bad++ == 0) {
            error->got = got;
            error->want = want;
            error->bound = bound;
            error->index = error->count;
        }
    }
    error->count++;
}

double reference_plain_error(int64_t count, const double *want, const double *plain) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(want[i]) && isfinite(plain[i]))
            largest = fmax(largest, fabs(plain[i] - want[i]));
    return largest;
}

void reference_compare(struct reference_error *error, int64_t count, const double *got, const double *want,
                       double plain_error, clattn_dtype dtype) {
    error->plain_largest = fmax(error->plain_largest, plain_error);
    for (int64_t i = 0; i < count; i++) {
        /* What rounds to infinity in the type is infinite in the result too. */
        const double rounded = isfinite(want[i]) ? reference_round(dtype, want[i]) : want[i];
        const double expected = isinf(rounded) ? rounded : want[i];
        note(error, got[i], expected, 2 * plain_error + reference_ulp(dtype, want[i]));
    }
}

void reference_compare_within(struct reference_error *error, int64_t count, const double *got, const double *want,
                              double absolute, double relative) {
    for (int64_t i = 0; i < count; i++)
        note(error, got[i], want[i], absolute + relative * fabs(want[i]));
}
