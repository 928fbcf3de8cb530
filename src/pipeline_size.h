/* The sizes of attention's pipeline (cl/pipeline.clh), computed on the host by the formulas of its macros. Pure. */
#ifndef CLATTN_PIPELINE_SIZE_H
#define CLATTN_PIPELINE_SIZE_H

#include "parameters.h"
#include "variant.h"

struct pipeline_shape {
    int groups;         /* tile groups that compute */
    int block_keys;     /* keys of a block */
    int stages;         /* blocks of keys and of values that are held */
    int q_slots;        /* blocks of queries in local memory */
    int q_held;         /* 1: queries are held in registers */
    int heads_together; /* heads whose blocks take turns under a causal limit */
    int take, give;     /* registers of a work-item that computes, and of one that fetches */
};

struct pipeline_shape pipeline_shape_of(const struct parameters *parameters);
/* Adds every parameter as it is in the shape. */
void pipeline_spell_out(const struct pipeline_shape *shape, struct parameters *parameters);
/* Why no kernel takes the parameters, whatever the device, or NULL. */
const char *pipeline_refusal(const struct parameters *parameters);

int pipeline_block_queries(const struct pipeline_shape *shape);
size_t pipeline_items(const struct pipeline_shape *shape);
/* Local memory, with what aligning it may cost. */
size_t pipeline_bytes(const struct pipeline_shape *shape, int64_t head_dim, int64_t value_dim);
/* What biases of 16 bits take besides where they go through local memory; 0: blocks are not of a size for that. */
size_t pipeline_bias_bytes(const struct pipeline_shape *shape);
/* The options that the kernels are built with, but for the problem's own. */
void pipeline_options(const struct pipeline_shape *shape, char *options, size_t size);

#endif
