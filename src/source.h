/* Kernel sources: embedded in the library or read from a folder, with #include "..." expanded by the host, because
 * OpenCL's own include path needs files on disk. */
#ifndef CLATTN_SOURCE_H
#define CLATTN_SOURCE_H

#include <clattn/clattn.h>
#include <stdbool.h>

/* One embedded file; the build generates the table. */
struct source_file {
    const char *name; /* "tile/fma.clh" */
    const unsigned char *text;
    size_t size;
};
extern const struct source_file source_embedded[];
extern const size_t source_embedded_count;
/* The tuning rows of src/tuning/, likewise. */
extern const struct source_file tuning_embedded[];
extern const size_t tuning_embedded_count;

/* The expanded text of a kernel file in malloc'd memory, NUL-terminated, each file included at most once, with #line
 * directives that name the original files. Names are relative to the root of the kernel folder, whichever file includes
 * them. Conditions are not evaluated: an include belongs outside #if.
 *
 * A back-end is chosen by its name: a part of a path, between '/' and '.', that is a macro of `options`
 * ("-DNAME=value", value of letters, digits and '_') stands for its value. With "-DTILE_BACKEND=fma", #include
 * "tile/TILE_BACKEND.clh" takes tile/fma.clh; the compiler sees the define as a bare word and no quotes pass through
 * any driver's option parser.
 *
 * dir NULL: embedded. A missing file is CLATTN_INTERNAL_ERROR, naming it and its includer. */
clattn_status source_expand(const char *dir, const char *name, const char *options, char **text, size_t *size);

/* One file as it is, NUL-terminated in malloc'd memory; NULL where it cannot be read. */
char *source_load(const char *dir, const char *name, size_t *size);
/* The quoted path of a line that is an #include. */
bool source_is_include(const char *line, const char **path, size_t *length);

#endif
