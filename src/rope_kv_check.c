/* Checks of clattn_rope_append(): every tensor by itself, then against each other. */
#include "quantization.h"
#include "rope_kv.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <math.h>

enum { BATCH, HEAD, ROW, COLUMN };

#define VALUES (1u << CLATTN_F32 | 1u << CLATTN_F16 | 1u << CLATTN_BF16)
#define MOST_ROTARY 1024
#define MOST_FREQUENCY_SCALE 4.0

static int64_t dim_of(const clattn_tensor *tensor, int dim) {
    return tensor_is_present(tensor) ? tensor->dims[dim] : 0;
}

struct rope_shape rope_kv_shape(const clattn_rope_append_op *op) {
    const clattn_tensor *first = tensor_is_present(&op->q) ? &op->q : tensor_is_present(&op->k) ? &op->k : &op->v;
    const clattn_tensor *of_kv = tensor_is_present(&op->k) ? &op->k : &op->v;
    const clattn_tensor *cache = tensor_is_present(&op->k_cache) ? &op->k_cache : &op->v_cache;
    struct rope_shape shape = {.batches = first->dims[BATCH],
                               .rows = first->dims[ROW],
                               .heads = dim_of(&op->q, HEAD),
                               .kv_heads = dim_of(of_kv, HEAD),
                               .head_dim = first == &op->v ? 0 : first->dims[COLUMN],
                               .value_dim = dim_of(&op->v, COLUMN),
                               .cache_rows = dim_of(cache, ROW)};
    shape.sequences = tensor_is_present(&op->q_offsets) ? op->q_offsets.dims[0] - 1 : shape.batches;
    shape.pages = tensor_is_present(&op->page_table) ? dim_of(cache, BATCH) : shape.sequences;
    shape.rotary_dim = op->rotary_dim == -1 ? shape.head_dim : op->rotary_dim;
    return shape;
}

/* ---- tensors of values ------------------------------------------------------------------------------------------- */

static clattn_status check_pairs(const clattn_rope_append_op *op) {
    const struct check_named pairs[][2] = {{{"q", &op->q}, {"q_out", &op->q_out}},
                                           {{"k", &op->k}, {"k_cache", &op->k_cache}},
                                           {{"v", &op->v}, {"v_cache", &op->v_cache}},
                                           {{"cos", &op->cos}, {"sin", &op->sin}}};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            RETURN_IF(!tensor_is_present(pairs[i][j].tensor) && tensor_is_present(pairs[i][1 - j].tensor),
                      CLATTN_INVALID_ARGUMENT, "%s is absent, but %s is given", pairs[i][j].name, pairs[i][1 - j].name);
    RETURN_IF(!tensor_is_present(&op->q) && !tensor_is_present(&op->k) && !tensor_is_present(&op->v),
              CLATTN_INVALID_ARGUMENT, "q, k and v are absent: there is nothing to do");
    return CLATTN_SUCCESS;
}

static clattn_status check_floats(clattn_context *context, const char *name, const clattn_tensor *tensor, int rank,
                                  unsigned dtypes, enum check_access access) {
    FORWARD(check_dtype(name, tensor, dtypes)); /* first: a wrong one makes the extent wrong too */
    FORWARD(check_tensor(context, name, tensor, access));
    FORWARD(check_rank(name, tensor, rank));
    for (int i = 0; i < rank; i++)
        RETURN_IF(tensor->dims[i] > INT32_MAX, CLATTN_INVALID_ARGUMENT,
                  "%s: dims[%d] = %" PRId64 " is more than 2^31 - 1", name, i, tensor->dims[i]);
    return check_innermost_dense(name, tensor);
}

static clattn_status check_values(clattn_context *context, const char *name, const clattn_tensor *tensor, int rank,
                                  enum check_access access) {
    return check_floats(context, name, tensor, rank, VALUES, access);
}

static clattn_status check_new(clattn_context *context, const char *name, const clattn_tensor *tensor, int64_t heads,
                               int64_t columns, const struct rope_shape *shape) {
    if (!tensor_is_present(tensor))
        return CLATTN_SUCCESS;
    FORWARD(check_values(context, name, tensor, 4, CHECK_INPUT));
    FORWARD(check_dim(name, tensor, BATCH, shape->batches, "q, k and v have the same"));
    FORWARD(check_dim(name, tensor, HEAD, heads, "k and v have the same"));
    FORWARD(check_dim(name, tensor, ROW, shape->rows, "q, k and v have the same"));
    return check_dim(name, tensor, COLUMN, columns, "q and k have the same");
}

static clattn_status check_rows(clattn_context *context, const clattn_rope_append_op *op,
                                const struct rope_shape *shape) {
    FORWARD(check_new(context, "q", &op->q, shape->heads, shape->head_dim, shape));
    FORWARD(check_new(context, "k", &op->k, shape->kv_heads, shape->head_dim, shape));
    FORWARD(check_new(context, "v", &op->v, shape->kv_heads, shape->value_dim, shape));
    if (!tensor_is_present(&op->q))
        return CLATTN_SUCCESS;
    FORWARD(check_values(context, "q_out", &op->q_out, 4, CHECK_OUTPUT));
    for (int i = 0; i < 4; i++)
        FORWARD(check_dim("q_out", &op->q_out, i, op->q.dims[i], "q has it too"));
    return CLATTN_SUCCESS;
}

/* ---- lengths, offsets, tables ------------------------------------------------------------------------------------ */

static clattn_status check_ints(clattn_context *context, const char *name, const clattn_tensor *tensor, int rank) {
    FORWARD(check_dtype(name, tensor, 1u << CLATTN_I32));
    FORWARD(check_tensor(context, name, tensor, CHECK_INPUT));
    return check_rank(name, tensor, rank);
}

static clattn_status check_per_sequence(clattn_context *context, const char *name, const clattn_tensor *tensor,
                                        const struct rope_shape *shape) {
    if (!tensor_is_present(tensor))
        return CLATTN_SUCCESS;
    FORWARD(check_ints(context, name, tensor, 1));
    FORWARD(check_dim(name, tensor, 0, shape->sequences, "the number of sequences"));
    return check_innermost_dense(name, tensor);
}

static clattn_status check_offsets(clattn_context *context, const clattn_rope_append_op *op,
                                   const struct rope_shape *shape) {
    if (!tensor_is_present(&op->q_offsets))
        return CLATTN_SUCCESS;
    FORWARD(check_ints(context, "q_offsets", &op->q_offsets, 1));
    FORWARD(check_innermost_dense("q_offsets", &op->q_offsets));
    const int64_t ends = op->q_offsets.dims[0];
    RETURN_IF(ends < 1 || ends > INT32_MAX, CLATTN_INVALID_ARGUMENT,
              "q_offsets: dims[0] = %" PRId64 ", of B sequences it is B + 1", ends);
    RETURN_IF(shape->batches != 1, CLATTN_INVALID_ARGUMENT, "%s: dims[0] = %" PRId64 ", with q_offsets it must be 1",
              tensor_is_present(&op->q)   ? "q"
              : tensor_is_present(&op->k) ? "k"
                                          : "v",
              shape->batches);
    return CLATTN_SUCCESS;
}

static clattn_status check_sequences(clattn_context *context, const clattn_rope_append_op *op,
                                     const struct rope_shape *shape) {
    FORWARD(check_offsets(context, op, shape));
    FORWARD(check_per_sequence(context, "k_lengths", &op->k_lengths, shape));
    FORWARD(check_per_sequence(context, "q_lengths", &op->q_lengths, shape));
    FORWARD(check_per_sequence(context, "position_offsets", &op->position_offsets, shape));
    if (tensor_is_present(&op->positions)) {
        FORWARD(check_ints(context, "positions", &op->positions, 2));
        FORWARD(check_dim("positions", &op->positions, 0, shape->batches, "the new rows have it too"));
        FORWARD(check_dim("positions", &op->positions, 1, shape->rows, "the number of new rows"));
    }
    if (!tensor_is_present(&op->page_table))
        return CLATTN_SUCCESS;
    FORWARD(check_ints(context, "page_table", &op->page_table, 2));
    FORWARD(check_dim("page_table", &op->page_table, 0, shape->sequences, "the number of sequences"));
    RETURN_IF(op->page_table.dims[1] > INT32_MAX, CLATTN_INVALID_ARGUMENT,
              "page_table: dims[1] = %" PRId64 " is more than 2^31 - 1", op->page_table.dims[1]);
    return check_innermost_dense("page_table", &op->page_table);
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */

static clattn_status check_cache(clattn_context *context, const clattn_rope_append_op *op,
                                 const struct quantized *cache, int64_t columns, const struct rope_shape *shape) {
    const bool paged = tensor_is_present(&op->page_table);
    const clattn_tensor *tensor = cache->tensor;
    if (!tensor_is_present(tensor)) {
        RETURN_IF(tensor_is_present(&cache->quantization->scales) || tensor_is_present(&cache->quantization->zeros),
                  CLATTN_INVALID_ARGUMENT, "%s_quantization is given, but %s is absent", cache->prefix, cache->name);
        return CLATTN_SUCCESS;
    }
    FORWARD(check_floats(context, cache->name, tensor, 4, VALUES | QUANTIZATION_DTYPES, CHECK_OUTPUT));
    RETURN_IF(paged && tensor->dims[ROW] == 0, CLATTN_INVALID_ARGUMENT,
              "%s: dims[2] = 0, with page_table it is the size of a page", cache->name);
    FORWARD(check_dim(cache->name, tensor, BATCH, shape->pages,
                      paged ? "k_cache and v_cache have the same" : "the number of sequences"));
    FORWARD(check_dim(cache->name, tensor, HEAD, shape->kv_heads, "the heads of k and v"));
    FORWARD(check_dim(cache->name, tensor, ROW, shape->cache_rows, "k_cache and v_cache have the same"));
    FORWARD(check_dim(cache->name, tensor, COLUMN, columns, "the new rows have it too"));
    return quantization_check(context, cache, CHECK_OUTPUT);
}

static struct quantized k_of(const clattn_rope_append_op *op) {
    return (struct quantized){"k_cache", "k", &op->k_cache, &op->k_quantization};
}

static struct quantized v_of(const clattn_rope_append_op *op) {
    return (struct quantized){"v_cache", "v", &op->v_cache, &op->v_quantization};
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

static clattn_status check_table(clattn_context *context, const char *name, const clattn_tensor *table,
                                 const clattn_rope_append_op *op, int64_t pairs) {
    FORWARD(check_values(context, name, table, 2, CHECK_INPUT));
    FORWARD(check_dim(name, table, 0, op->cos.dims[0], "cos has it too"));
    return check_dim(name, table, 1, pairs, "half of rotary_dim");
}

static clattn_status check_angles(const clattn_rope_append_op *op) {
    RETURN_IF(!isfinite(op->rope_base) || op->rope_base < 1, CLATTN_INVALID_ARGUMENT,
              "rope_base = %g is not finite and at least 1", op->rope_base);
    RETURN_IF(!(fabs(op->frequency_scale) <= MOST_FREQUENCY_SCALE), CLATTN_INVALID_ARGUMENT,
              "frequency_scale = %g is not in -4..4", op->frequency_scale);
    return CLATTN_SUCCESS;
}

static clattn_status check_rotation(clattn_context *context, const clattn_rope_append_op *op,
                                    const struct rope_shape *shape) {
    RETURN_IF(op->style != CLATTN_ROPE_HALF_SPLIT && op->style != CLATTN_ROPE_INTERLEAVED, CLATTN_INVALID_ARGUMENT,
              "style = %d is no clattn_rope_style", (int)op->style);
    RETURN_IF(shape->rotary_dim < 0 || shape->rotary_dim % 2 != 0 || shape->rotary_dim > MOST_ROTARY,
              CLATTN_INVALID_ARGUMENT, "rotary_dim = %" PRId64 " is not even and in 0..%d", shape->rotary_dim,
              MOST_ROTARY);
    const bool turns = tensor_is_present(&op->q) || tensor_is_present(&op->k);
    RETURN_IF(turns && shape->rotary_dim > shape->head_dim, CLATTN_INVALID_ARGUMENT,
              "rotary_dim = %" PRId64 " is more than the head dim, %" PRId64, shape->rotary_dim, shape->head_dim);
    if (!tensor_is_present(&op->cos))
        return check_angles(op);
    FORWARD(check_table(context, "cos", &op->cos, op, shape->rotary_dim / 2));
    return check_table(context, "sin", &op->sin, op, shape->rotary_dim / 2);
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

/* What a cache of codes is written with; the scales of fp8 are only read. */
static clattn_tensor written(const clattn_tensor *cache, const clattn_tensor *plane) {
    return cache->dtype == CLATTN_F8_E4M3 ? (clattn_tensor){.rank = 0} : *plane;
}

static clattn_tensor read_only(const clattn_tensor *cache, const clattn_tensor *plane) {
    return cache->dtype == CLATTN_F8_E4M3 ? *plane : (clattn_tensor){.rank = 0};
}

enum { OUTPUTS = 7, TENSORS = 20 };

/* Scales and zeros of a cache may lie between its codes, which is looked at apart. */
static clattn_status check_apart(const clattn_rope_append_op *op) {
    const clattn_tensor none = {.rank = 0};
    const clattn_tensor k_codes = quantization_extent(&op->k_cache, &op->k_quantization);
    const clattn_tensor v_codes = quantization_extent(&op->v_cache, &op->v_quantization);
    const clattn_tensor k_scales = written(&op->k_cache, &op->k_quantization.scales);
    const clattn_tensor v_scales = written(&op->v_cache, &op->v_quantization.scales);
    const clattn_tensor k_read = read_only(&op->k_cache, &op->k_quantization.scales);
    const clattn_tensor v_read = read_only(&op->v_cache, &op->v_quantization.scales);
    struct check_named tensors[TENSORS] = {
        {"q_out", &op->q_out},
        {"k_cache", &k_codes},
        {"v_cache", &v_codes},
        {"k_quantization.scales", &k_scales},
        {"k_quantization.zeros", &op->k_quantization.zeros},
        {"v_quantization.scales", &v_scales},
        {"v_quantization.zeros", &op->v_quantization.zeros},
        {"q", check_same_view(&op->q, &op->q_out) ? &none : &op->q},
        {"k", &op->k},
        {"v", &op->v},
        {"cos", &op->cos},
        {"sin", &op->sin},
        {"k_lengths", &op->k_lengths},
        {"page_table", &op->page_table},
        {"positions", &op->positions},
        {"position_offsets", &op->position_offsets},
        {"q_lengths", &op->q_lengths},
        {"q_offsets", &op->q_offsets},
        {"k_quantization.scales", &k_read},
        {"v_quantization.scales", &v_read},
    };
    const struct check_named planes[] = {tensors[3], tensors[4], tensors[5], tensors[6]};
    for (int i = 0; i < 2; i++) {
        FORWARD(check_disjoint(planes[i].name, planes[i].tensor, "v_cache", &v_codes));
        FORWARD(check_disjoint(planes[i + 2].name, planes[i + 2].tensor, "k_cache", &k_codes));
    }
    /* codes against all but the planes, then planes against all but the codes */
    for (int i = 3; i < OUTPUTS; i++)
        tensors[i].tensor = &none;
    FORWARD(check_all_disjoint(tensors, 3, TENSORS));
    for (int i = 0; i < 4; i++)
        tensors[i + 3] = planes[i];
    tensors[1].tensor = tensors[2].tensor = &none;
    return check_all_disjoint(tensors, OUTPUTS, TENSORS);
}

clattn_status rope_kv_check(clattn_context *context, const clattn_rope_append_op *op) {
    FORWARD(check_pairs(op));
    const struct rope_shape shape = rope_kv_shape(op);
    const struct quantized k = k_of(op), v = v_of(op);
    FORWARD(check_rows(context, op, &shape));
    FORWARD(check_sequences(context, op, &shape));
    FORWARD(check_cache(context, op, &k, shape.head_dim, &shape));
    FORWARD(check_cache(context, op, &v, shape.value_dim, &shape));
    FORWARD(check_rotation(context, op, &shape));
    FORWARD(quantization_check_apart(&k));
    FORWARD(quantization_check_apart(&v));
    return check_apart(op);
}
