/* How decode attention splits the keys of a block of rows over work-groups. Pure: real lengths are known to the device
 * alone, where splits beyond a sequence's last key leave at once. */
#ifndef CLATTN_ATTENTION_SPLIT_H
#define CLATTN_ATTENTION_SPLIT_H

#include "device.h"

#include <stdbool.h>

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
    int64_t resident;   /* work-groups that a unit holds at once; 0: not known */
    bool even;          /* all blocks see as many keys, as far as the host knows */
};

/* As many splits as give a unit of a GPU 16 work-groups (of a CPU 4), so that sequences of different lengths balance;
 * but chunks of at least 128 keys (CPU: 512) and of 32 keys a row (CPU: 16), so that partial results, which are written
 * and read again, stay few beside keys and values. Smaller chunks, of 128 keys, where units would be left empty
 * otherwise. Where blocks are even, splits that all fit at once and take three of four places come before that: they
 * end together. (On an H200, 64 sequences of 1024 keys take 72 us so and 89 us in twice as many work-groups, which do
 * not fit.) Work-groups so large that a unit holds one or two run in waves: even blocks get the fewest splits that
 * leave hardly more of the waves' places free than any others. */
struct attention_split attention_split_of(const struct device_facts *facts, const struct attention_split_task *task);

/* With a given chunk, or where that is 0 with a given number of splits: both rounded to what the keys need. */
struct attention_split attention_split_given(const struct attention_split_task *task, int64_t chunk, int64_t splits);

#endif
