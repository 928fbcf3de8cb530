/* Every call to the operating system beyond ISO C: a port of the library is a port of this file. */
#ifndef CLATTN_OS_H
#define CLATTN_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

typedef pthread_mutex_t os_mutex;
void os_mutex_init(os_mutex *mutex);
void os_mutex_destroy(os_mutex *mutex);
void os_lock(os_mutex *mutex);
void os_unlock(os_mutex *mutex);

typedef pthread_cond_t os_condition;
void os_condition_init(os_condition *condition);
void os_condition_destroy(os_condition *condition);
void os_wake_all(os_condition *condition);
/* Waits under the lock until woken, for no reason at times; false where os_time_ns() has passed the deadline. 0:
 * none. */
bool os_wait(os_condition *condition, os_mutex *mutex, uint64_t deadline_ns);

const char *os_environment(const char *name); /* NULL where unset or empty-valued is returned as "" */

/* The whole file, NUL-terminated, in malloc'd memory; NULL on any failure or where it is larger than limit. */
char *os_read_file(const char *path, size_t limit, size_t *size);

/* Writes beside path and renames over it, so that a reader sees the old or the new content and never a part. */
bool os_write_file_atomic(const char *path, const void *data, size_t size);

/* Creates the folder and its missing parents, the last with mode 0700. True where it exists afterwards, belongs to this
 * user, and neither group nor others may write to it. */
bool os_private_directory(const char *path);
bool os_is_directory(const char *path);
char *os_absolute_path(const char *path); /* of what exists; malloc'd, NULL on failure */
char *os_copy_text(const char *text);     /* malloc'd; NULL where memory is short, as below */
char *os_join_path(const char *folder, const char *name);

/* Calls visit for each regular file of a folder. */
typedef void (*os_visit)(void *user, const char *path, const char *name, uint64_t size, int64_t modified_ns);
void os_list_files(const char *path, os_visit visit, void *user);

bool os_remove_file(const char *path);
void os_touch_file(const char *path);
uint64_t os_time_ns(void); /* monotonic */

#endif
