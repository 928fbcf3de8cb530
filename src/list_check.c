/* Checks of lists of tensors. Names with an index are put together only for the message of a refusal: a list may hold
 * hundreds of tensors, and a call is made for every step of a training. */
#include "list.h"
#include "status.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_ELEMENTS (INT64_C(1) << 40)

static clattn_status check_entry_as(clattn_context *context, const struct list *list, int v, int i, const char *name) {
    const struct list_view *view = &list->view[v];
    const clattn_tensor *tensor = &view->tensors[i], *like = &list->view[0].tensors[i];
    FORWARD(check_tensor(context, name, tensor, view->written ? CHECK_OUTPUT : CHECK_INPUT));
    FORWARD(check_dtype(name, tensor, view->dtypes));
    FORWARD(check_rank(name, tensor, like->rank));
    for (int d = 0; d < like->rank; d++)
        FORWARD(check_dim(name, tensor, d, like->dims[d], v == 0 ? "" : list->view[0].name));
    RETURN_IF(check_product(tensor->dims, tensor->rank) > MOST_ELEMENTS, CLATTN_INVALID_ARGUMENT,
              "%s has more than 2^40 elements", name);
    return CLATTN_SUCCESS;
}

static clattn_status check_entry(clattn_context *context, const struct list *list, int v, int i) {
    const struct list_view *view = &list->view[v];
    char name[48];
    if (view->tensors == NULL || (view->optional && !tensor_is_present(&view->tensors[i])))
        return CLATTN_SUCCESS;
    if (check_entry_as(context, list, v, i, view->name) == CLATTN_SUCCESS)
        return CLATTN_SUCCESS;
    if (!list->single)
        snprintf(name, sizeof name, "%s[%d]", view->name, i);
    return check_entry_as(context, list, v, i, list->single ? view->name : name);
}

clattn_status list_check(clattn_context *context, const struct list *list, int64_t *elements) {
    *elements = 0;
    RETURN_IF(list->count < 0, CLATTN_INVALID_ARGUMENT, "count = %d is negative", list->count);
    for (int v = 0; v < list->views; v++)
        RETURN_IF(list->count > 0 && list->view[v].tensors == NULL && !list->view[v].optional, CLATTN_INVALID_ARGUMENT,
                  "%s is NULL, count is %d", list->view[v].name, list->count);
    for (int i = 0; i < list->count; i++) {
        for (int v = 0; v < list->views; v++)
            FORWARD(check_entry(context, list, v, i));
        const clattn_tensor *first = &list->view[0].tensors[i];
        RETURN_IF(__builtin_add_overflow(*elements, check_product(first->dims, first->rank), elements),
                  CLATTN_INVALID_ARGUMENT, "%s: more elements than 64 bits count", list->view[0].name);
    }
    return CLATTN_SUCCESS;
}

/* ---- overlaps ---------------------------------------------------------------------------------------------------- */

static bool counts(const clattn_tensor *tensor) {
    return tensor_is_present(tensor) && !tensor_is_empty(tensor);
}

/* An input that a written view of its entry takes the place of is that view. */
static bool is_replaced(const struct list *list, int v, int i) {
    for (int w = 1; v == 0 && w < list->views; w++) {
        const struct list_view *view = &list->view[w];
        if (view->in_place && view->tensors != NULL && counts(&view->tensors[i]) &&
            check_same_place(&view->tensors[i], &list->view[0].tensors[i]))
            return true;
    }
    return false;
}

static int gather(const struct list *list, const struct check_named *scalars, int outputs, int count,
                  struct check_member *members) {
    int used = 0;
    for (int v = 0; v < list->views; v++)
        for (int i = 0; i < list->count && list->view[v].tensors != NULL; i++) {
            const clattn_tensor *tensor = &list->view[v].tensors[i];
            if (counts(tensor) && !is_replaced(list, v, i))
                members[used++] = (struct check_member){
                    list->view[v].name, list->single ? -1 : i, list->view[v].written, tensor, {0}};
        }
    for (int s = 0; s < count; s++)
        if (counts(scalars[s].tensor))
            members[used++] = (struct check_member){scalars[s].name, -1, s < outputs, scalars[s].tensor, {0}};
    return used;
}

clattn_status list_check_apart(const struct list *list, const struct check_named *scalars, int outputs, int count) {
    const size_t most = (size_t)list->count * (size_t)list->views + (size_t)count;
    struct check_member *members = malloc((most > 0 ? most : 1) * sizeof *members);
    RETURN_IF(members == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no host memory to compare %zu tensors", most);
    const int used = gather(list, scalars, outputs, count, members);
    const clattn_status status = check_members_disjoint(members, used);
    free(members);
    return status;
}
