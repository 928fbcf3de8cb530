/* The table of programs: found by key text, built from source or loaded from the disk cache, with a free list of kernel
 * objects each. Two locks: the table's is held for look-ups alone, a program's for its build and its free list. */
#include "program.h"
#include "context.h"
#include "program_build.h"
#include "status.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct program {
    struct program *next; /* in its bucket */
    uint64_t hash;
    char *file, *kernel, *options;
    char *name;
    os_mutex lock; /* of all below */
    cl_program cl; /* NULL until built */
    size_t max_group;
    cl_kernel *idle;            /* kernels that nobody uses */
    size_t idle_count, created; /* idle has room for all that were created: giving back cannot fail */
};

/* ---- the table ----------------------------------------------------------------------------------------------------
 */

void program_table_init(struct program_table *table) {
    memset(table, 0, sizeof *table);
    os_mutex_init(&table->lock);
}

static void program_free(struct program *program) {
    for (size_t i = 0; i < program->idle_count; i++)
        clReleaseKernel(program->idle[i]);
    if (program->cl != NULL)
        clReleaseProgram(program->cl);
    free(program->idle);
    free(program->file);
    free(program->kernel);
    free(program->options);
    free(program->name);
    os_mutex_destroy(&program->lock);
    free(program);
}

void program_table_free(struct program_table *table) {
    for (size_t i = 0; i < table->buckets; i++)
        for (struct program *program = table->bucket[i], *next; program != NULL; program = next) {
            next = program->next;
            program_free(program);
        }
    free(table->bucket);
    os_mutex_destroy(&table->lock);
}

static uint64_t hash_key(const struct program_key *key) {
    uint64_t hash = XXH64(key->file, strlen(key->file), 0);
    hash = XXH64(key->kernel, strlen(key->kernel), hash);
    return XXH64(key->options, strlen(key->options), hash);
}

static bool has_key(const struct program *program, const struct program_key *key, uint64_t hash) {
    return program->hash == hash && strcmp(program->file, key->file) == 0 &&
           strcmp(program->kernel, key->kernel) == 0 && strcmp(program->options, key->options) == 0;
}

static struct program *program_new(const struct program_key *key, uint64_t hash) {
    struct program *program = calloc(1, sizeof *program);
    if (program == NULL)
        return NULL;
    os_mutex_init(&program->lock);
    program->hash = hash;
    program->file = os_copy_text(key->file);
    program->kernel = os_copy_text(key->kernel);
    program->options = os_copy_text(key->options);
    const size_t name_size = strlen(key->kernel) + strlen(key->file) + sizeof " of ";
    program->name = malloc(name_size);
    if (program->file == NULL || program->kernel == NULL || program->options == NULL || program->name == NULL) {
        program_free(program);
        return NULL;
    }
    snprintf(program->name, name_size, "%s of %s", key->kernel, key->file);
    return program;
}

/* Doubles the buckets when they are as many as the programs. */
static bool table_reserve(struct program_table *table) {
    if (table->count < table->buckets)
        return true;
    const size_t buckets = table->buckets > 0 ? 2 * table->buckets : 64;
    struct program **bucket = calloc(buckets, sizeof(struct program *));
    if (bucket == NULL)
        return false;
    for (size_t i = 0; i < table->buckets; i++)
        for (struct program *program = table->bucket[i], *next; program != NULL; program = next) {
            next = program->next;
            program->next = bucket[program->hash % buckets];
            bucket[program->hash % buckets] = program;
        }
    free(table->bucket);
    table->bucket = bucket;
    table->buckets = buckets;
    return true;
}

/* Finds or adds an entry, built or not; NULL where memory is short. The table is locked. */
static struct program *table_entry(struct program_table *table, const struct program_key *key) {
    const uint64_t hash = hash_key(key);
    if (table->buckets > 0)
        for (struct program *program = table->bucket[hash % table->buckets]; program != NULL; program = program->next)
            if (has_key(program, key, hash))
                return program;
    struct program *program = table_reserve(table) ? program_new(key, hash) : NULL;
    if (program == NULL)
        return NULL;
    program->next = table->bucket[hash % table->buckets];
    table->bucket[hash % table->buckets] = program;
    table->count++;
    return program;
}

/* ---- building -----------------------------------------------------------------------------------------------------
 */

static void count_build(struct program_table *table, bool loaded) {
    os_lock(&table->lock);
    if (loaded)
        table->loaded++;
    else
        table->built++;
    os_unlock(&table->lock);
}

/* Builds where that has not been done. The program is locked, so that who wants the same one waits here. */
static clattn_status ensure_built(clattn_context *context, struct program *program) {
    if (program->cl != NULL)
        return CLATTN_SUCCESS;
    program->idle = program->idle != NULL ? program->idle : malloc(sizeof *program->idle);
    RETURN_IF(program->idle == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for program %s", program->name);
    const struct program_key key = {program->file, program->kernel, program->options};
    struct built_program built;
    FORWARD(program_build(context, &key, &built));
    program->cl = built.program;
    program->max_group = built.max_group;
    program->idle[program->idle_count++] = built.kernel;
    program->created++;
    count_build(&context->programs, built.loaded);
    return CLATTN_SUCCESS;
}

clattn_status program_get(clattn_context *context, const struct program_key *key, struct program **out) {
    os_lock(&context->programs.lock);
    struct program *program = table_entry(&context->programs, key);
    os_unlock(&context->programs.lock);
    RETURN_IF(program == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for program %s of %s", key->kernel, key->file);
    os_lock(&program->lock);
    const clattn_status status = ensure_built(context, program);
    os_unlock(&program->lock);
    if (status == CLATTN_SUCCESS)
        *out = program;
    return status;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------
 */

/* One more kernel object; the program is locked. */
static clattn_status create_kernel(struct program *program, cl_kernel *kernel) {
    cl_kernel *grown = realloc(program->idle, (program->created + 1) * sizeof *grown);
    RETURN_IF(grown == NULL, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a kernel of program %s", program->name);
    program->idle = grown;
    cl_int code = CL_SUCCESS;
    cl_kernel created = clCreateKernel(program->cl, program->kernel, &code);
    FORWARD_CL(code, "clCreateKernel");
    program->created++;
    *kernel = created;
    return CLATTN_SUCCESS;
}

clattn_status program_acquire_kernel(struct program *program, cl_kernel *kernel) {
    clattn_status status = CLATTN_SUCCESS;
    os_lock(&program->lock);
    if (program->idle_count > 0)
        *kernel = program->idle[--program->idle_count];
    else
        status = create_kernel(program, kernel);
    os_unlock(&program->lock);
    return status;
}

void program_release_kernel(struct program *program, cl_kernel kernel) {
    os_lock(&program->lock);
    program->idle[program->idle_count++] = kernel;
    os_unlock(&program->lock);
}

const char *program_name(const struct program *program) {
    return program->name;
}

size_t program_max_group(const struct program *program) {
    return program->max_group;
}
