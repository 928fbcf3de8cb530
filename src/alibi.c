/* The standard slopes of ALiBi (Press, Smith and Lewis, arXiv:2108.12409). */
#include "status.h"

#include <math.h>

static int32_t power_of_two_up_to(int32_t n) {
    int32_t power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

clattn_status clattn_alibi_slopes(int32_t heads, float *slopes) {
    RETURN_IF(heads < 1, CLATTN_INVALID_ARGUMENT, "heads: %d is below 1", (int)heads);
    RETURN_IF(slopes == NULL, CLATTN_INVALID_ARGUMENT, "slopes: NULL");
    const int32_t power = power_of_two_up_to(heads);
    for (int32_t h = 0; h < power; h++)
        slopes[h] = (float)exp2(-8.0 * (h + 1) / power);
    for (int32_t h = power; h < heads; h++)
        slopes[h] = (float)exp2(-4.0 * (2 * (h - power) + 1) / power);
    return CLATTN_SUCCESS;
}
