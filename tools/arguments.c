/* Reads the command line. One table holds every option of every sub-command, so that an option means the same
 * everywhere; a sub-command names those that it takes. */
#include "arguments.h"
#include "command.h"

#include <stdio.h>
#include <string.h>

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_FILE_IN, OPTION_FILE_OUT };

static const struct option {
    const char *name;
    enum option_kind kind;
    size_t member;
} options[] = {
    {"device", OPTION_TEXT, offsetof(struct arguments, device)},
    {"variant", OPTION_TEXT, offsetof(struct arguments, variant)},
    {"parameters", OPTION_TEXT, offsetof(struct arguments, parameters)},
    {"suite", OPTION_TEXT, offsetof(struct arguments, suite)},
    {"dtype", OPTION_TEXT, offsetof(struct arguments, dtype)},
    {"shape", OPTION_TEXT, offsetof(struct arguments, shape)},
    {"vs", OPTION_TEXT, offsetof(struct arguments, versus)},
    {"csv", OPTION_TEXT, offsetof(struct arguments, csv)},
    {"plot", OPTION_TEXT, offsetof(struct arguments, plot)},
    {"seed", OPTION_TEXT, offsetof(struct arguments, seed)},
    {"budget", OPTION_TEXT, offsetof(struct arguments, budget)},
    {"candidates", OPTION_TEXT, offsetof(struct arguments, candidates)},
    {"limit", OPTION_TEXT, offsetof(struct arguments, limit)},
    {"db", OPTION_TEXT, offsetof(struct arguments, database)},
    {"crossovers", OPTION_FLAG, offsetof(struct arguments, crossovers)},
    {"resume", OPTION_FLAG, offsetof(struct arguments, resume)},
    {"json", OPTION_FLAG, offsetof(struct arguments, json)},
    {"check", OPTION_FLAG, offsetof(struct arguments, check)},
    {"help", OPTION_FLAG, offsetof(struct arguments, help)},
    {"in", OPTION_FILE_IN, 0},
    {"out", OPTION_FILE_OUT, 0},
};

static bool listed(const char *list, const char *name, size_t length) {
    for (const char *at = list; *at;) {
        const size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, name, length) == 0)
            return true;
        at += word + (at[word] == ' ');
    }
    return false;
}

static const struct option *find_option(const char *name, size_t length, const char *permitted) {
    if (!listed(permitted, name, length) && !(length == 4 && memcmp(name, "help", 4) == 0))
        return NULL;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static int add_file(struct file_argument *files, size_t *count, const char *option, const char *value) {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !equals[1])
        return complain(EXIT_USAGE, "--%s wants NAME=FILE.npy, not '%s'", option, value);
    const size_t length = (size_t)(equals - value);
    if (*count == ARGUMENTS_MAX_FILES || length >= sizeof files->name)
        return complain(EXIT_USAGE, "--%s %s: too many or too long", option, value);
    struct file_argument *file = &files[*count];
    memcpy(file->name, value, length);
    file->name[length] = '\0';
    file->path = equals + 1;
    for (size_t i = 0; i < *count; i++)
        if (strcmp(files[i].name, file->name) == 0)
            return complain(EXIT_USAGE, "--%s %s is given twice", option, file->name);
    (*count)++;
    return EXIT_OK;
}

static int set_option(struct arguments *out, const struct option *option, const char *value) {
    char *base = (char *)out;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)(base + option->member) = true;
        return EXIT_OK;
    case OPTION_TEXT:
        *(const char **)(base + option->member) = value;
        return EXIT_OK;
    case OPTION_FILE_IN:
        return add_file(out->in, &out->in_count, option->name, value);
    case OPTION_FILE_OUT:
        return add_file(out->out, &out->out_count, option->name, value);
    }
    return EXIT_USAGE;
}

static int take_word(struct arguments *out, const char *word) {
    if (strchr(word, '='))
        return settings_add(&out->settings, word);
    if (out->word_count == ARGUMENTS_MAX_WORDS)
        return complain(EXIT_USAGE, "too many words at '%s'", word);
    out->words[out->word_count++] = word;
    return EXIT_OK;
}

/* Takes argv[*index], and the word after it where that is its value. */
static int take_option(int argc, char **argv, int *index, const char *permitted, struct arguments *out) {
    const char *name = argv[*index] + 2;
    const size_t length = strcspn(name, "=");
    const struct option *option = find_option(name, length, permitted);
    if (!option)
        return complain(EXIT_USAGE, "unknown option '%s'", argv[*index]);
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    if (option->kind == OPTION_FLAG) {
        if (value)
            return complain(EXIT_USAGE, "--%s takes no value", option->name);
    } else if (!value) {
        if (++*index >= argc)
            return complain(EXIT_USAGE, "--%s wants a value", option->name);
        value = argv[*index];
    }
    return set_option(out, option, value);
}

int arguments_parse(int argc, char **argv, const char *permitted, struct arguments *out) {
    memset(out, 0, sizeof *out);
    bool only_words = false;
    for (int i = 0; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0)
            only_words = true;
        else if (!only_words && strcmp(argv[i], "-h") == 0)
            out->help = true;
        else if (!only_words && strncmp(argv[i], "--", 2) == 0)
            FORWARD(take_option(argc, argv, &i, permitted, out));
        else if (!only_words && argv[i][0] == '-' && argv[i][1])
            return complain(EXIT_USAGE, "unknown option '%s'", argv[i]);
        else
            FORWARD(take_word(out, argv[i]));
    }
    return EXIT_OK;
}
