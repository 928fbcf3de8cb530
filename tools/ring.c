/* clattn ring: attention over 1, 2, 4 ... ranks beside one device: time, what is lost to transfers, memory, and what a
 * model of the ring predicts. */
#include "arguments.h"
#include "command.h"
#include "ring_model.h"
#include "ring_team.h"
#include "selection.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: clattn ring [KEY=VALUE]... [OPTION]...\n\n"
    "Attention over several ranks of this process, each a thread with a device, a context and queues of its own, "
    "beside\n"
    "clattn_attention() on one device. Ranks take the devices of a platform in turn, so that several may share one.\n\n"
    "  --shape B,HQ,HKV,N,D   default 1,4,4,2048,64\n"
    "  --dtype D              f32, f16 or bf16; default f16\n"
    "  --device D             of the first rank: a device's number, or a part of its name\n"
    "  --seed N               of the random data; default 1\n"
    "  ranks=1,2,4            how many, one after the other\n"
    "  causal=0 or 1          default 1\n"
    "  split=zigzag           or contiguous: which rows a rank holds\n"
    "  backward=1             the gradients instead\n"
    "  overlap=0              one queue for computing and for transfers, one after the other\n"
    "  runs=N                 the median is taken of; default 5, and 64 at most\n\n"
    "time: wall clock, until the last rank has finished. efficiency: of the ranks, time of one device / (ranks * "
    "time).\n"
    "waiting: share of the time that goes when no rank waits for another and nothing is sent. model: the time that\n"
    "follows from that of one device and the measured speed of a block's way from device to device. memory: of "
    "tensors\n"
    "and staging on the device of the rank that takes most. difference: largest, of any result from that of one "
    "device.\n\n"
    "Example: clattn ring --shape 1,4,2,4096,64 ranks=1,2 causal=1 split=zigzag\n";

/* Sums of a few tensors' bytes fit 64 bits. */
static bool is_countable(const int64_t dims[5]) {
    int64_t most = INT64_MAX / 64;
    for (int i = 0; i < 5; i++)
        most /= dims[i];
    return most > 0;
}

static int parse_shape(const char *text, struct ring_setup *setup) {
    int64_t dims[5] = {1, 4, 4, 2048, 64};
    if (text && parse_integers(text, dims, 5) != 5)
        return complain(EXIT_USAGE, "--shape %s: B,HQ,HKV,N,D are wanted", text);
    for (int i = 0; i < 5; i++)
        if (dims[i] < 1)
            return complain(EXIT_USAGE, "--shape: %lld is not at least 1", (long long)dims[i]);
    if (!is_countable(dims))
        return complain(EXIT_USAGE, "--shape %s: too large for any memory", text);
    setup->batch = dims[0], setup->heads = dims[1], setup->kv_heads = dims[2];
    setup->length = dims[3], setup->dim = dims[4];
    return EXIT_OK;
}

static int parse_ranks(struct settings *settings, int64_t ranks[16], size_t *count) {
    const char *text = settings_text(settings, "ranks");
    ranks[0] = 1, ranks[1] = 2, ranks[2] = 4;
    *count = text ? parse_integers(text, ranks, 16) : 3;
    if (*count == 0)
        return complain(EXIT_USAGE, "ranks=%s: up to 16 numbers are wanted", text);
    for (size_t i = 0; i < *count; i++)
        if (ranks[i] < 1 || ranks[i] > RING_TEAM_MOST)
            return complain(EXIT_USAGE, "ranks=%s: %lld is not within 1 .. %d", text, (long long)ranks[i],
                            RING_TEAM_MOST);
    return EXIT_OK;
}

static int parse(struct arguments *arguments, struct ring_setup *setup, int64_t ranks[16], size_t *count) {
    static const clattn_dtype dtypes[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    int split = 1, dtype = 1;
    int32_t overlap = 1;
    int64_t seed = 1;
    struct settings *settings = &arguments->settings;
    setup->causal = 1;
    setup->runs = 5;
    if (arguments->word_count > 0)
        return complain(EXIT_USAGE, "no operation is wanted, '%s' is one", arguments->words[0]);
    FORWARD(parse_shape(arguments->shape, setup));
    FORWARD(parse_ranks(settings, ranks, count));
    FORWARD(settings_flag(settings, "causal", &setup->causal));
    FORWARD(settings_flag(settings, "backward", &setup->backward));
    FORWARD(settings_flag(settings, "overlap", &overlap));
    FORWARD(settings_choice(settings, "split", "contiguous zigzag", &split));
    FORWARD(settings_integer(settings, "runs", &setup->runs, NULL));
    FORWARD(settings_refuse_unknown(settings, "ring"));
    if (setup->runs < 1)
        return complain(EXIT_USAGE, "runs=%lld is not at least 1", (long long)setup->runs);
    if (arguments->seed && !parse_integer(arguments->seed, &seed))
        return complain(EXIT_USAGE, "--seed %s is no number", arguments->seed);
    static const char *const names[] = {"f32", "f16", "bf16"};
    for (dtype = 0; arguments->dtype && dtype < 3 && strcmp(arguments->dtype, names[dtype]) != 0;)
        dtype++;
    if (dtype == 3)
        return complain(EXIT_USAGE, "--dtype %s is none of: f32 f16 bf16", arguments->dtype);
    setup->dtype = arguments->dtype ? dtypes[dtype] : CLATTN_F16;
    setup->split = split == 0 ? CLATTN_RING_CONTIGUOUS : CLATTN_RING_ZIGZAG;
    setup->one_queue = !overlap;
    setup->seed = (uint64_t)seed;
    return EXIT_OK;
}

/* The first rank's device, then those behind it on its platform, then those before. */
static int find_devices(const char *wanted, struct ring_setup *setup) {
    struct device_entry entries[MACHINE_MAX_DEVICES], first;
    FORWARD(machine_find(wanted, &first));
    const size_t count = machine_list(entries);
    size_t own = 0;
    while (own < count && entries[own].device != first.device)
        own++;
    for (size_t i = 0; i < count; i++) {
        const struct device_entry *entry = &entries[(own + i) % count];
        if (entry->platform == first.platform && entry->type == first.type)
            setup->devices[setup->device_count++] = *entry;
    }
    return EXIT_OK;
}

/* Of the whole work, what the busiest rank has. */
static double busiest_share(const struct ring_setup *setup, int ranks) {
    if (setup->causal && setup->split == CLATTN_RING_CONTIGUOUS)
        return (2.0 * ranks - 1) / ((double)ranks * ranks);
    return 1.0 / ranks;
}

/* Ranks that share a device take turns. */
static double predict(const struct ring_setup *setup, int ranks, const struct ring_measured *one,
                      const struct ring_measured *own, double link) {
    const int sharing = (ranks + (int)setup->device_count - 1) / (int)setup->device_count;
    const struct ring_model model = {.ranks = ranks,
                                     .alone_s = one->seconds * sharing,
                                     .share = busiest_share(setup, ranks),
                                     .block_bytes = (double)own->block_bytes * sharing,
                                     .link_bytes_s = link};
    return ring_predict(&model).seconds;
}

static int add_row(struct table *table, const struct ring_setup *setup, int ranks, const struct ring_measured *one,
                   const struct ring_measured *own) {
    double link = 1e30;
    if (ranks > 1 && own->block_bytes > 0)
        FORWARD(ring_team_link(setup, own->block_bytes, &link));
    const double waiting = own->seconds > own->alone_s ? 1 - own->alone_s / own->seconds : 0;
    const size_t devices = (size_t)ranks < setup->device_count ? (size_t)ranks : setup->device_count;
    char link_text[32] = "-";
    if (ranks > 1)
        snprintf(link_text, sizeof link_text, "%.1f GB/s", link * 1e-9);
    table_add(table, "%d|%zu|%.3f ms|%.2f|%.0f %%|%.3f ms|%.1f MiB|%.2f|%s|%.2g", ranks, devices, own->seconds * 1e3,
              one->seconds / (ranks * own->seconds), 100 * waiting, predict(setup, ranks, one, own, link) * 1e3,
              (double)own->bytes / 1048576, (double)own->bytes / (double)one->bytes, link_text, own->difference);
    return EXIT_OK;
}

/* Results of either are within a few units in the last place of what is right, as P was rounded. */
static int check(const struct ring_setup *setup, int ranks, const struct ring_measured *own) {
    const double unit = setup->dtype == CLATTN_F32 ? 0x1p-20 : setup->dtype == CLATTN_F16 ? 0x1p-10 : 0x1p-7;
    if (own->difference <= 8 * unit * own->largest)
        return EXIT_OK;
    return complain(EXIT_CHECK_FAILED, "%d ranks: a result is %.3g off that of one device", ranks, own->difference);
}

static int run(const struct ring_setup *setup, const int64_t *ranks, size_t count, struct ring_results *results) {
    struct ring_measured one, own;
    struct table table;
    int code = EXIT_OK;
    FORWARD(ring_team_measure(setup, 0, results, &one));
    printf("%s, %s; one device: %.3f ms, %.1f MiB\n", setup->devices[0].name, setup->backward ? "gradients" : "forward",
           one.seconds * 1e3, (double)one.bytes / 1048576);
    table_init(&table, "ranks|devices|time|efficiency|waiting|model|memory|of one|link|difference");
    for (size_t i = 0; i < count && code == EXIT_OK; i++) {
        code = ring_team_measure(setup, (int)ranks[i], results, &own);
        if (code == EXIT_OK)
            code = add_row(&table, setup, (int)ranks[i], &one, &own);
        if (code == EXIT_OK)
            code = check(setup, (int)ranks[i], &own);
    }
    table_print(&table, stdout);
    table_free(&table);
    return code;
}

int command_ring(int argc, char **argv) {
    struct arguments arguments;
    struct ring_setup setup = {.batch = 0};
    struct ring_results results = {.values = NULL};
    int64_t ranks[16];
    size_t count = 0;
    FORWARD(arguments_parse(argc, argv, "shape dtype seed device", &arguments));
    if (arguments.help)
        return fputs(help, stdout), EXIT_OK;
    FORWARD(parse(&arguments, &setup, ranks, &count));
    FORWARD(find_devices(arguments.device, &setup));
    const int code = run(&setup, ranks, count, &results);
    free(results.values);
    return code;
}
