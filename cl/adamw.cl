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

struct adamw {
    global byte_t *param, *copy, *m, *v;
    global const byte_t *grad;
    struct list_part part;
    float inverse, beta1, beta2, fresh1, fresh2; /* fresh: 1 - beta */
    float decay, step, root, eps;                /* lr * weight_decay; lr and sqrt(v)'s factor, corrected */
};

static inline void adamw_block(const struct adamw *given, uint index, bool whole) {
    packet_t weight[PACKETS], gradient[PACKETS], first[PACKETS], second[PACKETS];
    LIST_FOR_EACH_PACKET(i) {
        weight[i] = list_load(given->param, &given->part, 0, LIST_INDEX(index, i), whole, DTYPE_F32);
        gradient[i] = list_load(given->grad, &given->part, 1, LIST_INDEX(index, i), whole, GRAD_DTYPE);
        first[i] = list_load(given->m, &given->part, 3, LIST_INDEX(index, i), whole, DTYPE_F32);
        second[i] = list_load(given->v, &given->part, 4, LIST_INDEX(index, i), whole, DTYPE_F32);
    }
    LIST_FOR_EACH_PACKET(i) {
        gradient[i] *= given->inverse;
        first[i] = given->beta1 * first[i] + given->fresh1 * gradient[i];
        second[i] = given->beta2 * second[i] + given->fresh2 * (gradient[i] * gradient[i]);
        weight[i] -= given->decay * weight[i];
        weight[i] -= given->step * (first[i] / (sqrt(second[i]) * given->root + given->eps));
        list_store(given->m, &given->part, 3, LIST_INDEX(index, i), whole, first[i], DTYPE_F32);
        list_store(given->v, &given->part, 4, LIST_INDEX(index, i), whole, second[i], DTYPE_F32);
        list_store(given->param, &given->part, 0, LIST_INDEX(index, i), whole, weight[i], DTYPE_F32);
        list_store(given->copy, &given->part, 2, LIST_INDEX(index, i), whole, weight[i], COPY_DTYPE);
    }
}

/* 1 - beta^t loses its digits where beta is close to 1, expm1 keeps them. */
static inline void adamw_correct(struct adamw *adamw, float lr, int steps, float log_beta1, float log_beta2) {
    const float t = (float)steps + 1.0f;
    adamw->step = lr / -expm1(t * log_beta1);
    adamw->root = 1.0f / sqrt(-expm1(t * log_beta2));
}

#define ARGUMENTS(t)                                                                                    \
    global byte_t *param##t, global const byte_t *grad##t, global byte_t *copy##t, global byte_t *m##t, \
        global byte_t *v##t,
#define TAKE(t)                                   \
    if ((long)get_group_id(0) >= list.first[t]) { \
        list_take(&adamw.part, &list, t);         \
        adamw.param = param##t;                   \
        adamw.grad = grad##t;                     \
        adamw.copy = copy##t;                     \
        adamw.m = m##t;                           \
        adamw.v = v##t;                           \
    }
#define STEP(index, whole) adamw_block(&adamw, index, whole)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
adamw(LIST_EACH(ARGUMENTS) const struct list list, global const int *overflow, global const float *scale,
      global const float *rate, global const int *steps, const struct optimizer given) {
    struct adamw adamw;
    if (optimizer_skips(overflow, &given))
        return;
    LIST_EACH(TAKE)
    list_cut(&adamw.part, &list);
    const float lr = optimizer_rate(rate, &given);
    adamw.inverse = scale_inverse(scale, given.scale_at);
    adamw.beta1 = given.setting[0];
    adamw.beta2 = given.setting[1];
    adamw.fresh1 = given.setting[2];
    adamw.fresh2 = given.setting[3];
    adamw.eps = given.setting[6];
    adamw.decay = lr * given.weight_decay;
    adamw_correct(&adamw, lr, steps[given.steps_at], given.setting[4], given.setting[5]);
    LIST_FOR_EACH_BLOCK(&adamw.part, STEP)
}
