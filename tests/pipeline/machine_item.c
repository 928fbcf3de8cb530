/* What kernels ask of work-items: who they are, meetings, exchanges inside a warp, and the processor's functions.
 * Called through the models and builtins.cl. */
#include "machine_core.h"
#include "reference.h"

#include <math.h>

int machine_local_id(void);
int machine_group_id(void);
int machine_group_count(void);
void machine_group_barrier(void);
void machine_warp_meet(void);
void machine_turn(int id, int items, int waits);
void machine_registers(int count);
uint32_t machine_exchange(uint32_t value, int lane);
int machine_any(int condition);
uint32_t machine_atomic_add(volatile uint32_t *at, uint32_t value);
float machine_from_half(uint16_t bits);
uint16_t machine_to_half(float value);
float machine_exp2(float x);

int machine_local_id(void) {
    return group->current->id;
}

int machine_group_id(void) {
    return group->id;
}

int machine_group_count(void) {
    return group->launch->groups;
}

void machine_group_barrier(void) {
    machine_meet(&group->whole, group->launch->items, true);
}

void machine_warp_meet(void) {
    machine_meet_warp();
}

void machine_turn(int id, int items, int waits) {
    if (id < 1 || id >= NAMED_BARRIERS || items % WARP != 0)
        machine_fail("named barrier %d of %d work-items", id, items);
    machine_meet(&group->named[id], items, waits != 0);
}

void machine_registers(int count) {
    if (count < 24 || count > 240 || count % 8 != 0)
        machine_fail("%d registers", count);
    group->current->registers = count;
}

/* Two places in turn: nobody is two exchanges ahead. */
uint32_t machine_exchange(uint32_t value, int lane) {
    struct item *item = group->current;
    const uint32_t slot = item->exchanges++ % 2;
    item->posted[slot] = value;
    machine_meet_warp();
    return group->items[item->id / WARP * WARP + lane].posted[slot];
}

int machine_any(int condition) {
    struct item *item = group->current;
    const struct item *warp = &group->items[item->id / WARP * WARP];
    const uint32_t slot = item->exchanges++ % 2;
    int any = 0;
    item->posted[slot] = (uint32_t)condition;
    machine_meet_warp();
    for (int i = 0; i < WARP; i++)
        any |= warp[i].posted[slot] != 0;
    return any;
}

uint32_t machine_atomic_add(volatile uint32_t *at, uint32_t value) {
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}

float machine_from_half(uint16_t bits) {
    return (float)reference_decode(CLATTN_F16, &bits, 0);
}

uint16_t machine_to_half(float value) {
    uint16_t bits;
    reference_encode(CLATTN_F16, &bits, 0, (double)value);
    return bits;
}

/* What would be subnormal is 0. */
float machine_exp2(float x) {
    const float y = exp2f(x);
    return fabsf(y) < 0x1p-126F ? 0 : y;
}
