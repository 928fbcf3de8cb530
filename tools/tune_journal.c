/* Lines of "key\tvalue\n" behind a title. Each is written by one call, and found by walking over the text: a tune has
 * thousands of lines, and seconds between them. */
#include "tune_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_SIZE = 1024, MOST_BYTES = 64 << 20 };

static bool append(struct journal *journal, const char *text, size_t size) {
    if (journal->size + size > journal->capacity) {
        const size_t capacity = 2 * (journal->size + size) + LINE_SIZE;
        char *grown = realloc(journal->text, capacity);
        if (!grown)
            return false;
        journal->text = grown;
        journal->capacity = capacity;
    }
    memcpy(journal->text + journal->size, text, size);
    journal->size += size;
    return true;
}

static void read_all(struct journal *journal) {
    char part[4096];
    ssize_t got;
    while ((got = read(journal->file, part, sizeof part)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0 && (journal->size > MOST_BYTES || !append(journal, part, (size_t)got)))
            break;
}

/* The end of the last whole line. */
static size_t whole_lines(const struct journal *journal) {
    size_t size = journal->size;
    while (size > 0 && journal->text[size - 1] != '\n')
        size--;
    return size;
}

static bool has_title(const struct journal *journal, const char *title) {
    const size_t length = strlen(title);
    return journal->size > length && memcmp(journal->text, title, length) == 0 && journal->text[length] == '\n';
}

static void put(struct journal *journal, const char *line, size_t size) {
    append(journal, line, size);
    if (journal->file < 0)
        return;
    ssize_t done;
    do
        done = write(journal->file, line, size);
    while (done < 0 && errno == EINTR);
    if (done != (ssize_t)size || fdatasync(journal->file) != 0)
        journal->failed = true;
}

static void count_known(struct journal *journal) {
    static const char begun[] = "\t" JOURNAL_BEGUN;
    const char *start = journal->text, *stop = start + journal->size;
    for (const char *end; (end = memchr(start, '\n', (size_t)(stop - start))) != NULL; start = end + 1) {
        const size_t size = (size_t)(end - start), tail = sizeof begun - 1;
        journal->known += memchr(start, '\t', size) && !(size >= tail && memcmp(end - tail, begun, tail) == 0);
    }
}

bool journal_open(struct journal *journal, const char *path, const char *title, bool resume) {
    char line[LINE_SIZE];
    struct stat info;
    *journal =
        (struct journal){.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_APPEND, 0600)};
    if (journal->file >= 0 &&
        (fstat(journal->file, &info) != 0 || !S_ISREG(info.st_mode) || flock(journal->file, LOCK_EX | LOCK_NB) != 0)) {
        close(journal->file);
        journal->file = -1;
    }
    if (journal->file >= 0 && resume) {
        read_all(journal);
        journal->size = whole_lines(journal);
    }
    if (journal->file >= 0 && resume && has_title(journal, title)) {
        count_known(journal);
        return ftruncate(journal->file, (off_t)journal->size) == 0;
    }
    journal->size = 0;
    if (journal->file >= 0 && ftruncate(journal->file, 0) != 0)
        journal->failed = true;
    const int length = snprintf(line, sizeof line, "%s\n", title);
    put(journal, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
    return journal->file >= 0 && !journal->failed;
}

void journal_close(struct journal *journal) {
    if (journal->file >= 0)
        close(journal->file);
    free(journal->text);
    *journal = (struct journal){.file = -1};
}

static void clean(char *text) {
    for (; *text; text++)
        if (*text == '\t' || *text == '\n' || *text == '\r')
            *text = ' ';
}

void journal_write(struct journal *journal, const char *key, const char *value) {
    char left[LINE_SIZE / 2], right[LINE_SIZE / 2 - 2], line[LINE_SIZE];
    snprintf(left, sizeof left, "%s", key);
    snprintf(right, sizeof right, "%s", value);
    clean(left);
    clean(right);
    const int length = snprintf(line, sizeof line, "%s\t%s\n", left, right);
    put(journal, line, (size_t)length);
}

struct line {
    const char *value;
    size_t length;
};

/* The next line of the key behind *at, which moves; false where there is none. */
static bool next_line(const struct journal *journal, const char *key, size_t *at, struct line *line) {
    const size_t length = strlen(key);
    while (*at < journal->size) {
        const char *start = journal->text + *at;
        const char *end = memchr(start, '\n', journal->size - *at);
        if (!end)
            return false;
        const size_t size = (size_t)(end - start);
        *at += size + 1;
        if (size <= length || memcmp(start, key, length) != 0 || start[length] != '\t')
            continue;
        *line = (struct line){start + length + 1, size - length - 1};
        return true;
    }
    return false;
}

static bool is_begun(const struct line *line) {
    return line->length == strlen(JOURNAL_BEGUN) && memcmp(line->value, JOURNAL_BEGUN, line->length) == 0;
}

bool journal_find(const struct journal *journal, const char *key, char *value, size_t size) {
    struct line line;
    bool found = false;
    for (size_t at = 0; next_line(journal, key, &at, &line);)
        if (!is_begun(&line)) {
            snprintf(value, size, "%.*s", (int)line.length, line.value);
            found = true;
        }
    return found;
}

int journal_begun(const struct journal *journal, const char *key) {
    struct line line;
    int begun = 0;
    for (size_t at = 0; next_line(journal, key, &at, &line);)
        begun = is_begun(&line) ? begun + 1 : 0;
    return begun;
}
