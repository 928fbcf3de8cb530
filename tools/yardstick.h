/* What the device itself can do, measured in the same run: the yardstick for every speed. */
#ifndef TOOLS_YARDSTICK_H
#define TOOLS_YARDSTICK_H

#include "machine.h"

struct yardstick {
    double copy_bytes_per_second; /* read + written; the better of clEnqueueCopyBuffer and a kernel */
    uint64_t copy_bytes;          /* each way */
    double flops_per_second;      /* fp32 multiply-adds in registers, two operations each */
};

/* A copy slower than the device is known to be means that something disturbed the run: then a remark says so. */
int yardstick_measure(const struct machine *machine, struct yardstick *out);

#endif
