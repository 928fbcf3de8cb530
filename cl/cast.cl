/* y = x in another dtype. */

/* Parameters, beside those of list.clh: numbers of clattn_dtype. */
#ifndef X_DTYPE
#define X_DTYPE 1
#endif
#ifndef Y_DTYPE
#define Y_DTYPE 2
#endif

#define VIEWS 2
#include "list.clh"

struct cast {
    global const byte_t *x;
    global byte_t *y;
    struct list_part part;
};

static inline void cast_block(const struct cast *cast, uint index, bool whole) {
    packet_t value[PACKETS];
    LIST_FOR_EACH_PACKET(i)
    value[i] = list_load(cast->x, &cast->part, 0, LIST_INDEX(index, i), whole, X_DTYPE);
    LIST_FOR_EACH_PACKET(i)
    list_store(cast->y, &cast->part, 1, LIST_INDEX(index, i), whole, value[i], Y_DTYPE);
}

#define ARGUMENTS(t) global const byte_t *x##t, global byte_t *y##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&cast.part, &list, t);          \
        cast.x = x##t;                            \
        cast.y = y##t;                            \
    }
#define STEP(index, whole) cast_block(&cast, index, whole)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void cast(LIST_EACH(ARGUMENTS) const struct list list) {
    struct cast cast;
    LIST_EACH(TAKE)
    list_cut(&cast.part, &list);
    LIST_FOR_EACH_BLOCK(&cast.part, STEP)
}
