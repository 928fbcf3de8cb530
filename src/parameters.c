/* Named integers in a fixed array: small enough to be copied into every choice, without memory of its own. */
#include "parameters.h"
#include "status.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int parameters_get(const struct parameters *set, const char *name, int fallback) {
    for (int i = 0; i < set->count; i++)
        if (strcmp(set->item[i].name, name) == 0)
            return set->item[i].value;
    return fallback;
}

bool parameters_have(const struct parameters *set, const char *name) {
    for (int i = 0; i < set->count; i++)
        if (strcmp(set->item[i].name, name) == 0)
            return true;
    return false;
}

bool parameters_put(struct parameters *set, const char *name, int value) {
    int i = 0;
    if (name[0] == '\0' || strlen(name) >= sizeof set->item[0].name)
        return false;
    while (i < set->count && strcmp(set->item[i].name, name) != 0)
        i++;
    if (i == PARAMETERS_MAX)
        return false;
    if (i == set->count)
        snprintf(set->item[set->count++].name, sizeof set->item[0].name, "%s", name);
    set->item[i].value = value;
    return true;
}

/* Slices are bounded so that no size made of them exceeds an int. */
const char *parameters_refusal(const struct parameters *set) {
    static const struct {
        const char *name;
        int least, most;
        bool power_of_two; /* or 0: chosen by the device */
        const char *refusal;
    } ranges[] = {
        {"score_tiles", 1, 64, false, "score_tiles must lie in 1..64."},
        {"column_tiles", 1, 64, false, "column_tiles must lie in 1..64."},
        {"k_slice", 1, 65536, false, "k_slice must lie in 1..65536."},
        {"v_slice", 1, 65536, false, "v_slice must lie in 1..65536."},
        {"q_resident", 0, 1, false, "q_resident must be 0 or 1."},
        {"resident", 0, 1, false, "resident must be 0 or 1."},
        {"stage_slots", 1, 2, false, "stage_slots must be 1 or 2."},
        {"ahead", 0, 2, false, "ahead must lie in 0..2."},
        {"registers", 0, 255, false, "registers must lie in 0..255."},
        {"shares", 1, 16, false, "shares must lie in 1..16."},
        {"chunk", 0, INT_MAX, false, "chunk must be at least 0."},
        {"splits", 0, INT_MAX, false, "splits must be at least 0."},
        {"team", 0, 1024, true, "team must be 0 or a power of two up to 1024."},
        {"group", 0, 1024, true, "group must be 0 or a power of two up to 1024."},
        {"blocks", 0, 65536, false, "blocks must lie in 0..65536."},
        {"vector", 0, 8, true, "vector must be 0, 1, 4 or 8."},
        {"sums", 0, 2, false, "sums must lie in 0..2."},
    };
    if (parameters_get(set, "vector", 0) == 2)
        return "vector must be 0, 1, 4 or 8.";
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const int value = parameters_get(set, ranges[i].name, ranges[i].least);
        if (value < ranges[i].least || value > ranges[i].most || (ranges[i].power_of_two && (value & (value - 1)) != 0))
            return ranges[i].refusal;
    }
    return NULL;
}

/* "score_tiles=2" of the given length. */
static bool parse_item(struct parameters *set, const char *text, size_t length) {
    char item[48], *end = NULL;
    if (length >= sizeof item)
        return false;
    memcpy(item, text, length);
    item[length] = '\0';
    char *equals = strchr(item, '=');
    if (equals == NULL || strlen(item) != length)
        return false;
    *equals = '\0';
    for (const char *c = item; *c != '\0'; c++)
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
            return false;
    const char *number = equals + 1;
    if (!isdigit((unsigned char)number[*number == '-']))
        return false;
    errno = 0;
    const long value = strtol(number, &end, 10);
    if (errno != 0 || *end != '\0' || value < INT_MIN || value > INT_MAX)
        return false;
    return parameters_put(set, item, (int)value);
}

clattn_status parameters_parse(struct parameters *set, const char *text) {
    while (*text != '\0') {
        const size_t length = strcspn(text, ",");
        RETURN_IF(!parse_item(set, text, length), CLATTN_INVALID_ARGUMENT,
                  "parameters: bad item \"%.*s\" (wanted: name=integer, at most %d of them)",
                  length < 200 ? (int)length : 200, text, PARAMETERS_MAX);
        text += length;
        if (*text == ',')
            text++;
    }
    return CLATTN_SUCCESS;
}

void parameters_print(const struct parameters *set, char *text, size_t size) {
    size_t used = 0;
    if (size > 0)
        text[0] = '\0';
    for (int i = 0; i < set->count && used < size; i++) {
        const int n =
            snprintf(text + used, size - used, "%s%s=%d", i == 0 ? "" : ",", set->item[i].name, set->item[i].value);
        used += n > 0 ? (size_t)n : 0;
    }
}
