/* Tuning rows: read once from JSON, then searched. A file that is no JSON is dropped whole, a row that breaks a rule is
 * dropped alone, and both are told to the log. */
#include "tuning.h"
#include "os.h"
#include "source.h"
#include "status.h"
#include "tuning_kernels.h"
#include "tuning_row.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20, ROW_LIMIT = 4096 };

struct tuning {
    /* Variant by variant, best first; then those that prefer, best first; then those that are out of date. */
    struct tuning_row *rows;
    size_t preferring; /* the first that prefers */
    size_t count;      /* of those in force */
    size_t all, capacity;
};

/* ---- reading a file ---------------------------------------------------------------------------------------------- */

static bool append(struct tuning *tuning, const struct tuning_row *row) {
    if (tuning->all == tuning->capacity) {
        const size_t capacity = tuning->capacity == 0 ? 64 : 2 * tuning->capacity;
        struct tuning_row *rows = realloc(tuning->rows, capacity * sizeof *rows);
        if (rows == NULL)
            return false;
        tuning->rows = rows;
        tuning->capacity = capacity;
    }
    tuning->rows[tuning->all] = *row;
    tuning->rows[tuning->all].index = tuning->all;
    tuning->count = ++tuning->all;
    return true;
}

/* False only where memory ran out. */
static bool read_rows(struct tuning *tuning, const cJSON *rows, bool user, const char *path, const struct log *log) {
    int index = 0;
    for (const cJSON *item = rows->child; item != NULL; item = item->next, index++) {
        struct tuning_row row = {.user = user};
        if (index == ROW_LIMIT) {
            log_write(log, CLATTN_LOG_WARNING, "tuning: %s: only the first %d rows are used", path, ROW_LIMIT);
            return true;
        }
        const char *wrong = tuning_row_read(item, &row);
        if (wrong != NULL)
            log_write(log, CLATTN_LOG_WARNING, "tuning: %s: row %d ignored: %s", path, index, wrong);
        else if (!append(tuning, &row))
            return false;
    }
    return true;
}

/* text holds a NUL behind its size: the parser sees it as the end, and refuses what follows a document. */
static clattn_status read_text(struct tuning *tuning, const char *text, size_t size, bool user, const char *path,
                               const struct log *log) {
    cJSON *json = cJSON_ParseWithLengthOpts(text, size + 1, NULL, true);
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(json, "rows");
    bool kept = true;
    if (cJSON_IsArray(rows))
        kept = read_rows(tuning, rows, user, path, log);
    else
        log_write(log, CLATTN_LOG_WARNING, "tuning: %s ignored: not a JSON document with an array \"rows\"", path);
    cJSON_Delete(json);
    RETURN_IF(!kept, CLATTN_OUT_OF_HOST_MEMORY, "tuning rows: out of memory");
    return CLATTN_SUCCESS;
}

static clattn_status read_user(struct tuning *tuning, const char *path, const struct log *log) {
    size_t size = 0;
    if (path == NULL || path[0] == '\0')
        return CLATTN_SUCCESS;
    char *text = os_read_file(path, FILE_LIMIT, &size);
    if (text == NULL) {
        log_write(log, CLATTN_LOG_INFO, "tuning: no user rows: %s cannot be read or is larger than %d bytes", path,
                  FILE_LIMIT);
        return CLATTN_SUCCESS;
    }
    const clattn_status status = read_text(tuning, text, size, true, path, log);
    free(text);
    return status;
}

/* Best first, so that the first row that suits is the one; a warm call looks at the rows of its variant alone. */
static int compare_rows(const void *left, const void *right) {
    const struct tuning_row *a = left, *b = right;
    if ((a->stale != NULL) != (b->stale != NULL))
        return a->stale != NULL ? 1 : -1;
    if (a->prefers != b->prefers)
        return a->prefers ? 1 : -1;
    if (!a->prefers && a->variant != b->variant)
        return a->variant < b->variant ? -1 : 1;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->user != b->user)
        return a->user ? -1 : 1;
    if (a->size.most != b->size.most)
        return a->size.most < b->size.most ? -1 : 1;
    if ((a->dtype == 0) != (b->dtype == 0))
        return a->dtype != 0 ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static void sort_rows(struct tuning *tuning) {
    if (tuning->all > 0)
        qsort(tuning->rows, tuning->all, sizeof *tuning->rows, compare_rows);
    tuning->preferring = 0;
    while (tuning->preferring < tuning->count && !tuning->rows[tuning->preferring].prefers)
        tuning->preferring++;
}

static clattn_status read_all(struct tuning *tuning, const char *user_db, const struct log *log) {
    for (size_t i = 0; i < tuning_embedded_count; i++) {
        const struct source_file *file = &tuning_embedded[i];
        FORWARD(read_text(tuning, (const char *)file->text, file->size, false, file->name, log));
    }
    FORWARD(read_user(tuning, user_db, log));
    sort_rows(tuning);
    return CLATTN_SUCCESS;
}

clattn_status tuning_load(const char *user_db, const struct log *log, struct tuning **out) {
    struct tuning *tuning = calloc(1, sizeof *tuning);
    RETURN_IF(tuning == NULL, CLATTN_OUT_OF_HOST_MEMORY, "tuning rows: out of memory");
    const clattn_status status = read_all(tuning, user_db, log);
    if (status != CLATTN_SUCCESS) {
        tuning_free(tuning);
        return status;
    }
    *out = tuning;
    return CLATTN_SUCCESS;
}

void tuning_free(struct tuning *tuning) {
    if (tuning != NULL)
        free(tuning->rows);
    free(tuning);
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

static bool is_for_device(const struct tuning_row *row, const struct device_facts *facts) {
    if (row->driver[0] != '\0' && strcmp(row->driver, facts->driver) != 0)
        return false;
    switch (row->level) {
    case TUNING_DEVICE:
        return strcmp(row->target, facts->name) == 0;
    case TUNING_ARCHITECTURE:
        return strcmp(row->target, facts->architecture) == 0;
    case TUNING_VENDOR:
        return strcmp(row->target, device_vendor_name(facts->vendor)) == 0;
    default:
        return true;
    }
}

static bool holds(const struct tuning_range *range, int64_t value) {
    return range->least <= value && value <= range->most;
}

/* The first row of the variant that gives parameters, or where it would be. */
static size_t first_of(const struct tuning *tuning, const struct variant *variant) {
    size_t low = 0, high = tuning->preferring;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (tuning->rows[middle].variant < variant)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum tuning_source tuning_find(const struct tuning *tuning, const struct device_facts *facts,
                               const struct tuning_key *key, struct parameters *out) {
    const struct variant *variant = variant_named(key->op, key->variant);
    for (size_t i = first_of(tuning, variant); i < tuning->preferring && tuning->rows[i].variant == variant; i++) {
        const struct tuning_row *row = &tuning->rows[i];
        if (!holds(&row->size, key->size) || (row->dtype != 0 && row->dtype != key->dtype) ||
            !is_for_device(row, facts))
            continue;
        *out = row->parameters;
        return row->level;
    }
    out->count = 0;
    return TUNING_NONE;
}

/* What rows that prefer are compared with. */
struct preference_key {
    clattn_dtype dtype;
    int64_t size, heads, sharing;
    int causal;
    bool plain; /* no modifier but a causal limit */
};

/* A causal limit that starts at the last key hides nothing from a single query. */
static struct preference_key preference_key_of(const struct problem *problem) {
    return (struct preference_key){.dtype = problem->dtype,
                                   .size =
                                       problem->head_dim > problem->value_dim ? problem->head_dim : problem->value_dim,
                                   .heads = problem->batch * problem->heads,
                                   .sharing = problem->kv_heads > 0 ? problem->heads / problem->kv_heads : 0,
                                   .causal = problem->causal && problem->nq > 1,
                                   .plain = (problem->modifiers & ~(unsigned)MODIFIER_BAND) == 0};
}

/* What tells most rows apart comes first: every call of attention asks every row. */
static bool suits(const struct tuning_row *row, const struct problem *problem, const struct preference_key *key) {
    return holds(&row->queries, problem->nq) && holds(&row->keys, problem->nk) && holds(&row->size, key->size) &&
           (row->dtype == 0 || row->dtype == key->dtype) && holds(&row->heads, key->heads) &&
           holds(&row->sharing, key->sharing) && (row->causal < 0 || row->causal == key->causal) &&
           (key->plain || row->variant->schedule != SCHEDULE_UNFUSED);
}

const struct variant *tuning_preferred(const struct tuning *tuning, const struct device_facts *facts,
                                       const struct problem *problem) {
    if (tuning->preferring == tuning->count || problem->op != CLATTN_OP_ATTENTION || problem->windowed ||
        problem->k_stored.dtype != 0 || problem->v_stored.dtype != 0)
        return NULL;
    const struct preference_key key = preference_key_of(problem);
    for (size_t i = tuning->preferring; i < tuning->count; i++)
        if (suits(&tuning->rows[i], problem, &key) && is_for_device(&tuning->rows[i], facts))
            return tuning->rows[i].variant;
    return NULL;
}

/* ---- narrowing --------------------------------------------------------------------------------------------------- */

/* Hashes of kernels, each computed once. */
struct hashes {
    const char *dir;
    struct {
        clattn_op_kind op;
        enum backend backend;
        char text[17];
    } known[32];
    int count;
};

static const char *hash_of(struct hashes *hashes, const struct tuning_row *row) {
    const enum backend backend = row->prefers ? TUNING_KERNELS_ALL : row->variant->backend;
    int i = 0;
    while (i < hashes->count && (hashes->known[i].op != row->variant->op || hashes->known[i].backend != backend))
        i++;
    if (i == hashes->count) {
        if (i == sizeof hashes->known / sizeof hashes->known[0])
            i = hashes->count = 0;
        hashes->known[i].op = row->variant->op;
        hashes->known[i].backend = backend;
        if (!tuning_kernels_hash(hashes->dir, row->variant->op, backend, hashes->known[i].text))
            hashes->known[i].text[0] = '\0';
        hashes->count++;
    }
    return hashes->known[i].text;
}

static const char *find_stale(const struct tuning_row *row, const struct device_facts *facts, struct hashes *hashes) {
    if (row->driver[0] != '\0' && strcmp(row->driver, facts->driver) != 0)
        return "measured with another driver";
    if (row->kernels[0] != '\0' && strcmp(row->kernels, hash_of(hashes, row)) != 0)
        return "measured with other kernels";
    return NULL;
}

static bool is_of_device(const struct tuning_row *row, const struct device_facts *facts) {
    struct tuning_row any_driver = *row;
    any_driver.driver[0] = '\0';
    return is_for_device(&any_driver, facts);
}

void tuning_narrow(struct tuning *tuning, const struct device_facts *facts, const char *cl_dir, const struct log *log) {
    struct hashes hashes = {.dir = cl_dir};
    size_t kept = 0, stale = 0;
    for (size_t i = 0; i < tuning->all; i++) {
        if (!is_of_device(&tuning->rows[i], facts))
            continue;
        struct tuning_row *row = &tuning->rows[kept++];
        *row = tuning->rows[i];
        row->stale = find_stale(row, facts, &hashes);
        stale += row->stale != NULL;
    }
    tuning->all = kept;
    tuning->count = kept - stale;
    sort_rows(tuning);
    if (stale == 0)
        return;
    log_write(log, CLATTN_LOG_WARNING,
              "tuning: %zu rows for this device are ignored, being measured with another driver or other kernels; the "
              "first is of %s",
              stale, tuning->rows[tuning->count].variant->name);
}

const struct tuning_row *tuning_row_at(const struct tuning *tuning, size_t index) {
    return index < tuning->all ? &tuning->rows[index] : NULL;
}

bool tuning_knows(const struct tuning *tuning, clattn_op_kind op, const char *variant, const char *parameter) {
    const struct variant *wanted = variant_named(op, variant);
    for (size_t i = 0; i < tuning->count; i++) {
        const struct tuning_row *row = &tuning->rows[i];
        if (row->user || row->prefers || row->variant != wanted)
            continue;
        for (int p = 0; p < row->parameters.count; p++)
            if (strcmp(row->parameters.item[p].name, parameter) == 0)
                return true;
    }
    return false;
}

const char *tuning_source_name(enum tuning_source source) {
    static const char *const names[] = {
        [TUNING_DEVICE] = "device", [TUNING_ARCHITECTURE] = "architecture",
        [TUNING_VENDOR] = "vendor", [TUNING_DEFAULT] = "default",
        [TUNING_NONE] = "none",
    };
    return (unsigned)source < sizeof names / sizeof names[0] ? names[source] : "none";
}
