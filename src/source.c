/* Expands a kernel file and what it includes into one text. The output is a growing buffer; a small set of file names
 * remembers what has been included. */
#include "source.h"
#include "os.h"
#include "status.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)4 << 20)
#define NAME_SIZE 128
#define FILES_MAX 64

struct expansion {
    const char *dir, *options;
    char *text;
    size_t size, capacity;
    char included[FILES_MAX][NAME_SIZE];
    int files;
};

static clattn_status append(struct expansion *out, const char *data, size_t size) {
    if (size >= out->capacity - out->size) {
        const size_t capacity = 2 * (out->capacity + size + 1);
        char *grown = realloc(out->text, capacity);
        RETURN_IF(grown == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a kernel's source");
        out->text = grown;
        out->capacity = capacity;
    }
    memcpy(out->text + out->size, data, size);
    out->size += size;
    out->text[out->size] = '\0';
    return CLATTN_SUCCESS;
}

static clattn_status append_line_directive(struct expansion *out, int line, const char *name) {
    char directive[NAME_SIZE + 32];
    const int length = snprintf(directive, sizeof directive, "#line %d \"%s\"\n", line, name);
    return append(out, directive, (size_t)length);
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t word_length(const char *text) {
    size_t length = 0;
    while (is_word(text[length]))
        length++;
    return length;
}

/* The value of the last -Dname=value whose name is the given word; NULL where there is none. */
static const char *macro_value(const char *options, const char *word, size_t length) {
    const char *value = NULL;
    for (const char *at = strstr(options, "-D"); at != NULL; at = strstr(at, "-D")) {
        const bool starts = at == options || at[-1] == ' ';
        at += 2;
        if (starts && strncmp(at, word, length) == 0 && at[length] == '=')
            value = at + length + 1;
    }
    return value;
}

/* Writes a path with its macros replaced. */
static clattn_status resolve_path(const char *options, const char *path, size_t length, char *resolved) {
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        const size_t word = word_length(path + at);
        const char *piece = word > 0 ? macro_value(options, path + at, word) : NULL;
        size_t piece_length = piece != NULL ? word_length(piece) : word > 0 ? word : 1;
        if (piece == NULL)
            piece = path + at;
        RETURN_IF(used + piece_length >= NAME_SIZE, CLATTN_INTERNAL_ERROR, "include path too long: %.*s", (int)length,
                  path);
        memcpy(resolved + used, piece, piece_length);
        used += piece_length;
        at += word > 0 ? word : 1;
    }
    resolved[used] = '\0';
    return CLATTN_SUCCESS;
}

static const char *skip_blanks(const char *text) {
    return text + strspn(text, " \t");
}

bool source_is_include(const char *line, const char **path, size_t *length) {
    const char *at = skip_blanks(line);
    if (*at != '#')
        return false;
    at = skip_blanks(at + 1);
    if (strncmp(at, "include", 7) != 0)
        return false;
    at = skip_blanks(at + 7);
    if (*at != '"')
        return false;
    *path = at + 1;
    *length = strcspn(*path, "\"\r\n");
    return (*path)[*length] == '"';
}

/* Adds a name to the set; *fresh tells whether it was new. */
static clattn_status note_included(struct expansion *out, const char *name, bool *fresh) {
    *fresh = false;
    for (int i = 0; i < out->files; i++)
        if (strcmp(out->included[i], name) == 0)
            return CLATTN_SUCCESS;
    RETURN_IF(out->files == FILES_MAX, CLATTN_INTERNAL_ERROR, "more than %d files included by a kernel", FILES_MAX);
    snprintf(out->included[out->files++], NAME_SIZE, "%s", name);
    *fresh = true;
    return CLATTN_SUCCESS;
}

static char *load_from_folder(const char *dir, const char *name, size_t *size) {
    char *path = os_join_path(dir, name);
    char *text = path != NULL ? os_read_file(path, FILE_LIMIT, size) : NULL;
    free(path);
    return text;
}

static char *load_embedded(const char *name, size_t *size) {
    for (size_t i = 0; i < source_embedded_count; i++) {
        const struct source_file *file = &source_embedded[i];
        if (strcmp(file->name, name) != 0)
            continue;
        char *text = calloc(file->size + 1, 1);
        if (text != NULL)
            memcpy(text, file->text, file->size);
        *size = file->size;
        return text;
    }
    return NULL;
}

char *source_load(const char *dir, const char *name, size_t *size) {
    return dir != NULL ? load_from_folder(dir, name, size) : load_embedded(name, size);
}

static clattn_status expand_file(struct expansion *out, const char *name, const char *includer);

static clattn_status expand_include(struct expansion *out, const char *path, size_t length, const char *name,
                                    int line) {
    char resolved[NAME_SIZE];
    FORWARD(resolve_path(out->options, path, length, resolved));
    bool fresh;
    FORWARD(note_included(out, resolved, &fresh));
    if (!fresh)
        return append(out, "\n", 1);
    FORWARD(expand_file(out, resolved, name));
    return append_line_directive(out, line + 1, name);
}

static clattn_status expand_text(struct expansion *out, const char *name, const char *text) {
    FORWARD(append_line_directive(out, 1, name));
    int number = 1;
    for (const char *line = text; *line != '\0'; number++) {
        const size_t length = strcspn(line, "\n");
        const char *path;
        size_t path_length;
        if (source_is_include(line, &path, &path_length)) {
            FORWARD(expand_include(out, path, path_length, name, number));
        } else {
            FORWARD(append(out, line, length));
            FORWARD(append(out, "\n", 1));
        }
        line += length + (line[length] == '\n');
    }
    return CLATTN_SUCCESS;
}

static clattn_status expand_file(struct expansion *out, const char *name, const char *includer) {
    size_t size = 0;
    char *text = source_load(out->dir, name, &size);
    RETURN_IF(text == NULL && out->dir != NULL, CLATTN_INVALID_ARGUMENT,
              "cl_dir (CLATTN_CL_DIR): kernel file \"%s\" (wanted by %s) cannot be read from \"%s\"", name, includer,
              out->dir);
    RETURN_IF(text == NULL, CLATTN_INTERNAL_ERROR, "the library has no kernel file \"%s\" (wanted by %s)", name,
              includer);
    const clattn_status status = expand_text(out, name, text);
    free(text);
    return status;
}

clattn_status source_expand(const char *dir, const char *name, const char *options, char **text, size_t *size) {
    RETURN_IF(strlen(name) >= NAME_SIZE, CLATTN_INTERNAL_ERROR, "kernel file name too long: %s", name);
    struct expansion *out = calloc(1, sizeof *out);
    RETURN_IF(out == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a kernel's source");
    out->dir = dir;
    out->options = options;
    bool fresh;
    clattn_status status = note_included(out, name, &fresh);
    if (status == CLATTN_SUCCESS)
        status = expand_file(out, name, "the library");
    if (status == CLATTN_SUCCESS) {
        *text = out->text;
        *size = out->size;
    } else {
        free(out->text);
    }
    free(out);
    return status;
}
