/* The account of pages as the upload of tables sees it (page_pool.c, page_pool_upload.c). */
#ifndef CLATTN_PAGE_POOL_H
#define CLATTN_PAGE_POOL_H

#include <clattn/kv_cache.h>

/* Rows [count, max_pages] of a table and lengths [count], all as they are at one time; either may be NULL. */
clattn_status page_pool_snapshot(clattn_page_pool *pool, int32_t count, const int32_t *sequences, int32_t *table,
                                 int32_t *lengths);
int32_t page_pool_width(const clattn_page_pool *pool); /* max_pages */

#endif
