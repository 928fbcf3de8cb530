/* The program cache seen from outside: every result right in every order of use, a warm folder builds nothing, damage
 * and unusable folders cost a rebuild at most. */
#include "child.h"
#include "quick_call.h"
#include "support.h"
#include "temporary.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A library context on the current device, and what it said. */
struct session {
    clattn_context *clattn;
    clattn_statistics before; /* the self-tests' share */
    int warnings;
};

static void count_warning(void *user, clattn_log_level level, const char *message) {
    struct session *session = user;
    (void)message;
    session->warnings += level <= CLATTN_LOG_WARNING;
}

static void begin(struct session *session, const char *cache_dir, const char *cl_dir) {
    clattn_context_options options;
    clattn_context_options_init(&options);
    options.cache_dir = cache_dir;
    options.cl_dir = cl_dir;
    options.log = count_warning;
    options.log_user = session;
    session->warnings = 0;
    CHECK(clattn_context_create(device.context, device.id, &options, &session->clattn));
    /* Self-tests build programs too, once a device and not once a call: they are left out of the counts. */
    const char *capability = "", *verdict = "";
    for (size_t i = 0; capability; i++)
        CHECK(clattn_capability_report(session->clattn, i, 1, &capability, &verdict));
    session->before = (clattn_statistics){.size = sizeof session->before};
    CHECK(clattn_context_statistics(session->clattn, &session->before));
}

static clattn_statistics statistics_of(const struct session *session) {
    clattn_statistics statistics = {.size = sizeof statistics};
    CHECK(clattn_context_statistics(session->clattn, &statistics));
    statistics.programs_built -= session->before.programs_built;
    statistics.programs_loaded -= session->before.programs_loaded;
    return statistics;
}

static void run_right(const struct session *session, const struct quick_call *call) {
    const struct quick_result result = quick_run(device.context, device.queue, session->clattn, call);
    support_expect(result.status, CLATTN_SUCCESS, "a small attention call");
    if (!quick_is_right(call, &result))
        fail_msg("D %lld, dtype %d, causal %d: wrong result", (long long)call->head_dim, (int)call->dtype,
                 (int)call->causal);
}

/* A60's order: each neighbour pair differs in one thing that changes the code. */
static const struct quick_call calls[] = {
    {64, CLATTN_F32, CLATTN_CAUSAL_NONE},  {80, CLATTN_F32, CLATTN_CAUSAL_NONE},
    {64, CLATTN_F32, CLATTN_CAUSAL_NONE},  {64, CLATTN_F16, CLATTN_CAUSAL_NONE},
    {64, CLATTN_BF16, CLATTN_CAUSAL_NONE}, {64, CLATTN_F32, CLATTN_CAUSAL_BOTTOM_RIGHT},
    {64, CLATTN_F32, CLATTN_CAUSAL_NONE},  {64, CLATTN_F32, CLATTN_CAUSAL_TOP_LEFT},
};

static void run_all(const struct session *session) {
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        run_right(session, &calls[i]);
}

/* Runs one call in a new context; gives what it built and loaded. */
static clattn_statistics run_in(const char *cache_dir, const char *cl_dir, int *warnings) {
    struct session session;
    begin(&session, cache_dir, cl_dir);
    run_right(&session, &calls[0]);
    const clattn_statistics statistics = statistics_of(&session);
    clattn_context_release(&session.clattn);
    if (warnings)
        *warnings = session.warnings;
    return statistics;
}

static void a_warm_folder_builds_nothing(void **state) {
    (void)state;
    char *folder = temporary_folder();
    struct session session;
    begin(&session, folder, NULL);
    run_all(&session);
    const clattn_statistics cold = statistics_of(&session);
    run_all(&session);
    const clattn_statistics again = statistics_of(&session);
    assert_true(cold.programs_built >= 5 && cold.programs_loaded == 0);
    assert_int_equal(again.programs_built, cold.programs_built);
    clattn_context_release(&session.clattn);
    begin(&session, folder, NULL);
    run_all(&session);
    const clattn_statistics warm = statistics_of(&session);
    assert_int_equal(warm.programs_built, 0);
    assert_int_equal(warm.programs_loaded, cold.programs_built);
    clattn_context_release(&session.clattn);
    temporary_remove(folder);
}

/* The same from a process of its own: the child of main() below. */
static void a_warm_folder_builds_nothing_in_a_new_process(void **state) {
    (void)state;
    char *folder = temporary_folder(), variable[4200], output[4096];
    const char *const environment[] = {variable, NULL};
    snprintf(variable, sizeof variable, "CLATTN_CACHE_DIR=%s", folder);
    assert_int_equal(child_run("once", environment, output, sizeof output), 0);
    assert_null(strstr(output, "built 0"));
    assert_int_equal(child_run("once", environment, output, sizeof output), 0);
    if (!strstr(output, "built 0"))
        fail_msg("second process: %s", output);
    temporary_remove(folder);
}

static int once(void) {
    cl_device_id id;
    cl_int code = CL_SUCCESS;
    clattn_context *clattn = NULL;
    clattn_statistics statistics = {.size = sizeof statistics};
    if (!quick_device(&id))
        return 77;
    cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    cl_command_queue queue = clCreateCommandQueue(context, id, 0, &code);
    if (clattn_context_create(context, id, NULL, &clattn) != CLATTN_SUCCESS)
        return 1;
    const struct quick_result result = quick_run(context, queue, clattn, &calls[0]);
    (void)clattn_context_statistics(clattn, &statistics);
    printf("%s: built %d\n", result.status == CLATTN_SUCCESS ? "ran" : clattn_last_error(),
           (int)statistics.programs_built);
    clattn_context_release(&clattn);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return quick_is_right(&calls[0], &result) ? 0 : 1;
}

/* A changed source is another key. */
static void a_changed_source_is_built_anew(void **state) {
    (void)state;
    const char *sources = getenv("CLATTN_TEST_CL_DIR");
    if (!sources)
        skip();
    char *folder = temporary_folder(), *copy = temporary_folder(), command[9000];
    snprintf(command, sizeof command, "cp -r '%s'/. '%s'", sources, copy);
    assert_int_equal(system(command), 0);
    assert_true(run_in(folder, copy, NULL).programs_built > 0);
    assert_int_equal(run_in(folder, copy, NULL).programs_built, 0);
    snprintf(command, sizeof command, "for f in '%s'/*.cl; do echo '/* changed */' >>\"$f\"; done", copy);
    assert_int_equal(system(command), 0);
    const clattn_statistics changed = run_in(folder, copy, NULL);
    assert_true(changed.programs_built > 0 && changed.programs_loaded == 0);
    temporary_remove(copy);
    temporary_remove(folder);
}

/* ---- damage ---- */

enum damage { CUT_TO_NOTHING, CUT_TO_HALF, FLIP_A_BYTE, FLIP_THE_LAST_BYTE, ANOTHER_ENTRY, DAMAGES };

static void spoil(const char *path, enum damage damage, const char *other) {
    struct stat info;
    char command[9000];
    assert_int_equal(stat(path, &info), 0);
    if (damage == CUT_TO_NOTHING || damage == CUT_TO_HALF) {
        assert_int_equal(truncate(path, damage == CUT_TO_HALF ? info.st_size / 2 : 0), 0);
    } else if (damage == ANOTHER_ENTRY) {
        snprintf(command, sizeof command, "cp '%s' '%s'", other, path);
        assert_int_equal(system(command), 0);
    } else {
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        const long at = damage == FLIP_A_BYTE ? (long)info.st_size / 2 : (long)info.st_size - 1;
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        const int byte = fgetc(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_not_equal(fputc(byte ^ 0x40, file), EOF);
        fclose(file);
    }
}

/* Calls spoil() on each regular file of the folder; returns how many there were. */
static int spoil_all(const char *folder, enum damage damage, const char *other) {
    DIR *dir = opendir(folder);
    int count = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *path = temporary_path(folder, entry->d_name);
        struct stat info;
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            spoil(path, damage, other);
            count++;
        }
        free(path);
    }
    closedir(dir);
    return count;
}

static char *any_file(const char *folder) {
    DIR *dir = opendir(folder);
    char *found = NULL;
    assert_non_null(dir);
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        char *path = temporary_path(folder, entry->d_name);
        struct stat info;
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
            found = path;
        else
            free(path);
    }
    closedir(dir);
    return found;
}

/* A61 */
static void damaged_entries_are_replaced(void **state) {
    (void)state;
    char *elsewhere = temporary_folder();
    struct session session;
    begin(&session, elsewhere, NULL);
    run_right(&session, &calls[1]);
    clattn_context_release(&session.clattn);
    char *other = any_file(elsewhere);
    assert_non_null(other);
    for (int damage = 0; damage < DAMAGES; damage++) {
        char *folder = temporary_folder();
        const clattn_statistics cold = run_in(folder, NULL, NULL);
        assert_true(spoil_all(folder, (enum damage)damage, other) > 0);
        const clattn_statistics damaged = run_in(folder, NULL, NULL);
        assert_int_equal(damaged.programs_built, cold.programs_built);
        const clattn_statistics healed = run_in(folder, NULL, NULL);
        assert_int_equal(healed.programs_built, 0);
        temporary_remove(folder);
    }
    free(other);
    temporary_remove(elsewhere);
}

static void a_killed_writers_remains_are_harmless(void **state) {
    (void)state;
    char *folder = temporary_folder();
    (void)run_in(folder, NULL, NULL);
    temporary_write(folder, "0123456789abcdef.tmp", "half an ent", 11);
    temporary_write(folder, "not an entry", "", 0);
    assert_int_equal(run_in(folder, NULL, NULL).programs_built, 0);
    temporary_remove(folder);
}

/* ---- unusable folders ---- */

static int entries_of(const char *folder) {
    DIR *dir = opendir(folder);
    int count = -2; /* "." and ".." */
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void works_without(const char *cache_dir) {
    char *here = temporary_folder(), before[4096];
    int warnings = 0;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(here), 0);
    const clattn_statistics statistics = run_in(cache_dir, NULL, &warnings);
    assert_int_equal(chdir(before), 0);
    assert_true(statistics.programs_built > 0);
    if (warnings > 1)
        fail_msg("%.80s: %d warnings", cache_dir, warnings);
    if (entries_of(here) != 0)
        fail_msg("%.80s: something was written to the working directory", cache_dir);
    temporary_remove(here);
}

/* A62, from here on. */
static void a_folder_that_cannot_be_made(void **state) {
    (void)state;
    works_without("/proc/nowhere/cache");
    works_without("/dev/null/cache");
    works_without("");
}

static void a_file_in_place_of_the_folder(void **state) {
    (void)state;
    char *folder = temporary_folder();
    temporary_write(folder, "file", "x", 1);
    char *path = temporary_path(folder, "file");
    works_without(path);
    free(path);
    temporary_remove(folder);
}

static void a_path_that_is_too_long(void **state) {
    (void)state;
    char path[6000];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    for (size_t i = 0; i < sizeof path - 1; i += 100)
        path[i] = '/';
    memcpy(path, "/tmp", 4);
    works_without(path);
}

/* A folder that others may write to could hold anybody's machine code. */
static void a_folder_open_to_others_is_refused(void **state) {
    (void)state;
    const mode_t modes[] = {0777, 0770, 0702};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        char *folder = temporary_folder();
        assert_int_equal(chmod(folder, modes[i]), 0);
        works_without(folder);
        assert_int_equal(entries_of(folder), 0);
        temporary_remove(folder);
    }
}

static void no_home_at_all(void **state) {
    (void)state;
    const char *const environment[] = {"HOME", "XDG_CACHE_HOME", "CLATTN_CACHE_DIR", NULL};
    char output[4096];
    const int status = child_run("once", environment, output, sizeof output);
    if (status != 0)
        fail_msg("exit status %d: %s", status, output);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_folder_builds_nothing),
        cmocka_unit_test(a_warm_folder_builds_nothing_in_a_new_process),
        cmocka_unit_test(a_changed_source_is_built_anew),
        cmocka_unit_test(damaged_entries_are_replaced),
        cmocka_unit_test(a_killed_writers_remains_are_harmless),
        cmocka_unit_test(a_folder_that_cannot_be_made),
        cmocka_unit_test(a_file_in_place_of_the_folder),
        cmocka_unit_test(a_path_that_is_too_long),
        cmocka_unit_test(a_folder_open_to_others_is_refused),
        cmocka_unit_test(no_home_at_all),
    };
    if (argc > 1 && strcmp(argv[1], "once") == 0)
        return once();
    return support_main("cache", tests, sizeof tests / sizeof tests[0]);
}
