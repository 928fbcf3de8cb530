/* One tuning row, as read from JSON (the format: tuning.h). Pure. */
#ifndef CLATTN_TUNING_ROW_H
#define CLATTN_TUNING_ROW_H

#include "tuning.h"

struct cJSON;

struct tuning_range {
    int64_t least, most;
};

struct tuning_row {
    const struct variant *variant;
    bool prefers;       /* it says that the variant is the one to take; else it gives parameters */
    clattn_dtype dtype; /* 0: any */
    struct tuning_range size;
    struct tuning_range queries, keys, heads, sharing; /* of rows that prefer */
    int causal;                                        /* of the same: 0, 1, or -1 for either */
    enum tuning_source level;
    bool user;
    size_t index;      /* as read */
    char target[128];  /* device, architecture or vendor, as level says */
    char driver[128];  /* "": any */
    char kernels[17];  /* hash of the kernels that were measured; "": any */
    const char *stale; /* NULL, or why it is not in force on the device (static storage) */
    struct parameters parameters;
};

/* Fills a cleared row. NULL, or what is wrong with it (static storage). */
const char *tuning_row_read(const struct cJSON *json, struct tuning_row *row);

#endif
