/* The file is mapped; nothing of it is trusted before it was compared with its size. */
#include "safetensors.h"

#include "client.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };

static void map_file(struct safetensors *file, const char *path) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (descriptor < 0 || fstat(descriptor, &facts) != 0 || facts.st_size < LENGTH_BYTES)
        client_fail("%s: cannot be read, or is too short", path);
    file->file_bytes = (size_t)facts.st_size;
    file->file = mmap(NULL, file->file_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (file->file == MAP_FAILED)
        client_fail("%s: cannot be mapped", path);
    close(descriptor);
}

struct safetensors safetensors_open(const char *path) {
    struct safetensors file = {0};
    map_file(&file, path);
    const unsigned char *bytes = file.file;
    uint64_t length = 0;
    for (int i = LENGTH_BYTES; i-- > 0;)
        length = length << 8 | bytes[i];
    if (length > file.file_bytes - LENGTH_BYTES)
        client_fail("%s: its header would end behind it", path);
    file.header = cJSON_ParseWithLength((const char *)bytes + LENGTH_BYTES, (size_t)length);
    if (file.header == NULL)
        client_fail("%s: its header is not JSON", path);
    file.values = bytes + LENGTH_BYTES + length;
    file.value_bytes = file.file_bytes - LENGTH_BYTES - (size_t)length;
    return file;
}

void safetensors_close(struct safetensors *file) {
    cJSON_Delete(file->header);
    munmap(file->file, file->file_bytes);
}

/* An element of an array of numbers; -1 where there is none. */
static double number_at(const cJSON *tensor, const char *key, int index) {
    const cJSON *number = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(tensor, key), index);
    return cJSON_IsNumber(number) ? number->valuedouble : -1;
}

int64_t safetensors_find(const struct safetensors *file, const char *name, int64_t rows, int64_t columns) {
    const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(file->header, name);
    const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tensor, "dtype"));
    const int rank = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(tensor, "shape"));
    const double begin = number_at(tensor, "data_offsets", 0), end = number_at(tensor, "data_offsets", 1);
    if (dtype == NULL || strcmp(dtype, "F32") != 0 || rank != (rows > 0 ? 2 : 1))
        client_fail("%s: there is no such tensor of fp32", name);
    if ((rows > 0 && number_at(tensor, "shape", 0) != (double)rows) ||
        number_at(tensor, "shape", rank - 1) != (double)columns)
        client_fail("%s: is not %d x %d", name, (int)rows, (int)columns);
    const double bytes = (double)(rows > 0 ? rows : 1) * (double)columns * sizeof(float);
    if (begin < 0 || end - begin != bytes || end > (double)file->value_bytes || (int64_t)begin % 4 != 0)
        client_fail("%s: does not lie within the file", name);
    return (int64_t)begin / 4;
}
