/* Input and judgement of cl/selftest_tile.cl for any tile back-end and dtype: used by the self-test of matrix units and
 * by the tests of the tile contract. */
#ifndef CLATTN_SELFTEST_TILE_H
#define CLATTN_SELFTEST_TILE_H

#include "tile_size.h"

size_t selftest_tile_in_size(const struct tile_shape *shape, clattn_dtype dtype);
size_t selftest_tile_out_size(const struct tile_shape *shape);
void selftest_tile_options(const struct tile_shape *shape, clattn_dtype dtype, char *text, size_t size);
void selftest_tile_fill(const struct tile_shape *shape, clattn_dtype dtype, void *in);
/* out must have been all zero bytes before the kernel ran. */
bool selftest_tile_holds(const struct tile_shape *shape, const void *out);

#endif
