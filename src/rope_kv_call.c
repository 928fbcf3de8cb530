/* The arguments of the kernel of clattn_rope_append(), which goes to it as one struct. */
#include "quantization.h"
#include "rope_kv.h"
#include "tensor.h"

#include <math.h>

enum { BATCH, HEAD, ROW, COLUMN };

static struct rope_view view_of(const clattn_tensor *tensor) {
    return (struct rope_view){tensor->offset, tensor->strides[BATCH], tensor->strides[HEAD], tensor->strides[ROW]};
}

static struct rope_view cache_view(const clattn_tensor *cache, const clattn_quantization *quantization) {
    const clattn_tensor bytes = quantization_extent(cache, quantization);
    return view_of(&bytes);
}

/* Of fp8, a scale a head. */
static struct rope_plane plane_of(const clattn_tensor *tensor) {
    if (tensor->rank == 1)
        return (struct rope_plane){.rows = {.offset = tensor->offset, .inner = tensor->strides[0]}};
    return (struct rope_plane){view_of(tensor), tensor->strides[COLUMN]};
}

/* A fraction of 64 bits; 1 becomes the largest. */
static uint64_t fraction(long double value) {
    const long double units = ldexpl(value, 64);
    return units < 0x1p64L ? (uint64_t)units : UINT64_MAX;
}

/* long double, because the largest positions take all of a double's digits. */
static void set_frequencies(struct rope_call *call, const clattn_rope_append_op *op) {
    const long double turn = 6.283185307179586476925286766559L;
    long double power = call->rotary_dim > 0 ? powl((long double)op->rope_base, -2.0L / call->rotary_dim) : 1;
    call->first_frequency = fraction((long double)fabs(op->frequency_scale) / turn);
    for (int k = 0; k < ROPE_POWERS; k++, power *= power)
        call->power[k] = fraction(power);
    call->direction = op->frequency_scale < 0 ? -1 : 1;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Work-items of the longest row: pairs of packets that turn, then single ones, which are never fewer than blocks. */
static int64_t count_units(const struct rope_shape *shape, int64_t vector) {
    const int64_t turned = shape->head_dim == 0 ? 0 : shape->head_dim - shape->rotary_dim / 2;
    return (most(turned, shape->value_dim) + vector - 1) / vector;
}

/* Heads that share an angle, as far as work-items remain to fill the device. */
static int32_t count_together(const struct device_facts *facts, const struct rope_shape *shape, int64_t items) {
    const bool cpu = (facts->caps & CAP_BIT(CAP_CPU)) != 0;
    const int64_t resident = (int64_t)facts->compute_units * (cpu ? 64 : 1024);
    const int64_t sizes[] = {items, most(shape->heads, shape->kv_heads)};
    return (int32_t)most(1, least(8, check_product(sizes, 2) / resident));
}

static void set_places(struct rope_call *call, const clattn_rope_append_op *op) {
    call->page_table = op->page_table.offset;
    call->page_table_row = op->page_table.strides[0];
    call->max_pages = (int32_t)op->page_table.dims[1];
    call->k_lengths = op->k_lengths.offset;
    call->q_lengths = op->q_lengths.offset;
    call->q_offsets = op->q_offsets.offset;
    call->position_offsets = op->position_offsets.offset;
    call->positions = op->positions.offset;
    call->positions_batch = op->positions.strides[0];
    call->positions_row = op->positions.strides[1];
    call->cos = op->cos.offset;
    call->cos_row = op->cos.strides[0];
    call->sin = op->sin.offset;
    call->sin_row = op->sin.strides[0];
    call->table_rows = (int32_t)op->cos.dims[0];
}

struct rope_call rope_kv_call(const clattn_rope_append_op *op, const struct rope_shape *shape, int vector,
                              const struct device_facts *facts) {
    struct rope_call call = {
        .q = view_of(&op->q),
        .q_out = view_of(&op->q_out),
        .k = view_of(&op->k),
        .v = view_of(&op->v),
        .k_cache = cache_view(&op->k_cache, &op->k_quantization),
        .v_cache = cache_view(&op->v_cache, &op->v_quantization),
        .k_scales = plane_of(&op->k_quantization.scales),
        .k_zeros = plane_of(&op->k_quantization.zeros),
        .v_scales = plane_of(&op->v_quantization.scales),
        .v_zeros = plane_of(&op->v_quantization.zeros),
        .k_block_bytes = quantization_code_stride(&op->k_cache, &op->k_quantization),
        .v_block_bytes = quantization_code_stride(&op->v_cache, &op->v_quantization),
        .tokens = shape->batches * shape->rows,
        .batches = (int32_t)shape->sequences,
        .rows = (int32_t)shape->rows,
        .heads = (int32_t)shape->heads,
        .kv_heads = (int32_t)shape->kv_heads,
        .head_dim = (int32_t)shape->head_dim,
        .value_dim = (int32_t)shape->value_dim,
        .rotary_dim = (int32_t)shape->rotary_dim,
        .cache_rows = (int32_t)shape->cache_rows,
        .pages = (int32_t)shape->pages,
        .units = (int32_t)count_units(shape, vector),
    };
    call.heads_together = count_together(facts, shape, call.tokens * call.units);
    set_frequencies(&call, op);
    set_places(&call, op);
    return call;
}
