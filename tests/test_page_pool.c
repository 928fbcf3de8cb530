/* The account of pages: known cases, random operations against a naive model, several threads, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <clattn/kv_cache.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) assert_int_equal((call), CLATTN_SUCCESS)

static clattn_page_pool *pool_of(int32_t pages, int32_t page_size, int32_t max_pages) {
    clattn_page_pool *pool = NULL;
    OK(clattn_page_pool_create(pages, page_size, max_pages, &pool));
    assert_non_null(pool);
    return pool;
}

static int32_t add(clattn_page_pool *pool) {
    int32_t sequence = -7;
    OK(clattn_page_pool_add(pool, &sequence));
    return sequence;
}

static clattn_page_copy append(clattn_page_pool *pool, int32_t sequence, int64_t rows) {
    clattn_page_copy copy = {-9, -9, -9};
    OK(clattn_page_pool_append(pool, sequence, rows, &copy));
    return copy;
}

static int32_t free_pages(clattn_page_pool *pool) {
    int32_t pages = -1;
    OK(clattn_page_pool_count(pool, &pages, NULL));
    return pages;
}

/* ---- known cases ------------------------------------------------------------------------------------------------- */

static void pages_come_as_rows_need_them(void **state) {
    (void)state;
    clattn_page_pool *pool = pool_of(5, 4, 4);
    const int32_t a = add(pool), b = add(pool);
    int32_t row[4];
    int64_t length = -1;
    assert_true(a != b && a >= 0 && b >= 0);
    assert_int_equal(append(pool, a, 3).to, -1);
    assert_int_equal(append(pool, a, 1).from, -1);
    assert_int_equal(free_pages(pool), 4);
    append(pool, a, 1);
    append(pool, b, 9);
    assert_int_equal(free_pages(pool), 0);
    append(pool, a, 3);
    append(pool, a, 0);
    OK(clattn_page_pool_length(pool, a, &length));
    assert_int_equal(length, 8);
    OK(clattn_page_pool_table(pool, a, row));
    assert_true(row[0] == 0 && row[1] == 1 && row[2] == -1 && row[3] == -1);
    OK(clattn_page_pool_table(pool, b, row));
    assert_true(row[0] == 2 && row[1] == 3 && row[2] == 4 && row[3] == -1);
    OK(clattn_page_pool_remove(pool, b));
    assert_int_equal(free_pages(pool), 3);
    clattn_page_pool_release(&pool);
    assert_null(pool);
    clattn_page_pool_release(&pool);
}

static void forks_copy_what_they_write(void **state) {
    (void)state;
    clattn_page_pool *pool = pool_of(6, 4, 4);
    const int32_t a = add(pool);
    int32_t b = -1, c = -1, row[4];
    append(pool, a, 6);
    OK(clattn_page_pool_fork(pool, a, &b));
    OK(clattn_page_pool_fork(pool, b, &c));
    assert_int_equal(free_pages(pool), 4);
    const clattn_page_copy first = append(pool, b, 1);
    assert_true(first.from == 1 && first.to == 2 && first.rows == 2);
    assert_int_equal(append(pool, b, 1).from, -1);
    const clattn_page_copy second = append(pool, a, 3); /* rows on the page that is left to c, and a further page */
    assert_true(second.from == 1 && second.to >= 3 && second.rows == 2);
    assert_int_equal(append(pool, c, 1).from, -1); /* which c has for itself now */
    assert_int_equal(free_pages(pool), 1);
    OK(clattn_page_pool_table(pool, b, row));
    assert_true(row[0] == 0 && row[1] == 2 && row[2] == -1);
    OK(clattn_page_pool_remove(pool, a));
    OK(clattn_page_pool_remove(pool, b));
    assert_int_equal(free_pages(pool), 4);
    OK(clattn_page_pool_truncate(pool, c, 0));
    assert_int_equal(free_pages(pool), 6);
    clattn_page_pool_release(&pool);
}

/* A page that is full needs no copy, and one that was cut into does. */
static void forks_at_the_ends_of_pages(void **state) {
    (void)state;
    clattn_page_pool *pool = pool_of(4, 4, 4);
    const int32_t a = add(pool);
    int32_t b = -1;
    append(pool, a, 4);
    OK(clattn_page_pool_fork(pool, a, &b));
    assert_int_equal(append(pool, b, 1).from, -1);
    OK(clattn_page_pool_truncate(pool, b, 3));
    const clattn_page_copy copy = append(pool, b, 1);
    assert_true(copy.from == 0 && copy.to != 0 && copy.rows == 3);
    clattn_page_pool_release(&pool);
}

static void too_few_pages_change_nothing(void **state) {
    (void)state;
    clattn_page_pool *pool = pool_of(3, 2, 8);
    const int32_t a = add(pool);
    int32_t b = -1, before[8], after[8];
    int64_t length = -1;
    clattn_page_copy copy = {5, 6, 7};
    append(pool, a, 3);
    OK(clattn_page_pool_fork(pool, a, &b));
    OK(clattn_page_pool_table(pool, b, before));
    assert_int_equal(clattn_page_pool_append(pool, b, 2, &copy), CLATTN_OUT_OF_DEVICE_MEMORY); /* a copy and a page */
    assert_non_null(strstr(clattn_last_error(), "2 pages are needed, 1 are free"));
    assert_true(copy.from == 5 && copy.to == 6 && copy.rows == 7);
    OK(clattn_page_pool_table(pool, b, after));
    assert_memory_equal(before, after, sizeof before);
    OK(clattn_page_pool_length(pool, b, &length));
    assert_int_equal(length, 3);
    assert_int_equal(free_pages(pool), 1);
    append(pool, b, 1);
    assert_int_equal(free_pages(pool), 0);
    clattn_page_pool_release(&pool);
}

/* ---- a naive model ----------------------------------------------------------------------------------------------- */

enum { PAGES = 23, PAGE = 3, MOST = 6, SEQUENCES = 12, STEPS = 20000 };

/* What each row of a sequence holds is a number of its own; a cache holds the numbers. */
struct model {
    bool used;
    int64_t length;
    int rows[MOST * PAGE];
};

static int cache[PAGES][PAGE];
static int next_number = 1;
static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % limit;
}

/* Pages in use, by looking at the tables of all sequences. */
static int pages_in_use(clattn_page_pool *pool, const struct model *models) {
    bool seen[PAGES] = {false};
    int count = 0;
    for (int32_t s = 0; s < SEQUENCES; s++) {
        int32_t row[MOST];
        if (!models[s].used)
            continue;
        OK(clattn_page_pool_table(pool, s, row));
        for (int i = 0; i < MOST; i++) {
            assert_int_equal(row[i] >= 0, (int64_t)i * PAGE < models[s].length);
            if (row[i] >= 0 && !seen[row[i]])
                seen[row[i]] = true, count++;
        }
    }
    return count;
}

static void check_contents(clattn_page_pool *pool, int32_t s, const struct model *model) {
    int32_t row[MOST];
    int64_t length = -1;
    OK(clattn_page_pool_table(pool, s, row));
    OK(clattn_page_pool_length(pool, s, &length));
    assert_int_equal(length, model->length);
    for (int64_t i = 0; i < length; i++)
        assert_int_equal(cache[row[i / PAGE]][i % PAGE], model->rows[i]);
}

/* Does as the account says, and writes the new rows. */
static void write_rows(clattn_page_pool *pool, int32_t s, struct model *model, int64_t rows, clattn_page_copy copy) {
    int32_t row[MOST];
    for (int32_t i = 0; i < copy.rows; i++)
        cache[copy.to][i] = cache[copy.from][i];
    OK(clattn_page_pool_table(pool, s, row));
    for (int64_t i = model->length; i < model->length + rows; i++)
        model->rows[i] = cache[row[i / PAGE]][i % PAGE] = next_number++;
    model->length += rows;
}

static void try_append(clattn_page_pool *pool, int32_t s, struct model *models) {
    struct model *model = &models[s];
    const int64_t rows = random_below(8);
    const int before = pages_in_use(pool, models);
    clattn_page_copy copy = {-1, -1, 0};
    const clattn_status status = clattn_page_pool_append(pool, s, rows, &copy);
    if (model->length + rows > MOST * PAGE) {
        assert_int_equal(status, CLATTN_INVALID_ARGUMENT);
    } else if (status == CLATTN_SUCCESS) {
        write_rows(pool, s, model, rows, copy);
    } else {
        const int64_t more = (model->length + rows + PAGE - 1) / PAGE - (model->length + PAGE - 1) / PAGE;
        assert_int_equal(status, CLATTN_OUT_OF_DEVICE_MEMORY);
        assert_true(more + 1 > PAGES - before);
        assert_int_equal(pages_in_use(pool, models), before);
    }
}

static void try_fork(clattn_page_pool *pool, int32_t s, struct model *models, int *used) {
    int32_t forked = -1;
    if (*used == SEQUENCES)
        return;
    OK(clattn_page_pool_fork(pool, s, &forked));
    assert_true(forked >= 0 && forked < SEQUENCES && !models[forked].used);
    models[forked] = models[s];
    (*used)++;
}

static void random_operations(void **state) {
    struct model models[SEQUENCES] = {{0}};
    clattn_page_pool *pool = pool_of(PAGES, PAGE, MOST);
    int used = 0;
    (void)state;
    random_state = 20240229;
    for (int step = 0; step < STEPS; step++) {
        const int32_t s = (int32_t)random_below(SEQUENCES);
        const uint32_t what = random_below(10);
        if (!models[s].used && used < SEQUENCES) {
            const int32_t added = add(pool);
            assert_true(added >= 0 && added < SEQUENCES && !models[added].used);
            models[added] = (struct model){.used = true};
            used++;
        } else if (models[s].used && what < 6) {
            try_append(pool, s, models);
        } else if (models[s].used && what < 8) {
            try_fork(pool, s, models, &used);
        } else if (models[s].used && what == 8) {
            models[s].length = random_below((uint32_t)models[s].length + 1);
            OK(clattn_page_pool_truncate(pool, s, models[s].length));
        } else if (models[s].used) {
            OK(clattn_page_pool_remove(pool, s));
            models[s].used = false;
            used--;
        }
        assert_int_equal(free_pages(pool), PAGES - pages_in_use(pool, models));
        for (int32_t i = 0; i < SEQUENCES; i++)
            if (models[i].used)
                check_contents(pool, i, &models[i]);
    }
    clattn_page_pool_release(&pool);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *grow_and_fork(void *user) {
    clattn_page_pool *pool = user;
    for (int i = 0; i < 300; i++) {
        int32_t a = -1, b = -1;
        clattn_page_copy copy;
        if (clattn_page_pool_add(pool, &a) || clattn_page_pool_append(pool, a, 5, &copy) ||
            clattn_page_pool_fork(pool, a, &b) || clattn_page_pool_append(pool, b, 2, &copy) ||
            clattn_page_pool_remove(pool, a) || clattn_page_pool_remove(pool, b))
            return pool; /* not NULL: failed */
    }
    return NULL;
}

static void several_threads(void **state) {
    pthread_t threads[4];
    int32_t pages = -1, sequences = -1;
    clattn_page_pool *pool = pool_of(64, 4, 4);
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, grow_and_fork, pool), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    OK(clattn_page_pool_count(pool, &pages, &sequences));
    assert_true(pages == 64 && sequences == 0);
    clattn_page_pool_release(&pool);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refused(clattn_status status, const char *word) {
    assert_int_equal(status, CLATTN_INVALID_ARGUMENT);
    if (strstr(clattn_last_error(), word) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", clattn_last_error(), word);
}

static void bad_arguments(void **state) {
    (void)state;
    clattn_page_pool *pool = NULL;
    clattn_page_copy copy;
    int32_t number, row[2];
    int64_t length;
    refused(clattn_page_pool_create(-1, 1, 1, &pool), "pages = -1");
    refused(clattn_page_pool_create(1, 0, 1, &pool), "page_size = 0");
    refused(clattn_page_pool_create(1, 1, -2, &pool), "max_pages = -2");
    refused(clattn_page_pool_create(1, 1, 1, NULL), "out is NULL");
    assert_null(pool);
    pool = pool_of(4, 2, 2);
    const int32_t a = add(pool);
    refused(clattn_page_pool_add(NULL, &number), "pool is NULL");
    refused(clattn_page_pool_add(pool, NULL), "sequence is NULL");
    refused(clattn_page_pool_fork(pool, a, NULL), "forked is NULL");
    refused(clattn_page_pool_fork(pool, a + 1, &number), "sequence 1 does not exist");
    refused(clattn_page_pool_remove(pool, -1), "sequence -1 does not exist");
    refused(clattn_page_pool_append(pool, a, -1, &copy), "rows = -1");
    refused(clattn_page_pool_append(pool, a, 5, &copy), "rows = 5");
    refused(clattn_page_pool_append(pool, a, INT64_MAX, &copy), "rows = ");
    refused(clattn_page_pool_append(pool, a, 1, NULL), "copy is NULL");
    refused(clattn_page_pool_append(pool, 99, 1, &copy), "sequence 99 does not exist");
    refused(clattn_page_pool_truncate(pool, a, 1), "length = 1");
    refused(clattn_page_pool_truncate(pool, a, -1), "length = -1");
    refused(clattn_page_pool_length(pool, a, NULL), "length is NULL");
    refused(clattn_page_pool_length(NULL, a, &length), "pool is NULL");
    refused(clattn_page_pool_table(pool, a, NULL), "row is NULL");
    refused(clattn_page_pool_table(pool, -1, row), "sequence -1 does not exist");
    refused(clattn_page_pool_count(NULL, NULL, NULL), "pool is NULL");
    OK(clattn_page_pool_remove(pool, a));
    refused(clattn_page_pool_remove(pool, a), "sequence 0 does not exist");
    clattn_page_pool_release(&pool);
    clattn_page_pool_release(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_as_rows_need_them),
        cmocka_unit_test(forks_copy_what_they_write),
        cmocka_unit_test(forks_at_the_ends_of_pages),
        cmocka_unit_test(too_few_pages_change_nothing),
        cmocka_unit_test(random_operations),
        cmocka_unit_test(several_threads),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
