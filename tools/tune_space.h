/* What a variant's parameters may be: the declared candidates of the tuner, as a grid. Pure. */
#ifndef TOOLS_TUNE_SPACE_H
#define TOOLS_TUNE_SPACE_H

#include <stdbool.h>
#include <stddef.h>

#define SPACE_AXES 12
#define SPACE_VALUES 16
#define SPACE_TEXT 256 /* bytes of parameters as text */

struct space_axis {
    char name[24];
    int values[SPACE_VALUES]; /* ascending */
    int count;
};

struct space {
    struct space_axis axis[SPACE_AXES];
    int axes;
};

/* One candidate: which value it has on each axis. */
struct point {
    signed char at[SPACE_AXES];
};

/* The axes of a variant whose parameters the library names so ("groups=8,score_tiles=2"), and the point that these
 * values are: a value that is not declared joins its axis. Parameters that nothing is declared of (such as the number
 * of parts of decode attention, which the library makes from each problem) are left out. False where no axis is left or
 * text is no list of parameters. */
bool space_make(struct space *space, const char *parameters, struct point *start);

/* The point of the parameters, which may leave axes out (they stay as in *point); false where the grid has no such
 * point. */
bool space_find(const struct space *space, const char *parameters, struct point *point);

void space_print(const struct space *space, const struct point *point, char text[SPACE_TEXT]);

#endif
