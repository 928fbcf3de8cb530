/* Gradients divided by a loss scale, and a flag where one is infinite or NaN. */

/* Parameters, beside those of list.clh: numbers of clattn_dtype. */
#ifndef X_DTYPE
#define X_DTYPE 1
#endif
#ifndef Y_DTYPE
#define Y_DTYPE 0 /* 0: nothing is written but the flag */
#endif

#define VIEWS 2
#include "list.clh"
#include "scale.clh"

/* Bits of the smallest magnitude in fp32 that becomes infinite in y's dtype. NaN has larger ones than infinity. */
#define UNUSABLE (Y_DTYPE == DTYPE_F16 ? 0x477ff000u : Y_DTYPE == DTYPE_BF16 ? 0x7f7f8000u : 0x7f800000u)

static inline uint largest_bits(uint largest, packet_t packet) {
    const union packet_elements values = {packet};
#pragma unroll
    for (uint i = 0; i < VECTOR; i++)
        largest = max(largest, as_uint(values.element[i]) & 0x7fffffffu);
    return largest;
}

struct unscale {
    global const byte_t *x;
    global byte_t *y;
    struct list_part part;
    float inverse;
    uint largest; /* bits of the largest magnitude so far */
};

static inline void unscale_block(struct unscale *unscale, uint index, bool whole) {
    packet_t value[PACKETS];
    LIST_FOR_EACH_PACKET(i)
    value[i] = list_load(unscale->x, &unscale->part, 0, LIST_INDEX(index, i), whole, X_DTYPE);
    LIST_FOR_EACH_PACKET(i) {
        value[i] *= unscale->inverse;
        if (whole || LIST_INDEX(index, i) < unscale->part.count)
            unscale->largest = largest_bits(unscale->largest, value[i]);
        list_store(unscale->y, &unscale->part, 1, LIST_INDEX(index, i), whole, value[i], Y_DTYPE);
    }
}

#define ARGUMENTS(t) global const byte_t *x##t, global byte_t *y##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&unscale.part, &list, t);       \
        unscale.x = x##t;                         \
        unscale.y = y##t;                         \
    }
#define STEP(index, whole) unscale_block(&unscale, index, whole)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void unscale(LIST_EACH(ARGUMENTS) const struct list list,
                                                                       global const float *scale,
                                                                       volatile global int *overflow,
                                                                       const long scale_at, const long overflow_at) {
    struct unscale unscale;
    LIST_EACH(TAKE)
    list_cut(&unscale.part, &list);
    unscale.inverse = scale_inverse(scale, scale_at);
    unscale.largest = 0;
    LIST_FOR_EACH_BLOCK(&unscale.part, STEP)
    if (unscale.largest >= UNUSABLE)
        atomic_or(overflow + overflow_at, 1);
}
