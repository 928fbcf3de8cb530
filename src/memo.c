/* A fixed number of buckets: a program meets some dozens of kinds of problems, and the bound keeps chains short. */
#include "memo.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BUCKETS = 256, MOST = 4096 };

struct memo_entry {
    struct memo_entry *next;
    size_t key_size, value_size;
    unsigned char bytes[]; /* key, value */
};

void memo_init(struct memo *memo) {
    memset(memo, 0, sizeof *memo);
    os_mutex_init(&memo->lock);
}

void memo_free(struct memo *memo) {
    for (size_t i = 0; memo->bucket != NULL && i < BUCKETS; i++)
        for (struct memo_entry *entry = memo->bucket[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            free(entry);
        }
    free(memo->bucket);
    os_mutex_destroy(&memo->lock);
}

static size_t bucket_of(const void *key, size_t key_size) {
    return (size_t)(XXH64(key, key_size, 0) % BUCKETS);
}

/* The memo is locked. */
static const struct memo_entry *lookup(const struct memo *memo, const void *key, size_t key_size) {
    const struct memo_entry *entry = memo->bucket != NULL ? memo->bucket[bucket_of(key, key_size)] : NULL;
    while (entry != NULL && (entry->key_size != key_size || memcmp(entry->bytes, key, key_size) != 0))
        entry = entry->next;
    return entry;
}

bool memo_find(struct memo *memo, const void *key, size_t key_size, void *value, size_t value_size) {
    os_lock(&memo->lock);
    const struct memo_entry *entry = lookup(memo, key, key_size);
    const bool found = entry != NULL && entry->value_size == value_size;
    if (found)
        memcpy(value, entry->bytes + key_size, value_size);
    os_unlock(&memo->lock);
    return found;
}

void memo_keep(struct memo *memo, const void *key, size_t key_size, const void *value, size_t value_size) {
    struct memo_entry *entry = malloc(sizeof *entry + key_size + value_size);
    if (entry == NULL)
        return;
    entry->key_size = key_size;
    entry->value_size = value_size;
    memcpy(entry->bytes, key, key_size);
    memcpy(entry->bytes + key_size, value, value_size);
    os_lock(&memo->lock);
    if (memo->bucket == NULL)
        memo->bucket = calloc(BUCKETS, sizeof(struct memo_entry *));
    if (memo->bucket != NULL && memo->count < MOST && lookup(memo, key, key_size) == NULL) {
        struct memo_entry **place = &memo->bucket[bucket_of(key, key_size)];
        entry->next = *place;
        *place = entry;
        memo->count++;
        entry = NULL;
    }
    os_unlock(&memo->lock);
    free(entry);
}
