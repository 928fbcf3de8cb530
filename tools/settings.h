/* KEY=VALUE settings of an operation. Every getter marks its key as known, so that a misspelt key can be refused after
 * all getters ran. */
#ifndef TOOLS_SETTINGS_H
#define TOOLS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SETTINGS_MAX 32

struct setting {
    char key[24];
    char value[64];
    bool used;
};

struct settings {
    struct setting items[SETTINGS_MAX];
    size_t count;
    char known[768]; /* keys that getters asked for, separated by blanks */
};

/* text is KEY=VALUE. */
int settings_add(struct settings *settings, const char *text);

/* NULL where the key is absent. */
const char *settings_text(struct settings *settings, const char *key);

/* Leave *out alone where the key is absent; complain where the value is none of the kind. */
int settings_integer(struct settings *settings, const char *key, int64_t *out, bool *present);
int settings_real(struct settings *settings, const char *key, float *out, bool *present);
int settings_flag(struct settings *settings, const char *key, int32_t *out);

/* choices: words separated by spaces; *out becomes the word's index. */
int settings_choice(struct settings *settings, const char *key, const char *choices, int *out);

/* Complains about the first key that no getter asked for, and says which there are. */
int settings_refuse_unknown(const struct settings *settings, const char *op);

/* Whole of text as a number in base 10; false where it is not one or does not fit. */
bool parse_integer(const char *text, int64_t *out);

/* "1,2,3": returns how many numbers were read, at most limit; 0 where text is anything else. */
size_t parse_integers(const char *text, int64_t *out, size_t limit);

#endif
