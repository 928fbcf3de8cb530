/* Which pages belong to which sequence. A page is counted by the sequences that have it; those that none has lie on a
 * stack. A sequence has as many pages as its length needs, so that what it may write into is its last one alone. */
#include "page_pool.h"
#include "os.h"
#include "status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sequence_pages {
    bool used;
    int64_t length;
    int32_t *page;
    int32_t count, room;
};

struct clattn_page_pool {
    os_mutex lock;
    int32_t pages, page_size, max_pages;
    int32_t *owners; /* [pages]: sequences that have the page */
    int32_t *free;   /* the stack of pages without an owner */
    int32_t free_count;
    struct sequence_pages *sequence;
    int32_t sequence_room, sequence_count; /* the second counts those in use */
};

/* ---- making ------------------------------------------------------------------------------------------------------ */

static clattn_status check_sizes(int32_t pages, int32_t page_size, int32_t max_pages) {
    RETURN_IF(pages < 0, CLATTN_INVALID_ARGUMENT, "pages = %" PRId32 " is negative", pages);
    RETURN_IF(page_size < 1, CLATTN_INVALID_ARGUMENT, "page_size = %" PRId32 " is not at least 1", page_size);
    RETURN_IF(max_pages < 0, CLATTN_INVALID_ARGUMENT, "max_pages = %" PRId32 " is negative", max_pages);
    return CLATTN_SUCCESS;
}

clattn_status clattn_page_pool_create(int32_t pages, int32_t page_size, int32_t max_pages, clattn_page_pool **out) {
    RETURN_IF(out == NULL, CLATTN_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    FORWARD(check_sizes(pages, page_size, max_pages));
    clattn_page_pool *pool = calloc(1, sizeof *pool);
    RETURN_IF(pool == NULL, CLATTN_OUT_OF_HOST_MEMORY, "page pool: out of host memory");
    os_mutex_init(&pool->lock);
    pool->pages = pool->free_count = pages;
    pool->page_size = page_size;
    pool->max_pages = max_pages;
    pool->owners = calloc((size_t)pages + 1, sizeof *pool->owners);
    pool->free = calloc((size_t)pages + 1, sizeof *pool->free);
    if (pool->owners == NULL || pool->free == NULL) {
        clattn_page_pool_release(&pool);
        return status_set(CLATTN_OUT_OF_HOST_MEMORY, "page pool: out of host memory for %" PRId32 " pages", pages);
    }
    for (int32_t i = 0; i < pages; i++) /* page 0 is given out first */
        pool->free[i] = pages - 1 - i;
    *out = pool;
    return CLATTN_SUCCESS;
}

void clattn_page_pool_release(clattn_page_pool **pool) {
    if (pool == NULL || *pool == NULL)
        return;
    for (int32_t i = 0; i < (*pool)->sequence_room; i++)
        free((*pool)->sequence[i].page);
    free((*pool)->sequence);
    free((*pool)->owners);
    free((*pool)->free);
    os_mutex_destroy(&(*pool)->lock);
    free(*pool);
    *pool = NULL;
}

/* ---- steps, under the lock --------------------------------------------------------------------------------------- */

static clattn_status find(clattn_page_pool *pool, int32_t number, struct sequence_pages **out) {
    RETURN_IF(number < 0 || number >= pool->sequence_room || !pool->sequence[number].used, CLATTN_INVALID_ARGUMENT,
              "sequence %" PRId32 " does not exist", number);
    *out = &pool->sequence[number];
    return CLATTN_SUCCESS;
}

static int64_t pages_for(const clattn_page_pool *pool, int64_t length) {
    return length / pool->page_size + (length % pool->page_size != 0);
}

static int32_t take_page(clattn_page_pool *pool) {
    const int32_t page = pool->free[--pool->free_count];
    pool->owners[page] = 1;
    return page;
}

static void drop_page(clattn_page_pool *pool, int32_t page) {
    if (--pool->owners[page] == 0)
        pool->free[pool->free_count++] = page;
}

static void drop_pages(clattn_page_pool *pool, struct sequence_pages *sequence, int32_t keep) {
    while (sequence->count > keep)
        drop_page(pool, sequence->page[--sequence->count]);
}

static clattn_status make_room(struct sequence_pages *sequence, int32_t pages) {
    if (pages <= sequence->room)
        return CLATTN_SUCCESS;
    const int32_t doubled = sequence->room > INT32_MAX / 2 ? INT32_MAX : 2 * sequence->room;
    const int32_t room = pages > doubled ? pages : doubled;
    int32_t *page = realloc(sequence->page, (size_t)room * sizeof *page);
    RETURN_IF(page == NULL, CLATTN_OUT_OF_HOST_MEMORY, "sequence: out of host memory for %" PRId32 " pages", room);
    sequence->page = page;
    sequence->room = room;
    return CLATTN_SUCCESS;
}

/* A number that no sequence has, and its empty slot, which is not yet in use. */
static clattn_status find_slot(clattn_page_pool *pool, int32_t *number) {
    int32_t i = 0;
    while (pool->sequence_count < pool->sequence_room && pool->sequence[i].used)
        i++;
    const int32_t found = pool->sequence_count < pool->sequence_room ? i : pool->sequence_room;
    if (found < pool->sequence_room) {
        *number = found;
        return CLATTN_SUCCESS;
    }
    RETURN_IF(pool->sequence_room > INT32_MAX / 2, CLATTN_OUT_OF_HOST_MEMORY, "page pool: too many sequences");
    const int32_t room = pool->sequence_room > 0 ? 2 * pool->sequence_room : 16;
    struct sequence_pages *grown = realloc(pool->sequence, (size_t)room * sizeof *grown);
    RETURN_IF(grown == NULL, CLATTN_OUT_OF_HOST_MEMORY, "page pool: out of host memory for %" PRId32 " sequences",
              room);
    memset(grown + pool->sequence_room, 0, (size_t)(room - pool->sequence_room) * sizeof *grown);
    pool->sequence = grown;
    pool->sequence_room = room;
    *number = found;
    return CLATTN_SUCCESS;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static clattn_status add(clattn_page_pool *pool, int32_t *number) {
    FORWARD(find_slot(pool, number));
    struct sequence_pages *sequence = &pool->sequence[*number];
    sequence->used = true;
    sequence->length = 0;
    pool->sequence_count++;
    return CLATTN_SUCCESS;
}

static clattn_status fork_sequence(clattn_page_pool *pool, int32_t number, int32_t *forked) {
    struct sequence_pages *from = NULL;
    int32_t slot = -1;
    FORWARD(find(pool, number, &from));
    FORWARD(find_slot(pool, &slot));
    from = &pool->sequence[number]; /* which find_slot() may have moved */
    struct sequence_pages *to = &pool->sequence[slot];
    FORWARD(make_room(to, from->count));
    FORWARD(add(pool, forked));
    for (int32_t i = 0; i < from->count; i++) {
        to->page[i] = from->page[i];
        pool->owners[from->page[i]]++;
    }
    to->count = from->count;
    to->length = from->length;
    return CLATTN_SUCCESS;
}

static clattn_status remove_sequence(clattn_page_pool *pool, int32_t number) {
    struct sequence_pages *sequence = NULL;
    FORWARD(find(pool, number, &sequence));
    drop_pages(pool, sequence, 0);
    sequence->used = false;
    pool->sequence_count--;
    return CLATTN_SUCCESS;
}

/* Is the page shared into which the next row goes? */
static bool writes_shared_page(const clattn_page_pool *pool, const struct sequence_pages *sequence, int64_t rows) {
    return rows > 0 && sequence->length % pool->page_size != 0 && pool->owners[sequence->page[sequence->count - 1]] > 1;
}

static clattn_page_copy leave_shared_page(clattn_page_pool *pool, struct sequence_pages *sequence) {
    int32_t *last = &sequence->page[sequence->count - 1];
    const clattn_page_copy copy = {*last, take_page(pool), (int32_t)(sequence->length % pool->page_size)};
    drop_page(pool, *last);
    *last = copy.to;
    return copy;
}

static clattn_status append(clattn_page_pool *pool, int32_t number, int64_t rows, clattn_page_copy *copy) {
    struct sequence_pages *sequence = NULL;
    FORWARD(find(pool, number, &sequence));
    RETURN_IF(rows < 0, CLATTN_INVALID_ARGUMENT, "rows = %" PRId64 " is negative", rows);
    const int64_t most = (int64_t)pool->max_pages * pool->page_size;
    RETURN_IF(rows > most - sequence->length, CLATTN_INVALID_ARGUMENT,
              "rows = %" PRId64 " more than %" PRId64 " do not fit %" PRId32 " pages (max_pages) of %" PRId32, rows,
              sequence->length, pool->max_pages, pool->page_size);
    const bool copies = writes_shared_page(pool, sequence, rows);
    const int32_t count = (int32_t)pages_for(pool, sequence->length + rows);
    const int32_t needed = count - sequence->count + (copies ? 1 : 0);
    RETURN_IF(needed > pool->free_count, CLATTN_OUT_OF_DEVICE_MEMORY,
              "page pool: %" PRId32 " pages are needed, %" PRId32 " are free", needed, pool->free_count);
    FORWARD(make_room(sequence, count));
    *copy = copies ? leave_shared_page(pool, sequence) : (clattn_page_copy){-1, -1, 0};
    while (sequence->count < count)
        sequence->page[sequence->count++] = take_page(pool);
    sequence->length += rows;
    return CLATTN_SUCCESS;
}

static clattn_status truncate_sequence(clattn_page_pool *pool, int32_t number, int64_t length) {
    struct sequence_pages *sequence = NULL;
    FORWARD(find(pool, number, &sequence));
    RETURN_IF(length < 0 || length > sequence->length, CLATTN_INVALID_ARGUMENT,
              "length = %" PRId64 " is not in 0..%" PRId64, length, sequence->length);
    drop_pages(pool, sequence, (int32_t)pages_for(pool, length));
    sequence->length = length;
    return CLATTN_SUCCESS;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static void fill_row(const clattn_page_pool *pool, const struct sequence_pages *sequence, int32_t *row) {
    const int32_t count = sequence != NULL ? sequence->count : 0;
    for (int32_t i = 0; i < pool->max_pages; i++)
        row[i] = i < count ? sequence->page[i] : -1;
}

static clattn_status snapshot(clattn_page_pool *pool, int32_t count, const int32_t *sequences, int32_t *table,
                              int32_t *lengths) {
    for (int32_t i = 0; i < count; i++) {
        struct sequence_pages *sequence = NULL;
        if (sequences[i] != -1)
            FORWARD(find(pool, sequences[i], &sequence));
        RETURN_IF(sequence != NULL && lengths != NULL && sequence->length > INT32_MAX, CLATTN_INVALID_ARGUMENT,
                  "sequence %" PRId32 " has more than 2^31 - 1 rows", sequences[i]);
        if (table != NULL)
            fill_row(pool, sequence, table + (size_t)i * (size_t)pool->max_pages);
        if (lengths != NULL)
            lengths[i] = sequence != NULL ? (int32_t)sequence->length : 0;
    }
    return CLATTN_SUCCESS;
}

static clattn_status length_of(clattn_page_pool *pool, int32_t number, int64_t *length) {
    struct sequence_pages *sequence = NULL;
    FORWARD(find(pool, number, &sequence));
    *length = sequence->length;
    return CLATTN_SUCCESS;
}

int32_t page_pool_width(const clattn_page_pool *pool) {
    return pool->max_pages;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static clattn_status unlocked(clattn_page_pool *pool, clattn_status status) {
    os_unlock(&pool->lock);
    return status;
}

#define CHECK_NOT_NULL(pointer, name) RETURN_IF((pointer) == NULL, CLATTN_INVALID_ARGUMENT, name " is NULL")

clattn_status clattn_page_pool_add(clattn_page_pool *pool, int32_t *sequence) {
    CHECK_NOT_NULL(pool, "pool");
    CHECK_NOT_NULL(sequence, "sequence");
    os_lock(&pool->lock);
    return unlocked(pool, add(pool, sequence));
}

clattn_status clattn_page_pool_fork(clattn_page_pool *pool, int32_t sequence, int32_t *forked) {
    CHECK_NOT_NULL(pool, "pool");
    CHECK_NOT_NULL(forked, "forked");
    os_lock(&pool->lock);
    return unlocked(pool, fork_sequence(pool, sequence, forked));
}

clattn_status clattn_page_pool_remove(clattn_page_pool *pool, int32_t sequence) {
    CHECK_NOT_NULL(pool, "pool");
    os_lock(&pool->lock);
    return unlocked(pool, remove_sequence(pool, sequence));
}

clattn_status clattn_page_pool_append(clattn_page_pool *pool, int32_t sequence, int64_t rows, clattn_page_copy *copy) {
    CHECK_NOT_NULL(pool, "pool");
    CHECK_NOT_NULL(copy, "copy");
    os_lock(&pool->lock);
    return unlocked(pool, append(pool, sequence, rows, copy));
}

clattn_status clattn_page_pool_truncate(clattn_page_pool *pool, int32_t sequence, int64_t length) {
    CHECK_NOT_NULL(pool, "pool");
    os_lock(&pool->lock);
    return unlocked(pool, truncate_sequence(pool, sequence, length));
}

clattn_status clattn_page_pool_length(clattn_page_pool *pool, int32_t sequence, int64_t *length) {
    CHECK_NOT_NULL(pool, "pool");
    CHECK_NOT_NULL(length, "length");
    os_lock(&pool->lock);
    return unlocked(pool, length_of(pool, sequence, length));
}

clattn_status clattn_page_pool_count(clattn_page_pool *pool, int32_t *free_pages, int32_t *sequences) {
    CHECK_NOT_NULL(pool, "pool");
    os_lock(&pool->lock);
    if (free_pages != NULL)
        *free_pages = pool->free_count;
    if (sequences != NULL)
        *sequences = pool->sequence_count;
    os_unlock(&pool->lock);
    return CLATTN_SUCCESS;
}

clattn_status clattn_page_pool_table(clattn_page_pool *pool, int32_t sequence, int32_t *row) {
    CHECK_NOT_NULL(pool, "pool");
    CHECK_NOT_NULL(row, "row");
    RETURN_IF(sequence < 0, CLATTN_INVALID_ARGUMENT, "sequence %" PRId32 " does not exist", sequence);
    os_lock(&pool->lock);
    return unlocked(pool, snapshot(pool, 1, &sequence, row, NULL));
}

clattn_status page_pool_snapshot(clattn_page_pool *pool, int32_t count, const int32_t *sequences, int32_t *table,
                                 int32_t *lengths) {
    os_lock(&pool->lock);
    return unlocked(pool, snapshot(pool, count, sequences, table, lengths));
}
