/* Typed access to KEY=VALUE settings, with complaints that name the key and the value. */
#include "settings.h"
#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct setting *find(struct settings *settings, const char *key) {
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return &settings->items[i];
    return NULL;
}

int settings_add(struct settings *settings, const char *text) {
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    if (length == 0 || !equals[1])
        return complain(EXIT_USAGE, "'%s' is not KEY=VALUE", text);
    struct setting item = {.used = false};
    if (settings->count == SETTINGS_MAX || length >= sizeof item.key || strlen(equals + 1) >= sizeof item.value)
        return complain(EXIT_USAGE, "'%s': too many or too long settings", text);
    memcpy(item.key, text, length);
    strcpy(item.value, equals + 1);
    if (find(settings, item.key))
        return complain(EXIT_USAGE, "%s is given twice", item.key);
    settings->items[settings->count++] = item;
    return EXIT_OK;
}

static void remember(struct settings *settings, const char *key) {
    const size_t used = strlen(settings->known), length = strlen(key);
    for (const char *at = settings->known; (at = strstr(at, key)) != NULL; at += length)
        if ((at == settings->known || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return;
    if (used + length + 2 <= sizeof settings->known)
        sprintf(settings->known + used, "%s%s", used ? " " : "", key);
}

const char *settings_text(struct settings *settings, const char *key) {
    remember(settings, key);
    struct setting *item = find(settings, key);
    if (!item)
        return NULL;
    item->used = true;
    return item->value;
}

bool parse_integer(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return false;
    *out = value;
    return true;
}

size_t parse_integers(const char *text, int64_t *out, size_t limit) {
    for (size_t count = 0; count < limit; text++) {
        char *end;
        errno = 0;
        const long long value = strtoll(text, &end, 10);
        if (end == text || errno || (*end && *end != ','))
            return 0;
        out[count++] = value;
        if (!*end)
            return count;
        text = end;
    }
    return 0;
}

int settings_integer(struct settings *settings, const char *key, int64_t *out, bool *present) {
    const char *text = settings_text(settings, key);
    if (present)
        *present = text != NULL;
    if (text && !parse_integer(text, out))
        return complain(EXIT_USAGE, "%s=%s is not a whole number", key, text);
    return EXIT_OK;
}

int settings_real(struct settings *settings, const char *key, float *out, bool *present) {
    const char *text = settings_text(settings, key);
    if (present)
        *present = text != NULL;
    if (!text)
        return EXIT_OK;
    char *end;
    const float value = strtof(text, &end);
    if (end == text || *end)
        return complain(EXIT_USAGE, "%s=%s is not a number", key, text);
    *out = value;
    return EXIT_OK;
}

int settings_flag(struct settings *settings, const char *key, int32_t *out) {
    int choice = *out != 0;
    const char *text = settings_text(settings, key);
    if (text && (strcmp(text, "true") == 0 || strcmp(text, "yes") == 0))
        choice = 1;
    else if (text && (strcmp(text, "false") == 0 || strcmp(text, "no") == 0))
        choice = 0;
    else
        FORWARD(settings_choice(settings, key, "0 1", &choice));
    *out = choice;
    return EXIT_OK;
}

int settings_choice(struct settings *settings, const char *key, const char *choices, int *out) {
    const char *text = settings_text(settings, key);
    if (!text)
        return EXIT_OK;
    const char *at = choices;
    for (int index = 0; *at; index++) {
        const size_t length = strcspn(at, " ");
        if (strlen(text) == length && memcmp(text, at, length) == 0) {
            *out = index;
            return EXIT_OK;
        }
        at += length + (at[length] == ' ');
    }
    return complain(EXIT_USAGE, "%s=%s is none of: %s", key, text, choices);
}

int settings_refuse_unknown(const struct settings *settings, const char *op) {
    for (size_t i = 0; i < settings->count; i++)
        if (!settings->items[i].used)
            return complain(EXIT_USAGE, "%s knows no setting '%s'; %s%s", op, settings->items[i].key,
                            settings->known[0] ? "with these inputs there are: " : "it takes none", settings->known);
    return EXIT_OK;
}
