/* The matrix unit: products of 64 rows by a tile group, each at any time until it is waited for. A work-item computes
 * the sums that it holds; its left operand, where it lies in registers, is spread over the four lanes of a row. */
#include "machine_core.h"
#include "reference.h"

#include <math.h>
#include <string.h>

enum { ROW_BYTES = 128, ATOM_BYTES = 1024, GROUP_WARPS = 4, PANEL_COLUMNS = 64 };

/* Called by kernels through tile_model.clh. */
uint32_t machine_pack(float low, float high);
void machine_operand_load(uint32_t *registers, uint32_t address, int rows, int columns);
void machine_products_begin(void);
void machine_scores(float *sums, const uint32_t *held, uint64_t q, int q_rows, uint64_t k, int keys, int depth);
void machine_values(float *sums, const uint32_t *p, uint64_t v, int columns, int keys);
void machine_products_wait(int pending);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static clattn_dtype number_dtype;
static float numbers[65536];

void machine_numbers_begin(clattn_dtype dtype) {
    for (uint32_t i = 0; i < 65536 && dtype != number_dtype; i++) {
        const uint16_t bits = (uint16_t)i;
        numbers[i] = (float)reference_decode(dtype, &bits, 0);
    }
    number_dtype = dtype;
}

float machine_number(uint16_t bits) {
    return numbers[bits];
}

uint32_t machine_pack(float low, float high) {
    uint16_t bits[2];
    reference_encode(number_dtype, bits, 0, (double)low);
    reference_encode(number_dtype, bits, 1, (double)high);
    return bits[0] | (uint32_t)bits[1] << 16;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static uint32_t descriptor_address(uint64_t descriptor) {
    return (uint32_t)(descriptor & 0x3fff) << 4;
}

/* Bytes between panels of 64 columns, where the descriptor tells. */
static uint32_t descriptor_panel(uint64_t descriptor) {
    return (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
}

/* Local memory holds what `rows` by `columns` need. */
static void check_operand(uint64_t descriptor, int rows, int columns, uint32_t panel) {
    const uint32_t address = descriptor_address(descriptor);
    const int panels = (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    if (address % ATOM_BYTES != 0 || descriptor >> 62 != 1 || (descriptor >> 32 & 0x3fff) != ATOM_BYTES >> 4)
        machine_fail("an operand's descriptor is %llx", (unsigned long long)descriptor);
    (void)machine_local_bytes(address, (int)panel * (panels - 1) + rows * ROW_BYTES, "an operand");
}

static float element(uint32_t address, uint32_t panel, int row, int column) {
    const uint32_t start = address + (uint32_t)(column / PANEL_COLUMNS) * panel + (uint32_t)row * ROW_BYTES;
    const uint32_t chunk = (uint32_t)(column % PANEL_COLUMNS / 8) ^ (start / ROW_BYTES % 8);
    uint16_t bits;
    memcpy(&bits, group->local + (start - LOCAL_START) + chunk * 16 + (uint32_t)(column % 8) * 2, sizeof bits);
    return numbers[bits];
}

static int lane_of(const struct item *item) {
    return item->id % WARP;
}

/* The item's first row in the product; its other one is 8 below. */
static int row_of(const struct item *item) {
    return item->id / WARP % GROUP_WARPS * 16 + lane_of(item) / 4;
}

/* Register 4s + 2h + r holds columns 16s + 8h + 2t and the next one of row 8r, t the lane in its four. */
static float held_element(const struct item *item, int number, int half, int column) {
    const int lane = lane_of(item) / 4 * 4 + column % 8 / 2;
    const struct item *holder = &group->items[item->id / WARP * WARP + lane];
    const uint32_t *left = holder->product[number].left;
    const uint32_t both = left[column / 16 * 4 + column % 16 / 8 * 2 + half];
    return numbers[column % 2 ? both >> 16 : both & 0xffff];
}

void machine_operand_load(uint32_t *registers, uint32_t address, int rows, int columns) {
    const struct item *item = group->current;
    const uint32_t panel = (uint32_t)rows * ROW_BYTES;
    (void)machine_local_bytes(address, (int)panel * ((columns - 1) / PANEL_COLUMNS) + 64 * ROW_BYTES, "an operand");
    for (int i = 0; i < columns / 4; i++) {
        const int row = row_of(item) + i % 2 * 8, column = i / 4 * 16 + i % 4 / 2 * 8 + lane_of(item) % 4 * 2;
        registers[i] = machine_pack(element(address, panel, row, column), element(address, panel, row, column + 1));
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void take_left(const struct item *item, int number, int half, float *left) {
    const struct product *product = &item->product[number];
    for (int i = 0; i < product->depth; i++)
        left[i] = product->left ? held_element(item, number, half, i)
                                : element(descriptor_address(product->a), (uint32_t)product->a_rows * ROW_BYTES,
                                          row_of(item) + half * 8, i);
}

/* One column of the right operand. */
static void take_right(const struct product *product, int column, float *right) {
    const uint32_t address = descriptor_address(product->b);
    const uint32_t panel = product->values ? descriptor_panel(product->b) : (uint32_t)product->b_rows * ROW_BYTES;
    for (int i = 0; i < product->depth; i++)
        right[i] = product->values ? element(address, panel, i, column) : element(address, panel, column, i);
}

static void compute(const struct item *item, int number) {
    const struct product *product = &item->product[number];
    float left[2][MOST_COLUMNS], right[MOST_COLUMNS];
    take_left(item, number, 0, left[0]);
    take_left(item, number, 1, left[1]);
    for (int i = 0; i < product->columns / 8 * 2; i++) {
        take_right(product, i / 2 * 8 + lane_of(item) % 4 * 2 + i % 2, right);
        for (int half = 0; half < 2; half++) {
            const int at = i / 2 * 4 + half * 2 + i % 2;
            float sum = product->values ? product->before[at] : 0;
            for (int d = 0; d < product->depth; d++)
                sum += left[half][d] * right[d];
            product->sums[at] = sum;
        }
    }
}

/* The oldest `count` take place; registers stay as they are until all lanes have read them. */
static void finish(int count) {
    struct item *item = group->current;
    machine_meet_warp();
    for (int i = 0; i < count; i++)
        compute(item, i);
    machine_meet_warp();
    item->products -= count;
    memmove(item->product, item->product + count, (size_t)item->products * sizeof *item->product);
}

/* The same for all lanes of a warp, another for each product. */
static bool takes_place_at_once(const struct item *item) {
    const uint64_t mixed =
        (group->launch->seed + (uint64_t)(item->id / WARP) * 77 + (uint64_t)item->asked) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed >> 63;
}

/* Until it has taken place the sums are nobody's. */
static void ask(const struct product *product) {
    struct item *item = group->current;
    if (!item->registers_complete)
        machine_fail("a product before products_begin()");
    if (item->products == 2)
        machine_fail("three products are under way");
    struct product *own = &item->product[item->products++];
    *own = *product;
    for (int i = 0; i < own->columns / 2; i++) {
        own->before[i] = own->values ? own->sums[i] : 0;
        own->sums[i] = NAN;
    }
    item->registers_complete = false;
    item->asked++;
    if (takes_place_at_once(item))
        finish(item->products);
}

void machine_products_begin(void) {
    group->current->registers_complete = true;
}

void machine_scores(float *sums, const uint32_t *held, uint64_t q, int q_rows, uint64_t k, int keys, int depth) {
    const struct product product = {
        .sums = sums, .left = held, .a = q, .a_rows = q_rows, .b = k, .b_rows = keys, .columns = keys, .depth = depth};
    if (!held)
        check_operand(q, 64, depth, (uint32_t)q_rows * ROW_BYTES);
    check_operand(k, keys, depth, (uint32_t)keys * ROW_BYTES);
    ask(&product);
}

void machine_values(float *sums, const uint32_t *p, uint64_t v, int columns, int keys) {
    const struct product product = {
        .sums = sums, .left = p, .b = v, .b_rows = keys, .columns = columns, .depth = keys, .values = true};
    check_operand(v, keys, columns, descriptor_panel(v));
    ask(&product);
}

void machine_products_wait(int pending) {
    const int due = group->current->products - pending;
    if (due > 0)
        finish(due);
}
