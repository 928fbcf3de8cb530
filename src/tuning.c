/* Tuning rows: read once from JSON, then searched. A file may come from anywhere, so that every field is checked: a
 * file that is no JSON is dropped whole, a row that breaks a rule is dropped alone, and both are told to the log. */
#include "tuning.h"
#include "os.h"
#include "pipeline_size.h"
#include "source.h"
#include "status.h"
#include "tensor.h"
#include "tile_size.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20, ROW_LIMIT = 4096 };

struct row {
    const struct variant *variant;
    clattn_dtype dtype; /* 0: any */
    int64_t max_size;
    enum tuning_source level;
    bool user;
    size_t index;     /* as read */
    char target[128]; /* device, architecture or vendor, as level says */
    struct parameters parameters;
};

struct tuning {
    struct row *rows; /* best first */
    size_t count, capacity;
};

const char *tuning_refusal(const struct variant *variant, const struct parameters *parameters) {
    const char *range = parameters_refusal(parameters);
    if (range == NULL && variant->schedule == SCHEDULE_PIPELINED)
        return pipeline_refusal(parameters);
    return range != NULL ? range : tile_shape_refusal(variant->backend, variant->op, parameters);
}

/* ---- reading a row ----------------------------------------------------------------------------------------------- */

/* Each reader returns NULL, or what is wrong. */

static const char *read_target(const cJSON *json, struct row *row) {
    static const struct {
        const char *field;
        enum tuning_source level;
    } targets[] = {{"device", TUNING_DEVICE}, {"architecture", TUNING_ARCHITECTURE}, {"vendor", TUNING_VENDOR}};
    row->level = TUNING_DEFAULT;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        const cJSON *field = cJSON_GetObjectItemCaseSensitive(json, targets[i].field);
        if (field == NULL)
            continue;
        if (!cJSON_IsString(field) || field->valuestring[0] == '\0' || strlen(field->valuestring) >= sizeof row->target)
            return "device, architecture and vendor must be short texts";
        if (row->level == TUNING_DEFAULT) {
            row->level = targets[i].level;
            strcpy(row->target, field->valuestring);
        }
    }
    return NULL;
}

static bool is_named(const struct variant *variant, const cJSON *name, const cJSON *op) {
    return strcmp(variant->name, name->valuestring) == 0 &&
           (op == NULL || strcmp(variant_op_name(variant->op), op->valuestring) == 0);
}

static const char *read_variant(const cJSON *json, struct row *row) {
    const cJSON *op = cJSON_GetObjectItemCaseSensitive(json, "op");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "variant");
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    if (!cJSON_IsString(name) || (op != NULL && !cJSON_IsString(op)))
        return "variant must be a text, and op where it is given";
    for (size_t i = 0; i < count; i++) {
        if (!is_named(&table[i], name, op))
            continue;
        if (row->variant != NULL)
            return "several operations have this variant: op must say which";
        row->variant = &table[i];
    }
    return row->variant == NULL ? "this library has no such variant" : NULL;
}

static const char *read_bounds(const cJSON *json, struct row *row) {
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(json, "dtype");
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(json, "max_size");
    row->max_size = INT64_MAX;
    if (size != NULL) {
        if (!cJSON_IsNumber(size) || !(size->valuedouble >= 0 && size->valuedouble <= 0x1p53))
            return "max_size must be a number from 0 to 2^53";
        row->max_size = (int64_t)size->valuedouble;
    }
    if (dtype == NULL)
        return NULL;
    for (int i = CLATTN_F32; cJSON_IsString(dtype) && i <= CLATTN_BF16; i++)
        if (strcmp(tensor_dtype_name((clattn_dtype)i), dtype->valuestring) == 0)
            row->dtype = (clattn_dtype)i;
    return row->dtype == 0 ? "dtype must be f32, f16 or bf16" : NULL;
}

static const char *read_parameters(const cJSON *json, struct row *row) {
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(json, "parameters");
    if (!cJSON_IsObject(parameters))
        return "parameters must be an object";
    for (const cJSON *item = parameters->child; item != NULL; item = item->next) {
        const double value = item->valuedouble;
        if (!cJSON_IsNumber(item) || !(value >= 0 && value <= 0x1p30) || value != floor(value))
            return "a parameter must be a whole number from 0 to 2^30";
        if (!parameters_put(&row->parameters, item->string, (int)value))
            return "too many parameters, or one with an empty or long name";
    }
    return tuning_refusal(row->variant, &row->parameters);
}

static const char *read_row(const cJSON *json, struct row *row) {
    const char *wrong = cJSON_IsObject(json) ? NULL : "a row must be an object";
    if (wrong == NULL)
        wrong = read_target(json, row);
    if (wrong == NULL)
        wrong = read_variant(json, row);
    if (wrong == NULL)
        wrong = read_bounds(json, row);
    return wrong != NULL ? wrong : read_parameters(json, row);
}

/* ---- reading a file ---------------------------------------------------------------------------------------------- */

static bool append(struct tuning *tuning, const struct row *row) {
    if (tuning->count == tuning->capacity) {
        const size_t capacity = tuning->capacity == 0 ? 64 : 2 * tuning->capacity;
        struct row *rows = realloc(tuning->rows, capacity * sizeof *rows);
        if (rows == NULL)
            return false;
        tuning->rows = rows;
        tuning->capacity = capacity;
    }
    tuning->rows[tuning->count] = *row;
    tuning->rows[tuning->count].index = tuning->count;
    tuning->count++;
    return true;
}

/* False only where memory ran out. */
static bool read_rows(struct tuning *tuning, const cJSON *rows, bool user, const char *path, const struct log *log) {
    int index = 0;
    for (const cJSON *item = rows->child; item != NULL; item = item->next, index++) {
        struct row row = {.user = user};
        if (index == ROW_LIMIT) {
            log_write(log, CLATTN_LOG_WARNING, "tuning: %s: only the first %d rows are used", path, ROW_LIMIT);
            return true;
        }
        const char *wrong = read_row(item, &row);
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

/* Best first, so that the first row that suits is the one. */
static int compare_rows(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->user != b->user)
        return a->user ? -1 : 1;
    if (a->max_size != b->max_size)
        return a->max_size < b->max_size ? -1 : 1;
    if ((a->dtype == 0) != (b->dtype == 0))
        return a->dtype != 0 ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static clattn_status read_all(struct tuning *tuning, const char *user_db, const struct log *log) {
    for (size_t i = 0; i < tuning_embedded_count; i++) {
        const struct source_file *file = &tuning_embedded[i];
        FORWARD(read_text(tuning, (const char *)file->text, file->size, false, file->name, log));
    }
    FORWARD(read_user(tuning, user_db, log));
    if (tuning->count > 0)
        qsort(tuning->rows, tuning->count, sizeof *tuning->rows, compare_rows);
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

static bool is_for_device(const struct row *row, const struct device_facts *facts) {
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

void tuning_narrow(struct tuning *tuning, const struct device_facts *facts) {
    size_t kept = 0;
    for (size_t i = 0; i < tuning->count; i++)
        if (is_for_device(&tuning->rows[i], facts))
            tuning->rows[kept++] = tuning->rows[i];
    tuning->count = kept;
}

enum tuning_source tuning_find(const struct tuning *tuning, const struct device_facts *facts,
                               const struct tuning_key *key, struct parameters *out) {
    const struct variant *variant = variant_named(key->op, key->variant);
    for (size_t i = 0; i < tuning->count; i++) {
        const struct row *row = &tuning->rows[i];
        if (row->variant != variant || row->max_size < key->size || (row->dtype != 0 && row->dtype != key->dtype) ||
            !is_for_device(row, facts))
            continue;
        *out = row->parameters;
        return row->level;
    }
    out->count = 0;
    return TUNING_NONE;
}

bool tuning_knows(const struct tuning *tuning, clattn_op_kind op, const char *variant, const char *parameter) {
    const struct variant *wanted = variant_named(op, variant);
    for (size_t i = 0; i < tuning->count; i++) {
        const struct row *row = &tuning->rows[i];
        if (row->user || row->variant != wanted)
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
