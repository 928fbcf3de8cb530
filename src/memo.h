/* What a call worked out for one kind of problem, kept for the next call of that kind: found by the bytes that decide
 * it, so that a warm call composes no text. Bounded; what does not fit is worked out again. Safe from several threads.
 */
#ifndef CLATTN_MEMO_H
#define CLATTN_MEMO_H

#include "os.h"

struct memo {
    os_mutex lock;
    struct memo_entry **bucket;
    size_t count;
};

void memo_init(struct memo *memo);
void memo_free(struct memo *memo);

/* Copies the value that was kept under the key; false where there is none of that size. Keys are compared byte by byte:
 * clear a struct before filling it, so that padding is equal. */
bool memo_find(struct memo *memo, const void *key, size_t key_size, void *value, size_t value_size);

/* Keeps a copy, the first one where several threads bring one. */
void memo_keep(struct memo *memo, const void *key, size_t key_size, const void *value, size_t value_size);

#endif
