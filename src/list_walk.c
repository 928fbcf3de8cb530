/* Where the elements of a list's entries lie, and which entries one program serves. */
#include "list.h"
#include "status.h"
#include "tensor.h"

#include <string.h>

/* ---- where elements lie ------------------------------------------------------------------------------------------ */

struct walk_dim {
    int64_t size, stride[LIST_VIEWS];
};

bool list_has(const struct list *list, int v, int i) {
    return list->view[v].tensors != NULL && tensor_is_present(&list->view[v].tensors[i]);
}

/* Dims are walked in the order of the strides of a tensor that is written, where there is one: any order will do, and
 * tensors that are all transposed in the same way are dense. */
static int leading_view(const struct list *list) {
    for (int v = 0; v < list->views; v++)
        if (list->view[v].written && list->view[v].tensors != NULL && !list->view[v].optional)
            return v;
    return 0;
}

static int collect_dims(const struct list *list, int i, struct walk_dim *dims) {
    const clattn_tensor *first = &list->view[0].tensors[i];
    const int lead = leading_view(list);
    int used = 0;
    for (int d = 0; d < first->rank; d++) {
        struct walk_dim dim = {.size = first->dims[d]};
        if (dim.size == 1)
            continue;
        for (int v = 0; v < list->views; v++)
            dim.stride[v] = list_has(list, v, i) ? list->view[v].tensors[i].strides[d] : 0;
        int at = used++;
        for (; at > 0 && dims[at - 1].stride[lead] < dim.stride[lead]; at--)
            dims[at] = dims[at - 1];
        dims[at] = dim;
    }
    return used;
}

static bool merges(const struct walk_dim *slow, const struct walk_dim *fast) {
    for (int v = 0; v < LIST_VIEWS; v++) {
        const int64_t factors[] = {fast->stride[v], fast->size};
        if (slow->stride[v] != check_product(factors, 2))
            return false;
    }
    return true;
}

/* Neighbours that walk on evenly in all tensors become one. */
static int merge_dims(struct walk_dim *dims, int count) {
    int used = 0;
    for (int d = 0; d < count; d++) {
        if (used > 0 && merges(&dims[used - 1], &dims[d])) {
            const int64_t size = dims[used - 1].size * dims[d].size;
            dims[used - 1] = dims[d];
            dims[used - 1].size = size;
        } else {
            dims[used++] = dims[d];
        }
    }
    return used;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* Of the merged dims: neighbours in every tensor, and rows at multiples of 16 bytes. */
static bool is_dense(const struct list *list, int i, const struct walk_dim *fastest) {
    for (int v = 0; v < list->views; v++)
        if (list_has(list, v, i) && fastest->stride[v] != 1)
            return false;
    return true;
}

static bool is_aligned(const struct list *list, int i, const struct walk_dim *dims, int count) {
    for (int v = 0; v < list->views; v++) {
        if (!list_has(list, v, i))
            continue;
        clattn_tensor merged = list->view[v].tensors[i];
        merged.rank = count;
        for (int d = 0; d < count; d++) {
            merged.dims[d] = dims[d].size;
            merged.strides[d] = dims[d].stride[v];
        }
        if (!check_aligned(&merged, 16))
            return false;
    }
    return true;
}

/* A packet is 16 bytes of the widest tensor; a CPU's vectors take two. */
static int widest_vector(const struct list_class *class, const struct choice *choice) {
    const int given = parameters_get(&choice->parameters, "vector", 0);
    bool narrow = true;
    for (int v = 0; v < LIST_VIEWS; v++)
        narrow = narrow && class->dtype[v] != CLATTN_F32;
    return given > 0 ? given : narrow || (choice->facts.caps & CAP_BIT(CAP_CPU)) != 0 ? 8 : 4;
}

static void classify(const struct list *list, int i, const struct choice *choice, const struct walk_dim *dims,
                     int count, struct list_class *class) {
    const struct walk_dim none = {.size = 1}, *fastest = count > 0 ? &dims[count - 1] : &none;
    memset(class, 0, sizeof *class);
    for (int v = 0; v < list->views; v++)
        class->dtype[v] = list_has(list, v, i) ? (int32_t)list->view[v].tensors[i].dtype : 0;
    class->vector = widest_vector(class, choice);
    const bool dense = count == 0 || is_dense(list, i, fastest);
    class->dense = dense && count <= 1;
    class->aligned = dense && class->vector > 1 && is_aligned(list, i, count > 0 ? dims : &none, count > 0 ? count : 1);
    if (!class->dense && (!class->aligned || fastest->size % class->vector != 0)) {
        class->vector = 1;
        class->aligned = 0;
    }
}

clattn_status list_add_walk(struct list_plan *plan, const struct choice *choice, int i) {
    const struct list *list = plan->list;
    struct list_walk *walk = &plan->walks[plan->count];
    struct walk_dim dims[CLATTN_MAX_RANK];
    struct list_class class;
    const int count = merge_dims(dims, collect_dims(list, i, dims));
    classify(list, i, choice, dims, count, &class);
    int c = 0;
    while (c < plan->classes && memcmp(&plan->class[c], &class, sizeof class) != 0)
        c++;
    RETURN_IF(c == LIST_CLASSES, CLATTN_INTERNAL_ERROR, "a list of more than %d classes", LIST_CLASSES);
    if (c == plan->classes)
        plan->class[plan->classes++] = class;
    plan->members[c]++;
    *walk = (struct list_walk){.index = i, .class = c, .count = 1, .dim = {1, 1, 1, 1}};
    for (int d = 0; d < count; d++) {
        walk->count *= dims[d].size;
        walk->dim[CLATTN_MAX_RANK - count + d] = dims[d].size;
        for (int v = 0; v < list->views; v++)
            walk->stride[v][CLATTN_MAX_RANK - count + d] = dims[d].stride[v];
    }
    plan->count++;
    return CLATTN_SUCCESS;
}
