/* A small set of named integers: tile sizes from a tuning row or a caller's string, and their text. */
#ifndef CLATTN_PARAMETERS_H
#define CLATTN_PARAMETERS_H

#include <clattn/clattn.h>
#include <stdbool.h>

#define PARAMETERS_MAX 16

struct parameters {
    int count;
    struct {
        char name[24];
        int value;
    } item[PARAMETERS_MAX];
};

bool parameters_have(const struct parameters *set, const char *name);
/* The value of name, or fallback where it is not in the set. */
int parameters_get(const struct parameters *set, const char *name, int fallback);
/* Adds or replaces; false where the set is full or the name too long. */
bool parameters_put(struct parameters *set, const char *name, int value);
/* Why a value lies outside its parameter's range on any device, or NULL. What a tile back-end has for itself has its
 * ranges there (tile_shape_refusal()). */
const char *parameters_refusal(const struct parameters *set);
/* Adds "a=1,b=2" to the set. An argument error names the bad item. */
clattn_status parameters_parse(struct parameters *set, const char *text);
/* Writes "a=1,b=2". */
void parameters_print(const struct parameters *set, char *text, size_t size);

#endif
