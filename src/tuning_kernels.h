/* Which kernel sources an operation's figures rest on, as a hash: a row that was measured with others is out of date.
 */
#ifndef CLATTN_TUNING_KERNELS_H
#define CLATTN_TUNING_KERNELS_H

#include "variant.h"

#define TUNING_KERNELS_ALL BACKEND_ANY /* of rows that prefer: whatever any variant of the operation is made of */

/* Writes 16 hexadecimal digits of the operation's kernel files and all that they include. Of the tile back-ends only
 * `backend`'s counts, or all where it is none of cl/tile/. dir: see source_expand(). False where a file cannot be read
 * or memory is short. */
bool tuning_kernels_hash(const char *dir, clattn_op_kind op, enum backend backend, char text[17]);

/* The operation's own files of cl/, NULL past the last. */
const char *tuning_kernels_file(clattn_op_kind op, size_t index);

#endif
