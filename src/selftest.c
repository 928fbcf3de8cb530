/* Verdicts of the self-tests: tried once, kept in memory and on disk. A test that cannot be run to its end (no memory,
 * a failing driver) counts as failed in this context, but only a wrong answer or a refused program is written down. */
#include "selftest.h"
#include "context.h"
#include "launch.h"
#include "selftest_trials.h"
#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void selftest_init(struct selftest *selftest) {
    memset(selftest, 0, sizeof *selftest);
    os_mutex_init(&selftest->lock);
}

void selftest_free(struct selftest *selftest) {
    os_mutex_destroy(&selftest->lock);
}

static enum selftest_verdict verdict_of(const struct selftest *selftest, int cap) {
    return __atomic_load_n(&selftest->verdict[cap], __ATOMIC_ACQUIRE);
}

static void set_verdict(struct selftest *selftest, int cap, enum selftest_verdict verdict) {
    __atomic_store_n(&selftest->verdict[cap], verdict, __ATOMIC_RELEASE);
}

/* ---- verdicts on disk -------------------------------------------------------------------------------------------- */

#define TITLE "clattn self-test 1"

/* What a verdict depends on; length first, so that neighbouring texts cannot run into each other. */
static uint64_t stored_key(const struct device_facts *facts) {
    const char *const texts[] = {clattn_version(), facts->name,     facts->vendor_name,  facts->architecture,
                                 facts->driver,    facts->platform, facts->build_options};
    uint64_t key = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        key = XXH64(texts[i], strlen(texts[i]), key + strlen(texts[i]));
    return key;
}

/* malloc'd; NULL where nothing is to be kept: no cache, or kernels that are being edited. */
static char *stored_path(const clattn_context *context) {
    char name[48];
    if (context->cache.dir == NULL || context->cl_dir != NULL)
        return NULL;
    snprintf(name, sizeof name, "selftest-%016" PRIx64 ".txt", stored_key(&context->facts));
    return os_join_path(context->cache.dir, name);
}

static size_t print_verdicts(const clattn_context *context, const enum selftest_verdict *verdict, char *text,
                             size_t size) {
    int used = snprintf(text, size, TITLE " %016" PRIx64 "\n", stored_key(&context->facts));
    for (int cap = 0; cap < CAP_COUNT; cap++)
        if (verdict[cap] != SELFTEST_UNTESTED)
            used += snprintf(text + used, size - (size_t)used, "%s %s\n", device_capability_name(cap),
                             verdict[cap] == SELFTEST_PASSED ? "passed" : "failed");
    return (size_t)used;
}

/* Only a text that would be written just so is believed. */
static void parse_verdicts(clattn_context *context, const char *text) {
    enum selftest_verdict verdict[CAP_COUNT] = {SELFTEST_UNTESTED};
    char again[512], line[64];
    for (int cap = 0; cap < CAP_COUNT; cap++) {
        snprintf(line, sizeof line, "\n%s passed\n", device_capability_name(cap));
        if (strstr(text, line) != NULL)
            verdict[cap] = SELFTEST_PASSED;
        snprintf(line, sizeof line, "\n%s failed\n", device_capability_name(cap));
        if (strstr(text, line) != NULL)
            verdict[cap] = SELFTEST_FAILED;
    }
    print_verdicts(context, verdict, again, sizeof again);
    for (int cap = 0; cap < CAP_COUNT && strcmp(text, again) == 0; cap++)
        set_verdict(&context->selftest, cap, verdict[cap]);
}

static void read_stored(clattn_context *context) {
    size_t size = 0;
    char *path = stored_path(context);
    char *text = path != NULL ? os_read_file(path, 512, &size) : NULL;
    if (text != NULL)
        parse_verdicts(context, text);
    free(text);
    free(path);
}

static void write_stored(clattn_context *context, int cap, enum selftest_verdict verdict) {
    enum selftest_verdict kept[CAP_COUNT];
    char text[512], *path = stored_path(context);
    for (int i = 0; i < CAP_COUNT; i++)
        kept[i] = i == cap ? verdict : verdict_of(&context->selftest, i);
    if (path != NULL)
        os_write_file_atomic(path, text, print_verdicts(context, kept, text, sizeof text));
    free(path);
}

/* ---- one trial --------------------------------------------------------------------------------------------------- */

static clattn_status launch_trial(clattn_context *context, const struct selftest_trial *trial, cl_command_queue queue,
                                  cl_mem in, cl_mem out, size_t *items) {
    char options[512] = "";
    clattn_launch call;
    struct program *program = NULL;
    struct sequence sequence;
    struct launch launch;
    trial->options(&context->facts, options, sizeof options);
    const struct program_key key = {trial->file, trial->kernel, options};
    FORWARD(program_get(context, &key, &program));
    *items = trial->items(&context->facts, program_max_group(program));
    clattn_launch_init(&call, queue);
    sequence_begin(&sequence, context, &call, 1);
    launch_begin(&launch, program);
    launch_buffer(&launch, in);
    launch_buffer(&launch, out);
    const clattn_status status = launch_enqueue(&launch, &sequence, 1, &trial->groups, items);
    sequence_end(&sequence);
    return status;
}

/* Enqueues on a queue of its own and reads the answer back. */
static clattn_status run_on_device(clattn_context *context, const struct selftest_trial *trial, void *fed, void *got,
                                   size_t *items) {
    clattn_status status = CLATTN_SUCCESS;
    cl_int code = CL_SUCCESS;
    cl_mem in = NULL, out = NULL;
    cl_command_queue queue = clCreateCommandQueue(context->cl, context->device, 0, &code);
    if (queue != NULL)
        in = clCreateBuffer(context->cl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, trial->in_size, fed, &code);
    if (in != NULL)
        out = clCreateBuffer(context->cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, trial->out_size, got, &code);
    if (out == NULL) {
        status = status_from_cl(code, "self-test");
        goto out;
    }
    status = launch_trial(context, trial, queue, in, out, items);
    if (status == CLATTN_SUCCESS)
        status = status_from_cl(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, trial->out_size, got, 0, NULL, NULL),
                                "self-test: clEnqueueReadBuffer");
out:
    if (out != NULL)
        clReleaseMemObject(out);
    if (in != NULL)
        clReleaseMemObject(in);
    if (queue != NULL)
        clReleaseCommandQueue(queue);
    return status;
}

/* *conclusive: the outcome would be the same next time. */
static bool run_trial(clattn_context *context, const struct selftest_trial *trial, bool *conclusive) {
    void *fed = calloc(1, trial->in_size), *got = calloc(1, trial->out_size);
    clattn_status status = CLATTN_OUT_OF_HOST_MEMORY;
    size_t items = 0;
    bool holds = false;
    if (fed != NULL && got != NULL) {
        trial->fill(&context->facts, fed);
        status = run_on_device(context, trial, fed, got, &items);
        holds = status == CLATTN_SUCCESS && trial->holds(&context->facts, items, fed, got);
    }
    if (!holds)
        log_write(&context->log, CLATTN_LOG_WARNING, "self-test: capability %s failed and is not used: %s",
                  device_capability_name(trial->cap), status == CLATTN_SUCCESS ? "wrong results" : clattn_last_error());
    *conclusive = status == CLATTN_SUCCESS || status == CLATTN_BUILD_FAILED;
    free(got);
    free(fed);
    return holds;
}

static void test_capability(clattn_context *context, int cap) {
    const struct selftest_trial *trial = selftest_trial_next(cap, NULL);
    bool conclusive = false;
    if (trial == NULL || verdict_of(&context->selftest, cap) != SELFTEST_UNTESTED)
        return;
    while (trial != NULL && run_trial(context, trial, &conclusive))
        trial = selftest_trial_next(cap, trial);
    const enum selftest_verdict verdict = trial == NULL ? SELFTEST_PASSED : SELFTEST_FAILED;
    set_verdict(&context->selftest, cap, verdict);
    if (conclusive)
        write_stored(context, cap, verdict);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static bool is_untested(const clattn_context *context, int cap) {
    return selftest_trial_next(cap, NULL) != NULL && verdict_of(&context->selftest, cap) == SELFTEST_UNTESTED;
}

bool selftest_is_due(const clattn_context *context, uint64_t needs) {
    for (int cap = 0; cap < CAP_COUNT; cap++)
        if ((needs & CAP_BIT(cap)) != 0 && is_untested(context, cap))
            return true;
    return false;
}

bool selftest_passes(clattn_context *context, uint64_t needs) {
    struct selftest *selftest = &context->selftest;
    if ((needs & ~context->facts.caps) != 0)
        return false;
    for (int cap = 0; cap < CAP_COUNT; cap++) {
        if ((needs & CAP_BIT(cap)) == 0)
            continue;
        if (is_untested(context, cap)) {
            os_lock(&selftest->lock);
            if (!selftest->stored_read)
                read_stored(context);
            selftest->stored_read = true;
            test_capability(context, cap);
            os_unlock(&selftest->lock);
        }
        if (verdict_of(selftest, cap) == SELFTEST_FAILED)
            return false;
    }
    return true;
}

const char *selftest_verdict_name(clattn_context *context, enum device_capability cap) {
    if ((context->facts.caps & CAP_BIT(cap)) == 0)
        return "absent";
    switch (verdict_of(&context->selftest, cap)) {
    case SELFTEST_PASSED:
        return "passed";
    case SELFTEST_FAILED:
        return "failed";
    default:
        return "untested";
    }
}

struct device_facts selftest_facts(clattn_context *context) {
    struct device_facts facts = context->facts;
    for (int cap = 0; cap < CAP_COUNT; cap++)
        if (verdict_of(&context->selftest, cap) == SELFTEST_FAILED)
            device_drop_capabilities(&facts, CAP_BIT(cap));
    return facts;
}
