/* The declared values. They need not all fit a device: the library refuses those that do not, before anything is built.
 */
#include "tune_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int values[SPACE_VALUES - 1]; /* a 0 behind the first ends them */
} declared[] = {
    {"fma_items", {1, 2, 4, 8, 16, 32}},
    {"fma_rows", {1, 2, 4, 8}},
    {"cpu_rows", {8, 16, 32, 64, 128}},
    {"mma_rows", {16, 32}},
    {"groups", {1, 2, 3, 4, 8, 16, 32}},
    {"score_tiles", {1, 2, 4, 8}},
    {"column_tiles", {1, 2, 4, 8, 16}},
    {"k_slice", {16, 32, 64, 128, 256, 576}},
    {"v_slice", {16, 32, 64, 128, 256, 512}},
    {"q_resident", {0, 1}},
    {"resident", {0, 1}},
    {"stage_slots", {1, 2}},
    {"ahead", {0, 1, 2}},
    {"shares", {1, 2, 4, 8}},
    {"registers", {0, 128, 168}}, /* what lets 4 and 3 groups of 128 work-items share 65,536 */
    {"block_keys", {48, 64, 80, 96, 112, 128, 160, 176}},
    {"stages", {2, 3, 4}},
    {"q_slots", {1, 2}},
    {"q_held", {0, 1}},
    {"heads_together", {1, 2, 4, 8, 16, 32}},
    {"team", {1, 2, 4, 8, 16, 32, 64, 128, 256}},
    {"group", {1, 16, 32, 64, 128, 256, 512, 1024}},
    {"vector", {1, 4, 8}},
    {"blocks", {0, 1, 2, 4, 8, 16, 32}},
    {"packets", {0, 2, 4, 8, 16}},
    {"local_packets", {0, 2, 4, 8, 16}},
    {"sums", {0, 1, 2}},
};

static const int *find_declared(const char *name, size_t length, int *count) {
    for (size_t i = 0; i < sizeof declared / sizeof *declared; i++)
        if (strlen(declared[i].name) == length && memcmp(declared[i].name, name, length) == 0) {
            for (*count = 1; *count < SPACE_VALUES - 1 && declared[i].values[*count] != 0;)
                (*count)++;
            return declared[i].values;
        }
    return NULL;
}

/* "name=value" at the start of text; returns what follows it and its comma, or NULL where there is none. */
static const char *take_item(const char *text, const char **name, size_t *length, int *value) {
    *name = text;
    *length = strcspn(text, "=,");
    if (*length == 0 || text[*length] != '=')
        return NULL;
    char *end = NULL;
    const char *number = text + *length + 1;
    const long given = strtol(number, &end, 10);
    if (end == number || given < 0 || given > 1 << 30 || (*end != ',' && *end != '\0'))
        return NULL;
    *value = (int)given;
    return *end == ',' ? end + 1 : end;
}

/* Its place on the axis, where it is put if it is not there yet; -1 where there is no room. */
static int join(struct space_axis *axis, int value) {
    int at = 0;
    while (at < axis->count && axis->values[at] < value)
        at++;
    if (at < axis->count && axis->values[at] == value)
        return at;
    if (axis->count == SPACE_VALUES)
        return -1;
    memmove(&axis->values[at + 1], &axis->values[at], (size_t)(axis->count - at) * sizeof *axis->values);
    axis->values[at] = value;
    axis->count++;
    return at;
}

bool space_make(struct space *space, const char *parameters, struct point *start) {
    memset(space, 0, sizeof *space);
    memset(start, 0, sizeof *start);
    for (const char *text = parameters; *text != '\0';) {
        const char *name;
        size_t length;
        int value = 0, count = 0;
        text = take_item(text, &name, &length, &value);
        if (!text)
            return false;
        const int *values = find_declared(name, length, &count);
        if (!values)
            continue;
        if (space->axes == SPACE_AXES)
            return false;
        struct space_axis *axis = &space->axis[space->axes];
        memcpy(axis->name, name, length);
        memcpy(axis->values, values, (size_t)count * sizeof *values);
        axis->count = count;
        start->at[space->axes++] = (signed char)join(axis, value);
    }
    return space->axes > 0;
}

bool space_find(const struct space *space, const char *parameters, struct point *point) {
    for (const char *text = parameters; *text != '\0';) {
        const char *name;
        size_t length;
        int value = 0, axis = 0, at = 0;
        text = take_item(text, &name, &length, &value);
        if (!text)
            return false;
        while (axis < space->axes &&
               (strlen(space->axis[axis].name) != length || memcmp(space->axis[axis].name, name, length) != 0))
            axis++;
        if (axis == space->axes)
            continue;
        while (at < space->axis[axis].count && space->axis[axis].values[at] != value)
            at++;
        if (at == space->axis[axis].count)
            return false;
        point->at[axis] = (signed char)at;
    }
    return true;
}

void space_print(const struct space *space, const struct point *point, char text[SPACE_TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < space->axes && used < SPACE_TEXT; i++)
        used += (size_t)snprintf(text + used, SPACE_TEXT - used, "%s%s=%d", i ? "," : "", space->axis[i].name,
                                 space->axis[i].values[(int)point->at[i]]);
}
