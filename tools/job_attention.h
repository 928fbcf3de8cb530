/* What the parts of the operation attention share: its inputs, its rows as the oracle sees them, and random
 * problems. */
#ifndef TOOLS_JOB_ATTENTION_H
#define TOOLS_JOB_ATTENTION_H

#include "job.h"

#include <reference.h>

/* ---- the operation (job_attention.c) ----------------------------------------------------------------------------- */

/* The forward call that a job is, or whose gradients it is about. */
clattn_attention_op *job_attention_op(const struct job *job);

/* Settings and inputs, without the outputs. */
int job_attention_arrange(struct job *job, struct settings *settings);
/* o and lse. */
int job_attention_add_outputs(struct job *job, struct settings *settings);
/* Keys and values that some query sees, once; other tensors whole. */
double job_attention_bytes(const struct job *job);
void job_attention_bind(struct job *job);
void job_attention_describe(const struct job *job, char *text, size_t size);

/* ---- inputs (job_attention_inputs.c) ----------------------------------------------------------------------------- */

/* Brings the optional inputs into the types that the library takes, and refuses what it cannot take: unknown names,
 * other types, and lengths, offsets or pages that lead out of the tensors. After the settings and the layout. */
int job_attention_take_inputs(struct job *job, struct settings *settings);

/* Sequences of the problem, and the most keys of one, by the tensors' dims. */
int64_t job_attention_sequences(const struct job *job);
int64_t job_attention_columns(const struct job *job);

/* ---- formats of codes (job_attention_codes.c) -------------------------------------------------------------------- */

/* What the settings k_dtype=, k_block= and k_nibbles= say of a tensor k. */
struct job_format {
    bool codes;
    clattn_dtype dtype;
    clattn_quantization quantization; /* without scales and zeros */
};
int job_format_take(struct settings *settings, const char *name, struct job_format *format);
/* Of a dense row of so many codes: scales (0: a head has one), and bytes. */
int64_t job_format_blocks(const struct job_format *format, int64_t columns);
int64_t job_format_bytes(const struct job_format *format, int64_t columns);
/* The array holds bytes; the view is to count codes. */
void job_format_view(struct job_tensor *tensor, const struct job_format *format, int64_t columns);

/* ---- quantised keys and values (job_attention_codes.c) ----------------------------------------------------------- */

/* The settings k_dtype=, v_dtype= and what belongs to them: demands codes, scales and zeros, or floats where there are
 * none, and makes the views. After the layout. */
int job_attention_take_codes(struct job *job, struct settings *settings);
void job_attention_bind_codes(struct job *job);
bool job_attention_holds_codes(const struct job_tensor *tensor);
/* A row of k or v, counted over all heads, as its codes say; and one that must not be looked at. */
void job_attention_row_values(const struct job *job, const struct job_tensor *tensor, int64_t index, double *values);
void job_attention_spoil_codes(const struct job *job, struct job_tensor *tensor, int64_t index, double value);
/* Turns random k and v into what the settings ask for; keeps the floats, but of large ones. blank: zeros will
 * do. */
int job_attention_quantise(struct job *job, struct settings *settings, bool blank);
/* As job_kind has it. */
bool job_attention_original(const struct job *job, struct job *original);

/* ---- random problems (job_attention_random.c) -------------------------------------------------------------------- */

int job_attention_generate(struct job *job, const struct job_shape *shape, struct settings *settings);

/* ---- rows (job_attention_rows.c) --------------------------------------------------------------------------------- */

/* Slots of the cache that rows need; gradients take those behind them. */
enum { SLOT_Q, SLOT_K, SLOT_V, SLOT_MASK, SLOT_BIAS, SLOT_SMALL, SLOT_GRADIENTS = SLOT_SMALL + 7 };

/* The problem without its mask and bias. False where memory is short, as in what follows. */
bool job_attention_problem(const struct job *job, struct job_cache *cache, struct reference_attention *problem);

/* Where a row belongs, and the problem with all values that it needs; mask and bias hold that row alone. False where
 * memory is short. Valid until the cache is used again. */
bool job_attention_locate(const struct job *job, struct job_cache *cache, int64_t row,
                          struct reference_attention *problem, struct reference_row *at);

/* The keys ("k") or values ("v") that the row's sequence has for its head, one behind the other. */
const double *job_attention_gather(const struct job *job, struct job_cache *cache, const char *name,
                                   const struct reference_attention *problem, const struct reference_row *at);

/* Row `row` of o and lse as by reference(), and its probabilities [columns]. */
bool job_attention_row(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain,
                       double *want_p, double *plain_p);

/* Pairs of queries and keys that lengths, causal, window and mask leave, over all heads. */
double job_attention_pairs(const struct job *job);

/* NaN and infinities in queries, keys, values and bias that no result may depend on. Large problems, which are there
 * for their speed, are left alone. */
int job_attention_hide(struct job *job);

#endif
