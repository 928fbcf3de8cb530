/* A job is one operation with real tensors: made from files or from generated data, uploaded, launched, read back and
 * compared. The commands see only jobs; what differs between operations is in one job_kind each. */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include "array.h"
#include "machine.h"
#include "settings.h"

#include <clattn/kv_cache.h>
#include <clattn/training.h>

#define JOB_MAX_PARTS 32 /* operands of a merge */
#define JOB_MAX_TENSORS (2 * JOB_MAX_PARTS + 2)
#define JOB_MAX_OUTPUTS 10
#define JOB_MAX_DIMS 8 /* numbers of a --shape */

struct job;
struct job_cache;

/* What generated data is made of. */
struct job_shape {
    int64_t dims[JOB_MAX_DIMS]; /* the numbers of --shape */
    size_t count;
    enum element element;
    uint64_t seed;
    bool blank; /* zeros will do */
};

struct job_tensor {
    char name[16];
    bool output;
    bool updated;        /* the call reads and writes it: its host array is what it holds before a launch */
    bool asked_for;      /* some part of the operation has looked it up: an input that nothing does is a misnomer */
    bool sequence_first; /* where 4-d: the host array is [B,N,H,D], the view [B,H,N,D] */
    bool derived;        /* an output without a buffer, which the kind makes of the others' results */
    size_t within;       /* 1 + the index of a tensor whose first columns it is, in the same memory; 0: of none */
    int64_t columns;     /* where it lies within another: how many */
    struct array host;   /* what lies in the buffer before a launch; NaN in outputs that are not read */
    struct array result; /* outputs: what job_read found */
    clattn_tensor view;  /* of the buffer, as the library sees it; of the host array without its memory */
    cl_mem buffer;
};

/* Where the rows of an operation's result lie: element c of row r of an output of width w has the logical index
 * (r / inner * w + c) * inner + r % inner. */
struct job_rows {
    int64_t count, inner;
    int64_t widths[JOB_MAX_OUTPUTS]; /* per output tensor, in their order */
    double cost;                     /* multiplications that the oracle needs for a row */
    double size;                     /* what a plot has as its x axis: keys, columns */
};

struct job_kind {
    const char *name;  /* "attention" */
    const char *shape; /* what --shape means */
    clattn_op_kind op;
    int variety; /* tells kinds apart that share code */
    bool memory_bound;
    const char *variants; /* how the names of those that it is about begin; NULL: all but those of other kinds */

    /* Adds random inputs of the sizes of --shape; an exit code. */
    int (*generate)(struct job *job, const struct job_shape *shape, struct settings *settings);
    /* Checks the inputs' ranks, takes the settings, adds the outputs; an exit code. */
    int (*arrange)(struct job *job, struct settings *settings);
    /* Puts NaN into generated inputs where the result must not depend on them. NULL: every element counts. */
    int (*hide)(struct job *job);
    /* Makes, on the device, inputs of generated problems that are another operation's results. NULL: there are none. */
    int (*complete)(struct job *job, const struct machine *machine);
    /* Makes the results of derived outputs. NULL: there are none. */
    void (*derive)(struct job *job);
    /* Puts the tensors' views into the operation. */
    void (*bind)(struct job *job);
    clattn_status (*call)(clattn_context *context, const clattn_op *op, const clattn_launch *launch);

    struct job_rows (*rows)(const struct job *job);
    /* The values of a row of all outputs, one after another: by the oracle and by the plain version. */
    bool (*reference)(const struct job *job, struct job_cache *cache, int64_t row, double *want, double *plain);
    /* The job as it was before its inputs were quantised, which shares everything with it; false where they were not.
     * NULL: they never are. */
    bool (*original)(const struct job *job, struct job *original);
    double (*flops)(const struct job *job);
    /* What a call reads and writes. NULL: all tensors. */
    double (*bytes)(const struct job *job);
    void (*describe)(const struct job *job, char *text, size_t size);
};

struct job {
    const struct job_kind *kind;
    union {
        clattn_op head;
        clattn_attention_op attention;
        clattn_attention_backward_op attention_backward;
        clattn_attention_cascade_op attention_cascade;
        clattn_attention_merge_op attention_merge;
        clattn_softmax_op softmax;
        clattn_softmax_merge_op softmax_merge;
        clattn_gemm_op gemm;
        clattn_norm_op norm;
        clattn_norm_backward_op norm_backward;
        clattn_softmax_backward_op softmax_backward;
        clattn_softmax_topk_op softmax_topk;
        clattn_rope_append_op rope_append;
        clattn_cast_op cast;
        clattn_unscale_op unscale;
        clattn_adamw_op adamw;
        clattn_sgd_op sgd;
    } op;
    struct array unquantised[2]; /* attention: k and v as they were before they became codes; without data: never */
    clattn_tensor parts[5][JOB_MAX_PARTS];
    int list_count; /* parts that lists are made of; 0: the operation takes none */
    struct job_tensor tensors[JOB_MAX_TENSORS];
    size_t count;
    bool sequence_first; /* that of tensors to be added */
    bool incomplete;     /* complete() is wanted */
    cl_mem workspace;
    size_t workspace_bytes;
    char variant[32], parameters[32]; /* of launches that name none; "": the library's choice */
};

extern const struct job_kind job_attention, job_attention_decode, job_attention_cascade, job_attention_merge,
    job_attention_backward, job_softmax, job_log_softmax, job_logsumexp, job_softmax_state, job_softmax_merge, job_gemm,
    job_rms_norm, job_layer_norm, job_rms_norm_backward, job_layer_norm_backward, job_softmax_backward,
    job_log_softmax_backward, job_softmax_topk, job_rope_append, job_cast, job_unscale, job_adamw, job_sgd;

/* NULL past the last. */
const struct job_kind *job_kind_at(size_t index);
const struct job_kind *job_kind_named(const char *name);
/* Says which operations there are. */
int job_complain_unknown(const char *name);

/* ---- making ------------------------------------------------------------------------------------------------------ */

void job_start(struct job *job, const struct job_kind *kind);

/* Takes over the array's data in every case. */
int job_add(struct job *job, const char *name, bool output, struct array *array);
int job_add_random(struct job *job, const char *name, const struct job_shape *shape, int rank, const int64_t *dims);
/* Poisoned with NaN. */
int job_add_output(struct job *job, const char *name, enum element element, int rank, const int64_t *dims);
/* The first columns of another tensor, once that has its order; its array counts no elements of its own. */
int job_add_within(struct job *job, const char *name, const char *whole, int64_t columns);
struct job_tensor *job_find(const struct job *job, const char *name); /* NULL where absent */
/* The views of a tensor that may be absent. */
clattn_tensor job_view(const struct job *job, const char *name);

/* The setting layout=bhsd|bshd, for all tensors added before and after. */
int job_take_layout(struct job *job, struct settings *settings);
/* The order of a tensor that may be absent, where it is not the layout's. */
void job_set_order(struct job *job, const char *name, bool sequence_first);
/* The setting out_dtype, else the dtype of the named tensor. */
int job_take_out_element(struct job *job, struct settings *settings, const char *like, enum element *out);
/* An integer tensor that may be absent: its numbers must fit 32 bits, to which it is converted. */
int job_take_integers(struct job *job, const char *name, int rank);
/* A float tensor of that many dimensions must be there: an exit code. rank 0 allows any. */
int job_require(const struct job *job, const char *name, int rank);

/* Generates the inputs, and arranges. */
int job_generate(struct job *job, const struct job_kind *kind, const struct job_shape *shape,
                 struct settings *settings);
/* Outputs and operation from the inputs and settings; refuses settings that the operation does not know. */
int job_arrange(struct job *job, struct settings *settings);
void job_release(struct job *job);

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Makes the buffers. */
int job_upload(struct job *job, const struct machine *machine);
/* Writes again what the tensors that a call writes held at first. */
int job_reset(struct job *job, const struct machine *machine);
/* Another workspace where the variant needs a larger one. */
int job_prepare(struct job *job, const struct machine *machine, const char *variant, const char *parameters);
/* Is the variant one of those that the kind is about? */
bool job_takes(const struct job *job, const char *variant);
/* On the machine's queue, with the job's own variant and parameters where these are NULL. */
clattn_launch job_launch_of(const struct job *job, const struct machine *machine, const char *variant,
                            const char *parameters);
int job_launch(struct job *job, const struct machine *machine, const char *variant, const char *parameters,
               cl_event *event);
/* Reads the outputs; waits. */
int job_read(struct job *job, const struct machine *machine);

/* Further sets of buffers with the same content; job_use_set binds one of them (set 0 is the job's own). */
struct job_sets {
    size_t count;
    cl_mem (*buffers)[JOB_MAX_TENSORS]; /* of sets 1... */
    cl_mem own[JOB_MAX_TENSORS];
};
int job_sets_make(struct job_sets *sets, struct job *job, const struct machine *machine, size_t count);
void job_use_set(struct job *job, const struct job_sets *sets, size_t index);
void job_sets_release(struct job_sets *sets, struct job *job);

/* What a call reads and writes: of all tensors, where the kind does not say, inputs once, outputs once, and what is
 * updated twice. */
double job_bytes(const struct job *job);

/* ---- for the kinds ----------------------------------------------------------------------------------------------- */

/* Logical element of a tensor's host array, or of its result. */
double job_value(const struct job_tensor *tensor, const struct array *array, int64_t index);
/* `count` elements from `first` on; quicker than one by one. */
void job_values(const struct job_tensor *tensor, const struct array *array, int64_t first, int64_t count,
                double *values);
void job_set_value(struct job_tensor *tensor, int64_t index, double value); /* of the host array */
/* Where `count` elements of one row lie, in bytes of the buffer: the first, and all up to the last. */
struct job_extent {
    size_t first, bytes;
};
struct job_extent job_extent(const struct job_tensor *tensor, int64_t first, int64_t count);

/* Oracles read whole slices in double; the last slice of each name is kept. */
#define JOB_CACHE_SLOTS 16
struct job_cache {
    struct {
        int64_t first, count;
        double *values; /* NULL: empty */
    } slots[JOB_CACHE_SLOTS];
};
/* `count` logical elements of a tensor from `first`; NULL where memory is short. Kept until another slice is asked for
 * in that slot. */
const double *job_slice(struct job_cache *cache, size_t slot, const struct job_tensor *tensor, int64_t first,
                        int64_t count);
/* Room for a slot's values that are named by first and count; *fresh where the caller has to fill it. */
double *job_cache_slot(struct job_cache *cache, size_t slot, int64_t first, int64_t count, bool *fresh);
void job_cache_free(struct job_cache *cache);

#endif
