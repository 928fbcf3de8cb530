/* The suite seeds of clattn bench: the classic experiment B8 H32 N2048 D64 in three ways. Unfused is three steps with
 * the score matrix in memory; host-tiled is one attention call per block of keys, each merged into the result so far;
 * fused is one kernel. Then the same over N, which shows how memory grows. */
#include "bench.h"
#include "command.h"
#include "memory_counter.h"
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD_DIM 64
#define CLASSIC_N 2048
#define BLOCK_KEYS 256
#define SECONDS 60.0
#define RUNS 23                          /* measured and warm-up ones */
#define LENGTH_RUNS (TIMER_MIN_RUNS + 3) /* ... at other lengths */
#define LONGEST_N 8192

enum way { UNFUSED, HOST_TILED, FUSED, WAYS };

static const char *const way_names[WAYS] = {"unfused", "host_tiled", "fused"};

struct seeds {
    struct bench *bench;
    enum element element;
    int64_t batch, heads;
    double seconds[WAYS]; /* of one call at CLASSIC_N */
};

/* ---- host-tiled -------------------------------------------------------------------------------------------------- */

struct tiled {
    struct seeds *seeds;
    struct job *job;
    const char *variant;
    cl_mem buffers[4];        /* o, lse of all blocks so far; o, lse of one block */
    clattn_tensor tensors[4]; /* F32, so that only the result is rounded */
};

static void tiled_free(struct tiled *tiled) {
    for (int i = 0; i < 4; i++)
        if (tiled->buffers[i])
            clReleaseMemObject(tiled->buffers[i]);
}

static int tiled_make(struct tiled *tiled, struct seeds *seeds, struct job *job) {
    const clattn_attention_op *op = &job->op.attention;
    *tiled = (struct tiled){.seeds = seeds, .job = job, .variant = bench_variant_like(seeds->bench, job, "fused")};
    for (int i = 0; i < 4; i++) {
        const clattn_tensor *like = i % 2 ? &op->lse : &op->o;
        size_t bytes = sizeof(float);
        for (int d = 0; d < like->rank; d++)
            bytes *= (size_t)like->dims[d];
        tiled->buffers[i] = machine_buffer(&seeds->bench->machine, bytes);
        if (!tiled->buffers[i])
            return complain(EXIT_UNSUPPORTED, "host-tiled: no device memory for %zu bytes", bytes);
        tiled->tensors[i] = clattn_tensor_dense(tiled->buffers[i], CLATTN_F32, like->rank, like->dims);
    }
    return EXIT_OK;
}

static clattn_attention_op block_of(const struct tiled *tiled, int64_t first, int64_t keys) {
    clattn_attention_op op = tiled->job->op.attention;
    if (op.causal != CLATTN_CAUSAL_NONE) {
        const int64_t whole = op.causal == CLATTN_CAUSAL_BOTTOM_RIGHT ? op.k.dims[2] - op.q.dims[2] : 0;
        op.diagonal = (op.has_diagonal ? op.diagonal : whole) - first;
        op.has_diagonal = 1;
    }
    op.k.offset += first * op.k.strides[2];
    op.v.offset += first * op.v.strides[2];
    op.k.dims[2] = op.v.dims[2] = keys;
    op.o = tiled->tensors[first ? 2 : 0];
    op.lse = tiled->tensors[first ? 3 : 1];
    return op;
}

static clattn_status merge_block(const struct tiled *tiled, bool last, cl_event *event) {
    const struct bench *bench = tiled->seeds->bench;
    const clattn_tensor o_in[2] = {tiled->tensors[0], tiled->tensors[2]};
    const clattn_tensor lse_in[2] = {tiled->tensors[1], tiled->tensors[3]};
    clattn_attention_merge_op op;
    clattn_launch launch;
    clattn_attention_merge_init(&op);
    clattn_launch_init(&launch, bench->machine.queue);
    op.count = 2;
    op.o_in = o_in;
    op.lse_in = lse_in;
    op.o = last ? tiled->job->op.attention.o : tiled->tensors[0];
    op.lse = last ? tiled->job->op.attention.lse : tiled->tensors[1];
    launch.event = last ? event : NULL;
    return clattn_attention_merge(bench->machine.clattn, &op, &launch);
}

/* The public calls alone: a block of keys, then its merge. */
static int tiled_call(void *user, unsigned index, cl_event *event) {
    const struct tiled *tiled = user;
    const struct bench *bench = tiled->seeds->bench;
    const int64_t all = tiled->job->op.attention.k.dims[2];
    clattn_launch launch;
    (void)index;
    clattn_launch_init(&launch, bench->machine.queue);
    launch.variant = tiled->variant;
    for (int64_t first = 0; first < all; first += BLOCK_KEYS) {
        const clattn_attention_op op = block_of(tiled, first, all - first < BLOCK_KEYS ? all - first : BLOCK_KEYS);
        clattn_status status = clattn_attention(bench->machine.clattn, &op, &launch);
        if (status == CLATTN_SUCCESS && first)
            status = merge_block(tiled, first + BLOCK_KEYS >= all, event);
        if (status != CLATTN_SUCCESS)
            return complain_status(status, "host-tiled");
    }
    return EXIT_OK;
}

static int measure_tiled(struct tiled *tiled, const struct oracle *oracle, struct result *result) {
    struct bench *bench = tiled->seeds->bench;
    memory_restart_peak();
    measure_describe(tiled->job, result);
    FORWARD(job_reset(tiled->job, &bench->machine));
    FORWARD(tiled_call(tiled, 0, NULL));
    FORWARD(job_read(tiled->job, &bench->machine));
    result->peak_device_bytes = memory_peak();
    result->checked = true;
    oracle_compare(oracle, tiled->job, &result->errors);
    struct timer timer = {.queue = bench->machine.queue, .call = tiled_call, .user = tiled, .plan = bench->plan};
    FORWARD(timer_measure(&timer));
    result->median_s = timer_median(&timer);
    result->runs = timer.runs;
    result->calls = timer.calls;
    return EXIT_OK;
}

/* ---- one size ---------------------------------------------------------------------------------------------------- */

static int make_job(struct seeds *seeds, int64_t batch, int64_t heads, int64_t n, struct job *job) {
    char shape[96];
    snprintf(shape, sizeof shape, "%lld,%lld,%lld,%lld,%lld,%d", (long long)batch, (long long)heads, (long long)heads,
             (long long)n, (long long)n, HEAD_DIM);
    const struct test_case item = {"attention", shape, "", 0};
    FORWARD(
        selection_make(&item, seeds->element, seeds->bench->selection.seed, &seeds->bench->arguments.settings, job));
    return job_upload(job, &seeds->bench->machine);
}

/* Whether the unfused way's score matrix, and all else, has room. */
static bool unfused_fits(const struct seeds *seeds, const struct job *job) {
    const struct machine *machine = &seeds->bench->machine;
    clattn_launch launch;
    size_t bytes = 0;
    clattn_launch_init(&launch, machine->queue);
    launch.variant = "unfused";
    if (clattn_workspace_size(machine->clattn, &job->op.head, &launch, &bytes) != CLATTN_SUCCESS)
        return false;
    return bytes <= machine->largest_buffer && (double)bytes + 2 * job_bytes(job) < 0.7 * (double)machine->memory;
}

static int measure_way(struct seeds *seeds, enum way way, struct job *job, const struct oracle *oracle,
                       struct result *result) {
    struct bench *bench = seeds->bench;
    if (way == HOST_TILED) {
        struct tiled tiled;
        int code = tiled_make(&tiled, seeds, job);
        if (code == EXIT_OK)
            code = measure_tiled(&tiled, oracle, result);
        tiled_free(&tiled);
        snprintf(result->variant, sizeof result->variant, "%s", way_names[way]);
        return code;
    }
    const struct measure measure = {.machine = &bench->machine,
                                    .job = job,
                                    .oracle = oracle,
                                    .variant = bench_variant_like(bench, job, way_names[way]),
                                    .with_p = job->op.attention.k.dims[2] == CLASSIC_N,
                                    .plan = bench->plan};
    if (!measure.variant)
        return complain(EXIT_UNSUPPORTED, "no %s variant takes this problem", way_names[way]);
    const int code = measure_variant(&measure, result);
    if (job->workspace)
        clReleaseMemObject(job->workspace); /* does not count for the next way */
    job->workspace = NULL;
    job->workspace_bytes = 0;
    return code;
}

static int measure_length(struct seeds *seeds, int64_t n, const bool ways[WAYS]) {
    struct bench *bench = seeds->bench;
    struct job job;
    struct oracle oracle = {.count = 0};
    int code = make_job(seeds, seeds->batch, seeds->heads, n, &job);
    if (code == EXIT_OK)
        code = oracle_make(&oracle, &job, BENCH_MULTIPLICATIONS);
    for (int way = 0; way < WAYS && code == EXIT_OK; way++) {
        struct result result;
        if (!ways[way] || (way == UNFUSED && !unfused_fits(seeds, &job)))
            continue;
        progress_show(bench->report.count, bench->report.count + 1, way_names[way]);
        code = measure_way(seeds, (enum way)way, &job, &oracle, &result);
        if (n == CLASSIC_N && (seeds->batch != 8 || seeds->heads != 32))
            snprintf(result.note, sizeof result.note, "B8 H32 became B%lld H%lld, to fit the device's memory or %g s",
                     (long long)seeds->batch, (long long)seeds->heads, SECONDS);
        if (code == EXIT_OK)
            code = bench_add(bench, &result);
    }
    progress_clear();
    oracle_free(&oracle);
    job_release(&job);
    return code;
}

/* ---- which size -------------------------------------------------------------------------------------------------- */

static int time_once(struct seeds *seeds, enum way way, struct job *job) {
    const struct timer_plan once = {.runs = 1, .calls = 1, .run_seconds = 1, .seconds = 1};
    const struct timer_plan plan = seeds->bench->plan;
    const struct oracle none = {.count = 0};
    struct result result;
    seeds->bench->plan = once;
    const int code = measure_way(seeds, way, job, &none, &result);
    seeds->bench->plan = plan;
    seeds->seconds[way] = result.median_s;
    return code;
}

/* Whether the size fits; its times are then in seeds->seconds. */
static int try_size(struct seeds *seeds, int64_t batch, int64_t heads, bool *fits) {
    struct job job;
    int code = make_job(seeds, batch, heads, CLASSIC_N, &job);
    *fits = code == EXIT_OK && unfused_fits(seeds, &job);
    for (int way = 0; way < WAYS && *fits && code == EXIT_OK; way++)
        code = time_once(seeds, (enum way)way, &job);
    job_release(&job);
    return code;
}

/* From B1 H1 upwards, so that a slow device is not asked for much: the largest size within memory and time. */
static int choose_size(struct seeds *seeds) {
    int64_t batch = 1, heads = 1;
    seeds->batch = seeds->heads = 1;
    for (;;) {
        bool fits;
        progress_show((size_t)(batch * heads), 256, "how much fits");
        FORWARD(try_size(seeds, batch, heads, &fits));
        const double total = RUNS * (seeds->seconds[UNFUSED] + seeds->seconds[HOST_TILED] + seeds->seconds[FUSED]);
        if (!fits || (batch * heads > 1 && total > SECONDS))
            return EXIT_OK;
        seeds->batch = batch;
        seeds->heads = heads;
        if (batch == 8 || total > SECONDS / 2)
            return EXIT_OK;
        if (heads < 32)
            heads *= 2;
        else
            batch *= 2;
    }
}

/* Fewer heads where the longest length would take too long with all of them. */
static struct seeds shrink_for(const struct seeds *seeds, int64_t longest) {
    struct seeds small = *seeds;
    const double growth = (double)(longest * longest) / CLASSIC_N / CLASSIC_N;
    while (small.batch * small.heads > 1 && LENGTH_RUNS * growth * small.seconds[FUSED] > SECONDS / 4) {
        int64_t *larger = small.batch > 1 ? &small.batch : &small.heads;
        *larger /= 2;
        for (int way = 0; way < WAYS; way++)
            small.seconds[way] /= 2;
    }
    return small;
}

/* The other lengths: the ways that are not too slow there. */
static int measure_other_lengths(const struct seeds *classic) {
    struct seeds seeds = shrink_for(classic, LONGEST_N);
    const bool shrunk = seeds.batch * seeds.heads < classic->batch * classic->heads;
    const struct timer_plan plan = seeds.bench->plan;
    int code = EXIT_OK;
    seeds.bench->plan.seconds = plan.seconds / 4;
    for (int64_t n = 1024; n <= LONGEST_N && code == EXIT_OK; n *= 2) {
        const double growth = (double)(n * n) / CLASSIC_N / CLASSIC_N;
        bool ways[WAYS] = {[FUSED] = true};
        for (int way = 0; way < FUSED; way++)
            ways[way] = LENGTH_RUNS * growth * seeds.seconds[way] < SECONDS / 12;
        if (n != CLASSIC_N || shrunk)
            code = measure_length(&seeds, n, ways);
    }
    seeds.bench->plan = plan;
    return code;
}

int bench_suite_seeds(struct bench *bench) {
    for (size_t e = 0; e < bench->selection.element_count; e++) {
        struct seeds seeds = {.bench = bench, .element = bench->selection.elements[e]};
        bench->plan.seconds = SECONDS / WAYS; /* 20 runs also where a call takes a second */
        FORWARD(choose_size(&seeds));
        FORWARD(measure_length(&seeds, CLASSIC_N, (const bool[WAYS]){true, true, true}));
        FORWARD(measure_other_lengths(&seeds));
    }
    return EXIT_OK;
}
