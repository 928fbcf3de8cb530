/* The model of a ring: each step takes as long as the slower of computing and transferring. */
#include "ring_model.h"

struct ring_prediction ring_predict(const struct ring_model *model) {
    const double steps = model->ranks;
    const double compute = model->alone_s * model->share / steps;
    const double transfer = model->block_bytes / model->link_bytes_s;
    const double waiting = transfer > compute ? transfer - compute : 0;
    struct ring_prediction prediction = {.waiting_s = (steps - 1) * waiting};
    prediction.seconds = steps * (compute + model->call_s) + prediction.waiting_s;
    return prediction;
}
