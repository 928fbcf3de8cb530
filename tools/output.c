/* Trying and comparing the paths of results. */
#include "output.h"
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const char *what, const char *path, int error) {
    return complain(EXIT_USAGE, "%s%s: %s", what, path, strerror(error));
}

int output_try(const char *what, const char *path) {
    struct stat status;
    if (stat(path, &status) == 0) { /* a pipe that were opened and closed would end for its reader */
        if (S_ISDIR(status.st_mode))
            return refuse(what, path, EISDIR);
        return access(path, W_OK) == 0 ? EXIT_OK : refuse(what, path, errno);
    }
    const bool is_link = lstat(path, &status) == 0;
    FILE *file = fopen(path, "ab");
    if (!file)
        return refuse(what, path, errno);
    fclose(file);
    if (!is_link)
        remove(path);
    return EXIT_OK;
}

/* The path without links, "." and ".."; of what is not there its folder's, and the name. */
static bool resolve(const char *path, char out[PATH_MAX]) {
    if (realpath(path, out))
        return true;
    char copy[PATH_MAX], folder[PATH_MAX];
    if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy)
        return false;
    char *slash = strrchr(copy, '/');
    const char *name = slash ? slash + 1 : copy;
    if (slash)
        *slash = '\0';
    if (!realpath(!slash ? "." : copy[0] ? copy : "/", folder))
        return false;
    return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

bool output_same(const char *path, const char *other) {
    char whole[2][PATH_MAX];
    struct stat status[2];
    const bool there[2] = {stat(path, &status[0]) == 0, stat(other, &status[1]) == 0};
    if (there[0] != there[1])
        return false;
    if (there[0]) /* hard links too */
        return S_ISREG(status[0].st_mode) && status[0].st_dev == status[1].st_dev &&
               status[0].st_ino == status[1].st_ino;
    return resolve(path, whole[0]) && resolve(other, whole[1]) && strcmp(whole[0], whole[1]) == 0;
}

int output_failed(const char *what, const char *path, const char *reason) {
    return complain(EXIT_UNSUPPORTED, "%s%s could not be written: %s", what, path, reason);
}

int output_finish(int code) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    return output_failed("", "standard output", strerror(errno));
}
