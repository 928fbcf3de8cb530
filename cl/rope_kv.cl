/* Turns new queries and keys by their positions and appends keys and values to a cache. A work-item takes one unit of a
 * token's row, for some heads one after the other: a pair of packets that turn together, whose angles it works out
 * once, or a packet that is only converted. So that queries may be turned in place, nobody else reads what it writes.
 * Of a cache of codes in blocks a unit is a block. */

/* Parameters, all given by src/rope_kv.c. A dtype is a number of clattn_dtype, 0 where the tensor is absent.
 *
 * Q_DTYPE, Q_OUT_DTYPE, K_DTYPE, V_DTYPE, K_CACHE_DTYPE, V_CACHE_DTYPE, COS_DTYPE, SIN_DTYPE
 * K_BLOCK, V_BLOCK    elements of the cache that share a scale; 0: it is not in blocks
 * K_NIBBLES, K_ZEROS, K_ALIGNMENT, and of V   as code_format_t of quantize.clh
 * INTERLEAVED         1: neighbours turn together; 0: an element and the one half of rotary_dim after it
 * VECTOR              elements of a packet; divides rotary_dim / 2
 * ALIGNED             1: packets start at multiples of their size
 * GROUP               work-items of a work-group
 * UNROLL              of quantize.clh
 * HALF_TYPE           where defined: the device has the type half */

#define PARTIAL 1
#include "packet.clh"
#include "quantize.clh"
#include "rope.clh"
#include "view.clh"

/* Scales or zero points of a cache of codes; of fp8, only offset and inner. */
typedef struct {
    view_t rows;
    long block; /* between blocks of a row */
} plane_t;

/* Mirrored by src/rope_kv.h. Offsets and strides are in elements, of codes in bytes. */
typedef struct {
    view_t q, q_out, k, v, k_cache, v_cache;
    plane_t k_scales, k_zeros, v_scales, v_zeros;
    long k_block_bytes, v_block_bytes; /* from a block of codes to the next */
    frequencies_t frequencies;
    long page_table, page_table_row;
    long k_lengths, q_lengths, q_offsets, position_offsets;
    long positions, positions_batch, positions_row;
    long cos, cos_row, sin, sin_row;
    long tokens;       /* rows of all batches */
    int batches, rows; /* sequences; rows of a batch of the new tensors */
    int heads, kv_heads;
    int head_dim, value_dim, rotary_dim;
    int cache_rows, pages, max_pages; /* rows of a cache or a page */
    int table_rows;
    int heads_together; /* of a work-item */
    int units;          /* of the longest row */
    float direction;    /* -1: angles are negative */
} call_t;

/* Where a new row comes from, where it goes to, and its position. */
typedef struct {
    int batch, row; /* of the new tensors */
    long position;
    long page, target; /* first dim and row of the cache; page < 0: dropped */
    bool exists;
} token_t;

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* The last sequence that starts at or before a row. */
static inline int find_sequence(const global int *offsets, int batches, int row) {
    int low = 0, high = batches;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline void locate_target(token_t *token, const call_t *call, const global int *page_table, int sequence,
                                 int length, long target) {
    token->page = sequence;
    token->target = target;
    if (page_table) {
        const long entry = target / call->cache_rows;
        const bool listed = length >= 0 && entry < call->max_pages;
        const int page = listed ? page_table[call->page_table + sequence * call->page_table_row + entry] : -1;
        token->page = page < call->pages ? page : -1;
        token->target = target % call->cache_rows;
    } else if (length < 0 || target >= call->cache_rows) {
        token->page = -1;
    }
}

static inline token_t token_of(const call_t *call, long number, const global int *page_table,
                               const global int *k_lengths, const global int *q_lengths, const global int *q_offsets,
                               const global int *positions, const global int *position_offsets) {
    token_t token;
    token.batch = (int)(number / call->rows);
    token.row = (int)(number % call->rows);
    int sequence = token.batch, index = token.row, rows = call->rows;
    if (q_offsets) {
        const global int *offsets = q_offsets + call->q_offsets;
        sequence = find_sequence(offsets, call->batches, token.row);
        const int start = clamp(offsets[sequence], 0, call->rows);
        index = token.row - start;
        rows = clamp(offsets[sequence + 1], 0, call->rows) - start;
    }
    if (q_lengths)
        rows = min(rows, q_lengths[call->q_lengths + sequence]);
    token.exists = index >= 0 && index < rows;
    const int length = k_lengths ? k_lengths[call->k_lengths + sequence] : 0;
    const long target = (long)length + index;
    token.position = target;
    if (positions)
        token.position =
            positions[call->positions + token.batch * call->positions_batch + token.row * call->positions_row];
    if (position_offsets)
        token.position += position_offsets[call->position_offsets + sequence];
    if (COS_DTYPE != 0)
        token.exists = token.exists && token.position >= 0 && token.position < call->table_rows;
    locate_target(&token, call, page_table, sequence, length, target);
    return token;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* Columns of a unit: `low` and, where it turns, `high`; and what it turns by. */
typedef struct {
    uint low, high;
    bool turns;
    packet_t cos, sin;
} unit_t;

static inline float2 cos_sin_of(const call_t *call, const token_t *token, uint pair, const global byte_t *cos,
                                const global byte_t *sin) {
    if (COS_DTYPE != 0)
        return (float2)(element_load(cos, call->cos + token->position * call->cos_row + pair, COS_DTYPE),
                        element_load(sin, call->sin + token->position * call->sin_row + pair, SIN_DTYPE));
    float2 turn = rope_cos_sin((ulong)token->position * rope_frequency(&call->frequencies, pair));
    turn.y *= call->direction;
    return turn;
}

static inline unit_t unit_of(const call_t *call, const token_t *token, uint number, int rotary_dim,
                             const global byte_t *cos, const global byte_t *sin) {
    union packet_elements c, s;
    unit_t unit;
    const uint half_dim = (uint)rotary_dim / 2, pair = number * VECTOR;
    unit.turns = pair < half_dim;
    unit.low = unit.turns && INTERLEAVED ? 2 * pair : unit.turns ? pair : pair + half_dim;
    unit.high = INTERLEAVED ? unit.low + VECTOR : unit.low + half_dim;
    c.packet = s.packet = (packet_t)(0.0f);
    if (unit.turns) {
#pragma unroll
        for (uint i = 0; i < VECTOR; i++) {
            const float2 turn = cos_sin_of(call, token, pair + i, cos, sin);
            c.element[i] = turn.x;
            s.element[i] = turn.y;
        }
    }
    unit.cos = c.packet;
    unit.sin = s.packet;
    return unit;
}

/* Two neighbouring packets to those of their elements with even and with odd numbers, and back. */
static inline void split(packet_t *a, packet_t *b) {
    union packet_elements from[2], to[2];
    from[0].packet = *a, from[1].packet = *b;
#pragma unroll
    for (uint i = 0; i < 2 * VECTOR; i++)
        to[i % 2].element[i / 2] = from[i / VECTOR].element[i % VECTOR];
    *a = to[0].packet, *b = to[1].packet;
}

static inline void join(packet_t *a, packet_t *b) {
    union packet_elements from[2], to[2];
    from[0].packet = *a, from[1].packet = *b;
#pragma unroll
    for (uint i = 0; i < 2 * VECTOR; i++)
        to[i / VECTOR].element[i % VECTOR] = from[i % 2].element[i / 2];
    *a = to[0].packet, *b = to[1].packet;
}

/* scale: of fp8. */
static inline void store(global byte_t *out, long row, uint column, uint columns, packet_t packet, int dtype,
                         float scale) {
    if (dtype != DTYPE_F8_E4M3) {
        packet_store(out, row, column, columns, 1, packet, dtype);
        return;
    }
    const union packet_elements from = {packet};
#pragma unroll
    for (uint i = 0; i < VECTOR; i++)
        if (column + i < columns)
            out[row + column + i] = float_to_f8(from.element[i] / scale);
}

/* One head's part of a unit. */
static inline void write_unit(const unit_t *unit, uint columns, const global byte_t *in, long from, int in_dtype,
                              global byte_t *out, long to, int out_dtype, float scale) {
    if (!unit->turns) {
        store(out, to, unit->low, columns, packet_load(in, from, unit->low, columns, 1, in_dtype, 0.0f), out_dtype,
              scale);
        return;
    }
    packet_t a = PACKET_LOAD(in, from + unit->low, in_dtype), b = PACKET_LOAD(in, from + unit->high, in_dtype);
    if (INTERLEAVED)
        split(&a, &b);
    packet_t c = a * unit->cos - b * unit->sin, d = b * unit->cos + a * unit->sin;
    if (INTERLEAVED)
        join(&c, &d);
    store(out, to, unit->low, columns, c, out_dtype, scale);
    store(out, to, unit->high, columns, d, out_dtype, scale);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The packet at a column as it is once its row has turned. */
static inline packet_t turned_packet(const call_t *call, const token_t *token, const global byte_t *in, long row,
                                     int dtype, uint column, uint columns, uint rotary_dim, const global byte_t *cos,
                                     const global byte_t *sin) {
    const uint half_dim = rotary_dim / 2;
    union packet_elements own = {packet_load(in, row, column, columns, 1, dtype, 0.0f)}, other = own, turned;
    if (column >= rotary_dim)
        return own.packet;
    if (!INTERLEAVED || VECTOR == 1) {
        const uint partner = INTERLEAVED ? column ^ 1u : column < half_dim ? column + half_dim : column - half_dim;
        other.packet = PACKET_LOAD(in, row + partner, dtype);
    }
#pragma unroll
    for (uint i = 0; i < VECTOR; i++) {
        const uint at = column + i;
        const bool second = INTERLEAVED ? (at & 1u) != 0 : at >= half_dim;
        const float2 turn = cos_sin_of(call, token, INTERLEAVED ? at / 2 : second ? at - half_dim : at, cos, sin);
        const float with = INTERLEAVED && VECTOR > 1 ? own.element[(i ^ 1u) % VECTOR] : other.element[i];
        turned.element[i] = own.element[i] * turn.x + (second ? with : -with) * turn.y;
    }
    return turned.packet;
}

static inline long plane_at(const plane_t *plane, long batch, long head, long row, uint block) {
    return view_element(plane->rows, batch, head, row) + block * plane->block;
}

/* One block of a token's row. */
static inline void write_block(const call_t *call, const token_t *token, uint block, int columns, uint rotary_dim,
                               int head, const global byte_t *in, view_t in_view, int in_dtype, global byte_t *codes,
                               code_format_t stored, global ushort *scale, global ushort *zero,
                               const global byte_t *cos, const global byte_t *sin) {
    float values[MOST_BLOCK];
    const uint first = block * stored.block;
    const long from = view_element(in_view, token->batch, head, token->row);
    FOR_BLOCK(i, stored.block, VECTOR) {
        const union packet_elements packet = {
            turned_packet(call, token, in, from, in_dtype, first + i, (uint)columns, rotary_dim, cos, sin)};
#pragma unroll
        for (uint j = 0; j < VECTOR; j++)
            values[i + j] = packet.element[j];
    }
    block_write(values, min((uint)columns - first, stored.block), stored, codes, scale, zero);
}

/* ---- kernel ------------------------------------------------------------------------------------------------------ */

/* The heads of a work-item, and the place of its unit among the others of the row. */
typedef struct {
    int first, end;
    uint unit;
} share_t;

static inline void write_queries(const call_t *call, const token_t *token, share_t share, const global byte_t *q,
                                 global byte_t *q_out, const global byte_t *cos, const global byte_t *sin) {
    const unit_t unit = unit_of(call, token, share.unit, call->rotary_dim, cos, sin);
    if (unit.low >= (uint)call->head_dim)
        return;
    for (int head = share.first; head < share.end; head++)
        write_unit(&unit, (uint)call->head_dim, q, view_element(call->q, token->batch, head, token->row), Q_DTYPE,
                   q_out, view_element(call->q_out, token->batch, head, token->row), Q_OUT_DTYPE, 1.0f);
}

/* Keys or values: what differs comes as arguments, of which dtypes and `stored` are constants. */
static inline void append(const call_t *call, const token_t *token, share_t share, int columns, int rotary_dim,
                          const global byte_t *in, view_t in_view, int in_dtype, global byte_t *cache,
                          view_t cache_view, code_format_t stored, long block_bytes, const global byte_t *scales,
                          plane_t scale_plane, const global byte_t *zeros, plane_t zero_plane, const global byte_t *cos,
                          const global byte_t *sin) {
    const bool in_blocks = stored.block != 0;
    const unit_t unit = unit_of(call, token, share.unit, in_blocks ? 0 : rotary_dim, cos, sin);
    const uint column = in_blocks ? share.unit * stored.block : unit.low;
    if (column >= (uint)columns || token->page < 0)
        return;
    for (int head = share.first; head < share.end; head++) {
        const long to = view_element(cache_view, token->page, head, token->target);
        if (in_blocks) {
            global ushort *scale =
                (global ushort *)scales + plane_at(&scale_plane, token->page, head, token->target, share.unit);
            global ushort *zero =
                (global ushort *)zeros + plane_at(&zero_plane, token->page, head, token->target, share.unit);
            write_block(call, token, share.unit, columns, (uint)rotary_dim, head, in, in_view, in_dtype,
                        cache + to + share.unit * block_bytes, stored, scale, zero, cos, sin);
        } else {
            const float scale =
                stored.dtype == DTYPE_F8_E4M3
                    ? ((const global float *)scales)[scale_plane.rows.offset + head * scale_plane.rows.inner]
                    : 1.0f;
            write_unit(&unit, (uint)columns, in, view_element(in_view, token->batch, head, token->row), in_dtype, cache,
                       to, stored.dtype, scale);
        }
    }
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
rope_append(const global byte_t *q, global byte_t *q_out, const global byte_t *k, const global byte_t *v,
            global byte_t *k_cache, global byte_t *v_cache, global byte_t *k_scales, global byte_t *k_zeros,
            global byte_t *v_scales, global byte_t *v_zeros, const global byte_t *cos, const global byte_t *sin,
            const global int *page_table, const global int *k_lengths, const global int *q_lengths,
            const global int *q_offsets, const global int *positions, const global int *position_offsets,
            const call_t call) {
    const code_format_t k_stored = {K_CACHE_DTYPE, K_BLOCK, K_NIBBLES, K_ZEROS, K_ALIGNMENT};
    const code_format_t v_stored = {V_CACHE_DTYPE, V_BLOCK, V_NIBBLES, V_ZEROS, V_ALIGNMENT};
    const long number = (long)get_global_id(0);
    if (number / call.units >= call.tokens)
        return;
    const token_t token =
        token_of(&call, number / call.units, page_table, k_lengths, q_lengths, q_offsets, positions, position_offsets);
    if (!token.exists)
        return;
    const int together = call.heads_together, kv_groups = (call.kv_heads + together - 1) / together;
    const int q_groups = Q_DTYPE != 0 ? (call.heads + together - 1) / together : 0;
    const int k_groups = K_DTYPE != 0 ? kv_groups : 0, group = (int)get_group_id(1);
    const bool of_queries = group < q_groups, of_keys = !of_queries && group < q_groups + k_groups;
    const int of_part = of_queries ? group : of_keys ? group - q_groups : group - q_groups - k_groups;
    const int first = of_part * together;
    const share_t share = {first, min(first + together, of_queries ? call.heads : call.kv_heads),
                           (uint)(number % call.units)};
    if (of_queries)
        write_queries(&call, &token, share, q, q_out, cos, sin);
    else if (of_keys)
        append(&call, &token, share, call.head_dim, call.rotary_dim, k, call.k, K_DTYPE, k_cache, call.k_cache,
               k_stored, call.k_block_bytes, k_scales, call.k_scales, k_zeros, call.k_zeros, cos, sin);
    else if (V_DTYPE != 0)
        append(&call, &token, share, call.value_dim, 0, v, call.v, V_DTYPE, v_cache, call.v_cache, v_stored,
               call.v_block_bytes, v_scales, call.v_scales, v_zeros, call.v_zeros, cos, sin);
}
