/* Instructions of one warp, or of one work-item, that tile/nvidia_mma.clh and stage/nvidia_cp_async.clh are made of:
 * PTX ISA, "ldmatrix", "Matrix fragments for mma.m16n8k16", "cp.async". Called by kernels through mma_model.clh. */
#include "machine_core.h"

#include <string.h>

enum { CHUNK_BYTES = 16, WORD_BYTES = 4, MATRIX_ROWS = 8, QUAD = 4 };

void machine_ldmatrix(uint32_t address, int transposed, uint32_t *words);
void machine_mma(float *sums, const uint32_t *a, uint32_t b0, uint32_t b1);
void machine_async_copy(void *to, const void *from, int bytes);
void machine_async_piece(void *to, const void *from, int bytes, int inside);
void machine_async_wait(void);

static const struct item *warp_of(const struct item *item) {
    return &group->items[item->id / WARP * WARP];
}

/* Local memory is what the thread has: one piece, of which the lower half of an address tells the place. */
static const void *local_place(uint32_t address) {
    const char *near = (const char *)&group;
    return near + (int32_t)(address - (uint32_t)(uintptr_t)near);
}

/* Lane 8 m + r gives the address of row r of matrix m. */
void machine_ldmatrix(uint32_t address, int transposed, uint32_t *words) {
    struct item *item = group->current;
    const struct item *warp = warp_of(item);
    const int lane = item->id % WARP, major = lane / QUAD, minor = lane % QUAD * 2;
    const uint32_t slot = item->exchanges++ % 2;
    if (address % CHUNK_BYTES != 0)
        machine_fail("ldmatrix from a misaligned place");
    item->address[slot] = local_place(address);
    machine_meet_warp();
    for (int matrix = 0; matrix < 4; matrix++) {
        const struct item *rows = warp + matrix * MATRIX_ROWS;
        const uint16_t *first = rows[transposed ? minor : major].address[slot];
        const uint16_t *second = rows[transposed ? minor + 1 : major].address[slot];
        words[matrix] = transposed ? first[major] | (uint32_t)second[major] << 16
                                   : first[minor] | (uint32_t)second[minor + 1] << 16;
    }
}

static float half_of(uint32_t word, int k) {
    return machine_number((uint16_t)(word >> 16 * (k % 2)));
}

/* Element k of a row of A, given that of the quad which holds it: registers of columns 0 .. 7, then of 8 .. 15. */
static float left_at(const struct item *quad, uint32_t slot, int half, int k) {
    return half_of(quad[k % 8 / 2].operand[slot][k / 8 * 2 + half], k);
}

static float right_at(const struct item *quad, uint32_t slot, int k) {
    return half_of(quad[k % 8 / 2].operand[slot][4 + k / 8], k);
}

/* sums[16 x 8] += a[16 x 16] * b[16 x 8]: rows g and g + 8, columns 2t and 2t + 1 are this lane's. */
void machine_mma(float *sums, const uint32_t *a, uint32_t b0, uint32_t b1) {
    struct item *item = group->current;
    const struct item *warp = warp_of(item);
    const int lane = item->id % WARP;
    const uint32_t slot = item->exchanges++ % 2;
    memcpy(item->operand[slot], a, 4 * sizeof *a);
    item->operand[slot][4] = b0;
    item->operand[slot][5] = b1;
    machine_meet_warp();
    for (int i = 0; i < 4; i++) {
        const struct item *row = warp + lane / QUAD * QUAD, *column = warp + (lane % QUAD * 2 + i % 2) * QUAD;
        for (int k = 0; k < 16; k++)
            sums[i] += left_at(row, slot, i / 2, k) * right_at(column, slot, k);
    }
}

/* ---- asynchronous copies ----------------------------------------------------------------------------------------- */

static void complete(const struct async_copy *copy) {
    memset(copy->to, 0, (size_t)copy->size);
    memcpy(copy->to, copy->from, (size_t)copy->bytes);
}

static void check_source(const unsigned char *from, int bytes, int size) {
    const struct machine_memory *memory = group->launch->memory;
    if ((uintptr_t)from % (uintptr_t)size != 0)
        machine_fail("a copy from a misaligned place");
    for (int i = 0; i < MACHINE_ARGUMENTS && memory[i].size > 0; i++)
        if (from >= memory[i].begin && from + bytes <= memory[i].begin + memory[i].size)
            return;
    machine_fail("a copy from outside of all buffers");
}

/* Until it is complete, at some time before it is waited for, there is NaN. */
static void copy(void *to, const void *from, int bytes, int size) {
    struct item *item = group->current;
    if (item->async_count == MOST_ASYNC || bytes < 0 || bytes > size || (uintptr_t)to % (uintptr_t)size != 0)
        machine_fail("copy %d of %d bytes, to %p", item->async_count, bytes, to);
    if (bytes > 0)
        check_source(from, bytes, size);
    memset(to, 0xff, (size_t)size);
    item->async[item->async_count++] = (struct async_copy){to, from, bytes, size};
    if (machine_random(group, 4) == 0)
        complete(&item->async[--item->async_count]);
}

void machine_async_copy(void *to, const void *from, int bytes) {
    copy(to, from, bytes, CHUNK_BYTES);
}

void machine_async_piece(void *to, const void *from, int bytes, int inside) {
    copy(to, from, inside, bytes == CHUNK_BYTES ? CHUNK_BYTES : WORD_BYTES);
}

void machine_async_wait(void) {
    struct item *item = group->current;
    while (item->async_count > 0)
        complete(&item->async[--item->async_count]);
}
