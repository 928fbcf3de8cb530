/* Turns words and options into operations, dtypes and jobs. */
#include "selection.h"
#include "command.h"

#include <stdio.h>
#include <string.h>

static int take_dtypes(const char *text, struct selection *out) {
    if (strcmp(text, "all") == 0) {
        for (enum element e = ELEMENT_F32; e <= ELEMENT_BF16; e++)
            out->elements[out->element_count++] = e;
        return EXIT_OK;
    }
    if (!element_named(text, &out->elements[out->element_count++]))
        return complain(EXIT_USAGE, "--dtype %s is none of: f32 f16 bf16 all", text);
    return EXIT_OK;
}

int selection_take(const struct arguments *arguments, const char *default_dtype, struct selection *out) {
    *out = (struct selection){.seed = 1};
    for (size_t i = 0; i < arguments->word_count; i++) {
        out->kinds[i] = job_kind_named(arguments->words[i]);
        if (!out->kinds[i])
            return job_complain_unknown(arguments->words[i]);
        out->kind_count++;
    }
    int64_t seed = 1;
    if (arguments->seed && (!parse_integer(arguments->seed, &seed) || seed < 0))
        return complain(EXIT_USAGE, "--seed %s is no number", arguments->seed);
    out->seed = (uint64_t)seed;
    return take_dtypes(arguments->dtype ? arguments->dtype : default_dtype, out);
}

bool selection_holds(const struct selection *selection, const char *op) {
    for (size_t i = 0; i < selection->kind_count; i++)
        if (strcmp(selection->kinds[i]->name, op) == 0)
            return true;
    return selection->kind_count == 0;
}

static int add_words(struct settings *settings, const char *words) {
    char word[96];
    while (*words) {
        const size_t length = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        FORWARD(settings_add(settings, word));
        words += length + (words[length] == ' ');
    }
    return EXIT_OK;
}

int selection_make(const struct test_case *item, enum element element, uint64_t seed, const struct settings *settings,
                   struct job *job) {
    struct settings all = *settings;
    struct job_shape shape = {.element = element, .seed = seed};
    const struct job_kind *kind = job_kind_named(item->op);
    job_start(job, kind);
    shape.count = parse_integers(item->shape, shape.dims, JOB_MAX_DIMS);
    if (shape.count == 0)
        return complain(EXIT_USAGE, "--shape %s is not %s", item->shape, kind->shape);
    FORWARD(add_words(&all, item->settings));
    return job_generate(job, kind, &shape, &all);
}

bool selection_is_redundant(const char *op, enum element element) {
    return strcmp(op, job_softmax_merge.name) == 0 && element != ELEMENT_F32;
}
