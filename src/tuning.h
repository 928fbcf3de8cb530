/* Tile parameters per device, operation, back-end, dtype and size, and which variant of attention to prefer: rows
 * shipped with the library (src/tuning/), preceded by the user's own. Loaded once; searching is pure.
 *
 *   {"rows": [{"device": "H200", "op": "attention", "variant": "fused_fma", "dtype": "f16", "max_size": 128,
 *              "parameters": {"rows_per_item": 8}},
 *             {"device": "H200", "op": "attention", "prefer": "unfused", "dtype": "f32", "max_size": 64,
 *              "queries": [129, 256], "keys": [129, 256]}]}
 *
 * "variant" and "parameters", or "prefer", are required. A row is for a "device", else an "architecture", else a
 * "vendor", else for all; without "dtype" for every type, without "min_size" and "max_size" for every size. "op" is
 * needed where several operations have a variant of the name. A row with a "driver" or a hash of "kernels" is in force
 * only where these are still what they were. A row with a value that no kernel takes is dropped with a warning, so that
 * the next best is found in its place. The default rows name every parameter of their variant; others stand on their
 * own too.
 *
 * A row that prefers a variant of attention also has ranges of "queries", of "keys", of "heads" (batch times query
 * heads) and of "sharing" (query heads a kv head), and "causal", whatever it leaves out being any. It holds where there
 * is no window and keys and values are no codes; one that prefers unfused attention, where there is no other modifier
 * than a causal limit. */
#ifndef CLATTN_TUNING_H
#define CLATTN_TUNING_H

#include "log.h"
#include "parameters.h"
#include "variant.h"

/* Why no kernel of the variant takes the parameters, whatever the device; NULL where one may. */
const char *tuning_refusal(const struct variant *variant, const struct parameters *parameters);

struct tuning; /* immutable once loaded and narrowed */
struct tuning_row;

struct tuning_key {
    const char *variant; /* "fused_fma" */
    clattn_op_kind op;
    clattn_dtype dtype;
    int64_t size; /* attention: max(head_dim, value_dim); softmax: columns; gemm: max(m,n) */
};

enum tuning_source { TUNING_DEVICE, TUNING_ARCHITECTURE, TUNING_VENDOR, TUNING_DEFAULT, TUNING_NONE };

/* Shipped rows, then those of the file at user_db (NULL or "": none; an unreadable or damaged file is logged and
 * ignored). */
clattn_status tuning_load(const char *user_db, const struct log *log, struct tuning **out);
void tuning_free(struct tuning *tuning);
/* Forgets the rows for other devices, which makes searching cheaper and changes no answer for this one, and puts aside,
 * with a warning, those of the device that were measured with another driver or other kernels. cl_dir: where kernels
 * are read from, or NULL. */
void tuning_narrow(struct tuning *tuning, const struct device_facts *facts, const char *cl_dir, const struct log *log);

/* The best row: device name, else architecture, else vendor, else default; within a level user rows before shipped
 * ones, then the smallest size bound that holds key->size, then an exact dtype before any. */
enum tuning_source tuning_find(const struct tuning *tuning, const struct device_facts *facts,
                               const struct tuning_key *key, struct parameters *out);

/* The variant of attention that the best row prefers for the problem, or NULL; whether it accepts is the caller's to
 * see. */
const struct variant *tuning_preferred(const struct tuning *tuning, const struct device_facts *facts,
                                       const struct problem *problem);

/* Rows of a narrowed tuning, those in force first; NULL past the last. */
const struct tuning_row *tuning_row_at(const struct tuning *tuning, size_t index);

/* Does any shipped row of this variant name the parameter? What none names, no kernel reads. */
bool tuning_knows(const struct tuning *tuning, clattn_op_kind op, const char *variant, const char *parameter);

const char *tuning_source_name(enum tuning_source source);

#endif
