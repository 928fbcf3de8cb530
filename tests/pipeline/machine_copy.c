/* Local memory, the barriers in it, and the copy engine. What is under way to a place makes that place NaN until it has
 * arrived, so that who reads too early, or frees too early what is still being read, does not go unnoticed. */
#include "machine_core.h"

#include <stdlib.h>
#include <string.h>

enum { PANEL_COLUMNS = 64, ROW_BYTES = 128, CHUNK_BYTES = 16, MAP_ALIGN = 128, MOST_BOX = 256 };

#define MAP_MARK 0x6d61704dU

/* What a kernel makes and copies by; strides in bytes. */
struct map {
    const unsigned char *base;
    int64_t stride[3];
    int32_t dim[4];
    int32_t box_rows;
    uint32_t mark;
};

struct copy {
    struct map map;
    uint32_t to, barrier;
    int32_t at[4]; /* column, row, inner, outer */
};

/* Called by kernels through stage_model.clh. */
void *machine_local(int bytes);
uint32_t machine_local_address(const void *at);
void machine_local_post(uint32_t at, int value);
int machine_local_take(uint32_t at);
void machine_phase_init(uint32_t at, int count);
void machine_phase_arrive(uint32_t at);
void machine_phase_expect(uint32_t at, int bytes);
void machine_phase_wait(uint32_t at, uint32_t parity);
void machine_map_fill(uint32_t map, const void *base, int64_t row, int64_t inner, int64_t outer, int columns, int rows,
                      int inners, int outers, int box_rows);
void machine_tile_copy(uint32_t to, const void *map, int column, int row, int inner, int outer, uint32_t barrier);

/* ---- local memory ------------------------------------------------------------------------------------------------ */

void *machine_local(int bytes) {
    if (bytes > LOCAL_BYTES - LOCAL_START)
        machine_fail("%d bytes of local memory", bytes);
    group->local_size = bytes;
    return group->local;
}

uint32_t machine_local_address(const void *at) {
    return (uint32_t)((const unsigned char *)at - group->local) + LOCAL_START;
}

unsigned char *machine_local_bytes(uint32_t address, int bytes, const char *what) {
    const int64_t first = (int64_t)address - LOCAL_START;
    if (first < 0 || first + bytes > group->local_size)
        machine_fail("%s: %d bytes at %u, outside the %d of local memory", what, bytes, address, group->local_size);
    return group->local + first;
}

void machine_local_post(uint32_t at, int value) {
    memcpy(machine_local_bytes(at, 4, "a number that is posted"), &value, sizeof value);
}

int machine_local_take(uint32_t at) {
    int value;
    memcpy(&value, machine_local_bytes(at, 4, "a number that is taken"), sizeof value);
    return value;
}

/* ---- barriers ---------------------------------------------------------------------------------------------------- */

static struct phase *phase_at(uint32_t at) {
    (void)machine_local_bytes(at, 8, "a barrier");
    if (at % 8 != 0 || !group->phase[at / 8].ready)
        machine_fail("there is no barrier at %u", at);
    return &group->phase[at / 8];
}

static void end_phase(struct phase *phase) {
    if (phase->arrivals > 0 || phase->bytes != 0)
        return;
    phase->arrivals = phase->count;
    phase->phases++;
}

static void arrive(uint32_t at, int bytes) {
    struct phase *phase = phase_at(at);
    if (phase->arrivals == 0)
        machine_fail("an arrival too many at the barrier %u, before its bytes have come", at);
    phase->arrivals--;
    phase->bytes += bytes;
    end_phase(phase);
}

void machine_phase_init(uint32_t at, int count) {
    (void)machine_local_bytes(at, 8, "a barrier");
    if (at % 8 != 0 || group->phase[at / 8].ready)
        machine_fail("a barrier is made at %u, where there is one or none can be", at);
    group->phase[at / 8] = (struct phase){.ready = true, .count = count, .arrivals = count};
}

void machine_phase_arrive(uint32_t at) {
    arrive(at, 0);
}

void machine_phase_expect(uint32_t at, int bytes) {
    arrive(at, bytes);
}

/* Who is overtaken by a whole round would wait for the wrong phase. */
void machine_phase_wait(uint32_t at, uint32_t parity) {
    struct phase *phase = phase_at(at);
    const uint32_t before = phase->phases;
    group->current->phase = phase;
    group->current->parity = parity;
    machine_pause();
    if (phase->phases > before + 1)
        machine_fail("two phases of the barrier %u ended while it waited for one", at);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

/* The copy engine knows no stride of 0. */
static int64_t map_stride(int64_t bytes) {
    return bytes > 0 ? bytes : CHUNK_BYTES;
}

static void check_map(const struct map *map) {
    if ((uintptr_t)map->base % CHUNK_BYTES != 0)
        machine_fail("a map's tensor starts at no multiple of %d bytes", CHUNK_BYTES);
    for (int i = 0; i < 4; i++)
        if (map->dim[i] < 1)
            machine_fail("dim %d of a map is %d", i, map->dim[i]);
    for (int i = 0; i < 3; i++)
        if (map->stride[i] % CHUNK_BYTES != 0 || map->stride[i] >= INT64_C(1) << 40)
            machine_fail("stride %d of a map is %lld bytes", i, (long long)map->stride[i]);
    if (map->box_rows < 1 || map->box_rows > MOST_BOX)
        machine_fail("a map's box has %d rows", map->box_rows);
}

static void check_extent(const struct map *map) {
    const unsigned char *end = map->base + (map->dim[0] * 2);
    for (int i = 0; i < 3; i++)
        end += (map->dim[i + 1] - 1) * map->stride[i];
    for (const struct machine_memory *memory = group->launch->memory; memory->size > 0; memory++)
        if (map->base >= memory->begin && end <= memory->begin + memory->size)
            return;
    machine_fail("a map's tensor lies outside every buffer");
}

void machine_map_fill(uint32_t at, const void *base, int64_t row, int64_t inner, int64_t outer, int columns, int rows,
                      int inners, int outers, int box_rows) {
    const struct map map = {.base = base,
                            .stride = {map_stride(row), map_stride(inner), map_stride(outer)},
                            .dim = {columns, rows, inners, outers},
                            .box_rows = box_rows,
                            .mark = MAP_MARK};
    check_map(&map);
    check_extent(&map);
    if (at % MAP_ALIGN != 0)
        machine_fail("a map lies at %u", at);
    memcpy(machine_local_bytes(at, MAP_ALIGN, "a map"), &map, sizeof map);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static struct copy *new_copy(void) {
    group->copies = realloc(group->copies, (size_t)(group->copy_count + 1) * sizeof *group->copies);
    if (!group->copies)
        abort();
    return &group->copies[group->copy_count++];
}

void machine_tile_copy(uint32_t to, const void *map, int column, int row, int inner, int outer, uint32_t barrier) {
    struct map known;
    memcpy(&known, map, sizeof known);
    if ((uintptr_t)map % MAP_ALIGN != 0 || known.mark != MAP_MARK)
        machine_fail("a copy by what is no map");
    if (to % ROW_BYTES != 0)
        machine_fail("a copy to %u", to);
    (void)phase_at(barrier);
    memset(machine_local_bytes(to, known.box_rows * ROW_BYTES, "a copy"), 0xff, (size_t)(known.box_rows * ROW_BYTES));
    *new_copy() = (struct copy){.map = known, .to = to, .barrier = barrier, .at = {column, row, inner, outer}};
}

/* Where chunk c of a row of 128 bytes lies: places follow from addresses alone. */
static uint32_t chunk_address(uint32_t row, uint32_t chunk) {
    return row + (chunk ^ (row / ROW_BYTES % 8)) * CHUNK_BYTES;
}

static uint16_t element_of(const struct copy *copy, int column, int row) {
    const struct map *map = &copy->map;
    const int32_t at[4] = {copy->at[0] + column, copy->at[1] + row, copy->at[2], copy->at[3]};
    const unsigned char *from = map->base + at[0] * 2;
    uint16_t bits;
    for (int i = 0; i < 4; i++)
        if (at[i] < 0 || at[i] >= map->dim[i])
            return 0;
    for (int i = 0; i < 3; i++)
        from += at[i + 1] * map->stride[i];
    memcpy(&bits, from, sizeof bits);
    return bits;
}

static void complete(struct group *of, const struct copy *copy) {
    struct phase *phase = &of->phase[copy->barrier / 8];
    for (int row = 0; row < copy->map.box_rows; row++)
        for (int column = 0; column < PANEL_COLUMNS; column++) {
            const uint16_t bits = element_of(copy, column, row);
            const uint32_t chunk = chunk_address(copy->to + (uint32_t)row * ROW_BYTES, (uint32_t)column / 8);
            memcpy(of->local + (chunk - LOCAL_START) + column % 8 * 2, &bits, sizeof bits);
        }
    phase->bytes -= copy->map.box_rows * ROW_BYTES;
    end_phase(phase);
}

bool machine_complete_copies(struct group *of, bool all) {
    const int count = of->copy_count;
    for (int i = of->copy_count - 1; i >= 0; i--)
        if (all || machine_random(of, 3) == 0) {
            const struct copy copy = of->copies[i];
            of->copies[i] = of->copies[--of->copy_count];
            complete(of, &copy);
        }
    return of->copy_count < count;
}
