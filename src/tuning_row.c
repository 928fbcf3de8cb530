/* Reads a row's fields. A file may come from anywhere, so that every field is checked; each reader returns NULL, or
 * what is wrong. */
#include "tuning_row.h"
#include "pipeline_size.h"
#include "tensor.h"
#include "tile_size.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <string.h>

const char *tuning_refusal(const struct variant *variant, const struct parameters *parameters) {
    const char *range = parameters_refusal(parameters);
    if (range == NULL && variant->schedule == SCHEDULE_PIPELINED)
        return pipeline_refusal(parameters);
    if (range == NULL && variant->schedule != SCHEDULE_DECODE && parameters_get(parameters, "shares", 1) != 1)
        return "only tile groups of decode variants share rows.";
    return range != NULL ? range : tile_shape_refusal(variant->backend, variant->op, parameters);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* A text that may be shown on a terminal: neither empty nor longer than the buffer, without control characters. */
static bool take_text(const cJSON *json, char *out, size_t size) {
    if (!cJSON_IsString(json) || json->valuestring[0] == '\0' || strlen(json->valuestring) >= size)
        return false;
    for (const char *c = json->valuestring; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            return false;
    strcpy(out, json->valuestring);
    return true;
}

static const char *read_target(const cJSON *json, struct tuning_row *row) {
    static const struct {
        const char *field;
        enum tuning_source level;
    } targets[] = {{"device", TUNING_DEVICE}, {"architecture", TUNING_ARCHITECTURE}, {"vendor", TUNING_VENDOR}};
    row->level = TUNING_DEFAULT;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        const cJSON *field = cJSON_GetObjectItemCaseSensitive(json, targets[i].field);
        char text[sizeof row->target];
        if (field == NULL)
            continue;
        if (!take_text(field, text, sizeof text))
            return "device, architecture and vendor must be short texts";
        if (row->level == TUNING_DEFAULT) {
            row->level = targets[i].level;
            strcpy(row->target, text);
        }
    }
    return NULL;
}

static const char *read_origin(const cJSON *json, struct tuning_row *row) {
    const cJSON *driver = cJSON_GetObjectItemCaseSensitive(json, "driver");
    const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(json, "kernels");
    if (driver != NULL && !take_text(driver, row->driver, sizeof row->driver))
        return "driver must be a short text";
    if (kernels != NULL && (!take_text(kernels, row->kernels, sizeof row->kernels) || strlen(row->kernels) != 16 ||
                            strspn(row->kernels, "0123456789abcdef") != 16))
        return "kernels must be 16 hexadecimal digits";
    return NULL;
}

/* ---- the variant ------------------------------------------------------------------------------------------------- */

static bool is_named(const struct variant *variant, const cJSON *name, const cJSON *op) {
    return strcmp(variant->name, name->valuestring) == 0 &&
           (op == NULL || strcmp(variant_op_name(variant->op), op->valuestring) == 0);
}

static const char *find_variant(const cJSON *name, const cJSON *op, struct tuning_row *row) {
    size_t count = 0;
    const struct variant *table = variant_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (!is_named(&table[i], name, op))
            continue;
        if (row->variant != NULL)
            return "several operations have this variant: op must say which";
        row->variant = &table[i];
    }
    return row->variant == NULL ? "this library has no such variant" : NULL;
}

static const char *read_variant(const cJSON *json, struct tuning_row *row) {
    const cJSON *op = cJSON_GetObjectItemCaseSensitive(json, "op");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "variant");
    const cJSON *preferred = cJSON_GetObjectItemCaseSensitive(json, "prefer");
    if (name != NULL && preferred != NULL)
        return "a row is either of a variant or prefers one";
    row->prefers = preferred != NULL;
    if (row->prefers)
        name = preferred;
    if (!cJSON_IsString(name) || (op != NULL && !cJSON_IsString(op)))
        return "variant must be a text, and op where it is given";
    const char *wrong = find_variant(name, op, row);
    if (wrong == NULL && row->prefers && row->variant->op != CLATTN_OP_ATTENTION)
        return "only variants of attention can be preferred";
    return wrong;
}

/* ---- which problems it is for ------------------------------------------------------------------------------------ */

static bool take_whole(const cJSON *json, double most, int64_t *out) {
    if (!cJSON_IsNumber(json) || !(json->valuedouble >= 0 && json->valuedouble <= most) ||
        json->valuedouble != floor(json->valuedouble))
        return false;
    *out = (int64_t)json->valuedouble;
    return true;
}

static const char *read_size(const cJSON *json, struct tuning_row *row) {
    const cJSON *least = cJSON_GetObjectItemCaseSensitive(json, "min_size");
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(json, "max_size");
    row->size = (struct tuning_range){0, INT64_MAX};
    if ((least != NULL && !take_whole(least, 0x1p53, &row->size.least)) ||
        (most != NULL && !take_whole(most, 0x1p53, &row->size.most)) || row->size.least > row->size.most)
        return "min_size and max_size must be whole numbers from 0 to 2^53, in order";
    return NULL;
}

static const char *read_dtype(const cJSON *json, struct tuning_row *row) {
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(json, "dtype");
    if (dtype == NULL)
        return NULL;
    for (int i = CLATTN_F32; cJSON_IsString(dtype) && i <= CLATTN_BF16; i++)
        if (strcmp(tensor_dtype_name((clattn_dtype)i), dtype->valuestring) == 0)
            row->dtype = (clattn_dtype)i;
    return row->dtype == 0 ? "dtype must be f32, f16 or bf16" : NULL;
}

/* [least, most], or absent: all. */
static bool read_range(const cJSON *json, const char *field, struct tuning_range *range) {
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(json, field);
    *range = (struct tuning_range){0, INT64_MAX};
    return pair == NULL ||
           (cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 &&
            take_whole(cJSON_GetArrayItem(pair, 0), 0x1p53, &range->least) &&
            take_whole(cJSON_GetArrayItem(pair, 1), 0x1p53, &range->most) && range->least <= range->most);
}

static const char *read_preference(const cJSON *json, struct tuning_row *row) {
    const cJSON *causal = cJSON_GetObjectItemCaseSensitive(json, "causal");
    if (!read_range(json, "queries", &row->queries) || !read_range(json, "keys", &row->keys) ||
        !read_range(json, "heads", &row->heads) || !read_range(json, "sharing", &row->sharing))
        return "queries, keys, heads and sharing must be pairs [least, most] of whole numbers from 0 to 2^53";
    if (causal != NULL && !cJSON_IsBool(causal))
        return "causal must be true or false";
    row->causal = causal != NULL ? cJSON_IsTrue(causal) : -1;
    return cJSON_GetObjectItemCaseSensitive(json, "parameters") != NULL ? "a row that prefers has no parameters" : NULL;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static bool is_plain_name(const char *name) {
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static const char *read_parameters(const cJSON *json, struct tuning_row *row) {
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(json, "parameters");
    if (!cJSON_IsObject(parameters))
        return "parameters must be an object";
    for (const cJSON *item = parameters->child; item != NULL; item = item->next) {
        int64_t value = 0;
        if (!take_whole(item, 0x1p30, &value))
            return "a parameter must be a whole number from 0 to 2^30";
        if (!is_plain_name(item->string) || !parameters_put(&row->parameters, item->string, (int)value))
            return "too many parameters, or one with an empty, long or strange name";
    }
    return tuning_refusal(row->variant, &row->parameters);
}

const char *tuning_row_read(const cJSON *json, struct tuning_row *row) {
    static const char *(*const readers[])(const cJSON *json, struct tuning_row *row) = {
        read_target, read_origin, read_variant, read_size, read_dtype};
    const char *wrong = cJSON_IsObject(json) ? NULL : "a row must be an object";
    for (size_t i = 0; i < sizeof readers / sizeof readers[0] && wrong == NULL; i++)
        wrong = readers[i](json, row);
    if (wrong != NULL)
        return wrong;
    return row->prefers ? read_preference(json, row) : read_parameters(json, row);
}
