/* Work-groups and work-items: their threads and coroutines, meetings, and the scheduler that notices when none can go
 * on. */
#include "machine_core.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STACK_BYTES = 96 * 1024, SECONDS = 60, SECONDS_AFTER_FAULT = 1 };

_Thread_local struct group *group;

/* Of the whole run. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int running;
static char fault[512];

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void note(const char *format, va_list arguments) {
    pthread_mutex_lock(&mutex);
    if (fault[0] == '\0') {
        const int used = group->current ? snprintf(fault, sizeof fault, "work-group %d, work-item %d: ", group->id,
                                                   group->current->id)
                                        : snprintf(fault, sizeof fault, "work-group %d: ", group->id);
        vsnprintf(fault + used, sizeof fault - (size_t)used, format, arguments);
    }
    group->failed = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

void machine_note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    note(format, arguments);
    va_end(arguments);
}

void machine_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    note(format, arguments);
    va_end(arguments);
    _longjmp(group->scheduler, 1);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

uint32_t machine_random(struct group *of, uint32_t below) {
    of->random ^= of->random << 13;
    of->random ^= of->random >> 7;
    of->random ^= of->random << 17;
    return (uint32_t)(of->random >> 33) % below;
}

static bool can_run(const struct item *item) {
    if (item->ended || (item->meeting && item->meeting->rounds == item->round))
        return false;
    return !item->phase || item->phase->phases % 2 != item->parity;
}

void machine_pause(void) {
    struct item *item = group->current;
    while (!can_run(item))
        if (_setjmp(item->place) == 0)
            _longjmp(group->scheduler, 1);
    item->meeting = NULL;
    item->phase = NULL;
}

void machine_meet(struct meeting *meeting, int items, bool waits) {
    struct item *item = group->current;
    item->round = meeting->rounds;
    if (++meeting->arrived == items) {
        meeting->arrived = 0;
        meeting->rounds++;
    } else if (waits) {
        item->meeting = meeting;
        machine_pause();
    }
}

void machine_meet_warp(void) {
    machine_meet(&group->warp[group->current->id / WARP], WARP, true);
}

/* ---- one work-group ---------------------------------------------------------------------------------------------- */

/* Words that a by-value struct takes on the stack, and so all arguments behind the registers. */
struct on_stack {
    uint64_t word[96];
};

/* As the x86-64 System V ABI passes them: six numbers or pointers in registers, the rest and all large structs behind
 * each other in memory. */
static void call_kernel(const struct machine_launch *launch) {
    typedef void (*entry)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, struct on_stack);
    uint64_t in_register[6] = {0};
    struct on_stack stack = {{0}};
    size_t registers = 0, words = 0;
    for (int i = 0; i < launch->argument_count; i++) {
        const struct machine_argument *argument = &launch->argument[i];
        if (argument->size <= 8 && registers < 6) {
            memcpy(&in_register[registers++], argument->bytes, argument->size);
            continue;
        }
        if (words + (argument->size + 7) / 8 > sizeof stack / sizeof *stack.word)
            machine_fail("arguments do not fit the stack");
        memcpy(&stack.word[words], argument->bytes, argument->size);
        words += (argument->size + 7) / 8;
    }
    const entry call = (entry)launch->kernel;
    call(in_register[0], in_register[1], in_register[2], in_register[3], in_register[4], in_register[5], stack);
}

static void run_item(void) {
    call_kernel(group->launch);
    group->current->ended = true;
    _longjmp(group->scheduler, 1);
}

static void begin_items(struct group *of) {
    for (int i = 0; i < of->launch->items; i++) {
        struct item *item = &of->items[i];
        item->id = i;
        getcontext(&item->start);
        item->start.uc_stack.ss_sp = of->stacks + (size_t)i * STACK_BYTES;
        item->start.uc_stack.ss_size = STACK_BYTES;
        makecontext(&item->start, run_item, 0);
    }
}

/* Lets the current work-item go on until it waits. Contexts are for the first time only: changing them costs a call of
 * the system. */
static void resume(struct group *of) {
    struct item *item = of->current;
    if (_setjmp(of->scheduler) != 0)
        return;
    if (item->started)
        _longjmp(item->place, 1);
    item->started = true;
    setcontext(&item->start);
}

/* Runs those of a warp that can; false where none could. */
static bool run_warp(struct group *of, int warp) {
    bool ran = false;
    for (int i = warp * WARP; i < (warp + 1) * WARP && !of->failed; i++) {
        if (!can_run(&of->items[i]))
            continue;
        of->current = &of->items[i];
        resume(of);
        of->current = NULL;
        ran = true;
    }
    return ran;
}

/* All warps once in an order that is drawn; now and then one is left out. */
static bool run_warps(struct group *of, bool all) {
    int order[MOST_WARPS] = {0};
    bool ran = false;
    const int warps = of->launch->items / WARP;
    for (int i = 1; i < warps; i++) {
        const int at = (int)machine_random(of, (uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < warps && !of->failed; i++)
        if (all || machine_random(of, 4) != 0)
            ran |= run_warp(of, order[i]);
    return ran;
}

static int unended(const struct group *of) {
    int count = 0;
    for (int i = 0; i < of->launch->items; i++)
        count += !of->items[i].ended;
    return count;
}

static void describe_stuck(const struct group *of) {
    const struct item *item = of->items;
    while (item->ended)
        item++;
    if (item->phase)
        machine_note("%d work-items wait for ever, the first, %d, for parity %u at the barrier %ld, of which %d "
                     "arrivals and %ld bytes are to come",
                     unended(of), item->id, item->parity, 8 * (long)(item->phase - of->phase), item->phase->arrivals,
                     item->phase->bytes);
    else
        machine_note("%d work-items wait for ever, the first, %d, at a meeting of which %d have come", unended(of),
                     item->id, item->meeting->arrived);
}

/* What the kernel must not leave behind, and registers that were not there to be taken. */
static void check_end(const struct group *of) {
    const int items = of->launch->items, fair = 65536 / items / 8 * 8, share = fair < 255 ? fair : 255;
    long registers = 0;
    for (int i = 0; i < items; i++)
        registers += of->items[i].registers ? of->items[i].registers : share;
    if (registers > (long)share * items)
        machine_note("work-items take %ld registers of %ld", registers, (long)share * items);
    for (int i = 0; i < NAMED_BARRIERS; i++)
        if (of->named[i].arrived > 0)
            machine_note("%d work-items have passed the named barrier %d, and the kernel has ended",
                         of->named[i].arrived, i);
    if (of->copy_count > 0)
        machine_note("the kernel has ended before %d copies", of->copy_count);
}

static void schedule(struct group *of) {
    while (!of->failed && unended(of) > 0)
        if (!run_warps(of, false) && !run_warps(of, true) && !of->failed && !machine_complete_copies(of, true))
            describe_stuck(of);
        else
            machine_complete_copies(of, false);
    if (!of->failed)
        check_end(of);
}

static void free_group(struct group *of) {
    free(of->items);
    free(of->stacks);
    free(of->local);
    free(of->copies);
    free(of);
}

static struct group *new_group(const struct machine_launch *launch, int id) {
    struct group *of = calloc(1, sizeof *of);
    if (!of)
        abort();
    of->launch = launch;
    of->id = id;
    of->random = (launch->seed * 64 + (uint64_t)id + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    of->items = calloc((size_t)launch->items, sizeof *of->items);
    of->stacks = malloc((size_t)launch->items * STACK_BYTES);
    of->local = aligned_alloc(1024, LOCAL_BYTES);
    if (!of->items || !of->stacks || !of->local)
        abort();
    memset(of->local, 0xff, LOCAL_BYTES);
    begin_items(of);
    return of;
}

static void *run_group(void *argument) {
    group = argument;
    schedule(group);
    free_group(group);
    pthread_mutex_lock(&mutex);
    running--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void start_groups(const struct machine_launch *launch) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < launch->groups; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, run_group, new_group(launch, i)) != 0)
            abort();
    }
    pthread_attr_destroy(&detached);
}

/* A work-group that waits for another which has failed does so for ever. The mutex is held. */
static void wait_for_groups(void) {
    struct timespec end;
    bool hurried = false;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SECONDS;
    while (running > 0) {
        if (fault[0] != '\0' && !hurried) {
            clock_gettime(CLOCK_REALTIME, &end);
            end.tv_sec += SECONDS_AFTER_FAULT;
            hurried = true;
        }
        if (pthread_cond_timedwait(&changed, &mutex, &end) == ETIMEDOUT)
            break;
    }
    if (running > 0 && fault[0] == '\0')
        snprintf(fault, sizeof fault, "%d work-groups have not ended after %d seconds", running, SECONDS);
}

/* A run that never ended still looks at its launch, and is the last: its fault remains. */
const char *machine_run(const struct machine_launch *launch) {
    struct machine_launch *own = malloc(sizeof *own);
    if (!own)
        abort();
    *own = *launch;
    pthread_mutex_lock(&mutex);
    if (running == 0) {
        fault[0] = '\0';
        running = launch->groups;
        machine_numbers_begin(launch->operands);
        start_groups(own);
        wait_for_groups();
    }
    if (running == 0)
        free(own);
    pthread_mutex_unlock(&mutex);
    return fault[0] == '\0' ? NULL : fault;
}
