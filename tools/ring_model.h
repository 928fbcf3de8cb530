/* How long attention over ranks should take, from what one device takes and how fast bytes move: a pure function. */
#ifndef TOOLS_RING_MODEL_H
#define TOOLS_RING_MODEL_H

struct ring_model {
    int ranks;
    double alone_s;      /* one device for the whole problem */
    double share;        /* of that work, of the busiest rank: 1 / ranks where it is balanced */
    double block_bytes;  /* that go round in a step */
    double link_bytes_s; /* from a device to the next through host memory: all copies on the way together */
    double call_s;       /* what a step costs the host and the device besides: launches, agreement, merge */
};

/* Seconds of the whole, and of the steps in which the device waits for a block that is still on its way. A rank
 * computes on one block while the next one comes in; the last step has none to wait for. */
struct ring_prediction {
    double seconds, waiting_s;
};
struct ring_prediction ring_predict(const struct ring_model *model);

#endif
