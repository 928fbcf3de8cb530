/* clattn: attention kernels for OpenCL devices. MIT licence.
 *
 * This header holds the context, tensors and the inference operations. An operation is one struct (its tensors and
 * settings) and one call that takes it together with a launch struct (queue, events, workspace, forced variant).
 *
 * Every call checks its arguments first and enqueues nothing when it refuses. No call synchronises with the device,
 * reads device data on the host, allocates device memory, creates a queue or prints, with two exceptions: the first
 * call or clattn_prepare() of a variant that uses an optional capability tests it on a queue and buffers of its own,
 * which it releases and waits for; and matrix products through CLBlast use that library's own temporary buffers. Every
 * call may be made from several threads at once on one context; a workspace, and the tensors a call writes, belong to
 * that call until its event completes. */
#ifndef CLATTN_CLATTN_H
#define CLATTN_CLATTN_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the headers; clattn_version() has that of the library. */
#define CLATTN_VERSION_MAJOR 0
#define CLATTN_VERSION_MINOR 1
#define CLATTN_VERSION_PATCH 0

#if defined(__GNUC__)
#define CLATTN_API __attribute__((visibility("default")))
#else
#define CLATTN_API
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

/* What a call returns; clattn_last_error() has the exact reason. */
typedef enum clattn_status {
    CLATTN_SUCCESS = 0,
    CLATTN_INVALID_ARGUMENT = 1,    /* an argument breaks a rule of this header; nothing was enqueued */
    CLATTN_UNSUPPORTED = 2,         /* valid, but no variant on this device takes it; nothing was enqueued */
    CLATTN_WORKSPACE_TOO_SMALL = 3, /* see clattn_workspace_size(); nothing was enqueued */
    CLATTN_OUT_OF_HOST_MEMORY = 4,
    CLATTN_OUT_OF_DEVICE_MEMORY = 5,
    CLATTN_BUILD_FAILED = 6, /* the OpenCL compiler refused a program; the text carries its log */
    CLATTN_DEVICE_LOST = 7,  /* the device or its driver is gone, or an earlier command crashed it */
    CLATTN_OPENCL_ERROR = 8, /* any other OpenCL error; the text carries its code */
    CLATTN_INTERNAL_ERROR = 9,
    CLATTN_PEER_FAILED = 10 /* clattn/ring.h: another rank's call failed, or the transport between ranks */
} clattn_status;

/* "CLATTN_SUCCESS" and so on; never NULL. */
CLATTN_API const char *clattn_status_name(clattn_status status);

/* Why the calling thread's last call that did not return CLATTN_SUCCESS failed: the argument's name and value, the
 * OpenCL code, the build log. Valid until the thread's next clattn call; never NULL. */
CLATTN_API const char *clattn_last_error(void);

/* "0.1.0": the version of the library that is running. */
CLATTN_API const char *clattn_version(void);

/* ---- context ----------------------------------------------------------------------------------------------------- */

/* One device of an OpenCL context: its facts, its tuning rows, and the programs that were built for it. */
typedef struct clattn_context clattn_context;

/* From the most important to the least. */
typedef enum clattn_log_level {
    CLATTN_LOG_ERROR = 1,
    CLATTN_LOG_WARNING = 2,
    CLATTN_LOG_INFO = 3,
    CLATTN_LOG_DEBUG = 4
} clattn_log_level;

/* Called from whichever thread makes the call that logs; must not call clattn. */
typedef void (*clattn_log_function)(void *user, clattn_log_level level, const char *message);

/* Initialise with clattn_context_options_init(). Strings are copied. Where a member is unset, the named environment
 * variable is read, once, when the context is created; after that the environment is never read again. */
typedef struct clattn_context_options {
    size_t size;
    clattn_log_function log; /* NULL: silent */
    void *log_user;
    clattn_log_level log_level; /* least important level passed on; default CLATTN_LOG_WARNING (CLATTN_LOG) */
    const char *cl_dir;         /* a folder of kernels in place of the embedded ones (CLATTN_CL_DIR) */
    const char *cache_dir;      /* program cache; "" = off; NULL = CLATTN_CACHE_DIR, else XDG cache. Created 0700; it is
                                   trusted like the library itself and refused when others own it or may write to it */
    uint64_t cache_bytes;       /* the cache's bound; default 256 MiB */
    const char *tuning_db;      /* user tuning database; "" = none; NULL = CLATTN_TUNING_DB, else XDG data */
    const char *capabilities; /* only lowers what the device has: "none", or "all,-shuffle,-nvidia_mma" (CLATTN_CAPS) */
} clattn_context_options;

CLATTN_API void clattn_context_options_init(clattn_context_options *options);

/* Creates a handle for one device of the caller's OpenCL context. Retains context and device; runs nothing on the
 * device. options may be NULL. */
CLATTN_API clattn_status clattn_context_create(cl_context context, cl_device_id device,
                                               const clattn_context_options *options, clattn_context **out);

/* Releases the handle and sets *context to NULL; NULL is accepted. No call may be in progress on another thread;
 * enqueued work need not have finished. */
CLATTN_API void clattn_context_release(clattn_context **context);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Dims that a tensor can have. */
#define CLATTN_MAX_RANK 4

/* What an element of a tensor is stored as. */
typedef enum clattn_dtype {
    CLATTN_F32 = 1,
    CLATTN_F16 = 2,
    CLATTN_BF16 = 3,
    CLATTN_U8 = 4,     /* masks */
    CLATTN_I32 = 5,    /* lengths, offsets, page tables */
    CLATTN_I8 = 6,     /* codes of a quantised cache, as the next two: see clattn_quantization */
    CLATTN_I4 = 7,     /* two codes a byte, the low nibble first; dims, strides and offsets count codes */
    CLATTN_F8_E4M3 = 8 /* OCP fp8: up to 448, no infinities, NaN is 0x7f and 0xff */
} clattn_dtype;

/* What sort of memory a tensor lies in. */
typedef enum clattn_memory_kind {
    CLATTN_MEMORY_NONE = 0,  /* the tensor is absent */
    CLATTN_MEMORY_BUFFER = 1 /* an OpenCL buffer or sub-buffer; 2 and 3 are reserved for SVM and USM pointers */
} clattn_memory_kind;

/* The memory that a tensor lies in. */
typedef struct clattn_memory {
    clattn_memory_kind kind;
    union {
        cl_mem buffer;
        void *pointer;
    } as;
} clattn_memory;

/* A view of memory that the caller owns. Element (i0,i1,..) lies at offset + sum(i * strides), all in elements.
 * A stride of 0 repeats an input; outputs must not overlap themselves. Unused trailing dims are ignored. */
typedef struct clattn_tensor {
    clattn_memory memory;
    int64_t offset;
    clattn_dtype dtype;
    int32_t rank;
    int64_t dims[CLATTN_MAX_RANK];
    int64_t strides[CLATTN_MAX_RANK];
} clattn_tensor;

/* A dense row-major view at offset 0 of a buffer; rank is clamped to 1..CLATTN_MAX_RANK. */
CLATTN_API clattn_tensor clattn_tensor_dense(cl_mem buffer, clattn_dtype dtype, int32_t rank, const int64_t *dims);

/* Other views of the same memory: indices first .. first + count - 1 of a dim; two dims exchanged. Negative dims count
 * from the end. So q out of packed rows qkv [1,N,3 H,D], as attention takes it, [1,H,N,D], is
 * clattn_tensor_transpose(clattn_tensor_slice(qkv, 2, 0, H), 1, 2). Where the tensor does not have these dims or
 * indices the view has rank 0, and every call refuses it. */
CLATTN_API clattn_tensor clattn_tensor_slice(clattn_tensor tensor, int32_t dim, int64_t first, int64_t count);
CLATTN_API clattn_tensor clattn_tensor_transpose(clattn_tensor tensor, int32_t dim, int32_t other);

/* Bytes of one element; 0 for CLATTN_I4, which has half a byte, and for an unknown dtype. */
CLATTN_API size_t clattn_dtype_size(clattn_dtype dtype);

/* ---- launching --------------------------------------------------------------------------------------------------- */

/* Scratch memory of one call. It must not overlap the call's tensors, which is not checked. */
typedef struct clattn_workspace {
    cl_mem buffer;
    size_t offset; /* bytes; a multiple of 256 */
    size_t size;   /* bytes from offset */
} clattn_workspace;

/* Where a call runs, after what, and how. Initialise with clattn_launch_init(). */
typedef struct clattn_launch {
    size_t size;
    cl_command_queue queue; /* on the context's device; in order or out of order */
    cl_uint num_events_in_wait_list;
    const cl_event *event_wait_list;
    cl_event *event; /* where not NULL: receives an event that completes with the whole call */
    clattn_workspace workspace;
    const char *variant;    /* NULL: the library chooses; else a name from clattn/variants.h */
    const char *parameters; /* NULL: tuned; else "score_tiles=2,groups=8": overrides single tile parameters */
} clattn_launch;

CLATTN_API void clattn_launch_init(clattn_launch *launch, cl_command_queue queue);

/* Which operation a struct is of. */
typedef enum clattn_op_kind {
    CLATTN_OP_ATTENTION = 1,
    CLATTN_OP_ATTENTION_MERGE = 2,
    CLATTN_OP_SOFTMAX = 3,
    CLATTN_OP_SOFTMAX_MERGE = 4,
    CLATTN_OP_GEMM = 5,
    CLATTN_OP_NORM = 6,
    CLATTN_OP_NORM_BACKWARD = 7,
    CLATTN_OP_SOFTMAX_BACKWARD = 8,
    CLATTN_OP_SOFTMAX_TOPK = 9,
    CLATTN_OP_ROPE_APPEND = 10,        /* clattn/kv_cache.h */
    CLATTN_OP_ATTENTION_BACKWARD = 15, /* this and what follows: clattn/training.h */
    CLATTN_OP_CAST = 16,
    CLATTN_OP_UNSCALE = 17,
    CLATTN_OP_LOSS_SCALE = 18,
    CLATTN_OP_ADAMW = 19,
    CLATTN_OP_SGD = 20,
    CLATTN_OP_ATTENTION_CASCADE = 21, /* clattn/kv_cache.h */
    CLATTN_OP_RING_ATTENTION = 22,    /* this and what follows: clattn/ring.h, with sizes and calls of their own */
    CLATTN_OP_RING_DECODE = 23,
    CLATTN_OP_RING_ATTENTION_BACKWARD = 24
} clattn_op_kind;

/* The common head of all operation structs; set by their initialisers. */
typedef struct clattn_op {
    size_t size;
    clattn_op_kind kind;
} clattn_op;

/* Would the call be accepted? Checks everything that the call checks except the workspace, enqueues and builds nothing.
 * launch may be NULL; of it only variant and parameters are used. */
CLATTN_API clattn_status clattn_supported(clattn_context *context, const clattn_op *op, const clattn_launch *launch);

/* Bytes of workspace that the call needs: 0 is common, but the fastest variant of a device may want some where another
 * device's wants none, so that portable callers always ask. A self-test that the call then makes, and that fails,
 * leaves another variant, which may want more: after clattn_prepare() the answer is final. */
CLATTN_API clattn_status clattn_workspace_size(clattn_context *context, const clattn_op *op,
                                               const clattn_launch *launch, size_t *bytes);

/* Builds what the call would build on first use, except what CLBlast compiles by itself at its first product. */
CLATTN_API clattn_status clattn_prepare(clattn_context *context, const clattn_op *op, const clattn_launch *launch);

/* The call itself, whichever op is: clattn_attention() of a clattn_attention_op, and so on; not of clattn/ring.h, whose
 * calls take launches of their own. */
CLATTN_API clattn_status clattn_enqueue(clattn_context *context, const clattn_op *op, const clattn_launch *launch);

/* ---- quantised keys and values ----------------------------------------------------------------------------------- */

/* How codes of four bits lie in bytes. */
typedef enum clattn_nibbles {
    CLATTN_NIBBLES_PAIRS = 0, /* elements 2i and 2i + 1 of a row lie in byte i */
    CLATTN_NIBBLES_HALVES = 1 /* byte i of a block holds its elements i and block / 2 + i (ggml's q4_0) */
} clattn_nibbles;

/* How a tensor of codes becomes values, in fp32 and then rounded to the dtype of the queries:
 *
 *   CLATTN_I8, CLATTN_I4   scale * (code - zero), scale and zero being those of a block of a row
 *   CLATTN_F8_E4M3         scale[kv head] * code
 *
 * so that attention gives the very bits that it gives for a cache of that dtype which holds these values: one more
 * rounding than exact values would have, and infinity where they exceed the dtype. Codes -128 .. 127 or 0 .. 15. A
 * scale or zero of NaN or infinity counts as such an element does. All strides and offsets of CLATTN_I4, the innermost
 * stride of 1 aside, must be even, so that rows and blocks start at bytes; where D is odd half of a row's last byte is
 * unused. Scales may lie between the codes, in the same buffer: q8_0 of ggml is block 32, code_stride 34, k.offset 2,
 * and scales that are 17 apart from offset 0; q4_0 is block 32, CLATTN_NIBBLES_HALVES, code_stride 36, k.offset 4, and
 * scales that are 9 apart. All zero (as initialised): the tensor holds values. */
typedef struct clattn_quantization {
    int32_t block;          /* 32 or 64 elements along the head dim share a scale; the last block may be short. F8: 0 */
    clattn_nibbles nibbles; /* CLATTN_I4 alone; a short block lies as the same part of a whole one */
    int64_t code_stride;    /* elements from one block of a row to the next, at least block; 0: they adjoin */
    clattn_tensor scales;   /* F16, the tensor's dims but ceil(D / block) for D, any strides; of F8: F32 [Hkv] */
    clattn_tensor zeros;    /* optional, F16, dims as those of scales; default: 0 for CLATTN_I8, 8 for CLATTN_I4 */
} clattn_quantization;

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Which keys are too late for a query. */
typedef enum clattn_causal {
    CLATTN_CAUSAL_NONE = 0,
    CLATTN_CAUSAL_BOTTOM_RIGHT = 1, /* key j is visible to query i where j <= i + Nk - Nq */
    CLATTN_CAUSAL_TOP_LEFT = 2      /* ... where j <= i */
} clattn_causal;

/* O = softmax(scores) V, exact and in O(N) memory (FlashAttention, arXiv:2205.14135, 2307.08691); the variant "unfused"
 * alone, which is there to be compared with, stores the B * Hq * Nq * Nk scores in its workspace.
 *
 *   q [B,Hq,Nq,D]  k [B,Hkv,Nk,D]  v [B,Hkv,Nk,Dv]  o [B,Hq,Nq,Dv]  lse [B,Hq,Nq] (optional, F32)
 *
 * q, k and v share one dtype, or k and v, each by itself, are quantised; o has q's dtype or is F32. D lies in 1..576
 * and Dv in 1..512 (Dv = 0 writes lse alone); Hq is a multiple of Hkv and query head h reads kv head h / (Hq / Hkv).
 * The innermost stride of q, k, v and o must be 1 (where that dimension is larger than 1); lse may have any strides. o
 * and lse must not overlap any input. A row with no visible key gives o = 0 and lse = -inf, or its sink. Zero B, Hq or
 * Nq: success, nothing written. Statistics and sums are kept in fp32; the result is the same on every run.
 *
 * All further members are optional and may be combined. The score of query i and key j, both counted within their
 * sequence, is
 *
 *   scale * q_i k_j  ->  softcap * tanh(x / softcap)  ->  + alibi * (j - (i + off)) + bias
 *
 * and -inf where causal, window, lengths or mask hide the key; what lies behind them (in k, v, bias or an unused page)
 * may hold NaN or infinities. off aligns queries and keys for causal, window and alibi alike: `diagonal` where given,
 * else 0 for CLATTN_CAUSAL_TOP_LEFT and Nk - Nq otherwise, of each sequence's own lengths. lse is the natural logarithm
 * of the sum of exp(score), sink included.
 *
 * Lengths, offsets and page tables are read on the device: values out of range never cause an access outside the given
 * tensors, but the rows concerned are unspecified. */
typedef struct clattn_attention_op {
    clattn_op head;
    clattn_tensor q, k, v, o, lse;
    clattn_causal causal;
    int32_t has_diagonal;              /* non-zero: off = diagonal, whatever Nq and Nk are */
    int64_t diagonal;                  /* with alibi from -2^40 to 2^40 */
    int64_t window_left, window_right; /* keys i + off - left .. i + off + right; -1 (default): no limit on that side */
    int32_t has_scale;                 /* zero: 1 / sqrt(D) */
    float scale;                       /* any finite value */
    float softcap;                     /* 0: none; else positive and normal (Gemma 2, arXiv:2408.00118) */

    clattn_tensor mask; /* U8 [B,Hq,Nq,Nk]: non-zero = visible. Any strides; dims of 1 are repeated. Needs workspace */
    clattn_tensor bias; /* q's dtype or F32, likewise; -inf hides the key */
    /* From here on the innermost stride is 1. */
    clattn_tensor alibi; /* F32 [Hq] or [B,Hq]: slopes (arXiv:2108.12409); see clattn_alibi_slopes() */
    clattn_tensor sinks; /* F32 [Hq]: one more logit per row, counted once, without a value (arXiv:2309.17453) */

    clattn_tensor q_lengths; /* I32 [B]: rows from there on give o = 0, lse = -inf */
    clattn_tensor k_lengths; /* I32 [B]: keys from there on are hidden */

    /* Sequences of different lengths one behind the other: sequence b is rows offsets[b] .. offsets[b + 1] - 1 of
     * q, o [1,Hq,total_q,..] and lse [1,Hq,total_q], or of k, v [1,Hkv,total_k,..]. Either may be given alone. Rows of
     * no sequence are not written. */
    clattn_tensor q_offsets, k_offsets; /* I32 [B+1] */
    /* Keys in pages: k [pages,Hkv,page_size,D], v likewise, and key j of sequence b in row j % page_size of page
     * page_table[b][j / page_size]. Other page layouts are a choice of strides. Without k_lengths every sequence has
     * max_pages * page_size keys. Entries beyond a sequence's keys may hold anything. Not with k_offsets. */
    clattn_tensor page_table; /* I32 [B,max_pages] */
    /* The longest sequences, where the caller knows them: smaller grids and workspaces. 0: from the tensors' dims.
     * Sequences are cut there: rows from max_q on give o = 0, keys from max_k on are hidden. With offsets, mask and
     * bias must have max_q rows and max_k columns or more. */
    int64_t max_q, max_k;
    /* Where k or v is of CLATTN_I8, CLATTN_I4 or CLATTN_F8_E4M3. */
    clattn_quantization k_quantization, v_quantization;
} clattn_attention_op;

/* The standard slopes of ALiBi for any number of heads: 2^(-8 (h + 1) / heads) for powers of two, else those of the
 * next smaller power of two followed by every second one of its double. INVALID_ARGUMENT where heads < 1. */
CLATTN_API clattn_status clattn_alibi_slopes(int32_t heads, float *slopes);

CLATTN_API void clattn_attention_init(clattn_attention_op *op);
CLATTN_API clattn_status clattn_attention(clattn_context *context, const clattn_attention_op *op,
                                          const clattn_launch *launch);

/* Merges n partial attention results over disjoint key sets into the result over their union.
 *
 *   o_in[i] [B,H,N,Dv]  lse_in[i] [B,H,N] (F32)  ->  o [B,H,N,Dv]  lse [B,H,N] (optional, F32)
 *
 * All o_in share one dtype; o has any. The arrays are read during the call only. Where lse_in = -inf the operand has
 * weight 0 and its o is not read into the result, whatever it holds; +inf is taken for an empty operand too. count = 0
 * gives o = 0, lse = -inf. o and lse may be exactly one operand's own o and lse; any other overlap is refused.
 * Innermost stride of o and o_in must be 1. More than 8 operands need workspace. */
typedef struct clattn_attention_merge_op {
    clattn_op head;
    int32_t count;
    const clattn_tensor *o_in, *lse_in;
    clattn_tensor o, lse;
} clattn_attention_merge_op;

CLATTN_API void clattn_attention_merge_init(clattn_attention_merge_op *op);
CLATTN_API clattn_status clattn_attention_merge(clattn_context *context, const clattn_attention_merge_op *op,
                                                const clattn_launch *launch);

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* What becomes of a row x. */
typedef enum clattn_softmax_function {
    CLATTN_SOFTMAX = 0,      /* y = exp(x - max) / sum */
    CLATTN_LOG_SOFTMAX = 1,  /* y = (x - max) - log(sum) */
    CLATTN_LOG_SUM_EXP = 2,  /* y = max + log(sum); y has dims[axis] = 1 */
    CLATTN_SOFTMAX_STATE = 3 /* m = max, l = sum(exp(x - max)); F32, dims[axis] = 1 (arXiv:1805.02867) */
} clattn_softmax_function;

/* What becomes of a row without any element that counts. */
typedef enum clattn_empty_rows {
    CLATTN_EMPTY_ROWS_NAN = 0,
    CLATTN_EMPTY_ROWS_ZERO = 1,
    CLATTN_EMPTY_ROWS_DEFAULT = 2 /* ZERO with a mask, else NAN */
} clattn_empty_rows;

/* Softmax and its relatives along one axis of a tensor of rank 1..4 with any strides; rows up to 2^31 - 1 elements.
 * y has any dtype and x's dims (except along axis, see above); y may be exactly x. A row of -inf alone gives NaN or 0
 * as empty_rows says (log-softmax: NaN or -inf; log-sum-exp -inf and state (-inf, 0) either way); a row that holds +inf
 * or NaN gives NaN throughout. Other overlap of y, m or l with x is refused.
 *
 * What is normalised is scale * x + bias, and -inf where the mask is 0, whatever x and bias hold there. mask and bias
 * have x's dims, or 1 where they are repeated. */
typedef struct clattn_softmax_op {
    clattn_op head;
    clattn_softmax_function function;
    int32_t axis; /* default -1: the last; negative counts from the end */
    clattn_empty_rows empty_rows;
    clattn_tensor x, y; /* y is absent for CLATTN_SOFTMAX_STATE */
    clattn_tensor m, l; /* CLATTN_SOFTMAX_STATE only */
    float scale;        /* default 1; any finite value */
    clattn_tensor mask; /* optional, U8: non-zero = counts */
    clattn_tensor bias; /* optional, F32, F16 or BF16 */
} clattn_softmax_op;

CLATTN_API void clattn_softmax_init(clattn_softmax_op *op);
CLATTN_API clattn_status clattn_softmax(clattn_context *context, const clattn_softmax_op *op,
                                        const clattn_launch *launch);

/* The k largest elements of every row along an axis as softmax over the whole row gives them, in one pass.
 *
 *   x [..,C,..]  ->  values, indices (I32) [..,k,..]   lse (F32, optional) [..,1,..]   1 <= k <= 128, C up to 2^24
 *
 * Ordered by x, the largest first; among equal elements the lower index comes first. lse is the log-sum-exp of the row.
 * A row that holds +inf or NaN has no order: values and lse are NaN, the indices 0 .. k - 1. Of a row of -inf alone the
 * values are NaN or 0 as empty_rows says. Any strides; outputs must not overlap x or each other. */
typedef struct clattn_softmax_topk_op {
    clattn_op head;
    int32_t axis; /* default -1: the last; negative counts from the end */
    int32_t k;    /* default 1 */
    clattn_empty_rows empty_rows;
    clattn_tensor x, values, indices, lse;
} clattn_softmax_topk_op;

CLATTN_API void clattn_softmax_topk_init(clattn_softmax_topk_op *op);
CLATTN_API clattn_status clattn_softmax_topk(clattn_context *context, const clattn_softmax_topk_op *op,
                                             const clattn_launch *launch);

/* Merges n states (m, l) of disjoint parts of a row: m = max(m_i), l = sum(l_i * exp(m_i - m)). All F32, one shape, any
 * strides. m_in = -inf has weight 0 whatever l holds; count = 0 gives (-inf, 0). m and l may be exactly one operand's
 * own m and l. More than 8 operands are folded in several launches, needing no workspace. */
typedef struct clattn_softmax_merge_op {
    clattn_op head;
    int32_t count;
    const clattn_tensor *m_in, *l_in;
    clattn_tensor m, l;
} clattn_softmax_merge_op;

CLATTN_API void clattn_softmax_merge_init(clattn_softmax_merge_op *op);
CLATTN_API clattn_status clattn_softmax_merge(clattn_context *context, const clattn_softmax_merge_op *op,
                                              const clattn_launch *launch);

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* What becomes of a row v. */
typedef enum clattn_norm_function {
    CLATTN_RMS_NORM = 0,  /* y = v / sqrt(mean(v^2) + eps) * weight + bias (arXiv:1910.07467) */
    CLATTN_LAYER_NORM = 1 /* y = (v - mean) / sqrt(variance + eps) * weight + bias (arXiv:1607.06450) */
} clattn_norm_function;

/* Norms along the last dim C of x [..,C], rank 1..4, of v = x + residual, or x alone.
 *
 *   x, residual, y, sum [..,C]  weight, bias [C]   C up to 2^24; innermost strides of 1; each has a dtype of its own
 *
 * All but x and y are optional. sum receives v; the norm is of v before its rounding. Statistics are kept in fp32, the
 * variance (of C, not C - 1) about the mean. y and sum may each be exactly x or residual; other overlap is refused. A
 * row that holds NaN gives NaN throughout, as does one of zeros with eps = 0. No rows, no columns: nothing written. */
typedef struct clattn_norm_op {
    clattn_op head;
    clattn_norm_function function;
    int32_t one_plus_weight; /* non-zero: the factor is 1 + weight */
    float eps;               /* default 1e-5; finite, at least 0 */
    clattn_tensor x, residual, weight, bias, y, sum;
} clattn_norm_op;

CLATTN_API void clattn_norm_init(clattn_norm_op *op);
CLATTN_API clattn_status clattn_norm(clattn_context *context, const clattn_norm_op *op, const clattn_launch *launch);

/* ---- matrix product ---------------------------------------------------------------------------------------------- */

/* C = alpha op(A) op(B) + beta C over up to two leading batch dimensions.
 *
 *   op(A) [..,M,K]  op(B) [..,K,N]  C [..,M,N]   rank 2..4; a is stored [..,K,M] where transpose_a, b [..,N,K] likewise
 *
 * a and b share one dtype; c has it too, or is F32. Innermost strides must be 1. beta = 0 does not read c. c must not
 * overlap a or b. Batch strides of a and b may be 0. Sums in fp32. K = 0 gives beta C. */
typedef struct clattn_gemm_op {
    clattn_op head;
    int32_t transpose_a, transpose_b;
    float alpha, beta; /* default 1, 0 */
    clattn_tensor a, b, c;
} clattn_gemm_op;

CLATTN_API void clattn_gemm_init(clattn_gemm_op *op);
CLATTN_API clattn_status clattn_gemm(clattn_context *context, const clattn_gemm_op *op, const clattn_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
