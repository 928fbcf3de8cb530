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

struct sgd {
    global byte_t *param, *copy, *velocity;
    global const byte_t *grad;
    struct list_part part;
    float inverse, lr, weight_decay, momentum, fresh; /* fresh: 1 - dampening */
    bool begins;
};

static inline void sgd_block(const struct sgd *given, uint index, bool whole) {
    packet_t weight[PACKETS], gradient[PACKETS], speed[PACKETS];
    LIST_FOR_EACH_PACKET(i) {
        weight[i] = list_load(given->param, &given->part, 0, LIST_INDEX(index, i), whole, DTYPE_F32);
        gradient[i] = list_load(given->grad, &given->part, 1, LIST_INDEX(index, i), whole, GRAD_DTYPE);
        speed[i] = list_load(given->velocity, &given->part, 3, LIST_INDEX(index, i), whole, VELOCITY_DTYPE);
    }
    LIST_FOR_EACH_PACKET(i) {
        gradient[i] = gradient[i] * given->inverse + given->weight_decay * weight[i];
        if (VELOCITY_DTYPE != 0) {
            speed[i] = given->begins ? gradient[i] : given->momentum * speed[i] + given->fresh * gradient[i];
            gradient[i] = NESTEROV ? gradient[i] + given->momentum * speed[i] : speed[i];
            list_store(given->velocity, &given->part, 3, LIST_INDEX(index, i), whole, speed[i], VELOCITY_DTYPE);
        }
        weight[i] -= given->lr * gradient[i];
        list_store(given->param, &given->part, 0, LIST_INDEX(index, i), whole, weight[i], DTYPE_F32);
        list_store(given->copy, &given->part, 2, LIST_INDEX(index, i), whole, weight[i], COPY_DTYPE);
    }
}

#define ARGUMENTS(t) \
    global byte_t *param##t, global const byte_t *grad##t, global byte_t *copy##t, global byte_t *velocity##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&sgd.part, &list, t);           \
        sgd.param = param##t;                     \
        sgd.grad = grad##t;                       \
        sgd.copy = copy##t;                       \
        sgd.velocity = velocity##t;               \
    }
#define STEP(index, whole) sgd_block(&sgd, index, whole)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
sgd(LIST_EACH(ARGUMENTS) const struct list list, global const int *overflow, global const float *scale,
    global const float *rate, global const int *steps, const struct optimizer given) {
    struct sgd sgd;
    if (optimizer_skips(overflow, &given))
        return;
    LIST_EACH(TAKE)
    list_cut(&sgd.part, &list);
    sgd.inverse = scale_inverse(scale, given.scale_at);
    sgd.lr = optimizer_rate(rate, &given);
    sgd.weight_decay = given.weight_decay;
    sgd.momentum = given.setting[0];
    sgd.fresh = given.setting[1];
    sgd.begins = steps && steps[given.steps_at] == 0;
    LIST_FOR_EACH_BLOCK(&sgd.part, STEP)
}
