/* A model of the machine that attention's pipeline is written for, so far as its kernels see it through the contracts
 * of tile/nvidia_wgmma.clh and stage/nvidia_bulk.clh. A work-group is a thread, its work-items are coroutines that
 * change places wherever they meet or wait, in an order that the seed decides. Copies and products take place at any
 * time between being asked for and being waited for; until then what they write is NaN. */
#ifndef MACHINE_H
#define MACHINE_H

#include <clattn/clattn.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_ARGUMENTS = 24, MACHINE_ARGUMENT_BYTES = 1024 };

struct machine_argument {
    size_t size; /* of a pointer or number at most 8 bytes, else a struct */
    unsigned char bytes[MACHINE_ARGUMENT_BYTES];
};

struct machine_memory {
    const unsigned char *begin;
    size_t size;
};

struct machine_launch {
    void (*kernel)(void); /* compiled by compile.py */
    int groups, items;
    clattn_dtype operands; /* CLATTN_F16 or CLATTN_BF16: what the matrix unit multiplies */
    uint64_t seed;
    int argument_count;
    struct machine_argument argument[MACHINE_ARGUMENTS];
    struct machine_memory memory[MACHINE_ARGUMENTS]; /* where tensors may lie; size 0 ends the list */
};

/* Runs all work-groups at once. NULL, or the first rule that was broken: an arrival too many, a copy to or from where
 * there is nothing, a product of unfinished registers, work-items that wait for what never comes, or no end in time. */
const char *machine_run(const struct machine_launch *launch);

#endif
