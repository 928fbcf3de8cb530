/* What clattn/variants.h tells of tuning rows. */
#include "choice.h"
#include "context.h"
#include "status.h"
#include "tensor.h"
#include "tuning_kernels.h"
#include "tuning_row.h"

#include <clattn/variants.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "queries=1..16,"; nothing where all are held. */
static size_t print_range(const char *name, const struct tuning_range *range, char *text, size_t size, size_t used) {
    if (range->least == 0 && range->most == INT64_MAX)
        return used;
    if (range->most == INT64_MAX)
        return used + (size_t)snprintf(text + used, size - used, "%s=%" PRId64 "..,", name, range->least);
    return used +
           (size_t)snprintf(text + used, size - used, "%s=%" PRId64 "..%" PRId64 ",", name, range->least, range->most);
}

static void print_problems(const struct tuning_row *row, char text[256]) {
    size_t used = 0;
    text[0] = '\0';
    used = print_range("queries", &row->queries, text, 256, used);
    used = print_range("keys", &row->keys, text, 256, used);
    used = print_range("heads", &row->heads, text, 256, used);
    used = print_range("sharing", &row->sharing, text, 256, used);
    if (row->causal >= 0)
        used += (size_t)snprintf(text + used, 256 - used, "causal=%d,", row->causal);
    if (used > 0)
        text[used - 1] = '\0';
}

static void fill(const struct tuning_row *row, clattn_tuning_row *out) {
    snprintf(out->op, sizeof out->op, "%s", variant_op_name(row->variant->op));
    snprintf(out->variant, sizeof out->variant, "%s", row->variant->name);
    snprintf(out->level, sizeof out->level, "%s", tuning_source_name(row->level));
    snprintf(out->dtype, sizeof out->dtype, "%s", row->dtype != 0 ? tensor_dtype_name(row->dtype) : "");
    snprintf(out->ignored, sizeof out->ignored, "%s", row->stale != NULL ? row->stale : "");
    out->user = row->user;
    out->prefers = row->prefers;
    out->min_size = row->size.least;
    out->max_size = row->size.most;
    if (row->prefers)
        print_problems(row, out->parameters);
    else
        parameters_print(&row->parameters, out->parameters, sizeof out->parameters);
}

clattn_status clattn_tuning_row_at(clattn_context *context, size_t index, clattn_tuning_row *row) {
    clattn_tuning_row filled = {0};
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(row == NULL, CLATTN_INVALID_ARGUMENT, "row is NULL");
    RETURN_IF(row->size < sizeof row->size, CLATTN_INVALID_ARGUMENT, "row: size is %zu, not set", row->size);
    const struct tuning_row *found = tuning_row_at(context->tuning, index);
    filled.size = row->size;
    if (found != NULL)
        fill(found, &filled);
    memcpy(row, &filled, filled.size < sizeof filled ? filled.size : sizeof filled);
    return CLATTN_SUCCESS;
}

clattn_status clattn_tuning_kernels(clattn_context *context, clattn_op_kind kind, const char *variant, char *hash,
                                    size_t hash_size) {
    const struct variant *row = NULL;
    char text[17];
    RETURN_IF(context == NULL, CLATTN_INVALID_ARGUMENT, "context is NULL");
    RETURN_IF(hash == NULL || hash_size < sizeof text, CLATTN_INVALID_ARGUMENT,
              "hash is NULL, or hash_size = %zu is less than %zu", hash_size, sizeof text);
    if (variant != NULL)
        FORWARD(choice_find(kind, variant, &row));
    RETURN_IF(!tuning_kernels_hash(context->cl_dir, kind, row != NULL ? row->backend : TUNING_KERNELS_ALL, text),
              CLATTN_UNSUPPORTED, "kind: %s has no kernels to tune, or they cannot be read", variant_op_name(kind));
    memcpy(hash, text, sizeof text);
    return CLATTN_SUCCESS;
}
