/* The disk cache: round trips, damage, folders that cannot be used, the bound. */
#include "binary_cache.h"
#include "os.h"
#include "temporary.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HEADER_SIZE 48

struct fixture {
    char *folder;
    struct binary_cache cache;
    struct log log;
    int warnings;
};

static void count_warnings(void *user, clattn_log_level level, const char *message) {
    (void)message;
    *(int *)user += level <= CLATTN_LOG_WARNING;
}

static void reopen(struct fixture *fixture, const char *dir, uint64_t limit) {
    binary_cache_close(&fixture->cache);
    fixture->warnings = 0;
    binary_cache_open(&fixture->cache, dir, limit, &fixture->log);
}

static int setup(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->folder = temporary_folder();
    fixture->log = (struct log){count_warnings, &fixture->warnings, CLATTN_LOG_DEBUG};
    binary_cache_open(&fixture->cache, fixture->folder, 1 << 20, &fixture->log);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    binary_cache_close(&fixture->cache);
    temporary_remove(fixture->folder);
    free(fixture);
    return 0;
}

static struct binary_key key_of(uint64_t number) {
    return (struct binary_key){.low = number, .high = ~number};
}

static char *entry_path(const struct fixture *fixture, uint64_t number) {
    char name[64];
    snprintf(name, sizeof name, "%016llx%016llx.clattn", (unsigned long long)~number, (unsigned long long)number);
    return temporary_path(fixture->folder, name);
}

static void store(struct fixture *fixture, uint64_t number, const char *text) {
    binary_cache_store(&fixture->cache, key_of(number), text, strlen(text));
}

/* text NULL: a miss. */
static void assert_loads(struct fixture *fixture, uint64_t number, const char *text) {
    size_t size = 0;
    unsigned char *data = binary_cache_load(&fixture->cache, key_of(number), &size);
    if (text == NULL) {
        assert_null(data);
        return;
    }
    assert_non_null(data);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(data, text, size);
    free(data);
}

static void count_file(void *user, const char *path, const char *name, uint64_t size, int64_t modified_ns) {
    (void)path, (void)name, (void)size, (void)modified_ns;
    ++*(int *)user;
}

static int files_in(const char *folder) {
    int count = 0;
    os_list_files(folder, count_file, &count);
    return count;
}

/* ---- entries ------------------------------------------------------------------------------------------------------
 */

static void an_entry_comes_back(void **state) {
    struct fixture *fixture = *state;
    assert_loads(fixture, 1, NULL);
    store(fixture, 1, "one");
    store(fixture, 2, "two");
    assert_loads(fixture, 1, "one");
    store(fixture, 1, "one again");
    assert_loads(fixture, 1, "one again");
    assert_loads(fixture, 2, "two");
    reopen(fixture, fixture->folder, 1 << 20);
    assert_loads(fixture, 1, "one again");
    assert_loads(fixture, UINT64_C(1) << 40, NULL);
    assert_int_equal(fixture->warnings, 0);
}

static char *read_entry(const struct fixture *fixture, uint64_t number, size_t *size) {
    char *path = entry_path(fixture, number);
    char *file = os_read_file(path, 1 << 20, size);
    assert_non_null(file);
    free(path);
    return file;
}

static void write_entry(const struct fixture *fixture, uint64_t number, const char *file, size_t size) {
    char *path = entry_path(fixture, number);
    assert_true(os_write_file_atomic(path, file, size));
    free(path);
}

static void every_truncation_is_a_miss(void **state) {
    struct fixture *fixture = *state;
    store(fixture, 1, "payload");
    size_t size = 0;
    char *file = read_entry(fixture, 1, &size);
    assert_int_equal(size, HEADER_SIZE + 7);
    for (size_t length = 0; length < size; length++) {
        write_entry(fixture, 1, file, length);
        assert_loads(fixture, 1, NULL);
    }
    char *longer = calloc(size + 1, 1);
    memcpy(longer, file, size);
    write_entry(fixture, 1, longer, size + 1);
    assert_loads(fixture, 1, NULL);
    store(fixture, 1, "payload");
    assert_loads(fixture, 1, "payload");
    free(longer);
    free(file);
}

static void every_flipped_byte_is_a_miss(void **state) {
    struct fixture *fixture = *state;
    store(fixture, 1, "payload");
    size_t size = 0;
    char *file = read_entry(fixture, 1, &size);
    for (size_t at = 0; at < size; at++) {
        file[at] = (char)(file[at] ^ 0x10);
        write_entry(fixture, 1, file, size);
        assert_loads(fixture, 1, NULL);
        file[at] = (char)(file[at] ^ 0x10);
    }
    write_entry(fixture, 1, file, size);
    assert_loads(fixture, 1, "payload");
    assert_int_equal(fixture->warnings, 0);
    free(file);
}

static void anothers_content_is_a_miss(void **state) {
    struct fixture *fixture = *state;
    store(fixture, 1, "one");
    store(fixture, 2, "two");
    size_t size = 0;
    char *file = read_entry(fixture, 2, &size);
    write_entry(fixture, 1, file, size);
    assert_loads(fixture, 1, NULL);
    store(fixture, 1, "one");
    assert_loads(fixture, 1, "one");
    free(file);
}

static void nothing_is_stored_for_nothing(void **state) {
    struct fixture *fixture = *state;
    binary_cache_store(&fixture->cache, key_of(1), "", 0);
    assert_int_equal(files_in(fixture->folder), 0);
}

/* ---- folders ------------------------------------------------------------------------------------------------------
 */

static void assert_off(struct fixture *fixture, int warnings) {
    assert_null(fixture->cache.dir);
    store(fixture, 1, "one");
    assert_loads(fixture, 1, NULL);
    assert_int_equal(fixture->warnings, warnings);
}

static void empty_name_is_off(void **state) {
    struct fixture *fixture = *state;
    reopen(fixture, "", 1 << 20);
    assert_off(fixture, 0);
}

static void unusable_folders_are_off(void **state) {
    struct fixture *fixture = *state;
    temporary_write(fixture->folder, "file", "x", 1);
    char *file = temporary_path(fixture->folder, "file"), *below = temporary_path(fixture->folder, "file/below");
    reopen(fixture, file, 1 << 20);
    assert_off(fixture, 1);
    reopen(fixture, below, 1 << 20);
    assert_off(fixture, 1);
    char *far = malloc(5000);
    memset(far, 'x', 4999);
    far[0] = '/';
    far[4999] = '\0';
    reopen(fixture, far, 1 << 20);
    assert_off(fixture, 1);
    assert_int_equal(chmod(fixture->folder, 0777), 0);
    reopen(fixture, fixture->folder, 1 << 20);
    assert_off(fixture, 1);
    assert_int_equal(chmod(fixture->folder, 0700), 0);
    free(far);
    free(file);
    free(below);
}

static void default_follows_the_environment(void **state) {
    struct fixture *fixture = *state;
    char *xdg = temporary_path(fixture->folder, "xdg"), *home = temporary_path(fixture->folder, "home");
    char *in_xdg = temporary_path(xdg, "clattn"), *in_home = temporary_path(home, ".cache/clattn");
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    reopen(fixture, NULL, 1 << 20);
    assert_string_equal(fixture->cache.dir, in_xdg);
    setenv("XDG_CACHE_HOME", "relative", 1); /* void by the XDG rules */
    reopen(fixture, NULL, 1 << 20);
    assert_string_equal(fixture->cache.dir, in_home);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    reopen(fixture, NULL, 1 << 20);
    assert_off(fixture, 0);
    free(xdg);
    free(home);
    free(in_xdg);
    free(in_home);
}

/* A relative folder keeps its meaning when the process goes elsewhere. */
static void folder_is_remembered_absolutely(void **state) {
    struct fixture *fixture = *state;
    char start[4096];
    assert_non_null(getcwd(start, sizeof start));
    assert_int_equal(chdir(fixture->folder), 0);
    reopen(fixture, "relative", 1 << 20);
    assert_int_equal(chdir(start), 0);
    store(fixture, 1, "one");
    char *path = temporary_path(fixture->folder, "relative");
    assert_int_equal(files_in(path), 1);
    free(path);
}

/* Root writes wherever it likes, so it becomes somebody else for a while. */
static void read_only_folder_warns_once(void **state) {
    struct fixture *fixture = *state;
    store(fixture, 1, "one");
    const uid_t self = geteuid();
    if (self == 0) {
        char *entry = entry_path(fixture, 1);
        assert_int_equal(chown(fixture->folder, 12345, (gid_t)-1), 0);
        assert_int_equal(chown(entry, 12345, (gid_t)-1), 0);
        assert_int_equal(seteuid(12345), 0);
        free(entry);
    }
    assert_int_equal(chmod(fixture->folder, 0500), 0);
    reopen(fixture, fixture->folder, 1 << 20);
    store(fixture, 2, "two");
    store(fixture, 3, "three");
    assert_loads(fixture, 1, "one");
    assert_loads(fixture, 2, NULL);
    assert_int_equal(fixture->warnings, 1);
    assert_int_equal(chmod(fixture->folder, 0700), 0);
    assert_int_equal(seteuid(self), 0);
}

/* A limit on file sizes stands for a full disk: the write fails half way. */
static void full_disk_warns_once_and_leaves_nothing(void **state) {
    struct fixture *fixture = *state;
    static char big[100000];
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {4096, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    binary_cache_store(&fixture->cache, key_of(1), big, sizeof big);
    binary_cache_store(&fixture->cache, key_of(2), big, sizeof big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(fixture->warnings, 1);
    assert_int_equal(files_in(fixture->folder), 0);
    assert_loads(fixture, 1, NULL);
    store(fixture, 1, "one");
    assert_loads(fixture, 1, "one");
}

/* ---- the bound ----------------------------------------------------------------------------------------------------
 */

static void set_age(const char *path, time_t seconds) {
    const struct timespec times[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void age_entry(const struct fixture *fixture, uint64_t number, time_t seconds) {
    char *path = entry_path(fixture, number);
    set_age(path, seconds);
    free(path);
}

static void used_longest_ago_goes_first(void **state) {
    struct fixture *fixture = *state;
    reopen(fixture, fixture->folder, 3 * (HEADER_SIZE + 4));
    store(fixture, 1, "one.");
    store(fixture, 2, "two.");
    store(fixture, 3, "thr.");
    age_entry(fixture, 1, 300);
    age_entry(fixture, 2, 200);
    age_entry(fixture, 3, 100);
    assert_loads(fixture, 1, "one."); /* the oldest, now used last */
    store(fixture, 4, "fou.");
    assert_loads(fixture, 2, NULL);
    assert_loads(fixture, 1, "one.");
    assert_loads(fixture, 3, "thr.");
    assert_loads(fixture, 4, "fou.");
    assert_int_equal(files_in(fixture->folder), 3);
}

/* A clock that was set back makes old entries look young; what has just been built is kept all the same. */
static void the_new_entry_stays_whatever_the_clock_says(void **state) {
    struct fixture *fixture = *state;
    reopen(fixture, fixture->folder, 2 * (HEADER_SIZE + 4));
    store(fixture, 1, "one.");
    store(fixture, 2, "two.");
    age_entry(fixture, 1, -5000);
    age_entry(fixture, 2, -6000);
    store(fixture, 3, "thr.");
    assert_loads(fixture, 3, "thr.");
    assert_int_equal(files_in(fixture->folder), 2);
}

static void what_exceeds_the_bound_is_not_stored(void **state) {
    struct fixture *fixture = *state;
    reopen(fixture, fixture->folder, HEADER_SIZE + 4);
    store(fixture, 1, "one.");
    store(fixture, 2, "two..");
    assert_loads(fixture, 1, "one.");
    assert_loads(fixture, 2, NULL);
    reopen(fixture, fixture->folder, 0);
    store(fixture, 3, "3");
    assert_int_equal(files_in(fixture->folder), 1);
    assert_int_equal(fixture->warnings, 0);
}

static void lost_temporary_files_go_and_young_ones_stay(void **state) {
    struct fixture *fixture = *state;
    const char *lost = "0123456789abcdef0123456789abcdef.clattn.77-0.tmp";
    const char *young = "0123456789abcdef0123456789abcdef.clattn.78-0.tmp";
    temporary_write(fixture->folder, lost, "half", 4);
    temporary_write(fixture->folder, young, "half", 4);
    char *path = temporary_path(fixture->folder, lost);
    set_age(path, 3600);
    store(fixture, 1, "one");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(files_in(fixture->folder), 2);
    assert_loads(fixture, 1, "one");
    free(path);
}

static void foreign_files_are_left_alone(void **state) {
    struct fixture *fixture = *state;
    const char *names[] = {"thesis.tex", "0123456789abcdef0123456789abcdef", "notes.clattn", "x.tmp",
                           "0123456789abcdef0123456789abcdef.clattn.bak"};
    reopen(fixture, fixture->folder, HEADER_SIZE + 4);
    for (size_t i = 0; i < 5; i++) {
        temporary_write(fixture->folder, names[i], "precious and long enough to break the bound", 43);
        char *path = temporary_path(fixture->folder, names[i]);
        set_age(path, 100000);
        free(path);
    }
    store(fixture, 1, "one.");
    store(fixture, 2, "two.");
    assert_int_equal(files_in(fixture->folder), 6);
    assert_loads(fixture, 2, "two.");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_entry_comes_back),
        TEST(every_truncation_is_a_miss),
        TEST(every_flipped_byte_is_a_miss),
        TEST(anothers_content_is_a_miss),
        TEST(nothing_is_stored_for_nothing),
        TEST(empty_name_is_off),
        TEST(unusable_folders_are_off),
        TEST(default_follows_the_environment),
        TEST(folder_is_remembered_absolutely),
        TEST(read_only_folder_warns_once),
        TEST(full_disk_warns_once_and_leaves_nothing),
        TEST(used_longest_ago_goes_first),
        TEST(the_new_entry_stays_whatever_the_clock_says),
        TEST(what_exceeds_the_bound_is_not_stored),
        TEST(lost_temporary_files_go_and_young_ones_stay),
        TEST(foreign_files_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
