/* How decode attention splits the keys of a block of rows over work-groups. Pure: real lengths are known to the device
 * alone, where splits beyond a sequence's last key leave at once. */
#ifndef CLATTN_ATTENTION_SPLIT_H
#define CLATTN_ATTENTION_SPLIT_H

#include "device.h"

struct attention_split {
    int64_t splits; /* at least 1 */
    int64_t chunk;  /* keys of one split: a multiple of the block of keys */
};

/* What is to be split. */
struct attention_split_task {
    int64_t blocks;     /* of rows, of all sequences and kv heads together */
    int64_t rows;       /* of one block */
    int64_t keys;       /* that a block sees at most */
    int64_t block_keys; /* what chunks are multiples of */
};

/* As many splits as fill the device (16 work-groups a unit of a GPU, 4 of a CPU), so that sequences of different lengths
 * balance; but chunks of at least 128 keys (CPU: 512) and of 16 keys a row, so that partial results, which are written
 * and read again, stay few beside keys and values. */
struct attention_split attention_split_of(const struct device_facts *facts, const struct attention_split_task *task);

/* With a given chunk, or where that is 0 with a given number of splits: both rounded to what the keys need. */
struct attention_split attention_split_given(const struct attention_split_task *task, int64_t chunk, int64_t splits);

#endif
