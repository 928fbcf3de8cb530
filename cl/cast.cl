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

#define ARGUMENTS(t) global const byte_t *x##t, global byte_t *y##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&part, &list, t);               \
        x = x##t;                                 \
        y = y##t;                                 \
    }

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void cast(LIST_EACH(ARGUMENTS) const struct list list) {
    global const byte_t *x = 0;
    global byte_t *y = 0;
    struct list_part part;
    LIST_EACH(TAKE)
    list_cut(&part, &list);
    LIST_FOR_EACH_BLOCK(index, &part) {
        packet_t value[PACKETS];
        LIST_FOR_EACH_PACKET(i)
        value[i] = list_load(x, &part, 0, LIST_INDEX(index, i), X_DTYPE);
        LIST_FOR_EACH_PACKET(i)
        list_store(y, &part, 1, LIST_INDEX(index, i), value[i], Y_DTYPE);
    }
}
