/* dweight and dbias from the teams' parts: a work-group takes LANES neighbouring columns and cuts the teams into
 * SLICES, which meet in local memory. The order of the sums is fixed. */

/* Parameters: dtypes are numbers of clattn_dtype, 0 where the tensor is absent. */
#ifndef DWEIGHT_DTYPE
#define DWEIGHT_DTYPE 1
#endif
#ifndef DBIAS_DTYPE
#define DBIAS_DTYPE 1
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef SLICES
#define SLICES 1
#endif

#include "element.clh"

kernel __attribute__((reqd_work_group_size(LANES * SLICES, 1, 1))) void
norm_backward_columns(global const float *workspace, global byte_t *dweight, global byte_t *dbias,
                      const long partial_at, const long plane, const long dweight_at, const long dbias_at,
                      const long columns, const int teams) {
    local float2 part[LANES * SLICES];
    const uint item = (uint)get_local_id(0), slice = item / LANES;
    const long column = (long)get_group_id(0) * LANES + item % LANES;
    global const float *partial = workspace + partial_at + column;
    float2 sum = (float2)(0.0f);
#pragma unroll 8 /* so many loads at a time are on their way */
    for (int team = (int)slice; team < teams && column < columns; team += SLICES)
        sum += (float2)(DWEIGHT_DTYPE != 0 ? partial[team * columns] : 0.0f,
                        DBIAS_DTYPE != 0 ? partial[plane + team * columns] : 0.0f);
    part[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = SLICES / 2; step > 0; step /= 2) {
        if (slice < step)
            part[item] += part[item + step * LANES];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (slice > 0 || column >= columns)
        return;
    if (DWEIGHT_DTYPE != 0)
        element_store(dweight, dweight_at + column, part[item].x, DWEIGHT_DTYPE);
    if (DBIAS_DTYPE != 0)
        element_store(dbias, dbias_at + column, part[item].y, DBIAS_DTYPE);
}
