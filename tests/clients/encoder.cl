/* What the encoder needs and the library does not have. Rows are tokens. */

/* A token's first row: the sum of three rows of tables. Ids and positions come from the tokenizer. */
__kernel void embed(__global const int *ids, __global const int *positions, __global const element *weights, int words,
                    int places, int types, __global element *out) {
    const size_t column = get_global_id(0), columns = get_global_size(0), row = get_global_id(1);
    const float word = LOAD(weights, words + ids[row] * columns + column);
    const float place = LOAD(weights, places + positions[row] * columns + column);
    STORE(word + place + LOAD(weights, types + column), out, row * columns + column);
}

/* The bias in every row, for a product that is added to it. */
__kernel void fill(__global const element *weights, int bias, __global element *out) {
    const size_t column = get_global_id(0);
    STORE(LOAD(weights, bias + column), out, get_global_id(1) * get_global_size(0) + column);
}

__kernel void bias_gelu(__global const element *weights, int bias, __global element *values) {
    const size_t column = get_global_id(0), at = get_global_id(1) * get_global_size(0) + column;
    const float x = LOAD(values, at) + LOAD(weights, bias + column);
    STORE(0.5f * x * (1.0f + erf(x * M_SQRT1_2_F)), values, at);
}

/* A sentence's embedding: the mean of its rows, one unit long. A work-group a sentence; partial has a float for each of
 * its items. */
__kernel void pool(__global const element *rows, __global const int *offsets, int columns, __global float *out,
                   __local float *partial) {
    const int item = get_local_id(0), items = get_local_size(0), sentence = get_group_id(0);
    const int begin = offsets[sentence], end = offsets[sentence + 1];
    __global float *means = out + (size_t)sentence * columns;
    float squares = 0;
    for (int column = item; column < columns; column += items) {
        float sum = 0;
        for (int row = begin; row < end; row++)
            sum += LOAD(rows, (size_t)row * columns + column);
        const float mean = sum / (end - begin);
        means[column] = mean;
        squares += mean * mean;
    }
    partial[item] = squares;
    barrier(CLK_LOCAL_MEM_FENCE);
    squares = 0;
    for (int i = 0; i < items; i++)
        squares += partial[i];
    for (int column = item; column < columns; column += items)
        means[column] /= sqrt(squares);
}
