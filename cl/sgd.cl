/* A step of stochastic gradient descent on fp32 weights. */

/* Parameters, beside those of list.clh: numbers of clattn_dtype. */
#ifndef GRAD_DTYPE
#define GRAD_DTYPE 1
#endif
#ifndef COPY_DTYPE
#define COPY_DTYPE 0 /* 0: there is no copy */
#endif
#ifndef VELOCITY_DTYPE
#define VELOCITY_DTYPE 0 /* 0: no momentum; else 1 */
#endif
#ifndef NESTEROV
#define NESTEROV 0
#endif

#define VIEWS 4
#include "list.clh"
#include "optimizer.clh"

#define ARGUMENTS(t) \
    global byte_t *param##t, global const byte_t *grad##t, global byte_t *copy##t, global byte_t *velocity##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&part, &list, t);               \
        param = param##t;                         \
        grad = grad##t;                           \
        copy = copy##t;                           \
        velocity = velocity##t;                   \
    }

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
sgd(LIST_EACH(ARGUMENTS) const struct list list, global const int *overflow, global const float *scale,
    global const float *rate, global const int *steps, const struct optimizer given) {
    global byte_t *param = 0, *copy = 0, *velocity = 0;
    global const byte_t *grad = 0;
    struct list_part part;
    if (optimizer_skips(overflow, &given))
        return;
    LIST_EACH(TAKE)
    list_cut(&part, &list);
    const bool begins = steps && steps[given.steps_at] == 0;
    const float momentum = given.setting[0], fresh = given.setting[1];
    const float lr = optimizer_rate(rate, &given), inverse = scale_inverse(scale, given.scale_at);
    LIST_FOR_EACH_BLOCK(index, &part) {
        packet_t weight[PACKETS], gradient[PACKETS], speed[PACKETS];
        LIST_FOR_EACH_PACKET(i) {
            weight[i] = list_load(param, &part, 0, LIST_INDEX(index, i), DTYPE_F32);
            gradient[i] = list_load(grad, &part, 1, LIST_INDEX(index, i), GRAD_DTYPE);
            speed[i] = list_load(velocity, &part, 3, LIST_INDEX(index, i), VELOCITY_DTYPE);
        }
        LIST_FOR_EACH_PACKET(i) {
            gradient[i] = gradient[i] * inverse + given.weight_decay * weight[i];
            if (VELOCITY_DTYPE != 0) {
                speed[i] = begins ? gradient[i] : momentum * speed[i] + fresh * gradient[i];
                gradient[i] = NESTEROV ? gradient[i] + momentum * speed[i] : speed[i];
                list_store(velocity, &part, 3, LIST_INDEX(index, i), speed[i], VELOCITY_DTYPE);
            }
            weight[i] -= lr * gradient[i];
            list_store(param, &part, 0, LIST_INDEX(index, i), weight[i], DTYPE_F32);
            list_store(copy, &part, 2, LIST_INDEX(index, i), weight[i], COPY_DTYPE);
        }
    }
}
