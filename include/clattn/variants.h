/* Looking behind the choice: enumerate the variants of an operation, ask why one is refused, see what would run.
 * Names are those that clattn_launch.variant takes. Thread safety as in clattn.h. */
#ifndef CLATTN_VARIANTS_H
#define CLATTN_VARIANTS_H

#include "clattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Variants of an operation in order of preference; 0 for an unknown kind. */
CLATTN_API size_t clattn_variant_count(clattn_op_kind kind);

/* "fused_fma"; NULL where index is out of range. Static storage. */
CLATTN_API const char *clattn_variant_name(clattn_op_kind kind, size_t index);

/* Writes why the variant refuses this problem on this device, or "" where it accepts. */
CLATTN_API clattn_status clattn_variant_question(clattn_context *context, const clattn_op *op, const char *variant,
                                                 char *reason, size_t reason_size);

/* What a call would run. */
typedef struct clattn_choice {
    size_t size;
    char variant[64];     /* "fused_fma" */
    char name[128];       /* "attention_forward_f16_d128__fma_64x64" */
    char parameters[256]; /* "score_tiles=2,groups=8,..." */
    char source[64]; /* what gave them: a row for "device", "architecture", "vendor", "default"; the "call"; "none" */
    int64_t tuning_size; /* what tuning rows of the variant are looked up by, beside the dtype */
} clattn_choice;

CLATTN_API clattn_status clattn_variant_choose(clattn_context *context, const clattn_op *op,
                                               const clattn_launch *launch, clattn_choice *choice);

/* A tuning row for the context's device, from the library or from the user's database. */
typedef struct clattn_tuning_row {
    size_t size;
    char op[32], variant[64];   /* "attention", "fused_fma"; op "": there is no such row */
    char level[64];             /* what the row is for: this "device", "architecture", "vendor", or "default": all */
    int32_t user;               /* 1: of the user's database, 0: shipped */
    int32_t prefers;            /* 1: it says which variant to take; 0: it gives the variant's parameters */
    char dtype[8];              /* "": any */
    int64_t min_size, max_size; /* both held; max_size INT64_MAX: without end */
    char parameters[256];       /* "score_tiles=2,groups=8"; of a row that prefers the problems that it is for:
                                    "queries=1..16,keys=129..256,causal=0" */
    char ignored[128];          /* "": in force, else why it is not */
} clattn_tuning_row;

/* Writes the hash of kernel sources that a row of the variant carries, 16 hexadecimal digits; variant NULL: a row that
 * prefers one. UNSUPPORTED where the operation has no tuning rows. */
CLATTN_API clattn_status clattn_tuning_kernels(clattn_context *context, clattn_op_kind kind, const char *variant,
                                               char *hash, size_t hash_size);

/* The row of that index: those in force first, in the order in which they are looked up. */
CLATTN_API clattn_status clattn_tuning_row_at(clattn_context *context, size_t index, clattn_tuning_row *row);

/* Facts about the device as the library sees them, after the capability mask. */
typedef struct clattn_device_info {
    size_t size;
    char name[128], vendor[128], driver[128], platform[128];
    char architecture[32];     /* "sm_90", "gfx1100", "xe_hpg", "cpu", "unknown" */
    char capabilities[256];    /* "shuffle,half,nvidia_mma" */
    char subgroup_backend[16]; /* "khr", "nvidia", "local" */
    uint32_t compute_units, max_work_group_size, subgroup_size;
    uint64_t local_memory, global_memory, max_allocation;
    char cache_dir[512], tuning_db[512]; /* "" = off */
} clattn_device_info;

CLATTN_API clattn_status clattn_context_info(clattn_context *context, clattn_device_info *info);

/* Outcome of each capability's self-test so far: "passed", "failed", "untested" or "absent". Runs those that have not
 * run yet where run is non-zero (this needs the device). NULL where index is past the last. */
CLATTN_API clattn_status clattn_capability_report(clattn_context *context, size_t index, int run,
                                                  const char **capability, const char **verdict);

/* Counters since the context was created. */
typedef struct clattn_statistics {
    size_t size;
    uint64_t programs_built;  /* compiled from source */
    uint64_t programs_loaded; /* taken from the disk cache */
    uint64_t kernel_launches;
} clattn_statistics;

CLATTN_API clattn_status clattn_context_statistics(clattn_context *context, clattn_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
