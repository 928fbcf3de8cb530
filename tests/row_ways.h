/* The ways of running an operation on rows: the library's choice, each variant, and parameters that make work-items
 * share rows whatever the device's own choice is. */
#ifndef CLATTN_ROW_WAYS_H
#define CLATTN_ROW_WAYS_H

#include "support.h"

struct row_way {
    const char *variant, *parameters; /* NULL: the library's choice */
};

enum row_ways { ROWS_CHOSEN, ROWS_VARIANTS, ROWS_EVERY_WAY };

/* The ways that op can go on this device, in turn; false past the last. *index starts at 0. */
bool row_next_way(const clattn_op *op, enum row_ways ways, size_t *index, struct row_way *way);
/* One successful call, its workspace exact and full of NaN; completed on return. */
void row_call(const clattn_op *op, struct row_way way);

#endif
