/* What the machine's files share: work-groups, work-items, and how these wait. */
#ifndef MACHINE_CORE_H
#define MACHINE_CORE_H

#include "machine.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

enum {
    WARP = 32,
    MOST_ITEMS = 512,
    MOST_WARPS = MOST_ITEMS / WARP,
    MOST_COLUMNS = 256, /* of a product */
    MOST_ASYNC = 128,   /* of a work-item, under way */
    LOCAL_BYTES = 232448,
    LOCAL_START = 1024, /* the first address; less is none */
    NAMED_BARRIERS = 16
};

/* Where a fixed number of work-items meet, again and again. */
struct meeting {
    int arrived;
    uint32_t rounds;
};

/* A barrier in local memory. */
struct phase {
    bool ready;
    int count, arrivals; /* of a phase, and those that are still to come */
    long bytes;          /* that are still to come */
    uint32_t phases;     /* that have ended */
};

/* A product that was asked for. Sums lie in the work-item's registers, as the left operand may. */
struct product {
    float *sums;
    const uint32_t *left; /* in registers; NULL: in local memory */
    uint64_t a, b;        /* operands in local memory, as matrix descriptors */
    int a_rows, b_rows;
    int columns, depth;
    bool values; /* the right operand lies as rows of columns, and sums are added to */
    float before[MOST_COLUMNS / 2];
};

/* 16 bytes, of which those after `bytes` become zeros. */
struct async_copy {
    void *to;
    const void *from;
    int bytes, size; /* of the source, and of the place, whose rest becomes 0 */
};

struct item {
    ucontext_t start;
    jmp_buf place; /* where it goes on */
    int id;
    bool started, ended;
    const struct meeting *meeting; /* what it waits at, or NULL */
    uint32_t round;
    const struct phase *phase; /* the same */
    uint32_t parity;
    uint32_t posted[2], exchanges;
    const void *address[2];
    uint32_t operand[2][6]; /* four registers of the left operand, two of the right one */
    struct async_copy async[MOST_ASYNC];
    int async_count;
    struct product product[2]; /* that have not taken place */
    int products, asked;
    bool registers_complete;
    int registers;
};

struct copy; /* machine_copy.c */

struct group {
    const struct machine_launch *launch;
    int id;
    uint64_t random;
    bool failed;
    struct item *items, *current;
    char *stacks;
    jmp_buf scheduler;
    struct meeting whole, warp[MOST_WARPS], named[NAMED_BARRIERS];
    unsigned char *local; /* LOCAL_BYTES from LOCAL_START on */
    int local_size;       /* that the kernel has asked for */
    struct phase phase[LOCAL_BYTES / 8];
    struct copy *copies; /* under way */
    int copy_count;
};

extern _Thread_local struct group *group;

/* Ends the run: by a work-item (does not return), or noted only. */
_Noreturn void machine_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void machine_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint32_t machine_random(struct group *of, uint32_t below);
/* The current work-item arrives at a meeting of `items`, and waits for the others unless it only passes. */
void machine_meet(struct meeting *meeting, int items, bool waits);
void machine_meet_warp(void);
/* Lets others run until the current work-item's reason to wait is gone. */
void machine_pause(void);

/* Bytes of local memory; fails where they are not all within what the kernel has. */
unsigned char *machine_local_bytes(uint32_t address, int bytes, const char *what);
/* Completes some of the copies, or all; false where there was none. Called by the scheduler. */
bool machine_complete_copies(struct group *of, bool all);

/* The matrix unit's numbers, from their 16 bits. */
float machine_number(uint16_t bits);
void machine_numbers_begin(clattn_dtype dtype);

#endif
