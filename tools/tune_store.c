/* Read, changed and written under a lock, to a file of another name that then takes the old one's place. */
#include "tune_store.h"
#include "command.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 20, ROW_LIMIT = 4096 }; /* the library reads no more */
enum { BYTES_LEFT = 1 << 15, ROWS_LEFT = 64 };   /* without which a tune need not begin */

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct store_range store_octave(int64_t size) {
    int64_t most = 1;
    while (most < size)
        most *= 2;
    return (struct store_range){most / 2 + 1, most};
}

void store_narrow(struct store_range *class, int64_t size, const struct store_range *row) {
    if (row->most < size && row->most >= class->least)
        class->least = row->most + 1;
    if (row->most >= size && row->most < class->most)
        class->most = row->most;
    if (row->least > size && row->least <= class->most)
        class->most = row->least - 1;
    if (row->least <= size && row->least > class->least)
        class->least = row->least;
}

static void add_range(cJSON *object, const char *name, const struct store_range *range) {
    if (range->most == 0)
        return;
    cJSON *pair = cJSON_AddArrayToObject(object, name);
    cJSON_AddItemToArray(pair, cJSON_CreateNumber((double)range->least));
    cJSON_AddItemToArray(pair, cJSON_CreateNumber((double)range->most));
}

static void add_parameters(cJSON *object, const char *text) {
    cJSON *parameters = cJSON_AddObjectToObject(object, "parameters");
    while (*text) {
        char name[32];
        const size_t length = strcspn(text, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        if (text[length] == '=')
            cJSON_AddNumberToObject(parameters, name, (double)strtol(text + length + 1, NULL, 10));
        text += strcspn(text, ",");
        text += *text == ',';
    }
}

static void add_problems(cJSON *object, const struct store_row *row) {
    add_range(object, "queries", &row->queries);
    add_range(object, "keys", &row->keys);
    add_range(object, "heads", &row->heads);
    add_range(object, "sharing", &row->sharing);
    cJSON_AddBoolToObject(object, "causal", row->causal);
}

static cJSON *make_row(const struct store_row *row) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "device", row->device);
    cJSON_AddStringToObject(object, "driver", row->driver);
    cJSON_AddStringToObject(object, "kernels", row->kernels);
    cJSON_AddStringToObject(object, "op", row->op);
    cJSON_AddStringToObject(object, row->prefers ? "prefer" : "variant", row->variant);
    cJSON_AddStringToObject(object, "dtype", row->dtype);
    cJSON_AddNumberToObject(object, "min_size", (double)row->size.least);
    cJSON_AddNumberToObject(object, "max_size", (double)row->size.most);
    if (row->prefers)
        add_problems(object, row);
    else
        add_parameters(object, row->parameters ? row->parameters : "");
    cJSON_AddStringToObject(object, "shape", row->shape);
    cJSON_AddNumberToObject(object, "seconds", row->seconds);
    if (!cJSON_AddNumberToObject(object, "usual_seconds", row->usual_seconds)) {
        cJSON_Delete(object); /* the last addition fails where any did: memory does not come back in between */
        return NULL;
    }
    return object;
}

/* The members of a row that are its key. */
static const char *const key_members[] = {"device",   "driver",  "op",   "variant", "dtype",   "min_size",
                                          "max_size", "queries", "keys", "heads",   "sharing", "causal"};

static bool same_key(const cJSON *a, const cJSON *b) {
    const bool prefers = cJSON_GetObjectItemCaseSensitive(a, "prefer") != NULL;
    if (prefers != (cJSON_GetObjectItemCaseSensitive(b, "prefer") != NULL))
        return false;
    for (size_t i = 0; i < sizeof key_members / sizeof *key_members; i++) {
        const cJSON *x = cJSON_GetObjectItemCaseSensitive(a, key_members[i]),
                    *y = cJSON_GetObjectItemCaseSensitive(b, key_members[i]);
        if ((x || y) && !(x && y && cJSON_Compare(x, y, true)))
            return false;
    }
    return true;
}

bool store_merge(cJSON *rows, const struct store_row *row, bool keep) {
    cJSON *made = make_row(row);
    if (!made)
        return false;
    for (cJSON *item = rows->child; item;) {
        cJSON *next = item->next;
        if (cJSON_IsObject(item) && same_key(item, made))
            cJSON_Delete(cJSON_DetachItemViaPointer(rows, item));
        item = next;
    }
    if (keep && cJSON_AddItemToArray(rows, made))
        return true;
    cJSON_Delete(made);
    return !keep;
}

static cJSON *empty_document(void) {
    cJSON *document = cJSON_CreateObject();
    if (document && cJSON_AddArrayToObject(document, "rows"))
        return document;
    cJSON_Delete(document);
    return NULL;
}

struct text {
    char *start;
    size_t size, capacity;
    bool failed;
};

static void add(struct text *text, const char *part) {
    const size_t size = strlen(part);
    if (text->size + size >= text->capacity) {
        const size_t capacity = 2 * (text->size + size) + 4096;
        char *grown = realloc(text->start, capacity);
        text->failed = text->failed || !grown;
        if (!grown)
            return;
        text->start = grown;
        text->capacity = capacity;
    }
    memcpy(text->start + text->size, part, size + 1);
    text->size += size;
}

static void add_json(struct text *text, const cJSON *json) {
    char *part = json ? cJSON_PrintUnformatted(json) : NULL;
    text->failed = text->failed || !part;
    add(text, part ? part : "");
    cJSON_free(part);
}

static void add_name(struct text *text, const char *name) {
    cJSON *string = cJSON_CreateString(name);
    add_json(text, string);
    cJSON_Delete(string);
    add(text, ": ");
}

/* A row a line: people read such files, and compare them. Other members of the document stay. */
static char *print_document(const cJSON *document) {
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(document, "rows"), *item;
    struct text text = {.start = NULL};
    add(&text, "{");
    cJSON_ArrayForEach(item, document) {
        if (item == rows)
            continue;
        add_name(&text, item->string);
        add_json(&text, item);
        add(&text, ",\n");
    }
    add(&text, "\"rows\": [");
    cJSON_ArrayForEach(item, rows) {
        add(&text, item == rows->child ? "\n  " : ",\n  ");
        add_json(&text, item);
    }
    add(&text, "\n]}\n");
    if (!text.failed)
        return text.start;
    free(text.start);
    return NULL;
}

char *store_print(const struct store_row *row) {
    cJSON *document = empty_document();
    char *text = NULL;
    if (document && store_merge(cJSON_GetObjectItemCaseSensitive(document, "rows"), row, true))
        text = print_document(document);
    cJSON_Delete(document);
    return text;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int complain_file(const char *path, const char *what) {
    return complain(EXIT_USAGE, "%s: %s", path, what);
}

/* *document: what the file holds; an empty one where there is no file. */
static int read_document(const char *path, cJSON **document) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) {
        *document = empty_document();
        return *document ? EXIT_OK : complain_file(path, "out of host memory");
    }
    struct stat info;
    if (file < 0)
        return complain_file(path, strerror(errno));
    const bool fits = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= FILE_LIMIT;
    char *text = fits ? calloc((size_t)info.st_size + 1, 1) : NULL;
    size_t size = 0;
    ssize_t got = 1;
    while (text && size < (size_t)info.st_size && got > 0) {
        got = read(file, text + size, (size_t)info.st_size - size);
        size += got > 0 ? (size_t)got : 0;
    }
    close(file);
    *document = text ? cJSON_ParseWithLengthOpts(text, size + 1, NULL, true) : NULL;
    free(text);
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(*document, "rows")))
        return EXIT_OK;
    cJSON_Delete(*document);
    *document = NULL;
    return complain_file(path, "is no tuning database; it is left alone, move it away or name another with --db");
}

static bool write_text(int file, const char *text, size_t size) {
    while (size > 0) {
        const ssize_t done = write(file, text, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        text += done;
        size -= (size_t)done;
    }
    return fsync(file) == 0;
}

/* So that the new name, too, is on the disk. */
static void flush_folder(const char *path) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path);
    const int folder = open(dirname(copy), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (folder < 0)
        return;
    (void)fsync(folder);
    close(folder);
}

static int replace(const char *path, const char *text) {
    char temporary[4096];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", path) >= sizeof temporary)
        return complain_file(path, "the name is too long");
    unlink(temporary); /* the lock is held: it is of a process that was killed */
    const int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat old;
    if (file < 0)
        return complain_file(temporary, strerror(errno));
    const bool kept = stat(path, &old) != 0 || fchmod(file, old.st_mode & 0777) == 0;
    const bool written = kept && write_text(file, text, strlen(text));
    if (close(file) != 0 || !written || rename(temporary, path) != 0) {
        const int code = complain_file(path, strerror(errno));
        unlink(temporary);
        return code;
    }
    flush_folder(path);
    return EXIT_OK;
}

static int change(const char *path, const struct store_row *row, bool keep) {
    cJSON *document = NULL;
    FORWARD(read_document(path, &document));
    cJSON *rows = cJSON_GetObjectItemCaseSensitive(document, "rows");
    char *text = !row || store_merge(rows, row, keep) ? print_document(document) : NULL;
    int code;
    if (!text)
        code = complain_file(path, "out of host memory");
    else if (strlen(text) + (row ? 0 : BYTES_LEFT) > FILE_LIMIT ||
             cJSON_GetArraySize(rows) + (row ? 0 : ROWS_LEFT) > ROW_LIMIT)
        code = complain_file(path, "with the rows of a tune it would hold more than the library reads");
    else
        code = replace(path, text);
    free(text);
    cJSON_Delete(document);
    return code;
}

static void make_folders(const char *path) {
    char copy[4096];
    if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy)
        return;
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0700); /* what fails and matters is seen when the file is opened */
        *slash = '/';
    }
}

int store_update(const char *path, const struct store_row *row, bool keep) {
    char lock[4096], *real = realpath(path, NULL); /* a link stays one */
    const char *target = real ? real : path;
    make_folders(target);
    snprintf(lock, sizeof lock, "%s.lock", target);
    const int file = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    int code, held = -1;
    while (file >= 0 && (held = flock(file, LOCK_EX)) != 0 && errno == EINTR)
        continue;
    code = held == 0 ? change(target, row, keep) : complain_file(lock, strerror(errno));
    if (file >= 0)
        close(file); /* and unlocks; the file stays, as others may wait for it */
    free(real);
    return code;
}

static void print_parameters(const cJSON *parameters, char *text, size_t size) {
    const cJSON *item;
    size_t used = 0;
    text[0] = '\0';
    cJSON_ArrayForEach(item, parameters) {
        if (used < size && cJSON_IsNumber(item))
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s=%d", used ? "," : "", item->string, item->valueint);
    }
}

bool store_find(const char *path, const struct store_row *row, char *parameters, size_t size) {
    cJSON *document = NULL, *made = make_row(row);
    const cJSON *item;
    bool found = false;
    if (made && access(path, R_OK) == 0 && read_document(path, &document) == EXIT_OK)
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "rows")) {
            const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(item, "kernels");
            if (!cJSON_IsObject(item) || !same_key(item, made) || !cJSON_IsString(kernels) ||
                strcmp(kernels->valuestring, row->kernels) != 0)
                continue;
            print_parameters(cJSON_GetObjectItemCaseSensitive(item, "parameters"), parameters, size);
            found = true;
        }
    cJSON_Delete(document);
    cJSON_Delete(made);
    return found;
}
