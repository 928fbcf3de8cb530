/* The disk cache of program binaries. Only files that carry this cache's own name pattern are ever read or removed, so
 * that a folder shared with other things is safe. */
#include "binary_cache.h"
#include "os.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC "clattnbc"
#define FORMAT_VERSION UINT64_C(1)
#define SUFFIX ".clattn"
#define TEMPORARY_SUFFIX ".tmp"
#define KEY_DIGITS 32
#define NAME_SIZE (KEY_DIGITS + sizeof SUFFIX)
/* A temporary file this much older than the newest file has lost its writer. */
#define STALE_NS (INT64_C(600) * 1000000000)

/* All members are 8 bytes wide: no padding, every byte is compared on load. */
struct header {
    char magic[8];
    uint64_t version;
    uint64_t key_low, key_high;
    uint64_t size; /* of the payload */
    uint64_t checksum;
};

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

static void warn_once(struct binary_cache *cache, const char *what, const char *path) {
    if (!atomic_exchange(&cache->warned, true))
        log_write(cache->log, CLATTN_LOG_WARNING, "%s: %.200s", what, path);
}

/* The folder by the XDG rules, which ignore relative paths; NULL where none is set. */
static char *default_folder(void) {
    const char *cache_home = os_environment("XDG_CACHE_HOME");
    if (cache_home != NULL && cache_home[0] == '/')
        return os_join_path(cache_home, "clattn");
    const char *home = os_environment("HOME");
    return home != NULL && home[0] == '/' ? os_join_path(home, ".cache/clattn") : NULL;
}

void binary_cache_open(struct binary_cache *cache, const char *dir, uint64_t limit, const struct log *log) {
    cache->dir = NULL;
    cache->limit = limit;
    cache->log = log;
    atomic_init(&cache->warned, false);
    char *folder = dir != NULL ? os_copy_text(dir) : default_folder();
    if (folder != NULL && folder[0] != '\0') {
        if (os_private_directory(folder))
            cache->dir = os_absolute_path(folder);
        if (cache->dir == NULL)
            warn_once(cache, "no program cache: folder cannot be made, or others own it or may write to it", folder);
    }
    free(folder);
}

void binary_cache_close(struct binary_cache *cache) {
    free(cache->dir);
    cache->dir = NULL;
}

/* ---- entries ------------------------------------------------------------------------------------------------------
 */

static char *entry_path(const struct binary_cache *cache, struct binary_key key) {
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64 SUFFIX, key.high, key.low);
    return os_join_path(cache->dir, name);
}

static struct header make_header(struct binary_key key, const void *payload, size_t size) {
    struct header header = {.version = FORMAT_VERSION, .key_low = key.low, .key_high = key.high, .size = size};
    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.checksum = XXH64(payload, size, FORMAT_VERSION);
    return header;
}

/* Moves the payload of a valid entry to the front of the buffer; NULL and freed where the entry is not valid. */
static unsigned char *unpack(char *file, size_t file_size, struct binary_key key, size_t *size) {
    if (file_size >= sizeof(struct header)) {
        const size_t payload_size = file_size - sizeof(struct header);
        char *payload = file + sizeof(struct header);
        const struct header expected = make_header(key, payload, payload_size);
        if (memcmp(file, &expected, sizeof expected) == 0) {
            memmove(file, payload, payload_size);
            *size = payload_size;
            return (unsigned char *)file;
        }
    }
    free(file);
    return NULL;
}

unsigned char *binary_cache_load(struct binary_cache *cache, struct binary_key key, size_t *size) {
    char *path = cache->dir != NULL ? entry_path(cache, key) : NULL;
    if (path == NULL)
        return NULL;
    size_t file_size = 0;
    char *file = os_read_file(path, cache->limit < SIZE_MAX ? (size_t)cache->limit : SIZE_MAX - 1, &file_size);
    unsigned char *payload = file != NULL ? unpack(file, file_size, key, size) : NULL;
    if (payload != NULL)
        os_touch_file(path); /* used last: goes last */
    else if (file != NULL)
        log_write(cache->log, CLATTN_LOG_INFO, "damaged program cache entry: %.200s", path);
    free(path);
    return payload;
}

/* ---- the bound ----------------------------------------------------------------------------------------------------
 */

struct entry {
    char *path;
    uint64_t size;
    int64_t modified_ns;
    bool temporary;
};

struct listing {
    struct entry *entry;
    size_t count, capacity;
    uint64_t total;
    int64_t newest_ns;
};

enum file_kind { FILE_FOREIGN, FILE_ENTRY, FILE_TEMPORARY };

static enum file_kind classify(const char *name) {
    const size_t length = strlen(name), entry_length = NAME_SIZE - 1;
    if (strspn(name, "0123456789abcdef") != KEY_DIGITS || strncmp(name + KEY_DIGITS, SUFFIX, sizeof SUFFIX - 1) != 0)
        return FILE_FOREIGN;
    if (length == entry_length)
        return FILE_ENTRY;
    const size_t tail = sizeof TEMPORARY_SUFFIX - 1;
    const bool temporary = name[entry_length] == '.' && strcmp(name + length - tail, TEMPORARY_SUFFIX) == 0;
    return temporary ? FILE_TEMPORARY : FILE_FOREIGN;
}

static void collect(void *user, const char *path, const char *name, uint64_t size, int64_t modified_ns) {
    struct listing *list = user;
    const enum file_kind kind = classify(name);
    if (kind == FILE_FOREIGN)
        return;
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 64;
        struct entry *grown = realloc(list->entry, capacity * sizeof *grown);
        if (grown == NULL)
            return;
        list->entry = grown;
        list->capacity = capacity;
    }
    char *copy = os_copy_text(path);
    if (copy == NULL)
        return;
    list->entry[list->count++] = (struct entry){copy, size, modified_ns, kind == FILE_TEMPORARY};
    list->total += size;
    if (modified_ns > list->newest_ns)
        list->newest_ns = modified_ns;
}

/* What may go first: lost temporary files, then entries by age. */
static int compare_age(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    if (a->temporary != b->temporary)
        return a->temporary ? -1 : 1;
    return (a->modified_ns > b->modified_ns) - (a->modified_ns < b->modified_ns);
}

static bool must_go(const struct listing *list, const struct entry *entry, uint64_t limit, const char *keep) {
    if (entry->temporary)
        return list->newest_ns - entry->modified_ns > STALE_NS;
    return list->total > limit && strcmp(entry->path, keep) != 0;
}

static void enforce_bound(const struct binary_cache *cache, const char *keep) {
    struct listing list = {0};
    os_list_files(cache->dir, collect, &list);
    if (list.count > 0)
        qsort(list.entry, list.count, sizeof *list.entry, compare_age);
    for (size_t i = 0; i < list.count; i++) {
        if (must_go(&list, &list.entry[i], cache->limit, keep) && os_remove_file(list.entry[i].path))
            list.total -= list.entry[i].size;
        free(list.entry[i].path);
    }
    free(list.entry);
}

/* ---- storing ------------------------------------------------------------------------------------------------------
 */

static bool write_entry(const char *path, struct binary_key key, const void *data, size_t size) {
    const struct header header = make_header(key, data, size);
    unsigned char *file = malloc(sizeof header + size);
    if (file == NULL)
        return false;
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, data, size);
    const bool done = os_write_file_atomic(path, file, sizeof header + size);
    free(file);
    return done;
}

void binary_cache_store(struct binary_cache *cache, struct binary_key key, const void *data, size_t size) {
    if (cache->dir == NULL || size == 0 || size > cache->limit || cache->limit - size < sizeof(struct header))
        return;
    char *path = entry_path(cache, key);
    if (path == NULL)
        return;
    if (write_entry(path, key, data, size))
        enforce_bound(cache, path);
    else
        warn_once(cache, "cannot store in the program cache", path);
    free(path);
}
