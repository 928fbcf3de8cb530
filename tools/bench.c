/* clattn bench: how fast, how right, how much memory. This file reads the command line and measures single shapes; the
 * suites have files of their own. */
#include "bench.h"
#include "command.h"
#include "interrupt.h"
#include "output.h"
#include "plot.h"
#include "progress.h"

#include <clattn/variants.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: clattn bench [OP]... [KEY=VALUE]... [OPTION]...\n\n"
    "Measures device time by events (the median of 20 runs of up to 20 calls), the errors against the oracle, the "
    "peak\n"
    "device memory of the process, and the share of what the device itself can do: of its copy bandwidth for softmax,\n"
    "norms, merges, decoding and steps of training, of its multiply-add rate for the others.\n\n"
    "  --suite NAME       seeds: unfused, host-tiled and fused attention at B8 H32 N2048 D64 (smaller where that does\n"
    "                     not fit), and over N; softmax: long and short rows; attention: fused against unfused;\n"
    "                     norms: RMSNorm and LayerNorm, plain and with a residual;\n"
    "                     training: casts, unscaling, AdamW and SGD over 2^27 elements;\n"
    "                     modifiers: what each modifier of attention costs beside attention without it;\n"
    "                     nvidia-forward: attention forward in fp16 at the shapes that tools/bench_pytorch.py times "
    "too;\n"
    "                     decode: few queries against long caches in fp16: contiguous, paged, ragged, int8 and latent\n"
    "                     (on a GPU), inputs rotated so that no cache holds them;\n"
    "                     host: time that a call takes on the host, and time to the first result\n"
    "  --shape SIZES      one shape: attention B,HQ,HKV,NQ,NK,D[,DV]; softmax family, norms and training "
    "D0[,D1[,D2[,D3]]];\n"
    "                     gemm [B,]M,N,K; attention_merge PARTS,B,H,N,DV; softmax_merge PARTS,D0[,D1...]\n"
    "  --dtype D          f32, f16, bf16 or all; default f32\n"
    "  KEY=VALUE          settings as in 'clattn run --help'; attention has its optional inputs made:\n"
    "                     mask=random|causal|blocks bias=random|masks (mask_dims=, bias_dims= like 1,1,n,n) "
    "bias_dtype=\n"
    "                     alibi=standard slopes=random sinks=random q_lengths= k_lengths= (random, or a list)\n"
    "                     ragged= ragged_k= (a number of sequences, or their lengths; B is 1, NQ and NK are totals)\n"
    "                     paged=PAGE_SIZE\n"
    "  --variant NAME, --parameters LIST   instead of the library's choice; lists with ';' between them are measured\n"
    "                     one after the other on the same data\n"
    "  --vs VARIANT       measure this one too, in turn with the other, and print the ratio\n"
    "  --seed N           of the random data; default 1\n"
    "  --device D         a device's number, or a part of its name\n"
    "  --json, --csv FILE, --plot FILE.svg   (with --shape of attention, a plot goes over N up to it)\n\n"
    "Example: clattn bench attention --shape 1,8,8,1024,1024,64 causal=bottom_right --vs unfused\n";

static const struct {
    const char *name;
    int (*run)(struct bench *bench);
    bool needs_yardstick;
    const char *dtype; /* by default */
} suites[] = {
    {"seeds", bench_suite_seeds, true, "f32"},         {"softmax", bench_suite_softmax, true, "f32"},
    {"norms", bench_suite_norms, true, "f32"},         {"attention", bench_suite_attention, true, "f32"},
    {"modifiers", bench_suite_modifiers, true, "f32"}, {"nvidia-forward", bench_suite_nvidia_forward, true, "f16"},
    {"decode", bench_suite_decode, true, "f16"},       {"training", bench_suite_training, true, "all"},
    {"host", bench_suite_host, false, "f32"}};

#define SUITE_COUNT (sizeof suites / sizeof *suites)

const char *bench_variant_like(const struct bench *bench, const struct job *job, const char *start) {
    for (size_t i = 0; i < clattn_variant_count(job->kind->op); i++) {
        char reason[160] = "";
        const char *name = clattn_variant_name(job->kind->op, i);
        if (strncmp(name, start, strlen(start)) != 0)
            continue;
        clattn_variant_question(bench->machine.clattn, &job->op.head, name, reason, sizeof reason);
        if (!reason[0])
            return name;
    }
    return NULL;
}

int bench_add(struct bench *bench, struct result *result) {
    report_rate(&bench->report, result);
    return report_add(&bench->report, result) ? EXIT_OK : complain(EXIT_UNSUPPORTED, "out of host memory");
}

static int measure_job(struct bench *bench, const struct measure *measure, const char *rival) {
    struct result results[2];
    const bool several = measure->parameters && strchr(bench->arguments.parameters, ';');
    FORWARD(rival ? measure_pair(measure, rival, results) : measure_variant(measure, &results[0]));
    for (int i = 0; i < (rival ? 2 : 1); i++) {
        if (several)
            snprintf(results[i].asked, sizeof results[i].asked, "%s", measure->parameters);
        FORWARD(bench_add(bench, &results[i]));
    }
    return EXIT_OK;
}

/* Each of the lists of parameters in turn. P is read with the first alone, which costs many calls. */
static int measure_lists(struct bench *bench, struct measure *measure, const char *rival) {
    const char *lists = bench->arguments.parameters;
    char list[256];
    int code = EXIT_OK;
    if (!lists)
        return measure_job(bench, measure, rival);
    measure->parameters = list;
    do {
        const size_t length = strcspn(lists, ";");
        if (length >= sizeof list)
            return complain(EXIT_USAGE, "--parameters: a list of more than %zu characters", sizeof list - 1);
        snprintf(list, sizeof list, "%.*s", (int)length, lists);
        const int one = measure_job(bench, measure, rival);
        code = code == EXIT_OK ? one : code; /* the others' results are not lost */
        measure->with_p = false;
        lists += length + (lists[length] != 0);
    } while (*lists && !interrupt_came());
    return code;
}

int bench_job(struct bench *bench, struct job *job, const char *variant, const char *rival) {
    struct oracle oracle;
    FORWARD(oracle_make(&oracle, job, BENCH_MULTIPLICATIONS));
    struct measure measure = {.machine = &bench->machine,
                              .job = job,
                              .oracle = &oracle,
                              .variant = variant,
                              .rotate = true,
                              .with_p = true,
                              .plan = bench->plan};
    const int code = measure_lists(bench, &measure, rival);
    oracle_free(&oracle);
    return code;
}

int bench_case(struct bench *bench, const struct test_case *item, enum element element, const char *variant,
               const char *rival) {
    struct job job;
    if (interrupt_came())
        return complain(EXIT_UNSUPPORTED, "interrupted: these are the results so far");
    progress_show(bench->report.count, bench->report.count + 1, item->op);
    int code = selection_make(item, element, bench->selection.seed, &bench->arguments.settings, &job);
    if (code == EXIT_OK)
        code = job_upload(&job, &bench->machine);
    if (code == EXIT_OK)
        code = bench_job(bench, &job, variant, rival);
    job_release(&job);
    progress_clear();
    return code;
}

/* For a plot: the same attention with N halved again and again. */
static int bench_lengths(struct bench *bench, const struct test_case *item, enum element element) {
    int64_t dims[JOB_MAX_DIMS];
    const size_t count = parse_integers(item->shape, dims, JOB_MAX_DIMS);
    if (!bench->arguments.plot || strcmp(item->op, job_attention.name) != 0 || count < 6 || dims[3] != dims[4])
        return bench_case(bench, item, element, bench->arguments.variant, bench->arguments.versus);
    for (int64_t n = dims[3] / 8 > 128 ? dims[3] / 8
                     : dims[3] < 128   ? dims[3]
                                       : 128;
         n <= dims[3]; n = n < dims[3] && 2 * n > dims[3] ? dims[3] : 2 * n) {
        char shape[128];
        int used = snprintf(shape, sizeof shape, "%lld,%lld,%lld,%lld,%lld,%lld", (long long)dims[0],
                            (long long)dims[1], (long long)dims[2], (long long)n, (long long)n, (long long)dims[5]);
        if (count == 7)
            snprintf(shape + used, sizeof shape - (size_t)used, ",%lld", (long long)dims[6]);
        const struct test_case shorter = {item->op, shape, item->settings, 0};
        FORWARD(bench_case(bench, &shorter, element, bench->arguments.variant, bench->arguments.versus));
    }
    return EXIT_OK;
}

static int bench_shape(struct bench *bench) {
    if (bench->selection.kind_count != 1)
        return complain(EXIT_USAGE, "--shape wants one operation");
    const struct test_case item = {bench->selection.kinds[0]->name, bench->arguments.shape, "", 0};
    for (size_t e = 0; e < bench->selection.element_count; e++)
        FORWARD(bench_lengths(bench, &item, bench->selection.elements[e]));
    return EXIT_OK;
}

static int bench_defaults(struct bench *bench) {
    const unsigned wanted = bench->cpu ? CASE_BENCH : CASE_BENCH | CASE_BENCH_GPU;
    for (size_t i = 0; case_at(i); i++)
        for (size_t e = 0; e < bench->selection.element_count; e++) {
            const struct test_case *item = case_at(i);
            const enum element element = bench->selection.elements[e];
            if (item->suites & wanted && selection_holds(&bench->selection, item->op) &&
                !(selection_is_redundant(item->op, element) && bench->selection.element_count > 1))
                FORWARD(bench_case(bench, item, element, bench->arguments.variant, bench->arguments.versus));
        }
    return EXIT_OK;
}

/* GB/s where all results are bound by memory, else whichever FLOP/s suits the fastest. */
static double plot_unit(const struct report *report, bool *bandwidth, const char **unit) {
    double fastest = 0;
    *bandwidth = report->count > 0;
    for (size_t i = 0; i < report->count; i++) {
        const struct result *r = &report->results[i];
        *bandwidth = *bandwidth && r->memory_bound;
        fastest = r->median_s > 0 && r->flops / r->median_s > fastest ? r->flops / r->median_s : fastest;
    }
    *unit = *bandwidth ? "GB/s" : fastest < 1e12 ? "GFLOP/s" : "TFLOP/s";
    return *bandwidth || fastest < 1e12 ? 1e9 : 1e12;
}

/* Curves of attention are of one batch and number of heads. */
static void name_series(const struct result *r, char *name, size_t size) {
    int batch, heads;
    if (strcmp(r->op, job_attention.name) == 0 && sscanf(r->shape, "%d,%d,", &batch, &heads) == 2)
        snprintf(name, size, "%.20s %s B%d H%d", r->variant, r->dtype, batch, heads);
    else
        snprintf(name, size, "%.16s %.20s %s", r->op, r->variant, r->dtype);
}

static int plot(const struct bench *bench, const char *path) {
    struct plot plot = {.title = "clattn bench",
                        .x_label = "sequence length or row length",
                        .panel_count = 2,
                        .panels = {{.title = "Speed"}, {.title = "Peak device memory", .unit = "MiB"}}};
    bool bandwidth;
    const double unit = plot_unit(&bench->report, &bandwidth, &plot.panels[0].unit);
    snprintf(plot.note, sizeof plot.note, "%s", bench->machine.entry.name);
    for (size_t i = 0; i < bench->report.count; i++) {
        const struct result *r = &bench->report.results[i];
        char name[48];
        if (r->median_s <= 0)
            continue;
        name_series(r, name, sizeof name);
        plot_add(&plot.panels[0], name, r->size, (bandwidth ? r->bytes : r->flops) / r->median_s / unit);
        plot_add(&plot.panels[1], name, r->size, (double)r->peak_device_bytes / 1048576);
    }
    return plot_write(&plot, path) ? EXIT_OK : output_failed("--plot ", path, strerror(errno));
}

static int publish(struct bench *bench) {
    const struct arguments *arguments = &bench->arguments;
    if (arguments->json && !report_print_json(&bench->report, stdout))
        return complain(EXIT_UNSUPPORTED, "out of host memory");
    if (!arguments->json)
        report_print_table(&bench->report, true, stdout);
    if (arguments->csv && !report_write_csv(&bench->report, arguments->csv))
        return output_failed("--csv ", arguments->csv, strerror(errno));
    if (arguments->plot)
        FORWARD(plot(bench, arguments->plot));
    return bench->report.failures ? EXIT_CHECK_FAILED : EXIT_OK;
}

static int execute(struct bench *bench, int (*run)(struct bench *bench), bool needs_yardstick) {
    FORWARD(machine_open(bench->arguments.device, &bench->machine));
    bench->cpu = bench->machine.entry.type & CL_DEVICE_TYPE_CPU;
    bench->plan = timer_plan_for(bench->machine.entry.type);
    bench->report.machine = &bench->machine;
    bench->report.seed = bench->selection.seed;
    if (needs_yardstick) {
        progress_show(0, 1, "what the device can do");
        FORWARD(yardstick_measure(&bench->machine, &bench->report.yardstick));
        bench->report.has_yardstick = true;
        progress_clear();
    }
    interrupt_catch();
    const int code = run(bench);
    if (code != EXIT_OK && bench->report.count == 0)
        return code;
    const int published = publish(bench); /* also what was measured before something failed */
    return code != EXIT_OK ? code : published;
}

static int check_files(const struct arguments *arguments) {
    if (arguments->csv)
        FORWARD(output_try("--csv ", arguments->csv));
    if (arguments->plot)
        FORWARD(output_try("--plot ", arguments->plot));
    if (arguments->csv && arguments->plot && output_same(arguments->csv, arguments->plot))
        return complain(EXIT_USAGE, "--csv and --plot cannot both go to %s", arguments->plot);
    return EXIT_OK;
}

static int find_suite(const char *name, size_t *index) {
    for (*index = 0; *index < SUITE_COUNT; ++*index)
        if (strcmp(suites[*index].name, name) == 0)
            return EXIT_OK;
    return complain(
        EXIT_USAGE,
        "--suite %s is none of: seeds softmax norms attention modifiers nvidia-forward decode training host", name);
}

int command_bench(int argc, char **argv) {
    static struct bench bench;
    size_t suite = SUITE_COUNT;
    FORWARD(arguments_parse(argc, argv, "suite shape dtype variant parameters vs seed device json csv plot",
                            &bench.arguments));
    if (bench.arguments.help)
        return fputs(help, stdout), EXIT_OK;
    if (bench.arguments.suite && bench.arguments.shape)
        return complain(EXIT_USAGE, "--suite and --shape exclude each other");
    if (bench.arguments.suite)
        FORWARD(find_suite(bench.arguments.suite, &suite));
    FORWARD(selection_take(&bench.arguments, suite < SUITE_COUNT ? suites[suite].dtype : "f32", &bench.selection));
    FORWARD(check_files(&bench.arguments));
    int code;
    if (suite < SUITE_COUNT)
        code = execute(&bench, suites[suite].run, suites[suite].needs_yardstick);
    else
        code = execute(&bench, bench.arguments.shape ? bench_shape : bench_defaults, true);
    report_free(&bench.report);
    machine_close(&bench.machine);
    interrupt_pass_on();
    return code;
}
