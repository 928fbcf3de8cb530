/* Files and folders: atomic writes, limits, who may own the cache folder. */
#include "os.h"
#include "temporary.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state) {
    *state = temporary_folder();
    return 0;
}

static int teardown(void **state) {
    temporary_remove(*state);
    return 0;
}

static void count_file(void *user, const char *path, const char *name, uint64_t size, int64_t modified_ns) {
    (void)size, (void)modified_ns;
    assert_non_null(strstr(path, name));
    ++*(int *)user;
}

static int files_in(const char *folder) {
    int count = 0;
    os_list_files(folder, count_file, &count);
    return count;
}

static void files_are_read_whole_or_not_at_all(void **state) {
    temporary_write(*state, "f", "ab\0cd", 5);
    temporary_write(*state, "empty", "", 0);
    char *path = temporary_path(*state, "f"), *empty = temporary_path(*state, "empty");
    size_t size = 0;
    char *text = os_read_file(path, 5, &size);
    assert_int_equal(size, 5);
    assert_memory_equal(text, "ab\0cd", 6);
    free(text);
    assert_null(os_read_file(path, 4, &size));
    assert_null(os_read_file(*state, 100, &size));
    assert_null(os_read_file("/nonexistent/file", 100, &size));
    text = os_read_file(empty, 0, &size);
    assert_int_equal(size, 0);
    assert_string_equal(text, "");
    free(text);
    free(path);
    free(empty);
}

static void a_fifo_does_not_hang_the_reader(void **state) {
    char *path = temporary_path(*state, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    size_t size = 0;
    assert_null(os_read_file(path, 100, &size));
    free(path);
}

static void a_write_replaces_and_leaves_nothing_else(void **state) {
    char *path = temporary_path(*state, "f");
    assert_true(os_write_file_atomic(path, "first", 5));
    assert_true(os_write_file_atomic(path, "2nd", 3));
    size_t size = 0;
    char *text = os_read_file(path, 100, &size);
    assert_string_equal(text, "2nd");
    assert_int_equal(files_in(*state), 1);
    free(text);
    free(path);
}

static void a_failed_write_leaves_nothing(void **state) {
    char *folder = temporary_path(*state, "taken");
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_false(os_write_file_atomic(folder, "x", 1)); /* a file cannot replace a folder */
    assert_int_equal(files_in(*state), 0);
    assert_false(os_write_file_atomic("/nonexistent/file", "x", 1));
    free(folder);
}

static void folders_are_made_private(void **state) {
    char *path = temporary_path(*state, "a/b/c");
    assert_true(os_private_directory(path));
    assert_true(os_private_directory(path));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    free(path);
}

static void folders_that_others_may_change_are_refused(void **state) {
    char *path = temporary_path(*state, "shared");
    assert_int_equal(mkdir(path, 0700), 0);
    const mode_t refused[] = {0720, 0702, 0777, 01777}, accepted[] = {0700, 0755, 0711};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(chmod(path, refused[i]), 0);
        assert_false(os_private_directory(path));
    }
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        assert_int_equal(chmod(path, accepted[i]), 0);
        assert_true(os_private_directory(path));
    }
    free(path);
}

/* Needs the right to give files away; without it there is another's folder at hand: the root's. */
static void folders_of_others_are_refused(void **state) {
    char *path = temporary_path(*state, "theirs");
    assert_int_equal(mkdir(path, 0700), 0);
    if (chown(path, 12345, (gid_t)-1) == 0)
        assert_false(os_private_directory(path));
    else
        assert_false(os_private_directory("/usr"));
    free(path);
}

static void folders_that_cannot_be_are_refused(void **state) {
    temporary_write(*state, "file", "x", 1);
    char *file = temporary_path(*state, "file"), *below = temporary_path(*state, "file/below");
    assert_false(os_private_directory(file));
    assert_false(os_private_directory(below));
    assert_false(os_private_directory(""));
    char *long_path = malloc(6000);
    memset(long_path, 'x', 5999);
    long_path[0] = '/';
    for (int i = 100; i < 5999; i += 100)
        long_path[i] = '/';
    long_path[5999] = '\0';
    assert_false(os_private_directory(long_path));
    free(long_path);
    free(file);
    free(below);
}

static void listing_shows_files_alone(void **state) {
    temporary_write(*state, "one", "1", 1);
    temporary_write(*state, "sub/two", "2", 1);
    char *link = temporary_path(*state, "link");
    assert_int_equal(symlink("one", link), 0);
    assert_int_equal(files_in(*state), 1);
    assert_int_equal(files_in("/nonexistent"), 0);
    free(link);
}

static void paths_are_joined_and_made_absolute(void **state) {
    char *joined = os_join_path("a/b", "c");
    assert_string_equal(joined, "a/b/c");
    free(joined);
    char *detour = temporary_path(*state, "../");
    char *absolute = os_absolute_path(detour);
    assert_int_equal(absolute[0], '/');
    assert_null(strstr(absolute, ".."));
    assert_null(os_absolute_path("/nonexistent/x"));
    free(absolute);
    free(detour);
}

static void removal_and_time(void **state) {
    temporary_write(*state, "f", "x", 1);
    char *path = temporary_path(*state, "f");
    assert_true(os_remove_file(path));
    assert_false(os_remove_file(path));
    os_touch_file(path); /* of what is gone: harmless */
    assert_int_equal(files_in(*state), 0);
    const uint64_t start = os_time_ns();
    usleep(2000);
    assert_true(os_time_ns() - start >= 1000000);
    free(path);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(files_are_read_whole_or_not_at_all),
        TEST(a_fifo_does_not_hang_the_reader),
        TEST(a_write_replaces_and_leaves_nothing_else),
        TEST(a_failed_write_leaves_nothing),
        TEST(folders_are_made_private),
        TEST(folders_that_others_may_change_are_refused),
        TEST(folders_of_others_are_refused),
        TEST(folders_that_cannot_be_are_refused),
        TEST(listing_shows_files_alone),
        TEST(paths_are_joined_and_made_absolute),
        TEST(removal_and_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
