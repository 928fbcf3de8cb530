/* The rows of variants.def and their rules. Everything here is pure: facts and a problem in, a row or a sentence out.
 */
#include "variant.h"

#include <string.h>

/* ---- rules: NULL, or the whole sentence of a refusal ------------------------------------------------------------- */

static const char *accepts_anything(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    (void)problem;
    return NULL;
}

enum { MMA_MOST_VALUES = 256 };

static const char *accepts_narrow_operands(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    if (problem->dtype == CLATTN_F32)
        return "The matrix unit takes fp16 and bf16 operands only.";
    return problem->value_dim > MMA_MOST_VALUES ? "Sums of more than 256 values a row do not fit the registers." : NULL;
}

/* Several tile groups hold the sums of a row, so that any number of values will do. */
static const char *accepts_narrow_decode(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    return problem->dtype == CLATTN_F32 ? "The matrix unit takes fp16 and bf16 operands only." : NULL;
}

static const char *accepts_narrow_gradients(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    if (problem->dtype == CLATTN_F32)
        return "The matrix unit takes fp16 and bf16 operands only.";
    return problem->head_dim > MMA_MOST_VALUES || problem->value_dim > MMA_MOST_VALUES
               ? "Sums of more than 256 keys or values a row do not fit the registers."
               : NULL;
}

static const char *accepts_attention_pipelined(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    if (problem->dtype == CLATTN_F32)
        return "The matrix unit takes fp16 and bf16 operands only.";
    if (problem->head_dim % 16 != 0 || problem->value_dim % 16 != 0 || problem->value_dim == 0 ||
        problem->head_dim > 256 || problem->value_dim > 256)
        return "The pipeline takes head dims that are multiples of 16 up to 256.";
    if (problem->k_stored.dtype != 0 || problem->v_stored.dtype != 0)
        return "The copy engine brings elements, and keys or values are quantised.";
    if (problem->page_size % 8 != 0)
        return "The pipeline takes pages of a multiple of 8 keys.";
    if ((problem->modifiers & MODIFIER_SEQUENCES) == 0 &&
        (problem->nq < problem->q_rows || (problem->nk < problem->k_rows && problem->page_size == 0)))
        return "Without lengths or offsets the pipeline takes all rows of q and k.";
    if (!problem->copyable)
        return "The copy engine takes rows, heads and batches that start at multiples of 16 bytes, apart from each "
               "other.";
    if (problem->nk == 0)
        return "Without keys there is nothing to copy.";
    if ((problem->modifiers & (MODIFIER_SOFTCAP | MODIFIER_ALIBI | MODIFIER_BIAS)) != 0)
        return NULL;
    return problem->positive_scale ? NULL : "The pipeline takes the maximum before the scale, which must be positive.";
}

/* Scores are fp32; true where their matrix alone is more than one buffer can hold. */
static bool scores_exceed_allocation(const struct device_facts *facts, const struct problem *problem) {
    uint64_t bytes = sizeof(float);
    return __builtin_mul_overflow(bytes, (uint64_t)problem->batch, &bytes) ||
           __builtin_mul_overflow(bytes, (uint64_t)problem->heads, &bytes) ||
           __builtin_mul_overflow(bytes, (uint64_t)problem->nq, &bytes) ||
           __builtin_mul_overflow(bytes, (uint64_t)problem->nk, &bytes) || bytes > facts->max_allocation;
}

static const char *accepts_attention_unfused(const struct device_facts *facts, const struct problem *problem) {
    if (problem->value_dim == 0)
        return "Without values there is no second product; the fused variants write lse alone.";
    if (problem->nk == 0)
        return "Without keys there is no score to store.";
    if (scores_exceed_allocation(facts, problem))
        return "The score matrix exceeds the largest buffer of the device.";
    return NULL;
}

#define TEXT_OF(value) #value
#define TEXT(macro) TEXT_OF(macro)

static const char *accepts_softmax_subgroup(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    return problem->columns > SOFTMAX_SUBGROUP_COLUMNS
               ? "A row of more than " TEXT(SOFTMAX_SUBGROUP_COLUMNS) " elements is too long for one sub-group."
               : NULL;
}

/* PoCL 3.1, with two threads or more, now and then gives a wrong sum where registers are kept over barriers as the
 * variant `group` keeps them (seen with work-groups of 64 to 256; never with one thread or without optimisation). */
bool variant_keeps_rows(const struct device_facts *facts) {
    return strstr(facts->platform, "Portable Computing Language") == NULL;
}

static const char *accepts_softmax_group(const struct device_facts *facts, const struct problem *problem) {
    if (!variant_keeps_rows(facts))
        return "On a CPU the registers of a work-group's work-items are memory, and PoCL mixes them up.";
    return problem->columns > SOFTMAX_GROUP_COLUMNS
               ? "A row of more than " TEXT(SOFTMAX_GROUP_COLUMNS) " elements is too long for one work-group."
               : NULL;
}

/* Gradients keep two rows, and the norms' also sums of two. */
static const char *accepts_backward_subgroup(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    return problem->columns > BACKWARD_SUBGROUP_COLUMNS
               ? "Rows of more than " TEXT(BACKWARD_SUBGROUP_COLUMNS) " elements are too long for one sub-group."
               : NULL;
}

static const char *accepts_backward_group(const struct device_facts *facts, const struct problem *problem) {
    if (!variant_keeps_rows(facts))
        return "On a CPU the registers of a work-group's work-items are memory, and PoCL mixes them up.";
    return problem->columns > BACKWARD_GROUP_COLUMNS
               ? "Rows of more than " TEXT(BACKWARD_GROUP_COLUMNS) " elements are too long for one work-group."
               : NULL;
}

static bool fits_loops(const struct device_facts *facts, const struct problem *problem) {
    return problem->columns <= (int64_t)facts->max_group * SOFTMAX_ITERATIONS;
}

static const char *accepts_softmax_loop(const struct device_facts *facts, const struct problem *problem) {
    return fits_loops(facts, problem) ? NULL : "A row this long must be split over work-groups.";
}

/* Tickets are counted in 32 bits; a chunk has 1024 columns or more. */
static const char *accepts_softmax_tickets(const struct device_facts *facts, const struct problem *problem) {
    (void)facts;
    if (problem->softmax_function != CLATTN_SOFTMAX && problem->softmax_function != CLATTN_LOG_SOFTMAX)
        return "Only whole rows are used twice; this function reads them once in any case.";
    if ((double)problem->rows * (double)(problem->columns / 1024 + 1) > 1e9)
        return "There are more chunks than tickets.";
    return NULL;
}

static const char *accepts_softmax_split(const struct device_facts *facts, const struct problem *problem) {
    if (problem->rows >= 4 * (int64_t)facts->compute_units && fits_loops(facts, problem))
        return "The rows fill the device without being split.";
    return NULL;
}

#ifdef CLATTN_HAVE_CLBLAST
/* Of the padded copies that CLBlast makes: its largest tiles are 128 wide and 32 deep. */
static bool counts_in_32_bits(const struct problem *problem) {
    const double m = (double)problem->m + 128, n = (double)problem->n + 128, k = (double)problem->k + 32;
    const double largest = m * n > m * k ? (m * n > n * k ? m * n : n * k) : (m * k > n * k ? m * k : n * k);
    return problem->reach < INT32_MAX && (double)problem->batch * largest < INT32_MAX;
}
#endif

static const char *accepts_gemm_clblast(const struct device_facts *facts, const struct problem *problem) {
#ifndef CLATTN_HAVE_CLBLAST
    (void)facts;
    (void)problem;
    return "This library was built without CLBlast.";
#else
    /* Its kernels' sizes are tuned for devices that have this much; below, it fails at the launch. */
    if (facts->max_group < 256)
        return "CLBlast needs work-groups of 256 work-items.";
    if (problem->dtype == CLATTN_BF16)
        return "CLBlast has no bf16.";
    if (problem->dtype == CLATTN_F16)
        return "CLBlast sums fp16 products in fp16.";
    if (!problem->rows_apart)
        return "CLBlast takes no matrix whose rows overlap.";
    if (!counts_in_32_bits(problem))
        return "CLBlast counts elements in 32 bits, and this product has more.";
    if (problem->k == 0)
        return "CLBlast refuses products over no terms (K = 0, or alpha = 0).";
    return NULL;
#endif
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define NOTHING 0
#define SHUFFLE CAP_BIT(CAP_SUBGROUP_SHUFFLE)
#define HALF CAP_BIT(CAP_HALF_TYPE)
#define CPU CAP_BIT(CAP_CPU)
#define NVIDIA_MMA CAP_BIT(CAP_NVIDIA_MMA)
#define GRID CAP_BIT(CAP_GRID)
#define NVIDIA_WGMMA CAP_BIT(CAP_NVIDIA_WGMMA)

static const struct variant table[] = {
#define VARIANT(op, name, schedule, backend, needs, uses, accepts) \
    {#name, CLATTN_OP_##op, SCHEDULE_##schedule, BACKEND_##backend, (needs), (uses), accepts_##accepts},
#include "variants.def"
#undef VARIANT
};

const struct variant *variant_table(size_t *count) {
    *count = sizeof table / sizeof table[0];
    return table;
}

static const char *const missing[CAP_COUNT] = {
    [CAP_SUBGROUP_SHUFFLE] = "The device has no sub-group shuffles, or they are masked or failed their self-test.",
    [CAP_HALF_TYPE] = "The device has no half type, or it is masked or failed its self-test.",
    [CAP_CPU] = "The device is no CPU, or its being one is masked.",
    [CAP_NVIDIA_MMA] = "The device has no mma.sync matrix unit, or it is masked or failed its self-test.",
    [CAP_GRID] =
        "The work-groups of a launch cannot wait for each other here, or that is masked or failed its self-test.",
    [CAP_NVIDIA_WGMMA] = "The device has no wgmma matrix unit, or it is masked or failed its self-test.",
};

const char *variant_refusal(const struct variant *variant, const struct device_facts *facts,
                            const struct problem *problem) {
    const uint64_t lacking = variant->needs & ~facts->caps;
    for (int cap = 0; lacking != 0 && cap < CAP_COUNT; cap++)
        if ((lacking & CAP_BIT(cap)) != 0)
            return missing[cap];
    return variant->accepts(facts, problem);
}

/* Decode variants take any problem, but queries in large blocks share more loads with each other than heads do. */
static const char *decode_pays(const struct device_facts *facts, const struct problem *problem) {
    enum { FORWARD_ROWS = 64 };
    const int64_t blocks = (problem->nq + FORWARD_ROWS - 1) / FORWARD_ROWS * problem->heads;
    if (problem->nq <= DECODE_QUERIES)
        return problem->nk >= DECODE_KEYS ? NULL : "Keys are too few to be worth a variant for few queries.";
    if (problem->nk < DECODE_SPLIT_KEYS || problem->nk / 2 < problem->nq)
        return "Queries are many, and keys too few beside them to be split.";
    return (double)blocks * (double)problem->batch >= (double)facts->compute_units
               ? "Blocks of queries fill the device without splitting keys."
               : NULL;
}

/* Groups that wait for a row's others keep them from running where there are too many, and then do their work too. */
static const char *held_pays(const struct device_facts *facts, const struct problem *problem) {
    if (!facts->starts_in_order)
        return "It is not known whether the work-groups of a row run together here.";
    if (problem->columns <= SOFTMAX_GROUP_COLUMNS)
        return "The row fits one work-group.";
    const int64_t bytes = problem->columns * (int64_t)clattn_dtype_size(problem->dtype);
    return bytes > SOFTMAX_CHUNK_BYTES * (int64_t)facts->compute_units
               ? "A row has more chunks than the device has compute units."
               : NULL;
}

/* Measured on an H200: 1024 columns in fp32 take 4 % less time by groups of 128 than by sub-groups, in fp16 more. */
static const char *lanes_pay(const struct device_facts *facts, const struct problem *problem) {
    const bool long_norm = problem->op == CLATTN_OP_NORM && problem->columns > NORM_SUBGROUP_COLUMNS;
    return long_norm && problem->dtype == CLATTN_F32 && variant_keeps_rows(facts)
               ? "A norm's fp32 rows of more than " TEXT(NORM_SUBGROUP_COLUMNS) " elements are faster by a work-group."
               : NULL;
}

const char *variant_pick_refusal(const struct variant *variant, const struct device_facts *facts,
                                 const struct problem *problem) {
    const char *refusal = variant_refusal(variant, facts, problem);
    if (refusal == NULL && variant->schedule == SCHEDULE_DECODE)
        return decode_pays(facts, problem);
    if (refusal == NULL && variant->schedule == SCHEDULE_SUBGROUP)
        return lanes_pay(facts, problem);
    return refusal == NULL && variant->schedule == SCHEDULE_HELD ? held_pays(facts, problem) : refusal;
}

const struct variant *variant_pick(const struct device_facts *facts, const struct problem *problem) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].op == problem->op && variant_pick_refusal(&table[i], facts, problem) == NULL)
            return &table[i];
    return NULL;
}

const struct variant *variant_named(clattn_op_kind op, const char *name) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].op == op && strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const char *variant_op_name(clattn_op_kind op) {
    switch (op) {
    case CLATTN_OP_ATTENTION:
        return "attention";
    case CLATTN_OP_ATTENTION_BACKWARD:
        return "attention_backward";
    case CLATTN_OP_ATTENTION_MERGE:
        return "attention_merge";
    case CLATTN_OP_SOFTMAX:
        return "softmax";
    case CLATTN_OP_SOFTMAX_MERGE:
        return "softmax_merge";
    case CLATTN_OP_GEMM:
        return "gemm";
    case CLATTN_OP_NORM:
        return "norm";
    case CLATTN_OP_NORM_BACKWARD:
        return "norm_backward";
    case CLATTN_OP_SOFTMAX_BACKWARD:
        return "softmax_backward";
    case CLATTN_OP_SOFTMAX_TOPK:
        return "softmax_topk";
    case CLATTN_OP_ROPE_APPEND:
        return "rope_append";
    case CLATTN_OP_CAST:
        return "cast";
    case CLATTN_OP_UNSCALE:
        return "unscale";
    case CLATTN_OP_LOSS_SCALE:
        return "loss_scale";
    case CLATTN_OP_ADAMW:
        return "adamw";
    case CLATTN_OP_SGD:
        return "sgd";
    case CLATTN_OP_ATTENTION_CASCADE:
        return "attention_cascade";
    case CLATTN_OP_RING_ATTENTION:
        return "ring_attention";
    case CLATTN_OP_RING_DECODE:
        return "ring_decode";
    case CLATTN_OP_RING_ATTENTION_BACKWARD:
        return "ring_attention_backward";
    }
    return "unknown";
}

const char *variant_backend_name(enum backend backend) {
    switch (backend) {
    case BACKEND_FMA:
        return "fma";
    case BACKEND_CPU_VECTOR:
        return "cpu_vector";
    case BACKEND_NVIDIA_MMA:
        return "nvidia_mma";
    case BACKEND_NVIDIA_WGMMA:
        return "nvidia_wgmma";
    case BACKEND_ANY:
        return "any";
    case BACKEND_CLBLAST:
        return "clblast";
    }
    return "unknown";
}
