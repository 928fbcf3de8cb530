/* Collects files by their #include lines, each once; a name that a macro stands in means every back-end of the folder.
 */
#include "tuning_kernels.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FILES_MAX = 96, NAME_SIZE = 64 };

struct collection {
    const char *backend; /* the tile back-end's name; NULL: all */
    char names[FILES_MAX][NAME_SIZE];
    int count;
    bool full;
};

static const struct {
    clattn_op_kind op;
    const char *files[18];
} tables[] = {
    {CLATTN_OP_ATTENTION,
     {"attention_decode.cl", "attention_decode_combine.cl", "attention_forward.cl", "attention_forward_pipelined.cl",
      "attention_mask_blocks.cl", "attention_pack.cl", "attention_scores.cl", "attention_special.cl",
      "attention_two_pass.cl", "gemm.cl", "softmax.cl", "softmax_loop.cl", "softmax_split.cl"}},
    {CLATTN_OP_ATTENTION_BACKWARD,
     {"attention_backward_bias.cl", "attention_backward_keys.cl", "attention_backward_queries.cl",
      "attention_backward_sinks.cl", "attention_backward_terms.cl", "attention_mask_blocks.cl"}},
    {CLATTN_OP_ATTENTION_MERGE, {"attention_merge.cl"}},
    {CLATTN_OP_SOFTMAX,
     {"grid_clear.cl", "softmax.cl", "softmax_held.cl", "softmax_loop.cl", "softmax_split.cl", "softmax_tickets.cl"}},
    {CLATTN_OP_SOFTMAX_MERGE, {"softmax_merge.cl"}},
    {CLATTN_OP_SOFTMAX_BACKWARD, {"softmax_backward.cl", "softmax_backward_loop.cl"}},
    {CLATTN_OP_SOFTMAX_TOPK, {"softmax_topk.cl"}},
    {CLATTN_OP_NORM, {"norm.cl", "norm_loop.cl"}},
    {CLATTN_OP_NORM_BACKWARD, {"norm_backward.cl", "norm_backward_columns.cl", "norm_backward_loop.cl"}},
    {CLATTN_OP_ROPE_APPEND, {"rope_kv.cl"}},
    {CLATTN_OP_CAST, {"cast.cl"}},
    {CLATTN_OP_UNSCALE, {"unscale.cl"}},
    {CLATTN_OP_LOSS_SCALE, {"loss_scale.cl"}},
    {CLATTN_OP_ADAMW, {"adamw.cl", "optimizer_count.cl"}},
    {CLATTN_OP_SGD, {"sgd.cl", "optimizer_count.cl"}},
    {CLATTN_OP_GEMM, {"gemm.cl"}},
};

const char *tuning_kernels_file(clattn_op_kind op, size_t index) {
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].op == op)
            return index < sizeof tables[i].files / sizeof tables[i].files[0] ? tables[i].files[index] : NULL;
    return NULL;
}

/* ---- collecting -------------------------------------------------------------------------------------------------- */

static void add(struct collection *files, const char *name, size_t length) {
    for (int i = 0; i < files->count; i++)
        if (strlen(files->names[i]) == length && memcmp(files->names[i], name, length) == 0)
            return;
    if (files->count == FILES_MAX || length >= NAME_SIZE) {
        files->full = true;
        return;
    }
    memcpy(files->names[files->count], name, length);
    files->names[files->count++][length] = '\0';
}

static bool is_other_backend(const struct collection *files, const char *name) {
    static const char tiles[] = "tile/";
    if (files->backend == NULL || strncmp(name, tiles, sizeof tiles - 1) != 0)
        return false;
    const char *own = name + sizeof tiles - 1;
    const size_t length = strlen(files->backend);
    return strncmp(own, files->backend, length) != 0 || strcmp(own + length, ".clh") != 0;
}

static void add_folder(struct collection *files, const char *path, size_t folder) {
    for (size_t i = 0; i < source_embedded_count; i++) {
        const char *name = source_embedded[i].name;
        if (strncmp(name, path, folder) == 0 && !is_other_backend(files, name))
            add(files, name, strlen(name));
    }
}

/* "tile/TILE_BACKEND.clh" */
static void add_include(struct collection *files, const char *path, size_t length) {
    const char *slash = memchr(path, '/', length);
    const bool chosen = slash != NULL && slash[1] >= 'A' && slash[1] <= 'Z';
    if (chosen)
        add_folder(files, path, (size_t)(slash - path) + 1);
    else
        add(files, path, length);
}

static void add_includes(struct collection *files, const char *text) {
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        const char *path = NULL;
        size_t path_length = 0;
        if (source_is_include(line, &path, &path_length))
            add_include(files, path, path_length);
        line += length + (line[length] == '\n');
    }
}

/* ---- hashing ----------------------------------------------------------------------------------------------------- */

static bool hash_files(const char *dir, struct collection *files, XXH3_state_t *state) {
    for (int i = 0; i < files->count && !files->full; i++) {
        size_t size = 0;
        char *text = source_load(dir, files->names[i], &size);
        if (text == NULL)
            return false;
        XXH3_64bits_update(state, files->names[i], strlen(files->names[i]) + 1);
        XXH3_64bits_update(state, text, size + 1);
        add_includes(files, text);
        free(text);
    }
    return !files->full;
}

bool tuning_kernels_hash(const char *dir, clattn_op_kind op, enum backend backend, char text[17]) {
    const bool has_tiles = backend != BACKEND_ANY && backend != BACKEND_CLBLAST;
    struct collection *files = calloc(1, sizeof *files);
    XXH3_state_t *state = XXH3_createState();
    bool done = files != NULL && state != NULL;
    if (done) {
        files->backend = has_tiles ? variant_backend_name(backend) : NULL;
        for (size_t i = 0; tuning_kernels_file(op, i) != NULL; i++)
            add(files, tuning_kernels_file(op, i), strlen(tuning_kernels_file(op, i)));
        XXH3_64bits_reset(state);
        done = files->count > 0 && hash_files(dir, files, state);
    }
    if (done)
        snprintf(text, 17, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    free(files);
    return done;
}
