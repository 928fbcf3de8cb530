/* Program binaries on disk, one file an entry.
 *
 * Key: XXH128 of everything that determines the code: expanded source, options, device name, driver version, platform
 * and library version; it is the file name and is stored inside. Layout: fixed header (magic, version, key, size, XXH64
 * of the payload), payload. Entries are written to a temporary file and renamed, so that concurrent writers are
 * harmless; whatever is damaged, short or foreign counts as a miss and is overwritten. The folder is private (see os.h)
 * and bounded: the entries used longest ago go first. No failure here is ever an error of a call: it means "no cache".
 */
#ifndef CLATTN_BINARY_CACHE_H
#define CLATTN_BINARY_CACHE_H

#include "log.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct binary_cache {
    char *dir; /* NULL: off */
    uint64_t limit;
    const struct log *log;
    atomic_bool warned; /* one warning per context is enough */
};

struct binary_key {
    uint64_t low, high;
};

/* dir NULL: the default under the XDG cache; "": off. */
void binary_cache_open(struct binary_cache *cache, const char *dir, uint64_t limit, const struct log *log);
void binary_cache_close(struct binary_cache *cache);
/* The entry's payload in malloc'd memory, or NULL. */
unsigned char *binary_cache_load(struct binary_cache *cache, struct binary_key key, size_t *size);
void binary_cache_store(struct binary_cache *cache, struct binary_key key, const void *data, size_t size);

#endif
