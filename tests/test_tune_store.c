/* What the tuner writes: rows merged into a database that other processes read and write, and its journal, both of
 * which a kill at any moment leaves sound. */
#include "../tools/tune_journal.h"
#include "../tools/tune_store.h"
#include "temporary.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The command's; here complaints are counted. */
int complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complaints;

int complain(int code, const char *format, ...) {
    (void)format;
    complaints++;
    return code;
}

static char *folder, *path;

static int set_up(void **state) {
    (void)state;
    folder = temporary_folder();
    path = temporary_path(folder, "tuning.json");
    complaints = 0;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(path);
    temporary_remove(folder);
    return 0;
}

static struct store_row row_of(const char *variant, int64_t most, const char *parameters) {
    return (struct store_row){.device = "A \"device\" \\ of mine",
                              .driver = "1.0",
                              .kernels = "0123456789abcdef",
                              .op = "softmax",
                              .dtype = "f32",
                              .variant = variant,
                              .size = {most / 2 + 1, most},
                              .parameters = parameters,
                              .shape = "1024,1024",
                              .seconds = 1e-3,
                              .usual_seconds = 2e-3};
}

static char *read_file(const char *name) {
    FILE *file = fopen(name, "rb");
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    if (file) {
        assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
        fclose(file);
    }
    return text;
}

static cJSON *read_database(void) {
    char *text = read_file(path);
    cJSON *document = cJSON_ParseWithOpts(text, NULL, true);
    free(text);
    assert_true(cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(document, "rows")));
    return document;
}

static int count_rows(void) {
    cJSON *document = read_database();
    const int count = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(document, "rows"));
    cJSON_Delete(document);
    return count;
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

static void a_row_takes_the_place_of_that_of_its_key(void **state) {
    const struct store_row row = row_of("online", 1024, "team=1,group=8,vector=4"),
                           again = row_of("online", 1024, "team=1,group=8,vector=8"),
                           other = row_of("online", 2048, "team=1,group=8,vector=1");
    struct store_row elsewhere = row_of("online", 1024, "team=1,group=8,vector=1");
    char found[256];
    (void)state;
    elsewhere.driver = "2.0";
    assert_int_equal(store_update(path, NULL, false), 0);
    assert_int_equal(count_rows(), 0);
    assert_int_equal(store_update(path, &row, true), 0);
    assert_int_equal(store_update(path, &other, true), 0);
    assert_int_equal(store_update(path, &elsewhere, true), 0);
    assert_int_equal(store_update(path, &again, true), 0);
    assert_int_equal(count_rows(), 3);
    assert_true(store_find(path, &row, found, sizeof found));
    assert_string_equal(found, "team=1,group=8,vector=8");
    struct store_row changed = row;
    changed.kernels = "fedcba9876543210";
    assert_false(store_find(path, &changed, found, sizeof found));
    assert_int_equal(store_update(path, &changed, false), 0); /* it turned out to be no faster */
    assert_int_equal(count_rows(), 2);
    assert_false(store_find(path, &row, found, sizeof found));
    assert_int_equal(complaints, 0);
}

static void a_class_ends_where_the_librarys_rows_do(void **state) {
    static const struct {
        int64_t size;
        struct store_range octave, row, class;
    } rows[] = {{256, {129, 256}, {0, 192}, {193, 256}},   {192, {129, 256}, {0, 192}, {129, 192}},
                {160, {129, 256}, {0, 128}, {129, 256}},   {160, {129, 256}, {150, 170}, {150, 170}},
                {160, {129, 256}, {161, 170}, {129, 160}}, {160, {129, 256}, {140, 150}, {151, 256}},
                {1, {1, 1}, {0, INT64_MAX}, {1, 1}},       {3, {3, 4}, {0, INT64_MAX}, {3, 4}}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct store_range class = store_octave(rows[i].size);
        assert_memory_equal(&class, &rows[i].octave, sizeof class);
        store_narrow(&class, rows[i].size, &rows[i].row);
        assert_memory_equal(&class, &rows[i].class, sizeof class);
    }
}

static void preferences_are_keyed_by_their_problems(void **state) {
    struct store_row row = row_of("unfused", 64, NULL);
    (void)state;
    row.prefers = true;
    row.op = "attention";
    row.queries = (struct store_range){1, 16};
    row.keys = (struct store_range){129, 1024};
    assert_int_equal(store_update(path, &row, true), 0);
    row.variant = "decode_fma"; /* another winner */
    assert_int_equal(store_update(path, &row, true), 0);
    assert_int_equal(count_rows(), 1);
    row.causal = true;
    assert_int_equal(store_update(path, &row, true), 0);
    row.queries.most = 17;
    assert_int_equal(store_update(path, &row, true), 0);
    assert_int_equal(count_rows(), 3);
    char *text = store_print(&row);
    assert_non_null(strstr(text, "\"prefer\":\"decode_fma\""));
    assert_non_null(strstr(text, "\"queries\":[1,17]"));
    assert_null(strstr(text, "heads"));
    assert_null(strstr(text, "parameters"));
    free(text);
}

/* What a person wrote, and what this version does not know, stays as it is. */
static void foreign_rows_stay(void **state) {
    static const char text[] = "{\"note\": \"mine\", \"rows\": [5, null, {\"variant\": \"online\", \"parameters\": {}},"
                               " {\"device\": [[]], \"x\": {\"y\": 1e300}}, [[[[]]]]]}";
    const struct store_row row = row_of("online", 1024, "team=1");
    (void)state;
    temporary_write(folder, "tuning.json", text, sizeof text - 1);
    assert_int_equal(store_update(path, &row, true), 0);
    assert_int_equal(count_rows(), 6);
    char *now = read_file(path);
    assert_non_null(strstr(now, "{\"device\":[[]],\"x\":{\"y\":1e+300}}"));
    assert_non_null(strstr(now, "\"note\": \"mine\""));
    free(now);
}

static void a_file_that_is_no_database_is_left_alone(void **state) {
    static const char *const bad[] = {"", "x", "[]", "{\"rows\": 5}", "{\"rows\": []} x", "{\"rows\": [}"};
    const struct store_row row = row_of("online", 1024, "team=1");
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        temporary_write(folder, "tuning.json", bad[i], strlen(bad[i]));
        complaints = 0;
        assert_int_not_equal(store_update(path, &row, true), 0);
        assert_int_equal(complaints, 1);
        FILE *file = fopen(path, "rb");
        char now[64] = "";
        assert_int_equal(fread(now, 1, sizeof now, file), strlen(bad[i]));
        fclose(file);
        assert_memory_equal(now, bad[i], strlen(bad[i]));
    }
}

/* Before an hour is spent on what could not be stored. */
static void a_full_database_is_told_at_the_start(void **state) {
    const struct store_row row = row_of("online", 1024, "team=1");
    (void)state;
    for (int rows = 4030; rows <= 4040; rows += 10) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs("{\"rows\": [0", file);
        for (int i = 1; i < rows; i++)
            fputs(",0", file);
        fputs("]}", file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(store_update(path, NULL, false), rows == 4030 ? 0 : 2);
        assert_int_equal(store_update(path, &row, true), 0); /* which still finds room */
    }
}

static void a_link_stays_one_and_folders_are_made(void **state) {
    char *target = temporary_path(folder, "elsewhere/deep/rows.json");
    const struct store_row row = row_of("online", 1024, "team=1");
    struct stat info;
    (void)state;
    assert_int_equal(store_update(target, &row, true), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(store_update(path, &row, true), 0);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(chmod(target, 0640), 0); /* shared with a group */
    assert_int_equal(store_update(path, &row, true), 0);
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(count_rows(), 1);
    free(target);
}

/* Every process's row is there in the end. */
static void processes_wait_for_each_other(void **state) {
    enum { PROCESSES = 8, ROWS = 10 };
    (void)state;
    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0) {
            int code = 0;
            for (int i = 0; i < ROWS; i++) {
                const struct store_row row = row_of("online", 2 + p * ROWS + i, "team=1");
                code |= store_update(path, &row, true);
            }
            _exit(code);
        }
    for (int p = 0, status; p < PROCESSES; p++)
        assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(count_rows(), PROCESSES * ROWS);
}

static void a_kill_leaves_a_whole_database(void **state) {
    const struct store_row first = row_of("online", 1, "team=1");
    (void)state;
    assert_int_equal(store_update(path, &first, true), 0);
    for (int kill_after = 0; kill_after < 30; kill_after++) {
        const pid_t child = fork();
        if (child == 0)
            for (int i = 2;; i++) {
                const struct store_row row = row_of("online", 2 + i % 50, "team=1,group=1");
                store_update(path, &row, true);
            }
        usleep((useconds_t)(kill_after * 137 % 4000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(count_rows() >= 1);
        assert_int_equal(store_update(path, &first, true), 0); /* no lock was left */
    }
}

/* ---- the journal ------------------------------------------------------------------------------------------------- */

static void a_journal_remembers(void **state) {
    struct journal journal;
    char value[64];
    (void)state;
    assert_true(journal_open(&journal, path, "title", true));
    journal_write(&journal, "a|x=1", JOURNAL_BEGUN);
    assert_int_equal(journal_begun(&journal, "a|x=1"), 1);
    assert_false(journal_find(&journal, "a|x=1", value, sizeof value));
    journal_write(&journal, "a|x=1", "time 0.25");
    journal_write(&journal, "a\tb\n", "two\tlines\n");
    journal_write(&journal, "c", JOURNAL_BEGUN);
    journal_write(&journal, "c", JOURNAL_BEGUN);
    journal_close(&journal);
    assert_true(journal_open(&journal, path, "title", true));
    assert_int_equal(journal.known, 2);
    assert_true(journal_find(&journal, "a|x=1", value, sizeof value));
    assert_string_equal(value, "time 0.25");
    assert_true(journal_find(&journal, "a b ", value, sizeof value));
    assert_string_equal(value, "two lines ");
    assert_false(journal_find(&journal, "a|x=", value, sizeof value));
    assert_int_equal(journal_begun(&journal, "c"), 2);
    assert_int_equal(journal_begun(&journal, "a|x=1"), 0);
    journal_close(&journal);
    assert_true(journal_open(&journal, path, "title", false)); /* not asked to resume */
    assert_false(journal_find(&journal, "a|x=1", value, sizeof value));
    journal_write(&journal, "d", "1");
    journal_close(&journal);
    assert_true(journal_open(&journal, path, "another", true)); /* of something else */
    assert_int_equal(journal.known, 0);
    journal_close(&journal);
}

/* Cut anywhere: whole lines hold, the rest is forgotten, and the next line stands alone. */
static void a_cut_journal_is_whole_lines(void **state) {
    static const char text[] = "title\na\t1\nb\t2\nc\t3\n";
    static const struct {
        const char *key, *value;
        size_t end;
    } lines[] = {{"a", "1", 10}, {"b", "2", 14}, {"c", "3", 18}};
    struct journal journal;
    char value[64];
    (void)state;
    for (size_t cut = 0; cut < sizeof text; cut++) {
        temporary_write(folder, "tuning.json", text, cut);
        assert_true(journal_open(&journal, path, "title", true));
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(journal_find(&journal, lines[i].key, value, sizeof value), cut >= lines[i].end);
        journal_write(&journal, "d", "4");
        journal_close(&journal);
        assert_true(journal_open(&journal, path, "title", true));
        assert_true(journal_find(&journal, "d", value, sizeof value));
        assert_string_equal(value, "4");
        assert_int_equal(journal.known, 1 + (cut >= 10) + (cut >= 14) + (cut >= 18));
        journal_close(&journal);
    }
}

static void two_tunes_share_no_journal(void **state) {
    struct journal journal, other;
    char value[16];
    (void)state;
    assert_true(journal_open(&journal, path, "title", true));
    journal_write(&journal, "a", "1");
    assert_false(journal_open(&other, path, "title", false));
    journal_write(&other, "b", "2"); /* in memory alone */
    assert_true(journal_find(&other, "b", value, sizeof value));
    journal_close(&other);
    journal_close(&journal);
    assert_true(journal_open(&journal, path, "title", true));
    assert_int_equal(journal.known, 1);
    journal_close(&journal);
    assert_false(journal_open(&journal, folder, "title", true)); /* a folder */
    journal_write(&journal, "a", "1");
    assert_true(journal_find(&journal, "a", value, sizeof value));
    journal_close(&journal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_row_takes_the_place_of_that_of_its_key, set_up, tear_down),
        cmocka_unit_test(a_class_ends_where_the_librarys_rows_do),
        cmocka_unit_test_setup_teardown(preferences_are_keyed_by_their_problems, set_up, tear_down),
        cmocka_unit_test_setup_teardown(foreign_rows_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_database_is_left_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_database_is_told_at_the_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_stays_one_and_folders_are_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(processes_wait_for_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_kill_leaves_a_whole_database, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_journal_remembers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cut_journal_is_whole_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_tunes_share_no_journal, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
