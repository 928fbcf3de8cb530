/* A WordPiece tokenizer as BERT's uncased models have it: text is cleaned, freed of case and accents, cut at spaces,
 * punctuation and ideographs, and each word into the longest pieces that the vocabulary has. */
#ifndef CLIENTS_WORDPIECE_H
#define CLIENTS_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

struct vocabulary {
    char *text; /* the file, cut into words */
    struct vocabulary_word *words;
    size_t count;
};

/* From a file of one word a line, whose number is its id. Ends the program where it cannot be read. */
struct vocabulary vocabulary_read(const char *path);
void vocabulary_free(struct vocabulary *vocabulary);

/* Writes the ids of [CLS], at most limit - 2 pieces of the text, and [SEP]; returns how many. Bytes that are not UTF-8
 * are dropped. */
int32_t wordpiece_ids(const struct vocabulary *vocabulary, const char *text, size_t bytes, int32_t limit, int32_t *ids);

#endif
