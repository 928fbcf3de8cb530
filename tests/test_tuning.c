/* Tuning rows: the four-step fall-back, the order within a step, and files that are damaged in every way. */
#include "temporary.h"
#include "tuning.h"
#include "variant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int warnings;

static void count_warnings(void *user, clattn_log_level level, const char *message) {
    (void)user;
    (void)message;
    warnings += level <= CLATTN_LOG_WARNING;
}

static const struct log test_log = {count_warnings, NULL, CLATTN_LOG_DEBUG};

/* The shipped rows and a user file with this content. */
static struct tuning *load_bytes(const char *text, size_t size) {
    struct tuning *tuning = NULL;
    char *folder = temporary_folder();
    char *path = temporary_path(folder, "tuning.json");
    temporary_write(folder, "tuning.json", text, size);
    warnings = 0;
    assert_int_equal(tuning_load(path, &test_log, &tuning), CLATTN_SUCCESS);
    free(path);
    temporary_remove(folder);
    return tuning;
}

static struct tuning *load(const char *rows) {
    char text[4096];
    const int size = snprintf(text, sizeof text, "{\"rows\": [%s]}", rows);
    return load_bytes(text, (size_t)size);
}

static struct device_facts invented(const char *name, const char *architecture, enum device_vendor vendor) {
    struct device_facts facts = {.vendor = vendor};
    snprintf(facts.name, sizeof facts.name, "%s", name);
    snprintf(facts.architecture, sizeof facts.architecture, "%s", architecture);
    return facts;
}

static const struct tuning_key fold_key = {"fold", CLATTN_OP_SOFTMAX_MERGE, CLATTN_F32, 100};

static void shipped_rows_are_sound(void **state) {
    struct tuning *tuning = NULL;
    (void)state;
    warnings = 0;
    assert_int_equal(tuning_load(NULL, &test_log, &tuning), CLATTN_SUCCESS);
    assert_int_equal(warnings, 0);
    tuning_free(tuning);
    assert_int_equal(tuning_load("", &test_log, &tuning), CLATTN_SUCCESS);
    tuning_free(tuning);
    assert_int_equal(tuning_load("/nowhere/at/all.json", &test_log, &tuning), CLATTN_SUCCESS);
    tuning_free(tuning);
    assert_int_equal(warnings, 0);
    tuning_free(NULL);
}

/* A user row for a device must stand on the parameters that the defaults name. */
static void shipped_rows_name_what_defaults_name(void **state) {
    struct tuning *tuning = NULL;
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    const struct device_facts nobody = invented("no such device", "none", VENDOR_OTHER);
    const struct device_facts some[] = {invented("H200", "sm_90", VENDOR_NVIDIA), invented("a", "gfx1100", VENDOR_AMD),
                                        invented("b", "xe_hpg", VENDOR_INTEL), invented("c", "cpu", VENDOR_OTHER)};
    (void)state;
    assert_int_equal(tuning_load(NULL, &test_log, &tuning), CLATTN_SUCCESS);
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < sizeof some / sizeof some[0]; d++)
            for (int dtype = CLATTN_F32; dtype <= CLATTN_BF16; dtype++) {
                const struct tuning_key key = {table[i].name, table[i].op, (clattn_dtype)dtype, 64};
                struct parameters tuned = {0}, standard = {0};
                tuning_find(tuning, &some[d], &key, &tuned);
                tuning_find(tuning, &nobody, &key, &standard);
                for (int p = 0; p < tuned.count; p++)
                    assert_true(parameters_get(&standard, tuned.item[p].name, -1) >= 0);
            }
    tuning_free(tuning);
}

static void falls_back_in_four_steps(void **state) {
    static const struct {
        const char *name, *architecture;
        enum device_vendor vendor;
        enum tuning_source source;
        int value;
    } rows[] = {
        {"H200", "sm_90", VENDOR_NVIDIA, TUNING_DEVICE, 1},       {"H200", "other", VENDOR_OTHER, TUNING_DEVICE, 1},
        {"H100", "sm_90", VENDOR_NVIDIA, TUNING_ARCHITECTURE, 2}, {"A100", "sm_80", VENDOR_NVIDIA, TUNING_VENDOR, 3},
        {"MI300X", "gfx942", VENDOR_AMD, TUNING_DEFAULT, 4},      {"H200 NVL", "sm_9", VENDOR_OTHER, TUNING_DEFAULT, 4},
    };
    struct tuning *tuning = load(
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 4}},"
        "{\"vendor\": \"nvidia\", \"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 3}},"
        "{\"architecture\": \"sm_90\", \"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 2}},"
        "{\"device\": \"H200\", \"architecture\": \"sm_90\", \"vendor\": \"nvidia\","
        " \"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 1}}");
    (void)state;
    assert_int_equal(warnings, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct device_facts facts = invented(rows[i].name, rows[i].architecture, rows[i].vendor);
        struct parameters found = {0};
        assert_int_equal(tuning_find(tuning, &facts, &fold_key, &found), rows[i].source);
        assert_int_equal(parameters_get(&found, "x", -1), rows[i].value);
    }
    const struct device_facts facts = invented("H100", "sm_90", VENDOR_NVIDIA);
    struct parameters found = {0};
    tuning_narrow(tuning, &facts, NULL, &test_log);
    assert_int_equal(tuning_find(tuning, &facts, &fold_key, &found), TUNING_ARCHITECTURE);
    assert_int_equal(parameters_get(&found, "x", -1), 2);
    const struct tuning_key unknown = {"no such variant", CLATTN_OP_GEMM, CLATTN_F32, 1};
    assert_int_equal(tuning_find(tuning, &facts, &unknown, &found), TUNING_NONE);
    assert_int_equal(found.count, 0);
    tuning_free(tuning);
}

static void takes_the_nearest_size_and_dtype(void **state) {
    static const struct {
        int64_t size;
        clattn_dtype dtype;
        int value;
    } rows[] = {
        {1, CLATTN_F32, 1},   {64, CLATTN_F32, 1},  {65, CLATTN_F32, 2},        {128, CLATTN_F16, 3},
        {129, CLATTN_F16, 4}, {129, CLATTN_F32, 5}, {INT64_MAX, CLATTN_F32, 5}, {64, CLATTN_BF16, 1},
    };
    struct tuning *tuning =
        load("{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 5}},"
             "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"dtype\": \"f16\", \"parameters\": {\"x\": 4}},"
             "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"dtype\": \"f16\", \"max_size\": 128, "
             "\"parameters\": {\"x\": 3}},"
             "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": 128, \"parameters\": {\"x\": 2}},"
             "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": 64, \"parameters\": {\"x\": 1}}");
    const struct device_facts facts = invented("any", "unknown", VENDOR_OTHER);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tuning_key key = {"fold", CLATTN_OP_SOFTMAX_MERGE, rows[i].dtype, rows[i].size};
        struct parameters found = {0};
        assert_int_equal(tuning_find(tuning, &facts, &key, &found), TUNING_DEFAULT);
        assert_int_equal(parameters_get(&found, "x", -1), rows[i].value);
    }
    tuning_free(tuning);
}

/* Whatever is shipped for a variant, a user's row of the same step comes first, and an operation's own row is its own.
 */
static void user_rows_come_first(void **state) {
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    const struct device_facts facts = invented("no such device", "none", VENDOR_OTHER);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        char rows[256];
        struct parameters found = {0};
        const struct tuning_key key = {table[i].name, table[i].op, CLATTN_F16, 64};
        snprintf(rows, sizeof rows, "{\"op\": \"%s\", \"variant\": \"%s\", \"parameters\": {\"mine\": %d}}",
                 variant_op_name(table[i].op), table[i].name, (int)i);
        struct tuning *tuning = load(rows);
        assert_int_equal(tuning_find(tuning, &facts, &key, &found), TUNING_DEFAULT);
        assert_int_equal(parameters_get(&found, "mine", -1), (int)i);
        assert_false(tuning_knows(tuning, table[i].op, table[i].name, "mine"));
        tuning_free(tuning);
    }
    struct tuning *tuning = load("{\"op\": \"attention_merge\", \"variant\": \"fold\", \"parameters\": {\"mine\": 1}}");
    struct parameters found = {0};
    tuning_find(tuning, &facts, &fold_key, &found);
    assert_int_equal(parameters_get(&found, "mine", -1), -1);
    tuning_free(tuning);
}

/* A bad row is dropped with one warning, its neighbours stay. */
static void bad_rows_are_ignored_alone(void **state) {
    static const char *const bad[] = {
        "5",
        "null",
        "[]",
        "{}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\"}",
        "{\"variant\": \"fold\", \"parameters\": {}}",
        "{\"variant\": 5, \"parameters\": {}}",
        "{\"variant\": \"no such variant\", \"parameters\": {}}",
        "{\"variant\": \"fold\", \"op\": \"gemm\", \"parameters\": {}}",
        "{\"variant\": \"fold\", \"op\": 3, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": [1]}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": \"64\"}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 1.5}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": -1}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 1e300}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": true}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"\": 1}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"a_name_of_24_characters_\": 1}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": "
        "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,"
        "\"j\":1,\"k\":1,\"l\":1,\"m\":1,\"n\":1,\"o\":1,\"p\":1,\"q\":1}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"dtype\": \"f64\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"dtype\": 1, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": \"big\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": -1, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": 1e30, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"device\": 5, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"device\": \"\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"device\": \"\\u001b[2J\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"device\": [\"any\"], \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"../../fold\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"driver\": 5, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"driver\": \"\\n\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"kernels\": 5, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"kernels\": \"0123456789abcde\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"kernels\": \"../../../../../\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"min_size\": 5, \"max_size\": 4, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"min_size\": 1e999, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": 1.5, \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": 9223372036854775808}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x=1,y\": 1}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"x\": {\"x\": 1}}}",
        "{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"prefer\": \"fold\", \"parameters\": {}}",
        "{\"op\": \"softmax_merge\", \"prefer\": \"fold\"}",
        "{\"op\": \"attention\", \"variant\": \"fused_fma\", \"parameters\": {\"shares\": 2}}",
        "{\"op\": \"attention\", \"prefer\": \"no such variant\"}",
        "{\"op\": \"attention\", \"prefer\": [\"unfused\"]}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"parameters\": {}}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"queries\": 5}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"queries\": [5]}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"keys\": [6, 5]}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"heads\": [1, 2, 3]}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"sharing\": [\"1\", 2]}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"keys\": [-1, 1e999]}",
        "{\"op\": \"attention\", \"prefer\": \"unfused\", \"causal\": \"yes\"}",
    };
    const struct device_facts facts = invented("any", "unknown", VENDOR_OTHER);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char rows[1024];
        struct parameters found = {0};
        snprintf(rows, sizeof rows,
                 "%s, {\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"good\": 1}}", bad[i]);
        struct tuning *tuning = load(rows);
        assert_int_equal(warnings, 1);
        assert_int_equal(tuning_find(tuning, &facts, &fold_key, &found), TUNING_DEFAULT);
        assert_int_equal(found.count, 1);
        assert_int_equal(parameters_get(&found, "good", -1), 1);
        tuning_free(tuning);
    }
}

/* Values that no kernel takes make way for the next best row. */
static void impossible_values_are_dropped(void **state) {
    static const struct {
        clattn_op_kind op;
        const char *variant, *parameters;
    } bad[] = {
        {CLATTN_OP_ATTENTION, "fused_fma", "\"score_tiles\": 0"},
        {CLATTN_OP_ATTENTION, "fused_fma", "\"fma_items\": 3"},
        {CLATTN_OP_ATTENTION, "fused_fma", "\"groups\": 1073741824"},
        {CLATTN_OP_ATTENTION, "two_pass_fma", "\"k_slice\": 1073741824"},
        {CLATTN_OP_ATTENTION, "two_pass_fma", "\"v_slice\": 65537"},
        {CLATTN_OP_ATTENTION, "fused_cpu_vector", "\"groups\": 2"},
        {CLATTN_OP_ATTENTION, "fused_nvidia_mma", "\"mma_rows\": 24"},
        {CLATTN_OP_GEMM, "tiled_fma", "\"fma_rows\": 2"},
        {CLATTN_OP_GEMM, "tiled_fma", "\"column_tiles\": 65"},
        {CLATTN_OP_GEMM, "tiled_nvidia_mma", "\"stage_slots\": 3"},
        {CLATTN_OP_SOFTMAX, "subgroup", "\"team\": 3"},
        {CLATTN_OP_SOFTMAX, "group", "\"group\": 2048"},
        {CLATTN_OP_SOFTMAX, "online", "\"vector\": 16"},
        {CLATTN_OP_CAST, "elements", "\"vector\": 2"},
    };
    const struct device_facts facts = invented("mine", "unknown", VENDOR_OTHER);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct tuning_key key = {bad[i].variant, bad[i].op, CLATTN_F16, 64};
        struct parameters found = {0}, shipped = {0};
        char row[256];
        struct tuning *tuning = load("");
        assert_int_equal(tuning_find(tuning, &facts, &key, &shipped), TUNING_DEFAULT);
        tuning_free(tuning);
        snprintf(row, sizeof row, "{\"device\": \"mine\", \"op\": \"%s\", \"variant\": \"%s\", \"parameters\": {%s}}",
                 variant_op_name(bad[i].op), bad[i].variant, bad[i].parameters);
        tuning = load(row);
        assert_int_equal(warnings, 1);
        assert_int_equal(tuning_find(tuning, &facts, &key, &found), TUNING_DEFAULT);
        assert_memory_equal(&found, &shipped, sizeof found);
        tuning_free(tuning);
    }
}

static void damaged_files_are_ignored_whole(void **state) {
    static const char good[] =
        "{\"rows\": [{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"parameters\": {\"good\": 1}}]}";
    static const char *const bad[] = {"",
                                      "x",
                                      "[]",
                                      "5",
                                      "\"rows\"",
                                      "{\"rows\": {}}",
                                      "null",
                                      "{\"row\":[]",
                                      "{\"rows\": 5}",
                                      "\x7f\x45LF",
                                      "{\"rows\": [}"};
    const struct device_facts facts = invented("any", "unknown", VENDOR_OTHER);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0] + sizeof good - 2; i++) {
        const size_t cut = i - sizeof bad / sizeof bad[0]; /* then every beginning of a good file */
        struct parameters found = {0};
        struct tuning *tuning =
            i < sizeof bad / sizeof bad[0] ? load_bytes(bad[i], strlen(bad[i])) : load_bytes(good, cut);
        assert_int_equal(warnings, 1);
        tuning_find(tuning, &facts, &fold_key, &found);
        assert_int_equal(parameters_get(&found, "good", -1), -1);
        tuning_free(tuning);
    }
}

/* Nothing but "no crash, no leak, no row that was not there" can be asked of arbitrary damage. */
static void flip_bytes(const char *good, size_t size) {
    const struct device_facts facts = invented("any", "unknown", VENDOR_OTHER);
    const struct problem problem = {
        .op = CLATTN_OP_ATTENTION, .dtype = CLATTN_F32, .batch = 1, .heads = 1, .kv_heads = 1, .nq = 7, .nk = 7};
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            char text[512];
            struct parameters found = {0};
            assert_in_range(size, 1, sizeof text);
            memcpy(text, good, size);
            text[i] = (char)(text[i] ^ (1 << bit));
            struct tuning *tuning = load_bytes(text, size);
            for (int narrowed = 0; narrowed < 2; narrowed++) {
                tuning_find(tuning, &facts, &fold_key, &found);
                assert_in_range(found.count, 0, 1);
                const struct variant *preferred = tuning_preferred(tuning, &facts, &problem);
                assert_true(preferred == NULL || strcmp(preferred->name, "two_pass_fma") == 0);
                tuning_narrow(tuning, &facts, NULL, &test_log);
            }
            tuning_free(tuning);
        }
}

static void flipped_bytes_do_no_harm(void **state) {
    static const char parameters[] =
        "{\"rows\": [{\"op\": \"softmax_merge\", \"variant\": \"fold\", \"max_size\": 128, \"dtype\": \"f32\","
        " \"parameters\": {\"good\": 1}}]}";
    static const char preference[] =
        "{\"rows\": [{\"device\": \"any\", \"driver\": \"1\", \"kernels\": \"0123456789abcdef\","
        " \"op\": \"attention\", \"prefer\": \"two_pass_fma\", \"queries\": [7, 7], \"causal\": false}]}";
    (void)state;
    flip_bytes(parameters, sizeof parameters - 1);
    flip_bytes(preference, sizeof preference - 1);
}

static void huge_files_are_ignored(void **state) {
    static const char row[] = "{\"variant\":\"fold\",\"parameters\":{\"x\":1}},";
    const struct device_facts facts = invented("any", "unknown", VENDOR_OTHER);
    const size_t size = 3u << 20;
    struct parameters found = {0};
    char *text = malloc(size + 1);
    (void)state;
    assert_non_null(text);
    memset(text, ' ', size);
    memcpy(text, "{\"rows\":[", 9);
    for (size_t at = 9; at + 64 < size; at += sizeof row - 1)
        memcpy(text + at, row, sizeof row - 1);
    memcpy(text + size - 4, "5]} ", 4);
    struct tuning *tuning = load_bytes(text, size);
    assert_int_equal(tuning_find(tuning, &facts, &fold_key, &found), TUNING_NONE);
    tuning_free(tuning);
    /* One value nested as deep as a file may be: its row alone is refused. */
    text[0] = '\0';
    strcat(text, "{\"rows\":[{\"variant\":");
    for (int i = 0; i < 900; i++)
        strcat(text, "[");
    for (int i = 0; i < 900; i++)
        strcat(text, "]");
    strcat(text, "},{\"op\":\"softmax_merge\",\"variant\":\"fold\",\"parameters\":{\"x\":1}}]}");
    tuning = load_bytes(text, strlen(text));
    assert_int_equal(warnings, 1);
    assert_int_equal(tuning_find(tuning, &facts, &fold_key, &found), TUNING_DEFAULT);
    tuning_free(tuning);
    /* Nested as deep as the size allows: the parser must not run out of stack. */
    memset(text, '[', 1u << 19);
    tuning = load_bytes(text, 1u << 19);
    assert_int_equal(warnings, 1);
    tuning_free(tuning);
    free(text);
}

static void sources_have_names(void **state) {
    (void)state;
    assert_string_equal(tuning_source_name(TUNING_DEVICE), "device");
    assert_string_equal(tuning_source_name(TUNING_ARCHITECTURE), "architecture");
    assert_string_equal(tuning_source_name(TUNING_VENDOR), "vendor");
    assert_string_equal(tuning_source_name(TUNING_DEFAULT), "default");
    assert_string_equal(tuning_source_name(TUNING_NONE), "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_rows_are_sound),
        cmocka_unit_test(shipped_rows_name_what_defaults_name),
        cmocka_unit_test(falls_back_in_four_steps),
        cmocka_unit_test(takes_the_nearest_size_and_dtype),
        cmocka_unit_test(user_rows_come_first),
        cmocka_unit_test(bad_rows_are_ignored_alone),
        cmocka_unit_test(impossible_values_are_dropped),
        cmocka_unit_test(damaged_files_are_ignored_whole),
        cmocka_unit_test(flipped_bytes_do_no_harm),
        cmocka_unit_test(huge_files_are_ignored),
        cmocka_unit_test(sources_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
