/* The hash of kernel sources that tuning rows carry: what changes it, and what does not. */
#include "source.h"
#include "temporary.h"
#include "tuning_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const clattn_op_kind kinds[] = {CLATTN_OP_ATTENTION,    CLATTN_OP_ATTENTION_BACKWARD, CLATTN_OP_ATTENTION_MERGE,
                                       CLATTN_OP_SOFTMAX,      CLATTN_OP_SOFTMAX_MERGE,      CLATTN_OP_GEMM,
                                       CLATTN_OP_NORM,         CLATTN_OP_NORM_BACKWARD,      CLATTN_OP_SOFTMAX_BACKWARD,
                                       CLATTN_OP_SOFTMAX_TOPK, CLATTN_OP_ROPE_APPEND,        CLATTN_OP_CAST,
                                       CLATTN_OP_UNSCALE,      CLATTN_OP_LOSS_SCALE,         CLATTN_OP_ADAMW,
                                       CLATTN_OP_SGD};
#define KINDS (sizeof kinds / sizeof kinds[0])

static bool is_embedded(const char *name) {
    for (size_t i = 0; i < source_embedded_count; i++)
        if (strcmp(source_embedded[i].name, name) == 0)
            return true;
    return false;
}

static bool is_of_an_operation(const char *name) {
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; tuning_kernels_file(kinds[k], i) != NULL; i++)
            if (strcmp(tuning_kernels_file(kinds[k], i), name) == 0)
                return true;
    return false;
}

/* A kernel file that belongs to no operation would change unseen. */
static void every_kernel_file_belongs_to_an_operation(void **state) {
    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; tuning_kernels_file(kinds[k], i) != NULL; i++)
            if (!is_embedded(tuning_kernels_file(kinds[k], i)))
                fail_msg("there is no %s", tuning_kernels_file(kinds[k], i));
    for (size_t i = 0; i < source_embedded_count; i++) {
        const char *name = source_embedded[i].name, *end = strrchr(name, '.');
        const bool is_kernel = strcmp(end, ".cl") == 0 && strncmp(name, "selftest_", 9) != 0;
        if (is_kernel && !is_of_an_operation(name))
            fail_msg("%s belongs to no operation", name);
    }
}

static void copy_kernels(const char *folder) {
    for (size_t i = 0; i < source_embedded_count; i++)
        temporary_write(folder, source_embedded[i].name, (const char *)source_embedded[i].text,
                        source_embedded[i].size);
}

static void hash(const char *folder, clattn_op_kind op, enum backend backend, char text[17]) {
    assert_true(tuning_kernels_hash(folder, op, backend, text));
    assert_int_equal(strlen(text), 16);
}

/* Does a change of the file change the hash? */
static bool depends(const char *folder, clattn_op_kind op, enum backend backend, const char *name) {
    char before[17], after[17];
    char *path = temporary_path(folder, name);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    hash(folder, op, backend, before);
    fputc('\n', file);
    fclose(file);
    hash(folder, op, backend, after);
    free(path);
    return strcmp(before, after) != 0;
}

static void what_is_included_counts(void **state) {
    static const struct {
        clattn_op_kind op;
        enum backend backend;
        const char *file;
        bool counts;
    } rows[] = {
        {CLATTN_OP_ATTENTION, BACKEND_FMA, "attention_forward.cl", true},
        {CLATTN_OP_ATTENTION, BACKEND_FMA, "key_range.clh", true},
        {CLATTN_OP_ATTENTION, BACKEND_FMA, "tile/fma.clh", true},
        {CLATTN_OP_ATTENTION, BACKEND_FMA, "tile/cpu_vector.clh", false},
        {CLATTN_OP_ATTENTION, BACKEND_CPU_VECTOR, "tile/cpu_vector.clh", true},
        {CLATTN_OP_ATTENTION, BACKEND_CPU_VECTOR, "tile/nvidia_mma.clh", false},
        {CLATTN_OP_ATTENTION, TUNING_KERNELS_ALL, "tile/nvidia_mma.clh", true},
        {CLATTN_OP_ATTENTION, TUNING_KERNELS_ALL, "gemm.cl", true},
        {CLATTN_OP_ATTENTION, BACKEND_FMA, "norm.cl", false},
        {CLATTN_OP_SOFTMAX, BACKEND_ANY, "subgroup/local.clh", true},
        {CLATTN_OP_SOFTMAX, BACKEND_ANY, "online_softmax.clh", false},
        {CLATTN_OP_SOFTMAX, BACKEND_ANY, "state.clh", true},
        {CLATTN_OP_SOFTMAX, BACKEND_ANY, "selftest_half.cl", false},
        {CLATTN_OP_GEMM, BACKEND_CLBLAST, "tile/fma.clh", true},
    };
    char *folder = temporary_folder();
    (void)state;
    copy_kernels(folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (depends(folder, rows[i].op, rows[i].backend, rows[i].file) != rows[i].counts)
            fail_msg("%s of operation %d: expected %d", rows[i].file, (int)rows[i].op, (int)rows[i].counts);
    temporary_remove(folder);
}

static void embedded_and_copied_files_are_the_same(void **state) {
    char *folder = temporary_folder();
    (void)state;
    copy_kernels(folder);
    for (size_t k = 0; k < KINDS; k++) {
        char embedded[17], copied[17], again[17];
        hash(NULL, kinds[k], BACKEND_FMA, embedded);
        hash(folder, kinds[k], BACKEND_FMA, copied);
        hash(NULL, kinds[k], BACKEND_FMA, again);
        assert_string_equal(embedded, copied);
        assert_string_equal(embedded, again);
        for (size_t other = 0; other < k; other++) {
            hash(NULL, kinds[other], BACKEND_FMA, again);
            assert_string_not_equal(embedded, again);
        }
    }
    temporary_remove(folder);
}

static void missing_files_have_no_hash(void **state) {
    char *folder = temporary_folder(), text[17] = "as it was";
    (void)state;
    assert_false(tuning_kernels_hash(folder, CLATTN_OP_SOFTMAX, BACKEND_ANY, text));
    assert_false(tuning_kernels_hash(NULL, CLATTN_OP_ATTENTION_CASCADE, BACKEND_ANY, text));
    assert_false(tuning_kernels_hash(NULL, (clattn_op_kind)999, BACKEND_ANY, text));
    assert_string_equal(text, "as it was");
    temporary_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_file_belongs_to_an_operation),
        cmocka_unit_test(what_is_included_counts),
        cmocka_unit_test(embedded_and_copied_files_are_the_same),
        cmocka_unit_test(missing_files_have_no_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
