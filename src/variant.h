/* The list of implementations of each operation, and the pure choice among them. */
#ifndef CLATTN_VARIANT_H
#define CLATTN_VARIANT_H

#include "device.h"
#include "parameters.h"

/* What attention kernels are compiled with or without; see cl/attention_call.clh. */
enum modifier {
    MODIFIER_BAND = 1 << 0,
    MODIFIER_MASK = 1 << 1,
    MODIFIER_BIAS = 1 << 2,
    MODIFIER_ALIBI = 1 << 3,
    MODIFIER_SEQUENCES = 1 << 4,
    MODIFIER_PAGED = 1 << 5,
    MODIFIER_SOFTCAP = 1 << 6,
    MODIFIER_SINKS = 1 << 7
};

/* How a row of keys or values is stored where it is no row of elements of q's dtype; see clattn_quantization. All are
 * constants of a program. */
struct stored {
    int32_t dtype; /* of clattn_dtype; 0: elements */
    int32_t block; /* elements that share a scale; 0: all of a head do */
    int32_t nibbles, zeros;
    int32_t alignment; /* bytes, a power of two up to 8, at whose multiples blocks start */
};

/* What the choice may depend on, put together by a front-end from a checked operation. Members that an operation does
 * not have are 0. */
struct problem {
    clattn_op_kind op;
    clattn_dtype dtype;     /* of the inputs */
    clattn_dtype out_dtype; /* of the output */
    /* attention */
    int64_t batch, heads, kv_heads, nq, nk, head_dim, value_dim;
    bool causal, windowed, writes_lse;
    unsigned modifiers;      /* of enum modifier */
    clattn_dtype bias_dtype; /* where MODIFIER_BIAS */
    struct stored k_stored, v_stored;
    int64_t q_rows, k_rows; /* of the tensors q and k (of a page), in all; nq and nk are of the longest sequence */
    int64_t page_size;      /* where MODIFIER_PAGED */
    bool positive_scale;
    /* every row of every tensor starts at a multiple of 16 bytes */
    bool aligned;
    bool out_aligned; /* the same of the output alone */
    bool v_in_k;      /* v is the first columns of k, in the same memory */
    bool copyable;    /* the inputs suit a copy engine: aligned, with strides above 0 and not beyond its range */
    /* softmax and norms: rows x columns along the axis; gemm: batch x (m,n,k) */
    int softmax_function, norm_function;
    int64_t rows, columns;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    bool rows_apart; /* no row of a matrix reaches into the next */
    int64_t reach;   /* the last element of any operand, counted from the start of its buffer */
};

/* Softmax: the longest rows of one sub-group and of one work-group, and how often a loop of one work-item may run: one
 * implementation ends all its loops at 65,535. */
#define SOFTMAX_SUBGROUP_COLUMNS 1024
#define NORM_SUBGROUP_COLUMNS 512 /* ... of norms, where a work-group can have them */
#define SOFTMAX_GROUP_COLUMNS 32768
#define SOFTMAX_ITERATIONS 16384
/* Of a row's chunk that a work-group holds, where the sizes are not given. */
#define SOFTMAX_CHUNK_BYTES 32768
#define BACKWARD_SUBGROUP_COLUMNS 256
#define BACKWARD_GROUP_COLUMNS 16384

enum schedule {
    SCHEDULE_FUSED,
    SCHEDULE_TWO_PASS,
    SCHEDULE_UNFUSED,
    SCHEDULE_PIPELINED,
    SCHEDULE_DECODE, /* attention: packed query heads, split keys */
    SCHEDULE_SUBGROUP,
    SCHEDULE_GROUP,
    SCHEDULE_SPLIT,
    SCHEDULE_TICKETS,    /* softmax: split, in one launch whose second reads come from cache */
    SCHEDULE_HELD,       /* softmax: split, in one launch whose groups hold their chunks and wait for each other */
    SCHEDULE_SELECT,     /* softmax top-k: a work-group a row, candidates in local memory */
    SCHEDULE_ONLINE,     /* softmax: 2-pass, online state then write */
    SCHEDULE_THREE_PASS, /* softmax: max, sum, write */
    SCHEDULE_FOLD,
    SCHEDULE_APPEND,
    SCHEDULE_ELEMENTS, /* element by element, over a list of tensors */
    SCHEDULE_TILED,
    SCHEDULE_LIBRARY
};

enum backend {
    BACKEND_FMA,
    BACKEND_CPU_VECTOR,
    BACKEND_NVIDIA_MMA,
    BACKEND_NVIDIA_WGMMA,
    BACKEND_ANY,
    BACKEND_CLBLAST
};

struct variant {
    const char *name; /* "fused_fma" */
    clattn_op_kind op;
    enum schedule schedule;
    enum backend backend;
    uint64_t needs; /* CAP_BITs without which the variant refuses */
    uint64_t uses;  /* CAP_BITs that its kernels use where the facts hold them; self-tested like `needs` */
    /* NULL, or the reason of refusal (static storage). Pure. */
    const char *(*accepts)(const struct device_facts *facts, const struct problem *problem);
};

const struct variant *variant_table(size_t *count);

/* NULL where facts and problem suit the variant, else why not (static storage). */
const char *variant_refusal(const struct variant *variant, const struct device_facts *facts,
                            const struct problem *problem);

/* As variant_refusal(), and also why a variant that could take the problem is not preferred for it: what is not picked
 * may still be asked for by name. */
const char *variant_pick_refusal(const struct variant *variant, const struct device_facts *facts,
                                 const struct problem *problem);

/* May softmax keep rows in the registers of a work-group here? */
bool variant_keeps_rows(const struct device_facts *facts);

/* Where attention prefers decode variants: few queries and at least this many keys, or longer blocks of queries that do
 * not fill the device and keys that are worth being split. */
#define DECODE_QUERIES 16
#define DECODE_KEYS 128
#define DECODE_SPLIT_KEYS 2048

/* The first row that has nothing against being picked, or NULL. */
const struct variant *variant_pick(const struct device_facts *facts, const struct problem *problem);

/* The row of that name for an operation, or NULL. */
const struct variant *variant_named(clattn_op_kind op, const char *name);

/* "attention": the operation's name in rows of tuning, messages and long names; "unknown" where there is none. */
const char *variant_op_name(clattn_op_kind op);

const char *variant_backend_name(enum backend backend); /* "fma": also the file name in cl/tile/ */

#endif
