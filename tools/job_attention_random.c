/* Random attention problems: inputs of the sizes of --shape, and by further settings any of the optional ones. Chance
 * is decided by the seed alone. */
#include "command.h"
#include "job_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEQUENCES 64
#define SPARE_PAGES 3
#define MASK_BLOCK 32

struct random_problem {
    struct job *job;
    const struct job_shape *shape;
    struct settings *settings;
    int64_t batch, heads, kv_heads, nq, nk, d, dv; /* --shape */
    int64_t sequences;
    int64_t page_size, max_pages; /* 0: not paged */
    int64_t max_q, max_k;
    bool q_ragged, k_ragged;
};

/* ---- chance ------------------------------------------------------------------------------------------------------ */

/* The same number for the same purpose, seed and index. */
static uint64_t chance(const struct random_problem *problem, const char *purpose, uint64_t index) {
    uint64_t x = problem->shape->seed + 0x9e3779b97f4a7c15u * (index + 1);
    for (; *purpose; purpose++)
        x = (x ^ (uint64_t)(unsigned char)*purpose) * 0x100000001b3u;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 33;
}

/* 0 .. most */
static int64_t draw(const struct random_problem *problem, const char *purpose, int64_t index, int64_t most) {
    return (int64_t)(chance(problem, purpose, (uint64_t)index) % (uint64_t)(most + 1));
}

/* ---- small inputs ------------------------------------------------------------------------------------------------ */

static int complain_memory(const char *name) {
    return complain(EXIT_UNSUPPORTED, "%s: out of host memory, or impossible dimensions", name);
}

static int add_integers(struct job *job, const char *name, const int64_t *values, int rank, const int64_t *dims) {
    struct array array;
    if (!array_make(&array, ELEMENT_I32, rank, dims))
        return complain_memory(name);
    for (size_t i = 0; i < array.count; i++)
        array_set(&array, i, (double)values[i]);
    return job_add(job, name, false, &array);
}

/* The settings sinks=random and slopes=random, which is alibi with slopes of each sequence's own. */
static int add_statistics(struct random_problem *problem) {
    struct job_shape fp32 = *problem->shape;
    int random = 0;
    fp32.element = ELEMENT_F32;
    if (settings_text(problem->settings, "sinks")) {
        FORWARD(settings_choice(problem->settings, "sinks", "random", &random));
        FORWARD(job_add_random(problem->job, "sinks", &fp32, 1, &problem->heads));
    }
    if (!settings_text(problem->settings, "slopes"))
        return EXIT_OK;
    FORWARD(settings_choice(problem->settings, "slopes", "random", &random));
    return job_add_random(problem->job, "alibi", &fp32, 2, (int64_t[]){problem->sequences, problem->heads});
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

/* random, or a list of one length for each sequence. */
static int take_lengths(struct random_problem *problem, const char *key, int64_t most, int64_t *lengths, bool *given) {
    const char *text = settings_text(problem->settings, key);
    *given = text != NULL;
    if (!text)
        return EXIT_OK;
    if (strcmp(text, "random") == 0) {
        for (int64_t b = 0; b < problem->sequences; b++)
            lengths[b] = b == 0 ? most - most / 4 : draw(problem, key, b, most);
        return EXIT_OK;
    }
    int64_t numbers[MAX_SEQUENCES];
    const size_t count = parse_integers(text, numbers, MAX_SEQUENCES);
    if ((int64_t)count != problem->sequences)
        return complain(EXIT_USAGE, "%s=%s is neither 'random' nor a list of %lld lengths", key, text,
                        (long long)problem->sequences);
    memcpy(lengths, numbers, count * sizeof *numbers);
    return EXIT_OK;
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Offsets that leave some rows at the end to no sequence; of four sequences or more, one is empty. */
static void cut(struct random_problem *problem, const char *key, int64_t rows, int64_t sequences, int64_t empty,
                int64_t *offsets) {
    for (int64_t b = 1; b < sequences; b++)
        offsets[b] = draw(problem, key, b, rows - rows / 16);
    offsets[0] = 0;
    offsets[sequences] = rows - rows / 16;
    qsort(offsets, (size_t)sequences, sizeof *offsets, by_value);
    if (sequences > 3)
        offsets[empty + 1] = offsets[empty];
}

/* The number of sequences to cut `rows` into at random, or a list of their lengths. */
static int take_offsets(struct random_problem *problem, const char *key, int64_t rows, int64_t empty, int64_t *offsets,
                        int64_t *sequences) {
    int64_t numbers[MAX_SEQUENCES];
    const char *text = settings_text(problem->settings, key);
    const size_t count = parse_integers(text, numbers, MAX_SEQUENCES);
    *sequences = count == 1 ? numbers[0] : (int64_t)count;
    if (count == 0 || *sequences < 1 || *sequences > MAX_SEQUENCES)
        return complain(EXIT_USAGE, "%s=%s is neither a number of sequences up to %d nor a list of lengths", key, text,
                        MAX_SEQUENCES);
    if (count == 1) {
        cut(problem, key, rows, *sequences, empty, offsets);
        return EXIT_OK;
    }
    offsets[0] = 0;
    for (size_t b = 0; b < count; b++)
        offsets[b + 1] = offsets[b] + numbers[b];
    return EXIT_OK;
}

/* ragged= cuts queries and keys into sequences (queries alone where keys come in pages), ragged_k= keys alone or keys
 * in another way than queries. */
static int add_offsets(struct random_problem *problem) {
    int64_t offsets[MAX_SEQUENCES + 1], sequences = problem->batch;
    const char *k_key = settings_text(problem->settings, "ragged_k") ? "ragged_k" : "ragged";
    problem->q_ragged = settings_text(problem->settings, "ragged") != NULL;
    problem->k_ragged = settings_text(problem->settings, k_key) && problem->page_size == 0;
    problem->sequences = problem->batch;
    if (problem->q_ragged) {
        if (problem->batch != 1)
            return complain(EXIT_USAGE, "ragged: B of --shape is %lld, want 1", (long long)problem->batch);
        FORWARD(take_offsets(problem, "ragged", problem->nq, 1, offsets, &sequences));
        problem->sequences = sequences;
        FORWARD(add_integers(problem->job, "q_offsets", offsets, 1, (int64_t[]){sequences + 1}));
    }
    if (!problem->k_ragged)
        return EXIT_OK;
    FORWARD(take_offsets(problem, k_key, problem->nk, 2, offsets, &sequences));
    if (sequences != problem->sequences)
        return complain(EXIT_USAGE, "ragged_k: %lld sequences of keys, %lld of queries", (long long)sequences,
                        (long long)problem->sequences);
    return add_integers(problem->job, "k_offsets", offsets, 1, (int64_t[]){sequences + 1});
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Pages in random order; what lies behind a sequence's last page leads nowhere. */
static int add_page_table(struct random_problem *problem, const int64_t *lengths) {
    const int64_t used = problem->sequences * problem->max_pages, pages = used + SPARE_PAGES;
    int64_t *order = malloc((size_t)pages * sizeof *order);
    if (!order)
        return complain_memory("page_table");
    for (int64_t i = 0; i < pages; i++) {
        const int64_t other = draw(problem, "page", i, i);
        order[i] = i;
        order[i] = order[other];
        order[other] = i;
    }
    for (int64_t i = 0; i < used; i++)
        if (i % problem->max_pages * problem->page_size >= lengths[i / problem->max_pages])
            order[i] = -1;
    const int code =
        add_integers(problem->job, "page_table", order, 2, (int64_t[]){problem->sequences, problem->max_pages});
    free(order);
    return code;
}

/* Pages that the sequences do not fill make lengths of their own. */
static int add_lengths_in(struct random_problem *problem, int64_t *lengths) {
    bool given;
    FORWARD(take_lengths(problem, "q_lengths", problem->nq, lengths, &given));
    if (given)
        FORWARD(add_integers(problem->job, "q_lengths", lengths, 1, &problem->sequences));
    FORWARD(take_lengths(problem, "k_lengths", problem->nk, lengths, &given));
    for (int64_t b = 0; !given && b < problem->sequences; b++)
        lengths[b] = problem->nk;
    if (given || (problem->page_size && problem->nk % problem->page_size))
        FORWARD(add_integers(problem->job, "k_lengths", lengths, 1, &problem->sequences));
    return problem->page_size ? add_page_table(problem, lengths) : EXIT_OK;
}

/* k_lengths=, q_lengths= and the page table. */
static int add_lengths(struct random_problem *problem) {
    int64_t *lengths = malloc((size_t)(problem->sequences + 1) * sizeof *lengths);
    const int code = lengths ? add_lengths_in(problem, lengths) : complain_memory("k_lengths");
    free(lengths);
    return code;
}

/* ---- mask and bias ----------------------------------------------------------------------------------------------- */

static int64_t columns(const struct random_problem *problem) {
    const int64_t most = problem->page_size ? problem->max_pages * problem->page_size : problem->nk;
    return problem->max_k > 0 && problem->max_k < most ? problem->max_k : most;
}

/* "1,1,n,n": where a dimension is 1 it is repeated. */
static int plane_dims(const struct random_problem *problem, const char *key, int64_t dims[4]) {
    const char *text = settings_text(problem->settings, key);
    const bool cut_q = problem->q_ragged && problem->max_q > 0 && problem->max_q < problem->nq;
    dims[0] = problem->sequences;
    dims[1] = problem->heads;
    dims[2] = cut_q ? problem->max_q : problem->nq;
    dims[3] = columns(problem);
    if (!text)
        return EXIT_OK;
    for (int d = 0; d < 4; d++) {
        if ((text[2 * d] != '1' && text[2 * d] != 'n') || text[2 * d + 1] != (d < 3 ? ',' : '\0'))
            return complain(EXIT_USAGE, "%s=%s is not like 1,1,n,n", key, text);
        if (text[2 * d] == '1')
            dims[d] = 1;
    }
    return EXIT_OK;
}

enum mask_kind { MASK_RANDOM, MASK_CAUSAL, MASK_BLOCKS };

/* Some rows of random masks see nothing; blocks are hidden, open or mixed. */
static bool is_shown(const struct random_problem *problem, enum mask_kind kind, const int64_t dims[4], int64_t index) {
    const int64_t j = index % dims[3], line = index / dims[3], i = line % dims[2];
    if (kind == MASK_CAUSAL)
        return j <= i + dims[3] - dims[2];
    if (kind == MASK_RANDOM)
        return (dims[2] == 1 || i % 11 != 7) && draw(problem, "mask", index, 1);
    const int64_t block = (line / dims[2] * dims[2] + i / MASK_BLOCK) * dims[3] + j / MASK_BLOCK;
    const int64_t state = draw(problem, "block", block, 2);
    return state == 2 ? draw(problem, "mask", index, 1) : state;
}

static int add_mask(struct random_problem *problem) {
    int64_t dims[4];
    int kind = 0;
    struct array array;
    if (!settings_text(problem->settings, "mask"))
        return EXIT_OK;
    FORWARD(settings_choice(problem->settings, "mask", "random causal blocks", &kind));
    FORWARD(plane_dims(problem, "mask_dims", dims));
    if (!array_make(&array, ELEMENT_U8, 4, dims))
        return complain_memory("mask");
    unsigned char *shown = array.data;
    for (size_t i = 0; i < array.count; i++)
        if (is_shown(problem, (enum mask_kind)kind, dims, (int64_t)i))
            shown[i] = (unsigned char)(1 + i % 255);
    return job_add(problem->job, "mask", false, &array);
}

/* bias=masks: every fourth cell hides its key. */
static int add_bias(struct random_problem *problem) {
    int64_t dims[4];
    int kind = 0, element = (int)problem->shape->element;
    struct job_shape shape = *problem->shape;
    if (!settings_text(problem->settings, "bias"))
        return EXIT_OK;
    FORWARD(settings_choice(problem->settings, "bias", "random masks", &kind));
    FORWARD(settings_choice(problem->settings, "bias_dtype", "f32 f16 bf16", &element));
    FORWARD(plane_dims(problem, "bias_dims", dims));
    shape.element = (enum element)element;
    FORWARD(job_add_random(problem->job, "bias", &shape, 4, dims));
    struct array *host = &job_find(problem->job, "bias")->host;
    for (size_t i = 0; kind == 1 && i < host->count; i++)
        if (draw(problem, "bias", (int64_t)i, 3) == 0)
            array_set(host, i, -(double)INFINITY);
    return EXIT_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int take_sizes(struct random_problem *problem) {
    const struct job_shape *shape = problem->shape;
    const int64_t *dims = shape->dims;
    if (shape->count != 6 && shape->count != 7)
        return complain(EXIT_USAGE, "attention wants --shape %s", job_attention.shape);
    problem->batch = dims[0], problem->heads = dims[1], problem->kv_heads = dims[2];
    problem->nq = dims[3], problem->nk = dims[4], problem->d = dims[5];
    problem->dv = shape->count == 7 ? dims[6] : dims[5];
    if (shape->count == 7 && settings_text(problem->settings, "v_in_k"))
        return complain(EXIT_USAGE, "v_in_k: says how many columns values have, as does DV of --shape");
    if (problem->kv_heads ? problem->heads % problem->kv_heads : problem->heads)
        return complain(EXIT_USAGE, "attention: %lld heads of queries are no multiple of %lld of keys",
                        (long long)problem->heads, (long long)problem->kv_heads);
    FORWARD(settings_integer(problem->settings, "max_q", &problem->max_q, NULL));
    FORWARD(settings_integer(problem->settings, "max_k", &problem->max_k, NULL));
    FORWARD(settings_integer(problem->settings, "paged", &problem->page_size, NULL));
    if (problem->page_size < 0 || (settings_text(problem->settings, "paged") && problem->page_size == 0))
        return complain(EXIT_USAGE, "paged=%lld is no size of a page", (long long)problem->page_size);
    if (problem->page_size)
        problem->max_pages = (problem->nk + problem->page_size - 1) / problem->page_size;
    return EXIT_OK;
}

/* In the order that arrange() expects of them. */
static int add_keys(struct random_problem *problem) {
    struct job *job = problem->job;
    int64_t slabs = problem->k_ragged ? 1 : problem->batch, rows = problem->nk;
    if (problem->page_size) {
        int page_layout = 0;
        FORWARD(settings_choice(problem->settings, "page_layout", "nhd hnd", &page_layout));
        job->sequence_first = page_layout == 0;
        slabs = problem->sequences * problem->max_pages + SPARE_PAGES;
        rows = problem->page_size;
    }
    FORWARD(job_add_random(job, "k", problem->shape, 4, (int64_t[]){slabs, problem->kv_heads, rows, problem->d}));
    if (!settings_text(problem->settings, "v_in_k"))
        FORWARD(job_add_random(job, "v", problem->shape, 4, (int64_t[]){slabs, problem->kv_heads, rows, problem->dv}));
    job->sequence_first = false;
    return EXIT_OK;
}

int job_attention_generate(struct job *job, const struct job_shape *shape, struct settings *settings) {
    struct random_problem problem = {.job = job, .shape = shape, .settings = settings};
    FORWARD(job_take_layout(job, settings));
    FORWARD(take_sizes(&problem));
    FORWARD(job_add_random(job, "q", shape, 4, (int64_t[]){problem.batch, problem.heads, problem.nq, problem.d}));
    FORWARD(add_offsets(&problem));
    FORWARD(add_keys(&problem));
    FORWARD(add_lengths(&problem));
    FORWARD(add_mask(&problem));
    FORWARD(add_bias(&problem));
    FORWARD(add_statistics(&problem));
    return job_attention_quantise(job, settings, shape->blank);
}
