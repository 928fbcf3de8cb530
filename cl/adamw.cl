/* A step of AdamW on fp32 weights and moments. */

/* Parameters, beside those of list.clh: numbers of clattn_dtype. */
#ifndef GRAD_DTYPE
#define GRAD_DTYPE 1
#endif
#ifndef COPY_DTYPE
#define COPY_DTYPE 0 /* 0: there is no copy */
#endif

#define VIEWS 5
#include "list.clh"
#include "optimizer.clh"

#define ARGUMENTS(t)                                                                                    \
    global byte_t *param##t, global const byte_t *grad##t, global byte_t *copy##t, global byte_t *m##t, \
        global byte_t *v##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&part, &list, t);               \
        param = param##t;                         \
        grad = grad##t;                           \
        copy = copy##t;                           \
        m = m##t;                                 \
        v = v##t;                                 \
    }

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
adamw(LIST_EACH(ARGUMENTS) const struct list list, global const int *overflow, global const float *scale,
      global const float *rate, global const int *steps, const struct optimizer given) {
    global byte_t *param = 0, *copy = 0, *m = 0, *v = 0;
    global const byte_t *grad = 0;
    struct list_part part;
    if (optimizer_skips(overflow, &given))
        return;
    LIST_EACH(TAKE)
    list_cut(&part, &list);
    /* 1 - beta^t loses its digits where beta is close to 1, expm1 keeps them. */
    const float t = (float)steps[given.steps_at] + 1.0f;
    const float correction1 = -expm1(t * given.setting[4]), correction2 = -expm1(t * given.setting[5]);
    const float beta1 = given.setting[0], beta2 = given.setting[1], fresh1 = given.setting[2],
                fresh2 = given.setting[3];
    const float lr = optimizer_rate(rate, &given), inverse = scale_inverse(scale, given.scale_at);
    const float step = lr / correction1, root = 1.0f / sqrt(correction2), decay = lr * given.weight_decay;
    LIST_FOR_EACH_BLOCK(index, &part) {
        packet_t weight[PACKETS], gradient[PACKETS], first[PACKETS], second[PACKETS];
        LIST_FOR_EACH_PACKET(i) {
            weight[i] = list_load(param, &part, 0, LIST_INDEX(index, i), DTYPE_F32);
            gradient[i] = list_load(grad, &part, 1, LIST_INDEX(index, i), GRAD_DTYPE);
            first[i] = list_load(m, &part, 3, LIST_INDEX(index, i), DTYPE_F32);
            second[i] = list_load(v, &part, 4, LIST_INDEX(index, i), DTYPE_F32);
        }
        LIST_FOR_EACH_PACKET(i) {
            gradient[i] *= inverse;
            first[i] = beta1 * first[i] + fresh1 * gradient[i];
            second[i] = beta2 * second[i] + fresh2 * (gradient[i] * gradient[i]);
            weight[i] -= decay * weight[i];
            weight[i] -= step * (first[i] / (sqrt(second[i]) * root + given.setting[6]));
            list_store(m, &part, 3, LIST_INDEX(index, i), first[i], DTYPE_F32);
            list_store(v, &part, 4, LIST_INDEX(index, i), second[i], DTYPE_F32);
            list_store(param, &part, 0, LIST_INDEX(index, i), weight[i], DTYPE_F32);
            list_store(copy, &part, 2, LIST_INDEX(index, i), weight[i], COPY_DTYPE);
        }
    }
}
