/* Attention's pipeline on the model of its machine: whole calls of the library, on the fake driver, whose kernels the
 * machine runs. Random problems against the oracle, the self-tests, and programs with a mistake, which have to fail. */
#include "attention_harness.h"
#include "fake_cl.h"
#include "machine.h"
#include "random_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROBLEMS = 16, LARGE_PROBLEMS = 2, MUTANT_PROBLEMS = 48, MOST_TRIES = 40, ROWS = 96, MOST_UNITS = 3 };

#define PROGRAM(name, kernel, options) void pipeline_##name(void);
#define MUTANT(name, of, old, new) void pipeline_##name(void);
#include "programs.def"
#undef PROGRAM
#undef MUTANT

struct pipeline_program {
    const char *name, *kernel, *options;
    void (*entry)(void);
};

static struct pipeline_program programs[] = {
#define PROGRAM(name, kernel, options) {#name, #kernel, options, pipeline_##name},
#define MUTANT(name, of, old, new)
#include "programs.def"
#undef PROGRAM
#undef MUTANT
};

static const struct mutant {
    const char *name, *of;
    void (*entry)(void);
} mutants[] = {
#define PROGRAM(name, kernel, options)
#define MUTANT(name, of, old, new) {#name, #of, pipeline_##name},
#include "programs.def"
#undef PROGRAM
#undef MUTANT
};

enum { PROGRAMS = sizeof programs / sizeof *programs, MUTANTS = sizeof mutants / sizeof *mutants };

/* ---- programs and their options ---------------------------------------------------------------------------------- */

/* Does each of the words occur in the options? */
static bool has_all(const char *options, const char *words) {
    char list[1024], around[1100], word[128], *rest = list;
    snprintf(list, sizeof list, "%s", words);
    snprintf(around, sizeof around, " %s ", options);
    for (char *at; (at = strtok_r(rest, " ", &rest));) {
        snprintf(word, sizeof word, " %s ", at);
        if (!strstr(around, word))
            return false;
    }
    return true;
}

static const struct pipeline_program *program_of(const struct fake_command *command) {
    for (size_t i = 0; i < PROGRAMS; i++)
        if (strcmp(command->kernel, programs[i].kernel) == 0 && has_all(command->options, programs[i].options))
            return &programs[i];
    return NULL;
}

static int option(const char *options, const char *name) {
    char text[64];
    snprintf(text, sizeof text, "-D%s=", name);
    const char *at = strstr(options, text);
    if (!at)
        fail_msg("no option %s in %s", name, options);
    return atoi(at + strlen(text));
}

static struct random_program random_program_of(const char *options) {
    return (struct random_program){
        .dtype = (clattn_dtype)option(options, "ELEMENT"),
        .out_dtype = (clattn_dtype)option(options, "OUT_ELEMENT"),
        .bias_dtype = (clattn_dtype)option(options, "BIAS"),
        .head_dim = option(options, "HEAD_DIM"),
        .value_dim = option(options, "VALUE_DIM"),
        .band = option(options, "BAND"),
        .mask = option(options, "MASK"),
        .bias = option(options, "BIAS"),
        .sequences = option(options, "SEQUENCES"),
        .paged = option(options, "PAGED"),
        .alibi = option(options, "ALIBI"),
        .softcap = option(options, "SOFTCAP"),
        .sinks = option(options, "SINKS"),
        .aligned = true,
    };
}

static bool is_pipelined(const struct pipeline_program *program) {
    return strcmp(program->kernel, "attention_forward_pipelined") == 0;
}

/* Programs that problems of their own are made for: not self-tests, nor what only others' calls run too. */
static bool has_problems(const struct pipeline_program *program) {
    return strncmp(program->kernel, "selftest_", 9) != 0 && strcmp(program->kernel, "attention_decode_combine") != 0 &&
           !strstr(program->options, "-DSPLIT=1");
}

static const char *variant_of(const struct pipeline_program *program) {
    if (is_pipelined(program))
        return "fused_nvidia_wgmma";
    return strcmp(program->kernel, "attention_decode") == 0 ? "decode_nvidia_mma" : "fused_nvidia_mma";
}

/* Does the program of whole keys have one of split keys beside it? */
static bool can_split(const char *options) {
    for (size_t i = 0; i < PROGRAMS; i++)
        if (strstr(programs[i].options, "-DSPLIT=1") &&
            option(programs[i].options, "HEAD_DIM") == option(options, "HEAD_DIM"))
            return true;
    return false;
}

/* Tiles in local memory: those of two blocks, or two. */
static int option_ahead(const char *options) {
    if (strstr(options, "STAGE_BACKEND=plain"))
        return 0;
    const int k = (option(options, "HEAD_DIM") + option(options, "K_SLICE") - 1) / option(options, "K_SLICE");
    const int v = (option(options, "VALUE_DIM") + option(options, "V_SLICE") - 1) / option(options, "V_SLICE");
    return option(options, "STAGE_SLOTS") == 2 * (k + v) ? 2 : 1;
}

static void describe_tiles(const char *options, char *text, size_t size) {
    snprintf(text, size, "mma_rows=%d,groups=%d,score_tiles=%d,k_slice=%d,v_slice=%d,ahead=%d",
             option(options, "MMA_ROWS"), option(options, "GROUPS"), option(options, "SCORE_TILES"),
             option(options, "K_SLICE"), option(options, "V_SLICE"), option_ahead(options));
}

static void describe_decode(const char *options, int splits, char *text, size_t size) {
    char tiles[128];
    describe_tiles(options, tiles, sizeof tiles);
    snprintf(text, size, "%s,stage_slots=%d,shares=%d,splits=%d", tiles,
             option_ahead(options) ? 1 : option(options, "STAGE_SLOTS"), option(options, "SHARES"), splits);
}

static void describe_parameters(const char *options, char *text, size_t size) {
    snprintf(text, size, "groups=%d,block_keys=%d,stages=%d,q_slots=%d,q_held=%d,heads_together=%d",
             option(options, "GROUPS"), option(options, "BLOCK_KEYS"), option(options, "STAGES"),
             option(options, "Q_SLOTS"), option(options, "Q_HELD"), option(options, "HEADS_TOGETHER"));
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static uint64_t seed, launches;
static char broken_rule[512]; /* the first of the problem's runs */

static void break_rule(const char *rule) {
    if (rule && broken_rule[0] == '\0')
        snprintf(broken_rule, sizeof broken_rule, "%s", rule);
}

static void run_on_machine(const struct pipeline_program *program, const struct fake_command *command) {
    static struct machine_launch launch;
    size_t memories = 0;
    memset(&launch, 0, sizeof launch);
    launch.kernel = program->entry;
    launch.groups = (int)(command->global[0] / command->local[0]);
    launch.items = (int)command->local[0];
    launch.operands = strcmp(program->kernel, "selftest_shuffle") == 0
                          ? CLATTN_F16
                          : (clattn_dtype)option(program->options, "ELEMENT");
    launch.seed = seed * 65537 + launches++;
    for (int i = 0; i < MACHINE_ARGUMENTS && command->argument[i].size > 0; i++) {
        struct machine_argument *argument = &launch.argument[launch.argument_count++];
        const size_t size = fake_argument_size(command, i);
        const void *bytes = size > 0 ? fake_argument_bytes(command, i) : NULL;
        argument->size = command->argument[i].size;
        memcpy(argument->bytes, size > 0 ? (const void *)&bytes : command->argument[i].bytes, argument->size);
        if (size > 0)
            launch.memory[memories++] = (struct machine_memory){bytes, size};
    }
    break_rule(machine_run(&launch));
}

/* As mask_blocks_t of cl/attention_mask_blocks.cl. */
struct mask_blocks {
    int64_t start, outer, inner, row, column, offset;
    int32_t heads, rows, columns, block_rows, block_columns, unused;
};

static unsigned char state_of(const unsigned char *mask, const struct mask_blocks *call, int head, int down,
                              int across) {
    const int64_t first = call->start + head / call->heads * call->outer + head % call->heads * call->inner;
    bool shown = false, hidden = false;
    for (int row = down * call->block_rows; row < (down + 1) * call->block_rows && row < call->rows; row++)
        for (int col = across * call->block_columns; col < (across + 1) * call->block_columns && col < call->columns;
             col++) {
            const bool shows = mask[first + row * call->row + col * call->column] != 0;
            shown |= shows;
            hidden |= !shows;
        }
    return shown && hidden ? 1 : shown ? 2 : 0;
}

/* The pre-pass over a mask. */
static void run_mask_blocks(const struct fake_command *command) {
    struct mask_blocks call;
    memcpy(&call, command->argument[2].bytes, sizeof call);
    const unsigned char *mask = fake_argument_bytes(command, 0);
    unsigned char *blocks = (unsigned char *)fake_argument_bytes(command, 1) + call.offset;
    const int across = (call.columns + call.block_columns - 1) / call.block_columns;
    const int down = (call.rows + call.block_rows - 1) / call.block_rows;
    for (int i = 0; i < (int)(command->global[0] / command->local[0]); i++)
        blocks[i] = state_of(mask, &call, i / across / down, i / across % down, i % across);
}

static void execute(const struct fake_command *command) {
    const struct pipeline_program *program = program_of(command);
    if (program)
        run_on_machine(program, command);
    else if (strcmp(command->kernel, "attention_mask_blocks") == 0)
        run_mask_blocks(command);
    else
        break_rule("a kernel that the machine does not have");
}

static const cl_uint nine = 9, zero = 0, warp = 32;
static const struct fake_answer answers[] = {
    {0x4000, &nine, sizeof nine}, {0x4001, &zero, sizeof zero}, {0x4003, &warp, sizeof warp}, {0, NULL, 0}};

static int open_device(void **state) {
    const struct pipeline_program *program = *state;
    fake_reset();
    broken_rule[0] = '\0';
    struct fake_device *fake = &fake_device[0];
    fake->extensions = "cl_nv_device_attribute_query";
    fake->answers = answers;
    fake->max_group = fake->kernel_max_group = fake->max_item[0] = 1024;
    fake->compute_units = program ? 1 + (cl_uint)((program - programs) % MOST_UNITS) : 1;
    fake_settings.execute = execute;
    fake_settings.assembly =
        "//\n// Generated by NVIDIA NVVM Compiler\n//\n\n.version 8.8\n.target sm_90, texmode_independent\n"
        "//@void attention_forward_pipelined(\n// void attention_mask_blocks(\n"
        "// void selftest_pipeline(\n// void selftest_tile(\n// void selftest_shuffle(\n// void attention_forward(\n"
        "// void attention_decode(\n// void attention_decode_combine(\n";
    fake_settings.assembles = ".target sm_90a";
    support_open(&device, fake_device_id(0));
    return 0;
}

static int close_device(void **state) {
    (void)state;
    support_close(&device);
    return fake_live() == 0 && fake_misuse() == 0 ? 0 : -1;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* In all dtypes: the capability counts only if they all pass. */
static void self_test_passes(void **state) {
    (void)state;
    const char *name = NULL, *verdict = NULL;
    size_t capability = 0;
    do
        CHECK(clattn_capability_report(device.clattn, capability++, 0, &name, &verdict));
    while (strcmp(name, "nvidia_wgmma") != 0);
    CHECK(clattn_capability_report(device.clattn, capability - 1, 1, &name, &verdict));
    assert_string_equal(broken_rule, "");
    assert_string_equal(verdict, "passed");
}

/* Else another variant would have to take the problem. */
static bool is_accepted(const struct attention_data *data, const char *variant) {
    const char *names[32];
    const size_t count = attention_variants(data, names, 32);
    size_t i = 0;
    while (i < count && strcmp(names[i], variant) != 0)
        i++;
    return i < count;
}

static void expect_no_broken_rule(const struct attention_data *data) {
    if (broken_rule[0] != '\0')
        fail_msg("%s: %s", data->name, broken_rule);
}

/* Lengths, offsets and pages out of range: nothing is known of the result, but rules and guards must hold. */
static void run_wild(struct attention_data *data, const char *variant) {
    const int64_t batch = data->problem.batch;
    const struct {
        double *values, junk;
        int64_t at;
    } lists[] = {{data->q_lengths, -7, 0},
                 {data->k_lengths, 1e9, batch - 1},
                 {data->q_offsets, 1e9, batch}, /* the end alone: sequences that overlap write the same rows */
                 {data->k_offsets, -1e9, batch / 2},
                 {data->page_table, 1e9, 0}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i].values)
            lists[i].values[lists[i].at] = lists[i].junk;
    data->wild = true;
    struct attention_result result = attention_run(data, variant);
    expect_no_broken_rule(data);
    attention_result_free(&result);
}

/* Latent attention. */
static void put_values_into_keys(struct attention_data *data) {
    const int64_t k = data->problem.head_dim, v = data->problem.value_dim;
    for (int64_t row = 0; row < reference_count(&data->settings.k) / k; row++)
        memcpy(data->v + row * v, data->k + row * k, (size_t)v * sizeof *data->v);
    data->v_in_k = true;
}

/* One key, whose values are the result to the last bit. Not of sequences, and not where a plane has dims of its own. */
static void leave_one_key(struct attention_data *data) {
    const clattn_attention_op *op = &data->settings;
    if (op->k.dims[2] == 0 || data->mask || data->bias || data->k_offsets || data->k_lengths || data->page_table)
        return;
    data->settings.k.dims[2] = data->settings.v.dims[2] = 1;
    data->layout_k = data->layout_v = NULL; /* heads may have shared what they do no longer */
    attention_data_bind(data);
}

static bool run_problem(const struct random_program *program, const struct pipeline_program *of, const char *parameters,
                        uint64_t number) {
    const char *variant = variant_of(of);
    const bool out_aligned = !is_pipelined(of) || option(of->options, "OUT_ALIGNED");
    struct random_layouts layouts;
    char text[512];
    struct attention_data data = random_problem(program, number, &layouts, text, sizeof text);
    data.parameters = parameters;
    if (!out_aligned)
        layouts.o.offset |= 1;
    if (number % 8 == 1)
        leave_one_key(&data);
    if (strstr(of->options, "-DV_IN_K=1"))
        put_values_into_keys(&data);
    const bool accepted = is_accepted(&data, variant);
    if (accepted) {
        struct attention_result result = attention_run(&data, variant);
        expect_no_broken_rule(&data);
        attention_compare(&data, &result, variant, ROWS);
        attention_result_free(&result);
    }
    if (accepted && program->sequences && number % 4 == 0)
        run_wild(&data, variant);
    attention_data_free(&data);
    fake_clear_commands();
    return accepted;
}

static void run_problems(const struct pipeline_program *of, int problems) {
    const char *options = of->options;
    const bool decodes = strstr(options, "-DSPLIT=") != NULL;
    static const int64_t page_sizes[] = {8, 64, 24, 16, 48, 32};
    struct random_program program = random_program_of(options);
    char parameters[192];
    int ran = 0;
    program.heads_per_kv = decodes ? option(options, "PACKED") : 0;
    if (is_pipelined(of))
        describe_parameters(options, parameters, sizeof parameters);
    else
        describe_tiles(options, parameters, sizeof parameters);
    for (int i = 0; ran < problems && i < problems * MOST_TRIES; i++) {
        program.page_size = page_sizes[i % 6];
        if (decodes)
            describe_decode(options, can_split(options) && i % 3 != 0 ? 3 : 1, parameters, sizeof parameters);
        ran += run_problem(&program, of, parameters, seed * 65537 + (uint64_t)i);
    }
    if (ran < problems)
        fail_msg("only %d problems were accepted", ran);
}

static void random_problems(void **state) {
    const struct pipeline_program *program = *state;
    run_problems(program, option(program->options, "HEAD_DIM") > 256 ? LARGE_PROBLEMS : PROBLEMS);
}

/* ---- programs with a mistake ------------------------------------------------------------------------------------- */

static struct pipeline_program *program_named(const char *name) {
    size_t i = 0;
    while (strcmp(programs[i].name, name) != 0)
        i++;
    return &programs[i];
}

static void mutant_problems(void **state) {
    run_problems(*state, MUTANT_PROBLEMS);
}

/* In a process of its own: it must end by itself and say that it failed. */
static bool is_noticed(const struct mutant *mutant) {
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct pipeline_program *program = program_named(mutant->of);
        const struct CMUnitTest tests[] = {{mutant->name, mutant_problems, open_device, close_device, program}};
        program->entry = mutant->entry;
        if (!getenv("CLATTN_TEST_MUTANTS") &&
            (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)))
            _exit(EXIT_SUCCESS);
        _exit(cmocka_run_group_tests(tests, NULL, NULL) != 0 ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE;
}

static int count_unnoticed(void) {
    int unnoticed = 0;
    for (size_t i = 0; i < MUTANTS; i++) {
        const bool noticed = is_noticed(&mutants[i]);
        printf("mistake %s: %s\n", mutants[i].name, noticed ? "noticed" : "NOT NOTICED");
        unnoticed += !noticed;
    }
    return unnoticed;
}

int main(void) {
    struct CMUnitTest tests[PROGRAMS + 1] = {{"self_test_passes", self_test_passes, open_device, close_device, NULL}};
    size_t count = 1;
    setenv("CLATTN_CAPS", "nvidia_wgmma,nvidia_mma,shuffle", 1);
    seed = support_seed("pipeline");
    for (size_t i = 0; i < PROGRAMS; i++)
        if (has_problems(&programs[i]))
            tests[count++] =
                (struct CMUnitTest){programs[i].name, random_problems, open_device, close_device, &programs[i]};
    const int failures = _cmocka_run_group_tests("pipeline", tests, count, NULL, NULL);
    return failures + count_unnoticed() > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
