/* The results of check and bench, and their three forms: table, JSON, CSV. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "machine.h"
#include "oracle.h"
#include "yardstick.h"

#include <stdio.h>

struct result {
    char op[24], variant[64], dtype[8], shape[192];
    char name[128], parameters[256]; /* the program's long name and its tile parameters */
    char asked[96];                  /* the parameters that tell it from others of the same table; "": none do */
    struct errors errors;
    bool checked;
    double median_s;
    int runs, calls; /* the median of so many runs of so many calls; 0: not timed */
    double bytes, flops;
    double size;  /* keys or columns: the x axis of a plot */
    double share; /* of the yardstick that suits the operation; 0: none */
    bool memory_bound;
    uint64_t peak_device_bytes;
    uint64_t workspace_bytes;
    double ratio; /* --vs: the rival's time over this one's; 0: no rival */
    char note[96];
};

struct report {
    const struct machine *machine;
    bool has_yardstick;
    struct yardstick yardstick;
    uint64_t seed;
    struct result *results;
    size_t count, capacity;
    size_t failures;
};

/* Copies the result; counts it where it failed. False where memory is short. */
bool report_add(struct report *report, const struct result *result);
void report_free(struct report *report);

/* Fills share from the yardstick. */
void report_rate(const struct report *report, struct result *result);

void report_print_table(const struct report *report, bool with_memory, FILE *to);
/* False where memory is short. */
bool report_print_json(const struct report *report, FILE *to);
bool report_write_csv(const struct report *report, const char *path);

/* "12.3 us" and so on; text of at least 16 bytes. */
const char *format_seconds(double seconds, char text[16]);
const char *format_bytes(double bytes, char text[16]);

#endif
