/* The language model on a device against the host's double precision.
 *
 * In fp32 it generates by itself, and its 200 tokens of each sequence must be the host's. That says something only
 * where no two words are so alike that rounding decides between them: the smallest margin of the host's choices must be
 * more than twice the largest error of a logit, for two logits may move towards each other.
 *
 * In fp16, and in fp16 with a cache of int8 codes, it is given the host's tokens. No choice of words hides there how
 * far a logit is off: at most twice as far as with the host's own version, which works in double precision but rounds
 * wherever the device stores fp16 or codes. That is what the project allows every operation; here it is for all of them
 * one after the other. */
#include "decoder.h"
#include "decoder_host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS = 200,     /* generated of each sequence */
    PROMPT_STEPS = 2, /* in which the prompts are taken in */
    STEPS = PROMPT_STEPS + TOKENS - 1,
    MOST_TOKENS = PAGE_SIZE * MOST_PAGES,
    LEAST_WORDS = 50 /* different ones that a sequence must have, lest it go round in circles */
};
static const uint64_t seed = 1;
static const int32_t prompt_counts[PROMPT_STEPS][SEQUENCES] = {{4, 30}, {5, 11}};
static const int32_t single[SEQUENCES] = {1, 1};

/* A run of the host; logits [TOKENS, SEQUENCES, WORDS] are those that tokens were chosen by. */
struct run {
    double *logits;
    int32_t tokens[SEQUENCES][TOKENS];
};

static int32_t prompt_word(int sequence, int index) {
    return (37 * index * index + 101 * index + 500 * sequence + 11) % WORDS;
}

static int prompt_length(int sequence) {
    int length = 0;
    for (int i = 0; i < PROMPT_STEPS; i++)
        length += prompt_counts[i][sequence];
    return length;
}

static double *logits_at(const struct run *run, int token, int sequence) {
    return run->logits + ((int64_t)token * SEQUENCES + sequence) * WORDS;
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

static int32_t likeliest(const double *logits, int32_t but) {
    int32_t best = but == 0 ? 1 : 0;
    for (int32_t i = best; i < WORDS; i++)
        if (i != but && logits[i] > logits[best])
            best = i;
    return best;
}

/* given NULL: greedily; else with the tokens of that run. */
static struct run run_host(const struct decoder_model *model, struct decoder_host_storage storage,
                           const struct run *given) {
    struct run run = {.logits = client_allocate(sizeof(double) * TOKENS * SEQUENCES * WORDS)};
    for (int b = 0; b < SEQUENCES; b++) {
        struct decoder_host host;
        const int prompt = prompt_length(b);
        decoder_host_open(&host, model, storage, MOST_TOKENS);
        for (int i = 0; i < prompt; i++)
            decoder_host_step(&host, prompt_word(b, i), logits_at(&run, 0, b));
        for (int i = 0; i < TOKENS; i++) {
            run.tokens[b][i] = given != NULL ? given->tokens[b][i] : likeliest(logits_at(&run, i, b), -1);
            if (i + 1 < TOKENS)
                decoder_host_step(&host, run.tokens[b][i], logits_at(&run, i + 1, b));
        }
        decoder_host_close(&host);
    }
    return run;
}

static double smallest_margin(const struct run *run) {
    double smallest = INFINITY;
    for (int i = 0; i < TOKENS; i++)
        for (int b = 0; b < SEQUENCES; b++) {
            const double *logits = logits_at(run, i, b);
            const int32_t best = likeliest(logits, -1);
            smallest = fmin(smallest, logits[best] - logits[likeliest(logits, best)]);
        }
    return smallest;
}

static void check_variety(const struct run *run) {
    for (int b = 0; b < SEQUENCES; b++) {
        static char seen[WORDS];
        int different = 0;
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < TOKENS; i++)
            different += !seen[run->tokens[b][i]]++;
        printf("sequence %d: %d different words among %d\n", b, different, TOKENS);
        if (different < LEAST_WORDS)
            client_fail("another seed is needed");
    }
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static void take_prompts(struct decoder *decoder) {
    int32_t ids[MOST_ROWS], taken[SEQUENCES] = {0};
    for (int step = 0; step < PROMPT_STEPS; step++) {
        int row = 0;
        for (int b = 0; b < SEQUENCES; b++)
            for (int i = 0; i < prompt_counts[step][b]; i++)
                ids[row++] = prompt_word(b, taken[b]++);
        decoder_step(decoder, prompt_counts[step], ids);
    }
}

/* given NULL: each step takes what the one before chose. */
static void run_device(struct client *client, const struct decoder_model *model, clattn_dtype dtype,
                       clattn_dtype cache_dtype, const struct run *given, float *logits, int32_t *choices) {
    struct decoder decoder;
    decoder_open(&decoder, client, model, dtype, cache_dtype, STEPS);
    take_prompts(&decoder);
    decoder_results(&decoder, NULL, choices); /* waits */
    const double start = client_seconds();
    for (int i = 0; i + 1 < TOKENS; i++) {
        int32_t ids[SEQUENCES];
        for (int b = 0; given != NULL && b < SEQUENCES; b++)
            ids[b] = given->tokens[b][i];
        decoder_step(&decoder, single, given != NULL ? ids : NULL);
    }
    decoder_results(&decoder, logits, choices);
    printf("  %.0f steps per second\n", (TOKENS - 1) / (client_seconds() - start));
    decoder_close(&decoder);
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static double largest_error_of_host(const struct run *got, const struct run *want) {
    double largest = 0;
    for (int64_t i = 0; i < (int64_t)TOKENS * SEQUENCES * WORDS; i++)
        largest = fmax(largest, fabs(got->logits[i] - want->logits[i]));
    return largest;
}

/* NaN counts as infinitely far off. */
static double largest_error(const float *logits, const struct run *want) {
    const float *got = logits + (PROMPT_STEPS - 1) * SEQUENCES * WORDS;
    double largest = 0;
    for (int64_t i = 0; i < (int64_t)TOKENS * SEQUENCES * WORDS; i++) {
        const double error = fabs((double)got[i] - want->logits[i]);
        largest = fmax(largest, error >= 0 ? error : INFINITY);
    }
    return largest;
}

static int32_t choice_at(const int32_t *choices, int token, int sequence) {
    return choices[((PROMPT_STEPS - 1 + token) * SEQUENCES + sequence) * CHOICES];
}

static int equal_choices(const int32_t *choices, const struct run *want) {
    int equal = 0;
    for (int i = 0; i < TOKENS; i++)
        for (int b = 0; b < SEQUENCES; b++)
            equal += choice_at(choices, i, b) == want->tokens[b][i];
    return equal;
}

struct results {
    float *logits;    /* [STEPS, SEQUENCES, WORDS] */
    int32_t *choices; /* [STEPS, SEQUENCES, CHOICES] */
};

static void check_generation(struct client *client, const struct decoder_model *model, const struct run *want,
                             struct results *results) {
    puts("fp32, generating");
    run_device(client, model, CLATTN_F32, CLATTN_F32, NULL, results->logits, results->choices);
    for (int i = 0; i < TOKENS; i++)
        for (int b = 0; b < SEQUENCES; b++)
            if (choice_at(results->choices, i, b) != want->tokens[b][i])
                client_fail("sequence %d: token %d is %d, not %d", b, i, (int)choice_at(results->choices, i, b),
                            (int)want->tokens[b][i]);
    const double error = largest_error(results->logits, want), margin = smallest_margin(want);
    printf("  all %d tokens of %d sequences are the host's; smallest margin %.3g, largest error of a logit %.3g\n",
           TOKENS, SEQUENCES, margin, error);
    if (!(margin > 2 * error))
        client_fail("some choice was luck: another seed is needed, or logits are too far off");
}

static void check_given(struct client *client, const struct decoder_model *model, const struct run *want,
                        struct results *results, clattn_dtype cache_dtype) {
    const struct decoder_host_storage storage = {.halves = true, .codes = cache_dtype == CLATTN_I8};
    struct run plain = run_host(model, storage, want);
    const double allowed = 2 * largest_error_of_host(&plain, want);
    printf("fp16%s, given the host's tokens\n", storage.codes ? " with int8 keys and values" : "");
    run_device(client, model, CLATTN_F16, cache_dtype, want, results->logits, results->choices);
    const double error = largest_error(results->logits, want);
    printf("  largest error of a logit %.3g, allowed %.3g; %d of %d choices are the host's\n", error, allowed,
           equal_choices(results->choices, want), TOKENS * SEQUENCES);
    if (!(error <= allowed))
        client_fail("logits are too far off");
    free(plain.logits);
}

int main(void) {
    struct client client;
    struct decoder_model model;
    client_open(&client);
    decoder_model_make(&model, seed);
    struct run want = run_host(&model, (struct decoder_host_storage){false, false}, NULL);
    struct results results = {client_allocate(sizeof(float) * STEPS * SEQUENCES * WORDS),
                              client_allocate(sizeof(int32_t) * STEPS * SEQUENCES * CHOICES)};
    check_variety(&want);
    check_generation(&client, &model, &want, &results);
    check_given(&client, &model, &want, &results, CLATTN_F16);
    check_given(&client, &model, &want, &results, CLATTN_I8);
    free(results.logits);
    free(results.choices);
    free(want.logits);
    decoder_model_free(&model);
    client_close(&client);
    return EXIT_SUCCESS;
}
