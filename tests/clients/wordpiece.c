/* The tokenizer in three steps: a character from UTF-8, a word of folded characters, and its pieces. */
#include "wordpiece.h"

#include "client.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHARACTERS = 100, MOST_FOLDED = 3, MOST_BYTES = 4 }; /* a longer word is unknown; of a fold; of UTF-8 */

struct character_class {
    uint32_t first, last;
    enum { CLASS_LETTER, CLASS_CONTROL, CLASS_SPACE, CLASS_PUNCTUATION, CLASS_IDEOGRAPH } name;
};

struct character_fold {
    uint32_t character, folded[MOST_FOLDED]; /* 0 ends it */
};

#include "unicode_tables.h"

struct vocabulary_word {
    const char *text;
    int32_t id;
};

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(((const struct vocabulary_word *)a)->text, ((const struct vocabulary_word *)b)->text);
}

struct vocabulary vocabulary_read(const char *path) {
    struct vocabulary vocabulary = {0};
    size_t size;
    vocabulary.text = client_read_file(path, &size);
    for (size_t i = 0; i < size; i++)
        vocabulary.count += vocabulary.text[i] == '\n';
    vocabulary.words = client_allocate(vocabulary.count * sizeof *vocabulary.words);
    char *at = vocabulary.text;
    for (size_t i = 0; i < vocabulary.count; i++) {
        char *end = strchr(at, '\n');
        *end = 0;
        vocabulary.words[i] = (struct vocabulary_word){at, (int32_t)i};
        at = end + 1;
    }
    qsort(vocabulary.words, vocabulary.count, sizeof *vocabulary.words, by_text);
    return vocabulary;
}

void vocabulary_free(struct vocabulary *vocabulary) {
    free(vocabulary->words);
    free(vocabulary->text);
}

static int32_t id_of(const struct vocabulary *vocabulary, const char *text) {
    const struct vocabulary_word key = {text, 0};
    const struct vocabulary_word *found =
        bsearch(&key, vocabulary->words, vocabulary->count, sizeof *vocabulary->words, by_text);
    return found != NULL ? found->id : -1;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* The next character, whose first byte may be any but 0; 0 where the bytes are none. */
static uint32_t next_character(const unsigned char **at, const unsigned char *end) {
    const unsigned char first = *(*at)++;
    const int more = first < 0x80 ? 0 : first < 0xC2 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : -1;
    if (more < 0 || end - *at < more)
        return 0;
    uint32_t code = more == 0 ? first : first & (0x3Fu >> more);
    for (int i = 0; i < more; i++) {
        if (((*at)[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | ((*at)[i] & 0x3Fu);
    }
    *at += more;
    return code;
}

static int put_character(uint32_t code, char *out) {
    if (code < 0x80)
        return out[0] = (char)code, 1;
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char marks[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(marks[more] | code >> 6 * more);
    for (int i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (code >> 6 * (more - i) & 0x3F));
    return more + 1;
}

static bool is_ideograph(uint32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
}

static int by_range(const void *key, const void *range) {
    const uint32_t code = *(const uint32_t *)key;
    const struct character_class *at = range;
    return code < at->first ? -1 : code > at->last ? 1 : 0;
}

static int class_of(uint32_t code) {
    if (code == 0 || code == 0xFFFD)
        return CLASS_CONTROL;
    if (is_ideograph(code))
        return CLASS_IDEOGRAPH;
    const struct character_class *found =
        bsearch(&code, classes, sizeof classes / sizeof *classes, sizeof *classes, by_range);
    return found != NULL ? (int)found->name : CLASS_LETTER;
}

static int by_character(const void *key, const void *fold) {
    const uint32_t code = *(const uint32_t *)key, other = ((const struct character_fold *)fold)->character;
    return code < other ? -1 : code > other;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

struct word {
    char text[MOST_CHARACTERS * MOST_BYTES];
    int starts[MOST_CHARACTERS + 1]; /* of the characters, and the end */
    int characters;                  /* more than MOST_CHARACTERS: the rest was dropped */
};

struct output {
    const struct vocabulary *vocabulary;
    int32_t *ids, count, limit;
};

static void put_id(struct output *out, int32_t id) {
    if (out->count < out->limit)
        out->ids[out->count++] = id;
}

static void add_character(struct word *word, uint32_t code) {
    if (word->characters < MOST_CHARACTERS) {
        const int start = word->starts[word->characters];
        word->starts[word->characters + 1] = start + put_character(code, word->text + start);
    }
    word->characters += word->characters <= MOST_CHARACTERS;
}

static void add_folded(struct word *word, uint32_t code) {
    const struct character_fold *fold =
        bsearch(&code, folds, sizeof folds / sizeof *folds, sizeof *folds, by_character);
    if (fold == NULL)
        add_character(word, code);
    else
        for (int i = 0; i < MOST_FOLDED && fold->folded[i] != 0; i++)
            add_character(word, fold->folded[i]);
}

/* The longest piece from a character on that the vocabulary has; -1 where it has none. */
static int32_t longest_piece(const struct vocabulary *vocabulary, const struct word *word, int from, int *end) {
    for (*end = word->characters; *end > from; --*end) {
        char piece[sizeof word->text + 3] = "##";
        const size_t prefix = from > 0 ? 2 : 0, length = (size_t)(word->starts[*end] - word->starts[from]);
        memcpy(piece + prefix, word->text + word->starts[from], length);
        piece[prefix + length] = 0;
        const int32_t id = id_of(vocabulary, piece);
        if (id >= 0)
            return id;
    }
    return -1;
}

static void end_word(struct word *word, struct output *out) {
    int32_t pieces[MOST_CHARACTERS], count = 0;
    bool known = word->characters <= MOST_CHARACTERS;
    for (int from = 0; known && from < word->characters; count++) {
        int end;
        pieces[count] = longest_piece(out->vocabulary, word, from, &end);
        known = pieces[count] >= 0;
        from = end;
    }
    if (!known)
        put_id(out, id_of(out->vocabulary, "[UNK]"));
    for (int32_t i = 0; known && i < count; i++)
        put_id(out, pieces[i]);
    word->characters = 0;
}

int32_t wordpiece_ids(const struct vocabulary *vocabulary, const char *text, size_t bytes, int32_t limit,
                      int32_t *ids) {
    struct output out = {vocabulary, ids, 0, limit - 1};
    struct word word = {.characters = 0};
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    put_id(&out, id_of(vocabulary, "[CLS]"));
    while (at < end) {
        const uint32_t code = next_character(&at, end);
        const int name = class_of(code);
        if (name == CLASS_CONTROL)
            continue;
        if (name != CLASS_LETTER)
            end_word(&word, &out);
        if (name != CLASS_SPACE)
            add_folded(&word, code);
        if (name == CLASS_PUNCTUATION || name == CLASS_IDEOGRAPH)
            end_word(&word, &out);
    }
    end_word(&word, &out);
    out.limit = limit;
    put_id(&out, id_of(vocabulary, "[SEP]"));
    return out.count;
}
