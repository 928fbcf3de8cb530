/* The marks are C++ comments of PTX, "//@", which survive in inline assembly as they are. Only the text's form is
 * checked: what the driver makes of it is for its assembler and the capability's self-test to judge. */
#include "program_nvidia.h"
#include "status.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MARK "//@"
#define TARGET ".target sm_90"
#define OWN_TARGET ".target sm_90a"

bool program_nvidia_is_wanted(const char *options) {
    return strstr(options, PROGRAM_NVIDIA_OPTION) != NULL;
}

/* The binary as a string, or NULL: a driver may end it with one NUL or several, but has none inside. */
static char *copy_text(const unsigned char *binary, size_t size) {
    const size_t length = strnlen((const char *)binary, size);
    for (size_t i = length; i < size; i++)
        if (binary[i] != '\0')
            return NULL;
    char *text = malloc(length + 1);
    if (text != NULL) {
        memcpy(text, binary, length);
        text[length] = '\0';
    }
    return text;
}

static bool is_ptx(const char *text) {
    return strncmp(text, "//", 2) == 0 && strstr(text, "\n.version ") != NULL;
}

static int blank_marks(char *text) {
    int count = 0;
    for (char *at = strstr(text, MARK); at != NULL; at = strstr(at, MARK), count++)
        memset(at, ' ', sizeof MARK - 1);
    return count;
}

/* The only line that names the target, or NULL. */
static const char *find_target(const char *text) {
    const char *found = NULL;
    for (const char *at = strstr(text, TARGET); at != NULL; at = strstr(at + 1, TARGET)) {
        const unsigned char next = (unsigned char)at[sizeof TARGET - 1];
        if (found != NULL || (next != ',' && !isspace(next)))
            return NULL;
        found = at;
    }
    return found;
}

static clattn_status raise_target(const char *text, unsigned char **out, size_t *out_size) {
    const char *at = find_target(text);
    RETURN_IF(at == NULL, CLATTN_BUILD_FAILED, "the driver's assembly text does not name its target as sm_90, once");
    const size_t before = (size_t)(at - text), after = strlen(at + sizeof TARGET - 1);
    unsigned char *raised = malloc(before + sizeof OWN_TARGET - 1 + after);
    RETURN_IF(raised == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a program's assembly text");
    memcpy(raised, text, before);
    memcpy(raised + before, OWN_TARGET, sizeof OWN_TARGET - 1);
    memcpy(raised + before + sizeof OWN_TARGET - 1, at + sizeof TARGET - 1, after);
    *out = raised;
    *out_size = before + sizeof OWN_TARGET - 1 + after;
    return CLATTN_SUCCESS;
}

clattn_status program_nvidia_retarget(const unsigned char *binary, size_t size, unsigned char **text,
                                      size_t *text_size) {
    char *copy = copy_text(binary, size);
    clattn_status status = CLATTN_SUCCESS;
    if (copy == NULL || !is_ptx(copy))
        status = status_set(CLATTN_BUILD_FAILED, "the driver's binary is not the assembly text that is expected");
    else if (blank_marks(copy) == 0)
        status = status_set(CLATTN_BUILD_FAILED, "the driver's assembly text has lost the marked instructions");
    else
        status = raise_target(copy, text, text_size);
    free(copy);
    return status;
}
