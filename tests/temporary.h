/* A scratch folder for one test. */
#ifndef TEMPORARY_H
#define TEMPORARY_H

#include <stddef.h>

/* A new private folder; NULL on failure. */
char *temporary_folder(void);
/* "folder/name" in malloc'd memory. */
char *temporary_path(const char *folder, const char *name);
/* Writes folder/name; a folder in the name is made. */
void temporary_write(const char *folder, const char *name, const char *text, size_t size);
/* Removes the folder with its content and frees the name. */
void temporary_remove(char *folder);

#endif
