/* Include expansion, from the embedded table and from a folder. */
#include "os.h"
#include "source.h"
#include "status.h"
#include "temporary.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    char *folder;
};

static int setup(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->folder = temporary_folder();
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    temporary_remove(fixture->folder);
    free(fixture);
    return 0;
}

static void put(void **state, const char *name, const char *text) {
    const struct fixture *fixture = *state;
    temporary_write(fixture->folder, name, text, strlen(text));
}

static void assert_expands(void **state, const char *options, const char *expected) {
    const struct fixture *fixture = *state;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(source_expand(fixture->folder, "top.cl", options, &text, &size), CLATTN_SUCCESS);
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static void assert_refused(void **state, const char *options, clattn_status status, const char *word,
                           const char *other_word) {
    const struct fixture *fixture = *state;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(source_expand(fixture->folder, "top.cl", options, &text, &size), status);
    assert_null(text);
    assert_non_null(strstr(clattn_last_error(), word));
    assert_non_null(strstr(clattn_last_error(), other_word));
}

static void lines_keep_their_numbers(void **state) {
    put(state, "top.cl", "one\n#include \"a.clh\"\nthree");
    put(state, "a.clh", "a\n");
    assert_expands(state, "", "#line 1 \"top.cl\"\none\n#line 1 \"a.clh\"\na\n#line 3 \"top.cl\"\nthree\n");
}

static void a_file_comes_once_even_in_a_cycle(void **state) {
    put(state, "top.cl", "#include \"a.clh\"\n  #  include\t\"b.clh\"\nend\n");
    put(state, "a.clh", "#include \"b.clh\"\na\n");
    put(state, "b.clh", "#include \"a.clh\"\n#include \"top.cl\"\nb\n");
    assert_expands(state, "",
                   "#line 1 \"top.cl\"\n#line 1 \"a.clh\"\n#line 1 \"b.clh\"\n\n\nb\n#line 2 \"a.clh\"\na\n"
                   "#line 2 \"top.cl\"\n\nend\n");
}

static void names_start_at_the_root(void **state) {
    put(state, "top.cl", "#include \"tile/a.clh\"\n");
    put(state, "tile/a.clh", "#include \"tile/b.clh\"\n");
    put(state, "tile/b.clh", "b\n");
    assert_expands(state, "",
                   "#line 1 \"top.cl\"\n#line 1 \"tile/a.clh\"\n#line 1 \"tile/b.clh\"\nb\n#line 2 \"tile/a.clh\"\n"
                   "#line 2 \"top.cl\"\n");
}

static void macros_choose_files(void **state) {
    put(state, "top.cl", "#include \"tile/TILE_BACKEND.clh\"\n");
    put(state, "tile/fma.clh", "fma\n");
    put(state, "tile/wide.clh", "wide\n");
    assert_expands(state, "-DX=1 -DTILE_BACKEND=fma -DTILE=9",
                   "#line 1 \"top.cl\"\n#line 1 \"tile/fma.clh\"\nfma\n#line 2 \"top.cl\"\n");
    assert_expands(state, "-DTILE_BACKEND=wide",
                   "#line 1 \"top.cl\"\n#line 1 \"tile/wide.clh\"\nwide\n#line 2 \"top.cl\"\n");
    assert_refused(state, "-DTILE_BACKEND_2=fma -DNOT-DTILE_BACKEND=fma", CLATTN_INVALID_ARGUMENT,
                   "tile/TILE_BACKEND.clh", "top.cl");
}

static void only_whole_words_are_macros(void **state) {
    put(state, "top.cl", "#include \"tile_ops.clh\"\n");
    put(state, "tile_ops.clh", "ops\n");
    assert_expands(state, "-Dtile=fma -Dops=x -Dclh=clh",
                   "#line 1 \"top.cl\"\n#line 1 \"tile_ops.clh\"\nops\n#line 2 \"top.cl\"\n");
}

static void other_directives_pass(void **state) {
    put(state, "top.cl", "#includes \"a\"\n#include <b>\n#define include \"c\"\n// #include \"d\"\n#include \"open\n");
    assert_expands(state, "",
                   "#line 1 \"top.cl\"\n#includes \"a\"\n#include <b>\n#define include \"c\"\n// #include \"d\"\n"
                   "#include \"open\n");
}

static void windows_line_ends_are_read(void **state) {
    put(state, "top.cl", "#include \"a.clh\"\r\nx\r\n");
    put(state, "a.clh", "a\r\n");
    assert_expands(state, "", "#line 1 \"top.cl\"\n#line 1 \"a.clh\"\na\r\n#line 2 \"top.cl\"\nx\r\n");
}

static void a_missing_file_and_its_includer_are_named(void **state) {
    put(state, "top.cl", "#include \"middle.clh\"\n");
    put(state, "middle.clh", "#include \"gone.clh\"\n");
    assert_refused(state, "", CLATTN_INVALID_ARGUMENT, "gone.clh", "middle.clh");
}

static void a_missing_kernel_file_is_named(void **state) {
    assert_refused(state, "", CLATTN_INVALID_ARGUMENT, "top.cl", "CLATTN_CL_DIR");
}

static void absurd_paths_are_refused(void **state) {
    char text[400] = "#include \"";
    memset(text + 10, 'x', 300);
    strcpy(text + 310, "\"\n");
    put(state, "top.cl", text);
    assert_refused(state, "", CLATTN_INTERNAL_ERROR, "too long", "xxx");
    char many[64 * 40] = "";
    for (int i = 0; i < 70; i++) {
        char line[40], name[16];
        snprintf(name, sizeof name, "f%d.clh", i);
        snprintf(line, sizeof line, "#include \"%s\"\n", name);
        strcat(many, line);
        put(state, name, "f\n");
    }
    put(state, "top.cl", many);
    assert_refused(state, "", CLATTN_INTERNAL_ERROR, "more than", "files");
}

/* The table that the build makes, against the files it was made from. */
static void embedded_files_equal_those_on_disk(void **state) {
    (void)state;
    assert_true(source_embedded_count > 0);
    for (size_t i = 0; i < source_embedded_count; i++) {
        const struct source_file *file = &source_embedded[i];
        char *path = temporary_path(CL_DIR, file->name);
        size_t size = 0;
        char *text = os_read_file(path, 1 << 20, &size);
        assert_non_null(text);
        assert_int_equal(size, file->size);
        assert_memory_equal(text, file->text, size);
        free(text);
        free(path);
    }
}

static void embedded_and_folder_expand_alike(void **state) {
    (void)state;
    const char *options = "-DTILE_BACKEND=fma -DSTAGE_BACKEND=plain -DSUBGROUP_BACKEND=local";
    for (size_t i = 0; i < source_embedded_count; i++) {
        char *embedded = NULL, *folder = NULL;
        size_t embedded_size = 0, folder_size = 0;
        const char *name = source_embedded[i].name;
        const clattn_status status = source_expand(NULL, name, options, &embedded, &embedded_size);
        assert_int_equal(source_expand(CL_DIR, name, options, &folder, &folder_size), status);
        if (status == CLATTN_SUCCESS)
            assert_string_equal(embedded, folder);
        free(embedded);
        free(folder);
    }
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(source_expand(NULL, "no.cl", "", &text, &size), CLATTN_INTERNAL_ERROR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_keep_their_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_comes_once_even_in_a_cycle, setup, teardown),
        cmocka_unit_test_setup_teardown(names_start_at_the_root, setup, teardown),
        cmocka_unit_test_setup_teardown(macros_choose_files, setup, teardown),
        cmocka_unit_test_setup_teardown(only_whole_words_are_macros, setup, teardown),
        cmocka_unit_test_setup_teardown(other_directives_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(windows_line_ends_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_file_and_its_includer_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_kernel_file_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(absurd_paths_are_refused, setup, teardown),
        cmocka_unit_test(embedded_files_equal_those_on_disk),
        cmocka_unit_test(embedded_and_folder_expand_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
