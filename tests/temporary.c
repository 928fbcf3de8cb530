/* Scratch folders under TMPDIR. Failures end the test program: nothing can be tested without them. */
#include "temporary.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(int condition, const char *what) {
    if (condition)
        return;
    perror(what);
    exit(1);
}

char *temporary_folder(void) {
    const char *root = getenv("TMPDIR");
    char *folder = temporary_path(root != NULL ? root : "/tmp", "clattn-test-XXXXXX");
    require(mkdtemp(folder) != NULL, "mkdtemp");
    return folder;
}

char *temporary_path(const char *folder, const char *name) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    require(path != NULL, "malloc");
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

void temporary_write(const char *folder, const char *name, const char *text, size_t size) {
    char *path = temporary_path(folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
    FILE *file = fopen(path, "wb");
    require(file != NULL, path);
    require(fwrite(text, 1, size, file) == size && fclose(file) == 0, path);
    free(path);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void temporary_remove(char *folder) {
    require(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, folder);
    free(folder);
}
