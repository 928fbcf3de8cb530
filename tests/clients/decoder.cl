/* What the language model needs and the library does not have. Rows are tokens. */

/* A token's first row. */
__kernel void embed(__global const int *ids, __global const element *weights, int words, __global element *out) {
    const size_t column = get_global_id(0), columns = get_global_size(0), row = get_global_id(1);
    STORE(LOAD(weights, words + ids[row] * columns + column), out, row * columns + column);
}

/* The gate's and the other half of each row become one: x / (1 + exp(-x)) * y. */
__kernel void swiglu(__global const element *wide, __global element *out) {
    const size_t column = get_global_id(0), columns = get_global_size(0), row = get_global_id(1);
    const float gate = LOAD(wide, row * 2 * columns + column);
    const float up = LOAD(wide, (row * 2 + 1) * columns + column);
    STORE(gate / (1.0f + exp(-gate)) * up, out, row * columns + column);
}

/* The last row of each sequence, whose logits are asked for. */
__kernel void last_rows(__global const element *rows, __global const int *offsets, __global element *out) {
    const size_t column = get_global_id(0), columns = get_global_size(0), sequence = get_global_id(1);
    const size_t row = offsets[sequence + 1] - 1;
    STORE(LOAD(rows, row * columns + column), out, sequence * columns + column);
}
