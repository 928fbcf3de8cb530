/* Inputs and judgements of the self-tests. All inputs are small whole numbers or exact halves, so that every right
 * answer is exact and the comparison needs no tolerance. */
#include "selftest_trials.h"
#include "half.h"
#include "pipeline_size.h"
#include "selftest_tile.h"

#include <stdio.h>
#include <string.h>

/* ---- shuffle: four sub-groups of one group, or fewer where the group is small ------------------------------------ */

enum { SHUFFLE_ITEMS = 256, SHUFFLE_MASKS = 7, SHUFFLE_RESULTS = SHUFFLE_MASKS + 3 };

static size_t shuffle_items(const struct device_facts *facts, size_t limit) {
    size_t items = 4 * (size_t)facts->subgroup_size;
    while (items > facts->subgroup_size && (items > limit || items > SHUFFLE_ITEMS))
        items /= 2;
    return items;
}

static void shuffle_fill(const struct device_facts *facts, void *in) {
    float *x = in;
    (void)facts;
    for (int i = 0; i < SHUFFLE_ITEMS; i++)
        x[i] = (float)((i * 37 + 11) % 251 - 125);
}

static void shuffle_options(const struct device_facts *facts, char *text, size_t size) {
    snprintf(text, size, "-DSUBGROUP_BACKEND=%s -DSG_SIZE=%u -DRESULT_STRIDE=%d", device_subgroup_name(facts->subgroup),
             (unsigned)facts->subgroup_size, SHUFFLE_ITEMS);
}

/* Results lie as [result][item]: exchange by each power of two below the size, broadcast of the last lane, maximum,
 * sum. */
static bool shuffle_holds(const struct device_facts *facts, size_t items, const void *in, const void *out) {
    const float *x = in, *y = out;
    const size_t size = facts->subgroup_size;
    for (size_t i = 0; i < items; i++) {
        const size_t first = i / size * size;
        float largest = x[first], sum = 0;
        for (size_t lane = 0; lane < size; lane++) {
            largest = x[first + lane] > largest ? x[first + lane] : largest;
            sum += x[first + lane];
        }
        for (size_t bit = 0; bit < SHUFFLE_MASKS && ((size_t)1 << bit) < size; bit++)
            if (y[bit * SHUFFLE_ITEMS + i] != x[i ^ ((size_t)1 << bit)])
                return false;
        const float *reduced = y + SHUFFLE_MASKS * SHUFFLE_ITEMS + i;
        if (reduced[0] != x[first + size - 1] || reduced[SHUFFLE_ITEMS] != largest || reduced[2 * SHUFFLE_ITEMS] != sum)
            return false;
    }
    return true;
}

/* ---- half: every bit pattern to float, and a float per pattern to half ------------------------------------------- */

enum { HALF_PATTERNS = 65536, HALF_GROUP = 64, HALF_INFINITY = 0x7c00 };

struct half_in {
    uint16_t bits[HALF_PATTERNS];
    float value[HALF_PATTERNS];
};

struct half_out {
    float value[HALF_PATTERNS];
    uint16_t bits[HALF_PATTERNS];
};

static size_t half_items(const struct device_facts *facts, size_t limit) {
    (void)facts;
    return limit < HALF_GROUP ? limit : HALF_GROUP;
}

static void half_options(const struct device_facts *facts, char *text, size_t size) {
    (void)facts;
    snprintf(text, size, "-DHALF_TYPE");
}

/* Midway between a pattern's value and the next: rounds to whichever of the two is even. */
static double half_midpoint(unsigned bits) {
    const unsigned magnitude = bits & 0x7fffu;
    const double low = half_to_double((uint16_t)magnitude);
    const double high = magnitude + 1 == HALF_INFINITY ? 65536.0 : half_to_double((uint16_t)(magnitude + 1));
    const double middle = magnitude >= HALF_INFINITY ? low : (low + high) / 2;
    return (bits & 0x8000u) != 0 ? -middle : middle;
}

static void half_fill(const struct device_facts *facts, void *in) {
    struct half_in *fed = in;
    (void)facts;
    for (unsigned i = 0; i < HALF_PATTERNS; i++) {
        fed->bits[i] = (uint16_t)i;
        fed->value[i] = (float)half_midpoint(i);
    }
}

static bool half_holds(const struct device_facts *facts, size_t items, const void *in, const void *out) {
    const struct half_out *got = out;
    (void)facts;
    (void)items;
    (void)in;
    for (unsigned i = 0; i < HALF_PATTERNS; i++) {
        const bool nan = (i & 0x7fffu) > HALF_INFINITY;
        const unsigned even = (i & 0x7fffu) < HALF_INFINITY ? i + (i & 1u) : i;
        if (nan ? !isnan(got->value[i]) : got->value[i] != half_to_double((uint16_t)i))
            return false;
        if (nan ? (got->bits[i] & 0x7fffu) <= HALF_INFINITY : got->bits[i] != even)
            return false;
    }
    return true;
}

/* ---- matrix unit: the tile contract on it ------------------------------------------------------------------------ */

static struct tile_shape mma_shape(const struct device_facts *facts) {
    const struct parameters parameters = {.count = 1, .item = {{"groups", 2}}};
    return tile_shape_of(BACKEND_NVIDIA_MMA, &parameters, facts);
}

static size_t mma_items(const struct device_facts *facts, size_t limit) {
    (void)limit; /* the kernel requires its size */
    const struct tile_shape shape = mma_shape(facts);
    return (size_t)(shape.groups * shape.items);
}

static void mma_options_f16(const struct device_facts *facts, char *text, size_t size) {
    const struct tile_shape shape = mma_shape(facts);
    selftest_tile_options(&shape, CLATTN_F16, text, size);
}

static void mma_options_bf16(const struct device_facts *facts, char *text, size_t size) {
    const struct tile_shape shape = mma_shape(facts);
    selftest_tile_options(&shape, CLATTN_BF16, text, size);
}

static void mma_fill_f16(const struct device_facts *facts, void *in) {
    const struct tile_shape shape = mma_shape(facts);
    selftest_tile_fill(&shape, CLATTN_F16, in);
}

static void mma_fill_bf16(const struct device_facts *facts, void *in) {
    const struct tile_shape shape = mma_shape(facts);
    selftest_tile_fill(&shape, CLATTN_BF16, in);
}

static bool mma_holds(const struct device_facts *facts, size_t items, const void *in, const void *out) {
    const struct tile_shape shape = mma_shape(facts);
    (void)items, (void)in;
    return selftest_tile_holds(&shape, out);
}

/* Sizes of buffers, above what mma_shape() needs: A 32 x 32, BT 32 x 32, V 32 x 32. */
enum { MMA_IN = 3 * 32 * 32 * 2, MMA_OUT = (2 * 32 * 32 + 2 * 32 + 1) * 4 };

/* ---- pipeline: what attention's is made of ----------------------------------------------------------------------- */

/* As cl/selftest_pipeline.cl has it: 64 rows a group, 64 columns, 64 steps. */
static struct tile_shape pipeline_tile(void) {
    return (struct tile_shape){.groups = 2, .m = 64, .n = 32, .k = 32};
}

static struct pipeline_shape pipeline_trial(void) {
    const struct parameters parameters = {.count = 3, .item = {{"groups", 2}, {"block_keys", 64}, {"stages", 1}}};
    return pipeline_shape_of(&parameters);
}

static size_t pipeline_trial_items(const struct device_facts *facts, size_t limit) {
    (void)facts, (void)limit; /* the kernel requires its size */
    const struct pipeline_shape shape = pipeline_trial();
    return pipeline_items(&shape);
}

static void write_pipeline_options(clattn_dtype dtype, char *text, size_t size) {
    char pipeline[320];
    const struct pipeline_shape shape = pipeline_trial();
    pipeline_options(&shape, pipeline, sizeof pipeline);
    snprintf(text, size,
             "%s -DELEMENT=%d -DOUT_ELEMENT=%d -DHEAD_DIM=64 -DVALUE_DIM=64 -DOUT_ALIGNED=1 -DBAND=1 -DMASK=0 -DBIAS=0 "
             "-DALIBI=0 -DSEQUENCES=0 -DPAGED=0 -DSOFTCAP=0 -DSINKS=0",
             pipeline, (int)dtype, (int)dtype);
}

static void pipeline_options_f16(const struct device_facts *facts, char *text, size_t size) {
    (void)facts;
    write_pipeline_options(CLATTN_F16, text, size);
}

static void pipeline_options_bf16(const struct device_facts *facts, char *text, size_t size) {
    (void)facts;
    write_pipeline_options(CLATTN_BF16, text, size);
}

static void pipeline_fill_f16(const struct device_facts *facts, void *in) {
    const struct tile_shape tile = pipeline_tile();
    (void)facts;
    selftest_tile_fill(&tile, CLATTN_F16, in);
}

static void pipeline_fill_bf16(const struct device_facts *facts, void *in) {
    const struct tile_shape tile = pipeline_tile();
    (void)facts;
    selftest_tile_fill(&tile, CLATTN_BF16, in);
}

static bool pipeline_holds(const struct device_facts *facts, size_t items, const void *in, const void *out) {
    const struct tile_shape tile = pipeline_tile();
    (void)facts, (void)items, (void)in;
    return selftest_tile_holds(&tile, out);
}

/* A 128 x 64, BT and V 64 x 64; sums, and room for three maps behind them. */
enum { PIPELINE_IN = 256 * 64 * 2, PIPELINE_OUT = (2 * 128 * 64 + 2 * 128 + 1) * 4 + 1024 };

/* ---- grid: a chain of groups ------------------------------------------------------------------------------------- */

enum { GRID_GROUPS = 512, GRID_ITEMS = 64 };

struct grid_out {
    struct {
        float sum, ticket;
    } place[GRID_GROUPS];
    uint32_t tickets, unused;
};

static size_t grid_items(const struct device_facts *facts, size_t limit) {
    (void)facts;
    return limit < GRID_ITEMS ? limit : GRID_ITEMS;
}

static void grid_options(const struct device_facts *facts, char *text, size_t size) {
    (void)facts;
    snprintf(text, size, "-DGROUPS=%d", (int)GRID_GROUPS);
}

static void grid_fill(const struct device_facts *facts, void *in) {
    (void)facts;
    *(float *)in = 7;
}

static bool grid_holds(const struct device_facts *facts, size_t items, const void *in, const void *out) {
    const struct grid_out *got = out;
    (void)facts, (void)items, (void)in;
    for (int i = 0; i < GRID_GROUPS; i++)
        if (got->place[i].sum != (float)(8 + i) || got->place[i].ticket != (float)(1 + i))
            return false;
    return got->tickets == GRID_GROUPS;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct selftest_trial trials[] = {
    {CAP_SUBGROUP_SHUFFLE, "selftest_shuffle.cl", "selftest_shuffle", SHUFFLE_ITEMS * sizeof(float),
     SHUFFLE_RESULTS *SHUFFLE_ITEMS * sizeof(float), 1, shuffle_items, shuffle_options, shuffle_fill, shuffle_holds},
    {CAP_HALF_TYPE, "selftest_half.cl", "selftest_half", sizeof(struct half_in), sizeof(struct half_out),
     HALF_PATTERNS / HALF_GROUP, half_items, half_options, half_fill, half_holds},
    {CAP_NVIDIA_MMA, "selftest_tile.cl", "selftest_tile", MMA_IN, MMA_OUT, 1, mma_items, mma_options_f16, mma_fill_f16,
     mma_holds},
    {CAP_NVIDIA_MMA, "selftest_tile.cl", "selftest_tile", MMA_IN, MMA_OUT, 1, mma_items, mma_options_bf16,
     mma_fill_bf16, mma_holds},
    {CAP_NVIDIA_WGMMA, "selftest_pipeline.cl", "selftest_pipeline", PIPELINE_IN, PIPELINE_OUT, 1, pipeline_trial_items,
     pipeline_options_f16, pipeline_fill_f16, pipeline_holds},
    {CAP_NVIDIA_WGMMA, "selftest_pipeline.cl", "selftest_pipeline", PIPELINE_IN, PIPELINE_OUT, 1, pipeline_trial_items,
     pipeline_options_bf16, pipeline_fill_bf16, pipeline_holds},
    {CAP_GRID, "selftest_grid.cl", "selftest_grid", sizeof(float), sizeof(struct grid_out), GRID_GROUPS, grid_items,
     grid_options, grid_fill, grid_holds},
};

const struct selftest_trial *selftest_trial_next(enum device_capability cap, const struct selftest_trial *after) {
    for (const struct selftest_trial *trial = after == NULL ? trials : after + 1;
         trial < trials + sizeof trials / sizeof trials[0]; trial++)
        if (trial->cap == cap)
            return trial;
    return NULL;
}
