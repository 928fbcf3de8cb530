/* Reads and writes .npy files. The header is a Python dict literal; a small scanner takes exactly the three keys that
 * NumPy writes, in any order, and refuses everything else. */
#include "npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[6] = "\x93NUMPY";

struct header {
    enum element element;
    bool fortran;
    int rank;
    int64_t dims[ARRAY_MAX_RANK];
};

static bool refuse(char reason[NPY_REASON_SIZE], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, NPY_REASON_SIZE, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- the dict literal -------------------------------------------------------------------------------------------- */

struct scanner {
    const char *at, *end;
};

static void skip_space(struct scanner *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

static bool take(struct scanner *s, char wanted) {
    skip_space(s);
    if (s->at == s->end || *s->at != wanted)
        return false;
    s->at++;
    return true;
}

static bool take_word(struct scanner *s, const char *word) {
    const size_t length = strlen(word);
    skip_space(s);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return false;
    s->at += length;
    return true;
}

/* A quoted string without escapes. */
static bool take_string(struct scanner *s, char *out, size_t size) {
    skip_space(s);
    if (s->at == s->end || (*s->at != '\'' && *s->at != '"'))
        return false;
    const char quote = *s->at++;
    size_t length = 0;
    while (s->at < s->end && *s->at != quote && *s->at != '\\' && length + 1 < size)
        out[length++] = *s->at++;
    out[length] = '\0';
    return take(s, quote);
}

static bool take_number(struct scanner *s, int64_t *out) {
    skip_space(s);
    const char *start = s->at;
    int64_t value = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        const int digit = *s->at - '0';
        if (value > (INT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    /* old files carry Python 2's long suffix */
    return s->at != start && (take(s, 'L') || true);
}

static bool take_shape(struct scanner *s, struct header *header) {
    header->rank = 0;
    if (!take(s, '('))
        return false;
    while (!take(s, ')')) {
        if (header->rank == ARRAY_MAX_RANK || !take_number(s, &header->dims[header->rank]))
            return false;
        header->rank++;
        if (!take(s, ','))
            return header->rank > 1 && take(s, ')');
    }
    return true;
}

static bool take_element(struct scanner *s, struct header *header, char reason[NPY_REASON_SIZE]) {
    static const struct {
        const char *descriptor;
        enum element element;
    } known[] = {{"<f4", ELEMENT_F32},       {"<f2", ELEMENT_F16},  {"<u2", ELEMENT_BF16},
                 {"bfloat16", ELEMENT_BF16}, {"<i4", ELEMENT_I32},  {"<i8", ELEMENT_I64},
                 {"|u1", ELEMENT_U8},        {"|b1", ELEMENT_BOOL}, {"|i1", ELEMENT_I8}};
    char descriptor[16];
    if (!take_string(s, descriptor, sizeof descriptor))
        return refuse(reason, "'descr' is no short string (structured arrays are not read)");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(descriptor, known[i].descriptor) == 0) {
            header->element = known[i].element;
            return true;
        }
    for (char *c = descriptor; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return refuse(reason, "element type '%s' is none of <f4 <f2 <u2 bfloat16 <i4 <i8 |u1 |b1 |i1", descriptor);
}

static bool take_entry(struct scanner *s, struct header *header, unsigned *seen, char reason[NPY_REASON_SIZE]) {
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    char key[16];
    unsigned which = 0;
    if (!take_string(s, key, sizeof key) || !take(s, ':'))
        return refuse(reason, "the header is no dict of strings");
    while (which < 3 && strcmp(key, names[which]) != 0)
        which++;
    if (which == 3 || *seen & 1u << which)
        return refuse(reason, "the header holds an unknown or repeated key");
    *seen |= 1u << which;
    if (which == 0)
        return take_element(s, header, reason);
    if (which == 2)
        return take_shape(s, header) || refuse(reason, "'shape' is no tuple of at most %d sizes", ARRAY_MAX_RANK);
    header->fortran = take_word(s, "True");
    return header->fortran || take_word(s, "False") || refuse(reason, "'fortran_order' is neither True nor False");
}

static bool parse_header(struct scanner *s, struct header *header, char reason[NPY_REASON_SIZE]) {
    unsigned seen = 0;
    if (!take(s, '{'))
        return refuse(reason, "the header is no dict");
    while (!take(s, '}')) {
        if (!take_entry(s, header, &seen, reason))
            return false;
        if (take(s, ','))
            continue;
        if (!take(s, '}'))
            return refuse(reason, "the header is no dict");
        break;
    }
    skip_space(s);
    if (s->at != s->end)
        return refuse(reason, "there is text after the header's dict");
    return seen == 7 || refuse(reason, "the header lacks descr, fortran_order or shape");
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

#define HEADER_MOST (1u << 20) /* NumPy itself refuses more than 10,000 bytes */

/* Where the header's text begins, and the elements behind it. */
static bool find_data(const unsigned char *bytes, size_t size, size_t *text, size_t *data,
                      char reason[NPY_REASON_SIZE]) {
    if (size < 10 || memcmp(bytes, magic, sizeof magic) != 0)
        return refuse(reason, "it does not begin like a .npy file");
    const unsigned major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return refuse(reason, "format version %u.%u is none of 1.0, 2.0, 3.0", major, minor);
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    *text = 10;
    if (major > 1) {
        if (size < 12)
            return refuse(reason, "the header is cut off");
        *text = 12;
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    }
    *data = *text + length;
    return length <= HEADER_MOST || refuse(reason, "its header wants %zu bytes", length);
}

static bool read_header(const unsigned char *bytes, size_t size, struct header *header, size_t *data,
                        char reason[NPY_REASON_SIZE]) {
    size_t text = 0;
    if (!find_data(bytes, size, &text, data, reason))
        return false;
    if (*data > size)
        return refuse(reason, "the header is cut off");
    struct scanner scanner = {(const char *)bytes + text, (const char *)bytes + *data};
    return parse_header(&scanner, header, reason);
}

/* False where there are more than memory could hold. */
static bool count_bytes(const struct header *header, size_t *bytes) {
    size_t count = element_size(header->element);
    for (int d = 0; d < header->rank; d++)
        count = header->dims[d] == 0 ? 0 : count;
    for (int d = 0; d < header->rank && count; d++) {
        if (count > SIZE_MAX / 2 / (size_t)header->dims[d])
            return false;
        count *= (size_t)header->dims[d];
    }
    *bytes = count;
    return true;
}

/* File index i counts the first dimension fastest; the array's index counts the last fastest. */
static void copy_fortran(struct array *array, const char *from) {
    const size_t size = element_size(array->element);
    int64_t index[ARRAY_MAX_RANK] = {0};
    size_t strides[ARRAY_MAX_RANK], stride = size, at = 0;
    for (int d = 0; d < array->rank; d++) {
        strides[d] = stride;
        stride *= (size_t)array->dims[d];
    }
    for (size_t i = 0; i < array->count; i++) {
        memcpy((char *)array->data + i * size, from + at, size);
        for (int d = array->rank - 1; d >= 0; d--) {
            at += strides[d];
            if (++index[d] < array->dims[d])
                break;
            at -= strides[d] * (size_t)array->dims[d];
            index[d] = 0;
        }
    }
}

bool npy_parse(const void *bytes, size_t size, struct array *out, char reason[NPY_REASON_SIZE]) {
    struct header header = {.fortran = false};
    size_t data = 0, wanted = 0;
    if (!read_header(bytes, size, &header, &data, reason))
        return false;
    if (!count_bytes(&header, &wanted) || wanted > size - data)
        return refuse(reason, "its shape wants more data than the file holds");
    if (wanted != size - data)
        return refuse(reason, "its shape wants %zu bytes of elements, there are more", wanted);
    if (!array_make(out, header.element, header.rank, header.dims))
        return refuse(reason, "out of memory for %zu bytes", wanted);
    if (header.fortran)
        copy_fortran(out, (const char *)bytes + data);
    else
        memcpy(out->data, (const char *)bytes + data, size - data);
    return true;
}

struct content {
    char *bytes; /* to be freed */
    size_t size, capacity;
};

/* Reads on until there are so many bytes, or no more; false where reading fails or memory is short. */
static bool read_up_to(FILE *file, struct content *content, size_t limit) {
    size_t got = 1;
    while (got && content->size < limit) {
        if (content->size == content->capacity) {
            const size_t capacity = content->capacity ? 2 * content->capacity : 65536;
            char *larger = realloc(content->bytes, capacity);
            if (!larger)
                return false;
            content->bytes = larger;
            content->capacity = capacity;
        }
        const size_t room = content->capacity - content->size, wanted = limit - content->size;
        got = fread(content->bytes + content->size, 1, room < wanted ? room : wanted, file);
        content->size += got;
    }
    return !ferror(file);
}

/* No more than the header says and a byte, so that what never ends is refused. */
static bool read_all(FILE *file, struct content *content, char reason[NPY_REASON_SIZE]) {
    struct header header = {.fortran = false};
    size_t text = 0, data = 0, elements = 0;
    if (!read_up_to(file, content, 12))
        return refuse(reason, "it cannot be read");
    if (!find_data((unsigned char *)content->bytes, content->size, &text, &data, reason))
        return false;
    if (!read_up_to(file, content, data))
        return refuse(reason, "it cannot be read");
    if (!read_header((unsigned char *)content->bytes, content->size, &header, &data, reason))
        return false;
    if (!count_bytes(&header, &elements))
        return refuse(reason, "its shape wants more data than the file holds");
    return read_up_to(file, content, data + elements + 1) || refuse(reason, "it cannot be read");
}

bool npy_read(const char *path, struct array *out, char reason[NPY_REASON_SIZE]) {
    struct content content = {.bytes = NULL};
    FILE *file = fopen(path, "rb");
    if (!file)
        return refuse(reason, "%s", strerror(errno));
    const bool done = read_all(file, &content, reason) && npy_parse(content.bytes, content.size, out, reason);
    fclose(file);
    free(content.bytes);
    return done;
}

bool npy_write(const char *path, const struct array *array, char reason[NPY_REASON_SIZE]) {
    static const char *const descriptors[] = {
        [ELEMENT_F32] = "<f4", [ELEMENT_F16] = "<f2", [ELEMENT_BF16] = "<u2", [ELEMENT_I32] = "<i4",
        [ELEMENT_I64] = "<i8", [ELEMENT_U8] = "|u1",  [ELEMENT_BOOL] = "|b1", [ELEMENT_I8] = "|i1"};
    char text[384];
    int length =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descriptors[array->element]);
    for (int d = 0; d < array->rank; d++)
        length +=
            snprintf(text + length, sizeof text - (size_t)length, d ? " %lld," : "%lld,", (long long)array->dims[d]);
    length += snprintf(text + length, sizeof text - (size_t)length, "), }");
    /* spaces and a newline up to a multiple of 64 bytes in all */
    while ((10 + length + 1) % 64)
        text[length++] = ' ';
    text[length++] = '\n';
    const unsigned char start[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(length & 255), (unsigned char)(length >> 8)};
    FILE *file = fopen(path, "wb");
    if (!file)
        return refuse(reason, "%s", strerror(errno));
    const size_t bytes = array_bytes(array);
    bool done = fwrite(start, sizeof start, 1, file) == 1 && fwrite(text, (size_t)length, 1, file) == 1;
    done = done && fwrite(array->data, 1, bytes, file) == bytes;
    done = fclose(file) == 0 && done;
    return done || refuse(reason, "%s", strerror(errno));
}
