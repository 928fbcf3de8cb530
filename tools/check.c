/* clattn check: every accepted variant of every operation against the double-precision oracle, on one device. */
#include "arguments.h"
#include "cases.h"
#include "command.h"
#include "interrupt.h"
#include "measure.h"
#include "progress.h"
#include "selection.h"

#include <clattn/variants.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: clattn check [OP]... [OPTION]...\n\n"
    "Runs every variant that the device takes on awkward shapes and compares it with the double-precision oracle: the\n"
    "error may be twice that of a plain implementation in the same precision, plus one unit in the last place. Large\n"
    "results are compared on 64 rows or more, and everywhere with the portable variant. Exit status 1 where one "
    "fails.\n"
    "NaN and infinities lie behind every mask, length and window and in unused pages.\n\n"
    "  --suite quick|full  default quick, which on CPUs takes attention's variants in turn through its modifiers\n"
    "  --dtype D           f32, f16, bf16 or all; default all\n"
    "  --seed N            of the random data; default 1\n"
    "  --device D          a device's number, or a part of its name\n"
    "  --json              one JSON document\n\n"
    "Example: clattn check attention softmax --suite full --dtype f16\n";

#define QUICK_MULTIPLICATIONS 3e7
#define FULL_MULTIPLICATIONS 3e8

struct check {
    struct machine machine;
    struct report report;
    struct selection selection;
    unsigned suites;
    double multiplications;
    size_t turn; /* which variant a case takes that takes one: another for each row and dtype */
};

/* The variant that stands for all elements where the oracle sees only some rows: the first portable one, else the
 * last. */
static const char *portable_variant(const struct check *check, const struct job *job) {
    const char *found = NULL;
    for (size_t i = 0; i < clattn_variant_count(job->kind->op); i++) {
        char reason[160] = "";
        const char *name = clattn_variant_name(job->kind->op, i);
        clattn_variant_question(check->machine.clattn, &job->op.head, name, reason, sizeof reason);
        if (reason[0])
            continue;
        found = name;
        if (strstr(name, "fma"))
            break;
    }
    return found;
}

static int run_portable(struct check *check, struct job *job, struct array results[JOB_MAX_OUTPUTS]) {
    const char *variant = portable_variant(check, job);
    FORWARD(job_prepare(job, &check->machine, variant, NULL));
    FORWARD(job_reset(job, &check->machine));
    FORWARD(job_launch(job, &check->machine, variant, NULL, NULL));
    FORWARD(job_read(job, &check->machine));
    oracle_take_results(job, results);
    return EXIT_OK;
}

/* A variant that fails to run is a failed check, not the end of all checks. */
static void add_failure(struct check *check, const struct job *job, const char *variant) {
    struct result result;
    measure_describe(job, &result);
    snprintf(result.variant, sizeof result.variant, "%s", variant);
    snprintf(result.errors.why, sizeof result.errors.why, "it did not run: %.120s", clattn_last_error());
    result.checked = true;
    report_add(&check->report, &result);
}

static void check_variant(struct check *check, struct job *job, const struct oracle *oracle, const char *variant,
                          const struct array *portable) {
    const struct measure measure = {.machine = &check->machine,
                                    .job = job,
                                    .oracle = oracle,
                                    .variant = variant,
                                    .with_p = true,
                                    .plan = {.runs = TIMER_MIN_RUNS, .calls = 5, .run_seconds = 0.01, .seconds = 0.2}};
    struct result result;
    if (measure_variant(&measure, &result) != EXIT_OK) {
        add_failure(check, job, variant);
        return;
    }
    if (portable)
        oracle_compare_other(oracle, job, portable, &result.errors);
    report_add(&check->report, &result);
}

static bool accepted(const struct check *check, const struct job *job, const char *variant) {
    char reason[160] = "";
    if (!job_takes(job, variant))
        return false;
    clattn_variant_question(check->machine.clattn, &job->op.head, variant, reason, sizeof reason);
    return !reason[0];
}

static void check_variants(struct check *check, struct job *job, const struct oracle *oracle,
                           const struct array *portable, bool in_turn) {
    const size_t all = clattn_variant_count(job->kind->op);
    size_t count = 0, number = 0;
    for (size_t i = 0; i < all; i++)
        count += accepted(check, job, clattn_variant_name(job->kind->op, i));
    const size_t turn = count ? check->turn % count : 0;
    for (size_t i = 0; i < all; i++) {
        const char *name = clattn_variant_name(job->kind->op, i);
        if (accepted(check, job, name) && (!in_turn || number++ == turn))
            check_variant(check, job, oracle, name, portable);
    }
}

static int check_job(struct check *check, struct job *job, bool in_turn) {
    struct oracle oracle;
    struct array portable[JOB_MAX_OUTPUTS] = {{.data = NULL}};
    FORWARD(job_upload(job, &check->machine));
    FORWARD(oracle_make(&oracle, job, check->multiplications));
    const bool whole = oracle.all;
    const int code = whole ? EXIT_OK : run_portable(check, job, portable);
    if (code == EXIT_OK)
        check_variants(check, job, &oracle, whole ? NULL : portable, in_turn);
    oracle_free(&oracle);
    for (size_t k = 0; k < JOB_MAX_OUTPUTS; k++)
        array_free(&portable[k]);
    return code;
}

static int check_case(struct check *check, const struct test_case *item, enum element element) {
    const struct settings none = {.count = 0};
    const bool cpu = check->machine.entry.type & CL_DEVICE_TYPE_CPU;
    const bool in_turn = cpu && item->suites & CASE_MODIFIERS && !(check->suites & CASE_FULL);
    struct job job;
    int code = selection_make(item, element, check->selection.seed, &none, &job);
    if (code == EXIT_OK)
        code = check_job(check, &job, in_turn);
    job_release(&job);
    return code;
}

static bool wanted(const struct check *check, const struct test_case *item) {
    return item->suites & check->suites && selection_holds(&check->selection, item->op);
}

static int check_all(struct check *check) {
    size_t total = 0, done = 0;
    for (size_t i = 0; case_at(i); i++)
        total += wanted(check, case_at(i)) ? check->selection.element_count : 0;
    for (size_t i = 0; case_at(i); i++) {
        const struct test_case *item = case_at(i);
        for (size_t e = 0; e < check->selection.element_count && wanted(check, item); e++) {
            if (interrupt_came())
                return complain(EXIT_UNSUPPORTED, "interrupted: these are the results so far");
            const enum element element = check->selection.elements[e];
            progress_show(done++, total, item->op);
            check->turn = i + e;
            if (!selection_is_redundant(item->op, element) || check->selection.element_count == 1)
                FORWARD(check_case(check, item, element));
        }
    }
    progress_clear();
    return EXIT_OK;
}

static int take_suite(const char *name, struct check *check) {
    check->suites = CASE_QUICK;
    check->multiplications = QUICK_MULTIPLICATIONS;
    if (!name || strcmp(name, "quick") == 0)
        return EXIT_OK;
    if (strcmp(name, "full") != 0)
        return complain(EXIT_USAGE, "--suite %s is none of: quick full", name);
    check->suites = CASE_QUICK | CASE_FULL;
    check->multiplications = FULL_MULTIPLICATIONS;
    return EXIT_OK;
}

static int print(const struct check *check, bool json) {
    if (json)
        return report_print_json(&check->report, stdout) ? EXIT_OK : complain(EXIT_UNSUPPORTED, "out of host memory");
    printf("%s, seed=%llu\n", check->machine.entry.name, (unsigned long long)check->selection.seed);
    report_print_table(&check->report, false, stdout);
    printf("%zu results, %zu wrong\n", check->report.count, check->report.failures);
    return EXIT_OK;
}

int command_check(int argc, char **argv) {
    struct arguments arguments;
    struct check check = {.report = {.count = 0}};
    FORWARD(arguments_parse(argc, argv, "suite dtype seed device json", &arguments));
    if (arguments.help)
        return fputs(help, stdout), EXIT_OK;
    FORWARD(settings_refuse_unknown(&arguments.settings, "check"));
    FORWARD(take_suite(arguments.suite, &check));
    FORWARD(selection_take(&arguments, "all", &check.selection));
    int code = machine_open(arguments.device, &check.machine);
    check.report.machine = &check.machine;
    check.report.seed = check.selection.seed;
    interrupt_catch();
    if (code == EXIT_OK)
        code = check_all(&check);
    if (code == EXIT_OK || check.report.count) {
        const int printed = print(&check, arguments.json);
        code = code == EXIT_OK ? printed : code;
    }
    if (code == EXIT_OK && check.report.failures)
        code = EXIT_CHECK_FAILED;
    if (code == EXIT_OK && check.report.count == 0)
        code = complain(EXIT_UNSUPPORTED, "no variant of these operations runs on %s", check.machine.entry.name);
    report_free(&check.report);
    machine_close(&check.machine);
    interrupt_pass_on();
    return code;
}
