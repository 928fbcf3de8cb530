/* Whole numbers from -1 to 1, so that sums stay below 256 and are exact in every dtype also as left operands. One NaN
 * and one infinity stand in V: the product must be as if they were zeros. */
#include "selftest_tile.h"
#include "half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TILES = 2 };

struct extents {
    int rows, cols, depth;
};

static struct extents extents_of(const struct tile_shape *shape) {
    return (struct extents){shape->groups * shape->m, TILES * shape->n, 2 * shape->k};
}

static int small(int index, int salt) {
    const unsigned x = (unsigned)index * 2654435761u + (unsigned)salt * 40503u;
    return (int)((x >> 13) % 3u) - 1;
}

static int a_at(const struct extents *e, int row, int k) {
    return small(row * e->depth + k, 1);
}

static int bt_at(const struct extents *e, int col, int k) {
    return small(col * e->depth + k, 2);
}

static bool is_nan_place(int key, int col) {
    return key == 1 && col == 2;
}

static bool is_infinite_place(int key, int col) {
    return key == 3 && col == 0;
}

static int v_at(const struct extents *e, int key, int col) {
    return is_nan_place(key, col) || is_infinite_place(key, col) ? 0 : small(key * e->cols + col, 3);
}

static int s_at(const struct extents *e, int row, int col) {
    int sum = 0;
    for (int k = 0; k < e->depth; k++)
        sum += a_at(e, row, k) * bt_at(e, col, k);
    return sum;
}

size_t selftest_tile_in_size(const struct tile_shape *shape, clattn_dtype dtype) {
    const struct extents e = extents_of(shape);
    return (size_t)((e.rows + e.cols) * e.depth + e.cols * e.cols) * clattn_dtype_size(dtype);
}

size_t selftest_tile_out_size(const struct tile_shape *shape) {
    const struct extents e = extents_of(shape);
    return (size_t)(2 * e.rows * e.cols + 2 * e.rows + 1) * sizeof(float);
}

void selftest_tile_options(const struct tile_shape *shape, clattn_dtype dtype, char *text, size_t size) {
    char tile[256];
    tile_options(shape, "plain", tile, sizeof tile);
    snprintf(text, size, "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DALIGNED=1 -DSTAGE_SLOTS=1", tile, (int)dtype, CLATTN_F32);
}

static void put(void *in, size_t index, clattn_dtype dtype, float value) {
    if (dtype == CLATTN_F32)
        ((float *)in)[index] = value;
    else
        ((uint16_t *)in)[index] =
            dtype == CLATTN_F16 ? half_from_double((double)value) : bf16_from_double((double)value);
}

void selftest_tile_fill(const struct tile_shape *shape, clattn_dtype dtype, void *in) {
    const struct extents e = extents_of(shape);
    size_t index = 0;
    for (int row = 0; row < e.rows; row++)
        for (int k = 0; k < e.depth; k++)
            put(in, index++, dtype, (float)a_at(&e, row, k));
    for (int col = 0; col < e.cols; col++)
        for (int k = 0; k < e.depth; k++)
            put(in, index++, dtype, (float)bt_at(&e, col, k));
    for (int key = 0; key < e.cols; key++)
        for (int col = 0; col < e.cols; col++)
            put(in, index++, dtype,
                is_nan_place(key, col)        ? NAN
                : is_infinite_place(key, col) ? INFINITY
                                              : (float)v_at(&e, key, col));
}

static bool row_holds(const struct extents *e, int row, const float *s, const float *r, float top, float sum) {
    int largest = -e->depth, total = 0;
    for (int col = 0; col < e->cols; col++) {
        const int expected = s_at(e, row, col);
        int product = 0;
        for (int key = 0; key < e->cols; key++)
            product += s_at(e, row, key) * v_at(e, key, col);
        largest = expected > largest ? expected : largest;
        total += expected;
        if (s[col] != (float)expected || r[col] != (float)product)
            return false;
    }
    return top == (float)largest && sum == (float)total;
}

bool selftest_tile_holds(const struct tile_shape *shape, const void *out) {
    const struct extents e = extents_of(shape);
    const float *s = out, *r = s + e.rows * e.cols, *top = r + e.rows * e.cols, *sum = top + e.rows;
    int32_t met = 0;
    memcpy(&met, sum + e.rows, sizeof met);
    for (int row = 0; row < e.rows; row++)
        if (!row_holds(&e, row, s + row * e.cols, r + row * e.cols, top[row], sum[row]))
            return false;
    return met >= 1 && met <= 2;
}
