/* The .npy reader and writer of the command: every element type, both orders, and files that are damaged in every way,
 * which must be refused with a reason and never read past their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../tools/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file {
    unsigned char bytes[1024];
    size_t size;
};

/* A file of a version with the given dict and `data` bytes that count 0, 1, 2... */
static struct file make_file(int version, const char *dict, size_t data) {
    struct file file = {.size = version == 1 ? 10 : 12};
    const size_t length = strlen(dict);
    memcpy(file.bytes, "\x93NUMPY", 6);
    file.bytes[6] = (unsigned char)version;
    file.bytes[8] = (unsigned char)(length & 255);
    file.bytes[9] = (unsigned char)(length >> 8);
    memcpy(file.bytes + file.size, dict, length);
    file.size += length;
    for (size_t i = 0; i < data; i++)
        file.bytes[file.size++] = (unsigned char)i;
    return file;
}

/* From memory of exactly its size, so that a sanitizer sees a read past the end. */
static bool parse(const struct file *file, size_t size, struct array *out) {
    char reason[NPY_REASON_SIZE] = "";
    unsigned char *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, file->bytes, size);
    const bool done = npy_parse(exact, size, out, reason);
    free(exact);
    assert_true(done || reason[0]);
    return done;
}

static void reads_every_element_type(void **state) {
    static const struct {
        const char *descriptor;
        enum element element;
    } types[] = {{"<f4", ELEMENT_F32}, {"<f2", ELEMENT_F16}, {"<u2", ELEMENT_BF16}, {"bfloat16", ELEMENT_BF16},
                 {"<i4", ELEMENT_I32}, {"<i8", ELEMENT_I64}, {"|u1", ELEMENT_U8},   {"|b1", ELEMENT_BOOL}};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int version = 1; version <= 3; version++) {
            char dict[128];
            struct array array;
            snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }\n",
                     types[t].descriptor);
            const size_t size = element_size(types[t].element);
            const struct file file = make_file(version, dict, 6 * size);
            assert_true(parse(&file, file.size, &array));
            assert_int_equal(array.element, types[t].element);
            assert_int_equal(array.rank, 2);
            assert_int_equal(array.dims[0], 2);
            assert_int_equal(array.dims[1], 3);
            for (size_t i = 0; i < 6 * size; i++)
                assert_int_equal(((unsigned char *)array.data)[i], i);
            array_free(&array);
        }
}

static void turns_fortran_order(void **state) {
    const struct file file = make_file(1, "{\"shape\": (2, 3, 2), \"descr\": \"|u1\", \"fortran_order\": True}", 12);
    struct array array;
    (void)state;
    assert_true(parse(&file, file.size, &array));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++)
                assert_int_equal(((unsigned char *)array.data)[(i * 3 + j) * 2 + k], i + 2 * j + 6 * k);
    array_free(&array);
}

static void reads_scalars_and_empty_arrays(void **state) {
    static const struct {
        const char *shape;
        int rank;
        size_t count;
    } shapes[] = {{"()", 0, 1}, {"(1,)", 1, 1}, {"(0,)", 1, 0}, {"(5, 7, 0)", 3, 0}, {"(0, 9)", 2, 0}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        char dict[128];
        struct array array;
        snprintf(dict, sizeof dict, "{'descr': '|u1', 'fortran_order': True, 'shape': %s}", shapes[s].shape);
        const struct file file = make_file(1, dict, shapes[s].count);
        assert_true(parse(&file, file.size, &array));
        assert_int_equal(array.rank, shapes[s].rank);
        assert_int_equal(array.count, shapes[s].count);
        array_free(&array);
    }
}

static void refuses_malformed_headers(void **state) {
    static const char *const dicts[] = {
        "",
        "{",
        "{}",
        "()",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4\\', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
    };
    struct array array;
    (void)state;
    for (size_t d = 0; d < sizeof dicts / sizeof *dicts; d++) {
        const struct file file = make_file(1, dicts[d], 4);
        if (parse(&file, file.size, &array))
            fail_msg("accepted: %s", dicts[d]);
    }
}

static void refuses_sizes_that_do_not_match(void **state) {
    static const struct {
        const char *shape;
        size_t data;
    } wrong[] = {{"(2,)", 7},
                 {"(2,)", 9},
                 {"(2,)", 0},
                 {"(0,)", 4},
                 {"(2305843009213693952,)", 0},
                 {"(4611686018427387904, 4)", 0},
                 {"(4294967296, 4294967296)", 0},
                 {"(9223372036854775807,)", 4}};
    struct array array;
    (void)state;
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        char dict[128];
        snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': %s}", wrong[w].shape);
        const struct file file = make_file(1, dict, wrong[w].data);
        if (parse(&file, file.size, &array))
            fail_msg("accepted: %s with %zu bytes", wrong[w].shape, wrong[w].data);
    }
}

static void refuses_every_cut_and_survives_every_flip(void **state) {
    const struct file good = make_file(2, "{'descr': '<f2', 'fortran_order': True, 'shape': (3, 2)}", 12);
    struct array array;
    (void)state;
    for (size_t size = 0; size < good.size; size++)
        assert_false(parse(&good, size, &array));
    for (size_t at = 0; at < good.size; at++)
        for (int bit = 0; bit < 8; bit++) {
            struct file bad = good;
            bad.bytes[at] ^= (unsigned char)(1 << bit);
            if (parse(&bad, bad.size, &array))
                array_free(&array);
        }
}

/* Random bytes after a valid start: the seed is fixed, so that a failure repeats. */
static void survives_noise(void **state) {
    uint32_t random = 12345;
    struct array array;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct file file = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", 16);
        for (int change = 0; change < 4; change++) {
            random = random * 1664525u + 1013904223u;
            const size_t at = 8 + (random >> 8) % (file.size - 8);
            file.bytes[at] = (unsigned char)(random >> 24);
        }
        if (parse(&file, file.size, &array))
            array_free(&array);
    }
}

static void writes_what_it_reads(void **state) {
    char path[] = "/tmp/clattn-npy-XXXXXX", reason[NPY_REASON_SIZE];
    const int64_t dims[3] = {2, 3, 5};
    const int handle = mkstemp(path);
    (void)state;
    assert_true(handle >= 0);
    close(handle);
    for (enum element e = ELEMENT_F32; e <= ELEMENT_BOOL; e++)
        for (int rank = 0; rank <= 3; rank++) {
            struct array written, read;
            assert_true(array_make(&written, e, rank, dims));
            for (size_t i = 0; i < written.count; i++)
                array_set(&written, i, (double)i);
            assert_true(npy_write(path, &written, reason));
            assert_true(npy_read(path, &read, reason));
            assert_int_equal(read.element, e);
            assert_int_equal(read.rank, rank);
            assert_int_equal(read.count, written.count);
            assert_memory_equal(read.data, written.data, array_bytes(&written));
            array_free(&written);
            array_free(&read);
        }
    unlink(path);
}

static void says_why_a_file_cannot_be_opened(void **state) {
    char reason[NPY_REASON_SIZE] = "";
    struct array array;
    (void)state;
    assert_false(npy_read("/nonexistent/x.npy", &array, reason));
    assert_non_null(strstr(reason, "No such file"));
    assert_false(npy_read("/", &array, reason));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_element_type),
        cmocka_unit_test(turns_fortran_order),
        cmocka_unit_test(reads_scalars_and_empty_arrays),
        cmocka_unit_test(refuses_malformed_headers),
        cmocka_unit_test(refuses_sizes_that_do_not_match),
        cmocka_unit_test(refuses_every_cut_and_survives_every_flip),
        cmocka_unit_test(survives_noise),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(says_why_a_file_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
