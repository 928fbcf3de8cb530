/* clattn: writing keys and values to a cache, and keeping account of a cache's pages. MIT licence. Calls follow the
 * rules of clattn.h. */
#ifndef CLATTN_KV_CACHE_H
#define CLATTN_KV_CACHE_H

#include <clattn/clattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rotate and append ------------------------------------------------------------------------------------------- */

/* Which elements of a row turn together. */
typedef enum clattn_rope_style {
    CLATTN_ROPE_HALF_SPLIT = 0, /* element i turns with i + rotary_dim / 2 (GPT-NeoX, Llama) */
    CLATTN_ROPE_INTERLEAVED = 1 /* element 2i turns with 2i + 1 (GPT-J) */
} clattn_rope_style;

/* Turns new queries and keys by their positions (RoPE, arXiv:2104.09864) and appends the keys and values to a cache, in
 * one launch.
 *
 *   q, q_out [B,Hq,N,D]  k [B,Hkv,N,D]  v [B,Hkv,N,Dv]  k_cache [B,Hkv,Nmax,D]  v_cache [B,Hkv,Nmax,Dv]
 *
 * Each of the pairs q and q_out, k and k_cache, v and v_cache is optional; values are not turned. Every tensor has a
 * dtype of its own and innermost stride 1. q_out may be exactly q, and tensors may lie interleaved in one buffer
 * (packed QKV); other overlap is refused.
 *
 * Row i of sequence b goes to row k_lengths[b] + i of its cache; lengths are read on the device, and left for the
 * caller to increase. A cache in pages is [pages,Hkv,page_size,..], and row j of sequence b lies in row j % page_size
 * of page page_table[b][j / page_size]; other page layouts are a choice of strides. No two sequences may write to one
 * page's row. What does not lie in the cache is dropped: rows beyond its end, rows of a sequence whose length is
 * negative, and those of pages that do not exist. A row whose position the tables do not have is dropped from q_out
 * too.
 *
 * The first rotary_dim elements of a row turn: pair i by the angle position * frequency_scale * rope_base^(-2 i /
 * rotary_dim), where the position is positions[b][i], or else k_lengths[b] + i, to which position_offsets[b] is added
 * in any case. Angles are worked out in 64-bit fixed point, so that sine and cosine are off by less than 2e-7 at any
 * position of 32 bits. Or they come from the rows `position` of the tables cos and sin. Either is multiplied in fp32.
 *
 * Caches may hold codes (clattn_quantization), whose scales and zeros are written with them in fp16, scales rounded up
 * and zeros to nearest before the codes are worked out, so that |value - its code's value| is at most half a scale
 * where nothing is said:
 *
 *   CLATTN_I8, CLATTN_I4        scale = max|x| / 127, max|x| / 7
 *   the same with zeros         scale = (max - min) / 255, / 15, but at least max|x| / 1920, and
 *                               zero = -128 - min / scale, 0 - min / scale; off by at most a whole scale
 *   CLATTN_F8_E4M3              the code nearest to x / scale[kv head], which the caller gives; what is too large
 *                               becomes the largest
 *
 * A block that holds NaN or infinity gets a scale of NaN, an element of CLATTN_F8_E4M3 becomes NaN alone, and every one
 * of a head whose scale is 0. */
typedef struct clattn_rope_append_op {
    clattn_op head;
    clattn_tensor q, q_out, k, v, k_cache, v_cache;
    clattn_rope_style style;
    int32_t rotary_dim;     /* even, 0..1024 and at most D: 0 turns nothing; default -1: D */
    double rope_base;       /* at least 1; default 10000 */
    double frequency_scale; /* -4..4; default 1. Negative turns back: the gradient of a rotation */

    /* All of what follows is optional. The innermost stride is 1, but for that of positions, which may be any. */
    clattn_tensor cos, sin;         /* [table_rows, rotary_dim / 2]; in place of rope_base and frequency_scale */
    clattn_tensor k_lengths;        /* I32 [B]: rows that the cache holds of each sequence; default 0 */
    clattn_tensor page_table;       /* I32 [B,max_pages] */
    clattn_tensor positions;        /* I32 [B,N] */
    clattn_tensor position_offsets; /* I32 [B]; default 0 */
    clattn_tensor q_lengths;        /* I32 [B]: new rows from there on are neither turned nor appended; default N */
    /* New rows one behind the other: sequence b is rows q_offsets[b] .. q_offsets[b + 1] - 1 of q, q_out [1,Hq,total,D]
     * and of k, v likewise; positions is [1,total]. Rows of no sequence are not written. */
    clattn_tensor q_offsets; /* I32 [B+1] */

    /* Of caches of codes. */
    clattn_quantization k_quantization, v_quantization;
} clattn_rope_append_op;

CLATTN_API void clattn_rope_append_init(clattn_rope_append_op *op);
CLATTN_API clattn_status clattn_rope_append(clattn_context *context, const clattn_rope_append_op *op,
                                            const clattn_launch *launch);

/* ---- attention over a shared prefix ------------------------------------------------------------------------------ */

/* Attention of sequences whose keys begin alike (a system prompt): over the keys of the prefix, which are there once,
 * and then those of each sequence. The prefix is gone through for the queries of all sequences together, the rest by
 * itself, both in fp32 into the workspace, and the two results are merged.
 *
 *   prefix_k [1,Hkv,Np,D]  prefix_v [1,Hkv,Np,Dv], of q's dtype, innermost stride 1; not in suffix.o or suffix.lse
 *
 * suffix is a call of attention with everything that it may have but window, mask, bias and alibi: q, o and lse are
 * those of the whole, and its lengths, offsets, pages and causal limit are of the sequence's own keys alone. Every
 * query row sees the whole prefix, but those from q_lengths or max_q on, which give o = 0, lse = -inf. scale and
 * softcap hold for all keys; a sink is counted once. The queries share their reads of the prefix where q has batch
 * strides of Nq rows (Nq = 1 has), or q_offsets; not with q_lengths, or a max_q below Nq. Errors name members of suffix
 * as attention does. */
typedef struct clattn_attention_cascade_op {
    clattn_op head;
    clattn_tensor prefix_k, prefix_v;
    clattn_attention_op suffix;
} clattn_attention_cascade_op;

CLATTN_API void clattn_attention_cascade_init(clattn_attention_cascade_op *op);
CLATTN_API clattn_status clattn_attention_cascade(clattn_context *context, const clattn_attention_cascade_op *op,
                                                  const clattn_launch *launch);

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Which pages of a cache belong to which sequence: an account in host memory that touches no cache itself. A runtime
 * may use it to fill page_table and k_lengths, or ignore it. Pages and sequences are numbers from 0 on. Sequences that
 * were forked share pages until one of them writes. Every call may be made from several threads at once on one pool,
 * but for its release. A call that fails changes nothing. */
typedef struct clattn_page_pool clattn_page_pool;

/* page_size: rows of a page; max_pages: the most that a sequence can have, the width of page tables. */
CLATTN_API clattn_status clattn_page_pool_create(int32_t pages, int32_t page_size, int32_t max_pages,
                                                 clattn_page_pool **out);
/* Sets *pool to NULL; NULL is accepted. */
CLATTN_API void clattn_page_pool_release(clattn_page_pool **pool);

/* An empty sequence; its number was free. */
CLATTN_API clattn_status clattn_page_pool_add(clattn_page_pool *pool, int32_t *sequence);
/* A sequence of the same length on the same pages. */
CLATTN_API clattn_status clattn_page_pool_fork(clattn_page_pool *pool, int32_t sequence, int32_t *forked);
/* Gives the pages back that no other sequence has. */
CLATTN_API clattn_status clattn_page_pool_remove(clattn_page_pool *pool, int32_t sequence);

/* Before the rows are written, the first `rows` rows of page `from` must be copied to page `to`. */
typedef struct clattn_page_copy {
    int32_t from, to; /* -1: nothing is to be copied */
    int32_t rows;
} clattn_page_copy;

/* Makes room for so many further rows, which then count as the sequence's. Where its last page is incomplete and shared
 * the sequence gets another in its place, and *copy says what to copy. CLATTN_OUT_OF_DEVICE_MEMORY where too few pages
 * are free. */
CLATTN_API clattn_status clattn_page_pool_append(clattn_page_pool *pool, int32_t sequence, int64_t rows,
                                                 clattn_page_copy *copy);
/* Drops rows from `length` on. */
CLATTN_API clattn_status clattn_page_pool_truncate(clattn_page_pool *pool, int32_t sequence, int64_t length);

/* The rows that the sequence has. */
CLATTN_API clattn_status clattn_page_pool_length(clattn_page_pool *pool, int32_t sequence, int64_t *length);
/* Pages that no sequence has, and sequences. Either pointer may be NULL. */
CLATTN_API clattn_status clattn_page_pool_count(clattn_page_pool *pool, int32_t *free_pages, int32_t *sequences);
/* The sequence's row of a page table, max_pages entries: its pages, then -1. */
CLATTN_API clattn_status clattn_page_pool_table(clattn_page_pool *pool, int32_t sequence, int32_t *row);
/* Enqueues writes of the rows of `count` sequences to table, I32 [count,max_pages], and of their lengths to lengths,
 * I32 [count], either of which may be absent; a sequence of -1 has no pages and length 0. What is written is how things
 * are at the time of the call. */
CLATTN_API clattn_status clattn_page_pool_upload(clattn_context *context, clattn_page_pool *pool, int32_t count,
                                                 const int32_t *sequences, const clattn_tensor *table,
                                                 const clattn_tensor *lengths, const clattn_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
