/* Kernel sources: embedded in the library or read from a folder, with #include "..." expanded by the host, because
 * OpenCL's own include path needs files on disk. */
#ifndef CLATTN_SOURCE_H
#define CLATTN_SOURCE_H

#include <clattn/clattn.h>

/* One embedded file; the build generates the table. */
struct source_file {
    const char *name; /* "tile/fma.clh" */
    const unsigned char *text;
    size_t size;
};
extern const struct source_file source_embedded[];
extern const size_t source_embedded_count;

/* The expanded text of a kernel file in malloc'd memory, NUL-terminated, each file included at most once, with #line
 * directives that name the original files. `#include MACRO` forms are resolved with macros: a string of "-DNAME=value"
 * options in which value may name a file. dir NULL: embedded. */
clattn_status source_expand(const char *dir, const char *name, const char *options, char **text, size_t *size);

#endif
