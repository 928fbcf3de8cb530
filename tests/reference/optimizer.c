/* One element of a step of AdamW and of SGD, in double precision and the plain way in fp32, and the loss scale's
 * rule. */
#include "reference.h"

#include <math.h>

void reference_adamw(const struct reference_optimizer *step, double grad, double *param, double *m, double *v) {
    const double g = grad / step->scale, t = (double)step->number;
    *param -= step->lr * step->weight_decay * *param;
    *m = step->beta1 * *m + (1 - step->beta1) * g;
    *v = step->beta2 * *v + (1 - step->beta2) * g * g;
    *param -= step->lr * (*m / (1 - pow(step->beta1, t))) / (sqrt(*v / (1 - pow(step->beta2, t))) + step->eps);
}

void plain_adamw(const struct reference_optimizer *step, double grad, double *param, double *m, double *v) {
    const float lr = (float)step->lr, beta1 = (float)step->beta1, beta2 = (float)step->beta2;
    const float correction1 = (float)(1 - pow(step->beta1, (double)step->number)),
                correction2 = (float)(1 - pow(step->beta2, (double)step->number));
    const float g = (float)grad * (1 / (float)step->scale);
    float p = (float)*param;
    p -= lr * (float)step->weight_decay * p;
    const float first = beta1 * (float)*m + (1 - beta1) * g, second = beta2 * (float)*v + (1 - beta2) * (g * g);
    p -= lr / correction1 * (first / (sqrtf(second) / sqrtf(correction2) + (float)step->eps));
    *param = (double)p;
    *m = (double)first;
    *v = (double)second;
}

void reference_sgd(const struct reference_optimizer *step, double grad, double *param, double *velocity) {
    double d = grad / step->scale + step->weight_decay * *param;
    if (step->momentum != 0) {
        *velocity = step->begins ? d : step->momentum * *velocity + (1 - step->dampening) * d;
        d = step->nesterov ? d + step->momentum * *velocity : *velocity;
    }
    *param -= step->lr * d;
}

void plain_sgd(const struct reference_optimizer *step, double grad, double *param, double *velocity) {
    const float momentum = (float)step->momentum;
    float p = (float)*param, d = (float)grad * (1 / (float)step->scale) + (float)step->weight_decay * p;
    if (step->momentum != 0) {
        const float speed = step->begins ? d : momentum * (float)*velocity + (1 - (float)step->dampening) * d;
        d = step->nesterov ? d + momentum * speed : speed;
        *velocity = (double)speed;
    }
    *param = (double)(p - (float)step->lr * d);
}

void reference_loss_scale(const struct reference_scale_rule *rule, bool overflow, struct reference_scale *state) {
    state->steps++;
    if (overflow) {
        state->scale = fmax(state->scale * rule->backoff, rule->least);
        state->good = 0;
        state->overflows++;
        return;
    }
    if (++state->good < rule->interval)
        return;
    state->scale = fmin(state->scale * rule->growth, rule->most);
    state->good = 0;
}
