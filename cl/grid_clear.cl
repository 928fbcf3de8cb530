/* Clears tickets and places of grid.clh before their first use. */

kernel void grid_clear(global ulong *workspace, const long at, const long count) {
    const long index = (long)get_global_id(0);
    if (index < count)
        workspace[at + index] = 0;
}
