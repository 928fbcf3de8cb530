/* What a tune has found out so far, line by line in a file, so that one that was killed at any moment goes on where it
 * was. Texts are put behind what is there and flushed to the disk; a line that was cut off counts as not written. */
#ifndef TOOLS_TUNE_JOURNAL_H
#define TOOLS_TUNE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

struct journal {
    int file;   /* -1: none is written */
    char *text; /* what was there when it was opened */
    size_t size, capacity;
    int known;   /* outcomes that were there when it was opened */
    bool failed; /* a write failed: what follows may be asked for again after a kill */
};

/* Goes on with the file where `resume` and its first line is `title`; else begins it anew. False where it cannot be
 * written, or another process has it open: the journal then works, in memory alone. */
bool journal_open(struct journal *journal, const char *path, const char *title, bool resume);
void journal_close(struct journal *journal);

/* Tabs and line breaks in the texts become blanks. */
void journal_write(struct journal *journal, const char *key, const char *value);

/* The last value of the key, other than "begun", copied; false where there is none. */
bool journal_find(const struct journal *journal, const char *key, char *value, size_t size);

/* How often "begun" was written since the key's last value. */
int journal_begun(const struct journal *journal, const char *key);

#define JOURNAL_BEGUN "begun"

#endif
